"""What functions of the gamma family have in common, on floating arrays of 32 or 64 bits.

Relative errors are a few units in the last place where a function is bounded by 1, and grow with its
logarithm below: `x^a e^-x / Gamma(a + 1)` near 1e-300 has lost three digits. Logarithms of densities are
computed as such, and are finite where the densities underflow.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ferrax._src.composed.special.elementwise import (
    choose,
    is_double,
    of_one_shape,
    polynomial,
    where,
)
from ferrax._src.lax import api as lax
from ferrax._src.transforms.custom_jvp import custom_jvp

# Stirling's series: B_2k / (2k (2k - 1)), DLMF 5.11.1.
STIRLING = (
    0.08333333333333333,
    -0.002777777777777778,
    0.0007936507936507937,
    -0.0005952380952380953,
    0.0008417508417508417,
    -0.0019175269175269176,
    0.00641025641025641,
    -0.029550653594771242,
    0.17964437236883057,
    -1.3924322169059011,
)
# (-1)^k (zeta(k) - 1) / k from k = 2, DLMF 5.7.3.
_LGAMMA1P = (
    0.3224670334241132,
    -0.0673523010531981,
    0.020580808427784546,
    -0.007385551028673986,
    0.0028905103307415234,
    -0.001192753911703261,
    0.0005096695247430425,
    -0.00022315475845357939,
    9.945751278180853e-05,
    -4.492623673813314e-05,
    2.050721277567069e-05,
    -9.439488275268397e-06,
    4.374866789907488e-06,
    -2.039215753801366e-06,
    9.55141213040742e-07,
    -4.492469198764566e-07,
    2.1207184805554665e-07,
    -1.0043224823968099e-07,
    4.7698101693639804e-08,
    -2.2711094608943164e-08,
    1.0838659214896955e-08,
    -5.183475041970047e-09,
    2.4836745438024785e-09,
    -1.1921401405860912e-09,
)


def stirling_remainder(a: Any) -> Any:
    """`lgamma(a) - (a - 1/2) log(a) + a - log(2 pi) / 2` for `a` from 8."""
    inverse = 1.0 / a
    return inverse * polynomial(STIRLING if is_double(a) else STIRLING[:4], inverse * inverse)


def lgamma1p(a: Any) -> Any:
    """`lgamma(1 + a)` for `a` from -1/2, to a relative error of a few units near 0."""
    near = lax.abs(a) < 0.5
    small = choose(near, a, 0.0)
    terms = _LGAMMA1P if is_double(a) else _LGAMMA1P[:12]
    series = small * polynomial(terms, small) + (1 - np.euler_gamma)
    return choose(near, series * small - lax.log1p(small), lax.lgamma(1.0 + a))


def _deviance_series(mu: Any) -> Any:
    """`(mu - log(1 + mu)) / mu^2` for `mu` from -1/2 to 1/2.

    With `r = mu / (2 + mu)` the logarithm is `2 artanh(r)`, whose first term differs from `mu` by
    `mu r` (Loader, Fast and accurate computation of binomial probabilities, 2000).
    """
    weight = 1.0 / (2.0 + mu)
    artanh = mu * weight
    terms = [1.0 / (2 * k + 3) for k in range(16 if is_double(mu) else 7)]
    return weight - 2.0 * weight * weight * artanh * polynomial(terms, artanh * artanh)


def deviance_over_square(mu: Any, ratio: Any) -> Any:
    """`(mu - log(ratio)) / mu^2` for `mu = ratio - 1`, smooth and without cancellation about 0."""
    near = lax.abs(mu) < 0.5
    large = choose(near, 1.0, mu)
    return choose(near, _deviance_series(choose(near, mu, 0.0)), (mu - lax.log(ratio)) / large / large)


def deviance(mu: Any, logarithm: Any) -> Any:
    """`mu - logarithm`, which is `log(1 + mu)`, without cancellation about 0."""
    near = lax.abs(mu) < 0.5
    small = choose(near, mu, 0.0)
    return choose(near, small * small * _deviance_series(small), mu - logarithm)


@custom_jvp
def _exponent(a, m, mu):
    """`a - m + a log(m / a)` for `mu = m / a - 1`: how much less likely a is than the mean m."""
    return -a * deviance(mu, lax.log(m / a))


@_exponent.defjvp
def _(primals, tangents):
    # In closed form: in those of the deviance large terms cancel. That mu depends on the others is in it.
    (a, m, mu), (da, dm, _) = primals, tangents
    near = lax.abs(mu) < 0.5
    log = choose(near, lax.log1p(choose(near, mu, 0.0)), lax.log(choose(near, 1.0, m / a)))
    return _exponent(a, m, mu), da * log - dm * (mu * (a / m))


def _log_saddle_point(a, x):
    """`log(poisson_density(a, x)) + log(2 pi a) / 2` for a from 8."""
    return _exponent(a, x, (x - a) / a) - stirling_remainder(a)


def poisson_density(a: Any, x: Any) -> Any:
    """`x^a e^-x / Gamma(a + 1)` for `a` and `x` that are not negative.

    From a = 8 in the saddle-point form `exp(-a d(x/a - 1) - s(a)) / sqrt(2 pi a)`, with the deviance d
    and the remainder s of Stirling's series, where no large numbers cancel.
    """
    large = a >= 8.0
    some = choose(large, a, 8.0)
    saddle = lax.exp(_log_saddle_point(some, x)) * (lax.rsqrt(some) * (1 / math.sqrt(2 * math.pi)))
    few = choose(large, 1.0, a)
    # Of powers up to 8 it is 0 from 2000 on, where x^8 is still finite.
    low = lax.min(x, lax.full_like(x, 2000.0))
    half = lax.exp(-0.5 * low)
    return choose(large, saddle, half * lax.pow(low, few) * half * lax.exp(-lgamma1p(few)))


def log_poisson_density(a: Any, x: Any) -> Any:
    """The logarithm of `poisson_density`."""
    large = a >= 8.0
    some = choose(large, a, 8.0)
    # Infinite numbers are not to be divided by themselves.
    low = choose(x < np.inf, x, 1.0)
    saddle = _log_saddle_point(some, low) - 0.5 * lax.log(2 * math.pi * some)
    few = choose(large, 1.0, a)
    direct = times_log(few, lax.log(low)) - low - lgamma1p(few)
    return choose(x < np.inf, choose(large, saddle, direct), -x)


def log_gamma_density(a: Any, x: Any) -> Any:
    """`log(x^(a - 1) e^-x / Gamma(a))` for positive `a` and `x` that is not negative; see `where`."""
    large = a >= 8.0

    def parts(parameter):
        parameter, at = of_one_shape(parameter, x)
        return parameter, choose((at > 0.0) & (at < np.inf), at, 1.0)

    def saddle():
        some, at = parts(choose(large, a, 8.0))
        density = _log_saddle_point(some, at) - 0.5 * lax.log(2 * math.pi * some)
        return density + lax.log(some / at)

    def direct():
        few, at = parts(choose(large, 1.0, a))
        return (few - 1.0) * lax.log(at) - at - lax.lgamma(few)

    found = where(large, saddle, direct)
    a, x = of_one_shape(a, x)
    start = choose(a < 1.0, np.inf, choose(a == 1.0, 0.0, lax.full_like(x, -np.inf)))
    return choose((x > 0.0) & (x < np.inf), found, choose(x == 0.0, start, -x))


def _both_large(p, q, x, y):
    """The logarithm of `binomial_density` for parameters from 8 on: `exponent + log(square) / 2`."""
    n = p + q
    gap = q * x - p * y
    exponent = _exponent(p, n * x, gap / p) + _exponent(q, n * y, -gap / q)
    rest = stirling_remainder(n) - stirling_remainder(p) - stirling_remainder(q)
    return exponent + rest, n / p / q * (1 / (2 * math.pi))


def _one_large(few, many, u, v):
    """The logarithm of `binomial_density` for one parameter from 8 on, with the quotient of gamma functions by
    Stirling's formula."""
    n = few + many
    exponent = times_log(few, lax.log(u * many)) + many * _log_of_rest(u, v)
    exponent = exponent + (n + 0.5) * lax.log1p(few / many) - few
    rest = stirling_remainder(n) - stirling_remainder(many) - lgamma1p(few)
    return exponent + rest


