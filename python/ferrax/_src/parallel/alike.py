"""`shard_alike`: values that are divided over the devices of a mesh in the same way.

It is the identity of two arrays as one equation; where devices are, propagation gives both results the sharding that
the two have together, as it does for the operands of an operation element by element. Cost: none on one device.
"""

from __future__ import annotations

from typing import Any

from ferrax._src import core
from ferrax._src.core.primitives import axis_primitive_batchers
from ferrax._src.lax.shape import broadcast
from ferrax._src.transforms.batching_rules import moveaxis
from ferrax._src.transforms.composites import composite
from ferrax._src.transforms.jit import jit
from ferrax._src.tree import tree_util

__all__ = ["shard_alike", "shard_alike_p"]

shard_alike_p = composite("shard_alike", lambda x, y: [x, y], multiple_results=True)


def _batch(size, axis_name, trace_type, args, dims, /):
    """What has no batch gets one: both are divided over the same axes, that of the batch too."""

    def first(x, dim):
        return broadcast(x, (size,)) if dim is None else moveaxis(x, dim, 0)

    return shard_alike_p.bind(*map(first, args, dims)), [0, 0]


axis_primitive_batchers[shard_alike_p] = _batch


# Of concrete arrays, too, it is a program: only there is asked how values are divided.
_at_once = jit(shard_alike_p.bind)


def _pair(x, y):
    traced = isinstance(x, core.Tracer) or isinstance(y, core.Tracer)
    return shard_alike_p.bind(x, y) if traced else _at_once(x, y)


def shard_alike(x: Any, y: Any) -> tuple[Any, Any]:
    """The pytrees `x` and `y` of arrays, divided over devices alike.

    Args: x, y: trees of the same structure, with arrays of the same shapes; dtypes may differ.

    Errors: ValueError for other structures or shapes.

    >>> from ferrax.experimental.shard_alike import shard_alike
    >>> shard_alike(jnp.arange(2), jnp.ones(2))
    (Array([0, 1], dtype=int32), Array([1., 1.], dtype=float32))
    """
    of_x, tree = tree_util.tree_flatten(x)
    of_y, other = tree_util.tree_flatten(y)
    if tree != other:
        raise ValueError(f"shard_alike: x and y must have one structure, got {tree} and {other}")
    for one, two in zip(of_x, of_y):
        shapes = core.typeof(one).shape, core.typeof(two).shape
        if shapes[0] != shapes[1]:
            raise ValueError(f"shard_alike: leaves of x and y must have one shape, got {shapes[0]} and {shapes[1]}")
    pairs = [_pair(one, two) for one, two in zip(of_x, of_y)]
    return tree.unflatten([one for one, _ in pairs]), tree.unflatten([two for _, two in pairs])
