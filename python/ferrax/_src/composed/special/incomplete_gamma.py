"""The incomplete gamma functions `P(a, x)` and `Q(a, x) = 1 - P`, and their derivatives in `a`.

In: floating arrays of 32 or 64 bits, of one shape. There is no loop: each region has a fixed number of
terms by dtype, and all are computed for all elements.

| region | what is computed, and from where |
|---|---|
| a >= 12, 0.3 a <= x <= 2.35 a | Temme's uniform expansion, by its recurrence in 1/a: Temme 1979, 1987 |
| x <= max(a, 2) | P by DLMF 8.11.4; Q below 1/2 by 8.7.1: DiDonato and Morris 1986 |
| else | Q by Legendre's continued fraction, DLMF 8.9.2: Gautschi 1979 |

The regions are those of Gil, Segura and Temme, SIAM J. Sci. Comput. 34 (2012).
What is smaller is computed, the other is what is left of 1. Relative errors of both are below 1e-13 in
float64 (2e-5 in float32) where the result is above 1e-30, and grow with its logarithm below.
Derivatives in `a` are those of these formulas, forwards, to any order; in `x` they have closed forms.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ferrax._src.composed.special.elementwise import choose, elementwise, is_double, of_one_shape
from ferrax._src.composed.special.gamma_parts import (
    deviance_over_square,
    lgamma1p,
    poisson_density,
    stirling_remainder,
    times_log,
)
from ferrax._src.core import Array
from ferrax._src.core.typing import ArrayLike
from ferrax._src.lax import api as lax
from ferrax._src.transforms.ad import defjvp
from ferrax._src.transforms.autodiff import jvp

# The coefficients of eta / (lambda - 1) in eta, with eta^2 / 2 = lambda - 1 - log(lambda): Temme 1979.
_TEMME = (
    1.0,
    -0.3333333333333333,
    0.08333333333333333,
    -0.014814814814814815,
    0.0011574074074074073,
    0.0003527336860670194,
    -0.0001787551440329218,
    3.919263178522438e-05,
    -2.185448510679992e-06,
    -1.85406221071516e-06,
    8.296711340953087e-07,
    -1.7665952736826078e-07,
    6.707853543401498e-09,
    1.0261809784240309e-08,
    -4.382036018453353e-09,
    9.14769958223679e-10,
    -2.5514193994946248e-11,
    -5.830772132550426e-11,
    2.4361948020667415e-11,
    -5.0276692801141755e-12,
    1.1004392031956135e-13,
    3.371763262400985e-13,
    -1.392388722418162e-13,
    2.8534893807047445e-14,
    -5.139111834242572e-16,
    -1.9752288294349442e-15,
    8.099521156704561e-16,
    -1.6522531216398162e-16,
    2.5305430097478883e-18,
    1.1686939738559576e-17,
    -4.770037049820485e-18,
)


def temme(a, x):
    """z and S with `P = erfc(-z) / 2 - exp(-z^2) S` and `Q = erfc(z) / 2 + exp(-z^2) S`, for a >= 12 and x
    near a (Temme, On the computation of the incomplete gamma functions for large values of the
    parameters, 1987)."""
    mu = (x - a) / a
    eta = mu * lax.sqrt(2.0 * deviance_over_square(mu, x / a))
    inverse = 1.0 / a
    coefficients = _TEMME if is_double(a) else _TEMME[:14]
    after, this = lax.full_like(a, 0.0), lax.full_like(a, coefficients[-1])
    total = this
    for i in range(len(coefficients) - 2, 0, -1):
        # b_(i-1) = d_i + (i + 1) / a b_(i+1); the total is the polynomial in eta of these.
        after, this = this, after * ((i + 1.0) * inverse) + coefficients[i]
        total = total * eta + this
    # 1 / Gamma*(a), by b_1.
    scale = 1.0 / (1.0 + after * inverse)
    return eta * lax.sqrt(0.5 * a), total * scale * lax.rsqrt(a) * (1 / math.sqrt(2 * math.pi))


def _temme_both(a, x):
    z, s = temme(a, x)
    rest = lax.exp(-z * z) * s
    return 0.5 * lax.erfc(-z) - rest, 0.5 * lax.erfc(z) + rest


def lower_series(a, x):
    """`sum(x^n / ((a + 1) ... (a + n)))` as a fraction, for x <= max(a, 2) with a < 12, and x < 0.3 a."""
    terms = 46 if is_double(a) else 24
    # Numerator and denominator are scaled by powers of max(a, 1), and grow by 50 at most with each term.
    inverse = 1.0 / lax.max(a, lax.full_like(a, 1.0))
    a, x = a * inverse, x * inverse
    top, bottom = lax.full_like(a, 1.0), lax.full_like(a, 1.0)
    for n in range(terms, 0, -1):
        scaled = (a + n * inverse) * bottom
        top, bottom = scaled + x * top, scaled
        if n % 8 == 1:
            top, bottom = top / bottom, lax.full_like(a, 1.0)
    return top


def upper_fraction(a, x):
    """`Q(a, x) Gamma(a) x^-a e^x` for x > max(a, 2), from its last term backwards.

    The fraction begins with the fixed point of its recurrence, which its tail is near. Its terms are
    divided by x.
    """
    terms = 50 if is_double(a) else 14
    n = terms + 1.0
    inverse = 1.0 / x
    shift, square = 1.0 - a * inverse, inverse * inverse
    slope = a * inverse * inverse
    middle = 0.5 * (shift + (2 * n + 1) * inverse)
    radicand = middle * middle - n * slope + n * n * square
    top = lax.sqrt(lax.max(radicand, lax.full_like(a, 0.0))) - middle
    bottom = lax.full_like(a, 1.0)
    for n in range(terms, 0, -1):
        numerator = n * slope - float(n * n) * square
        top, bottom = numerator * bottom, (shift + (2 * n + 1) * inverse) * bottom + top
        if n % 8 == 1:
            top, bottom = top / bottom, lax.full_like(a, 1.0)
    return inverse / (shift + inverse + top)


def upper_near_zero(a, x):
    """`Q(a, x)` for x <= 2, where it is less than 1/2."""
    power = a * lax.log(x) - lgamma1p(a)
    total, term = lax.full_like(a, 0.0), lax.full_like(a, 1.0)
    for n in range(1, 25 if is_double(a) else 15):
        term = term * x * (-1.0 / n)
        total = total + term / (a + float(n))
    return -lax.expm1(power) - lax.exp(power) * a * total


def regions(a, x):
    """The masks of Temme's expansion and of the series of P."""
    uniform = (a >= 12.0) & (x >= 0.3 * a) & (x <= 2.35 * a)
    return uniform, ~uniform & (x <= lax.max(a, lax.full_like(a, 2.0)))