def _by_size(a, b, x, y, both, one, none):
    """`both`, `one` or `none` of what they are for: as many parameters as are from 8 on; see `where`. The others, which
    are computed with where it is another that counts, have parameters that are as large, or small."""
    a_large, b_large = a >= 8.0, b >= 8.0

    def large():
        return of_one_shape(choose(a_large, a, 8.0), choose(b_large, b, 8.0), x, y)

    def small():
        return of_one_shape(choose(a_large, 1.0, a), choose(b_large, 1.0, b), x, y)

    def by_one():
        (many_a, many_b, *_), (few_a, few_b, at, rest) = large(), small()
        first, _ = of_one_shape(a_large, at)
        few, many = choose(first, few_b, few_a), choose(first, many_a, many_b)
        return one(few, many, choose(first, rest, at), choose(first, at, rest))

    def not_both():
        return where(a_large | b_large, by_one, lambda: none(*small()))

    return where(a_large & b_large, lambda: both(*large()), not_both)


def _log_of_rest(u, v):
    """`log(v)` for `v = 1 - u`."""
    low = u < 0.5
    return choose(low, lax.log1p(-choose(low, u, 0.0)), lax.log(choose(low, 1.0, v)))


def binomial_density(a: Any, b: Any, x: Any, y: Any) -> Any:
    """`x^a y^b Gamma(a + b + 1) / (Gamma(a + 1) Gamma(b + 1))` for numbers that are not negative, with
    `x + y = 1`; see `where`.

    As with `poisson_density`, large parameters are in saddle-point form: DiDonato and Morris, ACM TOMS 18
    (1992).
    """

    def both(p, q, x, y):
        exponent, square = _both_large(p, q, x, y)
        return lax.exp(exponent) * lax.sqrt(square)

    def none(p, q, x, y):
        return lax.pow(x, p) * lax.pow(y, q) * lax.exp(lgamma1p(p + q) - lgamma1p(p) - lgamma1p(q))

    return _by_size(a, b, x, y, both, lambda *parts: lax.exp(_one_large(*parts)), none)


