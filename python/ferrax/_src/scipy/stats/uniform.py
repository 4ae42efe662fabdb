"""The uniform distribution on the interval from `loc` to `loc + scale`."""

from __future__ import annotations

import numpy as np

from ferrax._src.core import Array
from ferrax._src.core.typing import ArrayLike
from ferrax._src.lax import api as lax
from ferrax._src.numpy import api as jnp
from ferrax._src.numpy.util import promote_args_inexact
from ferrax._src.transforms.jit import jit


@jit(inline=True)
def logpdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Logarithm of the density, `1 / scale` on the interval.

    Args: x: array. loc, scale: where the interval starts, and its length.
    They broadcast, and integers become floats. Raises: TypeError for what is no array or number.

    >>> stats.uniform.logpdf(0.5)
    Array(-0., dtype=float32, weak_type=True)
    """
    x, loc, scale = promote_args_inexact("uniform.logpdf", x, loc, scale)
    log_probs = jnp.where((x > loc + scale) | (x < loc), -np.inf, -lax.log(scale))
    return jnp.where(x == x, log_probs, np.nan)


@jit(inline=True)
def pdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Density; see `logpdf`.

    >>> stats.uniform.pdf(0.5)
    Array(1., dtype=float32, weak_type=True)
    """
    return lax.exp(logpdf(x, loc, scale))


@jit(inline=True)
def cdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Probability of at most x. As for `logpdf`.

    >>> stats.uniform.cdf(0.25)
    Array(0.25, dtype=float32, weak_type=True)
    """
    x, loc, scale = promote_args_inexact("uniform.cdf", x, loc, scale)
    return jnp.where(x < loc, 0, jnp.where(x > loc + scale, 1, (x - loc) / scale))


@jit(inline=True)
def ppf(q: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The x at which `cdf` is q; NaN where q is no probability. loc, scale: as for `logpdf`.

    >>> stats.uniform.ppf(0.25)
    Array(0.25, dtype=float32, weak_type=True)
    """
    q, loc, scale = promote_args_inexact("uniform.ppf", q, loc, scale)
    probability = (q >= 0) & (q <= 1)
    return jnp.where(probability, q * scale + loc, np.nan)
