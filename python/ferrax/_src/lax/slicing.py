"""Static and dynamic slices of ``ferrax.lax``.

Invariants: static starts and sizes reach the core as tuples of Python integers. Negative *dynamic*
starts count from the end once; the core then clamps a start so that its window fits.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from ferrax._core import Array, bind
from ferrax._src.base import dtypes
from ferrax._src.core import as_array
from ferrax._src.core.typing import ArrayLike
from ferrax._src.dims.sizes import as_dim
from ferrax._src.lax import elementwise
from ferrax._src.lax.arguments import (
    canonical_axis as _canonical_axis,
    canonical_shape as _canonical_shape,
    hashable_axis,
    int_tuple as _int_tuple,
    integers_beside,
    known_axis,
    operand as _operand,
)
from ferrax._src.lax.shape import expand_dims, squeeze

__all__ = [
    "dynamic_index_in_dim",
    "dynamic_slice",
    "dynamic_slice_in_dim",
    "dynamic_update_index_in_dim",
    "dynamic_update_slice",
    "dynamic_update_slice_in_dim",
    "index_in_dim",
    "slice",
    "slice_in_dim",
]

# A vector, or a scalar for each axis.
Starts: TypeAlias = Array | np.ndarray | Sequence[ArrayLike]


def slice(
    operand: ArrayLike, start_indices: Sequence[int], limit_indices: Sequence[int],
    strides: Sequence[int] | None = None,
) -> Array:
    """The part of an array between static bounds, in steps of ``strides``.

    Bounds are one integer per axis, ``0 <= start <= limit <= size``; strides are positive.

    Args: operand: array; start_indices, limit_indices: the bounds; strides: the steps, None for 1.
    Errors: TypeError for bounds that do not fit.

    >>> lax.slice(jnp.arange(10), (2,), (8,), (3,))
    Array([2, 5], dtype=int32)
    """
    operand = _operand(operand, "slice")
    starts, limits = _int_tuple(start_indices), _int_tuple(limit_indices)
    ndim = operand.ndim
    for what, values in (("start_indices", starts), ("limit_indices", limits)):
        if len(values) != ndim:
            raise ValueError(
                f"slice: {what} has an entry for each axis of the operand, got {values} for shape "
                f"{tuple(operand.shape)}."
            )
    if strides is not None:
        strides = _int_tuple(strides)
        if len(strides) != ndim:
            raise TypeError(
                "slice: strides needs a step for each axis of the operand, "
                f"got {strides} for shape {tuple(operand.shape)}."
            )
        if any(step <= 0 for step in strides):
            raise TypeError(f"slice: strides have to be 1 or more, got {strides}")
    for start, limit, size in zip(starts, limits, operand.shape):
        if start < 0:
            raise TypeError(
                f"slice: start_indices cannot be negative, got {starts}; count from the front."
            )
        if limit > size:
            raise TypeError(
                "slice: limit_indices cannot lie beyond the operand, got "
                f"{limits} for shape {tuple(operand.shape)}."
            )
        if limit < start:
            raise TypeError(
                "slice: limit_indices cannot lie before start_indices, got "
                f"{limits} and {starts}."
            )
    return bind(
        "slice",
        (operand,),
        {"start_indices": starts, "limit_indices": limits, "strides": strides},
    )


def slice_in_dim(
    operand: ArrayLike, start_index: int | None, limit_index: int | None, stride: int = 1,
    axis: int = 0,
) -> Array:
    """``slice`` along one axis; None and negative bounds as in Python.

    Args: operand: array; start_index, limit_index: ints or None, from the end if negative; stride:
    the step; axis: the axis. Errors: TypeError for bounds that do not fit.

    >>> lax.slice_in_dim(jnp.arange(5), -3, None)
    Array([2, 3, 4], dtype=int32)
    """
    operand = _operand(operand, "slice_in_dim")
    axis = _canonical_axis(axis, operand.ndim)
    size = operand.shape[axis]
    start = 0 if start_index is None else as_dim(start_index)
    limit = size if limit_index is None else as_dim(limit_index)
    starts, limits, strides = [0] * operand.ndim, list(operand.shape), [1] * operand.ndim
    starts[axis] = start + size if start < 0 else start
    limits[axis] = limit + size if limit < 0 else limit
    strides[axis] = operator.index(stride)
    return slice(operand, starts, limits, strides)


def index_in_dim(operand: ArrayLike, index: int, axis: int = 0, keepdims: bool = True) -> Array:
    """The slice at a static position of an axis; IndexError if out of bounds.

    Args: operand: array; index: an int, from the end if negative; axis: the axis; keepdims: whether
    it stays with size 1.

    >>> lax.index_in_dim(jnp.array([[1, 2], [3, 4]]), 1, keepdims=False)
    Array([3, 4], dtype=int32)
    """
    operand = _operand(operand, "index_in_dim")
    index, axis = as_dim(index), _canonical_axis(axis, operand.ndim)
    size = operand.shape[axis]
    if not -size <= index < size:
        raise IndexError(f"index {index} is out of bounds for axis {axis} with size {size}")
    index = index + size if index < 0 else index
    result = slice_in_dim(operand, index, index + 1, 1, axis)
    return result if keepdims else squeeze(result, (axis,))


def _wrap_dynamic(start: Array, size: int) -> Array:
    """A possibly negative dynamic start, counted from the end where negative."""
    if start.dtype.kind == "u":
        return start
    lax = elementwise
    zero, end = integers_beside(start, 0, size)
    return lax.select_n(lax.lt(start, zero), start, lax.add(start, end))


@functools.cache
def _limits(dtype) -> tuple[int, int]:
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)


def _widened(starts) -> list:
    """Starts of one narrow integer type as int32, which holds sizes of axes."""
    types = {start.dtype for start in starts if isinstance(start, (Array, np.ndarray))}
    if len(types) != 1:
        return list(starts)
    (dtype,) = types
    if dtype.itemsize >= 4 or not dtypes.issubdtype(dtype, np.integer):
        return list(starts)
    return [
        elementwise._convert_element_type(as_array(start), np.dtype(np.int32))
        if isinstance(start, (Array, np.ndarray))
        else start
        for start in starts
    ]


def _dynamic_starts(name: str, shape, start_indices, allow_negative) -> list[Array]:
    if isinstance(start_indices, (Array, np.ndarray)):
        if start_indices.ndim != 1:
            raise ValueError(
                f"slice indices have to be one vector, got shape {tuple(start_indices.shape)}"
            )
        if isinstance(start_indices, Array):
            start_indices = [
                squeeze(slice(start_indices, (i,), (i + 1,)), (0,))
                for i in range(start_indices.shape[0])
            ]
    if len(start_indices) != len(shape):
        raise ValueError(
            "slice indices: one for each axis of the operand is needed, got "
            f"{len(start_indices)} for shape {tuple(shape)}"
        )
    if isinstance(allow_negative, (bool, np.bool_)):
        allow_negative = [allow_negative] * len(shape)
    elif len(allow_negative) != len(shape):
        raise ValueError(
            "Length of allow_negative_indices must match number of operand dimensions "
            f"({len(allow_negative)} vs {tuple(shape)})"
        )
    typed = {dtypes.canonicalize_dtype(s.dtype) for s in start_indices if isinstance(s, np.generic)}
    if len(typed) > 1:
        raise TypeError(
            f"{name}: the indices need one integer dtype, got"
            f" {', '.join(sorted(map(str, typed)))}"
        )
    start_indices = _widened(start_indices)
    static_dtype = np.dtype(np.int32)
    for start in start_indices:
        if isinstance(start, Array):
            if start.dtype.kind in "iu":
                static_dtype = start.dtype
            break
    result = []
    for start, size, wrap in zip(start_indices, shape, allow_negative):
        if isinstance(start, (int, np.integer)):
            value = operator.index(start)
            value = value + size if value < 0 and wrap else value
            # The window is moved until it fits: from the end of the type's range, too.
            low, high = _limits(static_dtype)
            start = as_array(static_dtype.type(min(max(value, low), high)))
        else:
            start = _operand(start, name, 1)
            if start.ndim == 0 and wrap and start.dtype.kind in "iu":
                start = _wrap_dynamic(start, size)
        result.append(start)
    return result


def dynamic_slice(
    operand: ArrayLike, start_indices: Starts, slice_sizes: Sequence[int], *,
    allow_negative_indices: bool | Sequence[bool] = True,
) -> Array:
    """A window of static size at a dynamic position, moved so that it fits.

    Args:
      operand: the array.
      start_indices: one integer scalar per axis, or a 1-D array; negative ones count from the end.
      slice_sizes: the window's shape, at most the operand's.
      allow_negative_indices: False (or one flag per axis) says that no start is negative.

    >>> lax.dynamic_slice(jnp.arange(5), (4,), (3,))
    Array([2, 3, 4], dtype=int32)
    """
    operand = _operand(operand, "dynamic_slice")
    sizes = _canonical_shape(slice_sizes)
    shape = operand.shape
    starts = _dynamic_starts("dynamic_slice", shape, start_indices, allow_negative_indices)
    if len(sizes) != len(shape):
        raise ValueError(
            "dynamic_slice: slice_sizes has an entry for each axis of the operand, got "
            f"{sizes} for shape {tuple(shape)}."
        )
    if any(size > limit for size, limit in zip(sizes, shape)):
        raise TypeError(
            "dynamic_slice: slice_sizes cannot be larger than the operand, got "
            f"{sizes} for shape {tuple(shape)}."
        )
    if any(size < 0 for size in sizes):
        raise TypeError(
            f"dynamic_slice: slice_sizes cannot be negative, got {sizes}."
        )
    if any(start.ndim for start in starts):
        raise TypeError(
            "dynamic_slice: start_indices is a scalar for each axis, got shapes "
            f"{[tuple(s.shape) for s in starts]}"
        )
    return bind("dynamic_slice", (operand, *starts), {"slice_sizes": sizes})


def dynamic_update_slice(
    operand: ArrayLike, update: ArrayLike, start_indices: Starts, *,
    allow_negative_indices: bool | Sequence[bool] = True,
) -> Array:
    """``operand`` with a window at a dynamic position replaced by ``update`` (same dtype and rank).

    The start is moved so that the window fits.

    Args: start_indices: one integer for each axis; allow_negative_indices: whether negative ones
    count from the end. Errors: TypeError for another dtype or rank, ValueError for another number
    of indices.

    >>> lax.dynamic_update_slice(jnp.zeros(4), jnp.ones(2), (3,))
    Array([0., 0., 1., 1.], dtype=float32)
    """
    operand = _operand(operand, "dynamic_update_slice")
    update = _operand(update, "dynamic_update_slice", 1)
    starts = _dynamic_starts(
        "dynamic_update_slice", operand.shape, start_indices, allow_negative_indices
    )
    if update.ndim != operand.ndim:
        raise TypeError(
            "dynamic_update_slice: the update needs the operand's rank, got shape "
            f"{tuple(update.shape)} for {tuple(operand.shape)}."
        )
    if any(size > limit for size, limit in zip(update.shape, operand.shape)):
        raise TypeError(
            "dynamic_update_slice: the update has to fit into the operand, got "
            f"shape {tuple(update.shape)} for {tuple(operand.shape)}."
        )
    return bind("dynamic_update_slice", (operand, update, *starts), {})


def _starts_in_dim(operand: Array, start_index, axis: int) -> list:
    starts: list = [0] * operand.ndim
    starts[axis] = start_index
    return starts


def dynamic_slice_in_dim(
    operand: ArrayLike, start_index: ArrayLike, slice_size: int, axis: int = 0, *,
    allow_negative_indices: bool = True,
) -> Array:
    """``dynamic_slice`` along one axis, whole along the others.

    Args: operand: array; start_index: an integer; slice_size: an int; axis: the axis;
    allow_negative_indices: whether a negative start counts from the end. Errors as for
    `dynamic_slice`.

    >>> lax.dynamic_slice_in_dim(jnp.arange(5), 3, 4)
    Array([1, 2, 3, 4], dtype=int32)
    """
    operand = _operand(operand, "dynamic_slice_in_dim")
    axis = _canonical_axis(known_axis("lax.dynamic_slice_in_dim", axis), operand.ndim)
    sizes = list(operand.shape)
    sizes[axis] = as_dim(slice_size)
    return dynamic_slice(
        operand,
        _starts_in_dim(operand, start_index, axis),
        tuple(sizes),
        allow_negative_indices=allow_negative_indices,
    )


def dynamic_index_in_dim(
    operand: ArrayLike, index: ArrayLike, axis: int = 0, keepdims: bool = True, *,
    allow_negative_indices: bool = True,
) -> Array:
    """The slice at a dynamic position of an axis.

    Args: operand: array; index: an integer, moved into range; axis: the axis; keepdims: whether it
    stays with size 1; allow_negative_indices: whether a negative index counts from the end.

    >>> lax.dynamic_index_in_dim(jnp.array([[1, 2], [3, 4]]), 1, keepdims=False)
    Array([3, 4], dtype=int32)
    """
    operand = _operand(operand, "dynamic_index_in_dim")
    axis = _canonical_axis(hashable_axis("lax.dynamic_index_in_dim", axis), operand.ndim)
    result = dynamic_slice_in_dim(
        operand, index, 1, axis, allow_negative_indices=allow_negative_indices
    )
    return result if keepdims else squeeze(result, (axis,))


def dynamic_update_slice_in_dim(
    operand: ArrayLike, update: ArrayLike, start_index: ArrayLike, axis: int, *,
    allow_negative_indices: bool = True,
) -> Array:
    """``dynamic_update_slice`` along one axis, from the beginning of the others.

    Args: operand, update: arrays of one dtype and rank; start_index: an integer; axis: the axis;
    allow_negative_indices: whether a negative start counts from the end. Errors as for
    `dynamic_update_slice`.

    >>> lax.dynamic_update_slice_in_dim(jnp.zeros(4), jnp.ones(2), 1, axis=0)
    Array([0., 1., 1., 0.], dtype=float32)
    """
    operand = _operand(operand, "dynamic_update_slice_in_dim")
    axis = _canonical_axis(known_axis("lax.dynamic_update_slice_in_dim", axis), operand.ndim)
    return dynamic_update_slice(
        operand,
        update,
        _starts_in_dim(operand, start_index, axis),
        allow_negative_indices=allow_negative_indices,
    )


def dynamic_update_index_in_dim(
    operand: ArrayLike, update: ArrayLike, index: ArrayLike, axis: int, *,
    allow_negative_indices: bool = True,
) -> Array:
    """Replaces the slice at a dynamic position of an axis; ``update`` may lack that axis.

    Args: operand: array; update: of its dtype; index: an integer, moved into range; axis: the axis;
    allow_negative_indices: whether a negative index counts from the end.

    >>> lax.dynamic_update_index_in_dim(jnp.zeros((2, 2)), jnp.ones(2), 1, axis=0)
    Array([[0., 0.],
           [1., 1.]], dtype=float32)
    """
    operand = _operand(operand, "dynamic_update_index_in_dim")
    update = _operand(update, "dynamic_update_index_in_dim", 1)
    axis = _canonical_axis(hashable_axis("lax.dynamic_update_index_in_dim", axis), operand.ndim)
    if update.ndim != operand.ndim:
        if update.ndim + 1 != operand.ndim:
            raise TypeError(
                "dynamic_update_index_in_dim update must have the operand's rank or one less, got "
                f"update shape {tuple(update.shape)} for operand shape {tuple(operand.shape)}."
            )
        update = expand_dims(update, (axis,))
    return dynamic_update_slice_in_dim(
        operand, update, index, axis, allow_negative_indices=allow_negative_indices
    )
