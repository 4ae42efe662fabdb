"""The normal distribution."""

from __future__ import annotations

import math

from ferrax._src.core import Array
from ferrax._src.core.typing import ArrayLike
from ferrax._src.lax import api as lax
from ferrax._src.numpy import api as jnp
from ferrax._src.numpy.util import promote_args_inexact
from ferrax._src.scipy.stats.common import log_ndtr, ndtr, ndtri
from ferrax._src.transforms.jit import jit


@jit(inline=True)
def logpdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Logarithm of the density `exp(-y**2 / 2) / (scale * sqrt(2 * pi))`, `y = (x - loc) / scale`.

    Args: x: array. loc, scale: mean and standard deviation.
    They broadcast, and integers become floats. Raises: TypeError for what is no array or number.

    >>> stats.norm.logpdf(1.0)
    Array(-1.4189385, dtype=float32, weak_type=True)
    """
    x, loc, scale = promote_args_inexact("norm.logpdf", x, loc, scale)
    return -0.5 * lax.square((x - loc) / scale) - lax.log(scale) - 0.5 * math.log(2 * math.pi)


@jit(inline=True)
def pdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Density; see `logpdf`.

    >>> stats.norm.pdf(1.0)
    Array(0.24197073, dtype=float32, weak_type=True)
    """
    return lax.exp(logpdf(x, loc, scale))


@jit(inline=True)
def cdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Probability of at most x. As for `logpdf`.

    >>> stats.norm.cdf(1.0)
    Array(0.8413447, dtype=float32)
    """
    x, loc, scale = promote_args_inexact("norm.cdf", x, loc, scale)
    return ndtr((x - loc) / scale)


@jit(inline=True)
def logcdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Logarithm of `cdf`, also where that underflows. As for `logpdf`.

    >>> stats.norm.logcdf(-20.0)
    Array(-203.91716, dtype=float32)
    """
    x, loc, scale = promote_args_inexact("norm.logcdf", x, loc, scale)
    return log_ndtr((x - loc) / scale)


@jit(inline=True)
def sf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Probability of more than x. As for `logpdf`.

    >>> stats.norm.sf(1.0)
    Array(0.15865526, dtype=float32)
    """
    x, loc, scale = promote_args_inexact("norm.sf", x, loc, scale)
    return cdf(-x, -loc, scale)


@jit(inline=True)
def logsf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Logarithm of `sf`, also where that underflows. As for `logpdf`.

    >>> stats.norm.logsf(20.0)
    Array(-203.91716, dtype=float32)
    """
    x, loc, scale = promote_args_inexact("norm.logsf", x, loc, scale)
    return logcdf(-x, -loc, scale)


@jit(inline=True)
def ppf(q: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The x at which `cdf` is q. loc, scale: as for `logpdf`.

    >>> stats.norm.ppf(0.975)
    Array(1.9599642, dtype=float32)
    """
    return jnp.asarray(ndtri(q) * scale + loc, float)


@jit(inline=True)
def isf(q: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The x at which `sf` is q. loc, scale: as for `logpdf`.

    >>> stats.norm.isf(0.025)
    Array(1.9599642, dtype=float32)
    """
    return jnp.asarray(loc - ndtri(q) * scale, float)
