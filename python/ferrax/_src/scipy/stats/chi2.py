"""The chi-squared distribution: of the sum of the squares of `df` normal numbers."""

from __future__ import annotations

import numpy as np

from ferrax._src.composed.special.gamma_parts import log_gamma_density
from ferrax._src.composed.special.incomplete_gamma import igamma as gammainc, igammac as gammaincc
from ferrax._src.core import Array
from ferrax._src.core.typing import ArrayLike
from ferrax._src.lax import api as lax
from ferrax._src.numpy import api as jnp
from ferrax._src.numpy.util import constant, promote_args_inexact
from ferrax._src.scipy.special.arguments import apply
from ferrax._src.scipy.special.log_incomplete_gamma import log_gammainc, log_gammaincc
from ferrax._src.transforms.jit import jit


@jit(inline=True)
def logpdf(x: ArrayLike, df: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Logarithm of the density `(y / 2)**(df/2 - 1) * exp(-y / 2) / (2 * scale * gamma(df/2))`, `y
    = (x - loc) / scale`.

    Args: x: array. df: degrees of freedom, positive. loc, scale: shift and width.
    They broadcast, and integers become floats. Raises: TypeError for what is no array or number.

    >>> stats.chi2.logpdf(1.0, 3.0)
    Array(-1.4189385, dtype=float32, weak_type=True)
    """
    x, df, loc, scale = promote_args_inexact("chi2.logpdf", x, df, loc, scale)
    outside = x < loc
    # Finite where it is not used, for the sake of derivatives.
    half = jnp.where(outside, 1, (x - loc) / scale / 2)
    log_probs = apply(log_gamma_density, [df / 2, half], weak=True, repeated=False) - lax.log(2 * scale)
    return jnp.where(outside, -np.inf, log_probs)


@jit(inline=True)
def pdf(x: ArrayLike, df: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Density; see `logpdf`.

    >>> stats.chi2.pdf(1.0, 3.0)
    Array(0.24197073, dtype=float32, weak_type=True)
    """
    return lax.exp(logpdf(x, df, loc, scale))


@jit(inline=True)
def cdf(x: ArrayLike, df: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Probability of at most x: the lower incomplete gamma function. As for `logpdf`.

    >>> stats.chi2.cdf(1.0, 3.0)
    Array(0.19874802, dtype=float32, weak_type=True)
    """
    x, df, loc, scale = promote_args_inexact("chi2.cdf", x, df, loc, scale)
    return gammainc(df / 2, lax.clamp(constant(0, x), (x - loc) / (scale * 2), constant(np.inf, x)))


@jit(inline=True)
def logcdf(x: ArrayLike, df: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Logarithm of `cdf`, also where that underflows; see `cdf`.

    >>> stats.chi2.logcdf(1.0, 3.0)
    Array(-1.6157174, dtype=float32, weak_type=True)
    """
    x, df, loc, scale = promote_args_inexact("chi2.logcdf", x, df, loc, scale)
    y = lax.clamp(constant(0, x), (x - loc) / (scale * 2), constant(np.inf, x))
    return apply(log_gammainc, [df / 2, y], weak=True)


@jit(inline=True)
def sf(x: ArrayLike, df: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Probability of more than x: the upper incomplete gamma function. As for `logpdf`.

    >>> stats.chi2.sf(1.0, 3.0)
    Array(0.801252, dtype=float32, weak_type=True)
    """
    x, df, loc, scale = promote_args_inexact("chi2.sf", x, df, loc, scale)
    return gammaincc(df / 2, lax.clamp(constant(0, x), (x - loc) / (scale * 2), constant(np.inf, x)))


@jit(inline=True)
def logsf(x: ArrayLike, df: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Logarithm of `sf`, also where that underflows; see `sf`.

    >>> stats.chi2.logsf(1.0, 3.0)
    Array(-0.22157976, dtype=float32, weak_type=True)
    """
    x, df, loc, scale = promote_args_inexact("chi2.logsf", x, df, loc, scale)
    y = lax.clamp(constant(0, x), (x - loc) / (scale * 2), constant(np.inf, x))
    return apply(log_gammaincc, [df / 2, y], weak=True)
