"""The Pareto distribution."""

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
def logpdf(x: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Logarithm of the density `b / (scale * y**(b + 1))`, `y = (x - loc) / scale` of at least 1.

    Args: x: array. b: positive exponent. loc, scale: shift, and smallest value before it.
    They broadcast, and integers become floats. Raises: TypeError for what is no array or number.

    >>> stats.pareto.logpdf(2.0, 3.0)
    Array(-1.6739764, dtype=float32, weak_type=True)
    """
    x, b, loc, scale = promote_args_inexact("pareto.logpdf", x, b, loc, scale)
    y = (x - loc) / scale
    log_probs = -(lax.log(scale / b) + (b + 1) * lax.log(y))
    return jnp.where(x < loc + scale, -np.inf, log_probs)


@jit(inline=True)
def pdf(x: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Density; see `logpdf`.

    >>> stats.pareto.pdf(2.0, 3.0)
    Array(0.1875, dtype=float32, weak_type=True)
    """
    return lax.exp(logpdf(x, b, loc, scale))


@jit(inline=True)
def cdf(x: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Probability of at most x: `1 - y**-b`. As for `logpdf`.

    >>> stats.pareto.cdf(2.0, 3.0)
    Array(0.875, dtype=float32, weak_type=True)
    """
    x, b, loc, scale = promote_args_inexact("pareto.cdf", x, b, loc, scale)
    y = (x - loc) / scale
    return jnp.where(x < loc + scale, 0, -lax.expm1(-b * lax.log(y)))


@jit(inline=True)
def logcdf(x: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Logarithm of the probability of at most x. As for `logpdf`.

    >>> stats.pareto.logcdf(2.0, 3.0)
    Array(-0.13353139, dtype=float32, weak_type=True)
    """
    x, b, loc, scale = promote_args_inexact("pareto.logcdf", x, b, loc, scale)
    y = (x - loc) / scale
    below = x < loc + scale
    return jnp.where(below, -np.inf, log1mexp(jnp.where(below, 1, b * lax.log(y))))


@jit(inline=True)
def logsf(x: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Logarithm of the probability `y**-b` of more than x. As for `logpdf`.

    >>> stats.pareto.logsf(2.0, 3.0)
    Array(-2.0794415, dtype=float32, weak_type=True)
    """
    x, b, loc, scale = promote_args_inexact("pareto.logsf", x, b, loc, scale)
    y = (x - loc) / scale
    return jnp.where(x < loc + scale, 0, -(b * lax.log(y)))


@jit(inline=True)
def sf(x: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Probability of more than x; see `logsf`.

    >>> stats.pareto.sf(2.0, 3.0)
    Array(0.125, dtype=float32, weak_type=True)
    """
    return lax.exp(logsf(x, b, loc, scale))


@jit(inline=True)
def ppf(q: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The x at which `cdf` is q; NaN where q is no probability. b, loc, scale: as for `logpdf`.

    >>> stats.pareto.ppf(0.875, 3.0)
    Array(2., dtype=float32, weak_type=True)
    """
    q, b, loc, scale = promote_args_inexact("pareto.ppf", q, b, loc, scale)
    bad = (q != q) | (q < 0) | (q > 1)
    return jnp.where(bad, np.nan, loc + scale * lax.exp(-lax.log1p(-q) / b))
