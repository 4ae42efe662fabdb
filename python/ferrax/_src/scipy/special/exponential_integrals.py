"""Exponential, sine and cosine integrals.

In: arrays and numbers; integers become floats, half precision is computed in float32. Relative errors are
about 1e-15 in float64 but near zeros of Ei and of the cosine integral, and 1e-14 of E_n from 1 to 2.
"""

from __future__ import annotations

import math

import numpy as np

from ferrax._src.composed.special.elementwise import choose, is_double, polynomial
from ferrax._src.composed.special.incomplete_gamma import upper_fraction
from ferrax._src.core import Array
from ferrax._src.core.typing import ArrayLike
from ferrax._src.lax import api as lax
from ferrax._src.numpy import api as jnp
from ferrax._src.scipy.special.arguments import apply, real_arguments
from ferrax._src.scipy.special.chebyshev_tables import (
    E1,
    EI_6,
    EI_12,
    EI_24,
    SICI_F,
    SICI_G,
    series,
)
from ferrax._src.transforms.custom_jvp import custom_jvp


def _entire(x, terms):
    """`sum(x^k / (k k!))` from k = 1: the integral of `(e^t - 1) / t` from 0 to x."""
    return x * polynomial([1.0 / (k * math.factorial(k)) for k in range(1, terms + 1)], x)


def _e1_positive(x):
    """E1 for x > 0."""
    near = x < 1.0
    low, high = choose(near, x, 1.0), choose(near, 1.0, x)
    below = -np.euler_gamma - lax.log(low) - _entire(-low, 19 if is_double(x) else 11)
    above = lax.exp(-high) / high * series(E1, 2.0 / high - 1.0)
    return choose(near, below, above)


def _ei_positive(x):
    near = x <= 6.0
    low = choose(near, x, 1.0)
    below = np.euler_gamma + lax.log(low) + _entire(low, 36 if is_double(x) else 22)
    middle, far = x <= 12.0, x > 24.0
    few = lax.min(choose(near, 6.0, x), lax.full_like(x, 12.0))
    some = lax.min(lax.max(x, lax.full_like(x, 12.0)), lax.full_like(x, 24.0))
    many = choose(far, x, 24.0)
    scaled = choose(far, series(EI_24, 48.0 / many - 1.0), series(EI_12, some * (1 / 6) - 3.0))
    scaled = choose(middle, series(EI_6, few * (1 / 3) - 3.0), scaled)
    high = choose(near, 6.0, x)
    # As a square, which overflows only if the result does.
    half = lax.exp(0.5 * high)
    above = choose(x == np.inf, np.inf, half * (scaled / choose(x == np.inf, 1.0, high)) * half)
    return choose(near, below, above)


@custom_jvp
def _expi(x):
    positive, negative = x > 0.0, x < 0.0
    below = -_e1_positive(choose(negative, -x, 1.0))
    found = choose(negative, below, _ei_positive(choose(positive, x, 1.0)))
    return choose(lax.ne(x, x), np.nan, choose(x == 0.0, -np.inf, found))


@_expi.defjvp
def _(primals, tangents):
    ((x,), (t,)) = primals, tangents
    # As a square, which overflows only if the quotient does.
    half = lax.exp(0.5 * x)
    return _expi(x), t * (half / x * half)


def expi(x: ArrayLike) -> Array:
    """The exponential integral Ei, elementwise: of `e^t / t` from -inf to x, as a principal value.

    Args: x: array of real numbers; integers become floats. Errors: ValueError for complex ones.

    Maclaurin's series near 0, Chebyshev series beyond (Cody and Thacher, Math. Comp. 23, 1969, have rational
    functions of the same variables).

    >>> ferrax.scipy.special.expi(jnp.array([1.0, -1.0]))
    Array([ 1.8951178, -0.2193839], dtype=float32)
    """
    return apply(_expi, real_arguments("expi", x))


def _expn_value(n, x):
    """E_n(x) for n = 0, 1, 2, ... and x >= 0."""
    valid = (n >= 0.0) & (x >= 0.0)
    inside = valid & (x > 0.0) & (x < np.inf)
    near = inside & (x < 2.0)
    # DLMF 8.19.8; for n above the number of terms its term with the logarithm is none that counts.
    terms = 26 if is_double(x) else 16
    low, order = choose(near, x, 1.0), choose(near, n, 1.0)
    last = order - 1.0
    total, power = lax.full_like(x, 0.0), lax.full_like(x, 1.0)
    singular, harmonic = lax.full_like(x, 0.0), 0.0
    log = lax.log(low)
    for k in range(terms):
        if k:
            power = power * low * (-1.0 / k)
            harmonic += 1.0 / k
        here = last == float(k)
        gap = choose(here, 1.0, float(k) - last)
        total = total - choose(here, 0.0, power / gap)
        singular = choose(here, power * (harmonic - np.euler_gamma - log), singular)
    below = total + singular
    high, order = choose(inside & ~near, x, 2.0), choose(inside & ~near, n, 1.0)
    above = lax.exp(-high) * upper_fraction(1.0 - order, high)
    one = choose(inside & (n == 1.0), x, 1.0)
    found = choose(n == 1.0, _e1_positive(one), choose(near, below, above))
    some = choose(inside, x, 1.0)
    found = choose(n == 0.0, lax.exp(-some) / some, found)
    found = choose(x == np.inf, 0.0, found)
    at_zero = choose(n < 2.0, np.inf, 1.0 / (choose(n < 2.0, 2.0, n) - 1.0))
    return choose(valid, choose(x == 0.0, at_zero, found), np.nan)


