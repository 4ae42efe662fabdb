"""Long reductions: their error grows with the logarithm of the length, along any axis."""

import math
import os
import subprocess
import sys

import numpy as np
import pytest

import ferrax as jax
import ferrax.numpy as jnp

LENGTH = 10_000_000
TENTH = float(np.float32(0.1))
U = 2.0**-24


def bound(n, u=U):
    """The relative error of a sum of `n` positive terms, and of one more rounding."""
    return (20 + math.log2(max(1, n / 128))) * u


@pytest.fixture(scope="module")
def tenths():
    return jnp.full((LENGTH,), 0.1, jnp.float32)


def close(got, n, term=TENTH, u=U):
    error = np.abs(np.asarray(got, np.float64) / (n * term) - 1)
    assert error.max() <= bound(n, u), error.max() / u


LAYOUTS = {
    "all": ((LENGTH,), None),
    "trailing": ((2, LENGTH // 2), 1),
    "leading": ((LENGTH // 2, 2), 0),
    "leading of many": ((LENGTH // 1000, 1000), 0),
    "middle": ((20, LENGTH // 40, 2), 1),
    "outer": ((1000, 10, LENGTH // 10_000), (0, 2)),
    "batch": ((5, LENGTH // 500, 100), (0, 1)),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_sums_and_means(tenths, layout):
    shape, axis = LAYOUTS[layout]
    x = tenths.reshape(shape)
    got = jnp.sum(x, axis, keepdims=True)
    n = LENGTH // got.size
    close(got, n)
    close(jax.jit(lambda x: jnp.mean(x * 1.0, axis))(x), 1, u=U * bound(n) / bound(1) / U)
    # Fused or not, eager or not, in a batch or not: the same bits.
    np.testing.assert_array_equal(got, jax.jit(lambda x: jnp.sum(-x, axis, keepdims=True))(-x))
    if shape[0] <= 20:
        batched = jax.vmap(lambda x: jnp.sum(x, None if axis == 1 and len(shape) == 2 else 0))(x)
        close(batched, x[0].size // batched[0].size)


@pytest.mark.parametrize("shape", [(3000, 1000), (200_003, 11), (2, 777_777), (1_000_001,)], ids=str)
def test_each_term_counts_once(shape):
    """Segments end anywhere in a line. Sums of whole numbers that are exact in any order."""
    rng = np.random.default_rng(0)
    x, w = (rng.integers(-2, 3, size).astype(np.float32) for size in (shape, shape[-1]))
    programs = (lambda x, w: (x * w).sum(), lambda x, w: (x + w).sum(0), lambda x, w: (x * w + w).sum(-1),
                lambda x, w: (abs(x) * w + x * w * w - x * x * abs(w)).sum(), lambda x, w: (x * x).sum())  # fmt: skip
    for number, program in enumerate(programs):
        wanted = program(x.astype(np.int64), w.astype(np.int64))
        np.testing.assert_array_equal(np.asarray(jax.jit(program)(x, w)), wanted, err_msg=str(number))


def test_random_terms_of_both_signs():
    x = np.random.default_rng(0).standard_normal((200_000, 25), np.float32)
    for axis in (None, 0, 1):
        exact, magnitude = (f(x).sum(axis, dtype=np.float64) for f in (np.asarray, np.abs))
        got = np.asarray(jnp.sum(x, axis), np.float64)
        n = x.size // exact.size
        assert (np.abs(got - exact) <= bound(n) * magnitude).all()


@pytest.mark.parametrize("shape, axis", [((1_000_000, 3), 0), ((3, 1_000_000), 1), ((3_000_000,), None)])
def test_variances(shape, axis):
    x = jnp.full(shape, 1000.1, jnp.float32)
    assert np.max(jnp.var(x, axis)) <= (1000.1 * bound(3_000_000)) ** 2
    assert np.max(jnp.std(x, axis)) <= 1000.1 * bound(3_000_000)
    y = jnp.stack([x, x + 1])
    np.testing.assert_allclose(jnp.var(y, 0), 0.25)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "complex64", "float64"])
def test_other_dtypes(tenths, dtype):
    with jax.enable_x64(dtype == "float64"):
        x = jnp.full((1_000_000, 2), 0.1, dtype)
        term = np.asarray(x[0, 0]).astype(np.complex128).real
        u = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float64": 2.0**-53}.get(dtype, U)
        # Halves accumulate in float32 and are rounded once.
        if dtype == "float16":
            x, term = x / 64, term / 64
        got = np.asarray(jnp.sum(x, 0)).astype(np.complex128).real
        error = np.max(np.abs(got / (1_000_000 * term) - 1))
        assert error <= (bound(1_000_000, u) if dtype in ("float64", "complex64") else u + bound(1_000_000))


def test_products_of_elements():
    """Each factor's rounding counts, in whatever order: the error is that of the number of factors."""
    x = jnp.full((1_000_000, 2), 1 + 2.0**-20, jnp.float32)
    exact = math.exp(1_000_000 * math.log1p(2.0**-20))
    for got in (jnp.prod(x, 0), jnp.prod(x.T, 1)):
        np.testing.assert_allclose(got, exact, rtol=1_000_000 * U)


def test_logarithms_of_sums(tenths):
    x = tenths.reshape(-1, 2)
    exact = TENTH + math.log(LENGTH // 2)
    np.testing.assert_allclose(jax.nn.logsumexp(x, 0), exact, rtol=4 * U)
    np.testing.assert_allclose(jnp.log(jnp.sum(jax.nn.softmax(x, 0), 0)), 0, atol=bound(LENGTH) * 4)


def test_products_of_vectors(tenths):
    term = float(np.float32(TENTH * TENTH))
    n = LENGTH // 2
    x = tenths.reshape(-1, 2)
    close(jnp.dot(tenths, tenths), LENGTH, term)
    close(jnp.vdot(tenths[:1_000_000], tenths[:1_000_000]), 1_000_000, term)
    close(jnp.einsum("ij,ij->j", x, x), n, term)
    close(jax.vmap(jnp.dot, in_axes=(1, 1))(x, x), n, term)
    close(jax.vmap(jnp.dot)(x.reshape(2, -1), x.reshape(2, -1)), n, term)
    close(jax.jit(lambda x: jnp.einsum("ij,ij->", x, x))(x), LENGTH, term)
    half = jnp.full((1000, 1000), 0.1, jnp.bfloat16)
    exact = 1000 * float(half[0, 0]) ** 2
    np.testing.assert_allclose(np.asarray(jax.vmap(jnp.dot)(half, half), np.float64), exact, rtol=2.0**-8)


@pytest.mark.parametrize("left, right", [((2, -1), (-1, 3)), ((-1, 2), (-1, 3)), ((-1,), (-1, 2)), ((2, -1), (-1,))])
def test_products_of_matrices(tenths, left, right):
    """Within a panel of the contracted axis the terms are added in order."""
    n = 1_000_000
    x, y = (tenths[: n * math.prod(k for k in s if k > 0)].reshape(s) for s in (left, right))
    got = jnp.einsum(
        x, [0, 1] if left[0] == 2 else [1, 0] if left[1:] else [1],
        y, [1, 2] if right[1:] else [1],
        [*([0] if left[1:] else []), *([2] if right[1:] else [])],
    )  # fmt: skip
    exact = n * TENTH * TENTH
    error = np.abs(np.asarray(got, np.float64) / exact - 1)
    assert error.max() <= 600 * U, error.max() / U


def test_cotangents_are_summed_as_values_are(tenths):
    x = tenths.reshape(-1, 2)
    bias = jnp.zeros(2)
    close(jax.grad(lambda bias: jnp.sum((x + bias) * 0.1))(bias), LENGTH // 2)
    close(jax.jit(jax.grad(lambda scale: jnp.sum(x * scale)))(1.0), LENGTH)
    first = jax.grad(lambda bias: jnp.sum(0.05 * (x * 0 + bias) ** 2))
    second = jax.jit(jax.grad(lambda bias: first(bias)[0]))(bias)
    close(second[0], LENGTH // 2)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_running_sums(dtype):
    with jax.enable_x64(dtype == "float64"):
        x = jnp.full((1_000_000, 2), 0.1, dtype)
        term = float(x[0, 0])
        u = U if dtype == "float32" else 2.0**-53
        exact = np.arange(1, 1_000_001, dtype=np.longdouble)[:, None] * np.longdouble(term)
        for got, flip in ((jnp.cumsum(x, 0), 1), (jax.lax.cumsum(x, 0, reverse=True), -1)):
            got = np.asarray(got, np.longdouble)[::flip]
            assert np.max(np.abs(got / exact - 1)) <= 2 * u
        big = jnp.array([1.0, 1e100, 1.0, -1e100, jnp.inf, 1.0, -jnp.inf], dtype)
        got, want = jnp.cumsum(big), [1.0, 1e100, 1e100, 2.0, np.inf, np.inf, np.nan]
        np.testing.assert_array_equal(got, want if dtype == "float64" else np.cumsum(np.asarray(big)))
        zeros = jnp.cumsum(jnp.array([-0.0, -0.0], dtype))
        assert np.signbit(zeros).all()


PROGRAM = """
import hashlib, sys
import numpy as np
import ferrax as jax
import ferrax.numpy as jnp
x = np.random.default_rng(1).standard_normal((300_000, 8), np.float32)
found = hashlib.sha256()
for y in (x, x.reshape(-1), x.reshape(8, -1), x.reshape(100, 3000, 8)):
    for axis in (None, *range(y.ndim)):
        found.update(np.asarray(jnp.sum(y, axis)).tobytes())
        found.update(np.asarray(jax.jit(lambda y: jnp.var(jnp.exp(y), axis))(y)).tobytes())
found.update(np.asarray(x.T @ jnp.asarray(x)).tobytes())
found.update(np.asarray(jnp.dot(x[:, 0], x[:, 1])).tobytes())
print(found.hexdigest())
"""


def test_threads_do_not_change_bits():
    def run(threads):
        environment = {**os.environ, "FERRAX_NUM_THREADS": str(threads)}
        done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, check=True)
        return done.stdout

    assert run(1) == run(2)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("terms", [256, 300, 4097, 70_001])
@pytest.mark.parametrize("rows, columns", [(2, 2), (3, 16), (16, 3), (10, 10), (5, 1), (16, 16), (17, 2), (2, 17)])
def test_products_of_few_rows_and_columns(rows, columns, terms, dtype):
    rng = np.random.default_rng(terms)
    x, y = (rng.standard_normal((terms, n)).astype(dtype) for n in (rows, columns))
    # What is beside the operand in memory does not come in.
    wide = np.full((terms, columns + 3), np.nan, dtype)
    wide[:, :columns] = y
    bound = (20 + 4096) * np.finfo(dtype).eps * (np.abs(x.T).astype(float) @ np.abs(y).astype(float))
    with jax.enable_x64(dtype == "float64"):
        a, b = jnp.asarray(x), jnp.asarray(y)
        for got in (
            a.T @ b, jnp.asarray(np.ascontiguousarray(x.T)) @ b, jnp.einsum("ki,kj->ij", a, b),
            jax.jit(lambda a, w: a.T @ w[:, :columns])(a, jnp.asarray(wide)),
            jax.vmap(lambda a: a.T @ b)(a[None])[0],
        ):  # fmt: skip
            assert got.dtype == dtype
            assert (np.abs(np.asarray(got, float) - x.T.astype(float) @ y.astype(float)) <= bound).all()
