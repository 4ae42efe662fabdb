"""Elementwise functions that are composed from native ones.

Invariants: dtypes and weak types follow the promotion lattice; functions that the reference
inlines are jitted with `inline=True`, the others appear by name in a Program.
"""

from __future__ import annotations

import operator

import numpy as np

from ferrax._core import ufuncs
from ferrax._src.base import dtypes
from ferrax._src.base.jax_version import follows
from ferrax._src.composed import polynomial
from ferrax._src.core import Array, is_concrete
from ferrax._src.core.typing import ArrayLike
from ferrax._src.lax import api as lax
from ferrax._src.numpy.util import (
    broadcast_to,
    check_array_like,
    constant,
    convert,
    ensure_array,
    filler,
    is_subdtype,
    jit_inline,
    promote_args,
    promote_args_inexact,
    promote_args_numeric,
    promote_dtypes_inexact,
    promote_dtypes_numeric,
    real_dtype,
    reject_out,
    strong_constant,
    where,
)
from ferrax._src.transforms.custom_jvp import custom_jvp
from ferrax._src.transforms.jit import jit

_INF = float("inf")


def _inexact(fun_name, x) -> Array:
    return promote_args_inexact(fun_name, x)[0]


def _is_complex(x) -> bool:
    return is_subdtype(x, np.complexfloating)


def _is_integer(x) -> bool:
    return is_subdtype(x, np.integer)


# ---------------------------------------------------------------------------- of either version


def log2(x: ArrayLike, /) -> Array:
    """The logarithm to the base 2, elementwise: where JAX 0.12 is followed, one equation of that name, which keeps
    weak types.

    Args: x: array of numbers; of integers and bools as of floats.

    >>> jnp.log2(jnp.array([1.0, 2.0, 8.0]))
    Array([0., 1., 3.], dtype=float32)
    """
    if follows(0, 12):
        return polynomial.log2(_inexact("log2", x))
    log = ufuncs.log2(x)
    return convert(log, log.dtype)


# ---------------------------------------------------------------------------- predicates


@jit_inline
def isnan(x: ArrayLike, /) -> Array:
    """Tests elementwise for NaN; a complex number is NaN if either part is. Returns bool.

    Args: x: array of numbers, of any shape.

    >>> jnp.isnan(jnp.array([1.0, jnp.nan, jnp.inf]))
    Array([False,  True, False], dtype=bool)
    """
    x = ensure_array(x, "isnan")
    return lax.ne(x, x)


@jit_inline
def isfinite(x: ArrayLike, /) -> Array:
    """Tests elementwise for neither NaN nor infinite. Returns bool.

    Args: x: array of numbers, of any shape.

    >>> jnp.isfinite(jnp.array([1.0, jnp.nan, jnp.inf]))
    Array([ True, False, False], dtype=bool)
    """
    x = ensure_array(x, "isfinite")
    if is_subdtype(x, np.floating):
        return lax.is_finite(x)
    if _is_complex(x):
        return lax.bitwise_and(lax.is_finite(lax.real(x)), lax.is_finite(lax.imag(x)))
    return lax.full(x.shape, True, dtype=bool)


@jit
def isinf(x: ArrayLike, /) -> Array:
    """Tests elementwise for positive or negative infinity. Returns bool.

    Args: x: array of numbers, of any shape.

    >>> jnp.isinf(jnp.array([1.0, jnp.nan, -jnp.inf]))
    Array([False, False,  True], dtype=bool)
    """
    x = ensure_array(x, "isinf")
    if is_subdtype(x, np.floating):
        return lax.eq(lax.abs(x), strong_constant(_INF, x))
    if _is_complex(x):
        re, im = lax.real(x), lax.imag(x)
        inf = strong_constant(_INF, re)
        return lax.bitwise_or(lax.eq(lax.abs(re), inf), lax.eq(lax.abs(im), inf))
    return lax.full(x.shape, False, dtype=bool)


def _is_signed_inf(fun_name, infinity, x, out):
    x = ensure_array(x, fun_name)
    reject_out(fun_name, out)
    if is_subdtype(x, np.floating):
        return lax.eq(x, strong_constant(infinity, x))
    if _is_complex(x):
        raise ValueError(f"{fun_name} is not well defined for complex types, got {x.dtype}")
    return lax.full(x.shape, False, dtype=bool)


