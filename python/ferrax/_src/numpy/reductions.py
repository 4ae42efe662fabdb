"""Reductions over axes: sums, extrema, moments, positions of extrema.

Invariants: integers narrower than the default integer are summed in it, half-precision floats
accumulate in float32, results are strongly typed.
"""

from __future__ import annotations

import builtins
import math
import operator
from typing import Any, Literal, overload

import numpy as np

from ferrax._core import ufuncs
from ferrax._src.base import dtypes
from ferrax._src.base.traceback_util import bounded, leave
from ferrax._src.core import Array, as_array, is_concrete
from ferrax._src.core.dim_values import size_as
from ferrax._src.core.typing import ArrayLike, Axis, DTypeLike
from ferrax._src.lax import api as lax
from ferrax._src.numpy.ufuncs import isnan
from ferrax._src.numpy.util import (
    broadcast_to,
    check_array_like,
    convert,
    ensure_array,
    is_subdtype,
    normalize_axes,
    normalize_axis,
    promote_dtypes_inexact,
    real_dtype,
    reject_out,
    user_dtype,
    where as select_where,
)
from ferrax._src.transforms.jit import jit

_REDUCERS = {
    "sum": lax.reduce_sum,
    "prod": lax.reduce_prod,
    "max": lax.reduce_max,
    "min": lax.reduce_min,
    "any": lax.reduce_or,
    "all": lax.reduce_and,
}


def _keep_dims(x, axes, shape):
    sizes, places = list(shape), []
    for axis in range(len(shape)):
        if axis in axes:
            sizes[axis] = 1
        else:
            places.append(axis)
    return lax.broadcast_in_dim(x, tuple(sizes), tuple(places))


def _summation_dtype(dtype):
    """Accumulation dtype of sum and prod without `dtype=`: small integers are widened."""
    if dtypes.issubdtype(dtype, np.inexact):
        return dtype
    if dtypes.issubdtype(dtype, np.bool_):
        return dtypes.default_int_dtype()
    if dtypes.issubdtype(dtype, np.unsignedinteger):
        default = dtypes.default_uint_dtype()
    elif dtypes.issubdtype(dtype, np.integer):
        default = dtypes.default_int_dtype()
    else:
        return dtype
    return default if np.iinfo(default).bits > dtypes.iinfo(dtype).bits else dtype


_HALVES = frozenset(map(np.dtype, (np.float16, dtypes.bfloat16)))
_FLOAT32, _BOOL = np.dtype(np.float32), np.dtype(bool)


def _upcast_half(dtype):
    return _FLOAT32 if dtype in _HALVES else dtype


def _is_sum_like(name):
    return name in ("sum", "prod")


def _identity(name, dtype):
    if name == "sum" or name == "any":
        return np.zeros((), dtype)
    if name == "prod" or name == "all":
        return np.ones((), dtype)
    if dtypes.issubdtype(dtype, np.bool_):
        return np.asarray(name == "min", dtype)
    if dtypes.issubdtype(dtype, np.integer):
        info = dtypes.iinfo(dtype)
        return np.asarray(info.min if name == "max" else info.max, dtype)
    return np.asarray(-math.inf if name == "max" else math.inf, dtype)


