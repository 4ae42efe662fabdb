"""The normal distribution, conditioned to lie between two bounds."""

from __future__ import annotations

import numpy as np

from ferrax._src.core import Array
from ferrax._src.core.typing import ArrayLike
from ferrax._src.lax import api as lax
from ferrax._src.numpy import api as jnp
from ferrax._src.numpy.logsumexp import logsumexp
from ferrax._src.numpy.util import promote_args_inexact
from ferrax._src.scipy.stats import norm
from ferrax._src.scipy.stats.common import log_ndtr, ndtr
from ferrax._src.transforms.jit import jit


def _log_mass(a, b):
    """Logarithm of the probability that a normal number is between a and b, which are in order."""
    a, b = jnp.broadcast_arrays(a, b)
    # Of bounds on one side, those below zero: there the smaller probability has no cancellation.
    right = a > 0
    low, high = jnp.where(right, -b, a), jnp.where(right, -a, b)
    signs = jnp.expand_dims(jnp.array([1, -1], a.dtype), tuple(range(1, a.ndim + 1)))
    tail = logsumexp(jnp.stack([log_ndtr(high), log_ndtr(low)]), b=signs, axis=0)
    central = lax.log1p(-ndtr(a) - ndtr(-b))
    return jnp.where((b <= 0) | right, tail, central)


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
    x, a, b, loc, scale = promote_args_inexact("truncnorm.logpdf", x, a, b, loc, scale)
    y = (x - loc) / scale
    log_probs = norm.logpdf(x, loc, scale) - _log_mass(a, b)
    log_probs = jnp.where((y < a) | (y > b), -np.inf, log_probs)
    return jnp.where(a >= b, np.nan, log_probs)


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
    """Logarithm of the probability of at most x; from that of more than x where that is small.

    As for `logpdf`.

    >>> stats.truncnorm.logcdf(0.5, -1.0, 1.0)
    Array(-0.24788049, dtype=float32)
    """
    x, a, b, loc, scale = promote_args_inexact("truncnorm.logcdf", x, a, b, loc, scale)
    x, a, b = jnp.broadcast_arrays(x, a, b)
    x = (x - loc) / scale
    log_mass = _log_mass(a, b)
    below, above = _log_mass(a, x) - log_mass, _log_mass(x, b) - log_mass
    inside = jnp.where(below > -0.1, lax.log1p(-lax.exp(above)), jnp.where(x > a, below, 0))
    log_probs = jnp.where(x >= b, 0, jnp.where(x <= a, -np.inf, inside))
    return jnp.where(a >= b, np.nan, log_probs)


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
    """Logarithm of the probability of more than x: `logcdf` of the mirror image. As for `logpdf`.

    >>> stats.truncnorm.logsf(0.5, -1.0, 1.0)
    Array(-1.5161899, dtype=float32)
    """
    x, a, b, loc, scale = promote_args_inexact("truncnorm.logsf", x, a, b, loc, scale)
    return logcdf(-x, -b, -a, -loc, scale)


@jit
def sf(
    x: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1
) -> Array:
    """Probability of more than x; see `logsf`.

    >>> stats.truncnorm.sf(0.5, -1.0, 1.0)
    Array(0.21954678, dtype=float32)
    """
    return lax.exp(logsf(x, a, b, loc, scale))
