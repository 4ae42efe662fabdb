"""Nodes of pytrees that look at their leaves: arrays, tracers and plain objects are children, all else is their data."""

import numpy as np
import pytest
from oracle import same

SHAPE = (4, 2)


def model(S):
    """A value of such a class: an array and a number, which is part of the structure."""
    tree = S.jax.tree_util

    def is_array(x):
        return type(x) is object or isinstance(x, (S.jax.core.Tracer, S.jax.Array, np.ndarray))

    class Model:
        def __init__(self, **fields):
            self.__dict__.update(fields)

        def tree_flatten(self):
            leaves, structure = tree.tree_flatten(self.__dict__)
            flags = tuple(map(is_array, leaves))
            children = [x if flag else None for x, flag in zip(leaves, flags)]
            return children, (tuple(None if flag else x for x, flag in zip(leaves, flags)), flags, structure)

        @classmethod
        def tree_unflatten(cls, data, children):
            others, flags, structure = data
            found = object.__new__(cls)
            leaves = [x if flag else y for x, y, flag in zip(children, others, flags)]
            found.__dict__ = tree.tree_unflatten(structure, leaves)
            return found

    tree.register_pytree_node_class(Model)
    return Model(a=S.jnp.arange(8.0).reshape(SHAPE), n=3)


def twice(x):
    return type(x)(a=x.a * 2, n=x.n)


def sharding(S):
    mesh = S.jax.make_mesh((4,), ("x",), axis_types=(S.jax.sharding.AxisType.Auto,))
    return S.jax.NamedSharding(mesh, S.jax.P("x"))


def mapped(S, f):
    where = sharding(S)
    return S.jax.shard_map(f, mesh=where.mesh, in_specs=where.spec, out_specs=where.spec)


CALLS = {
    "jit": lambda S, x: S.jax.jit(twice, in_shardings=sharding(S), out_shardings=sharding(S))(x),
    "vmap": lambda S, x: S.jax.vmap(twice)(x),
    "pmap": lambda S, x: S.jax.pmap(twice)(x),
    "shard_map": lambda S, x: mapped(S, twice)(x),
    "jit_of_shard_map": lambda S, x: S.jax.jit(mapped(S, twice))(x),
    "jvp_in_vmap": lambda S, x: S.jax.vmap(lambda t: S.jax.jvp(twice, (t,), (t,))[1])(x),
    "scan": lambda S, x: S.jax.lax.scan(lambda c, y: (twice(c), y), x, x)[0],
    "vjp": lambda S, x: S.jax.vjp(twice, x)[1](x)[0],
}


@pytest.mark.parametrize("name", CALLS)
def test_functions_that_return_one(name):
    @same
    def case(S):
        out = CALLS[name](S, model(S))
        return np.asarray(out.a), out.n

    case()
