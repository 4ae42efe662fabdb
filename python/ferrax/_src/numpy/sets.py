"""Sets: distinct elements of arrays, unions, intersections, differences, membership.

Elements are sorted; runs of equal ones are marked by their first. Without `size` the number of
results is the number of marks, which has to be known; with it, results are cut or filled.
"""

from __future__ import annotations

import math
import operator
from typing import Any, Literal, NamedTuple, overload

import numpy as np

from ferrax._src.base import dtypes
from ferrax._src.core import Array, as_array, concrete_or_error
from ferrax._src.core.typing import ArrayLike
from ferrax._src.lax import api as lax
from ferrax._src.numpy.nonzero import nonzero
from ferrax._src.numpy.sorting import searchsorted, sort
from ferrax._src.numpy.util import (
    convert,
    ensure_arrays,
    is_subdtype,
    needs_size,
    normalize_axis,
    promote_dtypes,
    where as select_where,
)
from ferrax._src.transforms.jit import jit


def _flat(x: Array) -> Array:
    return lax.reshape(x, (x.size,))


def _static_size(name: str, size):
    if size is None:
        return None
    size = operator.index(concrete_or_error(None, size, f"size argument of jnp.{name}"))
    if size < 0:
        raise TypeError(f"the size argument of jnp.{name} must be nonnegative, got {size}")
    return size


def _require_known(name: str, size, *arrays) -> None:
    if size is None:
        for x in arrays:
            concrete_or_error(None, x, needs_size(name, "x" if len(arrays) == 1 else "x, y"))


def _marked(mask: Array, size, fill: int) -> Array:
    """The places of marks, in order; `fill` for those that are not there."""
    return nonzero(mask, size=size, fill_value=fill)[0]


def _shift_differs(x: Array, equal_nan: bool) -> Array:
    """For rows along axis 0, whether each but the first differs from the one before."""
    count = x.shape[0]
    before, after = lax.slice_in_dim(x, 0, count - 1), lax.slice_in_dim(x, 1, count)
    differs = lax.ne(before, after)
    if equal_nan and is_subdtype(x, np.inexact):
        both = lax.bitwise_and(lax.ne(before, before), lax.ne(after, after))
        differs = lax.bitwise_and(differs, lax.bitwise_not(both))
    return lax.reduce_or(differs, tuple(range(1, x.ndim)))


def _with_first(marks: Array) -> Array:
    return lax.concatenate([lax.full((1,), True, np.bool_), marks], 0)


@jit(static_argnames=("equal_nan",))
def _sorted_rows(x: Array, equal_nan: bool):
    """The rows along axis 0 in order, where each was, and which are the first of their kind."""
    count, dtype = x.shape[0], dtypes.default_int_dtype()
    width = math.prod(x.shape[1:])
    places = lax.iota(dtype, count)
    if is_subdtype(x, np.complexfloating):
        # Numbers with a NaN in either part are one kind, and come last.
        x = lax.select(lax.ne(x, x), lax.full_like(x, math.nan), x)
    if width:
        rows = lax.reshape(x, (count, width))
        columns = [lax.index_in_dim(rows, i, 1, keepdims=False) for i in range(width)]
        *columns, places = lax.sort((*columns, places), dimension=0, num_keys=width)
        if x.ndim == 1:
            x = columns[0]
        else:
            x = lax.reshape(lax.concatenate([lax.expand_dims(c, (1,)) for c in columns], 1), x.shape)
    first = _with_first(_shift_differs(x, equal_nan)) if count else lax.full((0,), True, np.bool_)
    return x, places, first


