"""The error function and its relatives: scaled, of complex numbers, Dawson's and Fresnel's integrals.

In: arrays and numbers; integers become floats, half precision is computed in float32. Relative errors are
a few units in the last place, of `wofz` those of its parts beside its absolute value.
"""

from __future__ import annotations

import math

import numpy as np

from ferrax._src.base import dtypes
from ferrax._src.composed.special.elementwise import choose, is_double, polynomial
from ferrax._src.core import Array
from ferrax._src.core.typing import ArrayLike
from ferrax._src.lax import api as lax
from ferrax._src.numpy.util import promote_args_inexact
from ferrax._src.scipy.special.arguments import apply, is_complex, real_arguments
from ferrax._src.scipy.special.chebyshev_tables import DAWSN, ERFCX, FRESNEL_F, FRESNEL_G, series
from ferrax._src.transforms.autodiff import jvp
from ferrax._src.transforms.custom_jvp import custom_jvp


def erf(x: ArrayLike) -> Array:
    """The error function, elementwise.

    Args: x: array of real numbers; integers become floats. Raises TypeError for complex ones.

    >>> ferrax.scipy.special.erf(jnp.array([0.0, 1.0]))
    Array([0.        , 0.84270084], dtype=float32)
    """
    (x,) = promote_args_inexact("erf", x)
    return lax.erf(x)


def erfc(x: ArrayLike) -> Array:
    """`1 - erf(x)`, accurate where it is small, elementwise.

    Args: x: array of real numbers; integers become floats. Raises TypeError for complex ones.

    >>> ferrax.scipy.special.erfc(jnp.array([0.0, 5.0]))
    Array([1.0000000e+00, 1.5374597e-12], dtype=float32)
    """
    (x,) = promote_args_inexact("erfc", x)
    return lax.erfc(x)


def erfinv(x: ArrayLike) -> Array:
    """The inverse of the error function, elementwise; NaN outside of -1 to 1.

    Args: x: array of real numbers; integers become floats. Raises TypeError for complex ones.

    >>> ferrax.scipy.special.erfinv(jnp.array([0.0, 0.5]))
    Array([0.        , 0.47693628], dtype=float32)
    """
    (x,) = promote_args_inexact("erfinv", x)
    return lax.erf_inv(x)


def _high_bits(x):
    """x to so few bits that its square is exact."""
    return lax.reduce_precision(x, 11, 25) if is_double(x) else lax.reduce_precision(x, 8, 11)


def exp_of_square(x, factor=1.0):
    """`e^(factor x^2)` without the error of the square, which the exponential would multiply; the factor is
    a power of 2 or its negative."""
    high = _high_bits(x)
    # Far out, where the first factor overflows or is 0, the second does not matter.
    rest = choose(lax.abs(x) < 60.0, (x - high) * (x + high), 0.0)
    # It is at most 0.1 in magnitude where the first factor is neither 0 nor infinite.
    small = polynomial([1 / math.factorial(k) for k in range(6)], factor * rest)
    return lax.exp(factor * (high * high)) * small


def scaled_erfc_of_size(size):
    """`e^(x^2) erfc(x)` of what is not negative, in an array of 32 or 64 bits; of NaN it is that of 1."""
    finite = choose(size < np.inf, size, 1.0)
    positive = series(ERFCX, (finite - 3.75) / (finite + 3.75)) / (1.0 + 2.0 * finite)
    return choose(size == np.inf, 0.0, positive)


def scaled_erfc(x):
    """`e^(x^2) erfc(x)` of an array of 32 or 64 bits."""
    positive = scaled_erfc_of_size(lax.abs(x))
    negative = 2.0 * exp_of_square(x) - positive
    return choose(lax.ne(x, x), np.nan, choose(x < 0.0, negative, positive))


@custom_jvp
def _erfcx(x):
    return scaled_erfc(x)


@_erfcx.defjvp
def _(primals, tangents):
    ((x,), (t,)) = primals, tangents
    y = _erfcx(x)
    # Far out its two terms cancel, and those of the derivative of the series do not.
    far = x > 1.0
    some = choose(far & (x < np.inf), x, 1.0)
    beyond = jvp(scaled_erfc, (some,), (lax.full_like(x, 1.0),))[1]
    return y, t * choose(far, choose(x == np.inf, 0.0, beyond), 2.0 * x * y - 2 / math.sqrt(math.pi))


def erfcx(x: ArrayLike) -> Array:
    """The scaled complementary error function `e^(x^2) erfc(x)`, elementwise.

    Args: x: array of numbers, complex ones too; integers become floats.

    A Chebyshev series of `(1 + 2x) erfcx(x)` for all x >= 0 (Shepherd and Laframboise, Math. Comp. 36,
    1981); for complex numbers `wofz(i x)`.

    >>> ferrax.scipy.special.erfcx(jnp.array([0.0, 1.0, 100.0]))
    Array([1.        , 0.4275836 , 0.00564161], dtype=float32)
    """
    (x,) = promote_args_inexact("erfcx", x)
    if is_complex(x):
        return apply(_wofz, [lax.complex(-lax.imag(x), lax.real(x))])
    return apply(_erfcx, [x])


