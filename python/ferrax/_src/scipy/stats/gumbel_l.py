"""The left-skewed Gumbel distribution: of the smallest of many values."""

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
    """Logarithm of the density `exp(y - exp(y)) / scale`, `y = (x - loc) / scale`.

    Args: x: array. loc, scale: mode, and width; NaN where scale is not positive.
    They broadcast, and integers become floats. Raises: TypeError for what is no array or number.

    >>> stats.gumbel_l.logpdf(1.0)
    Array(-1.7182817, dtype=float32, weak_type=True)
    """
    x, loc, scale = promote_args_inexact("gumbel_l.logpdf", x, loc, scale)
    y = (x - loc) / scale
    exponent = jnp.where(y == np.inf, -np.inf, y - lax.exp(y))
    return jnp.where(scale > 0, exponent - lax.log(scale), np.nan)


@jit(inline=True)
def pdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Density; see `logpdf`.

    >>> stats.gumbel_l.pdf(1.0)
    Array(0.1793741, dtype=float32, weak_type=True)
    """
    return lax.exp(logpdf(x, loc, scale))


@jit(inline=True)
def logcdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Logarithm of the probability `1 - exp(-exp(y))` of at most x. As for `logpdf`.

    >>> stats.gumbel_l.logcdf(1.0)
    Array(-0.06826606, dtype=float32, weak_type=True)
    """
    x, loc, scale = promote_args_inexact("gumbel_l.logcdf", x, loc, scale)
    y = (x - loc) / scale
    # Far out it is y.
    far = y < -80
    inside = log1mexp(lax.exp(jnp.where(far, 0, y)))
    return jnp.where(scale > 0, jnp.where(far, y, inside), np.nan)


@jit(inline=True)
def cdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Probability of at most x; see `logcdf`.

    >>> stats.gumbel_l.cdf(1.0)
    Array(0.93401194, dtype=float32, weak_type=True)
    """
    x, loc, scale = promote_args_inexact("gumbel_l.cdf", x, loc, scale)
    return jnp.where(scale > 0, -lax.expm1(-lax.exp((x - loc) / scale)), np.nan)


@jit(inline=True)
def logsf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Logarithm of the probability `exp(-exp(y))` of more than x. As for `logpdf`.

    >>> stats.gumbel_l.logsf(1.0)
    Array(-2.7182817, dtype=float32, weak_type=True)
    """
    x, loc, scale = promote_args_inexact("gumbel_l.logsf", x, loc, scale)
    return jnp.where(scale > 0, -lax.exp((x - loc) / scale), np.nan)


@jit(inline=True)
def sf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Probability of more than x; see `logsf`.

    >>> stats.gumbel_l.sf(1.0)
    Array(0.06598804, dtype=float32, weak_type=True)
    """
    return lax.exp(logsf(x, loc, scale))


@jit(inline=True)
def ppf(p: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The x at which `cdf` is p; NaN where p is not inside of (0, 1). loc, scale: as for `logpdf`.

    >>> stats.gumbel_l.ppf(0.5)
    Array(-0.36651292, dtype=float32, weak_type=True)
    """
    p, loc, scale = promote_args_inexact("gumbel_l.ppf", p, loc, scale)
    x = loc + scale * lax.log(-lax.log1p(-p))
    return jnp.where((p > 0) & (p < 1), x, np.nan)
