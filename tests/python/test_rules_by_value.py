"""Rules with Python control flow on the values of tangents or cotangents, under further derivatives,
`vmap` and `jit`, against JAX."""

import functools

import numpy as np
import pytest
from oracle import same


def slope(S, x):
    return S.jnp.cos(x) * x + S.jnp.sin(x)


RULES = {
    "if": lambda S, x, ct: ct * slope(S, x) if ct > 0 else ct * x,
    "float": lambda S, x, ct: ct * slope(S, x) if float(ct) > 0 else ct * x,
    "numpy": lambda S, x, ct: ct * slope(S, x) * (2.0 if np.asarray(ct) > 0 else 1.0),
    "loop": lambda S, x, ct: functools.reduce(lambda a, _: a * x, range(int(ct * 0 + 2)), ct),
    "any": lambda S, x, ct: ct * slope(S, x) if S.jnp.any(ct) else ct * 0,
    "with primals": lambda S, x, ct: (ct * slope(S, x) if x > 0 else ct * x) if ct > 0 else ct * 3,
    "in cond": lambda S, x, ct: S.lax.cond(ct > 0, lambda c: c * (x if x > 0 else 1.0), lambda c: c, ct),
    "before cond": lambda S, x, ct: S.lax.cond(x > 0, lambda c: c * x, lambda c: c, ct) if ct > 0 else ct,
}  # fmt: skip
FUNCTIONS = {
    "alone": lambda S, f, x: f(x),
    "square": lambda S, f, x: f(x) ** 2 * x,
    "twice": lambda S, f, x: f(f(x)) + f(x),
    "beside jit": lambda S, f, x: S.jax.jit(lambda x: S.jnp.cos(x) * x)(f(x * 2.0)),
    "with constants": lambda S, f, x: f(x * S.jnp.arange(1.0, 3.0).sum()) * S.jnp.arange(3.0).sum() + 1.0,
}


def own(S, rule):
    f = S.jax.custom_vjp(lambda x: S.jnp.sin(x) * x)
    f.defvjp(lambda x: (S.jnp.sin(x) * x, x), lambda x, ct: (RULES[rule](S, x, ct),))
    return f


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("rule", RULES)
def test_derivatives(rule, function):
    def orders(S):
        def f(x):
            return FUNCTIONS[function](S, own(S, rule), x)

        x, grad, jax = S.jnp.float32(0.7), S.jax.grad(f), S.jax
        out = [lambda: grad(x), lambda: grad(-x), lambda: grad(0.7)]
        out += [lambda: jax.grad(grad)(x), lambda: jax.grad(jax.grad(grad))(x)]
        out += [lambda: jax.jvp(grad, (x,), (x * 2,)), lambda: jax.hessian(f)(x)]
        out += [lambda: jax.vmap(grad)(S.jnp.array([0.7, -0.4]))]
        out += [lambda: jax.vmap(jax.vjp(f, x)[1])(S.jnp.array([1.0, -2.0]))]
        return out

    for number in range(9):
        if number == 2 and rule == "in cond":
            continue  # JAX hands the Python number on, whose comparison is no traced one.
        same(lambda S, number=number: orders(S)[number](), weak=False)()


@same
def test_several_arguments_and_outputs(S):
    f = S.jax.custom_vjp(lambda x, y, n: (x * y["a"], x + n))

    def bwd(kept, cts):
        x, y = kept
        if cts[0] > 0:
            return cts[0] * y["a"] + cts[1], {"a": cts[0] * x}, None
        return cts[1], None, None

    f.defvjp(lambda x, y, n: (f(x, y, n), (x, y)), bwd)

    def loss(x, y):
        a, b = f(x, y, 3)
        return a * a + b * x

    args = S.jnp.float32(2.0), {"a": S.jnp.float32(0.5)}
    second = S.jax.grad(lambda x, y: S.jax.grad(loss)(x, y))(*args)
    return S.jax.grad(loss, (0, 1))(*args), second, S.jax.vjp(loss, *args)[1](S.jnp.float32(-1.0))


