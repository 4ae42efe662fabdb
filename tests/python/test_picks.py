"""Elements at computed places, read where they are computed with: chains, reductions and derivatives, against JAX."""

import itertools

import numpy as np
import pytest
from oracle import compiled, same

import ferrax
from ferrax import numpy as jnp

DTYPES = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64")
MODES = ("clip", "fill", "wrap", None)
TABLE = np.random.default_rng(0).standard_normal((7, 5)).astype(np.float32)


def places(S, dtype):
    """Within and beyond 7 rows; negative ones where there are."""
    numbers = np.array([3, 0, 6, 7, 120, -1, -7, -8, 2])
    if dtype.startswith("u"):
        numbers = abs(numbers)
    return S.jnp.asarray(numbers.astype(dtype))


@pytest.mark.parametrize("dtype, mode", list(itertools.product(DTYPES, MODES)))
@same
def test_rows_in_chains(S, dtype, mode):
    i = places(S, dtype)

    def run(x, i):
        rows = S.jnp.take(x, i, axis=0, mode=mode)
        columns = S.jnp.take(x, i % 5, axis=1, mode=mode)
        return rows * 2 + 1, rows.sum(), S.jnp.exp(columns).max(1), -rows.T

    return S.jax.jit(run)(S.jnp.asarray(TABLE), i)


@pytest.mark.parametrize("dtype, mode", list(itertools.product(DTYPES, ("clip", "fill", None))))
@same
def test_places_of_their_own(S, dtype, mode):
    i = places(S, dtype)
    i = S.jnp.stack([i, i[::-1]] * 3 + [i])

    def run(x, i):
        taken = S.jnp.take_along_axis(x.T[:, :7].repeat(2, 0)[:7], i, axis=1, mode=mode)
        return taken * taken, taken.sum(0)

    return S.jax.jit(run)(S.jnp.asarray(TABLE), i)


@pytest.mark.parametrize(
    "dtype", ("float16", "bfloat16", "float32", "complex64", "bool", "int8", "int4", "uint32", "float8_e4m3fn")
)
@pytest.mark.parametrize("mode", ("clip", "fill", "promise_in_bounds"))
@same
def test_elements_of_any_dtype(S, dtype, mode):
    x = S.jnp.asarray(np.arange(35).reshape(7, 5) % 7).astype(dtype)
    i = places(S, "int32") % (7 if mode == "promise_in_bounds" else 100)

    def run(x, i):
        one = x.at[i].get(mode=mode)
        two = x.at[i, i % 5].get(mode=mode)
        chosen = S.jnp.where(i[:, None] > 2, one, one[::-1])
        return chosen, S.jnp.concatenate([two, two]), (two == two[0]).sum()

    return S.jax.jit(run)(x, i)


@pytest.mark.parametrize("mode", ("clip", "fill", None))
@same
def test_fill_values(S, mode):
    i = places(S, "int32")
    x = S.jnp.asarray(TABLE)
    run = S.jax.jit(lambda x, i: (x.at[i].get(mode=mode, fill_value=9.0) + 1, x.at[i, 2].get(mode=mode) * 2))
    return run(x, i)


INDICES = {
    "one": lambda S, i: i,
    "two": lambda S, i: (i, i % 5),
    "two, broadcast": lambda S, i: (i[:, None], S.jnp.arange(3) - 1),
    "first and last": lambda S, i: (i, slice(None, None, -2)),
    "last": lambda S, i: (slice(None), i),
    "of two axes": lambda S, i: i.reshape(3, 3),
    "scalar": lambda S, i: i[1],
    "scalar, beyond": lambda S, i: i[4],
    "scalar and slice": lambda S, i: (i[0], slice(1, 4)),
    "none": lambda S, i: i[:0],
    "computed": lambda S, i: (i * 3 - 4) % 11,
    "with an axis": lambda S, i: (None, i, 1),
}


@pytest.mark.parametrize("name", INDICES)
@same
def test_indices_in_chains(S, name):
    x, i = S.jnp.asarray(TABLE), places(S, "int32")

    def run(x, i):
        y = x[INDICES[name](S, i)]
        return S.jnp.sin(y) * S.jnp.cos(y), y.sum(), y + 1

    return S.jax.jit(run)(x, i)


@pytest.mark.parametrize("name", INDICES)
@same
def test_lanes(S, name):
    x = S.jnp.asarray(np.stack([TABLE, -TABLE, TABLE * 2]))
    i = S.jnp.stack([places(S, "int32"), places(S, "int32")[::-1], places(S, "int32") + 1])

    def run(x, i):
        return 2 * x[INDICES[name](S, i)]

    return [S.jax.jit(S.jax.vmap(run, axes))(*args) for axes, args in (
        ((0, 0), (x, i)), ((0, None), (x, i[0])), ((None, 0), (x[0], i))
    )]  # fmt: skip


