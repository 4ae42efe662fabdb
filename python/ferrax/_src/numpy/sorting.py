"""Sorting, partitioning and searching in sorted arrays.

Invariant: the order is that of `lax.sort` (NaN last, zeros of both signs equal, complex numbers by
their parts) everywhere but in `partition` and `argpartition`, whose order is `lax.top_k`'s.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ferrax._src.base import config, dtypes
from ferrax._src.core import Array, as_array
from ferrax._src.core.typing import ArrayLike, DTypeLike
from ferrax._src.lax import api as lax
from ferrax._src.numpy.util import (
    check_array_like,
    convert,
    ensure_array,
    ensure_arrays,
    is_subdtype,
    normalize_axis,
    promote_dtypes,
    user_dtype,
)
from ferrax._src.transforms.jit import jit

_INT32 = np.dtype(np.int32)


def _reject_kind_and_order(name: str, kind, order) -> None:
    if kind is not None:
        raise TypeError(
            f"{name}: there is one algorithm, so no kind={kind!r}; stable=True or False says whether"
            " equal elements keep their order."
        )
    if order is not None:
        raise TypeError(f"{name}: order={order!r} is for arrays with fields, which there are none of.")


def _along(x: Array, axis) -> tuple[Array, int]:
    """The array with its axis, flattened for None."""
    if axis is None:
        return lax.reshape(x, (x.size,)), 0
    return x, normalize_axis(axis, x.ndim)


def _places(x: Array, axis: int, dtype) -> Array:
    return lax.broadcasted_iota(dtype, x.shape, axis)


@jit(static_argnames=("axis", "kind", "order", "stable", "descending"))
def sort(
    a: ArrayLike, axis: int | None = -1, *, kind: None = None, order: None = None,
    stable: bool = True, descending: bool = False,
) -> Array:
    """A sorted copy along an axis; NaN comes last.

    Args:
      a: array of any shape but a scalar, of any dtype with an order.
      axis: the axis; None flattens first.
      kind, order: not supported.
      stable: whether equal elements keep their order.
      descending: whether the largest come first (NaN then first of all).

    Errors: TypeError for `kind` and `order`, ValueError for an axis out of bounds.

    >>> jnp.sort(jnp.array([3, 1, 2]))
    Array([1, 2, 3], dtype=int32)
    """
    _reject_kind_and_order("sort", kind, order)
    x, axis = _along(ensure_array(a, "sort"), axis)
    result = lax.sort(x, dimension=axis, is_stable=stable)
    return lax.rev(result, (axis,)) if descending else result


@jit(static_argnames=("axis", "kind", "order", "stable", "descending", "dtype"))
def argsort(
    a: ArrayLike, axis: int | None = -1, *, kind: None = None, order: None = None,
    stable: bool = True, descending: bool = False, dtype: DTypeLike | None = None,
) -> Array:
    """The places of the elements in sorted order along an axis; arguments as for `sort`.

    With `stable`, equal elements keep their order in descending order, too. The result has the
    default integer dtype, or `dtype`.

    >>> jnp.argsort(jnp.array([2, 1, 2, 1]), descending=True)
    Array([0, 2, 1, 3], dtype=int32)
    """
    _reject_kind_and_order("argsort", kind, order)
    x, axis = _along(ensure_array(a, "argsort"), axis)
    places = _places(x, axis, user_dtype(dtype, "argsort") or dtypes.default_int_dtype())
    if descending and stable:
        x, places = lax.rev(x, (axis,)), lax.rev(places, (axis,))
    _, places = lax.sort((x, places), dimension=axis, is_stable=stable)
    return lax.rev(places, (axis,)) if descending else places


@jit(static_argnames=("axis",))
def lexsort(keys: Any, axis: int = -1, *, batch_size: int = 16) -> Array:
    """The places of the elements sorted by several keys, the last of which counts first.

    Args:
      keys: a sequence of arrays of one shape, or an array whose first axis runs over keys.
      axis: the axis to sort along.
      batch_size: by how many keys JAX sorts at a time; it is by all here.

    Errors: TypeError without keys, ValueError for unequal shapes and an axis out of bounds.

    >>> jnp.lexsort((jnp.array([1, 0, 2]), jnp.array([5, 5, 4])))
    Array([2, 1, 0], dtype=int32)
    """
    keys = tuple(keys)
    if not keys:
        raise TypeError("lexsort: got no keys; at least one is needed")
    arrays = ensure_arrays("lexsort", *keys)
    if len({x.shape for x in arrays}) > 1:
        raise ValueError(
            f"lexsort: all keys need one shape, got {[tuple(x.shape) for x in arrays]}"
        )
    dtype = dtypes.default_int_dtype()
    if arrays[0].ndim == 0:
        return as_array(np.zeros((), dtype))
    axis = normalize_axis(axis, arrays[0].ndim)
    places = _places(arrays[0], axis, dtype)
    return lax.sort((*arrays[::-1], places), dimension=axis, num_keys=len(arrays))[-1]


def _halves(name: str, a, kth: int, axis: int) -> tuple[Array, int, int]:
    check_array_like(name, a)
    x = ensure_array(a, name)
    if is_subdtype(x, np.complexfloating):
        raise NotImplementedError(f"jnp.{name} for complex dtype is not implemented.")
    axis = normalize_axis(axis, x.ndim)
    return x, normalize_axis(kth, x.shape[axis]), axis


def _mirrored(x: Array) -> Array:
    """The elements in the opposite order, every one of them: -INT_MIN would be itself."""
    return lax.bitwise_not(x) if is_subdtype(x, np.integer) else lax.neg(x)


@jit(static_argnames=("kth", "axis"))
def partition(a: ArrayLike, kth: int, axis: int = -1) -> Array:
    """A copy whose `kth` element along an axis is where sorting would put it.

    The smaller elements are before it, in ascending order, and the others after it, in descending
    order.

    Args:
      a: array, not complex.
      kth: the place, static; negative ones count from the end.
      axis: the axis.

    Errors: NotImplementedError for complex arrays, TypeError for booleans, ValueError for an axis
    or a place out of bounds.

    >>> jnp.partition(jnp.array([3, 1, 2, 5, 4]), 2)
    Array([1, 2, 3, 5, 4], dtype=int32)
    """
    x, kth, axis = _halves("partition", a, kth, axis)
    x = _moved(x, axis, x.ndim - 1)
    low = _mirrored(lax.top_k(_mirrored(x), kth + 1)[0])
    high = lax.top_k(x, x.shape[-1] - kth - 1)[0]
    return _moved(lax.concatenate([low, high], x.ndim - 1), x.ndim - 1, axis)


@jit(static_argnames=("kth", "axis"))
def argpartition(a: ArrayLike, kth: int, axis: int = -1) -> Array:
    """The places of the elements of `partition`, those after `kth` in ascending order of place.

    >>> jnp.argpartition(jnp.array([3, 1, 2, 5, 4]), 2)
    Array([1, 2, 0, 3, 4], dtype=int32)
    """
    x, kth, axis = _halves("argpartition", a, kth, axis)
    x = _moved(x, axis, x.ndim - 1)
    last = x.ndim - 1
    low = lax.top_k(_mirrored(x), kth + 1)[1]
    # The places that are left are the larger of marks that are 0 where `low` is.
    rows = [lax.broadcasted_iota(_INT32, low.shape, d) for d in range(last)]
    places = (*rows, low)
    marks = lax.full(x.shape, 1, np.float32).at[places].set(0)
    high = lax.top_k(marks, x.shape[-1] - kth - 1)[1]
    return _moved(lax.concatenate([low, high], last), last, axis)


def _moved(x: Array, source: int, to: int) -> Array:
    if source == to:
        return x
    order = list(range(x.ndim))
    order.insert(to, order.pop(source))
    return lax.transpose(x, order)


@jit
def sort_complex(a: ArrayLike) -> Array:
    """A sorted copy along the last axis, in a complex dtype.

    >>> jnp.sort_complex(jnp.array([2, 1]))
    Array([1.+0.j, 2.+0.j], dtype=complex64)
    """
    x = ensure_array(a, "sort_complex")
    x = lax.sort(x, dimension=normalize_axis(-1, x.ndim))
    real = dtypes.to_inexact_dtype(x.dtype)
    with config.numpy_dtype_promotion("standard"):
        dtype = dtypes.result_type(real, np.complex64)
    return convert(x, dtype)


def _before(x: Array, y: Array, or_equal: bool) -> Array:
    """Whether `x` comes before `y` in sorted order."""
    if is_subdtype(x, np.complexfloating):
        a, b = lax.real(x), lax.real(y)
        tied = lax.bitwise_and(_before(a, b, True), _before(b, a, True))
        beside = _before(lax.imag(x), lax.imag(y), or_equal)
        return lax.bitwise_or(_before(a, b, False), lax.bitwise_and(tied, beside))
    plain = lax.le(x, y) if or_equal else lax.lt(x, y)
    if not is_subdtype(x, np.floating):
        return plain
    last = lax.ne(y, y)
    if not or_equal:
        last = lax.bitwise_and(last, lax.eq(x, x))
    return lax.bitwise_or(plain, last)


def _by_bisection(a: Array, v: Array, side: str, unroll) -> Array:
    shape = v.shape
    start = lax.full(shape, 0, np.uint32), lax.full(shape, a.shape[0], np.uint32)
    two = np.uint32(2)

    def halve(bounds, _):
        low, high = bounds
        middle = lax.add(low, lax.div(lax.sub(high, low), as_array(two)))
        left = _before(v, a.at[middle].get(mode="clip"), side == "left")
        return (lax.select(left, low, middle), lax.select(left, middle, high)), None

    # The first bound only ever reaches a.shape[0] when the difference of both is 1.
    levels = math.ceil(math.log2(a.shape[0] + 1))
    (_, high), _ = lax.scan(halve, start, None, levels, unroll=unroll)
    return high


def _by_comparing_all(a: Array, v: Array, side: str) -> Array:
    shape = (a.shape[0], *v.shape)
    column = lax.broadcast_in_dim(a, shape, (0,))
    row = lax.broadcast_in_dim(v, shape, tuple(range(1, len(shape))))
    before = _before(column, row, side == "right")
    return lax.reduce_sum(lax.convert_element_type(before, _INT32), (0,))


def _by_sorting(a: Array, v: Array, side: str) -> Array:
    flat = lax.reshape(v, (v.size,))
    both = [flat, a] if side == "left" else [a, flat]
    joined = lax.concatenate(both, 0)

    def ranks(x):
        _, order = lax.sort((x, lax.iota(_INT32, x.shape[0])))
        return lax.full(x.shape, 0, _INT32).at[order].set(lax.iota(_INT32, x.shape[0]))

    # The rank among all less the rank among the queries.
    at = 0 if side == "left" else a.shape[0]
    among_all = lax.slice(ranks(joined), (at,), (at + v.size,))
    return lax.reshape(lax.sub(among_all, ranks(flat)), v.shape)


_SEARCHES: dict[str, Callable[..., Array]] = {
    "compare_all": _by_comparing_all,
    "scan": partial(_by_bisection, unroll=1),
    "scan_unrolled": partial(_by_bisection, unroll=True),
    "sort": _by_sorting,
}


def _check_option(name: str, value, options) -> None:
    if value not in options:
        listed = list(options)
        expected = f"one of {listed}" if len(listed) > 2 else " or ".join(map(repr, listed))
        raise ValueError(f"invalid argument {name}={value!r}, expected {expected}")


@jit(static_argnames=("side", "method"))
def searchsorted(
    a: ArrayLike, v: ArrayLike, side: str = "left", sorter: ArrayLike | None = None, *,
    method: str = "scan",
) -> Array:
    """Where in a sorted array values would have to be inserted to keep it sorted.

    Args:
      a: sorted array of shape (n,), or one that `sorter` sorts.
      v: values, of any shape; both promote to one dtype.
      side: before ("left") or after ("right") elements that are equal.
      sorter: the places of the elements of `a` in sorted order, as `argsort` gives them.
      method: "scan" (bisection in a loop), "scan_unrolled", "sort" (sorts both together: faster for
        many values on some devices) or "compare_all" (for small `a`).

    Returns integers in [0, n], of the shape of `v`.

    Errors: ValueError unless `a` has one axis, and for other sides and methods.

    >>> jnp.searchsorted(jnp.array([1, 2, 3, 4, 5]), jnp.array([3, 9]))
    Array([2, 5], dtype=int32)
    """
    _check_option("side", side, ("left", "right"))
    _check_option("method", method, _SEARCHES)
    arguments = (a, v) if sorter is None else (a, v, sorter)
    a, v, *rest = ensure_arrays("searchsorted", *arguments)
    if a.ndim != 1:
        raise ValueError("a should be 1-dimensional")
    a, v = promote_dtypes(a, v)
    if rest:
        a = a[rest[0]]
    dtype = _INT32
    if a.shape[0] > np.iinfo(np.int32).max:
        dtype = dtypes.check_and_canonicalize_user_dtype(np.int64, "searchsorted")
        if dtype != np.int64:
            raise OverflowError(
                f"searchsorted: positions in an array of {a.shape[0]} elements need int64, which "
                "jax_enable_x64 allows"
            )
    if a.shape[0] == 0:
        return lax.full(v.shape, 0, dtype)
    return lax.convert_element_type(_SEARCHES[method](a, v, side), dtype)


@jit(static_argnames=("right", "method"))
def digitize(x: ArrayLike, bins: Any, right: bool = False, *, method: str | None = None) -> Array:
    """The numbers of the bins that values lie in.

    Args:
      x: values, of any shape.
      bins: edges, of shape (n,), ascending or descending.
      right: whether a bin holds its right edge, not its left one.
      method: as in `searchsorted`.

    Returns integers in [0, n] of the shape of `x`: 0 before the first edge, n after the last.

    Errors: ValueError unless `bins` has one axis.

    >>> jnp.digitize(jnp.array([0.5, 1.0, 9.0]), jnp.array([0.0, 1.0, 2.0]))
    Array([1, 2, 3], dtype=int32)
    """
    x, edges = ensure_arrays("digitize", x, bins)
    if edges.ndim != 1:
        raise ValueError(f"digitize: bins has to be a vector, got shape {tuple(edges.shape)}")
    count = edges.shape[0]
    if count == 0:
        return lax.full(x.shape, 0, _INT32)
    ascending = _before(lax.index_in_dim(edges, 0, keepdims=False),
                        lax.index_in_dim(edges, count - 1, keepdims=False), True)
    rising = lax.select_n(ascending, lax.rev(edges, (0,)), edges)
    found = searchsorted(rising, x, side="left" if right else "right", method=method or "scan")
    return lax.select_n(ascending, lax.sub(lax.full_like(found, count), found), found)