def log_binomial_density(a: Any, b: Any, x: Any, y: Any) -> Any:
    """The logarithm of `binomial_density`."""

    def none(p, q, x, y):
        powers = times_log(p, _log_of_rest(y, x)) + times_log(q, _log_of_rest(x, y))
        return powers + (lgamma1p(p + q) - lgamma1p(p) - lgamma1p(q))

    return _by_size(a, b, x, y, _log_both_large, _one_large, none)


def _log_both_large(p, q, x, y):
    exponent, square = _both_large(p, q, x, y)
    return exponent + 0.5 * lax.log(square)


def log_beta_density(a: Any, b: Any, x: Any) -> Any:
    """`log(x^(a - 1) (1 - x)^(b - 1) / B(a, b))` for positive `a` and `b`; see `where`."""
    inside = (x > 0.0) & (x < 1.0)
    some = choose(inside, x, 0.5)

    def with_roots(density):
        # Of x^a (1 - x)^b Gamma(a + b + 1) / (Gamma(a + 1) Gamma(b + 1)).
        def of_beta(p, q, x, y):
            return density(p, q, x, y) + (lax.log(p / (p + q)) + lax.log(q)) - lax.log(x) - lax.log(y)

        return of_beta

    def none(p, q, x, y):
        constant = lgamma1p(p + q) - lgamma1p(p) - lgamma1p(q) + (lax.log(p / (p + q)) + lax.log(q))
        return (p - 1.0) * lax.log(x) + (q - 1.0) * lax.log1p(-x) + constant

    found = _by_size(a, b, some, 1.0 - some, with_roots(_log_both_large), with_roots(_one_large), none)
    a, b, x, inside = of_one_shape(a, b, x, inside)
    # At the ends, where the other power is 1.
    low, high = x == 0.0, x == 1.0
    power, other = choose(low, a, b), choose(low, b, a)
    end = choose(power == 1.0, lax.log(other), choose(power < 1.0, np.inf, lax.full_like(x, -np.inf)))
    return choose(inside, found, choose(low | high, end, choose(x == x, -np.inf, x)))


def log_beta_quotient(p: Any, q: Any) -> Any:
    """`-log(p B(p, q))` for p up to 1 and q from p on, without cancellation for small p: it is in
    proportion to p.

    `Gamma(p + q) / Gamma(q)` is by Stirling's formula from q = 8 on, below from that at q + 8.
    """
    few = q < 8.0
    moved = choose(few, q, 8.0)
    # The product of 1 + p / (q + k), less 1.
    excess = p / moved
    for k in range(1, 8):
        step = p / (moved + float(k))
        excess = excess + step + excess * step
    base = choose(few, moved + 8.0, q)
    ratio = p / base
    # The difference of s(base + p) and s(base), as a divided difference of the series in the inverses.
    t = 1.0 / base
    u = t / (1.0 + ratio)
    terms = STIRLING if is_double(p) else STIRLING[:4]
    value, slope = lax.full_like(p, terms[-1]), lax.full_like(p, 0.0)
    for coefficient in reversed(terms[:-1]):
        slope = slope * (t * t) + value
        value = value * (u * u) + coefficient
    difference = -ratio * u * (value + t * (u + t) * slope)
    moment = (base + p - 0.5) * lax.log1p(ratio) + p * (lax.log(base) - 1.0) + difference
    return moment - choose(few, lax.log1p(excess), 0.0) - lgamma1p(p)


def times_log(factor: Any, logarithm: Any) -> Any:
    """The product, 0 for a factor of 0 and an infinite logarithm."""
    return factor * choose((factor == 0.0) & (logarithm == -np.inf), 0.0, logarithm)
