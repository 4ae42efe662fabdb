"""Derivatives and batches of branches, loops and scans, alone and composed, against JAX; random
programs of nested control flow."""

import functools

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from oracle import FERRAX, JAX, attempt, compare, compiled, same

import ferrax
import ferrax.numpy as jnp
from ferrax.test_util import check_grads

# Functions R^3 -> R^3 that are smooth where they are tested.
SMOOTH = {
    "cond": lambda S, x: S.lax.cond(x[0] > 0, S.jnp.sin, lambda y: y * y[1], x),
    "cond_other": lambda S, x: S.lax.cond(x[0] < 0, S.jnp.sin, lambda y: y * y[1], x),
    "cond_captures": lambda S, x: S.lax.cond(x.sum() > 0, lambda: x * x[0], lambda: S.jnp.cos(x)),
    "cond_handed_on": lambda S, x: sum(S.lax.cond(x[0] > 0, lambda y, z: (y, z * y), lambda y, z: (y, z), x, x * 2)),
    "cond_partly": lambda S, x: S.lax.cond(x[0] > 0, lambda y: (y, 2.0), lambda y: (y * 2, 3.0), x)[0],
    "cond_zero_branch": lambda S, x: S.lax.cond(x[0] > 5, lambda y: y * 3, lambda y: S.jnp.zeros(3), x) + x**2,
    "cond_integers": lambda S, x: S.lax.cond(x[0] > 0, lambda y, n: (y * n, n + 1), lambda y, n: (y, n), x, 3)[0],
    "switch": lambda S, x: S.lax.switch(S.jnp.int32(x[2] * 0 + 1), [S.jnp.sin, S.jnp.cos, lambda y: y], x * x[1]),
    "scan": lambda S, x: S.lax.scan(lambda c, a: (c * a + a, c * a), 1.0, x)[1],
    "scan_carry": lambda S, x: S.lax.scan(lambda c, a: (S.jnp.sin(c) * a, None), x, x)[0],
    "scan_captures": lambda S, x: S.lax.scan(lambda c, a: (c * x + a, c.sum() * a), x * 2, x)[0],
    "scan_reverse": lambda S, x: S.lax.scan(lambda c, a: (c * a, c + a), 1.0, x, reverse=True)[1],
    "scan_unroll": lambda S, x: S.lax.scan(lambda c, a: (c * a, c + a), 1.0, x, unroll=2)[1],
    "scan_unrolled": lambda S, x: S.lax.scan(lambda c, a: (c * a, c + a), 1.0, x, unroll=True)[1],
    "scan_counter": lambda S, x: S.lax.scan(lambda c, a: ((c[0] + 1, c[1] * a + c[0]), c[1]), (0, 1.0), x)[1],
    "scan_integers_out": lambda S, x: S.lax.scan(lambda c, a: (c * a, (c, S.jnp.int32(7))), 1.0, x)[1][0],
    "scan_invariant": lambda S, x: S.lax.scan(lambda c, a: ((c[0], c[1] * c[0] + a), None), (x[0], x), x)[0][1],
    "scan_no_xs": lambda S, x: S.lax.scan(lambda c, _: (S.jnp.sin(c) + x, None), x, None, length=4)[0],
    "scan_ys_are_xs": lambda S, x: S.lax.scan(lambda c, a: (c, a), 0.0, x * x)[1],
    "scan_cond": lambda S, x: S.lax.scan(
        lambda c, a: (S.lax.cond(a > 0.6, lambda: c * a, lambda: c + a), S.jnp.sin(c)), S.jnp.float32(1), x)[1],
    "scan_scan": lambda S, x: S.lax.scan(
        lambda c, a: (S.lax.scan(lambda d, b: (d * b + a, None), c, x)[0], c * a), S.jnp.float32(1), x)[1],
    "cond_scan": lambda S, x: S.lax.cond(
        x[0] > 0, lambda y: S.lax.scan(lambda c, a: (c * a, c + a), S.jnp.float32(1), y)[1], lambda y: y, x),
    "fori": lambda S, x: S.lax.fori_loop(0, 4, lambda i, y: S.jnp.sin(y) * x + i, x),
    "fori_index": lambda S, x: S.lax.fori_loop(1, 3, lambda i, y: y.at[i].set(y[i - 1] * y[i]), x),
    "fori_fori": lambda S, x: S.lax.fori_loop(0, 2, lambda i, y: S.lax.fori_loop(0, 3, lambda j, z: z * S.jnp.asarray(x)[i] + j, y), x),
    "map": lambda S, x: S.lax.map(lambda a: S.jnp.sin(a) * x[0], x),
    "map_batches": lambda S, x: S.lax.map(lambda a: S.jnp.sin(a) * x[0], x, batch_size=2),
    "associative": lambda S, x: S.lax.associative_scan(S.jnp.multiply, x),
    "associative_affine": lambda S, x: S.lax.associative_scan(
        lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1]), (x, x * 2))[1],
    "associative_reverse": lambda S, x: S.lax.associative_scan(S.jnp.multiply, x, reverse=True),
    "reduce": lambda S, x: x * S.lax.reduce(x, S.jnp.float32(0), lambda a, b: a + b + a * b, (0,)),
    "barrier": lambda S, x: S.lax.optimization_barrier((x * x, 2.0))[0],
}  # fmt: skip

