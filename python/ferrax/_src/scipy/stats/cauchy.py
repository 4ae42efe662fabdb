"""The Cauchy distribution."""

from __future__ import annotations

import numpy as np

from ferrax._src.core import Array
from ferrax._src.core.typing import ArrayLike
from ferrax._src.lax import api as lax
from ferrax._src.numpy import api as jnp
from ferrax._src.numpy.util import promote_args_inexact
from ferrax._src.scipy.stats.common import log1p_square
from ferrax._src.transforms.jit import jit


@jit(inline=True)
def logpdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Logarithm of the density `1 / (pi * scale * (1 + y**2))`, `y = (x - loc) / scale`.

    Args: x: array. loc, scale: median, and half of the distance of the quartiles.
    They broadcast, and integers become floats. Raises: TypeError for what is no array or number.

    >>> stats.cauchy.logpdf(1.0)
    Array(-1.8378772, dtype=float32, weak_type=True)
    """
    x, loc, scale = promote_args_inexact("cauchy.logpdf", x, loc, scale)
    y = (x - loc) / scale
    return -(lax.log(np.pi * scale) + log1p_square(y))


@jit(inline=True)
def pdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Density; see `logpdf`.

    >>> stats.cauchy.pdf(1.0)
    Array(0.15915492, dtype=float32, weak_type=True)
    """
    return lax.exp(logpdf(x, loc, scale))


@jit(inline=True)
def cdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Probability of at most x: `1/2 + arctan(y) / pi`, in the tail the angle of `(-y, 1)`. As for `logpdf`.

    >>> stats.cauchy.cdf(1.0)
    Array(0.75, dtype=float32, weak_type=True)
    """
    x, loc, scale = promote_args_inexact("cauchy.cdf", x, loc, scale)
    return (1 / np.pi) * jnp.arctan2(jnp.ones_like(x), (loc - x) / scale)


@jit(inline=True)
def logcdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Logarithm of `cdf`; see `cdf`.

    >>> stats.cauchy.logcdf(1.0)
    Array(-0.28768206, dtype=float32, weak_type=True)
    """
    x, loc, scale = promote_args_inexact("cauchy.logcdf", x, loc, scale)
    small = x < loc
    below = cdf(jnp.where(small, x, loc - scale), loc, scale)
    above = cdf(jnp.where(small, -loc, -x), -loc, scale)
    return jnp.where(small, lax.log(below), lax.log1p(-above))


@jit(inline=True)
def sf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Probability of more than x. As for `logpdf`.

    >>> stats.cauchy.sf(1.0)
    Array(0.25, dtype=float32, weak_type=True)
    """
    x, loc, scale = promote_args_inexact("cauchy.sf", x, loc, scale)
    return cdf(-x, -loc, scale)


@jit(inline=True)
def logsf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Logarithm of `sf`; see `sf`.

    >>> stats.cauchy.logsf(1.0)
    Array(-1.3862944, dtype=float32, weak_type=True)
    """
    x, loc, scale = promote_args_inexact("cauchy.logsf", x, loc, scale)
    return logcdf(-x, -loc, scale)


@jit(inline=True)
def ppf(q: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The x at which `cdf` is q. loc, scale: as for `logpdf`.

    >>> stats.cauchy.ppf(0.75)
    Array(0.99999994, dtype=float32, weak_type=True)
    """
    q, loc, scale = promote_args_inexact("cauchy.ppf", q, loc, scale)
    return loc - _cotangent(q) * scale


@jit(inline=True)
def isf(q: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The x at which `sf` is q. loc, scale: as for `logpdf`.

    >>> stats.cauchy.isf(0.25)
    Array(1.0000001, dtype=float32, weak_type=True)
    """
    q, loc, scale = promote_args_inexact("cauchy.isf", q, loc, scale)
    return _cotangent(q) * scale + loc


def _cotangent(q):
    """`1 / tan(pi * q)` for q from 0 to 1, of the distance to the nearest of 0, 1/2 and 1."""
    end = jnp.where(q < 0.5, q, q - 1)
    near = lax.abs(end) < 0.25
    middle = lax.tan(np.pi * (0.5 - jnp.where(near, 0.5, q)))
    return jnp.where(near, 1 / lax.tan(np.pi * jnp.where(near, end, 0.25)), middle)