def _reduce(name, a, axis, dtype, out, keepdims, initial, where, promote_integers=True,
            upcast=True):
    reject_out(name, out)
    a = ensure_array(a, name)
    if initial is not None:
        check_array_like(name, initial)
    shape = a.shape
    axes = normalize_axes(axis, len(shape))
    sums = _is_sum_like(name)
    if initial is None and name in ("max", "min"):
        if builtins.any(shape[d] == 0 for d in axes):
            raise ValueError(
                f"zero-size array to reduction operation {name} which has no identity: pass "
                "initial="
            )
        if where is not None:
            raise ValueError(
                f"reduction operation {name} does not have an identity, which where= needs for"
                " elements that are left out: pass initial="
            )
    if name in ("any", "all"):
        result_dtype = _BOOL
    elif dtype is not None:
        result_dtype = dtype
    elif promote_integers and sums:
        result_dtype = _summation_dtype(a.dtype)
    else:
        result_dtype = a.dtype
    compute_dtype = _upcast_half(result_dtype) if upcast and sums else result_dtype
    a = convert(a, compute_dtype)
    if where is not None:
        mask = ensure_array(where, name)
        if not dtypes.issubdtype(mask.dtype, np.bool_):
            raise ValueError(
                f"The where argument to {name} must be boolean, got {mask.dtype}"
            )
        a = select_where(mask, a, as_array(_identity(name, a.dtype)))
        shape = a.shape
    reducer = name
    if compute_dtype == _BOOL:
        reducer = {"sum": "any", "prod": "all"}.get(name, name)
    result = _REDUCERS[reducer](a, tuple(sorted(axes)))
    if initial is not None:
        combine = {"sum": lax.add, "prod": lax.mul, "max": lax.max, "min": lax.min}[name]
        start = convert(as_array(initial), compute_dtype)
        if start.ndim:
            raise ValueError(f"initial has to be a scalar, got shape {start.shape}")
        result = combine(start, result)
    if keepdims:
        result = _keep_dims(result, axes, shape)
    return convert(result, result_dtype)


@bounded
def sum(
    a: ArrayLike, axis: Axis | None = None, dtype: DTypeLike | None = None, out: None = None,
    keepdims: bool = False, initial: ArrayLike | None = None, where: ArrayLike | None = None,
    promote_integers: bool = True,
) -> Array:
    """Sums elements over axes.

    Args: a: array; axis: None (all), an axis or a tuple; dtype: result dtype; keepdims: keep
    reduced axes with size 1; initial: scalar added to the sum; where: bool mask that broadcasts
    with `a`; promote_integers: widen small integers to the default integer dtype.
    Raises: ValueError for axes out of bounds or repeated; NotImplementedError for `out`.

    Floats are added as a tree that the number n of terms determines, whatever the axis: blocks of
    256 terms in 16 lanes, then blocks in pairs. The error is at most
    `(19 + log2(max(1, n / 128))) u` times the sum of the magnitudes, where u is half of
    `finfo(dtype).eps`; `float16` and `bfloat16` are added in `float32` and rounded once (Higham,
    Accuracy and Stability of Numerical Algorithms, 2nd ed., section 4.2). Threads do not change bits.

    >>> jnp.sum(jnp.ones((2, 3)), axis=0)
    Array([2., 2., 2.], dtype=float32)
    """
    try:
        if out is None and _is_static(axis):
            return _sum(a, axis, dtype, keepdims, initial, where, promote_integers)
        return _reduce("sum", a, axis, user_dtype(dtype, "sum"), out, keepdims, initial, where,
                       promote_integers)
    except Exception:
        leave()
        raise


def _is_static(axis) -> bool:
    """Whether an `axis` can be a static argument as it is."""
    if type(axis) is tuple:
        return not builtins.any(isinstance(a, Array) for a in axis)
    return axis is None or type(axis) is int


_AXES = ("axis", "keepdims")
_jit_reduction = jit(static_argnames=_AXES, inline=True)


@jit(static_argnames=(*_AXES, "dtype", "promote_integers"), inline=True)
def _sum(a, axis, dtype, keepdims, initial, where, promote_integers):
    return _reduce("sum", a, axis, user_dtype(dtype, "sum"), None, keepdims, initial, where,
                   promote_integers)


@_jit_reduction
def _max(a, axis, keepdims, initial, where):
    return _reduce("max", a, axis, None, None, keepdims, initial, where)


@_jit_reduction
def _min(a, axis, keepdims, initial, where):
    return _reduce("min", a, axis, None, None, keepdims, initial, where)


@_jit_reduction
def _any(a, axis, keepdims, where):
    return _reduce("any", a, axis, None, None, keepdims, None, where)


@_jit_reduction
def _all(a, axis, keepdims, where):
    return _reduce("all", a, axis, None, None, keepdims, None, where)