def _unique(name, ar, axis, index, inverse, counts, equal_nan, size, fill_value) -> list:
    """The distinct rows along an axis of an array, and the other results that are asked for."""
    (ar,) = ensure_arrays(name, ar)
    size = _static_size(name, size)
    if axis is None:
        shape, axis = ar.shape, 0
        ar = _flat(ar)
    else:
        axis = normalize_axis(axis, ar.ndim)
        shape = (ar.shape[axis],)
    _require_known(name, size, ar)
    dtype = dtypes.default_int_dtype()
    rows = lax.transpose(ar, (axis, *[d for d in range(ar.ndim) if d != axis]))
    if rows.shape[0] == 0:
        if size and fill_value is None:
            raise ValueError(
                f"jnp.{name}: an empty array has no element to fill size={size} with; pass fill_value"
            )
        values = lax.full((size or 0, *rows.shape[1:]), 0, ar.dtype)
        if size:
            values = lax.add(values, _filler(fill_value, values)) if ar.dtype != bool else (
                lax.bitwise_or(values, _filler(fill_value, values)))
        nothing = lax.full((0,), 0, dtype)
        results: list[Any] = [values, nothing, lax.full(shape, 0, dtype), nothing]
    else:
        rows, places, first = _sorted_rows(rows, equal_nan)
        found = _marked(first, size, 0)
        values = rows.at[found].get(mode="clip")
        if size is not None and fill_value is not None:
            there = lax.lt(lax.iota(dtype, size), _total(first, dtype, size))
            there = lax.broadcast_in_dim(there, values.shape, (0,))
            values = lax.select(there, values, _filler(fill_value, values))
        results = [
            values,
            places.at[found].get(mode="clip") if index else None,
            _inverse(places, first, shape) if inverse else None,
            _counts(first, size) if counts else None,
        ]
    order = [*range(1, axis + 1), 0, *range(axis + 1, ar.ndim)]
    results[0] = lax.transpose(results[0], order) if axis else results[0]
    return [x for x, wanted in zip(results, (True, index, inverse, counts)) if wanted]


def _filler(fill_value, like: Array) -> Array:
    (fill,) = ensure_arrays("unique", fill_value)
    fill = convert(fill, like.dtype)
    return lax.broadcast_in_dim(fill, like.shape, tuple(range(like.ndim - fill.ndim, like.ndim)))


def _total(mask: Array, dtype, size: int) -> Array:
    total = lax.reduce_sum(lax.convert_element_type(mask, dtype), (0,))
    return lax.broadcast_in_dim(total, (size,), ())


def _runs(first: Array) -> Array:
    """The number of the run that each element is in."""
    dtype = dtypes.default_int_dtype()
    numbers = lax.cumsum(lax.convert_element_type(first, dtype))
    return lax.sub(numbers, lax.full_like(numbers, 1))


@jit(static_argnums=(2,))
def _inverse(places: Array, first: Array, shape) -> Array:
    numbers = lax.full_like(places, 0).at[places].set(_runs(first), unique_indices=True)
    return lax.reshape(numbers, shape)


def _counts(first: Array, size) -> Array:
    count = first.shape[0]
    more = None if size is None else size + 1
    starts = _marked(first, more, count)
    if size is None:
        starts = lax.concatenate([starts, lax.full((1,), count, starts.dtype)], 0)
    rest = starts.shape[0] - 1
    return lax.sub(lax.slice_in_dim(starts, 1, rest + 1), lax.slice_in_dim(starts, 0, rest))


@overload
def unique(
    ar: ArrayLike, return_index: Literal[False] = False, return_inverse: Literal[False] = False,
    return_counts: Literal[False] = False, axis: int | None = None, *, equal_nan: bool = True,
    size: int | None = None, fill_value: Any = None, sorted: bool = True,
) -> Array: ...
@overload
def unique(
    ar: ArrayLike, return_index: bool = False, return_inverse: bool = False,
    return_counts: bool = False, axis: int | None = None, *, equal_nan: bool = True,
    size: int | None = None, fill_value: Any = None, sorted: bool = True,
) -> Any: ...
def unique(  # noqa: A002
    ar: ArrayLike, return_index: bool = False, return_inverse: bool = False,
    return_counts: bool = False, axis: int | None = None, *, equal_nan: bool = True,
    size: int | None = None, fill_value: Any = None, sorted: bool = True,
) -> Any:
    """The distinct elements of an array, sorted, or its distinct slices along an axis.

    Args:
      ar: array of any shape.
      return_index: also give the place of the first of each in `ar` (flattened, or along the axis).
      return_inverse: also give for each element which of the results it is.
      return_counts: also give how often each is there.
      axis: the axis whose slices are compared; None for the elements.
      equal_nan: whether NaNs are equal.
      size: static number of results, needed under jit. There are fewer: `fill_value`; more: the
        last are dropped.
      fill_value: scalar or slice; default: the first result.
      sorted: results are sorted anyway.

    Returns an array, or a tuple of arrays.

    Errors: ConcretizationTypeError for a traced array without `size`; ValueError for an axis out
    of bounds, and for nothing to fill with.

    >>> jnp.unique(jnp.array([3, 1, 3]), return_counts=True)
    (Array([1, 3], dtype=int32), Array([1, 2], dtype=int32))
    """
    results = _unique("unique", ar, axis, return_index, return_inverse, return_counts, equal_nan,
                      size, fill_value)
    return results[0] if len(results) == 1 else tuple(results)


