"""Student's t distribution."""

from __future__ import annotations

import math

import numpy as np

from ferrax._src.core import Array
from ferrax._src.core.typing import ArrayLike
from ferrax._src.lax import api as lax
from ferrax._src.numpy import api as jnp
from ferrax._src.numpy.util import promote_args_inexact
from ferrax._src.scipy.stats.common import betaln, log1p_square
from ferrax._src.transforms.jit import jit


@jit(inline=True)
def logpdf(x: ArrayLike, df: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Logarithm of the density, proportional to `(1 + y**2 / df)**(-(df + 1) / 2)`, `y = (x - loc)
    / scale`.

    Args: x: array. df: degrees of freedom, positive. loc, scale: shift and width.
    They broadcast, and integers become floats. Raises: TypeError for what is no array or number.

    >>> stats.t.logpdf(1.0, 3.0)
    Array(-1.5762529, dtype=float32, weak_type=True)
    """
    x, df, loc, scale = promote_args_inexact("t.logpdf", x, df, loc, scale)
    y = (x - loc) / scale
    normal = df == np.inf
    finite = jnp.where(normal, 1, df)
    half = finite / 2
    log_total = betaln(half, 0.5 * jnp.ones_like(half)) + lax.log(finite) / 2
    log_probs = -(log_total + (half + 0.5) * log1p_square(y / lax.sqrt(finite)))
    limit = -0.5 * lax.square(y) - 0.5 * math.log(2 * math.pi)
    return jnp.where(normal, limit, log_probs) - lax.log(scale)


@jit(inline=True)
def pdf(x: ArrayLike, df: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Density; see `logpdf`.

    >>> stats.t.pdf(1.0, 3.0)
    Array(0.20674835, dtype=float32, weak_type=True)
    """
    return lax.exp(logpdf(x, df, loc, scale))
