"""Programs that reduce the rows of large arrays and come back to them: their kernels run block by block."""

import numpy as np
import pytest
from oracle import FERRAX, JAX

SHAPES = [(700, 512), (3, 300, 400), (20_001, 17), (5, 70_000)]
DTYPES = ["float32", "bfloat16", "float64"]
# Of the largest value: sums of rows are grouped otherwise.
TOLERANCE = {"float32": 3e-6, "bfloat16": 2e-2, "float64": 1e-13}


def _layer_norm(S, x):
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) * S.lax.rsqrt(variance + 1e-5) * S.jnp.arange(1, x.shape[-1] + 1, dtype=x.dtype) / x.shape[-1]


def _cross_entropy(S, x):
    labels = S.jnp.arange(x.size // x.shape[-1]).reshape(x.shape[:-1]) % x.shape[-1]
    return -S.jnp.take_along_axis(S.jax.nn.log_softmax(x), labels[..., None], -1)[..., 0]


def _causal(S, x):
    rows, columns = (S.lax.broadcasted_iota(np.int32, x.shape, x.ndim - k) for k in (2, 1))
    return S.jax.nn.softmax(S.jnp.where(rows >= columns, x, -1e9), axis=-1)


FUNCTIONS = {
    "softmax": lambda S, x: S.jax.nn.softmax(x),
    "log_softmax": lambda S, x: S.jax.nn.log_softmax(x),
    "logsumexp": lambda S, x: S.jax.nn.logsumexp(x, axis=-1),
    "var": lambda S, x: S.jnp.var(x, axis=-1),
    "layer_norm": _layer_norm,
    "cross_entropy": _cross_entropy,
    "causal": _causal,
    "standardize": lambda S, x: S.jax.nn.standardize(x),
}


def data(shape, dtype, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32).astype(FERRAX.jnp.dtype(dtype))


def near(got, wanted, dtype):
    got, wanted = (np.asarray(x).astype(np.float64) for x in (got, wanted))
    assert got.shape == wanted.shape
    np.testing.assert_allclose(got, wanted, rtol=0, atol=TOLERANCE[dtype] * (1 + np.abs(wanted).max()))


def on_both(function, dtype):
    """What both libraries make of it, with 64-bit types where they are asked for."""
    results = []
    for S in (FERRAX, JAX):
        with S.jax.enable_x64(dtype == "float64"):
            results.append(function(S))
    return results


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_values(name, shape, dtype):
    x = data(shape, dtype)
    near(*on_both(lambda S: S.jax.jit(lambda x: FUNCTIONS[name](S, x))(x), dtype), dtype)


@pytest.mark.parametrize("shape", SHAPES[:3], ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients(name, shape):
    x = data(shape, "float32")

    def loss(S):
        def weighted(x):
            y = FUNCTIONS[name](S, x)
            return (y * S.jnp.cos(S.jnp.arange(y.size, dtype=y.dtype)).reshape(y.shape)).sum()

        return weighted

    near(*on_both(lambda S: S.jax.jit(S.jax.grad(loss(S)))(x), "float32"), "float32")
    direction = data(shape, "float32", 1)

    def second(S):
        gradient = S.jax.grad(loss(S))
        return S.jax.jit(lambda x, v: S.jax.jvp(gradient, (x,), (v,))[1])(x, direction)

    near(*on_both(second, "float32"), "float32")


@pytest.mark.parametrize("name", FUNCTIONS)
def test_batched_and_in_loops(name):
    x = data((4, 300, 400), "float32")
    near(*on_both(lambda S: S.jax.jit(S.jax.vmap(lambda x: FUNCTIONS[name](S, x)))(x), "float32"), "float32")

    def looped(S):
        def body(carry, _):
            y = FUNCTIONS[name](S, carry)
            return carry + y.reshape(*y.shape, *(1,) * (carry.ndim - y.ndim)), y.sum()

        return S.jax.jit(lambda x: S.lax.scan(body, x, None, length=3)[0])(x)

    near(*on_both(looped, "float32"), "float32")


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf, 0.0, -0.0])
@pytest.mark.parametrize("width", [1, 3, 8, 9, 17, 31, 32, 33, 70, 300])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_extrema_of_rows(dtype, width, special):
    """Each place of a row counts; NaN wins, and of zeros the larger is +0."""
    x = -np.abs(data((width, width), dtype))
    x[np.arange(width), np.arange(width)] = special
    zeros = np.full((width, width), -0.0, dtype)
    zeros[np.arange(width), np.arange(width)] = 0.0
    x = np.concatenate([x, zeros, -zeros])
    for sign in (1, -1):
        expected = sign * np.max(x, axis=1)
        with FERRAX.jax.enable_x64(dtype == "float64"):
            got = np.asarray((FERRAX.jnp.max if sign == 1 else FERRAX.jnp.min)(sign * x, axis=1))
        np.testing.assert_array_equal(got, expected)
        # Of zeros of both signs, NumPy takes any.
        positive = (x == 0) & ~np.signbit(x)
        is_zero = expected == 0
        assert ((np.signbit(sign * got) == ~positive.any(axis=1)) | ~is_zero).all()