@bounded
def prod(
    a: ArrayLike, axis: Axis | None = None, dtype: DTypeLike | None = None, out: None = None,
    keepdims: bool = False, initial: ArrayLike | None = None, where: ArrayLike | None = None,
    promote_integers: bool = True,
) -> Array:
    """Multiplies elements over axes, in the order of `sum`.

    The rounding of each of the n factors counts, in whatever order: the relative error of a product
    of floats is at most about n u.

    Args: a, axis, dtype, out, keepdims, initial, where, promote_integers: as for `sum`, with its
    errors; `initial` multiplies.

    >>> jnp.prod(jnp.array([2, 3, 4]))
    Array(24, dtype=int32)
    """
    try:
        return _reduce("prod", a, axis, user_dtype(dtype, "prod"), out, keepdims, initial, where,
                       promote_integers)
    except Exception:
        leave()
        raise


@bounded
def max(
    a: ArrayLike, axis: Axis | None = None, out: None = None, keepdims: bool = False,
    initial: ArrayLike | None = None, where: ArrayLike | None = None,
) -> Array:
    """Largest elements over axes; NaN wins. An empty reduction without `initial` raises.

    Args: a: array; axis: None (all), an axis or a tuple; keepdims: keep reduced axes with size 1;
    initial: a lower bound of the result; where: bool mask, needs `initial`. Raises: ValueError for
    an empty reduction, axes out of bounds and `where` alone; NotImplementedError for `out`.

    >>> jnp.max(jnp.array([[1, 5], [7, 2]]), axis=1)
    Array([5, 7], dtype=int32)
    """
    try:
        if out is None and _is_static(axis):
            return _max(a, axis, keepdims, initial, where)
        return _reduce("max", a, axis, None, out, keepdims, initial, where)
    except Exception:
        leave()
        raise


@bounded
def min(
    a: ArrayLike, axis: Axis | None = None, out: None = None, keepdims: bool = False,
    initial: ArrayLike | None = None, where: ArrayLike | None = None,
) -> Array:
    """Smallest elements over axes; NaN wins. An empty reduction without `initial` raises.

    Args: a, axis, keepdims, where: as for `max`, with its errors; initial: an upper bound of the
    result.

    >>> jnp.min(jnp.array([[1, 5], [7, 2]]), axis=1)
    Array([1, 2], dtype=int32)
    """
    try:
        if out is None and _is_static(axis):
            return _min(a, axis, keepdims, initial, where)
        return _reduce("min", a, axis, None, out, keepdims, initial, where)
    except Exception:
        leave()
        raise


def amax(
    a: ArrayLike, axis: Axis | None = None, out: None = None, keepdims: bool = False,
    initial: ArrayLike | None = None, where: ArrayLike | None = None,
) -> Array:
    """`max` under its longer name.

    Args: a, axis, out, keepdims, initial, where: as for `max`, with its errors.

    >>> jnp.amax(jnp.array([1, 5, 2]))
    Array(5, dtype=int32)
    """
    return max(a, axis, out, keepdims, initial, where)


def amin(
    a: ArrayLike, axis: Axis | None = None, out: None = None, keepdims: bool = False,
    initial: ArrayLike | None = None, where: ArrayLike | None = None,
) -> Array:
    """`min` under its longer name.

    Args: a, axis, out, keepdims, initial, where: as for `min`, with its errors.

    >>> jnp.amin(jnp.array([1, 5, 2]))
    Array(1, dtype=int32)
    """
    return min(a, axis, out, keepdims, initial, where)


@bounded
def any(  # noqa: A001
    a: ArrayLike, axis: Axis | None = None, out: None = None, keepdims: bool = False, *,
    where: ArrayLike | None = None,
) -> Array:
    """True where some element over the axes is non-zero. Returns bool.

    Args: a: array of any dtype; axis: None (all), an axis or a tuple; keepdims: keep reduced axes
    with size 1; where: bool mask of the elements that count. Raises: ValueError for axes out of
    bounds, NotImplementedError for `out`.

    >>> jnp.any(jnp.array([[0, 1], [0, 0]]), axis=1)
    Array([ True, False], dtype=bool)
    """
    try:
        if out is None and _is_static(axis):
            return _any(a, axis, keepdims, where)
        return _reduce("any", a, axis, None, out, keepdims, None, where)
    except Exception:
        leave()
        raise