def isposinf(x: ArrayLike, /, out: None = None) -> Array:
    """Tests elementwise for positive infinity; complex input raises ValueError.

    Args: x: array of real numbers; out: None (NotImplementedError). Returns: bool array.

    >>> jnp.isposinf(jnp.array([1.0, jnp.inf, -jnp.inf]))
    Array([False,  True, False], dtype=bool)
    """
    return _is_signed_inf("isposinf", _INF, x, out)


def isneginf(x: ArrayLike, /, out: None = None) -> Array:
    """Tests elementwise for negative infinity; complex input raises ValueError.

    Args: x: array of real numbers; out: None (NotImplementedError). Returns: bool array.

    >>> jnp.isneginf(jnp.array([1.0, jnp.inf, -jnp.inf]))
    Array([False, False,  True], dtype=bool)
    """
    return _is_signed_inf("isneginf", -_INF, x, out)


@jit
def iscomplex(x: ArrayLike) -> Array:
    """Tests elementwise for a non-zero imaginary part. Returns bool.

    Args: x: array of numbers, of any shape.

    >>> jnp.iscomplex(jnp.array([1 + 0j, 1 + 2j]))
    Array([False,  True], dtype=bool)
    """
    imaginary = ufuncs.imag(ensure_array(x, "iscomplex"))
    return lax.ne(imaginary, filler(0, imaginary))


@jit
def isreal(x: ArrayLike) -> Array:
    """Tests elementwise for a zero imaginary part. Returns bool.

    Args: x: array of numbers, of any shape.

    >>> jnp.isreal(jnp.array([1 + 0j, 1 + 2j]))
    Array([ True, False], dtype=bool)
    """
    imaginary = ufuncs.imag(ensure_array(x, "isreal"))
    return lax.eq(imaginary, filler(0, imaginary))


@jit
def signbit(x: ArrayLike, /) -> Array:
    """Tests elementwise for a set sign bit, -0.0 and negative NaN included. Returns bool.

    Args: x: array of real numbers. Raises: ValueError for complex input.

    >>> jnp.signbit(jnp.array([-0.0, 0.0, -1.0]))
    Array([ True, False,  True], dtype=bool)
    """
    x = ensure_array(x, "signbit")
    if _is_integer(x):
        return lax.lt(x, strong_constant(0, x))
    if is_subdtype(x, np.bool_):
        return lax.full(x.shape, False, dtype=bool)
    if not is_subdtype(x, np.floating):
        raise ValueError(f"signbit: expected real numbers, got {x.dtype}, which has no sign bit")
    bits = _bits(x)
    shifted = lax.shift_right_arithmetic(bits, strong_constant(8 * bits.dtype.itemsize - 1, bits))
    return lax.convert_element_type(shifted, bool)


def _bits(x) -> Array:
    return lax.bitcast_convert_type(x, np.dtype(f"int{8 * x.dtype.itemsize}"))


@jit(static_argnames=("equal_nan",))
def isclose(
    a: ArrayLike, b: ArrayLike, rtol: ArrayLike = 1e-05, atol: ArrayLike = 1e-08,
    equal_nan: bool = False,
) -> Array:
    """Tests elementwise for `|a - b| <= atol + rtol * |b|`.

    Args: a, b: arrays that broadcast together; rtol, atol: tolerances; equal_nan: NaNs compare
    equal. Returns: bool array.

    >>> jnp.isclose(jnp.array([1.0, 1.1]), 1.000001)
    Array([ True, False], dtype=bool)
    """
    a, b = promote_args("isclose", a, b)
    if is_subdtype(a, dtypes.extended):
        return lax.eq(a, b)
    if is_subdtype(a, np.integer) or is_subdtype(a, np.bool_):
        a, b = promote_args_inexact("isclose", a, b)
    dtype = real_dtype(a.dtype)
    rtol, atol = convert(rtol, dtype), convert(atol, dtype)
    same = lax.eq(a, b)
    if equal_nan:
        nans = ufuncs.bitwise_and(lax.ne(a, a), lax.ne(b, b))
        same = lax.bitwise_or(same, nans)
    tolerance = ufuncs.add(atol, ufuncs.multiply(rtol, lax.abs(b)))
    # A tolerance that is relative to an infinite b would let everything pass.
    near = ufuncs.bitwise_and(isfinite(b), lax.le(lax.abs(lax.sub(a, b)), tolerance))
    return lax.bitwise_or(same, near)