# With a number of steps that is not known: forward derivatives alone.
FORWARD = {
    "while": lambda S, x: S.lax.while_loop(lambda y: y.sum() < 30, lambda y: y * 1.5 + x, x),
    "while_captures": lambda S, x: S.lax.while_loop(lambda t: t[0] < 3, lambda t: (t[0] + 1, t[1] * x), (0, x))[1],
    "while_invariant": lambda S, x: S.lax.while_loop(lambda t: t[0] < 3, lambda t: (t[0] + 1, t[1] * t[2], t[2]), (0, x, x))[1],
    "while_unmoved": lambda S, x: S.lax.while_loop(lambda t: t[0] < 3, lambda t: (t[0] + 1, t[1] * 2), (0, 1.0))[1] * x,
    "while_scan": lambda S, x: S.lax.while_loop(
        lambda y: y.sum() < 30, lambda y: y + S.lax.scan(lambda c, a: (c + a, c * a), S.jnp.float32(1), y)[1], x),
    "fori_traced": lambda S, x: S.lax.fori_loop(0, S.jnp.int32(x[0] * 0 + 3), lambda i, y: y * x + i, x),
}  # fmt: skip

X = np.array([0.5, 0.75, 1.25], "float32")
V = np.array([1.0, -0.5, 0.25], "float32")
BATCH = np.array([[0.5, 0.75, 1.25], [-0.5, 0.25, 1.5]], "float32")


def arguments(S, *values):
    return [S.jnp.asarray(value) for value in values]


def total(S, f, x):
    return (f(S, x) * S.jnp.arange(1.0, 4.0)).sum()


@pytest.mark.parametrize("name", SMOOTH | FORWARD)
@same(weak=False)
def test_jvp(S, name):
    f = functools.partial((SMOOTH | FORWARD)[name], S)
    x, v = arguments(S, X, V)
    return S.jax.jvp(f, (x,), (v,))


@pytest.mark.parametrize("name", SMOOTH | FORWARD)
@same(weak=False)
def test_jvp_of_jit(S, name):
    f = functools.partial((SMOOTH | FORWARD)[name], S)
    x, v = arguments(S, X, V)
    return S.jax.jit(lambda x, v: S.jax.jvp(S.jax.jit(f), (x,), (v,)))(x, v)


@pytest.mark.parametrize("name", SMOOTH)
@same(weak=False)
def test_gradient(S, name):
    f = functools.partial(total, S, SMOOTH[name])
    (x,) = arguments(S, X)
    gradients = lambda x: (S.jax.value_and_grad(f)(x), S.jax.jit(S.jax.grad(f))(x), S.jax.grad(S.jax.jit(f))(x))  # noqa: E731
    return compiled(S, gradients, x)