@bounded
def all(  # noqa: A001
    a: ArrayLike, axis: Axis | None = None, out: None = None, keepdims: bool = False, *,
    where: ArrayLike | None = None,
) -> Array:
    """True where every element over the axes is non-zero. Returns bool.

    Args: a: array of any dtype; axis: None (all), an axis or a tuple; keepdims: keep reduced axes
    with size 1; where: bool mask of the elements that count. Raises: ValueError for axes out of
    bounds, NotImplementedError for `out`.

    >>> jnp.all(jnp.array([[0, 1], [1, 1]]), axis=1)
    Array([False,  True], dtype=bool)
    """
    try:
        if out is None and _is_static(axis):
            return _all(a, axis, keepdims, where)
        return _reduce("all", a, axis, None, out, keepdims, None, where)
    except Exception:
        leave()
        raise


def _axis_size(a, axis):
    return math.prod(a.shape[d] for d in normalize_axes(axis, a.ndim))


def _count(a, axis, where, dtype, keepdims):
    """Number of elements that a mean divides by: a scalar, or counts of a mask."""
    if where is None:
        return as_array(size_as(_axis_size(a, axis), dtype))
    mask = broadcast_to(ensure_array(where, "mean"), a.shape)
    return sum(convert(convert(mask, np.dtype(np.int32)), dtype), axis, dtype=dtype,
               keepdims=keepdims)


def _mean(a, axis, dtype, out, keepdims, where, upcast=True):
    reject_out("mean", out)
    a = ensure_array(a, "mean")
    result_dtype = dtypes.to_inexact_dtype(a.dtype) if dtype is None else dtype
    compute_dtype = _upcast_half(result_dtype) if upcast else result_dtype
    normalizer = _count(a, axis, where, compute_dtype, keepdims)
    total = _reduce("sum", a, axis, compute_dtype, None, keepdims, None, where)
    return convert(lax.div(total, normalizer), result_dtype)


@bounded
def mean(
    a: ArrayLike, axis: Axis | None = None, dtype: DTypeLike | None = None, out: None = None,
    keepdims: bool = False, *, where: ArrayLike | None = None,
) -> Array:
    """Arithmetic mean over axes; integers give floats; an empty mean is NaN.

    Args: a, axis, dtype, out, keepdims, where: as for `sum`, with its errors.

    >>> jnp.mean(jnp.arange(4))
    Array(1.5, dtype=float32)
    """
    try:
        if out is None and _is_static(axis):
            return _mean_jit(a, axis, dtype, keepdims, where)
        return _mean(a, axis, user_dtype(dtype, "mean"), out, keepdims, where)
    except Exception:
        leave()
        raise


@jit(static_argnames=(*_AXES, "dtype"), inline=True)
def _mean_jit(a, axis, dtype, keepdims, where):
    return _mean(a, axis, user_dtype(dtype, "mean"), None, keepdims, where)


