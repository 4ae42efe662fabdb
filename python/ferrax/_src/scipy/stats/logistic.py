"""The logistic distribution."""

from __future__ import annotations

from ferrax._src.core import Array
from ferrax._src.core.typing import ArrayLike
from ferrax._src.lax import api as lax
from ferrax._src.numpy import api as jnp
from ferrax._src.numpy.util import promote_args_inexact
from ferrax._src.scipy.stats.common import expit, logit
from ferrax._src.transforms.jit import jit


@jit(inline=True)
def logpdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Logarithm of the density `exp(-y) / (scale * (1 + exp(-y))**2)`, `y = (x - loc) / scale`.

    Args: x: array. loc, scale: mean, and width.
    They broadcast, and integers become floats. Raises: TypeError for what is no array or number.

    >>> stats.logistic.logpdf(1.0)
    Array(-1.6265234, dtype=float32, weak_type=True)
    """
    x, loc, scale = promote_args_inexact("logistic.logpdf", x, loc, scale)
    half = (x - loc) / scale / 2
    return -2 * jnp.logaddexp(half, -half) - lax.log(scale)


@jit(inline=True)
def pdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Density; see `logpdf`.

    >>> stats.logistic.pdf(1.0)
    Array(0.19661194, dtype=float32, weak_type=True)
    """
    return lax.exp(logpdf(x, loc, scale))


@jit(inline=True)
def cdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Probability of at most x: the sigmoid of `(x - loc) / scale`. As for `logpdf`.

    >>> stats.logistic.cdf(1.0)
    Array(0.7310586, dtype=float32, weak_type=True)
    """
    x, loc, scale = promote_args_inexact("logistic.cdf", x, loc, scale)
    return expit((x - loc) / scale)


@jit(inline=True)
def sf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Probability of more than x. As for `logpdf`.

    >>> stats.logistic.sf(1.0)
    Array(0.26894143, dtype=float32, weak_type=True)
    """
    x, loc, scale = promote_args_inexact("logistic.sf", x, loc, scale)
    return expit(-((x - loc) / scale))


@jit(inline=True)
def ppf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The value at which `cdf` is x. loc, scale: as for `logpdf`.

    >>> stats.logistic.ppf(0.75)
    Array(1.0986123, dtype=float32, weak_type=True)
    """
    x, loc, scale = promote_args_inexact("logistic.ppf", x, loc, scale)
    return logit(x) * scale + loc


@jit(inline=True)
def isf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The value at which `sf` is x. loc, scale: as for `logpdf`.

    >>> stats.logistic.isf(0.25)
    Array(1.0986123, dtype=float32, weak_type=True)
    """
    x, loc, scale = promote_args_inexact("logistic.isf", x, loc, scale)
    return -logit(x) * scale + loc
