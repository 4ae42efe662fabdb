"""Functions of ferrax.numpy that repeat the elements of an array, reverse, rotate and roll them.

The dtype stays. Shapes are static: counts of `repeat` are constants, or the total length is given.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from ferrax._src.core import Array, as_array, concrete_or_error, is_concrete
from ferrax._src.core.typing import ArrayLike, Axis
from ferrax._src.dims.sizes import as_dim
from ferrax._src.lax import api as lax
from ferrax._src.lax.out_sharding import with_out_sharding
from ferrax._src.numpy.places import counted_up_to
from ferrax._src.numpy.shape import _axis_list, ravel, reshape, transpose
from ferrax._src.numpy.util import (
    broadcast_to as _broadcast_to,
    canonical_shape,
    convert,
    ensure_array,
    ensure_arrays,
    normalize_axes,
    normalize_axis,
)
from ferrax._src.transforms.jit import jit

# ---------------------------------------------------------------------------- repetition


def tile(A: ArrayLike, reps: Any) -> Array:
    """Repeats the whole array `reps` times per axis.

    Args: A: array; reps: an int or one per axis, with missing leading axes on either side taken as
    1.

    >>> jnp.tile(jnp.arange(2), (2, 2))
    Array([[0, 1, 0, 1],
           [0, 1, 0, 1]], dtype=int32)
    """
    A = ensure_array(A, "tile")
    try:
        reps = (as_dim(reps),)
    except TypeError:
        reps = tuple(as_dim(r) for r in reps)
    rank = max(len(reps), A.ndim)
    reps = (1,) * (rank - len(reps)) + reps
    dims = (1,) * (rank - A.ndim) + tuple(A.shape)
    if all(r == 1 for r in reps):
        return reshape(A, dims)
    return lax.tile(reshape(A, dims), reps)


def repeat(
    a: ArrayLike, repeats: ArrayLike, axis: int | None = None, *,
    total_repeat_length: int | None = None, out_sharding: Any = None,
) -> Array:
    """Repeats each element along an axis, of the flattened array for None.

    Args: repeats: a count or one count per element, concrete unless `total_repeat_length` is
    given; then the result has that length, truncated or filled with the last element.

    a: array; axis: the axis. Raises: ConcretizationTypeError for traced counts without a length,
    ValueError for counts that do not fit.

    >>> jnp.repeat(jnp.array([5, 6]), jnp.array([1, 2]))
    Array([5, 6, 6], dtype=int32)
    """
    if out_sharding is not None:
        return with_out_sharding(
            "repeat", out_sharding, repeat, a, repeats, axis, total_repeat_length=total_repeat_length,
        )  # fmt: skip
    a, counts = ensure_arrays("repeat", a, repeats)
    if axis is None:
        a, axis = ravel(a), 0
    elif a.ndim == 0:
        a = lax.expand_dims(a, (0,))
    axis = normalize_axis(concrete_or_error(operator.index, axis, "axis of jnp.repeat"), a.ndim)
    length = a.shape[axis]
    if counts.ndim > 1 or (counts.ndim == 1 and counts.shape[0] not in (1, length)):
        raise ValueError(
            f"jnp.repeat: repeats has shape {tuple(counts.shape)}; expected () or ({length},)"
        )
    if total_repeat_length is None:
        concrete = np.asarray(concrete_or_error(
            None, repeats, "The sum of the repeats decides the shape. Say it: jnp.repeat(x, repeats, "
            "total_repeat_length=n)."))
        if (concrete < 0).any():
            raise TypeError(f"jnp.repeat: repeats must not be negative, got {concrete}")
        if concrete.size == 1:
            return _repeat_uniform(a, int(concrete.reshape(())), axis)
        indices = np.repeat(np.arange(length), concrete)
        return _take_rows(a, as_array(indices.astype(np.int32)), axis)
    counts = _broadcast_to(counts, (length,))
    total = operator.index(total_repeat_length)
    if length == 0 or total == 0:
        dims = tuple(total if d == axis else n for d, n in enumerate(a.shape))
        return lax.full(dims, 0, a.dtype)
    ends = lax.cumsum(convert(counts, np.dtype(np.int32)))
    # The row at output position p is the number of rows that end at or before p.
    rows = lax.min(counted_up_to(ends, total), as_array(np.int32(length - 1)))
    return _take_rows(a, rows, axis)


def _repeat_uniform(a, count, axis):
    dims = tuple(a.shape)
    wide = (*dims[:axis + 1], count, *dims[axis + 1:])
    kept = (*range(axis + 1), *range(axis + 2, len(wide)))
    out = lax.broadcast_in_dim(a, wide, kept)
    return lax.reshape(out, (*dims[:axis], dims[axis] * count, *dims[axis + 1:]))


def _take_rows(a, indices, axis):
    """Gathers slices at in-bounds indices along an axis."""
    numbers = lax.GatherDimensionNumbers(
        offset_dims=tuple(d for d in range(a.ndim) if d != axis),
        collapsed_slice_dims=(axis,),
        start_index_map=(axis,),
    )
    return lax.gather(
        a, lax.expand_dims(indices, (1,)), numbers,
        slice_sizes=tuple(1 if d == axis else n for d, n in enumerate(a.shape)),
        mode="clip",
    )


@jit(static_argnames=("new_shape",))
def resize(a: ArrayLike, new_shape: Any) -> Array:
    """Repeats or truncates the flattened array to fill a new shape.

    Args: a: array; new_shape: ints, or one int. Raises: ValueError for negative sizes.

    >>> jnp.resize(jnp.arange(3), (2, 2))
    Array([[0, 1],
           [2, 0]], dtype=int32)
    """
    a = ensure_array(a, "resize")
    sizes = canonical_shape(new_shape)
    if any(n < 0 for n in sizes):
        raise ValueError(f"resize: negative sizes in new_shape={sizes}")
    total = math.prod(sizes)
    if a.size == 0 or total == 0:
        return lax.full(sizes, 0, a.dtype)
    flat = tile(ravel(a), -(-total // a.size))
    flat = lax.slice_in_dim(flat, 0, total) if flat.shape[0] != total else flat
    return reshape(flat, sizes)


# ---------------------------------------------------------------------------- flips and rolls


@jit(static_argnames=("axis",))
def _flip(m, axis=None):
    return lax.rev(m, normalize_axes(axis, m.ndim))


def _static_axes(axis):
    if axis is None or isinstance(axis, int):
        return axis
    return tuple(axis) if np.ndim(axis) else operator.index(axis)


STATIC_AXIS = "Axes must be known while tracing: mark the argument as static, or use Python ints."


def flip(m: ArrayLike, axis: Axis | None = None) -> Array:
    """Reverses the order along axes, along all for None.

    Args: m: array; axis: None, an axis or a tuple. Raises: ValueError for an axis out of bounds.

    >>> jnp.flip(jnp.arange(3))
    Array([2, 1, 0], dtype=int32)
    """
    axis = concrete_or_error(_static_axes, axis, f"The axis argument of flip. {STATIC_AXIS}")
    return _flip(ensure_array(m, "flip"), axis)


def flipud(m: ArrayLike) -> Array:
    """Reverses the first axis.

    Args: m: array of rank 1 or more.

    >>> jnp.flipud(jnp.array([[1, 2], [3, 4]]))
    Array([[3, 4],
           [1, 2]], dtype=int32)
    """
    return _flip(ensure_array(m, "flipud"), 0)


def fliplr(m: ArrayLike) -> Array:
    """Reverses the second axis.

    Args: m: array of rank 2 or more.

    >>> jnp.fliplr(jnp.array([[1, 2], [3, 4]]))
    Array([[2, 1],
           [4, 3]], dtype=int32)
    """
    return _flip(ensure_array(m, "fliplr"), 1)


@jit(static_argnames=("k", "axes"))
def rot90(m: ArrayLike, k: Any = 1, axes: Sequence[int] = (0, 1)) -> Array:
    """Rotates by `k` quarter turns in the plane of two axes.

    Args: m: array of rank 2 or more; k: an int, negative for clockwise; axes: the two axes. Raises:
    ValueError unless they are two different ones.

    >>> jnp.rot90(jnp.array([[1, 2], [3, 4]]))
    Array([[2, 4],
           [1, 3]], dtype=int32)
    """
    m = ensure_array(m, "rot90")
    if len(axes) != 2:
        raise ValueError(f"len(axes) must be 2, got axes={axes}")
    ax1, ax2 = (normalize_axis(x, m.ndim) for x in axes)
    if ax1 == ax2:
        raise ValueError("Axes must be different")
    k %= 4
    if k == 0:
        return m
    if k == 2:
        return _flip(_flip(m, ax1), ax2)
    permutation = list(range(m.ndim))
    permutation[ax1], permutation[ax2] = ax2, ax1
    if k == 1:
        return transpose(_flip(m, ax2), permutation)
    return _flip(transpose(m, permutation), ax2)


@jit(static_argnames=("shift", "axis"))
def _roll_static(a, shift, axis):
    for amount, d in zip(shift, axis):
        amount = amount % a.shape[d] if a.shape[d] else 0
        if amount:
            cut = a.shape[d] - amount
            a = lax.concatenate(
                [lax.slice_in_dim(a, cut, a.shape[d], axis=d), lax.slice_in_dim(a, 0, cut, axis=d)],
                dimension=d,
            )
    return a


@jit(static_argnames=("axis",))
def _roll_dynamic(a, shift, axis):
    for i, d in enumerate(axis):
        n = a.shape[d]
        if n == 0:
            continue
        amount = convert(lax.index_in_dim(shift, i, keepdims=False), np.dtype(np.int32))
        amount = lax.rem(lax.add(lax.rem(amount, as_array(np.int32(n))), as_array(np.int32(n))),
                         as_array(np.int32(n)))
        twice = lax.concatenate([a, a], dimension=d)
        a = lax.dynamic_slice_in_dim(twice, lax.sub(as_array(np.int32(n)), amount), n, axis=d)
    return a


def roll(a: ArrayLike, shift: ArrayLike, axis: Axis | None = None) -> Array:
    """Shifts elements cyclically along axes, or through the flattened array for None.

    Args: shift: an integer or one per axis, possibly traced.
    a: array; axis: None, an axis or a tuple. Raises: ValueError for shifts and axes that are not as
    many or out of bounds.

    >>> jnp.roll(jnp.arange(4), 1)
    Array([3, 0, 1, 2], dtype=int32)
    """
    a = ensure_array(a, "roll")
    if axis is None:
        return reshape(roll(ravel(a), shift, 0), a.shape)
    axes = tuple(normalize_axis(d, a.ndim) for d in _axis_list(axis))
    if not isinstance(shift, Array) or is_concrete(shift):
        # Python integers, which may be larger than those of any dtype.
        amounts = np.asarray(shift, dtype=object)
        if any(amount % 1 != 0 for amount in amounts.flat):
            raise TypeError(f"jnp.roll: shift must be integers, got {shift}")
        static = np.broadcast_arrays(np.atleast_1d(amounts), np.asarray(axes))
        return _roll_static(a, *(tuple(map(int, part)) for part in static))
    count = max(len(axes), shift.size if shift.ndim else 1)
    traced = _broadcast_to(lax.expand_dims(shift, (0,)) if shift.ndim == 0 else shift, (count,))
    places = axes * count if len(axes) == 1 else axes
    return _roll_dynamic(a, traced, tuple(places))
