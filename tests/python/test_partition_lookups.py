"""Windows taken from arrays in parts: devices sum what each has of them, and results have the bits of whole arrays."""

import numpy as np
import pytest
from test_partition import compare, mesh_of, on_parts

import ferrax
import ferrax.numpy as jnp
from ferrax import P, lax

TABLE = np.random.default_rng(3).standard_normal((64, 8)).astype(np.float32)
TABLE[5] = [-0.0, 0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 1.0]
IDS = np.random.default_rng(4).integers(-3, 70, (8, 2)).astype(np.int32)
IDS[0, 0] = 5
ROW = 8 * 4

LOOKUPS = {
    "rows": lambda t, i: t[i],
    "with values for those outside": lambda t, i: jnp.take(t, i, axis=0, mode="fill", fill_value=7.0),
    "those outside are moved in": lambda t, i: jnp.take(t, i, axis=0, mode="clip"),
    "columns too": lambda t, i: t[i, i % 8],
    "one row": lambda t, i: t[i[0, 0]],
    "a slice": lambda t, i: lax.dynamic_slice(t, (i[1, 1], i[0, 1]), (7, 3)),
    "all columns": lambda t, i: lax.dynamic_slice(t, (i[1, 1], i[0, 1]), (1, 8)),
    "some at a time": lambda t, i: ferrax.vmap(lambda i: lax.dynamic_slice(t, (i, 0), (3, 8)))(i[:, 0]),
    "along an axis": lambda t, i: jnp.take_along_axis(t, jnp.tile(i[:1, :1], (1, 8)), axis=0, mode="clip"),
    "in a loop": lambda t, i: lax.fori_loop(0, 3, lambda k, x: x + t[i[k, 0]], jnp.zeros(8)),
}


@pytest.mark.parametrize("name", LOOKUPS)
@pytest.mark.parametrize("specs", [("x", P()), (("x", "y"), P()), ("x", P("y")), ("y", P("y")), (("y", "x"), P("x"))], ids=str)
@pytest.mark.parametrize("columns", [None, "y"])
def test_lookups_in_parts(name, specs, columns):
    rows, ids = specs
    if columns and columns in (*rows, *ids):
        columns = None
    fun = LOOKUPS[name]
    found, exchanges = on_parts(fun, (TABLE, IDS), (P(rows, columns), ids), mesh_of((4, 2)))
    whole = ferrax.tree.leaves(ferrax.jit(fun)(TABLE, IDS))
    compare(found, whole, exchanges, f"{name}, {specs}")
    assert not any(e.bytes > 64 * ROW // 8 for e in exchanges if e.collective == "all_gather"), list(map(str, exchanges))


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int32", "bfloat16", "float16", "float8_e4m3fn"])
def test_lookups_of_every_kind(dtype):
    table = jnp.asarray(np.nan_to_num(TABLE, posinf=3, neginf=-3)).astype(dtype)
    fun = lambda t, i: (t[i], jnp.take(t, i, axis=0, mode="fill"))  # noqa: E731
    for indices in (IDS, IDS.astype(np.int8)):
        found, exchanges = on_parts(fun, (table, indices), (P("x"), P()), mesh_of((4,), ("x",)))
        compare(found, ferrax.jit(fun)(table, indices), exchanges, dtype)
        assert {e.collective for e in exchanges} == {"psum"}


def test_what_is_exchanged_is_the_result_or_the_array():
    mesh = mesh_of((4,), ("x",))
    few = on_parts(lambda t, i: t[i], (TABLE, IDS), (P("x"), P()), mesh)[1]
    assert [(e.collective, e.bytes) for e in few] == [("psum", IDS.size * ROW)]
    many = on_parts(lambda t, i: t[i], (TABLE, np.zeros(99, np.int32)), (P("x"), P()), mesh)[1]
    assert [(e.collective, e.bytes) for e in many] == [("all_gather", 16 * ROW)]


def test_an_embedding_and_its_loss_are_learned_in_parts():
    """As over the axis of a model: neither the table nor the scores of all words are anywhere whole."""

    def step(table, ids, targets):
        def loss(table):
            scores = jnp.tanh(table[ids]) @ table.T
            picked = jnp.take_along_axis(ferrax.nn.log_softmax(scores), targets[..., None], axis=-1)
            return -picked.mean()

        value, slope = ferrax.value_and_grad(loss)(table)
        return table - 0.1 * slope, value

    table = np.sin(np.arange(64 * 8.0, dtype=np.float32)).reshape(64, 8)
    ids, targets = np.abs(IDS) % 64, np.abs(IDS[::-1]) % 64
    specs = (P("y"), P("x"), P("x"))
    found, exchanges = on_parts(step, (table, ids, targets), specs, mesh_of((2, 4)), [P("y"), P()])
    for ours, whole in zip(found, ferrax.jit(step)(table, ids, targets)):
        np.testing.assert_allclose(ours, whole, rtol=1e-5, atol=1e-6)
    assert {e.collective for e in exchanges} <= {"psum", "pmax"}, list(map(str, exchanges))
    assert max(e.bytes for e in exchanges) <= 64 // 4 * ROW
