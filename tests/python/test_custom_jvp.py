"""`custom_jvp` against JAX: values, derivatives of every order and composition, trees, rules that
call their function, rules that look at values, errors."""

import functools

import numpy as np
import pytest
from oracle import same

import ferrax
import ferrax.numpy as jnp


def ramp(S, *shape, dtype="float32"):
    return S.jnp.asarray(np.arange(1, 1 + np.prod(shape, dtype=int)).reshape(shape), dtype) / 4


def cubic(S, factor=1.0):
    """x ** 3 whose rule claims `factor` times the derivative."""

    @S.jax.custom_jvp
    def f(x):
        return x * x * x

    @f.defjvp
    def f_jvp(primals, tangents):
        (x,), (t,) = primals, tangents
        return f(x), factor * 3 * x * x * t

    return f


def product(S):
    """sin(x) * y with doubled derivatives, its rule calling the function itself."""

    @S.jax.custom_jvp
    def f(x, y):
        return S.jnp.sin(x) * y

    @f.defjvp
    def f_jvp(primals, tangents):
        x, y = primals
        dx, dy = tangents
        return f(x, y), 2 * (S.jnp.cos(x) * y * dx + S.jnp.sin(x) * dy)

    return f


def tree(S):
    """A function of trees, two outputs."""

    @S.jax.custom_jvp
    def f(p, x):
        return {"a": p["w"] * x, "b": (p["v"][0] + x, x.sum())}

    @f.defjvp
    def f_jvp(primals, tangents):
        p, x = primals
        dp, dx = tangents
        out = f(p, x)
        return out, {
            "a": 3 * (dp["w"] * x + p["w"] * dx),
            "b": (dp["v"][0] + dx, dx.sum() * 5),
        }

    return f


def tree_point(S):
    return {"w": ramp(S, 3), "v": [S.jnp.ones(3)]}, ramp(S, 3) * 2