@pytest.mark.parametrize("name", SMOOTH)
@same(ulps=64, weak=False)
def test_second_and_third_derivatives(S, name):
    f = functools.partial(total, S, SMOOTH[name])
    (x,) = arguments(S, X)
    third = S.jax.jacfwd(S.jax.hessian(f))
    return compiled(S, lambda x: (S.jax.hessian(f)(x), S.jax.jacrev(S.jax.jacrev(f))(x), third(x)), x)


@pytest.mark.parametrize("name", SMOOTH)
def test_against_finite_differences(name):
    check_grads(functools.partial(SMOOTH[name], FERRAX), (jnp.asarray(X),), order=2, rtol=5e-2, atol=5e-2)


@pytest.mark.parametrize("name", FORWARD)
def test_forward_against_finite_differences(name):
    check_grads(
        functools.partial(FORWARD[name], FERRAX), (jnp.asarray(X),), order=2, modes=["fwd"], rtol=5e-2, atol=5e-2)


@pytest.mark.parametrize("name", SMOOTH | FORWARD)
@same(weak=False)
def test_vmap(S, name):
    f = functools.partial((SMOOTH | FORWARD)[name], S)
    (x,) = arguments(S, BATCH)
    batches = lambda x: (S.jax.vmap(f)(x), S.jax.jit(S.jax.vmap(f, in_axes=1, out_axes=1))(x.T))  # noqa: E731
    return compiled(S, batches, x)


@pytest.mark.parametrize("name", SMOOTH)
@same(ulps=64, weak=False)
def test_vmap_of_gradients(S, name):
    f = functools.partial(total, S, SMOOTH[name])
    (x,) = arguments(S, BATCH)
    batched = S.jax.vmap(functools.partial(SMOOTH[name], S))
    return compiled(S, lambda x: (
        S.jax.vmap(S.jax.grad(f))(x),
        S.jax.grad(lambda x: batched(x).sum())(x),
        S.jax.vmap(S.jax.hessian(f))(x),
        S.jax.vmap(S.jax.vmap(S.jax.grad(f)))(S.jnp.stack([x, x + 1])),
    ), x)


@pytest.mark.parametrize("name", SMOOTH)
@same(ulps=64, weak=False)
def test_linearize_and_vjp(S, name):
    f = functools.partial(SMOOTH[name], S)
    x, v = arguments(S, X, V)

    def both(x, v):
        y, linear = S.jax.linearize(f, x)
        return y, linear(v), S.jax.vjp(f, x)[1](v)

    return compiled(S, both, x, v)


@pytest.mark.parametrize("name", FORWARD)
def test_reverse_mode_through_unknown_steps(name):
    """JAX has no such derivatives: they are those of forward mode."""
    (x,) = arguments(FERRAX, X)
    f = functools.partial(total, FERRAX, FORWARD[name])
    compare(ferrax.grad(f)(x), ferrax.jacfwd(f)(x), ulps=64, weak=False)
    check_grads(
        functools.partial(FORWARD[name], FERRAX), (jnp.asarray(X),), order=2, modes=["rev"], rtol=5e-2, atol=5e-2)


# Selected by lane

