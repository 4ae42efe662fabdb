"""The generalised normal distribution."""

from __future__ import annotations

import math

import numpy as np

from ferrax._src.composed.special.incomplete_gamma import igammac as gammaincc
from ferrax._src.core import Array
from ferrax._src.core.typing import ArrayLike
from ferrax._src.lax import api as lax
from ferrax._src.numpy import api as jnp
from ferrax._src.numpy.util import promote_args_inexact
from ferrax._src.transforms.jit import jit


@jit(inline=True)
def logpdf(x: ArrayLike, beta: ArrayLike) -> Array:
    """Logarithm of the density `beta * exp(-abs(x)**beta) / (2 * gamma(1 / beta))`.

    Args: x: array. beta: positive exponent: 1 for Laplace, 2 for normal.
    They broadcast, and integers become floats. Raises: TypeError for what is no array or number.

    >>> stats.gennorm.logpdf(1.0, 2.0)
    Array(-1.5723649, dtype=float32, weak_type=True)
    """
    x, beta = promote_args_inexact("gennorm.logpdf", x, beta)
    # gamma(1 + 1 / beta) = gamma(1 / beta) / beta, and has no pole where beta is large.
    log_width = lax.lgamma(1 + 1 / beta) + math.log(2)
    return jnp.where(beta > 0, -(lax.abs(x) ** beta) - log_width, np.nan)


@jit(inline=True)
def pdf(x: ArrayLike, beta: ArrayLike) -> Array:
    """Density; see `logpdf`.

    >>> stats.gennorm.pdf(1.0, 2.0)
    Array(0.20755374, dtype=float32, weak_type=True)
    """
    return lax.exp(logpdf(x, beta))


@jit(inline=True)
def cdf(x: ArrayLike, beta: ArrayLike) -> Array:
    """Probability of at most x, by the upper incomplete gamma function. As for `logpdf`.

    >>> stats.gennorm.cdf(1.0, 2.0)
    Array(0.92135036, dtype=float32, weak_type=True)
    """
    x, beta = promote_args_inexact("gennorm.cdf", x, beta)
    tail = 0.5 * gammaincc(1 / beta, lax.abs(x) ** beta)
    return jnp.where(x < 0, tail, 1 - tail)