TRANSFORMS = {
    "call": lambda S, f, x: f(x),
    "jit": lambda S, f, x: S.jax.jit(f)(x),
    "grad": lambda S, f, x: S.jax.grad(f)(x),
    "value_and_grad": lambda S, f, x: S.jax.value_and_grad(f)(x),
    "jvp": lambda S, f, x: S.jax.jvp(f, (x,), (2 * x,)),
    "jvp_zero": lambda S, f, x: S.jax.jvp(lambda x, y: (f(x), y), (x, x), (0 * x, x)),
    "vjp": lambda S, f, x: S.jax.vjp(f, x)[1](x),
    "linearize": lambda S, f, x: (lambda out, lin: (out, lin(x), lin(2 * x)))(*S.jax.linearize(f, x)),
    "grad_jit": lambda S, f, x: S.jax.grad(S.jax.jit(f))(x),
    "jit_grad": lambda S, f, x: S.jax.jit(S.jax.grad(f))(x),
    "grad_grad": lambda S, f, x: S.jax.grad(S.jax.grad(f))(x),
    "grad3": lambda S, f, x: S.jax.grad(S.jax.grad(S.jax.grad(f)))(x),
    "jit_grad3": lambda S, f, x: S.jax.jit(S.jax.grad(S.jax.grad(S.jax.grad(f))))(x),
    "jvp_grad": lambda S, f, x: S.jax.jvp(S.jax.grad(f), (x,), (x,)),
    "grad_jvp": lambda S, f, x: S.jax.grad(lambda x: S.jax.jvp(f, (x,), (x,))[1])(x),
    "jvp_jvp": lambda S, f, x: S.jax.jvp(lambda x: S.jax.jvp(f, (x,), (x,))[1], (x,), (x,)),
    "hessian": lambda S, f, x: S.jax.hessian(f)(x),
    "jacfwd_jacrev": lambda S, f, x: S.jax.jacfwd(S.jax.jacrev(f))(x),
    "jacrev_jacfwd": lambda S, f, x: S.jax.jacrev(S.jax.jacfwd(f))(x),
    "vmap": lambda S, f, x: S.jax.vmap(f)(x + ramp(S, 4)),
    "vmap_grad": lambda S, f, x: S.jax.vmap(S.jax.grad(f))(x + ramp(S, 4)),
    "grad_vmap": lambda S, f, x: S.jax.grad(lambda v: S.jax.vmap(f)(v).sum())(x + ramp(S, 4)),
    "jit_vmap_grad": lambda S, f, x: S.jax.jit(S.jax.vmap(S.jax.grad(f)))(x + ramp(S, 4)),
    "vmap_jit_grad": lambda S, f, x: S.jax.vmap(S.jax.jit(S.jax.grad(f)))(x + ramp(S, 4)),
    "grad_jit_vmap": lambda S, f, x: S.jax.grad(lambda v: S.jax.jit(S.jax.vmap(f))(v).sum())(x + ramp(S, 4)),
    "vmap_grad_grad": lambda S, f, x: S.jax.vmap(S.jax.grad(S.jax.grad(f)))(x + ramp(S, 4)),
    "grad_vmap_grad": lambda S, f, x: S.jax.grad(lambda v: S.jax.vmap(S.jax.grad(f))(v).sum())(x + ramp(S, 4)),
    "vmap_vmap_grad": lambda S, f, x: S.jax.vmap(S.jax.vmap(S.jax.grad(f)), in_axes=1, out_axes=1)(x + ramp(S, 2, 3)),
    "vmap_jvp": lambda S, f, x: S.jax.vmap(lambda v: S.jax.jvp(f, (v,), (v,)))(x + ramp(S, 4)),
    "jvp_vmap": lambda S, f, x: S.jax.jvp(S.jax.vmap(f), (x + ramp(S, 4),), (ramp(S, 4),)),
    "checkpoint": lambda S, f, x: S.jax.grad(S.jax.checkpoint(f))(x),
    "scan": lambda S, f, x: S.lax.scan(lambda c, e: (f(c) * e, f(e)), x, ramp(S, 3)),
    "grad_scan": lambda S, f, x: S.jax.grad(lambda x: S.lax.scan(lambda c, e: (f(c) * e, None), x, ramp(S, 3))[0])(x),
    "jit_grad_scan": lambda S, f, x: S.jax.jit(S.jax.grad(
        lambda x: S.lax.scan(lambda c, e: (f(c) * e, None), x, ramp(S, 3))[0]))(x),
    "grad2_scan": lambda S, f, x: S.jax.grad(S.jax.grad(
        lambda x: S.lax.scan(lambda c, e: (f(c) * e, None), x, ramp(S, 2))[0]))(x),
    "vmap_grad_scan": lambda S, f, x: S.jax.vmap(S.jax.grad(
        lambda x: S.lax.scan(lambda c, e: (f(c) * e, None), x, ramp(S, 3))[0]))(x + ramp(S, 2)),
    "scan_of_grad": lambda S, f, x: S.lax.scan(lambda c, e: (c - e * S.jax.grad(f)(c), c), x, ramp(S, 3)),
    "cond": lambda S, f, x: S.lax.cond(x > 0, f, lambda x: -x, x),
    "grad_cond": lambda S, f, x: S.jax.grad(lambda x: S.lax.cond(x > 0, f, lambda x: -x, x))(x),
    "grad2_cond": lambda S, f, x: S.jax.grad(S.jax.grad(lambda x: S.lax.cond(x > 0, f, lambda x: -x, x)))(x),
    "vmap_grad_cond": lambda S, f, x: S.jax.vmap(S.jax.grad(
        lambda x: S.lax.cond(x > 1, f, lambda x: -x, x)))(x + ramp(S, 4)),
    "fori_loop": lambda S, f, x: S.lax.fori_loop(0, 2, lambda i, c: f(c), x),
    "grad_fori_loop": lambda S, f, x: S.jax.grad(lambda x: S.lax.fori_loop(0, 2, lambda i, c: f(c), x))(x),
    "jvp_while": lambda S, f, x: S.jax.jvp(
        lambda x: S.lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, f(c[1])), (0, x)), (x,), (x,)),
}

FUNCTIONS = {
    "cubic": lambda S: cubic(S),
    "doubled": lambda S: cubic(S, 2.0),
    "two_arguments": lambda S: (lambda f: lambda x: f(x, x * 2))(product(S)),
    "one_constant": lambda S: (lambda f: lambda x: f(x, 3.0))(product(S)),
    "nested": lambda S: nested(S),
    "inside_jit": lambda S: S.jax.jit(cubic(S, 2.0)),
    "of_jitted": lambda S: of_jitted(S),
    "of_a_closure": lambda S: of_a_closure(S),
}


def nested(S):
    inner = cubic(S, 2.0)

    @S.jax.custom_jvp
    def outer(x):
        return S.jnp.sin(inner(x))

    @outer.defjvp
    def outer_jvp(primals, tangents):
        (x,), (t,) = primals, tangents
        y, dy = S.jax.jvp(inner, (x,), (t,))
        return outer(x), 5 * S.jnp.cos(y) * dy

    return outer


