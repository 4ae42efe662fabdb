"""What describes samples: the most frequent value, ranks, the standard error of the mean."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ferrax._src.base import dtypes
from ferrax._src.core import Array
from ferrax._src.core.typing import ArrayLike
from ferrax._src.lax import api as lax
from ferrax._src.numpy import api as jnp
from ferrax._src.numpy.util import ensure_array, normalize_axis, promote_args_inexact
from ferrax._src.transforms.batching import vmap
from ferrax._src.transforms.jit import jit


class ModeResult(NamedTuple):
    """The most frequent values, and how often they occur."""

    mode: Array
    count: Array  # type: ignore[assignment]  # SciPy's name, which hides the method of tuples


def _check_policy(name, nan_policy):
    if nan_policy not in ("propagate", "omit", "raise"):
        raise ValueError(
            f"{name}: nan_policy has to be 'propagate', 'omit' or 'raise', got {nan_policy!r}"
        )
    if nan_policy != "propagate":
        raise NotImplementedError(
            f"{name} has no nan_policy={nan_policy!r}, for shapes and errors do not depend on values: take NaNs "
            "out before"
        )


@jit(static_argnames=["axis", "nan_policy", "keepdims"])
def mode(
    a: ArrayLike, axis: int | None = 0, nan_policy: str = "propagate", keepdims: bool = False
) -> ModeResult:
    """The most frequent value along an axis, the smallest of those, and how often it occurs.

    Args:
        a: array.
        axis: the axis; None: all elements.
        nan_policy: 'propagate': NaNs are values like others.
        keepdims: whether the result keeps the axis, with size 1.
    Returns:
        A named tuple of `mode` and `count`; NaN and 0 where there are no values.
    Raises:
        ValueError: for another policy; NotImplementedError: for 'omit' and 'raise'.

    >>> ferrax.scipy.stats.mode(jnp.array([1, 3, 3, 2])).mode
    Array(3, dtype=int32)
    """
    x = jnp.atleast_1d(ensure_array(a, "mode"))
    _check_policy("mode", nan_policy)
    shape = x.shape
    if axis is None:
        kept = (1,) * x.ndim if keepdims else ()
        x, axis = x.ravel(), 0
    else:
        axis = normalize_axis(axis, x.ndim)
        kept = shape[:axis] + (1,) * keepdims + shape[axis + 1 :]
    x = jnp.moveaxis(x, axis, 0)
    x = x.reshape(x.shape[0], math.prod(x.shape[1:]))

    def of_column(x):
        if not x.size:
            dtype = dtypes.default_float_dtype()
            return jnp.array(np.nan, dtype), jnp.array(0, dtype)
        values, counts = jnp.unique(x, return_counts=True, size=x.size)
        return values[jnp.argmax(counts)], counts.max()

    values, counts = vmap(of_column, in_axes=1)(x)
    return ModeResult(values.reshape(kept), counts.reshape(kept))


@jit(static_argnames=["method", "axis", "nan_policy"])
def rankdata(
    a: ArrayLike, method: str = "average", *, axis: int | None = None,
    nan_policy: str = "propagate",
) -> Array:
    """The ranks of elements, from 1 for the smallest.

    Args:
        a: array.
        method: the rank of equal elements: the 'average', 'min' or 'max' of those that they would have,
            'ordinal': different ones in their order; 'dense': the same one, the next element having the next.
        axis: the axis along which to rank; None: all elements, as one vector.
        nan_policy: 'propagate': all ranks are NaN where there is a NaN.
    Returns:
        float32 array (float64 with x64) of the shape of `a`, or of one axis for None.
    Raises:
        ValueError: for another method or policy; NotImplementedError: for 'omit' and 'raise'.

    >>> ferrax.scipy.stats.rankdata(jnp.array([20, 10, 20]))
    Array([2.5, 1. , 2.5], dtype=float32)
    """
    a = ensure_array(a, "rankdata")
    _check_policy("rankdata", nan_policy)
    if method not in ("average", "min", "max", "dense", "ordinal"):
        raise ValueError(
            "rankdata: method has to be 'average', 'min', 'max', 'dense' or 'ordinal', got "
            f"{method!r}"
        )
    if axis is not None:
        return jnp.apply_along_axis(lambda x: _ranks(x, method), axis, a)
    return _ranks(jnp.ravel(a), method)


def _ranks(x, method):
    """Ranks in a vector: by where each run of equal elements starts and ends in the sorted one."""
    dtype = dtypes.default_float_dtype()
    size = x.shape[0]
    ordered, order = lax.sort_key_val(x, jnp.arange(size))
    place = jnp.zeros_like(order).at[order].set(jnp.arange(size, dtype=order.dtype))
    if method == "ordinal":
        ranks = place + 1
    else:
        starts = jnp.concatenate([jnp.array([True]), ordered[1:] != ordered[:-1]])[:size]
        dense = jnp.cumsum(starts)[place]
        bounds = jnp.nonzero(starts, size=size + 1, fill_value=size)[0]
        first, last = bounds[dense - 1] + 1, bounds[dense]
        ranks = {
            "dense": lambda: dense,
            "min": lambda: first,
            "max": lambda: last,
            "average": lambda: 0.5 * (first.astype(dtype) + last.astype(dtype)),
        }[method]()
    return jnp.where(jnp.any(jnp.isnan(x)), np.nan, ranks.astype(dtype))


@jit(static_argnames=["axis", "nan_policy", "keepdims"])
def sem(
    a: ArrayLike, axis: int | None = 0, ddof: int = 1, nan_policy: str = "propagate", *,
    keepdims: bool = False,
) -> Array:
    """The standard error of the mean: the standard deviation over the root of the number of values.

    Args:
        a: array.
        axis: the axis; None: all elements.
        ddof: what is taken off the number of values in the standard deviation.
        nan_policy: 'propagate', or 'omit' to leave NaNs out.
        keepdims: whether the result keeps the axis, with size 1.
    Returns:
        Float array.
    Raises:
        ValueError: for another policy.

    >>> ferrax.scipy.stats.sem(jnp.array([1.0, 2.0, 3.0, 6.0]))
    Array(1.0801234, dtype=float32)
    """
    (x,) = promote_args_inexact("sem", a)
    if nan_policy not in ("propagate", "omit"):
        raise ValueError(f"sem: nan_policy has to be 'propagate' or 'omit', got {nan_policy!r}")
    taken = lax.full_like(x, True, bool) if nan_policy == "propagate" else x == x
    number = jnp.sum(taken, axis, keepdims=keepdims)
    deviation = jnp.std(x, axis, ddof=ddof, keepdims=keepdims, where=taken)
    return deviation / jnp.sqrt(number).astype(x.dtype)
