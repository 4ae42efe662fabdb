"""Control flow, rules of users', checkpoints, solvers and mutable arrays inside each other: derivatives
to the third order against JAX and against finite differences."""

import functools

import numpy as np
import pytest
from closeness import norm
from oracle import FERRAX, JAX, Raised, attempt, compare, compiled

import ferrax
from ferrax.test_util import check_grads

X = np.array([0.5, 0.75, 1.25])
BATCH = np.array([[0.5, 0.75, 1.25], [0.9, 0.25, 1.5]])


def sine(S):
    """With a forward rule of its own, which calls it."""
    f = S.jax.custom_jvp(S.jnp.sin)
    f.defjvp(lambda p, t: (f(*p), S.jnp.sqrt(1 - f(*p) ** 2) * t[0]))
    return f


def square(S):
    """With reverse rules of its own."""
    f = S.jax.custom_vjp(lambda x: x * x)
    f.defvjp(lambda x: (x * x, x), lambda x, ct: (2 * x * ct,))
    return f


def swapped(S):
    """With a batching rule of its own."""
    f = S.jax.custom_batching.custom_vmap(lambda x: S.jnp.cos(x) * x)

    @f.def_vmap
    def rule(size, batched, x):
        return S.jnp.cos(x) * x, batched[0]

    return f


def root(S, a):
    """The root of y + y³/9 = a, by Newton's steps."""
    residual = lambda y: y + y**3 / 9 - a  # noqa: E731

    def solve(f, y):
        newton = lambda _, y: y - f(y) / (1 + y * y / 3)  # noqa: E731
        return S.lax.fori_loop(0, 30, newton, y)

    return S.lax.custom_root(residual, S.jnp.zeros_like(a), solve, lambda g, y: y / g(S.jnp.ones_like(y)))


def solved(S, d, b):
    """b / (2 + d²), as the solution of a linear system."""
    matvec = lambda x: x * (2 + d * d)  # noqa: E731
    solve = lambda mv, b: b / mv(S.jnp.ones_like(b))  # noqa: E731
    return S.lax.custom_linear_solve(matvec, b, solve, symmetric=True)


def accumulated(S, x):
    """Squares of prefix sums, through mutable arrays."""
    x = S.jnp.asarray(x)
    total, out = S.jax.new_ref(S.jnp.zeros(())), S.jax.new_ref(S.jnp.zeros(3))

    def step(i, _):
        total[...] += x[i] * x[0]
        out[i] = total[...] ** 2
        return 0

    S.lax.fori_loop(0, 3, step, 0)
    return out[...]


def accumulated_alone(S, x):
    return S.jnp.cumsum(x * x[0]) ** 2


def folded(S, body, init, xs):
    return S.lax.scan(body, init, xs)