def of_jitted(S):
    @S.jax.custom_jvp
    @S.jax.jit
    def f(x):
        return x * x

    @f.defjvp
    @S.jax.jit
    def f_jvp(primals, tangents):
        (x,), (t,) = primals, tangents
        return f(x), 7 * x * t

    return f


def of_a_closure(S):
    scale = S.jnp.float32(1.5)

    @S.jax.custom_jvp
    def f(x):
        return scale * x * x

    f.defjvp(lambda p, t: (f(p[0]), scale * 5 * p[0] * t[0]))
    return f


# One function goes through every transformation, the others through a few.
FEW = ("jit", "grad", "grad_grad", "vmap_grad", "grad_scan")
# In the second derivative of a scan JAX forgets the rule of what does not depend on tangents: there
# the rule has to be the true one.
PICKS = [("cubic" if name == "grad2_scan" else "doubled", name) for name in TRANSFORMS] + [
    (function, transform) for function in FUNCTIONS if function != "doubled" for transform in FEW
]


@pytest.mark.parametrize("function, transform", PICKS)
@same
def test_transforms(S, function, transform):
    return TRANSFORMS[transform](S, FUNCTIONS[function](S), S.jnp.float32(0.5))


def concrete_rule(S):
    @S.jax.custom_jvp
    def f(x, n):
        return x**n

    @f.defjvp
    def f_jvp(primals, tangents):
        x, n = primals
        t, _ = tangents
        return f(x, n), (10.0 if x > 1 else 20.0) * t

    return f


def curve(S):
    """Function and rule branch on values at every order, and call another such function."""
    other = concrete_rule(S)

    @S.jax.custom_jvp
    def f(x):
        return x**3 if x > 1 else -x

    @f.defjvp
    def f_jvp(primals, tangents):
        (x,), (t,) = primals, tangents
        out = f(x)
        slope = other(x, 2) if x > 1 else x * x * x * x
        return out, (slope + out if out > 0 else slope * out) * t

    return f


def grad_inside(S):
    inner = curve(S)

    @S.jax.custom_jvp
    def f(x):
        return inner(x) * x

    f.defjvp(lambda p, t: (f(*p), S.jax.grad(inner)(p[0]) * p[0] * t[0]))
    return f


def float0(S, shape=()):
    return np.zeros(shape, S.jax.dtypes.float0)


def integers(S):
    @S.jax.custom_jvp
    def f(x, n):
        return x * n, n + 1

    @f.defjvp
    def f_jvp(primals, tangents):
        x, n = primals
        dx, dn = tangents
        assert dn.dtype == S.jax.dtypes.float0
        return f(x, n), (3 * dx * n, dn)

    return f


def symbolic(S, seen=None):
    @S.jax.custom_jvp
    def f(x, y):
        return x * y, x + 1, y

    def rule(primals, tangents):
        (x, y), (dx, dy) = primals, tangents
        zero = [type(t) is S.jax.custom_derivatives.SymbolicZero for t in (dx, dy)]
        if seen is not None:
            seen.append((zero, dx.shape, str(dx.dtype), dy.shape))
        out = f(x, y)
        if zero[1]:
            return out, (dx * y * 100, dx, dy)
        if zero[0]:
            return out, (dy * x * 10, dx, dy)
        return out, (dx * y + dy * x, dx, dy)

    f.defjvp(rule, symbolic_zeros=True)
    return f


def nondiff(S):
    @functools.partial(S.jax.custom_jvp, nondiff_argnums=(0, 2))
    def apply(fun, x, n):
        return fun(x) * n

    @apply.defjvp
    def apply_jvp(fun, n, primals, tangents):
        (x,), (t,) = primals, tangents
        return apply(fun, x, n), 100 * n * t

    return apply


def named(S):
    @functools.partial(S.jax.custom_jvp, nondiff_argnames=("mode", "fun"))
    def apply(fun, x, mode="double"):
        return fun(x) * (2 if mode == "double" else 1)

    @apply.defjvp
    def apply_jvp(fun, mode, primals, tangents):
        (x,), (t,) = primals, tangents
        return apply(fun, x, mode), t * (200 if mode == "double" else 100)

    return apply


def defaults(S):
    @S.jax.custom_jvp
    def f(x, y=2.0, *, z=None):
        return x * y

    @S.jax.custom_jvp
    def g(x, y=2.0):
        return x * y

    for h in (f, g):
        h.defjvp(lambda p, t: (p[0] * p[1], 10 * p[1] * t[0] + 1000 * t[1]))
    return g, f