LANES = {
    "predicate": lambda S, p, x: S.jax.vmap(lambda p, x: S.lax.cond(p > 0, S.jnp.sin, S.jnp.cos, x))(p, x),
    "predicate_only": lambda S, p, x: S.jax.vmap(lambda p: S.lax.cond(p > 0, S.jnp.sin, S.jnp.cos, x))(p),
    "operand_only": lambda S, p, x: S.jax.vmap(lambda x: S.lax.cond(p[0] > 0, S.jnp.sin, S.jnp.cos, x))(x),
    "constants": lambda S, p, x: S.jax.vmap(lambda p: S.lax.cond(p > 0, lambda: 1, lambda: 2))(p),
    "index": lambda S, p, x: S.jax.vmap(lambda i, x: S.lax.switch(i, [S.jnp.sin, S.jnp.cos, lambda x: x], x))(
        S.jnp.arange(-1, 3), x),
    "safe": lambda S, p, x: S.jax.vmap(S.jax.grad(lambda x: S.lax.cond(x > 0, S.jnp.sqrt, lambda x: 0.0 * x, x)))(p),
    "steps": lambda S, p, x: S.jax.vmap(lambda n: S.lax.while_loop(lambda t: t[0] < n, lambda t: (t[0] + 1, t[1] * 2), (0, 1)))(
        S.jnp.arange(5)),
    "steps_fori": lambda S, p, x: S.jax.vmap(lambda n: S.lax.fori_loop(0, n, lambda i, y: y + i, 0))(S.jnp.arange(5)),
    "body_only": lambda S, p, x: S.jax.vmap(lambda a: S.lax.while_loop(lambda t: t[0] < 3, lambda t: (t[0] + 1, t[1] * a), (0, 1.0)))(x),
    "spreading": lambda S, p, x: S.jax.vmap(lambda a: S.lax.scan(lambda c, _: ((c[1], c[2], a), c[0]), (0.0, 1.0, 2.0), None, length=4))(x),
    "xs_only": lambda S, p, x: S.jax.vmap(lambda xs: S.lax.scan(lambda c, a: (c + a, c), 0.0, xs))(S.jnp.outer(x, x)),
    "captured": lambda S, p, x: S.jax.vmap(lambda a: S.lax.scan(lambda c, b: (c, a * b), 0.0, x)[1])(x),
    "out_axis": lambda S, p, x: S.jax.vmap(lambda a: S.lax.scan(lambda c, b: (c, a * b), 0.0, x)[1], out_axes=1)(x),
    "nothing": lambda S, p, x: S.jax.vmap(lambda a: S.lax.scan(lambda c, b: (c + b, c), 0.0, x), out_axes=None)(x),
    "map": lambda S, p, x: S.jax.vmap(lambda a: S.lax.map(lambda b: a * b, x))(x),
    "associative": lambda S, p, x: S.jax.vmap(lambda row: S.lax.associative_scan(S.jnp.add, row), in_axes=1)(S.jnp.outer(x, x)),
    "keys": lambda S, p, x: S.jax.vmap(lambda k: S.lax.fori_loop(
        0, 3, lambda i, t: t + S.random.uniform(S.random.fold_in(k, i)), 0.0))(S.random.split(S.random.key(0), 4)),
}  # fmt: skip


@pytest.mark.parametrize("name", LANES)
@same(weak=False)
def test_lanes(S, name):
    p, x = arguments(S, np.array([1.0, -1.0, 0.25, -3.0], "float32"), np.array([0.5, 1.5, -1.0, 2.0], "float32"))
    return LANES[name](S, p, x)


# Nothing that does not run has a gradient


@pytest.mark.parametrize("x", [0.0, 4.0])
@same(weak=False)
def test_untaken_branches_do_not_poison(S, x):
    return S.jax.grad(lambda x: S.lax.cond(x > 0, S.jnp.sqrt, lambda x: 0.0 * x, x))(x)


@same(weak=False)
def test_zero_steps(S):
    def f(x):
        return S.lax.scan(lambda c, a: (c * a, c), x, S.jnp.ones((0,)))[0] * 2

    return S.jax.grad(f)(3.0), S.jax.vmap(f)(S.jnp.ones(2)), S.jax.jvp(f, (3.0,), (1.0,))


@same
def test_integer_carries_have_no_tangents(S):
    def f(n, x):
        return S.lax.fori_loop(0, 3, lambda i, t: (t[0] + 1, t[1] * x), (n, x))

    return S.jax.vjp(lambda x: f(1, x)[1], 2.0)[1](1.0), S.jax.jvp(lambda x: f(1, x)[1], (2.0,), (1.0,))


# Random programs


@st.composite
def steps(draw, depth):
    """A function of a vector of 3 as nested tuples; `interpret` runs it."""
    kinds = ["sin", "mul", "add"]
    if depth:
        kinds += ["cond", "switch", "scan", "scan_ys", "fori", "while", "jit", "map", "associative"]
    program = []
    for _ in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from(kinds))
        bodies = {"cond": 2, "switch": 3, "sin": 0, "mul": 0, "add": 0, "associative": 0}.get(kind, 1)
        inner = [draw(steps(depth - 1)) for _ in range(bodies)]
        program.append((kind, draw(st.integers(0, 3)), draw(st.booleans()), inner))
    return program


