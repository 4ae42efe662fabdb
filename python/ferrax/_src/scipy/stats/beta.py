"""The beta distribution on the interval from `loc` to `loc + scale`."""

from __future__ import annotations

import numpy as np

from ferrax._src.composed.special.gamma_parts import log_beta_density
from ferrax._src.composed.special.incomplete_beta import (
    betainc,
    betaincc,
    log_betainc,
    log_betaincc,
)
from ferrax._src.core import Array
from ferrax._src.core.typing import ArrayLike
from ferrax._src.lax import api as lax
from ferrax._src.numpy import api as jnp
from ferrax._src.numpy.util import constant, promote_args_inexact
from ferrax._src.scipy.special.arguments import apply
from ferrax._src.transforms.jit import jit


@jit(inline=True)
def logpdf(
    x: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1
) -> Array:
    """Logarithm of the density `y**(a - 1) * (1 - y)**(b - 1) / B(a, b) / scale`, `y = (x - loc) /
    scale`.

    Args: x: array. a, b: positive shape parameters. loc, scale: where the interval starts, and its
        length.
    They broadcast, and integers become floats. Raises: TypeError for what is no array or number.

    >>> stats.beta.logpdf(0.5, 2.0, 3.0)
    Array(0.40546513, dtype=float32, weak_type=True)
    """
    x, a, b, loc, scale = promote_args_inexact("beta.logpdf", x, a, b, loc, scale)
    y = (x - loc) / scale
    log_probs = apply(log_beta_density, [a, b, y], weak=True, repeated=False) - lax.log(scale)
    log_probs = jnp.where((x > loc + scale) | (x < loc), -np.inf, log_probs)
    return jnp.where((a <= 0) | (b <= 0) | (scale <= 0), np.nan, log_probs)


@jit(inline=True)
def pdf(
    x: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1
) -> Array:
    """Density; see `logpdf`.

    >>> stats.beta.pdf(0.5, 2.0, 3.0)
    Array(1.5, dtype=float32, weak_type=True)
    """
    return lax.exp(logpdf(x, a, b, loc, scale))


@jit(inline=True)
def cdf(
    x: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1
) -> Array:
    """Probability of at most x: the regularised incomplete beta function. As for `logpdf`.

    >>> stats.beta.cdf(0.5, 2.0, 3.0)
    Array(0.6875, dtype=float32, weak_type=True)
    """
    x, a, b, loc, scale = promote_args_inexact("beta.cdf", x, a, b, loc, scale)
    return betainc(a, b, lax.clamp(constant(0, x), (x - loc) / scale, constant(1, x)))


@jit(inline=True)
def logcdf(
    x: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1
) -> Array:
    """Logarithm of `cdf`, also where that underflows; see `cdf`.

    >>> stats.beta.logcdf(0.5, 2.0, 3.0)
    Array(-0.37469345, dtype=float32, weak_type=True)
    """
    x, a, b, loc, scale = promote_args_inexact("beta.logcdf", x, a, b, loc, scale)
    return log_betainc(a, b, lax.clamp(constant(0, x), (x - loc) / scale, constant(1, x)))


@jit(inline=True)
def sf(x: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Probability of more than x: `1 - cdf`, without its cancellation. As for `logpdf`.

    >>> stats.beta.sf(0.5, 2.0, 3.0)
    Array(0.3125, dtype=float32, weak_type=True)
    """
    x, a, b, loc, scale = promote_args_inexact("beta.sf", x, a, b, loc, scale)
    return betaincc(a, b, lax.clamp(constant(0, x), (x - loc) / scale, constant(1, x)))


@jit(inline=True)
def logsf(
    x: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1
) -> Array:
    """Logarithm of `sf`, also where that underflows; see `sf`.

    >>> stats.beta.logsf(0.5, 2.0, 3.0)
    Array(-1.1631508, dtype=float32, weak_type=True)
    """
    x, a, b, loc, scale = promote_args_inexact("beta.logsf", x, a, b, loc, scale)
    return log_betaincc(a, b, lax.clamp(constant(0, x), (x - loc) / scale, constant(1, x)))
