"""Ways of computing that only large arrays take, each with a program that takes it and a result by NumPy.

The whole suite has to take each way (`tests/path_coverage.py`); these are the ones that its other programs are too small for.
"""

import os

import numpy as np
import pytest

import ferrax
from ferrax import lax, lib, numpy as jnp

R = np.random.RandomState(3)
ROWS = R.randint(0, 50, 5000)
UPDATES = R.standard_normal((5000, 96)).astype(np.float32)


def floats(*sizes):
    return R.standard_normal(sizes).astype(np.float32)


def added(shape, rows, updates):
    out = np.zeros(shape, np.float64)
    np.add.at(out, rows, updates)
    return out


def along_rows(x, rows):
    return np.stack([x[row : row + 3] for row in rows])


def correlated(x, f, stride, dilation):
    """Of images by channels: windows of all places, of which some are looked at."""
    reach = [(size - 1) * dilation + 1 for size in f.shape[2:]]
    windows = np.lib.stride_tricks.sliding_window_view(x, reach, (2, 3))
    windows = windows[:, :, ::stride, ::stride, ::dilation, ::dilation]
    return np.einsum("nchwij,ocij->nohw", windows, f, dtype=float)


LONG, SHORT = floats(3_000_000), floats(70_000)
A, B, DEEP, WIDE = floats(600, 5000), floats(5000, 600), floats(7, 40_000), floats(40_000, 9)
IMAGE, FILTER = floats(1, 3, 80, 80), floats(2, 3, 80, 80)
SMALL_FILTER = floats(16, 3, 3, 3)

# By name of the path: a function, its operands, and what NumPy gives.
PROGRAMS = {
    "copy: shared": (lambda x: x.at[7].set(1.0), (LONG,), lambda: np.where(np.arange(LONG.size) == 7, 1, LONG)),
    "scatter: stripes of lines": (
        lambda u: jnp.zeros((50, 96)).at[ROWS].add(u), (UPDATES,), lambda: added((50, 96), ROWS, UPDATES)),
    "scatter: stripes of windows": (
        lambda u: jnp.zeros((4, 50, 96)).at[:, ROWS].add(jnp.stack([u] * 4)), (UPDATES,),
        lambda: np.stack([added((50, 96), ROWS, UPDATES)] * 4)),
    "gather: windows": (
        lambda x: ferrax.vmap(lambda row: lax.dynamic_slice(x, (row, 0), (3, 96)))(jnp.asarray(ROWS)), (UPDATES,),
        lambda: along_rows(UPDATES, ROWS)),
    "product: pieces": (
        lambda a, b: a @ b, (A[:, :500] * np.complex64(1j), B[:500].astype(np.complex64)),
        lambda: A[:, :500] * 1j @ B[:500].astype(complex)),
    "product: register blocks of all threads": (
        lambda a, b: a @ b, (A[:, :500], B[:500]), lambda: A[:, :500] @ B[:500].astype(float)),
    "product: right operand packed for all rows": (
        lambda a, b: jnp.maximum(a @ b, 0.0) * 2, (B[:800].reshape(24_000, 20), A[:20, :60]),
        lambda: np.maximum(B[:800].reshape(24_000, 20) @ A[:20, :60].astype(float), 0) * 2),
    "product: a matrix and a vector": (
        lambda a, b: jnp.concatenate([a @ b, b[:70] @ a[:70], a.T @ a[:, 3], a[5] @ a.T]), (A[:, :500], B[:500, 0]),
        lambda: np.concatenate([A[:, :500] @ B[:500, 0].astype(float), B[:70, 0].astype(float) @ A[:70, :500],
                                A[:, :500].T @ A[:, 3].astype(float), A[5, :500].astype(float) @ A[:, :500].T])),
    "product: panels": (lambda a, b: a @ b, (A, B), lambda: A @ B.astype(float)),
    "product: pieces of panels": (lambda a, b: a @ b, (A, B), lambda: A @ B.astype(float)),
    "product: subtrees of panels": (lambda a, b: a @ b, (DEEP, WIDE), lambda: DEEP @ WIDE.astype(float)),
    "product: groups of small ones": (
        lambda a: a @ a, (A[:, :400].reshape(600, 20, 20),), lambda: np.matmul(*[A[:, :400].reshape(600, 20, 20)] * 2)),
    "convolution: terms in parts": (
        lambda x, f: lax.conv(x, f, (1, 1), "VALID"), (IMAGE, FILTER),
        lambda: np.einsum("nchw,ochw->no", IMAGE, FILTER, dtype=float)[:, :, None, None]),
    "convolution: weights packed once": (
        lambda x, f: lax.conv(x, f, (1, 1), "VALID"), (IMAGE, SMALL_FILTER),
        lambda: correlated(IMAGE, SMALL_FILTER, 1, 1)),
    "convolution: along nothing": (
        lambda x, f: lax.conv_general_dilated(x, f, (2, 2), "VALID", rhs_dilation=(2, 2)), (IMAGE, SMALL_FILTER[:1]),
        lambda: correlated(IMAGE, SMALL_FILTER[:1], 2, 2)),
    "sort: a line on all threads": (jnp.sort, (SHORT,), lambda: np.sort(SHORT)),
    "top k: pieces of a line": (lambda x: lax.top_k(x, 5)[0], (SHORT,), lambda: np.sort(SHORT)[: -6 : -1]),
    "sum: segments": (jnp.sum, (LONG,), lambda: LONG.sum(dtype=float)),
    "reduction: segments": (jnp.max, (LONG,), lambda: LONG.max()),
    "threads": (jnp.exp, (LONG,), lambda: np.exp(LONG)),
    "fft: of a copy": (
        lambda x: jnp.fft.irfft2(x), (A[:64, :33].astype(np.complex64),), lambda: np.fft.irfft2(A[:64, :33])),
}  # fmt: skip


