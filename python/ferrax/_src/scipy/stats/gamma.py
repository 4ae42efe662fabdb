"""The gamma distribution."""

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
def logpdf(x: ArrayLike, a: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Logarithm of the density `y**(a - 1) * exp(-y) / (gamma(a) * scale)`, `y = (x - loc) /
    scale`.

    Args: x: array. a: positive shape parameter. loc, scale: smallest value, and width.
    They broadcast, and integers become floats. Raises: TypeError for what is no array or number.

    >>> stats.gamma.logpdf(1.0, 3.0)
    Array(-1.6931472, dtype=float32, weak_type=True)
    """
    x, a, loc, scale = promote_args_inexact("gamma.logpdf", x, a, loc, scale)
    outside = x < loc
    # Finite where it is not used, for the sake of derivatives.
    y = jnp.where(outside, 1, (x - loc) / scale)
    log_probs = apply(log_gamma_density, [a, y], weak=True, repeated=False) - lax.log(scale)
    return jnp.where(outside, -np.inf, log_probs)


@jit(inline=True)
def pdf(x: ArrayLike, a: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Density; see `logpdf`.

    >>> stats.gamma.pdf(1.0, 3.0)
    Array(0.18393973, dtype=float32, weak_type=True)
    """
    return lax.exp(logpdf(x, a, loc, scale))


@jit(inline=True)
def cdf(x: ArrayLike, a: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Probability of at most x: the lower incomplete gamma function. As for `logpdf`.

    >>> stats.gamma.cdf(1.0, 3.0)
    Array(0.0803014, dtype=float32, weak_type=True)
    """
    x, a, loc, scale = promote_args_inexact("gamma.cdf", x, a, loc, scale)
    return gammainc(a, lax.clamp(constant(0, x), (x - loc) / scale, constant(np.inf, x)))


@jit(inline=True)
def logcdf(x: ArrayLike, a: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Logarithm of `cdf`, also where that underflows; see `cdf`.

    >>> stats.gamma.logcdf(1.0, 3.0)
    Array(-2.5219684, dtype=float32, weak_type=True)
    """
    x, a, loc, scale = promote_args_inexact("gamma.logcdf", x, a, loc, scale)
    y = lax.clamp(constant(0, x), (x - loc) / scale, constant(np.inf, x))
    return apply(log_gammainc, [a, y], weak=True)


@jit(inline=True)
def sf(x: ArrayLike, a: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Probability of more than x: the upper incomplete gamma function. As for `logpdf`.

    >>> stats.gamma.sf(1.0, 3.0)
    Array(0.9196986, dtype=float32, weak_type=True)
    """
    x, a, loc, scale = promote_args_inexact("gamma.sf", x, a, loc, scale)
    y = (x - loc) / scale
    return jnp.where(y < 0, 1, gammaincc(a, y))


@jit(inline=True)
def logsf(x: ArrayLike, a: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Logarithm of `sf`, also where that underflows; see `sf`.

    >>> stats.gamma.logsf(1.0, 3.0)
    Array(-0.08370928, dtype=float32, weak_type=True)
    """
    x, a, loc, scale = promote_args_inexact("gamma.logsf", x, a, loc, scale)
    y = lax.clamp(constant(0, x), (x - loc) / scale, constant(np.inf, x))
    return apply(log_gammaincc, [a, y], weak=True)