class _UniqueAllResult(NamedTuple):
    values: Array
    indices: Array
    inverse_indices: Array
    counts: Array


class _UniqueCountsResult(NamedTuple):
    values: Array
    counts: Array


class _UniqueInverseResult(NamedTuple):
    values: Array
    inverse_indices: Array


def unique_all(x: ArrayLike, /, *, size: int | None = None, fill_value: Any = None) -> _UniqueAllResult:
    """`unique` with indices, inverse and counts as a named tuple; NaNs are not equal.

    Args: x: array; size, fill_value: as for `unique`, with its errors.

    >>> result = jnp.unique_all(jnp.array([5, 3, 5]))
    >>> result.values, result.indices
    (Array([3, 5], dtype=int32), Array([1, 0], dtype=int32))
    >>> result.inverse_indices, result.counts
    (Array([1, 0, 1], dtype=int32), Array([1, 2], dtype=int32))
    """
    return _UniqueAllResult(
        *_unique("unique_all", x, None, True, True, True, False, size, fill_value)
    )


def unique_counts(x: ArrayLike, /, *, size: int | None = None, fill_value: Any = None) -> _UniqueCountsResult:
    """`unique` with counts as a named tuple; NaNs are not equal.

    Args: x: array; size, fill_value: as for `unique`, with its errors.

    >>> jnp.unique_counts(jnp.array([5, 3, 5])).counts
    Array([1, 2], dtype=int32)
    """
    return _UniqueCountsResult(
        *_unique("unique_counts", x, None, False, False, True, False, size, fill_value)
    )


def unique_inverse(x: ArrayLike, /, *, size: int | None = None, fill_value: Any = None) -> _UniqueInverseResult:
    """`unique` with the inverse as a named tuple; NaNs are not equal.

    Args: x: array; size, fill_value: as for `unique`, with its errors.

    >>> jnp.unique_inverse(jnp.array([5, 3, 5])).inverse_indices
    Array([1, 0, 1], dtype=int32)
    """
    return _UniqueInverseResult(
        *_unique("unique_inverse", x, None, False, True, False, False, size, fill_value)
    )


def unique_values(x: ArrayLike, /, *, size: int | None = None, fill_value: Any = None) -> Array:
    """`unique` where NaNs are not equal.

    Args: x: array; size, fill_value: as for `unique`, with its errors.

    >>> jnp.unique_values(jnp.array([5, 3, 5]))
    Array([3, 5], dtype=int32)
    """
    return _unique("unique_values", x, None, False, False, False, False, size, fill_value)[0]


def _pair(name: str, ar1, ar2, size) -> tuple[Array, Array, int | None]:
    ar1, ar2 = ensure_arrays(name, ar1, ar2)
    size = _static_size(name, size)
    _require_known(name, size, ar1, ar2)
    return _flat(ar1), _flat(ar2), size


def union1d(
    ar1: ArrayLike, ar2: ArrayLike, *, size: int | None = None, fill_value: Any = None,
) -> Array:
    """The distinct elements of two arrays together; `size` and `fill_value` as in `unique`.

    Args: ar1, ar2: arrays of any shapes, flattened.

    >>> jnp.union1d(jnp.array([3, 1]), jnp.array([1, 2]))
    Array([1, 2, 3], dtype=int32)
    """
    ar1, ar2, size = _pair("union1d", ar1, ar2, size)
    both = lax.concatenate(promote_dtypes(ar1, ar2), 0)
    return _unique("union1d", both, None, False, False, False, True, size, fill_value)[0]