MIXTURES = {
    "scan of custom_vjp in checkpoint": lambda S, x: folded(
        S, S.jax.checkpoint(lambda c, a: (square(S)(c) * 0.5 + a, c * a)), x[0], x)[1],
    "checkpoint of scan of custom_jvp": lambda S, x: S.jax.checkpoint(
        lambda x: folded(S, lambda c, a: (sine(S)(c * a), c + a), x[1] * 0.5, x)[1])(x),
    "scan of cond of custom rules": lambda S, x: folded(
        S, lambda c, a: (S.lax.cond(a > 0.6, square(S), sine(S), c * 0.5 * a), c), x[0], x)[1] * x,
    "cond of scan of switch": lambda S, x: S.lax.cond(
        x[0] > 0,
        lambda x: folded(S, lambda c, i: (c * S.lax.switch(i, [S.jnp.sin, S.jnp.cos, square(S)], x[0]), c + x[i]),
                         x[2], S.jnp.arange(3))[1],
        lambda x: x, x),
    "checkpoint with a policy of cond in fori": lambda S, x: S.jax.checkpoint(
        lambda x: S.lax.fori_loop(0, 3, lambda i, y: S.lax.cond(i > 1, S.jnp.sin, lambda y: y * x, y) + x, x),
        policy=S.jax.checkpoint_policies.dots_saveable)(x),
    "nested checkpoints": lambda S, x: S.jax.checkpoint(
        lambda x: S.jax.checkpoint(lambda y: S.jnp.sin(y) * x)(S.jnp.cos(x) * x))(x),
    "custom_root in scan": lambda S, x: folded(S, lambda c, a: (root(S, c * a), c), x[0] + 1, x)[1] * x,
    "custom_root of jit of cond": lambda S, x: S.jax.jit(
        lambda x: S.lax.cond(x[0] > 0, functools.partial(root, S), S.jnp.sin, x * x))(x),
    "custom_linear_solve in fori": lambda S, x: S.lax.fori_loop(0, 3, lambda _, y: solved(S, x, y + x), x),
    "custom_linear_solve in cond in scan": lambda S, x: folded(
        S, lambda c, a: (S.lax.cond(a > 0.6, lambda c: solved(S, a, c), S.jnp.sin, c), c * a), x[1], x)[1],
    "scan in vmap in scan": lambda S, x: folded(
        S, lambda c, a: (S.jax.vmap(lambda y: folded(S, lambda d, b: (d * b + a, d), y, x)[0])(c), c.sum()),
        x * 0.5, x)[1],
    "cond in vmap in checkpoint": lambda S, x: S.jax.checkpoint(
        lambda x: S.jax.vmap(lambda y: S.lax.cond(y > 0.6, sine(S), square(S), y))(x) * x)(x),
    "custom_vmap in vmap in cond": lambda S, x: S.lax.cond(
        x[0] > 0, lambda x: S.jax.vmap(swapped(S))(x) * x, lambda x: x, x),
    "associative_scan of custom_jvp": lambda S, x: S.lax.associative_scan(lambda a, b: sine(S)(a) * b + a, x),
    "map of scan of map": lambda S, x: S.lax.map(
        lambda a: folded(S, lambda c, b: (S.lax.map(lambda d: d * b + a, c), None), x, x)[0].sum(), x),
    "collectives in scan": lambda S, x: folded(
        S, lambda c, a: (S.jax.vmap(lambda y: S.jnp.sin(y) * S.lax.psum(y * a, "i"), axis_name="i")(c), c[0]),
        x * 0.5, x)[1],
    "sort in fori": lambda S, x: S.lax.fori_loop(0, 3, lambda _, y: S.jnp.sort(S.jnp.cos(y) * x) * x, x),
    "eigh in scan": lambda S, x: folded(
        S, lambda c, a: (S.jnp.linalg.eigh(S.jnp.diag(c) + a)[0] * 0.5, c.sum()), x, x)[1],
    "closure_convert in custom_jvp": lambda S, x: of_converted(S, lambda y: S.jnp.sin(y) * x, x * x),
    "custom_gradient in scan": lambda S, x: folded(
        S, lambda c, a: (S.jax.custom_gradient(
            lambda y, a: (y * y * a, lambda ct: (2 * y * a * ct, y * y * ct)))(c, a), c), 0.5, x)[1] * x,
    "odd nest": lambda S, x: folded(S, lambda c, a: (S.lax.cond(
        a > 0.6, lambda c: S.lax.fori_loop(0, 2, lambda _, y: S.jax.jit(sine(S))(y) * a, c),
        lambda c: S.jax.checkpoint(square(S))(c), c), c + a), x[0], x)[1],
}  # fmt: skip


def of_converted(S, fun, x):
    converted, consts = S.jax.closure_convert(fun, x)
    f = S.jax.custom_jvp(lambda x, *consts: converted(x, *consts))
    f.defjvp(lambda p, t: (f(*p), S.jax.jvp(converted, p, t)[1]))
    return f(x, *consts)


# Reverse rules have no forward derivatives.
REVERSE = (
    "scan of custom_vjp in checkpoint", "scan of cond of custom rules", "cond of scan of switch",
    "cond in vmap in checkpoint", "custom_gradient in scan", "odd nest",
)  # fmt: skip

# Beside the same without mutable arrays, as JAX lacks some of these derivatives.
MUTABLE = {
    "mutable arrays": (accumulated, accumulated_alone),
    "mutable arrays in checkpoint": (
        lambda S, x: S.jax.checkpoint(functools.partial(accumulated, S))(x) * x,
        lambda S, x: accumulated_alone(S, x) * x,
    ),
    "mutable arrays in cond": (
        lambda S, x: S.lax.cond(x[0] > 0, functools.partial(accumulated, S), S.jnp.sin, x),
        accumulated_alone,
    ),
    "mutable arrays in scan of custom_jvp": (
        lambda S, x: folded(S, lambda c, a: (sine(S)(accumulated(S, c)) * a, c[1]), x, x)[1],
        lambda S, x: folded(S, lambda c, a: (S.jnp.sin(accumulated_alone(S, c)) * a, c[1]), x, x)[1],
    ),
}

