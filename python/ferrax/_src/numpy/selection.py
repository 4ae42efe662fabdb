"""Choosing among arrays by conditions, and removing or inserting slices."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ferrax._core import Array
from ferrax._src.base import dtypes
from ferrax._src.core import as_array, concrete_or_error, is_concrete
from ferrax._src.core.dim_values import size_as
from ferrax._src.core.typing import ArrayLike
from ferrax._src.lax import elementwise as lax
from ferrax._src.lax.arguments import canonical_axis, known_axis
from ferrax._src.lax.creation import full
from ferrax._src.lax.shape import _broadcast_to, concatenate, expand_dims, reshape, squeeze
from ferrax._src.lax.slicing import slice_in_dim
from ferrax._src.lax.sorting import sort
from ferrax._src.numpy import cumulative
from ferrax._src.numpy.array_creation import arange
from ferrax._src.numpy.at import IndexUpdateHelper
from ferrax._src.numpy.conditional import where
from ferrax._src.numpy.joining import stack
from ferrax._src.numpy.places import counted_up_to
from ferrax._src.numpy.rounding import clip
from ferrax._src.numpy.shape import broadcast_arrays, moveaxis
from ferrax._src.numpy.take import _floor_mod, take, take_along_axis
from ferrax._src.numpy.ufunc_api import minimum
from ferrax._src.numpy.util import ensure_array

_INT32 = np.dtype(np.int32)


def select(condlist: Sequence, choicelist: Sequence, default: ArrayLike = 0) -> Array:
    """Elementwise the choice of the first condition that holds, else ``default``.

    Conditions and choices broadcast together; choices promote to one dtype.

    Args: condlist: arrays of truth values; choicelist: as many arrays; default: a scalar or array.
    Raises: ValueError for none or not as many.

    >>> x = jnp.arange(4)
    >>> jnp.select([x < 1, x < 3], [x, 10 * x], -1)
    Array([ 0, 10, 20, -1], dtype=int32)
    """
    if len(condlist) != len(choicelist):
        raise ValueError(
            "select: each condition needs a choice, got "
            f"{len(condlist)} conditions and {len(choicelist)} choices"
        )
    if len(condlist) == 0:
        raise ValueError("condlist must be non-empty")
    result: Any = default
    for condition, choice in zip(reversed(condlist), reversed(choicelist)):
        result = where(condition, choice, result)
    return result


def choose(
    a: ArrayLike, choices: Sequence[ArrayLike], out: None = None, mode: str = "raise",
) -> Array:
    """Elementwise ``choices[a]``: the element of the choice that ``a`` numbers.

    Args:
      a: integers.
      choices: a sequence of arrays, or an array whose first axis numbers them; all broadcast.
      out: not supported.
      mode: for numbers out of range "raise" (not under jit), "wrap" or "clip".

    >>> jnp.choose(jnp.array([1, 0]), [jnp.array([1, 2]), jnp.array([3, 4])])
    Array([3, 2], dtype=int32)
    """

    if out is not None:
        raise NotImplementedError("choose: arrays are immutable; leave out the argument out")
    a = ensure_array(a, "choose", 0)
    if not dtypes.issubdtype(a.dtype, np.integer):
        raise ValueError(f"choose: a holds numbers of choices, got {a.dtype}; use astype")
    choices = [ensure_array(choice, "choose", 1) for choice in choices]
    if not choices:
        raise ValueError("choose requires at least one choice")
    count = len(choices)
    if mode == "raise":
        value = concrete_or_error(
            None,
            a,
            "choose with mode='raise' looks at the indices, which is not possible while tracing; "
            "use mode='wrap' or mode='clip'.",
        )
        value = np.asarray(value)
        if np.any((value < 0) | (value >= count)):
            raise ValueError("invalid entry in choice array")
    elif mode == "wrap":
        a = _floor_mod(a, count)
    elif mode == "clip":
        a = lax.clamp(a.dtype.type(0), a, size_as(count - 1, a.dtype))
    else:
        raise ValueError(f"choose: mode has to be 'raise', 'wrap' or 'clip', got {mode!r}")
    a, *choices = broadcast_arrays(a, *choices)
    stacked = lax._convert_element_type(stack(choices))  # never weakly typed
    picked = take_along_axis(
        stacked, expand_dims(a, (0,)), 0, "promise_in_bounds", wrap_negative_indices=False
    )
    return squeeze(picked, (0,))


def piecewise(
    x: ArrayLike, condlist: Sequence[ArrayLike], funclist: list, *args: Any, **kw: Any,
) -> Array:
    """A function given by pieces: where several conditions hold, the last one counts.

    Args:
      x: array.
      condlist: boolean arrays, or one whose first axis numbers them.
      funclist: one function or scalar for each condition, and optionally one for the rest
        (default 0). Functions are elementwise and are evaluated everywhere.
      args, kw: further arguments for the functions.

    The result has ``x``'s dtype.

    >>> x = jnp.array([-2, 3])
    >>> jnp.piecewise(x, [x < 0], [lambda x: -x, lambda x: x])
    Array([2, 3], dtype=int32)
    """
    x = ensure_array(x, "piecewise")
    conditions = list(condlist)
    pieces = list(funclist)
    count = len(conditions)
    if len(pieces) == count + 1:
        default = pieces.pop()
    elif len(pieces) == count:
        default = 0
    else:
        raise ValueError(
            f"piecewise: {count} conditions take {count} functions and maybe one more for the rest, "
            f"got {len(pieces)}"
        )

    def evaluate(piece: Callable | Array) -> Array:
        value = piece(x, *args, **kw) if callable(piece) else piece
        value = lax._convert_element_type(value, x.dtype)
        return _broadcast_to(value, x.shape)

    result = evaluate(default)
    for condition, piece in zip(conditions, pieces):
        result = where(condition, evaluate(piece), result)
    return result


def delete(
    arr: ArrayLike, obj: Any, axis: int | None = None, *, assume_unique_indices: bool = False,
) -> Array:
    """A copy of ``arr`` without some slices along an axis.

    Args:
      arr: array; flattened if ``axis`` is None.
      obj: an integer, slice, integer array or boolean mask; concrete, unless the next is True.
      assume_unique_indices: says that an integer array has no repetitions.

    Raises IndexError or ValueError for positions out of bounds.

    >>> jnp.delete(jnp.arange(4), 1)
    Array([0, 2, 3], dtype=int32)
    """
    arr = ensure_array(arr, "delete", 0)
    if axis is None:
        arr, axis = reshape(arr, (math.prod(arr.shape),)), 0
    axis = canonical_axis(axis, arr.ndim)
    size = arr.shape[axis]
    keep = np.ones(size, bool)
    if isinstance(obj, slice):
        keep[obj] = False
        return _kept(arr, keep, axis)
    if not isinstance(obj, int):
        ensure_array(obj, "delete", 1)
    if assume_unique_indices and isinstance(obj, Array) and not is_concrete(obj):
        return _delete_traced(arr, obj, axis)
    value = np.asarray(concrete_or_error(None, obj, "'obj' array argument of jnp.delete()"))
    if value.dtype == np.bool_:
        if value.shape != (size,):
            raise ValueError(
                f"jnp.delete: a boolean obj needs shape ({size},), an element for each along the axis; got shape "
                f"{value.shape}"
            )
        return _kept(arr, ~value, axis)
    if value.dtype.kind not in "iu" and not isinstance(obj, int):
        raise ValueError(f"jnp.delete: got obj.dtype={value.dtype}; must be integer or bool.")
    if value.ndim == 0:
        place = int(value)
        if not -size <= place < size:
            raise ValueError(f"axis {place} is out of bounds for array of dimension {size}")
        place = place + size if place < 0 else place
        return concatenate(
            [slice_in_dim(arr, 0, place, 1, axis), slice_in_dim(arr, place + 1, None, 1, axis)]
            if place + 1 < size
            else [slice_in_dim(arr, 0, place, 1, axis)],
            axis,
        )
    outside = value[(value < -size) | (value >= size)]
    if outside.size:
        raise IndexError(
            f"index {outside.flat[0]} is out of bounds for axis {axis} with size {size}"
        )
    keep[value] = False
    return _kept(arr, keep, axis)


def _kept(arr: Array, keep: np.ndarray, axis: int) -> Array:
    places = as_array(np.nonzero(keep)[0].astype(_INT32))
    return take(arr, places, axis, mode="clip", unique_indices=True, indices_are_sorted=True)


def _delete_traced(arr: Array, obj: Array, axis: int) -> Array:

    if not dtypes.issubdtype(obj.dtype, np.integer):
        raise ValueError(f"jnp.delete: got obj.dtype={obj.dtype}; must be integer or bool.")
    size = arr.shape[axis]
    obj = reshape(obj, (math.prod(obj.shape),))
    obj = where(obj < 0, obj + size, obj)
    obj = clip(obj, 0, size - 1)
    obj = take(obj, _stable_order(obj), 0, mode="clip")
    removed = obj.shape[0]
    # An element's new position counts as many removed ones as were in front of it.
    shifted = obj - arange(removed, dtype=obj.dtype)
    kept = size - removed
    return take(arr, arange(kept, dtype=_INT32) + counted_up_to(shifted, kept), axis, mode="clip")


def _stable_order(values: Array) -> Array:
    """The positions of the elements of a vector in stable ascending order."""
    return sort((values, arange(values.shape[0], dtype=_INT32)), num_keys=1)[1]


def insert(arr: ArrayLike, obj: Any, values: ArrayLike, axis: int | None = None) -> Array:
    """A copy of ``arr`` with slices inserted before given positions of an axis.

    Args:
      arr: array; flattened if ``axis`` is None.
      obj: an integer, slice or 1-D integer array: positions in ``arr``. May be traced.
      values: what to insert; broadcast, and cast to ``arr``'s dtype.

    >>> jnp.insert(jnp.array([1, 2]), 1, 9)
    Array([1, 9, 2], dtype=int32)
    """
    arr = ensure_array(arr, "insert", 0)
    values = ensure_array(values, "insert", 2)
    if axis is None:
        arr, axis = reshape(arr, (math.prod(arr.shape),)), 0
    axis = canonical_axis(known_axis("insert", axis), arr.ndim)
    size = arr.shape[axis]
    if isinstance(obj, slice):
        places = as_array(np.arange(*obj.indices(size), dtype=_INT32))
    else:
        places = ensure_array(obj, "insert", 1)
    if places.ndim > 1:
        raise ValueError(f"insert: obj is an integer, a slice or a vector of places, got shape {tuple(places.shape)}")
    if not dtypes.issubdtype(places.dtype, np.integer):
        if math.prod(places.shape) == 0:
            places = lax._convert_element_type(places, _INT32)
        else:
            raise ValueError(f"insert: obj has to hold integers, got {obj}")
    places = lax._convert_element_type(places, _INT32)
    values = lax._convert_element_type(values, arr.dtype)
    if values.ndim > arr.ndim:
        raise ValueError(
            f"jnp.insert(): values of {values.ndim} axes do not fit an array of {arr.ndim}"
        )
    if values.ndim < arr.ndim:
        values = expand_dims(values, tuple(range(arr.ndim - values.ndim)))
    if places.ndim == 0:
        # A single position takes the values' first axis as the inserted one.
        values = moveaxis(values, 0, axis)
    if math.prod(places.shape) == 1:
        count = values.shape[axis]
        places = _broadcast_to(reshape(places, (1,)), (count,))
    else:
        count = places.shape[0]
    values = _broadcast_to(values, (*arr.shape[:axis], count, *arr.shape[axis + 1 :]))
    total = size + count
    places = where(places < 0, places + size, places)
    places = clip(places, 0, size)
    order = _stable_order(places)
    target = take(places, order, 0, mode="clip") + arange(count, dtype=_INT32)
    # Where each slice of the result comes from: the inserted ones at ``target``, in order; the
    # others are the array's own, in theirs.
    is_new = IndexUpdateHelper(full((total,), 0, _INT32))[target].set(1)
    new_rank = cumulative.cumsum(is_new, dtype=_INT32) - is_new
    own_rank = arange(total, dtype=_INT32) - new_rank
    if count == 0:
        return arr
    inserted = take(order, minimum(new_rank, count - 1), 0, mode="clip") + size
    source = where(is_new > 0, inserted, own_rank)
    both = concatenate([arr, values], axis)
    return take(both, source, axis, mode="clip", unique_indices=True)


def ix_(*args: Any) -> tuple[Array, ...]:
    """1-D integer arrays as an open mesh: ``x[jnp.ix_(rows, columns)]`` is the submatrix.

    Args: args: vectors of integers, or of bools for the positions that hold. Raises: ValueError for
    other ranks.

    >>> jnp.arange(9).reshape(3, 3)[jnp.ix_(jnp.array([0, 2]), jnp.array([1]))]
    Array([[1],
           [7]], dtype=int32)
    """
    arrays = [ensure_array(arg, "ix", i) for i, arg in enumerate(args)]
    result = []
    for axis, array in enumerate(arrays):
        if array.ndim != 1:
            raise ValueError(
                f"Arguments to jnp.ix_ must be 1-dimensional, got shape {tuple(array.shape)}"
            )
        if array.dtype == np.bool_:
            raise NotImplementedError("Boolean arguments to jnp.ix_ are not implemented")
        shape = [1] * len(arrays)
        shape[axis] = array.shape[0]
        if array.shape[0] == 0:
            array = lax._convert_element_type(array, _INT32)
        result.append(reshape(array, tuple(shape)))
    return tuple(result)


def diag_indices(n: int, ndim: int = 2) -> tuple[Array, ...]:
    """The index arrays of the main diagonal of an array of ``ndim`` axes of size ``n``.

    Raises: ValueError for a negative `n` or `ndim`.

    >>> jnp.diag_indices(2)
    (Array([0, 1], dtype=int32), Array([0, 1], dtype=int32))
    """
    n = operator.index(concrete_or_error(None, n, "'n' argument of jnp.diag_indices()"))
    ndim = operator.index(concrete_or_error(None, ndim, "'ndim' argument of jnp.diag_indices()"))
    if n < 0:
        raise ValueError(f"diag_indices: n cannot be negative, got {n}")
    if ndim < 0:
        raise ValueError(f"diag_indices: ndim cannot be negative, got {ndim}")
    index = as_array(np.arange(n, dtype=dtypes.default_int_dtype()))
    return (index,) * ndim


def diag_indices_from(arr: ArrayLike) -> tuple[Array, ...]:
    """``diag_indices`` for an array whose axes all have one size.

    Args: arr: array of rank 2 or more. Raises: ValueError for lower ranks and other shapes.

    >>> jnp.diag_indices_from(jnp.zeros((2, 2)))
    (Array([0, 1], dtype=int32), Array([0, 1], dtype=int32))
    """
    arr = ensure_array(arr, "diag_indices_from")
    if arr.ndim < 2:
        raise ValueError(f"diag_indices_from: expected at least two axes, got shape {tuple(arr.shape)}")
    if len(set(arr.shape)) != 1:
        raise ValueError(f"diag_indices_from: expected axes of one size, got shape {tuple(arr.shape)}")
    return diag_indices(arr.shape[0], arr.ndim)