# The trapezoidal and the midpoint rule with 12 nodes, of the integral of e^(-t^2) / (z - t).
_NODES = 11
_STEP = math.sqrt(math.pi / (_NODES + 1))


def _first_quadrant(z):
    """`w(z)` for parts that are not negative: Al Azah and Chandler-Wilde, Computation of the complex error
    function using modified trapezoidal rules, SIAM J. Numer. Anal. 59 (2021)."""
    x, y = lax.real(z), lax.imag(z)
    square = z * z
    phase = x * (1 / _STEP)
    phase = phase - lax.floor(phase)
    alone = y >= lax.max(x, lax.full_like(x, math.pi / _STEP))
    # The rule whose nodes are far from x.
    trapezoid = (y < x) & (phase >= 0.25) & (phase <= 0.75)
    total = choose(trapezoid, lax.full_like(z, 1.0) / (2.0 * square), 0.0)
    for k in range(_NODES + 1):
        middle, whole = (k + 0.5) * _STEP, (k + 1.0) * _STEP
        node = choose(trapezoid, whole * whole, lax.full_like(x, middle * middle))
        weight = choose(
            trapezoid, math.exp(-whole * whole), lax.full_like(x, math.exp(-middle * middle))
        )
        total = total + lax.complex(weight, lax.full_like(x, 0.0)) / (
            square - lax.complex(node, lax.full_like(x, 0.0))
        )
    sums = total * z * complex(0.0, 2 * _STEP / math.pi)
    # What the pole at z adds: 2 exp(-z^2) / (1 +- exp(-2 pi i z / h)), which is nothing for large parts.
    counts = ~alone & (x < (28.0 if is_double(x) else 11.0)) & (y <= math.pi / _STEP)
    z = choose(counts, z, complex(1.0, 0.0))
    real = choose(counts, phase, 0.0)
    # exp(-2 pi i z / h), with the whole periods of its argument taken out.
    growth = lax.exp(2 * math.pi / _STEP * lax.imag(z))
    turn = lax.complex(growth * lax.cos(2 * math.pi * real), -growth * lax.sin(2 * math.pi * real))
    sign = choose(trapezoid, -1.0, lax.full_like(x, 1.0))
    residue = 2.0 * lax.exp(-z * z) / (1.0 + turn * lax.complex(sign, lax.full_like(x, 0.0)))
    return choose(counts, sums + residue, sums)


@custom_jvp
def _wofz(z):
    x, y = lax.real(z), lax.imag(z)
    # Above 1e7 it is i / (sqrt(pi) z), and squares stay finite.
    far = (lax.abs(x) > 1e7) | (lax.abs(y) > 1e7)
    first = lax.complex(lax.abs(x), lax.abs(y))
    safe = choose(far | (first == 0.0), complex(1.0, 1.0), first)
    near = _first_quadrant(safe)
    limit = complex(0.0, 1 / math.sqrt(math.pi)) / choose(far, first, complex(1.0, 0.0))
    upper = choose(far, limit, near)
    upper = choose(first == 0.0, complex(1.0, 0.0), upper)
    # w(-conj(z)) = conj(w(z)) and w(-z) = 2 exp(-z^2) - w(z).
    mirrored = choose((x < 0.0) ^ (y < 0.0), lax.conj(upper), upper)
    below = 2.0 * lax.exp(-z * z) - mirrored
    # In the lower half-plane the mirror image is that of -z.
    return choose(y < 0.0, below, mirrored)


@_wofz.defjvp
def _(primals, tangents):
    ((z,), (t,)) = primals, tangents
    y = _wofz(z)
    return y, t * (complex(0.0, 2 / math.sqrt(math.pi)) - 2.0 * z * y)


def wofz(z: ArrayLike) -> Array:
    """The Faddeeva function `w(z) = e^(-z^2) erfc(-i z)`, elementwise.

    Args: z: array of numbers; real ones become complex.

    Modified trapezoidal rules, with a relative error of about 1e-13 in complex128: Al Azah and
    Chandler-Wilde, SIAM J. Numer. Anal. 59 (2021).

    >>> ferrax.scipy.special.wofz(jnp.array([0.0, 1.0j]))
    Array([1.       +0.j, 0.4275836+0.j], dtype=complex64)
    """
    (z,) = promote_args_inexact("wofz", z)
    if not is_complex(z):
        z = lax.convert_element_type(z, dtypes.to_complex_dtype(z.dtype))
    return apply(_wofz, [z])


@custom_jvp
def _dawsn(x):
    return _dawsn_value(x)