def inside(a, x):
    """`a` and `x` with a value in place of those at which nothing is to be computed."""
    bad = ~((a > 0.0) & (x > 0.0) & (a < np.inf) & (x < np.inf))
    return choose(bad, 1.0, a), choose(bad, 1.0, x)


def _both(a, x):
    """P and Q of positive finite numbers."""
    uniform, lower = regions(a, x)
    p_uniform, q_uniform = _temme_both(choose(uniform, a, 12.0), choose(uniform, x, 12.0))
    density = poisson_density(a, x)
    series_a, series_x = choose(lower, a, 1.0), choose(lower, x, 1.0)
    p_lower = density * lower_series(series_a, series_x)
    near = series_x <= 2.0
    q_near = upper_near_zero(choose(near, series_a, 1.0), choose(near, series_x, 1.0))
    q_lower = choose(near & (p_lower > 0.5), q_near, 1.0 - p_lower)
    upper = ~(uniform | lower)
    q_upper = density * a * upper_fraction(choose(upper, a, 1.0), choose(upper, x, 2.0))
    p = choose(uniform, p_uniform, choose(lower, p_lower, 1.0 - q_upper))
    q = choose(uniform, q_uniform, choose(lower, q_lower, q_upper))
    return p, q


def _limits(a, x, found, at_zero, at_infinity):
    """`found` but at the ends: `at_zero` for x = 0 and for infinite a, `at_infinity` for a = 0 and for
    infinite x."""
    result = choose((x == 0.0) | (a == np.inf), at_zero, found)
    result = choose((a == 0.0) | (x == np.inf), at_infinity, result)
    valid = (a >= 0.0) & (x >= 0.0) & ~((a == 0.0) & (x == 0.0))
    return choose(valid, result, np.nan)


