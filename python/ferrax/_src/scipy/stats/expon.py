"""The exponential distribution."""

from __future__ import annotations

import numpy as np

from ferrax._src.core import Array
from ferrax._src.core.typing import ArrayLike
from ferrax._src.lax import api as lax
from ferrax._src.nn.functions import log1mexp
from ferrax._src.numpy import api as jnp
from ferrax._src.numpy.util import promote_args_inexact
from ferrax._src.transforms.jit import jit


@jit(inline=True)
def logpdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Logarithm of the density `exp(-y) / scale`, `y = (x - loc) / scale` not negative.

    Args: x: array. loc, scale: smallest value, and mean distance from it.
    They broadcast, and integers become floats. Raises: TypeError for what is no array or number.

    >>> stats.expon.logpdf(1.0)
    Array(-1., dtype=float32, weak_type=True)
    """
    x, loc, scale = promote_args_inexact("expon.logpdf", x, loc, scale)
    log_probs = -((x - loc) / scale + lax.log(scale))
    return jnp.where(x < loc, -np.inf, log_probs)


@jit(inline=True)
def pdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Density; see `logpdf`.

    >>> stats.expon.pdf(1.0)
    Array(0.36787945, dtype=float32, weak_type=True)
    """
    return lax.exp(logpdf(x, loc, scale))


@jit(inline=True)
def cdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Probability of at most x: `1 - exp(-y)`. As for `logpdf`.

    >>> stats.expon.cdf(1.0)
    Array(0.63212055, dtype=float32, weak_type=True)
    """
    x, loc, scale = promote_args_inexact("expon.cdf", x, loc, scale)
    y = (loc - x) / scale
    return jnp.where(x < loc, jnp.zeros_like(y), -lax.expm1(y))


@jit(inline=True)
def logcdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Logarithm of `cdf`; see `cdf`.

    >>> stats.expon.logcdf(1.0)
    Array(-0.45867515, dtype=float32, weak_type=True)
    """
    x, loc, scale = promote_args_inexact("expon.logcdf", x, loc, scale)
    y = (x - loc) / scale
    return jnp.where(x < loc, -np.inf, log1mexp(jnp.where(x < loc, 1, y)))


@jit(inline=True)
def logsf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Logarithm of the probability of more than x. As for `logpdf`.

    >>> stats.expon.logsf(1.0)
    Array(-1., dtype=float32, weak_type=True)
    """
    x, loc, scale = promote_args_inexact("expon.logsf", x, loc, scale)
    y = (loc - x) / scale
    return jnp.where(x < loc, jnp.zeros_like(y), y)


@jit(inline=True)
def sf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Probability of more than x; see `logsf`.

    >>> stats.expon.sf(1.0)
    Array(0.36787945, dtype=float32, weak_type=True)
    """
    return lax.exp(logsf(x, loc, scale))


@jit(inline=True)
def ppf(q: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The x at which `cdf` is q; NaN where q is no probability. loc, scale: as for `logpdf`.

    >>> stats.expon.ppf(0.5)
    Array(0.6931472, dtype=float32, weak_type=True)
    """
    q, loc, scale = promote_args_inexact("expon.ppf", q, loc, scale)
    bad = (q != q) | (q < 0) | (q > 1)
    return jnp.where(bad, np.nan, loc - scale * lax.log1p(-q))