@custom_jvp
def _expn(n, x):
    return _expn_value(n, x)


@_expn.defjvp
def _(primals, tangents):
    (n, x), (_, t) = primals, tangents
    # E_-1(x) = e^-x (1 + x) / x^2
    lower = choose(n == 0.0, lax.exp(-x) * (1.0 + x) / (x * x), _expn(lax.max(n - 1.0, 0.0 * n), x))
    return _expn(n, x), -(t * lower)


def expn(n: ArrayLike, x: ArrayLike) -> Array:
    """The exponential integral of order n, elementwise: of `e^(-x t) / t^n` from 1 to infinity.

    NaN for negative n or x; infinite for `x == 0` and n below 2.

    Args:
        n: array of integers, as integers or floats, in which there is no derivative.
        x: array of real numbers that broadcasts with it; integers become floats.

    Errors: ValueError for complex numbers.

    The series of DLMF 8.19.8 below 2, above Legendre's continued fraction (8.19.17, contracted).

    >>> ferrax.scipy.special.expn(2, jnp.array([0.0, 1.0, 5.0]))
    Array([1.0000000e+00, 1.4849555e-01, 9.9646894e-04], dtype=float32)
    """
    n, x = real_arguments("expn", jnp.asarray(n), jnp.asarray(x))
    return apply(_expn, [lax.stop_gradient(n), x])


def exp1(x: ArrayLike) -> Array:
    """The exponential integral E1, elementwise: of `e^-t / t` from x to infinity; NaN for negative x.

    Args: x: array of real numbers; integers become floats. Errors: ValueError for complex ones.

    As `expn(1, x)`: Maclaurin's series below 1, above a Chebyshev series of `x e^x E1(x)`.

    >>> ferrax.scipy.special.exp1(jnp.array([0.5, 1.0, 5.0]))
    Array([0.55977356, 0.21938393, 0.0011483 ], dtype=float32)
    """
    return apply(_exp1, real_arguments("exp1", x))


@custom_jvp
def _exp1(x):
    inside = (x > 0.0) & (x < np.inf)
    found = choose(x == 0.0, np.inf, _e1_positive(choose(inside, x, 1.0)))
    return choose(x >= 0.0, choose(x == np.inf, 0.0, found), np.nan)


@_exp1.defjvp
def _(primals, tangents):
    ((x,), (t,)) = primals, tangents
    return _exp1(x), -(t * lax.exp(-x) / x)


@custom_jvp
def _sici(x):
    size = lax.abs(x)
    near = size <= 4.0
    low = choose(near, size, 1.0)
    square = low * low
    terms = 16 if is_double(x) else 11
    signs = [(-1) ** k for k in range(terms)]
    sines = [s / ((2 * k + 1) * math.factorial(2 * k + 1)) for k, s in enumerate(signs)]
    cosines = [-s / ((2 * k + 2) * math.factorial(2 * k + 2)) for k, s in enumerate(signs)]
    si_near = low * polynomial(sines, square)
    ci_near = np.euler_gamma + lax.log(low) + square * polynomial(cosines, square)
    finite = size < np.inf
    high = choose(near | ~finite, 4.0, size)
    inverse = 1.0 / high
    v = 32.0 * inverse * inverse - 1.0
    f, g = inverse * series(SICI_F, v), inverse * inverse * series(SICI_G, v)
    sine, cosine = lax.sin(high), lax.cos(high)
    si = choose(near, si_near, choose(finite, 0.5 * math.pi - f * cosine - g * sine, 0.5 * math.pi))
    ci = choose(near, ci_near, choose(finite, f * sine - g * cosine, 0.0))
    ci = choose(size == 0.0, -np.inf, choose(x == -np.inf, np.nan, ci))
    bad = lax.ne(x, x)
    return choose(bad, np.nan, lax.sign(x) * si), choose(bad, np.nan, ci)


@_sici.defjvp
def _(primals, tangents):
    ((x,), (t,)) = primals, tangents
    at_zero = x == 0.0
    some = choose(at_zero, 1.0, x)
    sinc = choose(at_zero, 1.0, lax.sin(some) / some)
    return _sici(x), (t * sinc, t * lax.cos(x) / x)


def sici(x: ArrayLike) -> tuple[Array, Array]:
    """The sine integral, of `sin(t) / t` from 0 to x, and the cosine integral, of `cos(t) / t` from infinity
    to `|x|`, elementwise.

    Args: x: array of real numbers; integers become floats.
    Returns: the pair of arrays. The second is -inf at 0, and NaN at -inf.
    Errors: ValueError for complex numbers.

    Maclaurin's series up to 4, above the auxiliary functions of DLMF 6.2 as Chebyshev series.

    >>> ferrax.scipy.special.sici(jnp.array([1.0, -1.0]))
    (Array([ 0.9460831, -0.9460831], dtype=float32), Array([0.33740395, 0.33740395], dtype=float32))
    """
    return apply(_sici, real_arguments("sici", x))
