"""Windows of arrays in parts that are written: the array is not exchanged, and results have the bits of whole arrays."""

import numpy as np
import pytest
from test_partition import compare, mesh_of, on_parts

import ferrax
import ferrax.numpy as jnp
from ferrax import P, lax

X = np.random.default_rng(7).standard_normal((32, 8)).astype(np.float32)
ROW = 8 * 4
SPECS = [P("x"), P(("x", "y")), P("y", "x"), P("x", "y"), P(None, "y")]

# Without an exchange where the axis is cut in four.
FREE = {
    "a row": lambda x: x.at[0].set(1.5),
    "the last row": lambda x: x.at[-1].set(jnp.arange(8.0)),
    "both ends": lambda x: x.at[0].set(x.sum()).at[-1].add(2.0),
    "a row that others say": lambda x: x.at[x.astype(int)[0, 0] + 5].multiply(3.0),
    "an element": lambda x: x.at[9, 3].max(7.0),
    "a block": lambda x: x.at[3:17, 2:5].min(jnp.ones((14, 3))),
    "rows": lambda x: x.at[5:11].subtract(0.25),
    "inner points": lambda x: x.at[1:-1, 1:-1].set(0.0),
    "a slice": lambda x: lax.dynamic_update_slice(x, jnp.full((5, 8), 2.0), (jnp.int8(29), jnp.int8(-3))),
    "outside": lambda x: x.at[jnp.int32(40)].set(1.0),
    "outside, moved in": lambda x: x.at[jnp.int32(40)].add(1.0, mode="clip"),
    "partly outside": lambda x: lax.scatter(
        x, jnp.array([30]), jnp.ones((4, 8)),
        lax.ScatterDimensionNumbers(update_window_dims=(0, 1), inserted_window_dims=(), scatter_dims_to_operand_dims=(0,)),
    ),
    "in a loop": lambda x: lax.fori_loop(0, 3, lambda i, x: x.at[i * 9].set(jnp.sin(x[0, 0]) * i), x),
}  # fmt: skip


@pytest.mark.parametrize("name", FREE)
@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_windows_are_written_where_they_are(name, spec):
    fun = FREE[name]
    found, exchanges = on_parts(fun, (X,), (spec,), mesh_of((4, 2)))
    compare(found, ferrax.tree.leaves(ferrax.jit(fun)(X)), exchanges, f"{name}, {spec}")
    assert not any("scatter" in e.needed_by or "update" in e.needed_by for e in exchanges), list(map(str, exchanges))


@pytest.mark.parametrize("dtype", ["bool", "uint8", "bfloat16", "float16", "complex64", "int32"])
def test_windows_of_every_kind(dtype):
    x = jnp.asarray(X > 0, dtype)
    ways = ("set", "max", "min") if dtype == "bool" else ("set", "add", "multiply", "max", "min")
    fun = lambda x: [getattr(x.at[4:9], way)(x[20:25]) for way in ways if (dtype, way[0]) != ("complex64", "m")]  # noqa: E731
    found, exchanges = on_parts(fun, (x,), (P("x"),), mesh_of((4,), ("x",)))
    compare(found, ferrax.jit(fun)(x), exchanges, dtype)


def test_what_is_written_is_exchanged_and_not_the_array():
    def step(x):
        return x.at[1:-1].set(x[2:] + x[:-2])

    found, exchanges = on_parts(step, (X,), (P("x"),), mesh_of((4,), ("x",)))
    compare(found, [ferrax.jit(step)(X)], exchanges, "a stencil")
    assert [(e.collective, e.bytes) for e in exchanges if e.collective == "all_gather"] == [("all_gather", 8 * ROW)]
    assert sum(e.bytes for e in exchanges if e.collective == "ppermute") <= 3 * ROW


def test_derivatives_of_what_is_written():
    def loss(x, row):
        return (jnp.sin(x.at[3].set(row).at[-1].add(row)) * X).sum()

    slopes = ferrax.grad(loss, (0, 1))
    found, exchanges = on_parts(slopes, (X, X[0]), (P("x"), P()), mesh_of((4,), ("x",)))
    for ours, wanted in zip(found, ferrax.jit(slopes)(X, X[0])):
        np.testing.assert_allclose(ours, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("seed", range(20))
def test_windows_at_random(seed):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((12, 6)).astype(np.float32)
    sizes = [int(rng.integers(1, size + 1)) for size in x.shape]
    starts = [int(rng.integers(-3, size + 2)) for size in x.shape]
    u = rng.standard_normal(sizes).astype(np.float32)
    numbers = lax.ScatterDimensionNumbers(update_window_dims=(0, 1), inserted_window_dims=(), scatter_dims_to_operand_dims=(0, 1))

    def fun(x, u, at):
        return [
            lax.dynamic_update_slice(x, u, at), lax.scatter(x, at, u, numbers, mode="clip"), lax.scatter_add(x, at, u, numbers),
            lax.scatter_mul(x, at, u, numbers, mode="promise_in_bounds" if min(starts) >= 0 and all(
                start + size <= n for start, size, n in zip(starts, sizes, x.shape)) else "drop"),
        ]  # fmt: skip

    at = jnp.asarray(starts, rng.choice(["int32", "int8"]))
    for spec in (P("x"), P("y", "x"), P("x", "y")):
        over = [P(*[name if u.shape[axis] % {"x": 2, "y": 3}.get(name, 1) == 0 else None for axis, name in enumerate(spec)]), P()]
        found, exchanges = on_parts(fun, (x, u, at), (spec, *over), mesh_of((2, 3)))
        compare(found, ferrax.jit(fun)(x, u, at), exchanges, f"{spec} of {sizes} at {starts}")