def _dawsn_value(x):
    size = lax.abs(x)
    far = size > (1e8 if is_double(x) else 1e5)
    square = choose(far, 1.0, size * size)
    # Maclaurin's series below 1, DLMF 7.6.4.
    terms = [1.0]
    for k in range(1, 24 if is_double(x) else 13):
        terms.append(-2.0 * terms[-1] / (2 * k + 1))
    small = polynomial(terms, choose(size < 1.0, square, 0.0))
    middle = series(DAWSN, (square - 16.0) / (square + 16.0)) / (1.0 + 2.0 * square)
    return choose(far, 0.5 / choose(far, x, 1.0), x * choose(size < 1.0, small, middle))


@_dawsn.defjvp
def _(primals, tangents):
    ((x,), (t,)) = primals, tangents
    y = _dawsn(x)
    # As of erfcx.
    size = lax.abs(x)
    far = size > 2.0
    some = choose(far & (size < np.inf), size, 2.0)
    beyond = jvp(_dawsn_value, (some,), (lax.full_like(x, 1.0),))[1]
    slope = choose(size == np.inf, 0.0, beyond)
    return y, t * choose(far, slope, 1.0 - 2.0 * x * y)


def dawsn(x: ArrayLike) -> Array:
    """Dawson's integral `e^(-x^2)` times the integral of `e^(t^2)` from 0 to x, elementwise.

    Args: x: array of real numbers; integers become floats. Errors: ValueError for complex ones.

    Maclaurin's series below 1, above a Chebyshev series in `(x^2 - 16) / (x^2 + 16)`.

    >>> ferrax.scipy.special.dawsn(jnp.array([0.0, 1.0, 10.0]))
    Array([0.        , 0.5380795 , 0.05025384], dtype=float32)
    """
    return apply(_dawsn, real_arguments("dawsn", x))


def _half_turns(x):
    """The sine and cosine of `pi x^2 / 2`, with the square reduced to less than 4 before it is rounded."""
    high = _high_bits(x)
    low = x - high

    def mod_4(y):
        return y - 4.0 * lax.floor(0.25 * y)

    # x^2 = high^2 + low (x + high); the first is exact.
    part = mod_4(mod_4(high * high) + mod_4(low * (x + high)))
    return lax.sin(0.5 * math.pi * part), lax.cos(0.5 * math.pi * part)


@custom_jvp
def _fresnel(x):
    size = lax.abs(x)
    near = size < 1.6
    few = choose(near, size, 0.0)
    t = (0.5 * math.pi) ** 2 * lax.square(few * few)
    count = 14 if is_double(x) else 9
    signs = [(-1) ** k for k in range(count)]
    sines = [s / ((4 * k + 3) * math.factorial(2 * k + 1)) for k, s in enumerate(signs)]
    cosines = [s / ((4 * k + 1) * math.factorial(2 * k)) for k, s in enumerate(signs)]
    s_near = 0.5 * math.pi * few * few * few * polynomial(sines, t)
    c_near = few * polynomial(cosines, t)
    most = 1e15 if is_double(x) else 1e7
    some = choose(near, 1.6, lax.min(size, lax.full_like(x, most)))
    inverse = 1.0 / (math.pi * some)
    v = 2.0 * lax.square(lax.square(1.6 / some)) - 1.0
    f, g = inverse * series(FRESNEL_F, v), inverse * inverse / some * series(FRESNEL_G, v)
    sine, cosine = _half_turns(some)
    far = size >= most
    s_far = choose(far, 0.5, 0.5 - f * cosine - g * sine)
    c_far = choose(far, 0.5, 0.5 + f * sine - g * cosine)
    sign = lax.sign(x)
    return choose(near, sign * s_near, sign * s_far), choose(near, sign * c_near, sign * c_far)


@_fresnel.defjvp
def _(primals, tangents):
    ((x,), (t,)) = primals, tangents
    sine, cosine = _half_turns(x)
    return _fresnel(x), (t * sine, t * cosine)


def fresnel(x: ArrayLike) -> tuple[Array, Array]:
    """Fresnel's integrals of `sin(pi t^2 / 2)` and of `cos(pi t^2 / 2)` from 0 to x, elementwise.

    Args: x: array of real numbers; integers become floats.
    Returns: the pair of arrays.
    Errors: NotImplementedError for complex numbers.

    Maclaurin's series below 1.6, above the auxiliary functions of DLMF 7.5 as Chebyshev series.

    >>> ferrax.scipy.special.fresnel(jnp.array([0.0, 1.0]))
    (Array([0.        , 0.43825915], dtype=float32), Array([0.       , 0.7798934], dtype=float32))
    """
    (x,) = promote_args_inexact("fresnel", x)
    if is_complex(x):
        raise NotImplementedError(f"fresnel does not support complex-valued inputs, got {x.dtype}")
    return apply(_fresnel, [x])