@jit
def _joined(a: Array, b: Array):
    """The elements of both in order with where they were; those of `a` before equal ones of `b`."""
    both = lax.concatenate([a, b], 0)
    return lax.sort((both, lax.iota(dtypes.default_int_dtype(), both.shape[0])))


def _chosen(values: Array, mask: Array, size, fill_value) -> Array:
    """The marked values, filled with the first of them or zero."""
    count = mask.shape[0]
    if count == 0:
        filled = lax.full((size or 0,), True, np.bool_)
        out = lax.full((size or 0,), 0, values.dtype)
    else:
        places = _marked(mask, size, count)
        if size is None:
            return values.at[places].get(mode="clip")
        filled = lax.eq(places, lax.full_like(places, count))
        out = select_where(filled, as_array(np.zeros((), values.dtype)),
                           values.at[places].get(mode="clip"))
    if size:
        if fill_value is None:
            fill = lax.index_in_dim(out, 0, keepdims=False)
        else:
            fill = convert(ensure_arrays("fill_value", fill_value)[0], out.dtype)
        out = lax.select(filled, lax.broadcast_in_dim(fill, out.shape, ()), out)
    return out


@overload
def intersect1d(
    ar1: ArrayLike, ar2: ArrayLike, assume_unique: bool = False,
    return_indices: Literal[False] = False, *, size: int | None = None, fill_value: Any = None,
) -> Array: ...
@overload
def intersect1d(
    ar1: ArrayLike, ar2: ArrayLike, assume_unique: bool = False, *, return_indices: Literal[True],
    size: int | None = None, fill_value: Any = None,
) -> tuple[Array, Array, Array]: ...
@overload
def intersect1d(
    ar1: ArrayLike, ar2: ArrayLike, assume_unique: bool = False, return_indices: bool = False, *,
    size: int | None = None, fill_value: Any = None,
) -> Any: ...
def intersect1d(
    ar1: ArrayLike, ar2: ArrayLike, assume_unique: bool = False, return_indices: bool = False, *,
    size: int | None = None, fill_value: Any = None,
) -> Array | tuple[Array, Array, Array]:
    """The distinct elements that are in both arrays, sorted.

    Args:
      ar1, ar2: arrays, flattened.
      assume_unique: promises that neither has an element twice; nothing depends on it here.
      return_indices: also give the places of the elements in both.
      size: static number of results, needed under jit.
      fill_value: what fills up; default: the first result, or 0. Places are filled with the size
        of the array.

    >>> jnp.intersect1d(jnp.array([3, 1, 2]), jnp.array([2, 3]))
    Array([2, 3], dtype=int32)
    """
    ar1, ar2, size = _pair("intersect1d", ar1, ar2, size)
    sizes = ar1.size, ar2.size
    a, b = promote_dtypes(ar1, ar2)
    values, places = _joined(a, b)
    count = sum(sizes)
    if count < 2:
        mask = lax.full((0,), False, np.bool_)
        values = lax.slice_in_dim(values, 0, 0)
        before = after = lax.slice_in_dim(places, 0, 0)
    else:
        # Where an element of the first array is followed by an equal one of the second.
        limit = lax.full((count - 1,), sizes[0], places.dtype)
        before, after = lax.slice_in_dim(places, 0, count - 1), lax.slice_in_dim(places, 1, count)
        left, right = lax.slice_in_dim(values, 0, count - 1), lax.slice_in_dim(values, 1, count)
        crossing = lax.bitwise_and(lax.lt(before, limit), lax.ge(after, limit))
        mask = lax.bitwise_and(lax.eq(left, right), crossing)
        # The first of its run.
        first = _with_first(lax.slice_in_dim(lax.ne(left, right), 0, count - 2))
        steps = lax.iota(places.dtype, count - 1)
        starts = lax.cummax(lax.select(first, steps, lax.full_like(steps, 0)))
        values, before = (x.at[starts].get(mode="clip") for x in (left, before))
        after = lax.sub(after, limit)
    out = _chosen(values, mask, size, fill_value)
    if not return_indices:
        return out
    return out, _chosen(before, mask, size, sizes[0]), _chosen(after, mask, size, sizes[1])