def own_forward(S, rule):
    f = S.jax.custom_jvp(lambda x: S.jnp.sin(x) * x)

    @f.defjvp
    def f_jvp(primals, tangents):
        return f(*primals), RULES[rule](S, *primals, *tangents)

    return f


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("rule", RULES)
def test_forward_derivatives(rule, function):
    def orders(S):
        def f(x):
            return FUNCTIONS[function](S, own_forward(S, rule), x)

        x, jax = S.jnp.float32(0.7), S.jax
        along = lambda t: lambda x: jax.jvp(f, (x,), (t,))[1]  # noqa: E731
        itself = lambda x: jax.jvp(f, (x,), (x * x,))[1]  # noqa: E731
        one, two = S.jnp.float32(1.0), S.jnp.float32(-2.0)
        out = [lambda: jax.jvp(f, (x,), (one,)), lambda: jax.jvp(f, (-x,), (two,))]
        out += [lambda: jax.jvp(along(one), (x,), (one,)), lambda: jax.jvp(along(two), (x,), (two,))]
        out += [lambda: jax.jvp(itself, (x,), (two,))]
        out += [lambda: jax.jvp(lambda x: jax.jvp(itself, (x,), (x,))[1], (x,), (one,))]
        out += [lambda: jax.grad(along(two))(x), lambda: jax.grad(itself)(x)]
        out += [lambda: jax.grad(jax.grad(itself))(x), lambda: jax.jvp(jax.grad(f), (x,), (one,))]
        out += [lambda: jax.vmap(along(one))(S.jnp.array([0.7, -0.4])), lambda: jax.jit(along(two))(x)]
        out += [lambda: jax.jit(itself)(x), lambda: jax.vmap(itself)(S.jnp.array([0.7, -0.4]))]
        out += [lambda: jax.linearize(f, x)[1](one), lambda: jax.jacfwd(f)(x), lambda: jax.grad(f)(x)]
        return out

    for number in range(17):
        same(lambda S, number=number: orders(S)[number](), weak=False)()


@pytest.mark.parametrize("symbolic", [False, True])
@same
def test_forward_with_several_arguments_and_outputs(S, symbolic):
    f = S.jax.custom_jvp(lambda x, y, n: (x * y["a"], x + n, n))

    def rule(primals, tangents):
        (x, y, n), (dx, dy, _) = primals, tangents
        out = f(x, y, n)
        none = np.zeros((), S.jax.dtypes.float0)
        if type(dx).__name__ == "SymbolicZero":
            return out, (x * dy["a"], dy["a"] * 2, none)
        if type(dy["a"]).__name__ == "SymbolicZero":
            return out, (dx * y["a"] if dx > 0 else dx * 2, dx, none)
        return out, (dx * y["a"] + dy["a"] if dx > 0 else dy["a"] * 2, dx, none)

    f.defjvp(rule, symbolic_zeros=symbolic)

    def loss(x, y):
        a, b, n = f(x, y, 3)
        return a * a + b * x + n, {"b": b, "n": S.jnp.asarray(n)}

    x, a = S.jnp.float32(2.0), S.jnp.float32(0.5)
    one = S.jnp.float32(1.0)
    outs = []
    for dx in (S.jnp.float32(1.0), S.jnp.float32(-1.0)):
        along = lambda x, dx=dx: S.jax.jvp(lambda x: loss(x, {"a": a}), (x,), (dx,), has_aux=True)  # noqa: E731
        outs += [along(x), S.jax.jvp(lambda x, along=along: along(x)[:2], (x,), (one,))]
    of_y = lambda a: S.jax.jvp(lambda a: loss(x, {"a": a})[0], (a,), (one,))[1]  # noqa: E731
    return outs, of_y(a), S.jax.jvp(of_y, (a,), (one,))
