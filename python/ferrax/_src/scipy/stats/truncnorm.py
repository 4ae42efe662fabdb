"""The normal distribution, conditioned to lie between two bounds.

Probabilities of intervals are kept as quotients by the density at the interval's point nearest to zero, which are
of moderate size. A density over a probability, and a probability over another, are then differences of small
numbers, also where both underflow.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ferrax._src.core import Array
from ferrax._src.core.typing import ArrayLike
from ferrax._src.lax import api as lax
from ferrax._src.numpy import api as jnp
from ferrax._src.numpy.util import promote_args_inexact
from ferrax._src.scipy.special.arguments import standard_type
from ferrax._src.scipy.special.error_functions import scaled_erfc
from ferrax._src.scipy.special.normal_distribution import ndtr
from ferrax._src.transforms.custom_jvp import custom_jvp
from ferrax._src.transforms.jit import jit

_ROOT_HALF = math.sqrt(0.5)
_LOG_HEIGHT = -0.5 * math.log(2 * math.pi)


def _nearest(low, high):
    """The point of an interval that is nearest to zero."""
    return jnp.clip(0, low, high)


def _descent(x, y):
    """How much the logarithm of the normal density falls from x to y."""
    return 0.5 * ((y - x) * (y + x))


@custom_jvp
def _log_ratio(low, high):
    """Logarithm of the probability of an interval over the density at its point nearest to zero."""
    # Of an interval and its mirror image the one that reaches farther to the left.
    mirror = low + high > 0
    far, near = jnp.where(mirror, -high, low), jnp.where(mirror, -low, high)

    # One side of zero: what the tail up to `near` is over the density there, less the part beyond `far`.
    tail = jnp.where(near < 0, near, 0)
    beyond = jnp.where(far < tail, far, tail)
    whole = scaled_erfc(-_ROOT_HALF * tail)
    lost = lax.log(scaled_erfc(-_ROOT_HALF * beyond) / whole) - jnp.where(far < tail, _descent(tail, beyond), 0)
    one_side = lax.log(math.sqrt(0.5 * math.pi) * whole) + lax.log(-lax.expm1(lost))

    # About zero: the sum of two parts, or what two tails leave over, whichever has no cancellation.
    parts = 0.5 * (lax.erf(_ROOT_HALF * near) - lax.erf(_ROOT_HALF * far))
    inside = jnp.where(parts < 0.5, lax.log(parts), lax.log1p(-(ndtr(far) + ndtr(-near))))
    about_zero = inside + 0.5 * tail * tail - _LOG_HEIGHT
    ratio = jnp.where((near <= 0) & (far < -1), one_side, about_zero)
    return jnp.where(low >= high, -np.inf, ratio)


@_log_ratio.defjvp
def _(primals, tangents):
    (low, high), (dlow, dhigh) = primals, tangents
    ratio, nearest = _log_ratio(low, high), _nearest(low, high)
    # A bound moves the probability by the density there; if it is the nearest point, the divisor too.
    moved = lax.exp(-_descent(nearest, high) - ratio) * dhigh - lax.exp(-_descent(nearest, low) - ratio) * dlow
    return ratio, moved + nearest * jnp.where(high < 0, dhigh, jnp.where(low > 0, dlow, 0))


def _standard(name: str, x: Any, a: Any, b: Any, loc: Any, scale: Any) -> Any:
    """`(x - loc) / scale`, the bounds, and the scale, of one dtype and shape."""
    x, a, b, loc, scale = promote_args_inexact(name, x, a, b, loc, scale)
    return jnp.broadcast_arrays(standard_type(name, (x - loc) / scale), a, b, scale)


def _log_share(x, a, b):
    """Logarithm of the share of the probability of [a, b] that lies below x."""
    x = jnp.clip(x, a, b)
    below, above = _nearest(a, x), _nearest(x, b)
    odds = _log_ratio(x, b) - _log_ratio(a, x) - _descent(below, above)
    return jnp.where(a < b, 0 - jnp.logaddexp(0, odds), np.nan)


@jit
def logpdf(
    x: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1
) -> Array:
    """Logarithm of the density: that of the normal distribution over the probability of [a, b].

    Args: x: array. a, b: the bounds, of `(x - loc) / scale`; NaN where they are not in order. loc, scale:
        mean and standard deviation before the condition.
    They broadcast, and integers become floats. Raises: TypeError for what is no array or number.

    >>> stats.truncnorm.logpdf(0.5, -1.0, 1.0)
    Array(-0.66222334, dtype=float32)
    """
    y, low, high, width = _standard("truncnorm.logpdf", x, a, b, loc, scale)
    height = -_descent(_nearest(low, high), y) - _log_ratio(low, high) - lax.log(width)
    outside = lax.max(low - y, y - high) > 0
    return jnp.where(low < high, jnp.where(outside, -np.inf, height), np.nan)


def pdf(
    x: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1
) -> Array:
    """Density; see `logpdf`.

    >>> stats.truncnorm.pdf(0.5, -1.0, 1.0)
    Array(0.5157035, dtype=float32)
    """
    return lax.exp(logpdf(x, a, b, loc, scale))


@jit
def logcdf(
    x: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1
) -> Array:
    """Logarithm of the probability of at most x; by the odds against it. As for `logpdf`.

    >>> stats.truncnorm.logcdf(0.5, -1.0, 1.0)
    Array(-0.24788049, dtype=float32)
    """
    y, a, b, _ = _standard("truncnorm.logcdf", x, a, b, loc, scale)
    return _log_share(y, a, b)


@jit
def cdf(
    x: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1
) -> Array:
    """Probability of at most x; see `logcdf`.

    >>> stats.truncnorm.cdf(0.5, -1.0, 1.0)
    Array(0.7804532, dtype=float32)
    """
    return lax.exp(logcdf(x, a, b, loc, scale))


@jit
def logsf(
    x: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1
) -> Array:
    """Logarithm of the probability of more than x: that of the mirror image's `logcdf`. As for `logpdf`.

    >>> stats.truncnorm.logsf(0.5, -1.0, 1.0)
    Array(-1.5161899, dtype=float32)
    """
    y, low, high, _ = _standard("truncnorm.logsf", x, a, b, loc, scale)
    return _log_share(-y, -high, -low)


@jit
def sf(
    x: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1
) -> Array:
    """Probability of more than x; see `logsf`.

    >>> stats.truncnorm.sf(0.5, -1.0, 1.0)
    Array(0.21954678, dtype=float32)
    """
    return lax.exp(logsf(x, a, b, loc, scale))