@jit(static_argnames=("equal_nan",))
def allclose(
    a: ArrayLike, b: ArrayLike, rtol: ArrayLike = 1e-05, atol: ArrayLike = 1e-08,
    equal_nan: bool = False,
) -> Array:
    """True if all elements of `isclose(a, b, rtol, atol, equal_nan)` are. Returns a 0-d bool.

    Args: a, b, rtol, atol, equal_nan: as for `isclose`.

    >>> jnp.allclose(jnp.array([1.0, 1.1]), 1.0)
    Array(False, dtype=bool)
    """
    check_array_like("allclose", a, b)
    close = isclose(a, b, rtol, atol, equal_nan)
    return lax.reduce_and(close, axes=tuple(range(close.ndim)))


# ---------------------------------------------------------------------------- arithmetic


def power(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Raises elementwise `x1 ** x2`.

    A Python integer exponent keeps the dtype of `x1` and is computed by repeated multiplication;
    integers to a static negative power raise TypeError.

    Args: x1, x2: arrays that broadcast together.

    >>> jnp.power(jnp.arange(3.0), 2)
    Array([0., 1., 4.], dtype=float32)
    """
    if type(x2) is int and isinstance(x1, Array) and x1.dtype != np.bool_:
        return lax.integer_pow(x1, x2)
    check_array_like("power", x1, x2)
    if isinstance(x2, (Array, np.ndarray)) and x2.ndim == 0 and _is_integer(x2) and is_concrete(x2):
        x2 = int(x2)
    if isinstance(x2, (int, np.integer)):
        (base,) = promote_dtypes_numeric(x1)
        return lax.integer_pow(base, operator.index(x2))
    return _power(x1, x2)


@jit_inline
def _power(x1, x2):
    x1, x2 = ensure_array(x1, "power"), ensure_array(x2, "power")
    if is_subdtype(x1, np.inexact) and _is_integer(x2):
        dtype, weak_type = dtypes.result_type(x1, x2, return_weak_type_flag=True)
        x1, x2 = convert(x1, dtype, weak_type), x2
        shape = lax.broadcast_shapes(x1.shape, x2.shape)
        x1, x2 = (_to_shape(x, shape) for x in (x1, x2))
        return lax.pow(x1, x2)
    x1, x2 = promote_args_numeric("power", x1, x2)
    if is_subdtype(x1, np.inexact):
        return lax.pow(x1, x2)
    return _integer_power(x1, x2)


def _to_shape(x, shape):
    if x.ndim in (0, len(shape)):
        return x
    return lax.expand_dims(x, tuple(range(len(shape) - x.ndim)))


def _integer_power(x1, x2):
    """Square and multiply over the low six bits: the higher ones overflow any integer dtype."""
    zero, one = filler(0, x2), filler(1, x2)
    zero_base = ufuncs.logical_and(lax.eq(x1, filler(0, x1)), lax.ne(x2, zero))
    acc = where(zero_base, filler(0, x1), filler(1, x1))
    for step in range(6):
        odd = lax.bitwise_and(x2, one)
        acc = where(odd, lax.mul(acc, x1), acc)
        if step < 5:
            x1 = lax.mul(x1, x1)
            x2 = lax.shift_right_logical(x2, one)
    return acc


def pow(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Alias of `power`.

    Args: x1, x2: as for `power`, with its errors.

    >>> jnp.pow(2.0, 3)
    Array(8., dtype=float32, weak_type=True)
    """
    return power(x1, x2)


@jit_inline
def float_power(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Raises `x ** y` after promotion of both to a floating dtype.

    Args: x, y: arrays that broadcast together.

    >>> jnp.float_power(2, 3)
    Array(8., dtype=float32, weak_type=True)
    """
    x, y = promote_args_inexact("float_power", x, y)
    return lax.pow(x, y)


@jit
def floor_divide(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Divides and rounds toward minus infinity; booleans become integers.

    Division of an integer by zero gives an unspecified value. Complex input raises TypeError.

    Args: x1, x2: arrays of real numbers that broadcast together.

    >>> jnp.floor_divide(-3, 2)
    Array(-2, dtype=int32, weak_type=True)
    """
    x1, x2 = promote_args_numeric("floor_divide", x1, x2)
    if is_subdtype(x1, np.unsignedinteger):
        return lax.div(x1, x2)
    if _is_integer(x1):
        quotient = lax.div(x1, x2)
        inexact = lax.ne(lax.rem(x1, x2), constant(0, x1))
        adjust = ufuncs.logical_and(ufuncs.not_equal(lax.sign(x1), lax.sign(x2)), inexact)
        return where(adjust, lax.sub(quotient, constant(1, x1)), quotient)
    if _is_complex(x1):
        raise TypeError(f"floor_divide: complex numbers have no floor, got {x1.dtype}; divide and round the parts")
    return _float_divmod(x1, x2)[0]


def _float_divmod(x1, x2):
    remainder_ = lax.rem(x1, x2)
    # Division by zero keeps the numerator, so that x // 0 is an infinity rather than NaN.
    numerator = where(lax.eq(x2, constant(0, x2)), x1, lax.sub(x1, remainder_))
    quotient = lax.div(numerator, x2)
    adjust = lax.bitwise_and(
        lax.ne(remainder_, constant(0, remainder_)),
        ufuncs.not_equal(lax.sign(x2), lax.sign(remainder_)),
    )
    remainder_ = lax.select(adjust, lax.add(remainder_, x2), remainder_)
    quotient = lax.select(adjust, lax.sub(quotient, constant(1, quotient)), quotient)
    return lax.round(quotient, lax.RoundingMethod.AWAY_FROM_ZERO), remainder_


@jit
def remainder(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Remainder of floor division: it has the sign of `x2`; an integer modulo zero is 0.

    Args: x1, x2: arrays of real numbers that broadcast together. Raises: TypeError for complex
    ones.

    >>> jnp.remainder(-3, 2)
    Array(1, dtype=int32, weak_type=True)
    """
    x1, x2 = promote_args_numeric("remainder", x1, x2)
    if _is_integer(x1):
        x2 = where(lax.eq(x2, constant(0, x2)), constant(1, x2), x2)
    trunc_mod = lax.rem(x1, x2)
    zero = constant(0, x1)
    non_zero = lax.ne(trunc_mod, zero)
    if is_subdtype(x1, np.unsignedinteger):
        return trunc_mod
    signs_differ = ufuncs.not_equal(lax.lt(trunc_mod, zero), lax.lt(x2, zero))
    do_plus = ufuncs.logical_and(signs_differ, non_zero)
    return lax.select(do_plus, lax.add(trunc_mod, x2), trunc_mod)


def mod(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Alias of `remainder`.

    Args: x1, x2: as for `remainder`, with its errors.

    >>> jnp.mod(-3, 2)
    Array(1, dtype=int32, weak_type=True)
    """
    return remainder(x1, x2)


@jit
def divmod(x1: ArrayLike, x2: ArrayLike, /) -> tuple[Array, Array]:
    """The pair `(x1 // x2, x1 % x2)`.

    Args: x1, x2: arrays of real numbers that broadcast together. Raises: TypeError for complex
    ones.

    >>> jnp.divmod(jnp.array([7, -7]), 2)
    (Array([ 3, -4], dtype=int32), Array([1, 1], dtype=int32))
    """
    x1, x2 = promote_args_numeric("divmod", x1, x2)
    if _is_integer(x1):
        return floor_divide(x1, x2), remainder(x1, x2)
    if _is_complex(x1):
        raise TypeError(f"divmod does not support complex-valued inputs, got {x1.dtype}")
    return _float_divmod(x1, x2)


@jit
def fmod(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Remainder of truncated division: it has the sign of `x1`; an integer by zero is 0.

    Args: x1, x2: arrays of real numbers that broadcast together. Raises: TypeError for complex
    ones.

    >>> jnp.fmod(-3, 2)
    Array(-1, dtype=int32, weak_type=True)
    """
    x1, x2 = promote_args_numeric("fmod", x1, x2)
    if _is_integer(x1):
        x2 = where(lax.eq(x2, constant(0, x2)), constant(1, x2), x2)
    return lax.rem(x1, x2)


@jit_inline
def fabs(x: ArrayLike, /) -> Array:
    """Absolute value as a floating dtype; complex input raises TypeError.

    Args: x: array of real numbers.

    >>> jnp.fabs(jnp.array([-2, 3]))
    Array([2., 3.], dtype=float32)
    """
    x = _inexact("fabs", x)
    if _is_complex(x):
        raise TypeError(f"fabs: needs real numbers, got {x.dtype}; abs takes complex ones")
    return lax.abs(x)


@jit
def fmax(x1: ArrayLike, x2: ArrayLike) -> Array:
    """Elementwise maximum that ignores NaN where the other operand is a number.

    Args: x1, x2: arrays that broadcast together.

    >>> jnp.fmax(jnp.array([1.0, jnp.nan]), 0.0)
    Array([1., 0.], dtype=float32)
    """
    check_array_like("fmax", x1, x2)
    return where(ufuncs.logical_or(ufuncs.greater(x1, x2), isnan(x2)), x1, x2)


@jit
def fmin(x1: ArrayLike, x2: ArrayLike) -> Array:
    """Elementwise minimum that ignores NaN where the other operand is a number.

    Args: x1, x2: arrays that broadcast together.

    >>> jnp.fmin(jnp.array([1.0, jnp.nan]), 2.0)
    Array([1., 2.], dtype=float32)
    """
    check_array_like("fmin", x1, x2)
    return where(ufuncs.logical_or(ufuncs.less(x1, x2), isnan(x2)), x1, x2)


@jit
def hypot(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """`sqrt(x1**2 + x2**2)` without intermediate overflow; complex input raises ValueError.

    Args: x1, x2: arrays of real numbers that broadcast together.

    >>> jnp.hypot(3.0, jnp.array([4.0]))
    Array([5.], dtype=float32)
    """
    x1, x2 = promote_args_inexact("hypot", x1, x2)
    if _is_complex(x1):
        raise ValueError(
            f"jnp.hypot: expected the lengths of the sides as real numbers, got {x1.dtype}; pass"
            " jnp.abs(x)"
        )
    x1, x2 = lax.abs(x1), lax.abs(x2)
    larger, smaller = lax.max(x1, x2), lax.min(x1, x2)
    inf, one, zero = constant(_INF, larger), filler(1, larger), constant(0, larger)
    any_inf = ufuncs.logical_or(
        lax.eq(x1, constant(_INF, x1)), lax.eq(x2, constant(_INF, x2))
    )
    is_zero = lax.eq(larger, zero)
    ratio = lax.div(smaller, where(is_zero, one, larger))
    length = lax.mul(larger, lax.sqrt(lax.add(one, lax.square(ratio))))
    return where(any_inf, inf, where(is_zero, larger, length))


@jit
def copysign(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """The magnitude of `x1` with the sign of `x2`; complex input raises TypeError.

    Args: x1, x2: arrays of real numbers that broadcast together. The result is floating.

    >>> jnp.copysign(3, jnp.array([-1.0, 0.0]))
    Array([-3.,  3.], dtype=float32)
    """
    x1, x2 = promote_args_inexact("copysign", x1, x2)
    if _is_complex(x1):
        raise TypeError(f"copysign: complex numbers have no sign, got {x1.dtype}")
    return where(signbit(x2), lax.neg(lax.abs(x1)), lax.abs(x1))


@jit
def heaviside(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Step function: 0 for negative `x1`, `x2` at zero, 1 for positive, NaN for NaN.

    Args: x1, x2: arrays of real numbers that broadcast together. The result is floating. Raises:
    TypeError for complex ones.

    >>> jnp.heaviside(jnp.array([-1.0, 0.0, 2.0]), 0.5)
    Array([0. , 0.5, 1. ], dtype=float32)
    """
    check_array_like("heaviside", x1, x2)
    x1, x2 = promote_dtypes_inexact(x1, x2)
    zero, one = filler(0, x1), filler(1, x1)
    out = where(lax.ne(x1, x1), x1, x2)
    return where(lax.lt(x1, zero), zero, where(lax.gt(x1, zero), one, out))


@jit_inline
def deg2rad(x: ArrayLike, /) -> Array:
    """Degrees to radians.

    Args: x: array of numbers; integers become floats.

    >>> jnp.deg2rad(jnp.array([180.0]))
    Array([3.1415927], dtype=float32)
    """
    x = _inexact("deg2rad", x)
    return lax.mul(x, filler(np.pi / 180, x))


@jit_inline
def rad2deg(x: ArrayLike, /) -> Array:
    """Radians to degrees.

    Args: x: array of numbers; integers become floats.

    >>> jnp.rad2deg(jnp.array([jnp.pi / 2]))
    Array([90.], dtype=float32)
    """
    x = _inexact("rad2deg", x)
    return lax.mul(x, filler(180 / np.pi, x))


def radians(x: ArrayLike, /) -> Array:
    """Alias of `deg2rad`.

    Args: x: as for `deg2rad`.

    >>> jnp.radians(jnp.array([180.0]))
    Array([3.1415927], dtype=float32)
    """
    return deg2rad(x)


def degrees(x: ArrayLike, /) -> Array:
    """Alias of `rad2deg`.

    Args: x: as for `rad2deg`.

    >>> jnp.degrees(jnp.array([jnp.pi / 2]))
    Array([90.], dtype=float32)
    """
    return rad2deg(x)


def divide(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Alias of `true_divide`.

    Args: x1, x2: as for `true_divide`.

    >>> jnp.divide(jnp.array([1, 4]), 2)
    Array([0.5, 2. ], dtype=float32)
    """
    return ufuncs.true_divide(x1, x2)


@jit
def bitwise_count(x: ArrayLike, /) -> Array:
    """Number of set bits of the absolute value of integers. Returns uint8.

    Args: x: array of integers. Raises: TypeError for other dtypes.

    >>> jnp.bitwise_count(jnp.array([7, -8]))
    Array([3, 1], dtype=uint8)
    """
    x = ensure_array(x, "bitwise_count")
    if not _is_integer(x) and not is_subdtype(x, np.bool_):
        raise TypeError(f"bitwise_count requires integer input, got {x.dtype}")
    if is_subdtype(x, np.bool_):
        return lax.convert_element_type(x, np.uint8)
    magnitude = lax.abs(x) if is_subdtype(x, np.signedinteger) else x
    return lax.convert_element_type(lax.population_count(magnitude), np.uint8)


@jit(static_argnames=("deg",))
def angle(z: ArrayLike, deg: bool = False) -> Array:
    """Argument of complex numbers in radians, or in degrees. Real input gives 0 or pi.

    Args: z: array of numbers; deg: degrees instead of radians.

    >>> jnp.angle(jnp.array([1j, -1.0]), deg=True)
    Array([ 90., 180.], dtype=float32)
    """
    z = ensure_array(z, "angle")
    re, im = ufuncs.real(z), ufuncs.imag(z)
    dtype = dtypes.to_inexact_dtype(re.dtype)
    re, im = convert(re, dtype), convert(im, dtype)
    result = lax.atan2(im, re)
    return ufuncs.multiply(result, convert(180 / np.pi, result.dtype)) if deg else result


# ---------------------------------------------------------------------------- log-exp family


def _stable_logaddexp(x1, x2, exponential, scale):
    larger = lax.max(x1, x2)
    delta = lax.sub(x1, x2)
    tail = lax.log1p(exponential(lax.neg(lax.abs(delta))))
    if scale is not None:
        tail = lax.mul(filler(scale, tail), tail)
    # The difference of equal infinities is NaN: their sum is the result there.
    return lax.select(lax.ne(delta, delta), lax.add(x1, x2), lax.add(larger, tail))


def _wrap_phase(z):
    im = lax.imag(z)
    period, half = constant(2 * np.pi, im), constant(np.pi, im)
    turned = lax.rem(lax.add(im, half), period)
    turned = lax.select(lax.lt(turned, constant(0, im)), lax.add(turned, period), turned)
    return lax.complex(lax.real(z), lax.sub(turned, half))


def _complex_logaddexp(x1, x2):
    larger = lax.max(x1, x2)
    difference = lax.sub(lax.add(x1, x2), lax.mul(larger, constant(2, larger)))
    return _wrap_phase(lax.add(larger, lax.log1p(lax.exp(difference))))


def _real_shares(x1, x2, scale):
    """How much of the sum of two powers each is: that of the difference alone, which is exact where `x - out` is not.
    Of two that are +inf each is all of it."""
    delta = lax.sub(x1, x2)
    if scale is not None:
        delta = lax.mul(constant(scale, delta), delta)
    both = lax.bitwise_and(lax.eq(x1, x2), lax.eq(x1, constant(_INF, x1)))
    return [lax.select(both, lax.full_like(x1, 1), _share(d)) for d in (delta, lax.neg(delta))]


@custom_jvp
def _share(delta):
    return lax.logistic(delta)


@_share.defjvp
def _slope_of_share(primals, tangents):
    """The product of both shares, each of which keeps its digits where the other one is nearly 1."""
    share, rest = _share(primals[0]), _share(lax.neg(primals[0]))
    return share, lax.mul(tangents[0], lax.mul(share, rest))


def _log_add(name, value, exponential, scale):
    """The function with the rule of its derivatives: each argument has the slope of its share."""

    def function(x1, x2):
        return value(x1, x2)

    def rule(primals, tangents):
        x1, x2 = primals
        out = function(x1, x2)
        if _is_complex(out):
            shares = [exponential(lax.sub(x, out)) for x in primals]
        else:
            shares = _real_shares(x1, x2, scale)
        return out, lax.add(*map(lax.mul, tangents, shares))

    function.__name__ = name
    function = custom_jvp(function)
    function.defjvp(rule)
    return function


def _value(x1, x2):
    if _is_complex(x1):
        return _complex_logaddexp(x1, x2)
    return _stable_logaddexp(x1, x2, lax.exp, None)


def _value2(x1, x2):
    if _is_complex(x1):
        log2 = constant(np.log(2), x1)
        return lax.div(_complex_logaddexp(lax.mul(x1, log2), lax.mul(x2, log2)), log2)
    return _stable_logaddexp(x1, x2, lax.exp2, 1 / np.log(2))


_logaddexp = _log_add("logaddexp", _value, lax.exp, None)
_logaddexp2 = _log_add("logaddexp2", _value2, lax.exp2, np.log(2))


@jit_inline
def logaddexp(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """`log(exp(x1) + exp(x2))`, stable for large and infinite values.

    Args: x1, x2: arrays that broadcast together; integers become floats.

    >>> jnp.logaddexp(jnp.array([0.0, 1000.0]), jnp.array([0.0, 1000.0]))
    Array([6.9314718e-01, 1.0006931e+03], dtype=float32)
    """
    x1, x2 = promote_args_inexact("logaddexp", x1, x2)
    x1, x2 = _same_shapes(x1, x2)
    return _logaddexp(x1, x2)


@jit_inline
def logaddexp2(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """`log2(2**x1 + 2**x2)`, stable for large and infinite values.

    Args: x1, x2: arrays that broadcast together; integers become floats.

    >>> jnp.logaddexp2(jnp.array([0.0, 1000.0]), jnp.array([0.0, 1000.0]))
    Array([   1., 1001.], dtype=float32)
    """
    x1, x2 = promote_args_inexact("logaddexp2", x1, x2)
    x1, x2 = _same_shapes(x1, x2)
    return _logaddexp2(x1, x2)


def _same_shapes(x1, x2):
    if x1.shape == x2.shape:
        return x1, x2
    shape = lax.broadcast_shapes(x1.shape, x2.shape)
    return broadcast_to(x1, shape), broadcast_to(x2, shape)