def interpret_step(S, step, x, outer, reverse):
    jnp, lax = S.jnp, S.lax
    kind, number, flag, inner = step
    bodies = [functools.partial(interpret, S, body, outer=x if flag else outer, reverse=reverse) for body in inner]
    if kind == "sin":
        x = jnp.sin(x)
    elif kind == "mul":
        x = x * outer * 0.5 + 0.1
    elif kind == "add":
        x = x + outer[number % 3]
    elif kind == "cond":
        x = lax.cond(x[number % 3] > 0.3, *bodies, x)
    elif kind == "switch":
        x = lax.switch(jnp.int32(jnp.clip(x[0] * 3, -2, 5)) if flag else number, bodies, x)
    elif kind == "scan":
        x = lax.scan(lambda c, a: (bodies[0](c) * a, None), x, jnp.tanh(x), length=3, reverse=flag)[0]
    elif kind == "scan_ys":
        x = lax.scan(lambda c, a: (c * 0.5 + a, bodies[0](c * a + outer).sum()), x[number % 3], jnp.tanh(x))[1]
    elif kind == "fori":
        x = lax.fori_loop(0, number, lambda i, y: bodies[0](y) * 0.7 + i, x, unroll=1 + flag)
    elif kind == "while":
        if S is JAX and reverse:  # it has no reverse mode of loops that end when they like
            return jnp.tanh(lax.fori_loop(0, number, lambda _, y: jnp.tanh(bodies[0](y)), x))
        x = lax.while_loop(lambda t: t[0] < number, lambda t: (t[0] + 1, jnp.tanh(bodies[0](t[1]))), (0, x))[1]
    elif kind == "jit":
        x = S.jax.jit(bodies[0])(x)
    elif kind == "map":
        x = lax.map(lambda a: bodies[0](x * a).sum(), x)
    else:
        x = lax.associative_scan(jnp.multiply if flag else jnp.add, x, reverse=number > 1)
    return jnp.tanh(x)


def interpret(S, program, x, outer, reverse):
    for step in program:
        x = interpret_step(S, step, x, outer, reverse)
    return x


TRANSFORMS = {
    "value": lambda S, f, x: f(x),
    "jit": lambda S, f, x: S.jax.jit(f)(x),
    "jvp": lambda S, f, x: S.jax.jvp(f, (x,), (x * 0.5,)),
    "vmap": lambda S, f, x: S.jax.vmap(f)(S.jnp.stack([x, -x])),
    "vmap_jvp": lambda S, f, x: S.jax.vmap(lambda v: S.jax.jvp(f, (x,), (v,))[1])(S.jnp.eye(3)),
    "grad": lambda S, f, x: S.jax.grad(lambda x: f(x).sum())(x),
    "jit_grad": lambda S, f, x: S.jax.jit(S.jax.grad(lambda x: f(x).sum()))(x),
    "vmap_grad": lambda S, f, x: S.jax.vmap(S.jax.grad(lambda x: f(x).sum()))(S.jnp.stack([x, -x])),
    "grad_vmap": lambda S, f, x: S.jax.grad(lambda x: S.jax.vmap(f)(S.jnp.stack([x, x * 2])).sum())(x),
    "hessian": lambda S, f, x: S.jax.hessian(lambda x: f(x).sum())(x),
}


@pytest.mark.parametrize("transform", TRANSFORMS)
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(program=steps(2))
def test_random_programs(transform, program):
    reverse = "grad" in transform or transform == "hessian"

    def case(S):
        def run(x):
            return TRANSFORMS[transform](S, functools.partial(interpret, S, program, outer=x, reverse=reverse), x)

        return compiled(S, run, S.jnp.asarray(X))

    # What the programs chain amplifies roundings.
    compare(attempt(case, FERRAX), attempt(case, JAX), ulps=256, weak=False)
