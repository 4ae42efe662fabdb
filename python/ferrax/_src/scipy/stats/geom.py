"""The geometric distribution: how many trials of probability p until the first success."""

from __future__ import annotations

import numpy as np

from ferrax._src.core import Array
from ferrax._src.core.typing import ArrayLike
from ferrax._src.lax import api as lax
from ferrax._src.numpy import api as jnp
from ferrax._src.numpy.util import promote_args_inexact
from ferrax._src.scipy.stats.common import xlog1py
from ferrax._src.transforms.jit import jit


@jit(inline=True)
def logpmf(k: ArrayLike, p: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Logarithm of the probability `(1 - p)**(k - 1) * p`.

    Args: k: array: the number of trials, from 1. p: probability of a success. loc: shift of k.
    They broadcast, and integers become floats. Raises: TypeError for what is no array or number.

    >>> stats.geom.logpmf(2, 0.5)
    Array(-1.3862944, dtype=float32, weak_type=True)
    """
    k, p, loc = promote_args_inexact("geom.logpmf", k, p, loc)
    x = k - loc
    return jnp.where(x <= 0, -np.inf, xlog1py(x - 1, -p) + lax.log(p))


@jit(inline=True)
def pmf(k: ArrayLike, p: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Probability; see `logpmf`.

    >>> stats.geom.pmf(2, 0.5)
    Array(0.25, dtype=float32, weak_type=True)
    """
    return lax.exp(logpmf(k, p, loc))