def _igamma(a, x):
    return _limits(a, x, _both(*inside(a, x))[0], 0.0, 1.0)


def _igammac(a, x):
    return _limits(a, x, _both(*inside(a, x))[1], 1.0, 0.0)


def _lower(x, a):
    return _both(a, x)[0]


def _derivative(a, x, order):
    """The derivative of `P(a, x)` in `a` of this order, of positive finite numbers."""
    function: Callable[..., Any] = functools.partial(_lower, x)
    for _ in range(order):
        function = functools.partial(_slope, function)
    return function(a)


def _slope(function, a):
    return jvp(function, (a,), (lax.full_like(a, 1.0),))[1]


def _igamma_grad_a(a, x, *, order=1):
    a_in, x_in = inside(a, x)
    found = _derivative(a_in, x_in, order)
    return _on_positive(a, x, found)


def _on_positive(a, x, found):
    """0 for x = 0 and for infinite x, NaN for `a` that is not positive and finite."""
    found = choose((x == 0.0) | (x == np.inf), 0.0, found)
    return choose((a > 0.0) & (a < np.inf) & (x >= 0.0), found, np.nan)


def _random_gamma_grad(a, x):
    """`-(dP/da) / (dP/dx)`. The density divides both, and is taken out of the series and the fraction, so
    that the quotient is there where both are 0 in floating point."""
    a_in, x_in = inside(a, x)
    uniform, lower = regions(a_in, x_in)
    one = lax.full_like(a_in, 1.0)
    middle_a, middle_x = choose(uniform, a_in, 12.0), choose(uniform, x_in, 12.0)
    (z, s), (dz, ds) = jvp(lambda a: temme(a, middle_x), (middle_a,), (one,))
    slope = dz * (1 / math.sqrt(math.pi)) - ds + 2.0 * z * dz * s
    height = lax.exp(stirling_remainder(middle_a)) * math.sqrt(2 * math.pi) * lax.rsqrt(middle_a)
    middle = -slope * middle_x * height
    # P = density(a, x) series, and dP/dx = density a / x.
    log_slope = lax.log(x_in) - lax.digamma(a_in + 1.0)
    low_a, low_x = choose(lower, a_in, 1.0), choose(lower, x_in, 1.0)
    value, change = jvp(lambda a: lower_series(a, low_x), (low_a,), (one,))
    low = -(value * log_slope + change) * x_in / a_in
    # Q = density(a, x) a fraction.
    upper = ~(uniform | lower)
    high_a, high_x = choose(upper, a_in, 1.0), choose(upper, x_in, 2.0)
    value, change = jvp(lambda a: upper_fraction(a, high_x), (high_a,), (one,))
    high = (value * (log_slope + 1.0 / a_in) + change) * x_in
    found = choose(uniform, middle, choose(lower, low, high))
    found = choose(x == 0.0, 0.0, found)
    return choose((a > 0.0) & (a < np.inf) & (x >= 0.0) & (x < np.inf), found, np.nan)


igamma_p = elementwise("igamma", _igamma)
igammac_p = elementwise("igammac", _igammac)
igamma_grad_a_p = elementwise("igamma_grad_a", _igamma_grad_a)
random_gamma_grad_p = elementwise("random_gamma_grad", _random_gamma_grad)


def _density(a, x):
    """dP/dx."""
    a, x = of_one_shape(a, x)
    large = (a >= 8.0) & (x > 0.0) & (x < np.inf)
    many, at = choose(large, a, 8.0), choose(large, x, 8.0)
    few = choose(large, 1.0, a)
    small = lax.exp(times_log(few - 1.0, lax.log(x)) - x - lax.lgamma(few))
    return choose(large, poisson_density(many, at) * (many / at), small)


