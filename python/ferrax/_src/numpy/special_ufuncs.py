"""Elementwise functions with derivative rules or bit-level definitions of their own.

Invariant: `frexp` and `ldexp` are exact for subnormal inputs as far as the backend keeps them; where JAX 0.12 is
followed, subnormal inputs and results are zeros of their sign.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ferrax._core import ufuncs
from ferrax._src.base import dtypes
from ferrax._src.base.jax_version import follows
from ferrax._src.core import Array
from ferrax._src.core.typing import ArrayLike
from ferrax._src.lax import api as lax
from ferrax._src.lax.control_flow.while_loop import while_loop
from ferrax._src.numpy.ufuncs import isinf
from ferrax._src.numpy.util import (
    check_array_like,
    constant,
    convert,
    ensure_array,
    ensure_arrays,
    filler,
    is_subdtype,
    promote_args_inexact,
    promote_dtypes_inexact,
    promote_shapes,
    where,
)
from ferrax._src.transforms.jit import jit

# ---------------------------------------------------------------------------- sinc


def _sinc_series(x):
    """sin(x)/x about 0 to order 12: its derivatives at 0 are exact to that order."""
    square = lax.mul(x, x)
    total = lax.full_like(x, 0)
    factorial = 1.0
    terms = []
    for order in range(0, 14, 2):
        terms.append((-1) ** (order // 2) / factorial)
        factorial *= (order + 2) * (order + 3)
    for coefficient in reversed(terms):
        total = lax.add(lax.mul(total, square), constant(coefficient, x))
    return total


def _sinc_by_distance(x):
    """From the distance of x to the integer next to it, which is exact."""
    size, infinite = lax.abs(x), isinf(x)
    whole = lax.stop_gradient(lax.round(size, lax.RoundingMethod.TO_NEAREST_EVEN))
    distance = where(infinite, filler(0, x), lax.sub(size, whole))
    near = lax.lt(size, constant(0.125, x))
    safe = where(near, filler(1, x), where(infinite, filler(1, x), lax.mul(filler(np.pi, x), size)))
    half = lax.mul(whole, constant(0.5, x))
    odd = lax.ne(half, lax.floor(half))
    sine = lax.sin(lax.mul(filler(np.pi, x), distance))
    far = lax.div(where(odd, lax.sub(filler(0, x), sine), sine), safe)
    return where(near, _sinc_series(lax.mul(filler(np.pi, x), where(near, x, filler(0, x)))), far)


@jit
def sinc(x: ArrayLike, /) -> Array:
    """`sin(pi x) / (pi x)`, 1 at zero. Where JAX 0.12 is followed, 0 at other integers and at infinities.

    Args: x: array of numbers; integers become floats.

    >>> jnp.sinc(jnp.array([0.0, 0.5]))
    Array([1.        , 0.63661975], dtype=float32)
    """
    (x,) = promote_args_inexact("sinc", x)
    if follows(0, 12) and not is_subdtype(x, np.complexfloating):
        return _sinc_by_distance(x)
    is_zero = lax.eq(x, filler(0, x))
    scaled = lax.mul(filler(np.pi, x), x)
    safe = where(is_zero, filler(1, x), scaled)
    near = _sinc_series(where(is_zero, scaled, filler(0, x)))
    return where(is_zero, near, lax.div(lax.sin(safe), safe))


# ---------------------------------------------------------------------------- frexp, ldexp


def _frexp(x):
    info = dtypes.finfo(x.dtype)
    bits = np.dtype(f"int{info.bits}")
    mantissa_bits, bias = info.nmant, 1 - info.minexp
    exponent_mask = (1 << (info.bits - 1 - mantissa_bits)) - 1
    # Subnormal numbers are scaled up first; the scale is taken off the exponent again.
    subnormal = lax.lt(lax.abs(x), constant(info.tiny, x))
    scaled = where(subnormal, lax.mul(x, constant(2.0**mantissa_bits, x)), x)
    offset = where(subnormal, np.int32(-mantissa_bits), np.int32(0))
    pattern = lax.bitcast_convert_type(scaled, bits)
    biased = lax.bitwise_and(
        lax.shift_right_arithmetic(pattern, constant(mantissa_bits, pattern)),
        constant(exponent_mask, pattern),
    )
    exponent = lax.convert_element_type(biased, np.int32)
    exponent = lax.add(lax.add(exponent, constant(1 - bias, exponent)), offset)
    special = ufuncs.logical_or(
        ufuncs.logical_or(isinf(x), lax.ne(x, x)), lax.eq(x, constant(0, x))
    )
    exponent = where(special, constant(0, exponent), exponent)

    def power_of_two(exponent):
        biased = lax.convert_element_type(lax.add(exponent, constant(bias, exponent)), bits)
        return lax.bitcast_convert_type(
            lax.shift_left(biased, constant(mantissa_bits, biased)), x.dtype
        )

    # Both products are exact, and the powers of half the exponent normal numbers. The mantissa is
    # `x` times a constant, and has its sign and its derivative.
    half = lax.shift_right_arithmetic(exponent, constant(1, exponent))
    mantissa = lax.mul(x, power_of_two(lax.neg(half)))
    return lax.mul(mantissa, power_of_two(lax.sub(half, exponent))), exponent


def _flushed(x: Any) -> Array:
    """With zeros of their sign for subnormal numbers, where the JAX that is followed has them."""
    if not follows(0, 12):
        return x
    small = lax.lt(lax.abs(x), constant(dtypes.finfo(x.dtype).tiny, x))
    return where(small, lax.mul(lax.sign(x), constant(0, x)), x)


@jit
def frexp(x: ArrayLike, /) -> tuple[Array, Array]:
    """Mantissa in [0.5, 1) and int32 exponent with `x == mantissa * 2**exponent`.

    Args: x: array of real numbers; integers become floats. Raises: TypeError for complex ones.

    >>> jnp.frexp(jnp.array([8.0, 0.75]))
    (Array([0.5 , 0.75], dtype=float32), Array([4, 0], dtype=int32))
    """
    check_array_like("frexp", x)
    (x,) = promote_dtypes_inexact(x)
    if is_subdtype(x, np.complexfloating):
        raise TypeError(f"frexp: complex numbers have no one exponent, got {x.dtype}")
    array = _flushed(x)
    if array.dtype.itemsize == 2 and array.dtype != np.float16:
        # The bit widths below come from finfo; bfloat16 is exact in float32.
        mantissa, exponent = _frexp(lax.convert_element_type(array, np.float32))
        return lax.convert_element_type(mantissa, array.dtype), exponent
    return _frexp(array)


@jit
def ldexp(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """`x1 * 2**x2` for an integer `x2`, without overflow of the intermediate power.

    Raises ValueError for complex `x1` and for an `x2` that is no integer.
    Args: x1: array of numbers, floating after promotion; x2: array of integers that broadcasts with
    it.

    >>> jnp.ldexp(jnp.array([0.5, 3.0]), 4)
    Array([ 8., 48.], dtype=float32)
    """
    check_array_like("ldexp", x1, x2)
    x1, x2 = ensure_array(x1, "ldexp"), ensure_array(x2, "ldexp")
    if is_subdtype(x1, np.complexfloating) or not (
        is_subdtype(x2, np.integer) or is_subdtype(x2, np.bool_)
    ):
        raise ValueError(
            f"ldexp: expected floats and integer exponents, got {x1.dtype} and {x2.dtype}"
        )
    x1 = _flushed(promote_dtypes_inexact(x1)[0])
    x2 = convert(x2, x1.dtype)
    x1, x2 = promote_shapes("ldexp", x1, x2)
    mantissa, exponent = frexp(x1)
    exponent = ufuncs.add(lax.convert_element_type(exponent, x1.dtype), x2)
    # Doubling the mantissa keeps the power of the largest exponent finite.
    positive = lax.gt(exponent, constant(0, exponent))
    mantissa = where(positive, lax.mul(mantissa, constant(2, mantissa)), mantissa)
    exponent = where(positive, lax.sub(exponent, constant(1, exponent)), exponent)
    scaled = lax.mul(mantissa, lax.pow(constant(2, exponent), exponent))
    unscaled = ufuncs.logical_or(isinf(x1), lax.eq(x1, constant(0, x1)))
    return _flushed(where(unscaled, x1, scaled))


# ---------------------------------------------------------------------------- gcd, lcm


def _integers(fun_name, x1, x2) -> tuple[Array, ...]:
    x1, x2 = ensure_arrays(fun_name, x1, x2)
    dtype, weak_type = dtypes.result_type(x1, x2, return_weak_type_flag=True)
    if not dtypes.issubdtype(dtype, np.integer):
        raise ValueError(f"Arguments to ferrax.numpy.{fun_name} must be integers, got {dtype}.")
    x1, x2 = convert(x1, dtype, weak_type), convert(x2, dtype, weak_type)
    shape = lax.broadcast_shapes(x1.shape, x2.shape)
    x1, x2 = (ufuncs.abs(lax.broadcast_in_dim(
        x, shape, tuple(range(len(shape) - x.ndim, len(shape))))) for x in (x1, x2))
    return x1, x2


# Steps of Euclid's algorithm between questions whether any pair goes on.
_STEPS_AT_ONCE = 4


@jit
def gcd(x1: ArrayLike, x2: ArrayLike) -> Array:
    """Greatest common divisor of integers, never negative; ValueError for other dtypes.

    Args: x1, x2: integer arrays that broadcast together. (Euclid's algorithm.)

    >>> jnp.gcd(jnp.array([12, -9]), 6)
    Array([6, 3], dtype=int32)
    """
    x1, x2 = _integers("gcd", x1, x2)
    zero = filler(0, x2)

    def steps(pair):
        x1, x2 = pair
        for _ in range(_STEPS_AT_ONCE):
            busy = lax.ne(x2, zero)
            # Once the divisor is 0 the remainder by 1 is 0 as well: the pair stays.
            remainder = lax.rem(x1, lax.select(busy, x2, lax.full_like(x2, 1)))
            x1, x2 = lax.select(busy, x2, x1), remainder
        return x1, x2

    def is_busy(pair):
        return lax.reduce_or(lax.ne(pair[1], zero), tuple(range(pair[1].ndim)))

    divisor, _ = while_loop(is_busy, steps, (x1, x2))
    return convert(divisor, x1.dtype, x1.weak_type and x1.ndim == 0)


@jit
def lcm(x1: ArrayLike, x2: ArrayLike) -> Array:
    """Least common multiple of integers, never negative; 0 if either is 0.

    Args: x1, x2: integer arrays that broadcast together. Raises: ValueError for other dtypes.

    >>> jnp.lcm(jnp.array([4, -9]), 6)
    Array([12, 18], dtype=int32)
    """
    x1, x2 = _integers("lcm", x1, x2)
    divisor = gcd(x1, x2)
    zero = filler(0, divisor)
    safe = where(lax.eq(divisor, zero), filler(1, divisor), divisor)
    return where(lax.eq(divisor, zero), zero, lax.mul(x1, lax.div(x2, safe)))