@overload
def average(
    a: ArrayLike, axis: Axis | None = None, weights: ArrayLike | None = None,
    returned: Literal[False] = False, keepdims: bool = False,
) -> Array: ...
@overload
def average(
    a: ArrayLike, axis: Axis | None = None, weights: ArrayLike | None = None, *,
    returned: Literal[True], keepdims: bool = False,
) -> tuple[Array, Array]: ...
@overload
def average(
    a: ArrayLike, axis: Axis | None = None, weights: ArrayLike | None = None,
    returned: bool = False, keepdims: bool = False,
) -> Any: ...
def average(
    a: ArrayLike, axis: Axis | None = None, weights: ArrayLike | None = None,
    returned: bool = False, keepdims: bool = False,
) -> Array | tuple[Array, Array]:
    """Weighted mean over axes.

    Args: weights: None, or an array of the shape of `a`, or 1-d along one `axis`;
    returned: also return the sum of weights. Raises ValueError for mismatched shapes.

    a: array; axis: None (all), an axis or a tuple; keepdims: keep reduced axes with size 1.

    >>> jnp.average(jnp.array([1.0, 4.0]), weights=jnp.array([2, 1]))
    Array(2., dtype=float32)
    """
    a = ensure_array(a, "average")
    if weights is None:
        result = mean(a, axis=axis, keepdims=keepdims)
        count = as_array(size_as(_axis_size(a, axis), result.dtype))
        return (result, lax.full_like(result, count)) if returned else result
    weights = ensure_array(weights, "average")
    a, weights = promote_dtypes_inexact(a, weights)
    if a.shape != weights.shape:
        if axis is None:
            raise ValueError(f"average: weights of shape {tuple(weights.shape)} need an axis of a, which"
                             f" has shape {tuple(a.shape)}")
        if isinstance(axis, tuple):
            axes = normalize_axes(axis, a.ndim)
            if weights.shape != tuple(a.shape[d] for d in axes):
                raise ValueError(
                    f"average: weights of shape {tuple(weights.shape)} do not fit a of shape"
                    f" {tuple(a.shape)} along the axes {axis}"
                )
        else:
            if weights.ndim != 1:
                raise ValueError(f"average: expected weights of shape {tuple(a.shape)} or a vector for axis"
                                 f" {axis}, got shape {tuple(weights.shape)}")
            axes = (normalize_axis(axis, a.ndim),)
            if weights.shape[0] != a.shape[axes[0]]:
                raise ValueError(f"average: expected {a.shape[axes[0]]} weights for axis {axis} of a, got"
                                 f" {weights.shape[0]}")
        order = sorted(range(len(axes)), key=axes.__getitem__)
        weights = lax.transpose(weights, order) if len(order) > 1 else weights
        weights = lax.broadcast_in_dim(weights, a.shape, tuple(sorted(axes)))
    scale = sum(weights, axis=axis, keepdims=keepdims)
    total = sum(lax.mul(a, weights), axis=axis, keepdims=keepdims)
    result = lax.div(total, scale)
    return (result, broadcast_to(scale, result.shape)) if returned else result


# ---------------------------------------------------------------------------- moments


def _var_dtypes(a_dtype, dtype):
    """(computation dtype of deviations, result dtype); moments of complex input are real."""
    if dtype is not None:
        if (not dtypes.issubdtype(dtype, np.complexfloating)
                and dtypes.issubdtype(a_dtype, np.complexfloating)):
            raise ValueError(
                f"var, std: the real dtype {dtype} cannot hold the differences of complex elements"
                f" ({a_dtype}) that are summed; pass a complex dtype, or none."
            )
        inexact = dtypes.to_inexact_dtype(dtype)
        compute = dtypes.promote_types(a_dtype, inexact)
        result = real_dtype(inexact)
    else:
        compute = dtypes.to_inexact_dtype(a_dtype)
        result = real_dtype(compute)
    return _upcast_half(compute), result


def _squared_deviation(a, center):
    centered = lax.sub(a, center)
    if is_subdtype(centered, np.complexfloating):
        return lax.real(lax.mul(centered, lax.conj(centered)))
    return lax.square(centered)


@jit(static_argnames=("axis", "dtype", "keepdims"))
def _var(a, axis=None, dtype=None, correction=0, keepdims=False, where=None, mean=None):
    compute_dtype, result_dtype = _var_dtypes(a.dtype, dtype)
    a = convert(a, compute_dtype)
    if mean is None:
        mean = _mean(a, axis, compute_dtype, None, True, where)
    mean = broadcast_to(convert(mean, compute_dtype), _broadcast_shape(a, mean))
    squares = _squared_deviation(a, mean)
    normalizer = _count(a, axis, where, squares.dtype, keepdims)
    normalizer = ufuncs.subtract(normalizer, convert(correction, squares.dtype))
    total = _reduce("sum", squares, axis, squares.dtype, None, keepdims, None, where)
    result = convert(lax.div(total, normalizer), result_dtype)
    positive = lax.gt(normalizer, as_array(np.zeros((), normalizer.dtype)))
    return select_where(positive, result, float("nan"))


def _broadcast_shape(a, mean):
    return tuple(mean.shape) if len(mean.shape) in (0, a.ndim) else lax.broadcast_shapes(
        a.shape, mean.shape)


@jit(static_argnames=("axis", "dtype", "keepdims"))
def _std(a, axis=None, dtype=None, correction=0, keepdims=False, where=None, mean=None):
    return lax.sqrt(_var(a, axis, dtype, correction, keepdims, where, mean))


