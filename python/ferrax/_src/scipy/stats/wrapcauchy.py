"""The wrapped Cauchy distribution on the circle, for angles from 0 to 2 pi."""

from __future__ import annotations

import math

import numpy as np

from ferrax._src.core import Array
from ferrax._src.core.typing import ArrayLike
from ferrax._src.lax import api as lax
from ferrax._src.numpy import api as jnp
from ferrax._src.numpy.util import promote_args_inexact
from ferrax._src.transforms.jit import jit


@jit(inline=True)
def logpdf(x: ArrayLike, c: ArrayLike) -> Array:
    """Logarithm of the density `(1 - c**2) / (2 * pi * (1 + c**2 - 2 * c * cos(x)))`.

    Args: x: array: angles. c: concentration; NaN where it is not inside of (0, 1).
    They broadcast, and integers become floats. Raises: TypeError for what is no array or number.

    >>> stats.wrapcauchy.logpdf(1.0, 0.5)
    Array(-1.782643, dtype=float32, weak_type=True)
    """
    x, c = promote_args_inexact("wrapcauchy.logpdf", x, c)
    # 1 + c^2 - 2 c cos(x), without cancellation.
    distance = lax.square(1 - c) + 4 * c * lax.square(lax.sin(x / 2))
    log_probs = lax.log1p(-c) + lax.log1p(c) - math.log(2 * np.pi) - lax.log(distance)
    found = jnp.where((x < 0) | (x > np.pi * 2), -np.inf, log_probs)
    return jnp.where((c > 0) & (c < 1), found, np.nan)


@jit(inline=True)
def pdf(x: ArrayLike, c: ArrayLike) -> Array:
    """Density; see `logpdf`.

    >>> stats.wrapcauchy.pdf(1.0, 0.5)
    Array(0.16819303, dtype=float32, weak_type=True)
    """
    return lax.exp(logpdf(x, c))
