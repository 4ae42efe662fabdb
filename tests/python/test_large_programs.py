"""Programs at sizes where other ways of computing begin: runs of rows, sums in blocks, products in tiles, threads.

A random chain of steps is compiled as one program and taken step by step; in double precision, to which results
of narrower types are compared, and on parts of the first axis. All three have to agree.
"""

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings, strategies as st

import ferrax
import ferrax.numpy as jnp

# Around a MiB of arrays in single precision and beyond; sizes that no block divides, few and many rows.
SHAPES = ((521, 511), (1024, 256), (4099, 65), (33, 8191), (64, 64, 67), (2047, 4, 33), (7, 521, 73), (256, 1024), (262144,))

MAPS = {
    "tanh": lambda x: jnp.tanh(x),
    "affine": lambda x: 0.5 * x + 0.25,
    "exp": lambda x: jnp.exp(-x * x),
    "where": lambda x: jnp.where(x > 0.1, x, 0.5 * x + 0.05),
}
# Of the last axis.
ROWS = {
    "softmax": lambda x: ferrax.nn.softmax(x, -1) * 2,
    "log_softmax": lambda x: ferrax.nn.log_softmax(x, -1) * 0.1,
    "less_mean": lambda x: x - x.mean(-1, keepdims=True),
    "normalised": lambda x: x / jnp.sqrt(1 + (x * x).mean(-1, keepdims=True)),
    "less_max": lambda x: x - x.max(-1, keepdims=True),
    "logsumexp": lambda x: x - 0.1 * ferrax.nn.logsumexp(x, -1, keepdims=True),
    "cumsum": lambda x: jnp.cumsum(x, -1) / x.shape[-1],
    "reversed": lambda x: x[..., ::-1],
    "beside": lambda x: jnp.concatenate([x[..., 1:], x[..., :1]], -1),
    "product": lambda x: (x @ weights(x.shape[-1], 48, x.dtype)) * 0.2,
    "narrow": lambda x: (x @ weights(x.shape[-1], 8, x.dtype)) * 0.2,
}
# Of other axes, which are taken last where steps of rows follow.
COLUMNS = {
    "swapped": lambda x: jnp.swapaxes(x, -1, -2) if x.ndim > 1 else x,
    "columns": lambda x: x - x.mean(0, keepdims=True),
    "first_last": lambda x: jnp.moveaxis(x, 0, -1),
    "scores": lambda x: jnp.tril(x @ jnp.swapaxes(x, -1, -2)) / x.shape[-1] if x.ndim > 1 and x.shape[-2] < 600 else x,
}
STEPS = MAPS | ROWS | COLUMNS


def weights(count, width, dtype):
    values = np.sin(1.7 * np.arange(count * width)).reshape(count, width) / np.sqrt(count)
    return jnp.asarray(values, dtype)


def program(names):
    def run(x):
        for name in names:
            x = STEPS[name](x)
        return x

    return run


def drawn(shape, seed, dtype):
    return jnp.asarray(np.random.default_rng(seed).uniform(-1, 1, shape), dtype)


EXAMPLES = 12 if settings.get_current_profile_name() == "repeatable" else 300
QUIET = settings(deadline=None, database=None, max_examples=EXAMPLES,
                 suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
chains = st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=5)
# In single precision other values are the largest, or beyond the bend of `where`: see the last test.
smooth_chains = st.lists(st.sampled_from(sorted(STEPS.keys() - {"less_max", "where"})), min_size=1, max_size=5)
shapes, seeds = st.sampled_from(SHAPES), st.integers(0, 1 << 20)


def agree(got, wanted, bound, where):
    got, wanted = np.asarray(got, np.float64), np.asarray(wanted, np.float64)
    assert got.shape == wanted.shape
    error = np.abs(got - wanted)
    worst = float(error.max(initial=0.0))
    assert np.isfinite(got).all() and worst <= bound, f"{where}: off by {worst} in {(error > bound).sum()} of {error.size}"


# Values are of size 1 at most and sums are of averages, so that roundings are those of a few operations.
BOUNDS = {"float64": 1e-12, "float32": 2e-5, "bfloat16": 0.1, "float16": 0.02}


@settings(QUIET)
@given(shapes, chains, seeds, st.sampled_from(sorted(BOUNDS)))
def test_one_program_is_its_steps(shape, names, seed, dtype):
    with ferrax.enable_x64(True):
        # A sum of more exponentials is beyond the largest number of half precision, as it is in JAX.
        assume(dtype != "float16" or shape[-1] < 1 << 16)
        x = drawn(shape, seed, dtype)
        compiled = ferrax.jit(program(names))(x)
        exact = program(names)(x.astype("float64"))
        agree(program(names)(x), exact, BOUNDS[dtype], f"eager {dtype}{shape} {names}")
        agree(compiled, exact, BOUNDS[dtype], f"jit {dtype}{shape} {names}")


@settings(QUIET, max_examples=EXAMPLES // 2)
@given(shapes, st.lists(st.sampled_from(sorted(MAPS | ROWS)), min_size=1, max_size=4), seeds)
def test_batches_are_their_parts(shape, names, seed):
    with ferrax.enable_x64(True):
        x = drawn((2, *shape), seed, "float32")
        run = ferrax.jit(program(names))
        agree(ferrax.jit(ferrax.vmap(program(names)))(x), jnp.stack([run(x[0]), run(x[1])]), BOUNDS["float32"], f"{shape} {names}")


@settings(QUIET, max_examples=EXAMPLES // 2)
@given(shapes, smooth_chains, seeds)
def test_gradients_are_those_of_double_precision(shape, names, seed):
    """And reverse mode is the transpose of forward mode."""

    def loss(x):
        y = program(names)(x)
        return (y * jnp.cos(jnp.arange(y.size, dtype=y.dtype).reshape(y.shape) % 7)).sum()

    with ferrax.enable_x64(True):
        x, along = drawn(shape, seed, "float64"), drawn(shape, seed + 1, "float64")
        exact = ferrax.jit(ferrax.grad(loss))(x)
        value, tangent = ferrax.jit(lambda x: ferrax.jvp(loss, (x,), (along,)))(x)
        size = float(jnp.abs(exact * along).sum()) + 1
        assert abs(float((exact * along).sum() - tangent)) <= 1e-10 * size, f"{shape} {names}"
        narrow = ferrax.jit(ferrax.grad(loss))(x.astype("float32"))
        agree(narrow, exact, 2e-4 * float(jnp.abs(exact).max() + 1), f"grad {shape} {names}")


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_gradients_of_the_largest(shape):
    """Of whole numbers, each once in its row: the largest is the same in each precision."""
    rng = np.random.default_rng(0)
    x = rng.permuted(np.broadcast_to(np.arange(shape[-1]), shape), axis=-1)

    def loss(x):
        return (STEPS["less_max"](x) * jnp.cos(jnp.arange(x.size, dtype=x.dtype).reshape(x.shape) % 7)).sum()

    with ferrax.enable_x64(True):
        exact = ferrax.jit(ferrax.grad(loss))(jnp.asarray(x, "float64"))
        agree(ferrax.jit(ferrax.grad(loss))(jnp.asarray(x, "float32")), exact, 2e-4 * np.sqrt(shape[-1] / 512), f"{shape}")
        for_all = np.cos(np.arange(x.size).reshape(shape) % 7)
        wanted = for_all - np.where(x == x.max(-1, keepdims=True), for_all.sum(-1, keepdims=True), 0)
        agree(exact, wanted, 1e-9, f"{shape}")
