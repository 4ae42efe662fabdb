"""Elements that are moved, padded, picked out and counted, most by the kernels that compute with them, beside NumPy.

Of what is padded the operand goes on in memory where padding begins, so that a place that is not taken as padded has
another number; and values that are read at several indices are computed at each.
"""

import numpy as np
import pytest

import ferrax
import ferrax.numpy as jnp

RNG = np.random.default_rng(11)
ROWS = RNG.integers(1, 100, (6, 8)).astype(np.float32)
SQUARE = RNG.integers(1, 100, (9, 9)).astype(np.float32)
LONG = RNG.integers(1, 100, 3000).astype(np.float32)
WIDE = RNG.integers(1, 100, (5, 3000)).astype(np.float32)
NUMBER = np.float32(3)


def behind(n, x, more, fill=0):
    """More columns behind."""
    return n.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, more)], constant_values=fill)


def only(n, x, first, end):
    """Columns from the first to the end; zeros elsewhere."""
    return n.pad(x[..., first:end], [(0, 0)] * (x.ndim - 1) + [(first, x.shape[-1] - end)])


CASES = {
    "first columns of rows": (lambda n, x: only(n, x, 0, 5) * 2 + 1, ROWS),
    "last columns of rows": (lambda n, x: only(n, x, 3, 8) * 2 + 1, ROWS),
    "columns between": (lambda n, x: only(n, x, 2, 6) * 2 + 1, ROWS),
    "first rows": (lambda n, x: n.pad(x[:4], ((0, 2), (0, 0))) * 2 + 1, ROWS),
    "first columns, summed": (lambda n, x: only(n, x * x, 0, 5).sum(0), ROWS),
    "one number, padded": (lambda n, x: behind(n, n.broadcast_to(x, (4, 5)), 3) * 2 + 1, NUMBER),
    "a row, padded and repeated": (lambda n, x: n.broadcast_to(behind(n, x[0], 3), (4, 11)) * 2, ROWS),
    "a long line": (lambda n, x: behind(n, x, 700, 7) * 2, LONG),
    "a long line, in front too": (lambda n, x: n.pad(x, (500, 1700), constant_values=7) * 2, LONG),
    "a part of a long line": (lambda n, x: only(n, x, 0, 2100) + 1, LONG),
    "long lines": (lambda n, x: only(n, x, 0, 2100) + x, WIDE),
    "long lines, added up": (lambda n, x: (only(n, x, 0, 2100) + x).max(1), WIDE),
    "the row behind": (lambda n, x: n.pad(x, ((1, 2), (0, 0)), constant_values=7)[7] * 2, ROWS),
    "the last row": (lambda n, x: n.pad(x, ((1, 2), (0, 0)), constant_values=7)[6] * 2, ROWS),
    "the row in front": (lambda n, x: n.pad(x, ((1, 2), (0, 0)), constant_values=7)[0] * 2, ROWS),
    "the column behind": (lambda n, x: behind(n, x, 2, 7)[:, 8] * 2, ROWS),
    "the column behind a part": (lambda n, x: behind(n, x[:, :5], 2, 7)[:, 5] * 2, ROWS),
    "the last column": (lambda n, x: behind(n, x, 2, 7)[:, 7] * 2, ROWS),
    "counted along columns": (lambda n, x: x * n.arange(8, dtype=x.dtype), ROWS),
    "counted along rows": (lambda n, x: x * n.arange(6, dtype=x.dtype)[:, None], ROWS),
    "masked by columns": (lambda n, x: n.where(n.arange(8) < 5, x, -x), ROWS),
    "above a diagonal": (lambda n, x: n.triu(x, 2) * 2, ROWS),
    "both ways": (lambda n, x: (y := x * 3 + 1) - 2 * y[::-1], ROWS),
    "both ways along rows": (lambda n, x: (y := x * 3 + 1) - 2 * y[:, ::-1], ROWS),
    "beside its neighbour": (lambda n, x: (y := x * x)[:, 1:] - y[:, :-1], ROWS),
    "beside its mirror image": (lambda n, x: (y := x * x - x) - 2 * y.T, SQUARE),
    "less the first": (lambda n, x: (y := x * x) - y[:1] - y[:, :1], ROWS),
    "both ways, kept and added up": (lambda n, x: [y := x * 3 + 1, (y - y[:, ::-1] * 2).sum(1), y.T * 2], ROWS),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_moves_in_kernels(name):
    function, x = CASES[name]
    expected = function(np, x)
    for run in (ferrax.jit(lambda x: function(jnp, x)), lambda x: function(jnp, x)):
        got = run(jnp.asarray(x))
        for a, b in zip(*([r] if not isinstance(r, list) else r for r in (got, expected)), strict=True):
            np.testing.assert_array_equal(np.asarray(a), b)


@pytest.mark.parametrize("shape, axis, count", [((300, 203), 0, 401), ((7, 90, 11), 1, 600), ((50_000,), 0, 70_000)])
@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.complex64])
def test_many_elements_along_an_axis(shape, axis, count, dtype):
    """What threads share of them begins anywhere in a line."""
    rng = np.random.default_rng(3)
    picked = (*shape[:axis], count, *shape[axis + 1 :])
    x, indices = rng.integers(0, 100, shape).astype(dtype), rng.integers(0, shape[axis], picked)
    got = jnp.take_along_axis(jnp.asarray(x), jnp.asarray(indices), axis)
    np.testing.assert_array_equal(np.asarray(got), np.take_along_axis(x, indices, axis))


@pytest.mark.parametrize("lanes", [(40_000,), (301, 149)], ids=str)
def test_a_key_of_each_of_many_rows(lanes):
    """Keys are moved by other code than numbers."""
    keys = ferrax.random.split(ferrax.random.key(0), (*lanes, 3))
    indices = np.random.default_rng(5).integers(0, 3, lanes)
    pick = lambda keys, index: keys[index]  # noqa: E731
    for _ in lanes:
        pick = ferrax.vmap(pick)
    got = ferrax.random.key_data(pick(keys, jnp.asarray(indices)))
    wanted = np.take_along_axis(np.asarray(ferrax.random.key_data(keys)), indices[..., None, None], -2)
    np.testing.assert_array_equal(np.asarray(got), wanted[..., 0, :])


@pytest.mark.parametrize("number", range(4))
def test_several_results_in_the_memory_of_one_operand(number):
    """A donated operand, in whose memory one result is computed while others need it still."""
    x, y = (RNG.standard_normal((70, 70)).astype(np.float32) for _ in range(2))
    function, expected = [
        (lambda x, y: (x * 2, x + 1), (x * 2, x + 1)),
        (lambda x, y: (x + y, jnp.maximum(x, y), x * y), (x + y, np.maximum(x, y), x * y)),
        (lambda x, y: (x * 2, jnp.concatenate([x, x + 1], 1)), (x * 2, np.concatenate([x, x + 1], 1))),
        (lambda x, y: (jnp.concatenate([x, y], 1), y - x), (np.concatenate([x, y], 1), y - x)),
    ][number]
    results = ferrax.jit(function, donate_argnums=(0,))(jnp.asarray(x), jnp.asarray(y))
    for result, wanted in zip(results, expected):
        np.testing.assert_allclose(result, wanted, rtol=1e-6)