def setdiff1d(
    ar1: ArrayLike, ar2: ArrayLike, assume_unique: bool = False, *, size: int | None = None,
    fill_value: Any = None,
) -> Array:
    """The distinct elements of the first array that are not in the second, sorted.

    Args:
      ar1, ar2: arrays, flattened.
      assume_unique: promises that `ar1` has no element twice: its order is kept then.
      size: static number of results, needed under jit.
      fill_value: what fills up; default 0.

    >>> jnp.setdiff1d(jnp.array([3, 1, 2]), jnp.array([2]))
    Array([1, 3], dtype=int32)
    """
    first, ar2, size = _pair("setdiff1d", ar1, ar2, size)
    keep = None
    if not assume_unique:
        first, _, keep = _sorted_rows(first, True)
    mask = isin(first, ar2, invert=True)
    mask = mask if keep is None else lax.bitwise_and(mask, keep)
    return _chosen(first, mask, size, 0 if fill_value is None else fill_value)


def setxor1d(
    ar1: ArrayLike, ar2: ArrayLike, assume_unique: bool = False, *, size: int | None = None,
    fill_value: Any = None,
) -> Array:
    """The distinct elements that are in one of two arrays and not in the other, sorted.

    Args: ar1, ar2: arrays of any shapes, flattened; assume_unique, size, fill_value: as for
    `intersect1d`, with its errors.

    >>> jnp.setxor1d(jnp.array([3, 1, 2]), jnp.array([2, 5]))
    Array([1, 3, 5], dtype=int32)
    """
    ar1, ar2, size = _pair("setxor1d", ar1, ar2, size)
    split = ar1.size
    a, b = promote_dtypes(ar1, ar2)
    values, places = _joined(a, b)
    count = values.size
    if count == 0:
        return _chosen(values, lax.full((0,), False, np.bool_), size, fill_value)
    second = lax.ge(places, lax.full_like(places, split))
    new_value = _with_first(_shift_differs(values, True))
    new = lax.bitwise_or(new_value, _with_first(_shift_differs(second, False)))
    runs = _runs(new_value)
    none = lax.full((count,), False, np.bool_)
    sides = [none.at[runs].max(side).at[runs].get(mode="clip")
             for side in (second, lax.bitwise_not(second))]
    # A NaN is in no other array.
    common = lax.bitwise_and(lax.bitwise_and(*sides), lax.eq(values, values))
    mask = lax.bitwise_and(new, lax.bitwise_not(common))
    return _chosen(values, mask, size, fill_value)


_ISIN = ("compare_all", "binary_search", "sort", "auto")
# Elements to compare with for which comparing with all is fastest.
_FEW = 32


@jit(static_argnames=("assume_unique", "invert", "method"))
def isin(
    element: ArrayLike, test_elements: ArrayLike, assume_unique: bool = False,
    invert: bool = False, *, method: str = "auto",
) -> Array:
    """Whether each element of an array is among those of another.

    Args:
      element: array of any shape.
      test_elements: array of any shape.
      assume_unique: promises that neither has an element twice; nothing depends on it here.
      invert: whether to give the opposite.
      method: "compare_all", "binary_search" in the sorted `test_elements`, "sort" (sorts both
        together), or "auto".

    Returns booleans of the shape of `element`. NaN is among no elements.

    >>> jnp.isin(jnp.array([1, 2, 3]), jnp.array([2, 5]))
    Array([False,  True, False], dtype=bool)
    """
    x, among = ensure_arrays("isin", element, test_elements)
    if method not in _ISIN:
        raise ValueError(f"method={method!r} is not implemented; options are {', '.join(map(repr, _ISIN))}")
    x, among = promote_dtypes(x, _flat(among))
    count = among.size
    if method == "auto":
        method = "compare_all" if count <= _FEW else "binary_search"
    if count == 0:
        found = lax.full(x.shape, False, np.bool_)
    elif method == "compare_all":
        shape = (*x.shape, count)
        wide = lax.broadcast_in_dim(x, shape, tuple(range(x.ndim)))
        found = lax.eq(wide, lax.broadcast_in_dim(among, shape, (x.ndim,)))
        found = lax.reduce_or(found, (x.ndim,))
    else:
        among = sort(among)
        places = searchsorted(among, x, method="sort" if method == "sort" else "scan")
        found = lax.eq(among.at[places].get(mode="clip"), x)
    return lax.bitwise_not(found) if invert else found
