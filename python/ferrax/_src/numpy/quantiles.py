"""Medians, quantiles and percentiles, by sorting.

Invariant: a NaN in a line makes its quantiles NaN; the nan variants sort NaNs to the end and count
the numbers before them.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ferrax._src.core import Array, as_array
from ferrax._src.core.typing import ArrayLike, Axis
from ferrax._src.lax import api as lax
from ferrax._src.lax.gather_scatter import gather
from ferrax._src.lax.out_sharding import with_out_sharding
from ferrax._src.numpy import cumulative, reductions, ufuncs
from ferrax._src.numpy.util import (
    check_array_like,
    convert,
    ensure_arrays,
    is_subdtype,
    normalize_axis,
    promote_dtypes_inexact,
    where as select_where,
)
from ferrax._src.transforms.batching import vmap
from ferrax._src.transforms.jit import jit

_METHODS = ("linear", "lower", "higher", "midpoint", "nearest", "inverted_cdf")


def _constant(value, like) -> Array:
    return as_array(np.asarray(value, like.dtype))


def _lines(a, weights, axis):
    """The array (and weights) with one axis to reduce, that axis, and the axes it stands for."""
    if axis is None:
        axes = tuple(range(a.ndim))
        flat = [None if x is None else lax.reshape(x, (x.size,)) for x in (a, weights)]
        return *flat, 0, axes
    if not isinstance(axis, tuple):
        axis = normalize_axis(axis, a.ndim)
        return a, weights, axis, (axis,)
    axes = tuple([normalize_axis(d, a.ndim) for d in axis])
    if len(set(axes)) != len(axes):
        raise ValueError("repeated axis")
    kept = [d for d in range(a.ndim) if d not in axes]
    shape = (*[a.shape[d] for d in kept], math.prod([a.shape[d] for d in axes]))

    def together(x):
        return None if x is None else lax.reshape(lax.transpose(x, (*kept, *axes)), shape)

    return together(a), together(weights), len(kept), axes


def _at_shared(x: Array, places: Array, axis: int) -> Array:
    """The slices of `x` at places along an axis; the axes of `places` are in front."""
    rest = x.ndim - 1
    numbers = lax.GatherDimensionNumbers(
        tuple(range(places.ndim, places.ndim + rest)), (axis,), (axis,)
    )
    sizes = tuple([1 if d == axis else size for d, size in enumerate(x.shape)])
    indices = lax.expand_dims(places, (places.ndim,))
    return gather(x, indices, numbers, sizes, mode="promise_in_bounds")


def _at_own(x: Array, places: Array, axis: int) -> Array:
    """For each line along an axis its elements at places of its own: `places` has the axes of `x`
    without `axis` behind others, as the result has."""
    others = tuple(d for d in range(x.ndim) if d != axis)
    lead = places.ndim - len(others)
    numbers = lax.GatherDimensionNumbers(
        (), (axis,), (axis,), others, tuple(range(lead, places.ndim))
    )
    indices = lax.expand_dims(places, (places.ndim,))
    return gather(x, indices, numbers, (1,) * x.ndim, mode="promise_in_bounds")


def _between(low, high, high_weight, method) -> Array:
    """The value between two elements; the weight has the first axes of these."""
    if method == "lower":
        return low
    if method == "higher":
        return high
    if method == "midpoint":
        return lax.mul(lax.add(low, high), _constant(0.5, low))
    weight = lax.broadcast_in_dim(high_weight, low.shape, tuple(range(high_weight.ndim)))
    if method == "nearest":
        return lax.select(lax.le(weight, lax.full_like(weight, 0.5)), low, high)
    low_weight = lax.sub(lax.full_like(weight, 1), weight)
    # In the dtype of `q`, be it the narrower one. Infinite elements without a weight do not count.
    parts = [
        select_where(lax.eq(w, lax.full_like(w, 0)), lax.full_like(w, 0), lax.mul(convert(x, w.dtype), w))
        for x, w in ((low, low_weight), (high, weight))
    ]
    return convert(lax.add(*parts), low.dtype)


def _weighted(a: Array, weights: Array, q: Array, axis: int, ignore_nan: bool) -> Array:
    """The least element up to which the weights sum to a part `q` of all; for each q, in front.

    Negative and NaN weights make the result NaN; so do NaNs of `a` unless they are ignored.
    """
    a, weights = lax.sort((a, weights), dimension=axis)
    zeros = lax.full_like(weights, 0)
    bad = lax.bitwise_or(lax.lt(weights, zeros), ufuncs.isnan(weights))
    missing = ufuncs.isnan(a)
    sums = cumulative.cumsum(
        select_where(lax.bitwise_or(bad, missing), zeros, weights), axis=axis
    )
    total = lax.index_in_dim(sums, a.shape[axis] - 1, axis, keepdims=True)
    count = reductions.sum(lax.bitwise_not(missing), axis=axis, keepdims=True, dtype=np.int32)
    last = lax.max(lax.sub(count, as_array(np.int32(1))), as_array(np.int32(0)))
    poisoned = reductions.any(bad, axis=axis, keepdims=True)
    if not ignore_nan:
        poisoned = lax.bitwise_or(poisoned, reductions.any(missing, axis=axis, keepdims=True))

    def one(part):
        before = sums < part * total
        place = reductions.sum(before, axis=axis, keepdims=True, dtype=np.int32)
        value = _at_own(a, lax.squeeze(lax.min(place, last), (axis,)), axis)
        return select_where(lax.squeeze(poisoned, (axis,)), _constant(np.nan, a), value)

    if q.ndim == 0:
        return one(q)

    return vmap(one)(q)


def _quantile(a, q, axis, method, keepdims, ignore_nan, weights=None) -> Array:
    if method not in _METHODS:
        raise ValueError(
            f"method can only be {', '.join(map(repr, _METHODS[:-1]))} or {_METHODS[-1]!r}, got "
            f"{method!r}"
        )
    if weights is not None and method != "inverted_cdf":
        raise NotImplementedError(
            f"quantile: weights are for the method 'inverted_cdf', got {method!r}"
        )
    (a,) = promote_dtypes_inexact(a)
    if is_subdtype(a, np.complexfloating):
        raise ValueError(
            "quantile: complex numbers have no order, got complex input"
        )
    if q.ndim > 1:
        raise ValueError(f"quantile: q has to be a scalar or a vector, got shape {tuple(q.shape)}")
    if weights is not None:
        a, weights = _broadcast_weights(a, weights, axis)
    elif method == "inverted_cdf":
        weights = lax.full_like(a, 1)
    whole = a.ndim
    a, weights, axis, axes = _lines(a, weights, axis)
    if a.shape[axis] == 0 and all(size for d, size in enumerate(a.shape) if d != axis):
        raise TypeError(f"quantiles of nothing: got an axis of size 0 in shape {tuple(a.shape)}")
    if not ignore_nan:
        bad = reductions.any(ufuncs.isnan(a), axis=axis, keepdims=True)
        a = select_where(bad, _constant(np.nan, a), a)
    if weights is not None:
        result = _weighted(a, weights, q, axis, ignore_nan)
    else:
        result = _of_sorted(lax.sort(a, dimension=axis), q, axis, method, ignore_nan)
    if keepdims:
        kept = [d + q.ndim for d in range(whole) if d not in axes]
        sizes = list(result.shape[: q.ndim]) + [1] * whole
        for place, size in zip(kept, result.shape[q.ndim :]):
            sizes[place] = size
        result = lax.broadcast_in_dim(result, sizes, (*range(q.ndim), *kept))
    return result


def _of_sorted(a, q, axis, method, ignore_nan) -> Array:
    """Quantiles along an axis of sorted lines; the axis of `q` is in front."""
    shape = tuple([size for d, size in enumerate(a.shape) if d != axis])
    last = _constant(a.shape[axis] - 1, q)
    if ignore_nan:
        count = reductions.sum(lax.bitwise_not(ufuncs.isnan(a)), axis=axis, dtype=q.dtype)
        full = (*q.shape, *shape)
        q = lax.broadcast_in_dim(q, full, tuple(range(q.ndim)))
        last = lax.sub(count, lax.full_like(count, 1))
        last = lax.broadcast_in_dim(last, full, tuple(range(len(full) - len(shape), len(full))))
    at = lax.mul(q, last)
    low, high = lax.floor(at), lax.ceil(at)
    high_weight = lax.sub(at, low)
    take = _at_own if ignore_nan else _at_shared

    def value(place):
        place = lax.max(_constant(0, place), lax.min(place, last))
        return take(a, lax.convert_element_type(place, np.int32), axis)

    return _between(value(low), value(high), high_weight, method)


def _broadcast_weights(a, weights, axis):
    if axis is None:
        if weights.shape != a.shape:
            raise ValueError(
                f"quantile: without an axis, weights need the shape of a, {tuple(a.shape)}, got "
                f"{tuple(weights.shape)}"
            )
    elif weights.shape != a.shape:
        axes = axis if isinstance(axis, tuple) else (axis,)
        axes = tuple([normalize_axis(d, a.ndim) for d in axes])
        if tuple(weights.shape) != tuple([a.shape[d] for d in axes]):
            raise ValueError(
                f"the shape of weights must be that of 'a' along the axes {axes}, got "
                f"{tuple(weights.shape)} for {tuple(a.shape)}"
            )
        order = sorted(range(len(axes)), key=lambda i: axes[i])
        weights = lax.broadcast_in_dim(lax.transpose(weights, order), a.shape, sorted(axes))
    if is_subdtype(weights, np.complexfloating):
        raise ValueError(f"quantile: weights have to be real, got {weights.dtype}")
    return a, weights if is_subdtype(weights, np.floating) else convert(weights, a.dtype)


def _quantile_of(name, a, q, axis, out, overwrite_input, method, keepdims, weights) -> Array:
    given = (a, q) if weights is None else (a, q, weights)
    a, q, *rest = ensure_arrays(name, *given)
    if overwrite_input or out is not None:
        raise ValueError(
            f"{name}: arrays are immutable, so leave out overwrite_input and out"
        )
    if not is_subdtype(q, np.floating):
        raise TypeError(f"{name} takes q in a floating dtype, got {q.dtype}")
    weights = rest[0] if rest else None
    return _quantile(a, q, axis, method, keepdims, name.startswith("nan"), weights)


def _hundredths(name, q) -> Array:
    (q,) = promote_dtypes_inexact(*ensure_arrays(name, q))
    return lax.div(q, _constant(100, q))


_STATIC = ("axis", "overwrite_input", "method", "keepdims")


@jit(static_argnames=_STATIC)
def quantile(
    a: ArrayLike, q: ArrayLike, axis: Axis | None = None, out: None = None,
    overwrite_input: bool = False, method: str = "linear", keepdims: bool = False, *,
    weights: ArrayLike | None = None,
) -> Array:
    """Quantiles along axes: of sorted elements those at parts `q` of the way.

    Args:
      a: real array; integers become floats.
      q: parts in [0, 1], of a floating dtype: a scalar, or an array of one axis.
      axis: an axis, a tuple of axes, or None for all.
      out, overwrite_input: not supported.
      method: between two elements "linear", "lower", "higher", "midpoint" or "nearest"; or
        "inverted_cdf", the least element up to which the weights sum to `q` of all.
      keepdims: whether the axes stay, with size 1.
      weights: for "inverted_cdf" alone: of the shape of `a`, or of its axes `axis`.

    Returns an array of the (floating) dtype of `a`; the axis of `q`, if it has one, is in front.
    NaN where a line has a NaN.

    Errors: ValueError for complex arrays, other methods, `q` of more axes, weights of other shapes,
    and where `out` or `overwrite_input` is given; TypeError for `q` that is not floating and for
    quantiles of nothing; NotImplementedError for weights with other methods.

    >>> jnp.quantile(jnp.array([4.0, 1.0, 2.0]), 0.25)
    Array(1.5, dtype=float32)
    """
    return _quantile_of("quantile", a, q, axis, out, overwrite_input, method, keepdims, weights)


@jit(static_argnames=_STATIC)
def nanquantile(
    a: ArrayLike, q: ArrayLike, axis: Axis | None = None, out: None = None,
    overwrite_input: bool = False, method: str = "linear", keepdims: bool = False, *,
    weights: ArrayLike | None = None,
) -> Array:
    """As `quantile`, of the elements that are not NaN; NaN where there is none.

    Args: a, q, axis, out, overwrite_input, method, keepdims, weights: as for `quantile`, with its
    errors.

    >>> jnp.nanquantile(jnp.array([1.0, jnp.nan, 3.0]), 0.5)
    Array(2., dtype=float32)
    """
    return _quantile_of("nanquantile", a, q, axis, out, overwrite_input, method, keepdims, weights)


@jit(static_argnames=(*_STATIC, "out_sharding"))
def percentile(
    a: ArrayLike, q: ArrayLike, axis: Axis | None = None, out: None = None,
    overwrite_input: bool = False, method: str = "linear", keepdims: bool = False, *,
    weights: ArrayLike | None = None, out_sharding: Any = None,
) -> Array:
    """As `quantile`, for `q` in hundredths, of any real dtype.

    Args: a, q, axis, out, overwrite_input, method, keepdims, weights, out_sharding: as for
    `quantile`, with its errors.

    >>> jnp.percentile(jnp.array([4.0, 1.0, 2.0]), 25)
    Array(1.5, dtype=float32)
    """
    if out_sharding is not None:
        return with_out_sharding(
            "percentile", out_sharding, percentile, a, q, axis, out, overwrite_input, method, keepdims,
            weights=weights,
        )  # fmt: skip
    check_array_like("percentile", a, q)
    return quantile(a, _hundredths("percentile", q), axis, out, overwrite_input, method, keepdims,
                    weights=weights)


@jit(static_argnames=_STATIC)
def nanpercentile(
    a: ArrayLike, q: ArrayLike, axis: Axis | None = None, out: None = None,
    overwrite_input: bool = False, method: str = "linear", keepdims: bool = False, *,
    weights: ArrayLike | None = None,
) -> Array:
    """As `percentile`, of the elements that are not NaN; NaN where there is none.

    Args: a, q, axis, out, overwrite_input, method, keepdims, weights: as for `percentile`, with its
    errors.

    >>> jnp.nanpercentile(jnp.array([1.0, jnp.nan, 3.0]), 50)
    Array(2., dtype=float32)
    """
    check_array_like("nanpercentile", a, q)
    return nanquantile(a, _hundredths("nanpercentile", q), axis, out, overwrite_input, method,
                       keepdims, weights=weights)


@jit(static_argnames=("axis", "overwrite_input", "keepdims"))
def median(
    a: ArrayLike, axis: Axis | None = None, out: None = None, overwrite_input: bool = False,
    keepdims: bool = False,
) -> Array:
    """The middle element along axes, or the mean of the two in the middle; arguments and errors as
    of `quantile`.

    Args: a, axis, out, overwrite_input, keepdims: as for `quantile`.

    >>> jnp.median(jnp.array([4.0, 1.0, 2.0, 9.0]))
    Array(3., dtype=float32)
    """
    check_array_like("median", a)
    return quantile(a, 0.5, axis, out, overwrite_input, "midpoint", keepdims)


@jit(static_argnames=("axis", "overwrite_input", "keepdims"))
def nanmedian(
    a: ArrayLike, axis: Axis | None = None, out: None = None, overwrite_input: bool = False,
    keepdims: bool = False,
) -> Array:
    """As `median`, of the elements that are not NaN; NaN where there is none.

    Args: a, axis, out, overwrite_input, keepdims: as for `quantile`, with its errors.

    >>> jnp.nanmedian(jnp.array([1.0, jnp.nan, 3.0]))
    Array(2., dtype=float32)
    """
    check_array_like("nanmedian", a)
    return nanquantile(a, 0.5, axis, out, overwrite_input, "midpoint", keepdims)
