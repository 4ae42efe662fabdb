"""Cumulative sums and products of ferrax.numpy, also of arrays with NaN.

Small integers keep their dtype, but in `cumulative_sum`. Results have the shape
of the argument, or one element more along the axis (`include_initial`).
"""

from __future__ import annotations

import numpy as np

from ferrax._src.base import dtypes
from ferrax._src.core import Array, as_array
from ferrax._src.core.typing import ArrayLike, DTypeLike
from ferrax._src.lax import api as lax
from ferrax._src.numpy import reductions
from ferrax._src.numpy.ufuncs import isnan
from ferrax._src.numpy.util import (
    convert,
    ensure_array,
    is_subdtype,
    normalize_axis,
    reject_out,
    user_dtype,
    where as select_where,
)
from ferrax._src.transforms.jit import jit

# ---------------------------------------------------------------------------- cumulative


def _cumulate(name, function, a, axis, dtype, out, fill_nan=None, promote_integers=False):
    reject_out(name, out)
    a = ensure_array(a, name)
    dtype = user_dtype(dtype, name)
    if axis is None or a.ndim == 0:
        a, axis = (lax.reshape(a, (a.size,)) if a.ndim != 1 else a), axis or 0
    axis = normalize_axis(axis, a.ndim)
    if fill_nan is not None:
        a = select_where(isnan(a), as_array(np.asarray(fill_nan, a.dtype)), a)
    if dtype is None:
        if is_subdtype(a, np.bool_):
            dtype = dtypes.default_int_dtype()
        else:
            dtype = reductions._summation_dtype(a.dtype) if promote_integers else a.dtype
    if dtypes.issubdtype(dtype, np.bool_):
        bits = convert(a, np.dtype(bool))
        return convert(function(convert(bits, dtypes.default_int_dtype()), axis=axis), dtype)
    return function(convert(a, dtype), axis=axis)


@jit(static_argnames=("axis", "dtype"))
def cumsum(a: ArrayLike, axis: int | None = None, dtype: DTypeLike | None = None, out: None = None) -> Array:
    """Cumulative sum along an axis, of the flattened array for None; small integers keep dtype.

    Floats accumulate in `float64`, those of `float64` with what each addition loses, so the error of
    an element does not grow with its index beyond rounding it once.

    Args: a: array; axis: an axis or None; dtype: of the sum and the result. Raises: ValueError for
    an axis out of bounds, NotImplementedError for `out`.

    >>> jnp.cumsum(jnp.arange(4))
    Array([0, 1, 3, 6], dtype=int32)
    """
    return _cumulate("cumsum", lax.cumsum, a, axis, dtype, out)


@jit(static_argnames=("axis", "dtype"))
def cumprod(
    a: ArrayLike, axis: int | None = None, dtype: DTypeLike | None = None, out: None = None,
) -> Array:
    """Cumulative product along an axis, of the flattened array for None.

    Args: a, axis, dtype, out: as for `cumsum`, with its errors.

    >>> jnp.cumprod(jnp.array([1, 2, 3]))
    Array([1, 2, 6], dtype=int32)
    """
    return _cumulate("cumprod", lax.cumprod, a, axis, dtype, out)


@jit(static_argnames=("axis", "dtype"))
def nancumsum(
    a: ArrayLike, axis: int | None = None, dtype: DTypeLike | None = None, out: None = None,
) -> Array:
    """As `cumsum`, NaN counting as 0.

    Args: a, axis, dtype, out: as for `cumsum`, with its errors.

    >>> jnp.nancumsum(jnp.array([1.0, jnp.nan, 3.0]))
    Array([1., 1., 4.], dtype=float32)
    """
    return _cumulate("nancumsum", lax.cumsum, a, axis, dtype, out, fill_nan=0)


@jit(static_argnames=("axis", "dtype"))
def nancumprod(
    a: ArrayLike, axis: int | None = None, dtype: DTypeLike | None = None, out: None = None,
) -> Array:
    """As `cumprod`, NaN counting as 1.

    Args: a, axis, dtype, out: as for `cumsum`, with its errors.

    >>> jnp.nancumprod(jnp.array([2.0, jnp.nan, 3.0]))
    Array([2., 2., 6.], dtype=float32)
    """
    return _cumulate("nancumprod", lax.cumprod, a, axis, dtype, out, fill_nan=1)


@jit(static_argnames=("axis", "dtype"))
def _cumsum_with_promotion(a, axis=None, dtype=None):
    return _cumulate("cumsum", lax.cumsum, a, axis, dtype, None, promote_integers=True)


def _cumulative(name, function, fill, x, axis, dtype, include_initial):
    x = ensure_array(x, name)
    if x.ndim == 0:
        raise ValueError(f"{name}: a scalar has no axis to accumulate along; pass an array with axes")
    if axis is None:
        axis = 0
        if x.ndim > 1:
            raise ValueError(
                f"{name}: axis may be left out for vectors only, and the array has {x.ndim} axes;"
                " pass axis, or flatten the array."
            )
    axis = normalize_axis(axis, x.ndim)
    out = function(x, axis, user_dtype(dtype, name))
    if include_initial:
        shape = tuple(1 if d == axis else size for d, size in enumerate(out.shape))
        start = lax.full(shape, fill, out.dtype)
        out = lax.concatenate([start, out], dimension=axis)
    return out


def cumulative_sum(
    x: ArrayLike, /, *, axis: int | None = None, dtype: DTypeLike | None = None,
    include_initial: bool = False,
) -> Array:
    """Cumulative sum along an axis; small integers are widened.

    Args: axis: needed for rank above 1; include_initial: prepend the empty sum.
    x: array of rank 1 or more; dtype: the result's. Raises: ValueError for a scalar and for None
    where an axis is needed.

    >>> jnp.cumulative_sum(jnp.arange(1, 4), include_initial=True)
    Array([0, 1, 3, 6], dtype=int32)
    """
    return _cumulative("cumulative_sum", _cumsum_with_promotion, 0, x, axis, dtype,
                       include_initial)


def cumulative_prod(
    x: ArrayLike, /, *, axis: int | None = None, dtype: DTypeLike | None = None,
    include_initial: bool = False,
) -> Array:
    """Cumulative product along an axis, in the dtype of `x`; as `cumulative_sum` otherwise.

    Args: x, axis, dtype, include_initial: as for `cumulative_sum`, with its errors.

    >>> jnp.cumulative_prod(jnp.array([1, 2, 3]))
    Array([1, 2, 6], dtype=int32)
    """
    def product(x, axis, dtype):
        return _cumulate("cumulative_prod", lax.cumprod, x, axis, dtype, None)

    return _cumulative("cumulative_prod", product, 1, x, axis, dtype, include_initial)