# With numbers of steps that are not known: JAX has no reverse mode for them.
UNKNOWN_STEPS = {
    "while of custom_jvp": lambda S, x: S.lax.while_loop(
        lambda y: y.sum() < 9, lambda y: y + sine(S)(y * 0.3) * x + 0.5, x),
    "while in cond in scan": lambda S, x: folded(
        S, lambda c, a: (S.lax.cond(a > 0.6, lambda c: S.lax.while_loop(
            lambda y: y < 4, lambda y: y * (1 + a) + x[0], c), S.jnp.sin, c), c), x[1] * 0.5, x)[1],
    "scan in while": lambda S, x: S.lax.while_loop(
        lambda y: y.sum() < 9, lambda y: y * 1.5 + folded(S, lambda c, a: (c * a, c), 0.5, y * 0.2)[1], x),
    "while in while": lambda S, x: S.lax.while_loop(
        lambda y: y.sum() < 20,
        lambda y: S.lax.while_loop(lambda z: z[0] < 3, lambda z: z * (1 + 0.2 * x), y) * 1.2 + x, x),
    "while in vmap": lambda S, x: S.jax.vmap(
        lambda a: S.lax.while_loop(lambda y: y < 5, lambda y: y * (1 + x[0]) + a * a, a))(x),
    "while in checkpoint": lambda S, x: S.jax.checkpoint(
        lambda x: S.lax.while_loop(lambda y: y.sum() < 9, lambda y: y * (1 + 0.5 * S.jnp.sin(x)), x))(x),
    "fori with a traced bound of custom_root": lambda S, x: S.lax.fori_loop(
        0, S.jnp.int32(x[0] * 0 + 2), lambda _, y: root(S, y * x + 1), x),
}  # fmt: skip


def total(S, function, x):
    return (function(S, x) * S.jnp.arange(1.0, 4.0)).sum()


def against_jax(case, function, expected=None, **bounds):
    """Compares `case(S, function)` with JAX's `case(S, expected)`, floats within bounds."""
    with ferrax.enable_x64(True):
        ours = attempt(lambda S: case(S, function), FERRAX)
    with JAX.jax.enable_x64(True):
        theirs = attempt(lambda S: case(S, expected or function), JAX)
    assert not isinstance(theirs, Raised), theirs
    compare(ours, theirs, weak=False, **bounds)


def functions(name):
    return MUTABLE[name] if name in MUTABLE else (MIXTURES[name],)


@pytest.mark.parametrize("name", MIXTURES | MUTABLE)
def test_derivatives_to_the_third_order(name):
    def case(S, function):
        f, x = functools.partial(total, S, function), S.jnp.asarray(X)
        grad = S.jax.grad(f)
        along = lambda x: (grad(x) * S.jnp.arange(3.0)).sum()  # noqa: E731
        second = S.jax.grad(along)
        third = S.jax.grad(lambda x: (second(x) * S.jnp.cos(x)).sum())
        results = compiled(S, lambda x: (f(x), grad(x), second(x), third(x)), x)
        return *results, results[-1] if S is JAX else S.jax.jit(third)(x)

    against_jax(case, *functions(name), cancels=(norm, 1.0))


@pytest.mark.parametrize("name", MIXTURES | MUTABLE)
def test_batches(name):
    def case(S, function):
        f, x = functools.partial(total, S, function), S.jnp.asarray(BATCH)
        second = S.jax.grad(lambda x: (S.jax.grad(f)(x) * S.jnp.arange(3.0)).sum())
        mapped = S.jax.vmap(functools.partial(function, S))
        of_all = S.jax.jit(S.jax.grad(lambda x: (mapped(x) ** 2).sum()))
        return compiled(S, lambda x: (mapped(x), S.jax.vmap(second)(x), of_all(x)), x)

    against_jax(case, *functions(name), cancels=(norm, 1.0))


@pytest.mark.parametrize("name", MIXTURES | MUTABLE | UNKNOWN_STEPS)
def test_against_finite_differences(name):
    function = UNKNOWN_STEPS[name] if name in UNKNOWN_STEPS else functions(name)[0]
    with ferrax.enable_x64(True):
        check_grads(
            functools.partial(function, FERRAX), (FERRAX.jnp.asarray(X),), order=3, modes=["rev"] if name in REVERSE else ["fwd", "rev"],
            rtol=2e-4, atol=2e-4, eps=2e-5)


@pytest.mark.parametrize("name", UNKNOWN_STEPS)
def test_forward_derivatives_through_unknown_steps(name):
    def case(S, function):
        f, x = functools.partial(function, S), S.jnp.asarray(X)
        along = lambda x: S.jax.jvp(f, (x,), (x * x,))  # noqa: E731
        batch = S.jnp.asarray(BATCH)
        return along(x), S.jax.jvp(along, (x,), (S.jnp.ones(3),)), S.jax.jit(S.jax.jacfwd(f))(x), S.jax.vmap(f)(batch)

    against_jax(case, UNKNOWN_STEPS[name])