def by_parts(S):
    @S.jax.custom_jvp
    def f(x, y, z):
        return x * y * z

    f.defjvps(lambda t, ans, x, y, z: t * y * z * 10, None, lambda t, ans, x, y, z: t * ans / z)
    return f


def with_rule(S, rule, fun=None, **options):
    f = S.jax.custom_jvp(fun or (lambda x: x * 2))
    f.defjvp(rule, **options)
    return f


def closing_over_tracer(S):
    def outer(y):
        @S.jax.custom_jvp
        def f(x):
            return x * y

        f.defjvp(lambda p, t: (f(p[0]), t[0] * y))
        return f

    return outer


CASES = {
    # pytrees, several outputs, unused inputs and outputs
    "tree_call": lambda S: tree(S)(*tree_point(S)),
    "tree_jit": lambda S: S.jax.jit(tree(S))(*tree_point(S)),
    "tree_jvp": lambda S: S.jax.jvp(tree(S), tree_point(S), tree_point(S)),
    "tree_grad": lambda S: S.jax.grad(lambda p, x: tree(S)(p, x)["a"].sum(), argnums=(0, 1))(*tree_point(S)),
    "tree_grad_other": lambda S: S.jax.grad(lambda p, x: tree(S)(p, x)["b"][1], argnums=(0, 1))(*tree_point(S)),
    "tree_vjp": lambda S: (lambda out, pull: pull(out))(*S.jax.vjp(tree(S), *tree_point(S))),
    "tree_vmap": lambda S: S.jax.vmap(tree(S))(*tree_point(S)),
    "tree_vmap_some": lambda S: S.jax.vmap(tree(S), in_axes=({"w": 0, "v": None}, None))(*tree_point(S)),
    "tree_jacobian": lambda S: S.jax.jacrev(lambda x: tree(S)(tree_point(S)[0], x))(ramp(S, 3)),
    "tree_jacfwd": lambda S: S.jax.jacfwd(lambda x: tree(S)(tree_point(S)[0], x))(ramp(S, 3)),
    "none_arguments": lambda S: S.jax.grad(with_rule(
        S, lambda p, t: (p[0], 3 * t[0]) if p[1] is None and t[1] is None else 0, lambda x, y: x), 0)(1.0, None),
    "no_arguments": lambda S: with_rule(S, lambda p, t: (1.0, 0.0), lambda: 1.0)(),
    "no_arguments_jit": lambda S: S.jax.jit(with_rule(S, lambda p, t: (1.0, 0.0), lambda: 1.0))(),
    "no_outputs": lambda S: S.jax.jvp(with_rule(S, lambda p, t: (None, None), lambda x: None), (1.0,), (1.0,)),
    "constant_output": lambda S: S.jax.jvp(with_rule(S, lambda p, t: (2.0, 0.0), lambda x: 2.0), (1.0,), (1.0,)),
    "ignored_argument": lambda S: S.jax.grad(with_rule(
        S, lambda p, t: (p[0], t[0]), lambda x, y: x), (0, 1))(1.0, 2.0),
    "list_result": lambda S: S.jax.jvp(with_rule(S, lambda p, t: [p[0] * 2, t[0] * 5]), (1.0,), (1.0,)),
    # integers and float0
    "integers": lambda S: integers(S)(2.0, 3),
    "integers_jvp": lambda S: S.jax.jvp(integers(S), (2.0, 3), (1.0, float0(S))),
    "integers_grad": lambda S: S.jax.grad(lambda x: integers(S)(x, 3)[0])(2.0),
    "integers_grad_int": lambda S: S.jax.grad(
        lambda x, n: integers(S)(x, n)[0], argnums=(0, 1), allow_int=True)(2.0, 3),
    "integers_jit_grad": lambda S: S.jax.jit(S.jax.grad(lambda x: integers(S)(x, 3)[0]))(2.0),
    "integers_vmap": lambda S: S.jax.vmap(S.jax.grad(lambda x, n: integers(S)(x, n)[0]))(ramp(S, 3), S.jnp.arange(3)),
    "integers_linearize": lambda S: S.jax.linearize(lambda x: integers(S)(x, 3), 2.0)[1](1.0),
    "integer_tangent_made": lambda S: S.jax.jvp(with_rule(
        S, lambda p, t: ((p[0], 1), (t[0], float0(S))), lambda x: (x, 1)), (1.0,), (1.0,)),
    "integer_tangent_wrong": lambda S: S.jax.jvp(with_rule(
        S, lambda p, t: ((p[0], 1), (t[0], 1)), lambda x: (x, 1)), (1.0,), (1.0,)),
    "bool_output": lambda S: S.jax.jvp(with_rule(
        S, lambda p, t: (p[0] > 0, float0(S)), lambda x: x > 0), (S.jnp.float32(1),), (S.jnp.float32(1),)),
    # rules on known values
    "concrete_grad": lambda S: S.jax.grad(concrete_rule(S))(2.0, 3),
    "concrete_grad_low": lambda S: S.jax.grad(concrete_rule(S))(0.5, 3),
    "concrete_jvp": lambda S: S.jax.jvp(lambda x: concrete_rule(S)(x, 3), (2.0,), (1.0,)),
    "concrete_linearize": lambda S: S.jax.linearize(lambda x: concrete_rule(S)(x, 3), 2.0)[1](1.0),
    "concrete_vjp": lambda S: S.jax.vjp(lambda x: concrete_rule(S)(x, 3), 2.0)[1](1.0),
    "concrete_after_op": lambda S: S.jax.grad(lambda x: concrete_rule(S)(x * 4, 3) * 2)(0.5),
    "concrete_grad_grad": lambda S: S.jax.grad(S.jax.grad(lambda x: concrete_rule(S)(x, 3) * x))(2.0),
    "concrete_grad3": lambda S: S.jax.grad(S.jax.grad(S.jax.grad(lambda x: concrete_rule(S)(x, 3) * x * x)))(2.0),
    "concrete_hessian": lambda S: S.jax.jacfwd(S.jax.grad(lambda x: curve(S)(x)))(2.0),
    "concrete_curve2": lambda S: S.jax.grad(S.jax.grad(curve(S)))(0.5),
    "concrete_curve3": lambda S: S.jax.grad(S.jax.grad(S.jax.grad(curve(S))))(3.0),
    "concrete_of_grad": lambda S: S.jax.grad(lambda x: grad_inside(S)(x))(3.0),
    "concrete_of_grad2": lambda S: S.jax.grad(S.jax.grad(lambda x: grad_inside(S)(x)))(3.0),
    "concrete_jit": lambda S: S.jax.jit(S.jax.grad(concrete_rule(S)))(2.0, 3),
    "concrete_vmap": lambda S: S.jax.vmap(S.jax.grad(concrete_rule(S)), (0, None))(ramp(S, 3), 3),
    "concrete_function": lambda S: S.jax.grad(with_rule(
        S, lambda p, t: (p[0], t[0] * 3), lambda x: x if x > 0 else -x))(2.0),
    "concrete_numpy": lambda S: S.jax.grad(with_rule(
        S, lambda p, t: (p[0] * 2, t[0] * np.cos(np.asarray(p[0])))))(S.jnp.float32(2)),
    # symbolic zeros
    "symbolic_first": lambda S: S.jax.grad(lambda x, y: symbolic(S)(x, y)[0])(2.0, 3.0),
    "symbolic_second": lambda S: S.jax.grad(lambda x, y: symbolic(S)(x, y)[0], 1)(2.0, 3.0),
    "symbolic_both": lambda S: S.jax.grad(lambda x, y: symbolic(S)(x, y)[0], (0, 1))(2.0, 3.0),
    "symbolic_jvp": lambda S: S.jax.jvp(lambda x: symbolic(S)(x, 3.0), (2.0,), (1.0,)),
    "symbolic_jit": lambda S: S.jax.jit(S.jax.grad(lambda x, y: symbolic(S)(x, y)[0]))(2.0, 3.0),
    "symbolic_vmap": lambda S: S.jax.vmap(S.jax.grad(lambda x, y: symbolic(S)(x, y)[0]), (0, None))(ramp(S, 3), 3.0),
    "symbolic_second_order": lambda S: S.jax.grad(S.jax.grad(
        lambda x, y: symbolic(S)(x, y)[0] * x))(2.0, 3.0),
    "symbolic_seen": lambda S: (lambda seen: (
        S.jax.jvp(lambda x: symbolic(S, seen)(x, S.jnp.ones(2)), (S.jnp.ones(2),), (S.jnp.ones(2),)), seen[0]))([]),
    "instantiated": lambda S: S.jax.jvp(lambda x: with_rule(
        S, lambda p, t: (p[0], t[0] + 5 * t[1] + (1 if isinstance(t[1], S.jax.Array) else 0)), lambda x, y: x)(x, 2.0),
        (1.0,), (1.0,)),
    # arguments that are not differentiated in
    "nondiff_call": lambda S: nondiff(S)(S.jnp.sin, 1.0, 2),
    "nondiff_jit": lambda S: S.jax.jit(lambda x: nondiff(S)(S.jnp.sin, x, 2))(1.0),
    "nondiff_grad": lambda S: S.jax.grad(lambda x: nondiff(S)(S.jnp.sin, x, 2))(1.0),
    "nondiff_grad2": lambda S: S.jax.grad(S.jax.grad(lambda x: nondiff(S)(S.jnp.sin, x * x, 2)))(1.0),
    "nondiff_vmap": lambda S: S.jax.vmap(S.jax.grad(lambda x: nondiff(S)(S.jnp.sin, x, 2)))(ramp(S, 3)),
    "nondiff_traced": lambda S: S.jax.grad(lambda x: nondiff(S)(S.jnp.sin, 1.0, x))(2.0),
    "nondiff_traced_both": lambda S: S.jax.grad(lambda x: nondiff(S)(S.jnp.sin, x, x))(2.0),
    "nondiff_traced_jvp": lambda S: S.jax.jvp(lambda x: nondiff(S)(S.jnp.sin, x, x), (2.0,), (1.0,)),
    "nondiff_traced_jit": lambda S: S.jax.jit(lambda x, n: nondiff(S)(S.jnp.sin, x, n))(1.0, 2.0),
    "nondiff_traced_jit_grad": lambda S: S.jax.jit(S.jax.grad(lambda x, n: nondiff(S)(S.jnp.sin, x, n)))(1.0, 2.0),
    "nondiff_traced_vmap": lambda S: S.jax.vmap(lambda x, n: nondiff(S)(S.jnp.sin, x, n))(ramp(S, 3), ramp(S, 3)),
    "nondiff_traced_vmap_grad": lambda S: S.jax.vmap(S.jax.grad(
        lambda x, n: nondiff(S)(S.jnp.sin, x, n)))(ramp(S, 3), ramp(S, 3)),
    "nondiff_closure": lambda S: S.jax.grad(lambda x: nondiff(S)(lambda v: v * x, x, 2))(3.0),
    "nondiff_out_of_range": lambda S: S.jax.grad(lambda x: with_nondiff(S, 5)(x, "a"))(1.0),
    "nondiff_int": lambda S: S.jax.grad(lambda x: with_nondiff(S, 1)(x, "a"))(1.0),
    "names": lambda S: S.jax.grad(lambda x: named(S)(S.jnp.sin, x))(1.0),
    "names_given": lambda S: S.jax.grad(lambda x: named(S)(S.jnp.sin, x, mode="single"))(1.0),
    "names_positional": lambda S: S.jax.grad(lambda x: named(S)(S.jnp.sin, x, "single"))(1.0),
    "names_value": lambda S: named(S)(x=2.0, fun=lambda x: x, mode="double"),
    "kwargs": lambda S: S.jax.grad(lambda x: defaults(S)[0](y=x, x=3.0))(2.0),
    "defaults": lambda S: S.jax.grad(defaults(S)[0])(2.0),
    "default_value": lambda S: defaults(S)[0](2.0),
    "keyword_only": lambda S: defaults(S)[1](2.0, z=3),
    "unknown_keyword": lambda S: defaults(S)[0](2.0, q=3),
    "too_few": lambda S: defaults(S)[0](),
    "by_parts": lambda S: S.jax.grad(by_parts(S), (0, 1, 2))(2.0, 3.0, 4.0),
    "by_parts_jvp": lambda S: S.jax.jvp(by_parts(S), (2.0, 3.0, 4.0), (1.0, 1.0, 1.0)),
    "by_parts_second": lambda S: S.jax.grad(S.jax.grad(by_parts(S)))(2.0, 3.0, 4.0),
    "by_parts_one": lambda S: S.jax.grad(lambda z: by_parts(S)(2.0, 3.0, z))(4.0),
    # types
    "weak_value": lambda S: S.jax.jvp(cubic(S), (2.0,), (1.0,)),
    "weak_jit": lambda S: S.jax.jit(cubic(S))(2.0),
    "weak_grad": lambda S: S.jax.grad(cubic(S))(2.0),
    "bfloat16": lambda S: S.jax.grad(cubic(S))(S.jnp.bfloat16(2.0)),
    "bfloat16_rule_wider": lambda S: S.jax.grad(with_rule(
        S, lambda p, t: (p[0] * 2, S.jnp.float32(3) * t[0])))(S.jnp.bfloat16(2.0)),
    "complex": lambda S: S.jax.grad(cubic(S), holomorphic=True)(S.jnp.complex64(1 + 2j)),
    "complex_to_real": lambda S: S.jax.grad(with_rule(
        S, lambda p, t: (S.jnp.abs(p[0]) ** 2, 2 * (S.jnp.conj(p[0]) * t[0]).real),
        lambda z: S.jnp.abs(z) ** 2))(S.jnp.complex64(1 + 2j)),
    # what functions and rules close over
    "closes_over_jit": lambda S: S.jax.jit(lambda x, y: closing_over_tracer(S)(y)(x))(2.0, 3.0),
    "closes_over_jit_grad": lambda S: S.jax.jit(S.jax.grad(lambda x, y: closing_over_tracer(S)(y)(x)))(2.0, 3.0),
    "closes_over_outer_jit": lambda S: S.jax.jit(lambda y: S.jax.grad(closing_over_tracer(S)(y))(2.0))(3.0),
    "closes_over_vmap": lambda S: S.jax.vmap(lambda x, y: closing_over_tracer(S)(y)(x))(ramp(S, 2), ramp(S, 2)),
    "closes_over_vmap_value": lambda S: S.jax.vmap(lambda y: closing_over_tracer(S)(y)(2.0))(ramp(S, 2)),
    "closes_over_vmap_grad": lambda S: S.jax.vmap(S.jax.grad(
        lambda x, y: closing_over_tracer(S)(y)(x)))(ramp(S, 2), ramp(S, 2)),
    "closes_over_same_tracer": lambda S: S.jax.grad(lambda x: closing_over_tracer(S)(x)(x))(3.0),
    "closes_over_in_scan": lambda S: S.lax.scan(
        lambda c, x: (S.jax.grad(closing_over_tracer(S)(x))(c), None), 1.0, ramp(S, 3))[0],
    "closes_over_array": lambda S: S.jax.grad(lambda x: closing_over_tracer(S)(ramp(S, 3))(x).sum())(2.0),
    # errors
    "no_rule": lambda S: S.jax.custom_jvp(lambda x: x)(1.0),
    "no_rule_grad": lambda S: S.jax.grad(S.jax.custom_jvp(lambda x: x))(1.0),
    "string_argument": lambda S: S.jax.grad(lambda x: cubic(S)("a"))(1.0),
    "function_argument": lambda S: S.jax.grad(lambda x: product(S)(x, S.jnp.sin))(1.0),
    "rule_returns_one": lambda S: S.jax.jvp(with_rule(S, lambda p, t: p[0]), (1.0,), (1.0,)),
    "rule_returns_three": lambda S: S.jax.jvp(with_rule(S, lambda p, t: (p[0], t[0], 1)), (1.0,), (1.0,)),
    "rule_returns_none": lambda S: S.jax.jvp(with_rule(S, lambda p, t: None), (1.0,), (1.0,)),
    "rule_trees_differ": lambda S: S.jax.jvp(with_rule(S, lambda p, t: ((p[0],), [t[0]])), (1.0,), (1.0,)),
    "rule_none_tangent": lambda S: S.jax.jvp(with_rule(S, lambda p, t: (p[0], None)), (1.0,), (1.0,)),
    "rule_tangent_shape": lambda S: S.jax.jvp(with_rule(S, lambda p, t: (p[0], S.jnp.ones(2))), (1.0,), (1.0,)),
    "rule_tangent_dtype": lambda S: S.jax.jvp(
        with_rule(S, lambda p, t: (p[0], S.jnp.float16(1))), (1.0,), (1.0,)),
    "rule_tangent_int": lambda S: S.jax.jvp(with_rule(S, lambda p, t: (p[0], 1)), (1.0,), (1.0,)),
    "rule_raises": lambda S: S.jax.jvp(with_rule(S, lambda p, t: {}["missing"]), (1.0,), (1.0,)),
    "rule_not_linear": lambda S: S.jax.grad(with_rule(S, lambda p, t: (p[0], S.jnp.sin(t[0]))))(1.0),
    "rule_tree_is_other_jit": lambda S: S.jax.jit(S.jax.grad(
        lambda x: with_rule(S, lambda p, t: ((p[0],), (t[0],)))(x)))(1.0),
    "rule_primal_shape_jit": lambda S: S.jax.jit(S.jax.grad(
        lambda x: with_rule(S, lambda p, t: (S.jnp.ones(2), S.jnp.ones(2)))(x)))(1.0),
    "rule_primal_of_tangent": lambda S: S.jax.jvp(with_rule(S, lambda p, t: (t[0], t[0])), (1.0,), (1.0,)),
    "rule_string": lambda S: S.jax.jvp(with_rule(S, lambda p, t: (p[0], "a")), (1.0,), (1.0,)),
    "rule_takes_one": lambda S: S.jax.jvp(with_rule(S, lambda p: (p[0], p[0])), (1.0,), (1.0,)),
    "parts_with_nondiff": lambda S: nondiff(S).defjvps(lambda t, ans, x: t),
    "parts_too_few": lambda S: (lambda f: (f.defjvps(lambda t, ans, x, y: t), S.jax.grad(f)(1.0, 2.0)))(
        S.jax.custom_jvp(lambda x, y: x * y)),
}


