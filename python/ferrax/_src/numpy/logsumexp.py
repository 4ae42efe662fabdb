"""log-sum-exp, shared by `ferrax.nn` and `ferrax.scipy.special`."""

from __future__ import annotations

import operator
from typing import Any, Literal, overload

import numpy as np

from ferrax._core import ufuncs
from ferrax._src.base import config, dtypes
from ferrax._src.core import Array
from ferrax._src.core.typing import ArrayLike, Axis
from ferrax._src.lax import api as lax
from ferrax._src.numpy import conditional, reductions
from ferrax._src.numpy.ufuncs import isfinite
from ferrax._src.numpy.util import ensure_array
from ferrax._src.transforms.jit import jit


def as_inexact(name, x) -> Array:
    """An array argument as a floating or complex array; TypeError for what is no array."""
    x = ensure_array(x, name)
    if dtypes.issubdtype(x.dtype, np.inexact):
        return x
    return lax.convert_element_type(x, dtypes.to_inexact_dtype(x.dtype))


def static_axis(axis):
    """An axis argument in the form in which it may be a static argument."""
    if axis is None or type(axis) is int:
        return axis
    return tuple(map(operator.index, axis)) if np.ndim(axis) else operator.index(axis)


@overload
def logsumexp(
    a: ArrayLike, axis: Axis | None = None, b: ArrayLike | None = None, keepdims: bool = False,
    return_sign: Literal[False] = False, where: ArrayLike | None = None,
) -> Array: ...
@overload
def logsumexp(
    a: ArrayLike, axis: Axis | None = None, b: ArrayLike | None = None, keepdims: bool = False, *,
    return_sign: Literal[True], where: ArrayLike | None = None,
) -> tuple[Array, Array]: ...
@overload
def logsumexp(
    a: ArrayLike, axis: Axis | None = None, b: ArrayLike | None = None, keepdims: bool = False,
    return_sign: bool = False, where: ArrayLike | None = None,
) -> Any: ...
def logsumexp(
    a: ArrayLike, axis: Axis | None = None, b: ArrayLike | None = None, keepdims: bool = False,
    return_sign: bool = False, where: ArrayLike | None = None,
) -> Array | tuple[Array, Array]:
    """`log(sum(b * exp(a)))` without overflow.

    Args:
        a: array.
        axis: the axis or axes to sum over; default: all.
        b: weights that broadcast with `a`; default: ones. A negative sum gives NaN, unless
            `return_sign`.
        keepdims: whether summed axes stay, with size 1.
        return_sign: whether to return the logarithm of the sum's absolute value and, second, its
            sign (for complex sums its phase).
        where: boolean array that broadcasts with `a`: which elements count.
    Returns:
        Floating or complex array; with `return_sign` a pair of them. The sum of nothing gives
        -inf.

    The largest element is taken out first (Blanchard, Higham and Higham, 2021).

    Example:
        >>> ferrax.nn.logsumexp(jnp.array([1000.0, 1000.0]))
        Array(1000.6931, dtype=float32)
    """
    a = ensure_array(a, "logsumexp")
    if b is not None:
        b = ensure_array(b, "logsumexp", 1)
    axis = static_axis(axis)
    return _logsumexp(a, b, where, axis, bool(keepdims), bool(return_sign))


@jit(static_argnums=(3, 4, 5), inline=True)
def _logsumexp(a, b, where, axis, keepdims, return_sign):
    if where is not None:
        a = conditional.where(where, a, 0)
    if b is None:
        a = as_inexact("logsumexp", a)
    else:
        dtype = dtypes.to_inexact_dtype(dtypes.result_type(a, b))
        a, b = (lax.convert_element_type(x, dtype) for x in (a, b))
        a = conditional.where(b != 0, a, -np.inf)
    # Scaled by the largest term; by 1 where that is infinite or NaN.
    largest = reductions.max(ufuncs.real(a), axis=axis, keepdims=True, where=where, initial=-np.inf)
    largest = lax.stop_gradient(conditional.where(isfinite(largest), largest, 0))
    terms = lax.exp(a - largest.astype(a.dtype))
    if b is not None:
        terms = terms * b
    total = reductions.sum(terms, axis=axis, keepdims=keepdims, where=where)
    shift = largest if keepdims else largest.reshape(total.shape)
    is_complex = dtypes.issubdtype(a.dtype, np.complexfloating)
    sign = lax.sign(total)
    if return_sign or not is_complex:
        total = ufuncs.abs(total)
    result = lax.add(lax.log(total), shift.astype(total.dtype))
    if return_sign:
        return result, sign
    if b is not None and not is_complex:
        with config.debug_nans(False):
            result = conditional.where(sign < 0, np.array(np.nan, result.dtype), result)
    return result
