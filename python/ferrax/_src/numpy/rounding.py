"""Elementwise functions of ferrax.numpy that round, limit and take apart numbers.

They are made of the operations of `lax`; operands are promoted as NumPy does.
"""

from __future__ import annotations

import operator

import numpy as np

from ferrax._core import ufuncs
from ferrax._src.base import dtypes
from ferrax._src.core import Array
from ferrax._src.core.typing import ArrayLike
from ferrax._src.lax import api as lax
from ferrax._src.numpy.ufuncs import (
    _INF,
    _inexact,
    _is_complex,
    copysign,
    isnan,
    isneginf,
    isposinf,
)
from ferrax._src.numpy.util import (
    check_array_like,
    constant,
    convert,
    ensure_array,
    is_subdtype,
    reject_out,
    strong_constant,
    where,
)
from ferrax._src.transforms.jit import jit

# ---------------------------------------------------------------------------- rounding


def _round_any(a, decimals):
    if decimals < 0 and not is_subdtype(a, np.inexact):
        raise NotImplementedError(
            f"round: integers cannot be rounded to {decimals} decimals; convert them to floats "
            "first"
        )
    if not is_subdtype(a, np.inexact):
        return a
    if _is_complex(a):
        return lax.complex(
            _round_floating(lax.real(a), decimals), _round_floating(lax.imag(a), decimals)
        )
    return _round_floating(a, decimals)


def _round_floating(x, decimals):
    nearest_even = lax.RoundingMethod.TO_NEAREST_EVEN
    if decimals == 0:
        return lax.round(x, nearest_even)
    dtype = x.dtype
    if dtype.itemsize < 4:
        x = lax.convert_element_type(x, np.float32)
    factor = constant(10 ** abs(decimals) if abs(decimals) < 300 else _INF, x)
    if decimals > 0:
        out = lax.div(lax.round(lax.mul(x, factor), nearest_even), factor)
    else:
        out = lax.mul(lax.round(lax.div(x, factor), nearest_even), factor)
    return lax.convert_element_type(out, dtype) if out.dtype != dtype else out


@jit(static_argnames=("decimals",))
def round(a: ArrayLike, decimals: int = 0, out: None = None) -> Array:
    """Rounds to a number of decimals, halves to even; integers are returned as they are.

    Negative decimals of integers raise NotImplementedError.

    Args: a: array of numbers; decimals: an int; out: None (NotImplementedError).

    >>> jnp.round(jnp.array([0.5, 1.5, 2.44]), 1)
    Array([0.5, 1.5, 2.4], dtype=float32)
    """
    reject_out("round", out)
    return _round_any(ensure_array(a, "round"), operator.index(decimals))


def around(a: ArrayLike, decimals: int = 0, out: None = None) -> Array:
    """Alias of `round`.

    Args: a, decimals, out: as for `round`, with its errors.

    >>> jnp.around(jnp.array([0.5, 1.5]))
    Array([0., 2.], dtype=float32)
    """
    return round(a, decimals, out)


@jit
def clip(
    arr: ArrayLike | None = None, /, min: ArrayLike | None = None, max: ArrayLike | None = None,
) -> Array:
    """Limits values to [min, max]; the upper bound wins if the bounds cross.

    Args: arr: real array; min, max: bounds that broadcast with it, or None.
    Complex arguments raise ValueError.

    >>> jnp.clip(jnp.arange(4), 1, 2)
    Array([1, 1, 2, 2], dtype=int32)
    """
    if arr is None:
        raise ValueError("clip expects an input array, got none")
    arr = ensure_array(arr, "clip")
    bounds = [b for b in (min, max) if b is not None]
    check_array_like("clip", arr, *bounds)
    if any(dtypes.issubdtype(dtypes.dtype(x), np.complexfloating) for x in (arr, *bounds)):
        raise ValueError(
            "clip: complex numbers are not ordered, got dtypes"
            f" {[str(dtypes.dtype(x)) for x in (arr, *bounds)]} for arr and its bounds. Clip x.real and"
            " x.imag, or scale x by its absolute value."
        )
    if min is not None:
        arr = ufuncs.maximum(min, arr)
    if max is not None:
        arr = ufuncs.minimum(max, arr)
    return arr


@jit(static_argnames=("copy",))
def nan_to_num(
    x: ArrayLike, copy: bool = True, nan: ArrayLike = 0.0, posinf: ArrayLike | None = None,
    neginf: ArrayLike | None = None,
) -> Array:
    """Replaces NaN by `nan`, then inf by `posinf`, then -inf by `neginf` (the finite extremes).

    One after the other: an infinity that is put in place of what comes before is replaced, too.

    Args: x: array; copy: whether to copy integers, which stay as they are.

    >>> jnp.nan_to_num(jnp.array([jnp.nan, 1.0, jnp.inf]), nan=-1.0, posinf=9.0)
    Array([-1.,  1.,  9.], dtype=float32)
    """
    del copy
    x = ensure_array(x, "nan_to_num")
    if not is_subdtype(x, np.inexact):
        return x
    if _is_complex(x):
        return lax.complex(
            nan_to_num(lax.real(x), nan=nan, posinf=posinf, neginf=neginf),
            nan_to_num(lax.imag(x), nan=nan, posinf=posinf, neginf=neginf),
        )
    limits = dtypes.finfo(x.dtype)
    out = x
    for find, value, finite in (
        (isnan, nan, None), (isposinf, posinf, limits.max), (isneginf, neginf, limits.min)
    ):  # fmt: skip
        value = constant(finite, x) if value is None else convert(value, x.dtype)
        out = where(find(out), value, out)
    return out


@jit
def modf(x: ArrayLike, /, out: None = None) -> tuple[Array, Array]:
    """Fractional and integral parts, both with the sign of `x`.

    Args: x: array of real numbers; out: None (NotImplementedError).

    >>> jnp.modf(jnp.array([1.5, -2.25]))
    (Array([ 0.5 , -0.25], dtype=float32), Array([ 1., -2.], dtype=float32))
    """
    reject_out("modf", out)
    x = _inexact("modf", x)
    whole = where(lax.ge(x, constant(0, x)), lax.floor(x), lax.ceil(x))
    return lax.sub(x, whole), whole


@jit
def _spacing(x):
    inf = strong_constant(_INF, x)
    if x.dtype == np.float16:
        return lax.sub(lax.nextafter(x, inf), x)
    tiny = strong_constant(dtypes.finfo(x.dtype).smallest_subnormal, x)
    step = lax.sub(lax.nextafter(x, copysign(inf, x)), x)
    return where(lax.eq(step, strong_constant(0, x)), copysign(tiny, x), step)


def spacing(x: ArrayLike, /) -> Array:
    """Distance to the next representable number away from zero; real input only.

    The distance has the sign of `x`. That of `float16` is to the next greater number, as NumPy's is.

    Args: x: array of floats. Raises: ValueError for complex numbers, TypeError for integers.

    >>> jnp.spacing(jnp.array([1.0, 4.0]))
    Array([1.1920929e-07, 4.7683716e-07], dtype=float32)
    """
    x = ensure_array(x, "spacing")
    if not is_subdtype(x, np.floating):
        if _is_complex(x):
            raise ValueError(f"spacing: expected real numbers, got {x.dtype}; pass x.real, x.imag or abs(x)")
        x = _inexact("spacing", x)
    return _spacing(x)