def with_nondiff(S, position):
    f = functools.partial(S.jax.custom_jvp, nondiff_argnums=(position,))(lambda x, option: x * 2)
    f.defjvp(lambda option, p, t: (p[0] * 2, t[0] * 9))
    return f


def arrays(S, result):
    """JAX's eager derivatives leave Python numbers as they are."""
    number = lambda x: isinstance(x, (bool, int, float, complex))  # noqa: E731
    return S.jax.tree_util.tree_map(lambda x: S.jnp.asarray(x) if number(x) else x, result)


@pytest.mark.parametrize("name", CASES)
@same
def test_case(S, name):
    return arrays(S, CASES[name](S))


@same
def test_traced_values_among_arguments_that_are_not_differentiated(S):
    """Their trace ends, by `vmap`, before the rule is asked for."""
    jax = S.jax

    @functools.partial(jax.custom_jvp, nondiff_argnums=(0, 2))
    def f(x, y, option):
        return x["a"] * y if option else y

    f.defjvp(lambda x, option, p, t: (f(x, *p, option), 5 * t[0] * x["a"]))
    x, y = ramp(S, 3), ramp(S, 3) + 1
    mapped = jax.vmap(lambda x, y: f({"a": x}, y, True))
    both = jax.grad(lambda x, y: mapped(x, y).sum(), (0, 1))
    inner = jax.grad(lambda x: f({"a": x}, x, True) ** 2)
    return jax.jvp(lambda y: mapped(x, y), (y,), (y,)), both(x, y), jax.jit(both)(x, y), jax.grad(inner)(2.0)