def _moment(name, function, a, axis, dtype, out, ddof, keepdims, where, mean, correction):
    reject_out(name, out)
    if correction is None:
        correction = ddof
    elif ddof != 0:
        raise ValueError(f"{name}: ddof={ddof} and correction={correction} mean the same; pass one")
    a = ensure_array(a, name)
    axes = None if axis is None else normalize_axes(axis, a.ndim)
    return function(a, axes, user_dtype(dtype, name), correction, bool(keepdims), where, mean)


def var(
    a: ArrayLike, axis: Axis | None = None, dtype: DTypeLike | None = None, out: None = None,
    ddof: int | float = 0, keepdims: bool = False, *, where: ArrayLike | None = None,
    mean: Any = None, correction: int | float | None = None,
) -> Array:
    """Variance over axes; the divisor is the count minus `ddof` (or `correction`).

    Args: a, axis, dtype, out, keepdims, where: as for `mean`, with its errors; mean: the mean, if
    known, with reduced axes kept. A divisor that is not positive gives NaN. Complex input gives a
    real result.

    >>> jnp.var(jnp.array([1.0, 3.0]))
    Array(1., dtype=float32)
    >>> jnp.var(jnp.array([1.0, 3.0]), ddof=1)
    Array(2., dtype=float32)
    """
    return _moment("var", _var, a, axis, dtype, out, ddof, keepdims, where, mean, correction)


def std(
    a: ArrayLike, axis: Axis | None = None, dtype: DTypeLike | None = None, out: None = None,
    ddof: int | float = 0, keepdims: bool = False, *, where: ArrayLike | None = None,
    mean: Any = None, correction: int | float | None = None,
) -> Array:
    """Standard deviation over axes: the square root of `var`, with its arguments.

    Args: a, axis, dtype, out, ddof, keepdims, where, mean, correction: as for `var`, with its
    errors.

    >>> jnp.std(jnp.array([1.0, 3.0]))
    Array(1., dtype=float32)
    """
    return _moment("std", _std, a, axis, dtype, out, ddof, keepdims, where, mean, correction)


@jit(static_argnames=("axis", "keepdims"))
def _ptp(a, axis=None, keepdims=False):
    return lax.sub(max(a, axis, keepdims=keepdims), min(a, axis, keepdims=keepdims))


def ptp(a: ArrayLike, axis: Axis | None = None, out: None = None, keepdims: bool = False) -> Array:
    """Range (maximum minus minimum) over axes.

    Args: a, axis, out, keepdims: as for `max`, with its errors.

    >>> jnp.ptp(jnp.array([3, 9, 4]))
    Array(6, dtype=int32)
    """
    reject_out("ptp", out)
    a = ensure_array(a, "ptp")
    return _ptp(a, None if axis is None else normalize_axes(axis, a.ndim), bool(keepdims))


@jit(static_argnames=("axis", "keepdims"))
def count_nonzero(a: ArrayLike, axis: Axis | None = None, keepdims: bool = False) -> Array:
    """Number of non-zero elements over axes, in the default integer dtype.

    Args: a: array of any dtype; axis: None (all), an axis or a tuple; keepdims: keep reduced axes
    with size 1.

    >>> jnp.count_nonzero(jnp.array([[0, 1], [2, 3]]), axis=0)
    Array([1, 2], dtype=int32)
    """
    a = ensure_array(a, "count_nonzero")
    non_zero = lax.ne(a, as_array(np.zeros((), a.dtype)))
    return sum(non_zero, axis=axis, keepdims=keepdims)


# ---------------------------------------------------------------------------- arg-extrema


def _arg_extremum(name, function, a, axis, out, keepdims):
    reject_out(name, out)
    a = ensure_array(a, name)
    shape = a.shape
    if axis is None:
        flat, axis, rank = lax.reshape(a, (a.size,)) if a.ndim != 1 else a, 0, None
    else:
        flat, axis = a, normalize_axis(axis, a.ndim)
        rank = axis
    if flat.shape[axis] == 0:
        raise ValueError(f"attempt to get {name} of an empty sequence")
    result = function(flat, axis, dtypes.default_int_dtype())
    if keepdims:
        kept = (1,) * len(shape) if rank is None else tuple(
            1 if d == rank else size for d, size in enumerate(shape))
        result = lax.reshape(result, kept)
    return result


