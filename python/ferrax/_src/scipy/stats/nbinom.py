"""The negative binomial distribution: how many failures until n successes of probability p."""

from __future__ import annotations

import numpy as np

from ferrax._src.composed.special.gamma_parts import log_binomial_density
from ferrax._src.core import Array
from ferrax._src.core.typing import ArrayLike
from ferrax._src.lax import api as lax
from ferrax._src.numpy import api as jnp
from ferrax._src.numpy.util import promote_args_inexact
from ferrax._src.scipy.special.arguments import apply
from ferrax._src.transforms.jit import jit


@jit(inline=True)
def logpmf(k: ArrayLike, n: ArrayLike, p: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Logarithm of the probability `C(k + n - 1, k) * p**n * (1 - p)**k`.

    Args: k: array: the number of failures. n: number of successes, positive. p: probability of a
        success. loc: shift of k.
    They broadcast, and integers become floats. Raises: TypeError for what is no array or number.

    >>> stats.nbinom.logpmf(2, 3, 0.5)
    Array(-1.6739764, dtype=float32, weak_type=True)
    """
    k, n, p, loc = promote_args_inexact("nbinom.logpmf", k, n, p, loc)
    outside = k < loc
    y = jnp.where(outside, 0, k - loc)
    log_probs = apply(log_binomial_density, [n, y, p, 1 - p], weak=True) + lax.log(n / (n + y))
    return jnp.where(outside, -np.inf, log_probs)


@jit(inline=True)
def pmf(k: ArrayLike, n: ArrayLike, p: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Probability; see `logpmf`.

    >>> stats.nbinom.pmf(2, 3, 0.5)
    Array(0.1875, dtype=float32, weak_type=True)
    """
    return lax.exp(logpmf(k, n, p, loc))