DECORATED = {
    "custom_jvp": lambda jax, f: with_rules(jax.custom_jvp(f), "defjvp", 1),
    "custom_vjp": lambda jax, f: with_rules(jax.custom_vjp(f), "defvjp", 2),
    "custom_vmap": lambda jax, f: with_rules(jax.custom_batching.custom_vmap(f), "def_vmap", 1),
}


def with_rules(f, define, count):
    getattr(f, define)(*[pytest.fail] * count)
    return f


@pytest.mark.parametrize("kind", DECORATED)
@pytest.mark.parametrize("jitted", [False, True])
def test_arguments_that_do_not_fit(kind, jitted):
    f = DECORATED[kind](ferrax, lambda x, y, *, z=None: x)
    with pytest.raises(TypeError, match=f"{kind} function <lambda> at .* positions: missing .* 'y'"):
        (ferrax.jit(f) if jitted else f)(1.0)


def test_symbolic_zeros_of_another_shape():
    f = ferrax.custom_vjp(lambda x, y: (x, y))
    f.defvjp(
        lambda x, y: ((x.value, y.value), None), lambda _, g: (g[1], g[0]), symbolic_zeros=True
    )
    with pytest.raises(ValueError, match=r"zero of shape \(2,\) at output\[0\], for .* float32\[1\].*None"):
        ferrax.grad(lambda x, y: f(x, y)[0].sum())(jnp.ones(1), jnp.ones(2))


@same
def test_zeros_of_trees(S):
    tree = {"a": (1.5, S.jnp.ones(2, "float16")), "b": [None, 3], "c": ()}
    zero = S.jax.custom_derivatives.zero_from_primal
    symbolic = S.jax.tree.leaves(zero(tree, symbolic_zeros=True))
    floats = {"a": tree["a"], "c": ()}
    return zero(floats), [type(x).__name__ for x in symbolic], S.jax.tree.structure(zero(tree)).num_leaves