def argmax(a: ArrayLike, axis: Axis | None = None, out: None = None, keepdims: bool | None = None) -> Array:
    """Index of the first maximum along an axis (of the flattened array for None); NaN wins.

    Raises ValueError for an empty axis. Returns the default integer dtype.
    Args: a: array; axis: an axis or None; keepdims: keep the axis with size 1; out: None
    (NotImplementedError).

    >>> jnp.argmax(jnp.array([[1, 5, 5], [7, 2, 0]]), axis=1)
    Array([1, 0], dtype=int32)
    """
    if isinstance(a, Array) and out is None and type(axis) in _AXIS_OR_NONE:
        return _argmax(a, axis, keepdims)
    return _arg_extremum("argmax", lax.argmax, a, axis, out, keepdims)


def argmin(a: ArrayLike, axis: Axis | None = None, out: None = None, keepdims: bool | None = None) -> Array:
    """Index of the first minimum along an axis (of the flattened array for None); NaN wins.

    Args: a, axis, out, keepdims: as for `argmax`, with its errors.

    >>> jnp.argmin(jnp.array([[1, 5, 5], [7, 2, 0]]), axis=1)
    Array([0, 2], dtype=int32)
    """
    if isinstance(a, Array) and out is None and type(axis) in _AXIS_OR_NONE:
        return _argmin(a, axis, keepdims)
    return _arg_extremum("argmin", lax.argmin, a, axis, out, keepdims)


# Types of a single `axis` that can be static arguments as they are.
_AXIS_OR_NONE = (type(None), int)


@_jit_reduction
def _argmax(a, axis, keepdims):
    return _arg_extremum("argmax", lax.argmax, a, axis, None, keepdims)


@_jit_reduction
def _argmin(a, axis, keepdims):
    return _arg_extremum("argmin", lax.argmin, a, axis, None, keepdims)


def _nan_arg_extremum(name, function, fill, a, axis, keepdims):
    if not is_subdtype(a, np.inexact):
        return function(a, axis=axis, keepdims=keepdims)
    missing = isnan(a)
    result = function(select_where(missing, fill, a), axis=axis, keepdims=keepdims)
    return select_where(all(missing, axis=axis, keepdims=keepdims), -1, result)


@jit(static_argnames=("axis", "keepdims"))
def _nanargmax(a, axis=None, keepdims=False):
    return _nan_arg_extremum("nanargmax", argmax, -math.inf, a, axis, keepdims)


@jit(static_argnames=("axis", "keepdims"))
def _nanargmin(a, axis=None, keepdims=False):
    return _nan_arg_extremum("nanargmin", argmin, math.inf, a, axis, keepdims)


def _one_axis(axis):
    return axis if axis is None or is_concrete(axis) else operator.index(axis)


def nanargmax(
    a: ArrayLike, axis: Axis | None = None, out: None = None, keepdims: bool | None = None,
) -> Array:
    """As `argmax`, ignoring NaN; -1 where all elements are NaN.

    Args: a, axis, out, keepdims: as for `argmax`, with its errors.

    >>> jnp.nanargmax(jnp.array([1.0, jnp.nan, 3.0]))
    Array(2, dtype=int32)
    """
    reject_out("nanargmax", out)
    return _nanargmax(ensure_array(a, "nanargmax"), _one_axis(axis), bool(keepdims))


def nanargmin(
    a: ArrayLike, axis: Axis | None = None, out: None = None, keepdims: bool | None = None,
) -> Array:
    """As `argmin`, ignoring NaN; -1 where all elements are NaN.

    Args: a, axis, out, keepdims: as for `argmax`, with its errors.

    >>> jnp.nanargmin(jnp.array([1.0, jnp.nan, 3.0]))
    Array(0, dtype=int32)
    """
    reject_out("nanargmin", out)
    return _nanargmin(ensure_array(a, "nanargmin"), _one_axis(axis), bool(keepdims))