@pytest.mark.parametrize("path", PROGRAMS)
def test_large_arrays_take_it(path):
    function, operands, expected = PROGRAMS[path]
    ferrax.clear_caches()
    operands = [jnp.asarray(operand) for operand in operands]
    before = lib.stats()[path]
    result = np.asarray(ferrax.jit(function)(*operands))
    taken = lib.stats()[path] > before
    # What only threads share stays whole where there is one.
    alone = ferrax.config.jax_num_threads == 1 and path not in ("sum: segments", "reduction: segments")
    # Where threads share two elements no product is too small for a thread.
    never = os.environ.get("FERRAX_TUNING") == "tiny" and path == "product: groups of small ones"
    assert taken or alone or never
    expected = np.asarray(expected())
    np.testing.assert_allclose(result, expected, rtol=2e-5, atol=2e-5 * np.abs(expected).max())


def test_a_donated_operand_and_a_loop_update_in_place():
    before = lib.stats()
    step = ferrax.jit(lambda x: x * 2 + 1, donate_argnums=0)
    assert step(jnp.ones(5000)).sum() == 15_000
    body = lambda i, x: lax.dynamic_update_slice(x, lax.dynamic_slice(x, (i,), (2000,)) + 1, (i + 1,))  # noqa: E731
    assert ferrax.jit(lambda x: lax.fori_loop(0, 9, body, x))(jnp.zeros(5000))[9] == 9  # too long for machine code
    for path in ("donated operand", "dynamic update: in place", "carry: in place"):
        assert lib.stats()[path] > before[path], path


def test_products_leave_a_loop():
    """Before it, of what is the same at every step; after it, as sums over steps and of what only outputs depend on."""
    before = lib.stats()
    xs, w, out = (jnp.asarray(a) for a in (floats(40, 1, 8), floats(8, 8), floats(8, 3)))

    def loss(w, out):
        def step(h, x):
            h = jnp.tanh(x @ w + 0.5 * h)
            return h, h @ out

        return (lax.scan(step, jnp.zeros((1, 8)), xs)[1] ** 2).sum()

    found = ferrax.jit(ferrax.grad(loss, (0, 1)))(w, out)
    for path in ("fission: before the loop", "fission: sums", "fission: after the loop"):
        assert lib.stats()[path] > before[path], path
    for k, wanted in enumerate(found):  # differences in double precision
        with ferrax.enable_x64(True):
            along = jnp.asarray(R.standard_normal(wanted.shape))

            def moved(t, along=along, k=k):
                at = [a.astype(float) for a in (w, out)]
                at[k] = at[k] + t * along
                h, total = np.zeros((1, 8)), 0.0
                for x in np.asarray(xs, float):
                    h = np.tanh(x @ np.asarray(at[0]) + 0.5 * h)
                    total += ((h @ np.asarray(at[1])) ** 2).sum()
                return total

            slope = (moved(1e-5) - moved(-1e-5)) / 2e-5
            np.testing.assert_allclose((np.asarray(wanted, float) * np.asarray(along)).sum(), slope, rtol=1e-3)
