"""What programs ask of the places of their values: shardings that are inspected, tiles that callbacks are given, functions of
parts that `custom_partitioning` runs."""

import numpy as np
import pytest
from oracle import module, same
from test_many_devices import mesh_of

import ferrax

X = np.arange(64, dtype=np.float32).reshape(8, 8)


def put(S, *spec):
    return S.jax.device_put(X, S.jax.NamedSharding(mesh_of(S, (4, 2), ("x", "y")), S.jax.P(*spec)))


def placed(S, x, *spec):
    return S.jax.NamedSharding(mesh_of(S, (4, 2), ("x", "y")), S.jax.P(*spec)).is_equivalent_to(x, 2)


@same
def test_shardings_of_values_within(S):
    found = []

    @S.jax.jit
    def f(x):
        S.jax.debug.inspect_array_sharding(x * 2, callback=lambda s: found.append(("twice", s)))
        turned = x.T + 1
        S.jax.debug.inspect_array_sharding(turned, callback=lambda s: found.append(("turned", s)))
        return turned.sum(0)

    for spec in (("x", "y"), ("x", "y"), (None, "x"), ()):
        f(put(S, *spec)).block_until_ready()
    S.jax.effects_barrier()
    specs = [("x", "y"), ("y", "x"), (None, "x"), ("x",), ()]
    return [(name, [placed(S, sharding, *spec) for spec in specs]) for name, sharding in sorted(found, key=lambda x: x[0])]


@same
def test_tiles_of_callbacks(S):
    """A callback that is partitioned is called by each device, with its tile."""
    found = []

    @S.jax.jit
    def f(x):
        S.jax.debug.callback(lambda tile: found.append(np.asarray(tile).tolist()), x + 1, partitioned=True)
        return x

    f(put(S, "x", "y")).block_until_ready()
    S.jax.effects_barrier()
    tiles = sorted(found)
    found.clear()
    f(put(S, "x")).block_until_ready()
    S.jax.effects_barrier()
    return tiles, sorted(found)


@same
def test_functions_of_parts(S):
    """`partition` is called with how operands are divided, and the function that it returns is given parts."""
    partitioning = module(S, "experimental.custom_partitioning")
    seen = []

    @partitioning.custom_partitioning
    def scaled(x):
        return S.jnp.sin(x) * x.shape[0]

    def partition(mesh, args, result):
        (arg,) = args
        seen.append((tuple(mesh.axis_names), arg.shape, [tuple(arg.sharding.spec), tuple(result.sharding.spec)]))
        return mesh, lambda x: S.jnp.sin(x) * x.shape[0], result.sharding, (arg.sharding,)

    scaled.def_partition(partition=partition, sharding_rule="i j -> i j")
    f = S.jax.jit(lambda x: scaled(x) + 1)
    # Of a function of parts, the number of rows is that of a part.
    results = [f(put(S, *spec)) for spec in (("x", "y"), ("x",), (None, "y"))]
    return [np.asarray(x) for x in results], [placed(S, x.sharding, "x", "y") for x in results], [
        (names, shape) for names, shape, _ in seen
    ]


def test_answers_that_do_not_fit():
    from ferrax.experimental.custom_partitioning import custom_partitioning

    mesh = ferrax.sharding.Mesh(np.array(ferrax.devices()[:2]), ("x",))
    x = ferrax.device_put(X, ferrax.NamedSharding(mesh, ferrax.P("x")))
    for answer, error in (
        (lambda mesh, args, result: (mesh, ferrax.numpy.sin, result.sharding), "must return"),
        (lambda mesh, args, result: (mesh, lambda x: x[:1], result.sharding, (args[0].sharding,)), "shape"),
    ):
        f = custom_partitioning(ferrax.numpy.sin)
        f.def_partition(partition=answer, sharding_rule="i j -> i j")
        with pytest.raises((ValueError, TypeError), match=error):
            ferrax.jit(f)(x)
