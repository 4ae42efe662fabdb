"""Reductions of ferrax.numpy that leave NaN out: `nansum`, `nanmean` and so on.

Arguments, dtypes and errors are those of the reductions without `nan` in their names, which do the
work: NaN is replaced by their identity, or masked.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ferrax._core import ufuncs
from ferrax._src.core import Array, as_array
from ferrax._src.core.typing import ArrayLike, Axis, DTypeLike
from ferrax._src.lax import api as lax
from ferrax._src.numpy import reductions
from ferrax._src.numpy.ufuncs import isnan
from ferrax._src.numpy.util import (
    convert,
    ensure_array,
    is_subdtype,
    real_dtype,
    reject_out,
    user_dtype,
    where as select_where,
)
from ferrax._src.transforms.jit import jit

# ---------------------------------------------------------------------------- nan variants

_NAN_STATIC = ("axis", "keepdims", "dtype", "out")


def _without_nan(a, fill):
    if not is_subdtype(a, np.inexact):
        return a
    return select_where(isnan(a), as_array(np.asarray(fill, a.dtype)), a)


@jit(static_argnames=_NAN_STATIC)
def nansum(
    a: ArrayLike, axis: Axis | None = None, dtype: DTypeLike | None = None, out: None = None,
    keepdims: bool = False, initial: ArrayLike | None = None, where: ArrayLike | None = None,
) -> Array:
    """As `sum`, NaN counting as 0.

    Args: a, axis, dtype, out, keepdims, initial, where: as for `sum`, with its errors.

    >>> jnp.nansum(jnp.array([1.0, jnp.nan, 3.0]))
    Array(4., dtype=float32)
    """
    a = ensure_array(a, "nansum")
    return reductions._reduce("sum", _without_nan(a, 0), axis, user_dtype(dtype, "nansum"), out, keepdims,
                   initial, where, upcast=False)


@jit(static_argnames=_NAN_STATIC)
def nanprod(
    a: ArrayLike, axis: Axis | None = None, dtype: DTypeLike | None = None, out: None = None,
    keepdims: bool = False, initial: ArrayLike | None = None, where: ArrayLike | None = None,
) -> Array:
    """As `prod`, NaN counting as 1.

    Args: a, axis, dtype, out, keepdims, initial, where: as for `prod`, with its errors.

    >>> jnp.nanprod(jnp.array([2.0, jnp.nan, 3.0]))
    Array(6., dtype=float32)
    """
    a = ensure_array(a, "nanprod")
    return reductions._reduce("prod", _without_nan(a, 1), axis, user_dtype(dtype, "nanprod"), out, keepdims,
                   initial, where, upcast=False)


def _nan_extremum(name, function, fill, a, axis, out, keepdims, initial, where):
    a = ensure_array(a, name)
    result = function(_without_nan(a, fill), axis=axis, out=out, keepdims=keepdims,
                      initial=initial, where=where)
    if not is_subdtype(a, np.inexact):
        return result
    all_nan = reductions.all(isnan(a), axis=axis, keepdims=keepdims)
    return select_where(all_nan, as_array(np.asarray(math.nan, a.dtype)), result)


@jit(static_argnames=("axis", "keepdims", "out"))
def nanmax(
    a: ArrayLike, axis: Axis | None = None, out: None = None, keepdims: bool = False,
    initial: ArrayLike | None = None, where: ArrayLike | None = None,
) -> Array:
    """As `max`, ignoring NaN; NaN where all elements are.

    Args: a, axis, out, keepdims, initial, where: as for `max`, with its errors.

    >>> jnp.nanmax(jnp.array([1.0, jnp.nan, 3.0]))
    Array(3., dtype=float32)
    """
    return _nan_extremum("nanmax", reductions.max, -math.inf, a, axis, out, keepdims, initial, where)


@jit(static_argnames=("axis", "keepdims", "out"))
def nanmin(
    a: ArrayLike, axis: Axis | None = None, out: None = None, keepdims: bool = False,
    initial: ArrayLike | None = None, where: ArrayLike | None = None,
) -> Array:
    """As `min`, ignoring NaN; NaN where all elements are.

    Args: a, axis, out, keepdims, initial, where: as for `min`, with its errors.

    >>> jnp.nanmin(jnp.array([1.0, jnp.nan, 3.0]))
    Array(1., dtype=float32)
    """
    return _nan_extremum("nanmin", reductions.min, math.inf, a, axis, out, keepdims, initial, where)


@jit(static_argnames=_NAN_STATIC)
def nanmean(
    a: ArrayLike, axis: Axis | None = None, dtype: DTypeLike | None = None, out: None = None,
    keepdims: bool = False, where: ArrayLike | None = None,
) -> Array:
    """As `mean`, ignoring NaN; NaN where all elements are.

    Args: a, axis, dtype, out, keepdims, where: as for `mean`, with its errors.

    >>> jnp.nanmean(jnp.array([1.0, jnp.nan, 3.0]))
    Array(2., dtype=float32)
    """
    a = ensure_array(a, "nanmean")
    dtype = user_dtype(dtype, "nanmean")
    if not is_subdtype(a, np.inexact):
        return reductions.mean(a, axis, dtype, out, keepdims, where=where)
    dtype = a.dtype if dtype is None else dtype
    present = convert(convert(lax.bitwise_not(isnan(a)), np.dtype(np.int32)), dtype)
    normalizer = reductions._reduce("sum", present, axis, dtype, None, keepdims, None, where, upcast=False)
    return lax.div(nansum(a, axis, dtype=dtype, keepdims=keepdims, where=where), normalizer)


@jit(static_argnames=_NAN_STATIC)
def nanvar(
    a: ArrayLike, axis: Axis | None = None, dtype: DTypeLike | None = None, out: None = None,
    ddof: int | float = 0, keepdims: bool = False, where: ArrayLike | None = None,
    mean: Any = None,
) -> Array:
    """As `var`, ignoring NaN; NaN where fewer than `ddof + 1` numbers remain.

    Args: a, axis, dtype, out, ddof, keepdims, where, mean: as for `var`, with its errors.

    >>> jnp.nanvar(jnp.array([1.0, jnp.nan, 3.0]))
    Array(1., dtype=float32)
    """
    reject_out("nanvar", out)
    a = ensure_array(a, "nanvar")
    compute_dtype, result_dtype = reductions._var_dtypes(a.dtype, user_dtype(dtype, "nanvar"))
    a = convert(a, compute_dtype)
    if mean is None:
        mean = nanmean(a, axis, dtype=compute_dtype, keepdims=True, where=where)
    squares = select_where(
        isnan(a), as_array(np.zeros((), real_dtype(a.dtype))), reductions._squared_deviation(a, mean)
    )
    counts = reductions.sum(lax.bitwise_not(isnan(a)), axis=axis, keepdims=keepdims, where=where)
    normalizer = ufuncs.subtract(counts, ddof)
    invalid = ufuncs.less_equal(normalizer, 0)
    total = reductions.sum(squares, axis=axis, keepdims=keepdims, where=where)
    safe = convert(select_where(invalid, 1, normalizer), total.dtype)
    result = select_where(invalid, math.nan, lax.div(total, safe))
    return convert(result, result_dtype)


@jit(static_argnames=_NAN_STATIC)
def nanstd(
    a: ArrayLike, axis: Axis | None = None, dtype: DTypeLike | None = None, out: None = None,
    ddof: int | float = 0, keepdims: bool = False, where: ArrayLike | None = None,
    mean: Any = None,
) -> Array:
    """Square root of `nanvar`, with its arguments.

    Args: a, axis, dtype, out, ddof, keepdims, where, mean: as for `var`, with its errors.

    >>> jnp.nanstd(jnp.array([1.0, jnp.nan, 3.0]))
    Array(1., dtype=float32)
    """
    reject_out("nanstd", out)
    return lax.sqrt(nanvar(a, axis=axis, dtype=dtype, ddof=ddof, keepdims=keepdims, where=where,
                           mean=mean))
