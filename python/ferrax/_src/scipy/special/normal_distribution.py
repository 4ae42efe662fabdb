"""The normal distribution function, its logarithm and its inverse, and Owen's T.

In: arrays and numbers. Relative errors are a few units in the last place, of Owen's T below 1e-13 in float64.
"""

from __future__ import annotations

import math

import numpy as np

from ferrax._src.base import config
from ferrax._src.composed.special.elementwise import choose, is_double
from ferrax._src.core import Array
from ferrax._src.core.typing import ArrayLike
from ferrax._src.lax import api as lax
from ferrax._src.scipy.special.arguments import apply, real_arguments, standard_type
from ferrax._src.scipy.special.chebyshev_tables import (
    NDTR,
    NDTRI_FAR,
    NDTRI_FARTHEST,
    NDTRI_MIDDLE,
    NDTRI_NEAR,
    NDTRI_SINGLE,
    series,
)
from ferrax._src.scipy.special.error_functions import exp_of_square, scaled_erfc_of_size
from ferrax._src.transforms.custom_jvp import custom_jvp

_ROOT_HALF = math.sqrt(0.5)
_LOG_HEIGHT = -0.5 * math.log(2 * math.pi)


def _half_erfcx(x):
    """`erfcx(|x| / sqrt(2)) / 2`: how likely a variable is beyond |x|, by its density there."""
    return 0.5 * scaled_erfc_of_size(_ROOT_HALF * lax.abs(x))


def _tail(x):
    """How likely a variable is beyond |x|."""
    return _half_erfcx(x) * exp_of_square(x, -0.5)


def _from_middle(x):
    """How likely a variable is between 0 and x, for x from -1 to 1; of NaN that."""
    return x * series(NDTR, 2.0 * lax.square(x) - 1.0)


@custom_jvp
def _ndtr(x):
    tail = _tail(x)
    middle = 0.5 + _from_middle(x)
    return choose(x < -1.0, tail, choose(x > 1.0, 1.0 - tail, middle))


@_ndtr.defjvp
def _(primals, tangents):
    ((x,), (t,)) = primals, tangents
    return _ndtr(x), t * lax.exp(-0.5 * x * x + _LOG_HEIGHT)


def ndtr(x: ArrayLike) -> Array:
    """The normal distribution function: how likely a standard normal variable is below x, elementwise.

    Args: x: array of float32 or float64. Errors: TypeError for other dtypes.

    A Chebyshev series up to 1, beyond by `erfcx`, so that small values have all digits.

    >>> ferrax.scipy.special.ndtr(jnp.array([0.0, 1.0, -5.0]))
    Array([5.0000000e-01, 8.4134471e-01, 2.8665156e-07], dtype=float32)
    """
    return apply(_ndtr, [standard_type("ndtr", x)])


def _between(low, x, high):
    return lax.min(lax.max(x, lax.full_like(x, low)), lax.full_like(x, high))


def _ndtri_of_tail(z, least):
    """Of numbers `exp(-z^2 / 2)`, for z from `least` on: float32 has none beyond 14.5."""
    if not is_double(z):
        first, last = 1 / (least + 2), 1 / (14.5 + 2)
        inverse = 1.0 / (z + 2.0)
        t = (inverse - 0.5 * (first + last)) * (2 / (last - first))
        return z * series(NDTRI_SINGLE, t)

    def part(table, low, high):
        return series(table, (2.0 * _between(low, z, high) - (low + high)) * (1 / (high - low)))

    far = choose(z < 14.0, part(NDTRI_FAR, 5.0, 14.0), part(NDTRI_FARTHEST, 14.0, 39.0))
    return choose(z < 5.0, part(NDTRI_NEAR, least, 5.0), far)


@custom_jvp
def _ndtri(p):
    upper = p > 0.5
    tail = choose(upper, 1.0 - p, p)
    inside = (tail > 0.0) & (p < 1.0)
    middle = tail > 0.075
    # About one half.
    q = choose(middle, p - 0.5, 0.0)
    centre = q * series(NDTRI_MIDDLE, 2.0 * lax.square(q * (1 / 0.425)) - 1.0)
    # In the tail by z = sqrt(-2 log p).
    least = math.sqrt(-2 * math.log(0.075))
    z = lax.sqrt(-2.0 * lax.log(choose(inside & ~middle, tail, 0.05)))

    size = _ndtri_of_tail(z, least)
    result = choose(middle, centre, choose(upper, size, -size))
    with config.debug_infs(False):
        result = choose(p == 0.0, -np.inf, choose(p == 1.0, np.inf, result))
    return choose((p >= 0.0) & (p <= 1.0), result, np.nan)


@_ndtri.defjvp
def _(primals, tangents):
    ((p,), (t,)) = primals, tangents
    x = _ndtri(p)
    return x, t * lax.exp(0.5 * x * x - _LOG_HEIGHT)


def ndtri(p: ArrayLike) -> Array:
    """The inverse of `ndtr`, elementwise; NaN outside of 0 to 1.

    Args: p: array of float32 or float64. Errors: TypeError for other dtypes.

    Chebyshev series, in the tails in `sqrt(-2 log p)`, as Wichura's AS 241 (Applied Statistics 37, 1988) has
    rational functions.

    >>> ferrax.scipy.special.ndtri(jnp.array([0.5, 0.975, 1e-10]))
    Array([ 0.       ,  1.959964 , -6.3613405], dtype=float32)
    """
    return apply(_ndtri, [standard_type("ndtri", p)])


