"""Layouts of arrays over several devices: each part lies as the layout says."""

import numpy as np
import pytest
from oracle import FERRAX, module, same
from test_layouts import auto
from test_mesh import outcomes

import ferrax

X = np.arange(32, dtype=np.float32).reshape(4, 8)
KINDS = ["Auto", "Explicit"]


def places(S, kind="Auto"):
    """Functions that make shardings and, of these, formats by columns, on a mesh of two times two devices."""
    layout, sharding = module(S, "experimental.layout"), S.jax.sharding
    mesh = S.jax.make_mesh((2, 2), ("x", "y"), axis_types=(getattr(sharding.AxisType, kind),) * 2)

    def on(*spec):
        return sharding.NamedSharding(mesh, S.jax.P(*spec))

    return on, lambda *spec: layout.Format(layout.Layout((1, 0)), on(*spec))


def order(x):
    return x.format.layout.major_to_minor


def spec(x):
    entries = tuple(x.sharding.spec)
    return str(entries + (None,) * (x.ndim - len(entries)))


def parts(x):
    return [
        (str(s.device), s.index, np.asarray(s.data), order(s.data), np.asarray(s.data).strides)
        for s in x.addressable_shards
    ]


@pytest.mark.parametrize("kind", KINDS)
@same
def test_parts_lie_as_the_array(S, kind):
    on, columns = places(S, kind)
    found = []
    for entries in (("x", "y"), ("x",), (None, "y"), (), (("x", "y"),)):
        x = S.jax.device_put(X, columns(*entries))
        moved = S.jax.device_put(x, on("y"))
        rows = S.jax.device_put(x, type(x.format)(None, on("x")))
        found.append((x, parts(x), spec(x), str(S.jax.typeof(x).sharding.spec), x.is_fully_replicated, order(x)))
        found.append((moved, spec(moved), rows, order(rows), spec(x + 1), order(x + 1), x.on_device_size_in_bytes()))
    return found


@pytest.mark.parametrize("kind", KINDS)
@same
def test_jit(S, kind):
    on, columns = places(S, kind)
    jax = S.jax
    x, rows = jax.device_put(X, columns("x", "y")), jax.device_put(X, on("x", "y"))
    step = jax.jit(lambda a: a * 2, in_shardings=columns("x", "y"), out_shardings=columns("x", "y"))
    turned = jax.jit(lambda a: a.T, out_shardings=auto(S))
    results = [step(x), step(X), turned(rows), jax.jit(lambda a: a + 1)(x), jax.jit(lambda a: a.T)(x)]
    compiled = jax.jit(lambda a: a.T, in_shardings=auto(S), out_shardings=auto(S)).lower(
        jax.ShapeDtypeStruct(X.shape, X.dtype, sharding=on("x", "y"))
    ).compile()  # fmt: skip
    where = jax.tree.leaves((compiled.input_formats, compiled.output_formats))
    there = compiled(jax.device_put(X, where[0]))
    return results, [(order(a), spec(a)) for a in results], [
        (f.layout.major_to_minor, str(f.sharding.spec)) for f in where
    ], there, there.format == where[1], parts(step(x)), outcomes(S, lambda: step(rows), lambda: compiled(x))


@same
def test_numpy_arrays_under_a_mesh(S):
    """They were put nowhere, so that they go where the function says; others are on the mesh of `set_mesh`."""
    on, columns = places(S)
    step = S.jax.jit(lambda a: a * 2, in_shardings=columns("x"), out_shardings=columns("x"))
    with S.jax.set_mesh(on().mesh):
        result = step(X)
        return result, order(result), spec(result), outcomes(S, lambda: step(S.jnp.ones((4, 8))))


@same
def test_donation(S):
    _, columns = places(S)
    x = S.jax.device_put(X, columns("x", "y"))
    f = S.jax.jit(lambda a: a + 1, donate_argnums=0, in_shardings=x.format, out_shardings=x.format)
    return f(x), x.is_deleted()


@same
def test_arrays_of_parts(S):
    on, columns = places(S)
    x = S.jax.device_put(X, columns("x", "y"))
    made = S.jax.make_array_from_callback((4, 8), columns("x", "y"), lambda index: X[index])
    data = [s.data for s in x.addressable_shards]
    joined = S.jax.make_array_from_single_device_arrays((4, 8), on("x", "y"), data)
    of_rows = [S.jax.device_put(np.asarray(part), s.device) for part, s in zip(data, x.addressable_shards)]
    rows = S.jax.make_array_from_single_device_arrays((4, 8), on("x", "y"), of_rows)
    return made, parts(made), joined, parts(joined), order(rows)


def test_arrays_keep_their_layout_where_they_are_divided_anew():
    on, columns = places(FERRAX)
    moved = ferrax.device_put(ferrax.device_put(X, columns("x", "y")), on("y"))
    assert order(moved) == (1, 0) and all(found[3:] == ((1, 0), (4, 8)) for found in parts(moved))


@same
def test_transformations(S):
    _, columns = places(S)
    jax, jnp = S.jax, S.jnp
    x = jax.device_put(X, columns("x"))
    mesh = x.sharding.mesh
    results = [
        jax.grad(lambda a: (a * a).sum())(x), jax.vmap(jnp.sin)(x), jax.jit(lambda a: a + x)(x),
        jax.shard_map(lambda a: a * 2, mesh=mesh, in_specs=jax.P("x", "y"), out_specs=jax.P("x", "y"))(x),
    ]  # fmt: skip
    return results, list(map(spec, results)), str(jax.eval_shape(lambda a: a.T, x).shape)
