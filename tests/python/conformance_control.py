"""The part of `conformance_table` for ops that hold programs: loops, branches, rules of the user's."""

import jax.ad_checkpoint  # noqa: F401  a module that JAX does not import itself
import numpy as np
from conformance_table import SHAPES, add, data, f64

FLOATS = (np.float32, np.float64, np.complex64)
UNARY = [(data(s, d, 1, -0.9, 0.9, special=False),) for s in SHAPES for d in FLOATS]
BINARY = [(x, data(x.shape, x.dtype, 2, special=False)) for (x,) in UNARY]


def _cond(S, x, y):
    return S.lax.cond(S.jnp.sum(S.jnp.real(x)) > 0, lambda x, y: (x * y, S.jnp.sin(x)), lambda x, y: (x - y, y * y), x, y)


def _while(S, x):
    def step(state):
        i, x = state
        return i + 1, S.jnp.sin(x) * 1.5

    return S.lax.while_loop(lambda state: state[0] < 3, step, (0, x))[1]


def _sweeps(S, x):
    """The gradient of a loop; the reference has none for `while` and unrolls it."""
    step = lambda x: S.jnp.sin(x) * 1.5  # noqa: E731

    def loop(x):
        if S.jax.__name__ == "jax":
            return step(step(step(x))).sum()
        return S.lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, step(s[1])), (0, x))[1].sum()

    return S.jax.grad(loop)(x)


def _lanes(S, x):
    """Lanes that stop at steps of their own: what they have at first when derivatives are taken."""

    def loop(n, x):
        return S.lax.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, S.jnp.sin(s[1]) * 1.5), (0, x))[1]

    return S.jax.vmap(loop)(S.jnp.array([2, 0, 3]), S.jnp.stack([x, x * 0.5, -x]))


def _scan(S, x, y):
    # Both results are products: a sum that cancels says nothing of the ulps of its terms.
    return S.lax.scan(lambda c, a: (S.jnp.sin(c) * a, c * a), x, S.jnp.stack([y, x, y * x]))


def _own_jvp(S):
    f = S.jax.custom_jvp(lambda x, y: S.jnp.sin(x) * y)
    f.defjvp(lambda p, t: (f(*p), S.jnp.cos(p[0]) * p[1] * t[0] + S.jnp.sin(p[0]) * t[1]))
    return f


def _own_vjp(S):
    f = S.jax.custom_vjp(lambda x, y: S.jnp.sin(x) * y)
    f.defvjp(
        lambda x, y: (f(x, y), (x, y)),
        lambda kept, ct: (S.jnp.cos(kept[0]) * kept[1] * ct, S.jnp.sin(kept[0]) * ct),
    )
    return f


def _own_linear(S, x, y):
    """The transpose that a reverse rule is."""
    value, pullback = S.jax.vjp(S.jax.jit(_own_vjp(S)), x, y)
    return pullback(value * 2)


def _loaded(S, fun, *args):
    """The function by way of a file, in which calls with rules are ops of the native core."""
    if S.jax.__name__ == "jax":
        return fun(*args)
    types = [S.jax.ShapeDtypeStruct(x.shape, x.dtype) for x in args]
    exported = S.jax.export.export(S.jax.jit(fun))(*types)
    return S.jax.export.deserialize(exported.serialize()).call(*args)


def _linear(S, x):
    twice = lambda r, x: x * r  # noqa: E731
    return S.jnp.sin(S.jax.custom_derivatives.linear_call(twice, twice, 2.0, x))


def _solve(S, x, y):
    d = y * 0.1 + 5
    return S.lax.custom_linear_solve(lambda x: d * x, x, lambda _, b: b / d, symmetric=True)


def _one_by_one(S):
    return S.jax.custom_batching.sequential_vmap(lambda x, y: (S.jnp.sin(x) * y, x - y))


REALS = [(x,) for (x,) in UNARY if x.dtype.kind == "f"]
REAL_PAIRS = [(x, y) for x, y in BINARY if x.dtype.kind == "f"]

add("name", lambda S, x: S.jax.ad_checkpoint.checkpoint_name(x * 2, "kept"), UNARY, (f64(3),))
add("optimization_barrier", lambda S, x, y: S.lax.optimization_barrier((x * y, y)), BINARY, (f64(3), f64(3, seed=2)))
add("cond", _cond, BINARY, (f64(3), f64(3, seed=2)))
add("while", _while, UNARY, (f64(3),), loose=4)
add("sweeps", _sweeps, REALS, (f64(3),), loose=4)
add("stand_in", _lanes, UNARY, (f64(3),), loose=4)
add("scan", _scan, BINARY, (f64(3), f64(3, seed=2)), loose=4)
add("remat2", lambda S, x, y: S.jax.checkpoint(lambda x, y: (S.jnp.sin(x) * y, y * y))(x, y), BINARY,
    (f64(3), f64(3, seed=2)))
add("custom_jvp_call", lambda S, x, y: _own_jvp(S)(x, y), BINARY, (f64(3), f64(3, seed=2)))
# Reverse rules have no forward mode: derivatives are tested with the transpose.
add("custom_vjp_call", lambda S, x, y: _own_vjp(S)(x, y), BINARY)
add("custom_lin", _own_linear, REAL_PAIRS)
add("linear_call", lambda S, x: _loaded(S, lambda x: _linear(S, x), x), UNARY, (f64(3),))
add("custom_linear_solve", lambda S, x, y: _loaded(S, lambda x, y: _solve(S, x, y), x, y), BINARY,
    (f64(3), f64(3, seed=2)))
# Reverse mode needs a rule around it.
add("custom_vmap_call", lambda S, x, y: _loaded(S, _one_by_one(S), x, y), BINARY)