def erfcinv(y: ArrayLike) -> Array:
    """The inverse of `erfc`, accurate where y is small, elementwise; NaN outside of 0 to 2.

    Args: y: array of real numbers; integers become floats. Raises TypeError for complex ones.

    It is `-ndtri(y / 2) / sqrt(2)`.

    >>> ferrax.scipy.special.erfcinv(jnp.array([0.5, 1e-30]))
    Array([0.47693628, 8.148617  ], dtype=float32)
    """
    return apply(lambda y: 0.0 - _ROOT_HALF * _ndtri(0.5 * y), real_arguments("erfcinv", y), weak=True)


@custom_jvp
def _log_ndtr(x):
    beyond = choose(x > 1.0, _tail(x), 0.5 - _from_middle(x))
    low = x < -1.0
    below = lax.log(_half_erfcx(x)) - 0.5 * x * x
    return choose(low, below, lax.log1p(-choose(low, 0.5, beyond)))


@_log_ndtr.defjvp
def _(primals, tangents):
    ((x,), (t,)) = primals, tangents
    y = _log_ndtr(x)
    # The density over the distribution: in the tail both are 0, and the quotient is 1 / erfcx.
    low = x < -1.0
    some = choose(low, x, -1.0)
    tail = math.sqrt(0.5 / math.pi) / _half_erfcx(some)
    above, logarithm = choose(low, 0.0, x), choose(low, 0.0, y)
    return y, t * choose(low, tail, lax.exp(-0.5 * above * above + _LOG_HEIGHT - logarithm))


def log_ndtr(x: ArrayLike, series_order: int = 3) -> Array:
    """The logarithm of `ndtr`, elementwise, accurate in both tails.

    Args:
        x: array of float32 or float64.
        series_order: from 0 to 30, the order of an asymptotic series that others use in the tail. Here
            there is none, and results are the same for all.

    Errors: TypeError for other dtypes and for an order that is no integer, ValueError for one out of range.

    `log(erfcx(-x / sqrt(2)) / 2) - x^2 / 2` below -1, above by `log1p`.

    >>> ferrax.scipy.special.log_ndtr(jnp.array([-30.0, 0.0, 10.0]))
    Array([-4.5432126e+02, -6.9314718e-01, -7.6198528e-24], dtype=float32)
    """
    if not isinstance(series_order, int):
        raise TypeError(f"log_ndtr: series_order must be a Python integer, got {series_order!r}")
    if not 0 <= series_order <= 30:
        raise ValueError(f"log_ndtr: series_order must be from 0 to 30, got {series_order}")
    return apply(_log_ndtr, [standard_type("log_ndtr", x)])


def _owens_nodes(double):
    nodes, weights = np.polynomial.legendre.leggauss(26 if double else 12)
    return 0.5 * (nodes + 1.0), 0.5 * weights


@custom_jvp
def _owens_t(h, a):
    h, size = lax.abs(h), lax.abs(a)
    # T(h, a) for a > 1 by T(a h, 1 / a).
    inside = size <= 1.0
    slope = choose(inside, size, 1.0 / choose(inside, 1.0, size))
    height = choose(inside, h, size * h)
    height = choose(lax.ne(height, height), 0.0, height)
    total = lax.full_like(h, 0.0)
    for node, weight in zip(*map(np.ndarray.tolist, _owens_nodes(is_double(h)))):
        square = 1.0 + lax.square(slope * node)
        total = total + weight * lax.exp(-0.5 * lax.square(height) * square) / square
    part = total * slope * (1 / (2 * math.pi))
    # T(h, a) + T(a h, 1 / a) = (P + R) / 2 - P R, less 1/2 if a < 0, with P = ndtr(h) and R = ndtr(a h); here
    # by the tails 1 - P and 1 - R.
    p, r = 0.5 * lax.erfc(_ROOT_HALF * h), 0.5 * lax.erfc(_ROOT_HALF * height)
    other = 0.5 * (p + r) - p * r - part
    result = lax.sign(a) * choose(inside, part, other)
    return choose(lax.ne(a, a) | lax.ne(h, h), np.nan, result)


@_owens_t.defjvp
def _(primals, tangents):
    (h, a), (dh, da) = primals, tangents
    turn = 1.0 + a * a
    slope_h = lax.exp(-0.5 * h * h) * lax.erf(_ROOT_HALF * a * h) * (-0.5 / math.sqrt(2 * math.pi))
    slope_a = lax.exp(-0.5 * turn * h * h) / turn * (0.5 / math.pi)
    return _owens_t(h, a), dh * slope_h + da * slope_a


def owens_t(h: ArrayLike, a: ArrayLike) -> Array:
    """Owen's T: of `e^(-h^2 (1 + t^2) / 2) / (1 + t^2) / (2 pi)` the integral from 0 to a, elementwise.

    Args: h, a: arrays of real numbers that broadcast together; integers become floats. Errors: ValueError
    for complex ones.

    The Gauss-Legendre rule for a up to 1, above by reflection: Patefield and Tandy, J. Statistical Software
    5 (2000).

    >>> ferrax.scipy.special.owens_t(jnp.array([0.0, 1.0]), 1.0)
    Array([0.125     , 0.06674188], dtype=float32)
    """
    return apply(_owens_t, real_arguments("owens_t", h, a))