defjvp(
    igamma_p,
    lambda t, a, x: t * igamma_grad_a(a, x),
    lambda t, a, x: t * _density(a, x),
)
defjvp(
    igammac_p,
    lambda t, a, x: -(t * igamma_grad_a(a, x)),
    lambda t, a, x: -(t * _density(a, x)),
)


def _density_slope(t, a, x, order):
    """The derivative of the density in `a`, `order` times."""

    def function(a):
        return _density(a, x)

    for _ in range(order):
        function = functools.partial(_slope, function)
    return t * function(a)


defjvp(
    igamma_grad_a_p,
    lambda t, a, x, order=1: t * igamma_grad_a_p.bind(a, x, order=order + 1),
    lambda t, a, x, order=1: _density_slope(t, a, x, order),
)


def igamma(a: ArrayLike, x: ArrayLike) -> Array:
    """The regularized lower incomplete gamma function `P(a, x)`, elementwise.

    `P(a, x)` is the integral of `t^(a-1) e^-t` from 0 to x over that to infinity, for a and x that are
    not negative; NaN elsewhere.

    Args:
        a: array of floats.
        x: array of the same dtype and shape; scalars broadcast.

    Errors: TypeError for other dtypes, and for dtypes or shapes that differ.

    Relative error below 1e-13 in float64 where the result is above 1e-30. Derivatives in both arguments.
    Source: Temme, SIAM J. Math. Anal. 10 (1979); DiDonato and Morris, ACM TOMS 12 (1986); Gil, Segura and
    Temme, SIAM J. Sci. Comput. 34 (2012).

    Example:
        >>> lax.igamma(jnp.array([1.0, 20.0]), jnp.array([1.0, 20.0]))
        Array([0.63212055, 0.5297427 ], dtype=float32)
    """
    return igamma_p.bind(a, x)


def igammac(a: ArrayLike, x: ArrayLike) -> Array:
    """The regularized upper incomplete gamma function `Q(a, x) = 1 - P(a, x)`, elementwise.

    Small values are computed as such, and not as a difference from 1.

    Args:
        a: array of floats.
        x: array of the same dtype and shape; scalars broadcast.

    Errors: TypeError for other dtypes, and for dtypes or shapes that differ.

    Accuracy, derivatives and sources are those of `igamma`.

    Example:
        >>> lax.igammac(jnp.array([1.0, 2.0]), jnp.array([1.0, 50.0]))
        Array([3.678794e-01, 9.836624e-21], dtype=float32)
    """
    return igammac_p.bind(a, x)


def igamma_grad_a(a: ArrayLike, x: ArrayLike) -> Array:
    """The derivative of `igamma(a, x)` in `a`, elementwise; NaN for `a <= 0` and for `x < 0`.

    Args:
        a: array of floats.
        x: array of the same dtype and shape; scalars broadcast.

    Errors: TypeError for other dtypes, and for dtypes or shapes that differ.

    The derivative of what `igamma` computes: see there. It has derivatives, too.

    Example:
        >>> lax.igamma_grad_a(1.0, 1.0)
        Array(-0.43172982, dtype=float32, weak_type=True)
    """
    return igamma_grad_a_p.bind(a, x)


def random_gamma_grad(a: ArrayLike, x: ArrayLike) -> Array:
    """The derivative of a sample `x` of the gamma distribution in its parameter `a`, elementwise.

    It is `-(dP/da) / (dP/dx)`, by the implicit derivative of `P(a, x) = const` with `P` as in `igamma`;
    NaN for `a <= 0` and for `x < 0`.

    Args:
        a: array of floats.
        x: array of the same dtype and shape; scalars broadcast.

    Errors: TypeError for other dtypes, and for dtypes or shapes that differ.

    Source: Figurnov, Mohamed and Mnih, Implicit reparameterization gradients, 2018.

    Example:
        >>> lax.random_gamma_grad(jnp.array([1.0, 5.0]), jnp.array([0.5, 5.0]))
        Array([0.8069791, 1.0339192], dtype=float32)
    """
    return random_gamma_grad_p.bind(a, x)