@pytest.mark.parametrize("name", INDICES)
@same
def test_derivatives(S, name):
    x, i = S.jnp.asarray(TABLE), places(S, "int32")

    def loss(x):
        y = x[INDICES[name](S, i)]
        return S.jnp.where(S.jnp.isnan(y), 0, S.jnp.sin(y) * y).sum()

    def slope(x):
        return (S.jax.grad(loss)(x) ** 2).sum()

    return compiled(S, S.jax.grad(loss), x), compiled(S, S.jax.grad(slope), x)


@same
def test_gradients_of_segments(S):
    x = S.jnp.asarray(TABLE[:, 0])
    i = S.jnp.asarray(np.array([0, 2, 2, 1, 9, -1, 0], np.int32))
    w = S.jnp.arange(4.0)

    def loss(x):
        return (S.jax.ops.segment_sum(x * x, i, 4) * w).sum()

    return S.jax.jit(S.jax.grad(loss))(x), S.jax.jit(S.jax.grad(lambda x: S.jax.grad(loss)(x).sum()))(x)


@same
def test_arrays_that_are_updated_behind(S):
    """What was read before an update is what it was then."""

    def run(x, i):
        before = x[i]
        y = x.at[i].set(-1.0)
        z = S.lax.dynamic_update_slice(y, S.jnp.zeros((2, 5)), (i[0], 0))
        return before * 2, y[i] * 3, z[i] + 1, S.lax.dynamic_slice(y, (i[1], 1), (2, 3)) * 2, z

    return S.jax.jit(run)(S.jnp.asarray(TABLE), S.jnp.asarray(np.array([3, 0, 6, -1], np.int32)))


@same
def test_in_loops(S):
    """Reads at the counter of a loop, and at places that it carries."""

    def run(x):
        def step(i, carry):
            total, at, memory = carry
            row = S.lax.dynamic_index_in_dim(x, i, keepdims=False)
            total = total + row * x[at, 0] + memory[at]
            memory = memory.at[i].add(total.sum())
            return total, (at * 3 + i) % 9, memory

        return S.lax.fori_loop(0, 7, step, (S.jnp.zeros(5), 1, S.jnp.arange(7.0)))

    return S.jax.jit(run)(S.jnp.asarray(TABLE))


@pytest.mark.parametrize("rows, width", [(3000, 1), (3000, 7), (700, 64), (40, 700), (3, 5000)])
@pytest.mark.parametrize("mode", ("clip", "fill"))
@same
def test_large_tables(S, rows, width, mode):
    """Blocks of all shapes, on several threads."""
    random = np.random.default_rng(1)
    x = S.jnp.asarray(random.standard_normal((rows, width)).astype(np.float32))
    i = S.jnp.asarray(random.integers(-5, rows + 5, 4 * rows).astype(np.int32))

    def run(x, i):
        y = x.at[i].get(mode=mode)
        return y * 2 - 1, x.at[i, i % width].get(mode=mode) * 0.5, S.jnp.isnan(y).sum(), S.jnp.nanmax(y, 1)

    return S.jax.jit(run)(x, i)


def test_a_key_of_each_row():
    """Keys are gathered by the library, in shares of threads that begin within a line."""
    rows = 40_000
    keys = ferrax.random.split(ferrax.random.key(3), 3 * rows).reshape(rows, 3)
    i = np.random.default_rng(5).integers(0, 3, rows)
    taken = ferrax.vmap(lambda row, i: row[i])(keys, jnp.asarray(i))
    wanted = np.asarray(ferrax.random.key_data(keys))[np.arange(rows), i]
    np.testing.assert_array_equal(np.asarray(ferrax.random.key_data(taken)), wanted)


def test_picks_of_a_row_that_a_loop_picks():
    """Two steps of indices in one kernel, which is not the first of a loop's step."""
    random = np.random.default_rng(2)
    x = random.standard_normal((6, 20)).astype(np.float32)
    rows, columns = random.integers(0, 6, 30), random.integers(0, 20, (30, 7))

    def step(c, at):
        row, column = at
        c = jnp.tanh(jnp.asarray(x)[row][column] + 0.1 * c.sum())
        return c, c

    found = ferrax.jit(lambda *at: ferrax.lax.scan(step, jnp.zeros(7), at)[1])(rows, columns)
    c = np.zeros(7)
    for row, column, got in zip(rows, columns, found):
        c = np.tanh(x[row][column] + 0.1 * c.sum())
        np.testing.assert_allclose(got, c, rtol=1e-5, atol=1e-6)
