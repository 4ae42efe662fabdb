"""What batching rules of primitives are written with."""

from __future__ import annotations

from typing import Any

import numpy as np

from ferrax._src.core.primitives import (
    axis_primitive_batchers,
    fancy_primitive_batchers,
    primitive_batchers,
)
from ferrax._src.core.typing import Axis
from ferrax._src.lax import api as lax
from ferrax._src.lax.arguments import operand

__all__ = [
    "axis_primitive_batchers",
    "bdim_at_front",
    "broadcast",
    "defbroadcasting",
    "defreducer",
    "defvectorized",
    "fancy_primitive_batchers",
    "moveaxis",
    "not_mapped",
    "primitive_batchers",
]

# The batch dimension of a value that has none.
not_mapped = None


def moveaxis(x: Any, source: Axis, destination: Axis) -> Any:
    """`x` with one axis moved; `not_mapped` as source changes nothing.

    Args: x: array; source: the axis or None; destination: where it goes.

    >>> ferrax.interpreters.batching.moveaxis(jnp.zeros((2, 3)), 0, 1).shape
    (3, 2)
    """
    if source is None:
        return x
    x = operand(x, "moveaxis")
    order = [axis for axis in range(x.ndim) if axis != source % x.ndim]
    order.insert(destination % x.ndim, source % x.ndim)
    return lax.transpose(x, order)


def _no_mesh(name, mesh_axis):
    if mesh_axis is not None:
        raise NotImplementedError(f"{name}: there are no meshes of devices, got {mesh_axis=!r}")


def broadcast(x: Any, size: int, axis: Any, mesh_axis: Any = None) -> Any:
    """`x` repeated along a new axis.

    Args: x: array; size: of the new axis; axis: where it is; mesh_axis: must be None.

    >>> ferrax.interpreters.batching.broadcast(jnp.arange(2), 3, 0).shape
    (3, 2)
    """
    _no_mesh("broadcast", mesh_axis)
    shape = list(np.shape(x))
    axis = axis + len(shape) + 1 if axis < 0 else axis
    shape.insert(axis, size)
    return lax.broadcast_in_dim(x, tuple(shape), tuple(i for i in range(len(shape)) if i != axis))


def bdim_at_front(x: Any, bdim: Any, size: int, mesh_axis: Any = None) -> Any:
    """`x` with the batch axis in front; repeated where it has none.

    Args: x: array; bdim: its batch axis or None; size: of the batch; mesh_axis: must be None.

    >>> ferrax.interpreters.batching.bdim_at_front(jnp.arange(2), None, 3).shape
    (3, 2)
    """
    _no_mesh("bdim_at_front", mesh_axis)
    return broadcast(x, size, 0) if bdim is None else moveaxis(x, bdim, 0)


def defvectorized(primitive: Any) -> None:
    """Says that a primitive maps each element by itself: all batched inputs have the batch axis
    at the same place.

    >>> ferrax.interpreters.batching.defvectorized(ferrax.core.Primitive("thrice"))
    """

    def rule(args, dims, **params):
        if any(dim != dims[0] for dim in dims[1:]):
            raise ValueError(
                f"'{primitive}' is vectorized: all its inputs must be batched at one place, got "
                f"the places {dims}; use defbroadcasting"
            )
        return primitive.bind(*args, **params), dims[0]

    primitive_batchers[primitive] = rule


def defbroadcasting(primitive: Any) -> None:
    """Says that a primitive of several inputs maps each element by itself and broadcasts axes of
    size 1.

    >>> ferrax.interpreters.batching.defbroadcasting(ferrax.core.Primitive("times"))
    """

    def rule(args, dims, **params):
        layouts = {(np.shape(x), dim) for x, dim in zip(args, dims) if np.ndim(x)}
        if len(layouts) > 1:
            args, place = _aligned(args, dims), 0
        else:
            ((_, place),) = layouts
        out = primitive.bind(*args, **params)
        places = [place] * len(out) if primitive.multiple_results else place
        return out, places

    primitive_batchers[primitive] = rule


def _aligned(args, dims):
    """The batch axes in front, of size 1 where there is none, and one rank for all but scalars that are the same
    for all elements."""
    in_front = [
        bdim_at_front(x, dim, 1) if np.ndim(x) else x for x, dim in zip(args, dims)
    ]
    rank = max(map(np.ndim, in_front))

    def widened(x):
        missing = range(np.ndim(x), rank)
        return lax.expand_dims(x, tuple(missing)) if missing else x

    return [x if dim is None else widened(x) for x, dim in zip(in_front, dims)]


def defreducer(primitive: Any) -> None:
    """Says that a primitive of one input reduces over its parameter `axes`.

    >>> ferrax.interpreters.batching.defreducer(ferrax.core.Primitive("total"))
    """

    def rule(args, dims, *, axes, **params):
        (operand,), (dim,) = args, dims
        axes = tuple(axis + (axis >= dim) for axis in axes)
        kept = [axis for axis in range(np.ndim(operand)) if axis not in axes]
        return primitive.bind(operand, axes=axes, **params), kept.index(dim)

    primitive_batchers[primitive] = rule
