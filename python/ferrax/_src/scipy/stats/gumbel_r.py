"""The right-skewed Gumbel distribution: of the largest of many values."""

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
    """Logarithm of the density `exp(-y - exp(-y)) / scale`, `y = (x - loc) / scale`.

    Args: x: array. loc, scale: mode, and width; NaN where scale is not positive.
    They broadcast, and integers become floats. Raises: TypeError for what is no array or number.

    >>> stats.gumbel_r.logpdf(1.0)
    Array(-1.3678794, dtype=float32, weak_type=True)
    """
    x, loc, scale = promote_args_inexact("gumbel_r.logpdf", x, loc, scale)
    y = (x - loc) / scale
    exponent = jnp.where(y == -np.inf, -np.inf, -y - lax.exp(-y))
    return jnp.where(scale > 0, exponent - lax.log(scale), np.nan)


@jit(inline=True)
def pdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Density; see `logpdf`.

    >>> stats.gumbel_r.pdf(1.0)
    Array(0.2546464, dtype=float32, weak_type=True)
    """
    return lax.exp(logpdf(x, loc, scale))


@jit(inline=True)
def logcdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Logarithm of the probability `exp(-exp(-y))` of at most x. As for `logpdf`.

    >>> stats.gumbel_r.logcdf(1.0)
    Array(-0.36787945, dtype=float32, weak_type=True)
    """
    x, loc, scale = promote_args_inexact("gumbel_r.logcdf", x, loc, scale)
    return jnp.where(scale > 0, -lax.exp(-((x - loc) / scale)), np.nan)


@jit(inline=True)
def cdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Probability of at most x; see `logcdf`.

    >>> stats.gumbel_r.cdf(1.0)
    Array(0.6922006, dtype=float32, weak_type=True)
    """
    return lax.exp(logcdf(x, loc, scale))


@jit(inline=True)
def logsf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Logarithm of the probability `1 - exp(-exp(-y))` of more than x. As for `logpdf`.

    >>> stats.gumbel_r.logsf(1.0)
    Array(-1.178307, dtype=float32, weak_type=True)
    """
    x, loc, scale = promote_args_inexact("gumbel_r.logsf", x, loc, scale)
    y = (loc - x) / scale
    # Far out it is y.
    far = y < -80
    inside = log1mexp(lax.exp(jnp.where(far, 0, y)))
    return jnp.where(scale > 0, jnp.where(far, y, inside), np.nan)


@jit(inline=True)
def sf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Probability of more than x; see `logsf`.

    >>> stats.gumbel_r.sf(1.0)
    Array(0.3077994, dtype=float32, weak_type=True)
    """
    x, loc, scale = promote_args_inexact("gumbel_r.sf", x, loc, scale)
    return jnp.where(scale > 0, -lax.expm1(-lax.exp((loc - x) / scale)), np.nan)


@jit(inline=True)
def ppf(p: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The x at which `cdf` is p; NaN where p is not inside of (0, 1). loc, scale: as for `logpdf`.

    >>> stats.gumbel_r.ppf(0.5)
    Array(0.36651292, dtype=float32, weak_type=True)
    """
    p, loc, scale = promote_args_inexact("gumbel_r.ppf", p, loc, scale)
    x = loc - scale * lax.log(-lax.log(p))
    return jnp.where((p > 0) & (p < 1), x, np.nan)
