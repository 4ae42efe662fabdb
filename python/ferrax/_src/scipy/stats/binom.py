"""The binomial distribution: how many of n trials of probability p succeed."""

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
    """Logarithm of the probability `C(n, k) * p**k * (1 - p)**(n - k)`.

    Args: k: array: the number of successes. n: number of trials. p: probability of a success. loc:
        shift of k.
    They broadcast, and integers become floats. Raises: TypeError for what is no array or number.

    >>> stats.binom.logpmf(2, 5, 0.5)
    Array(-1.1631508, dtype=float32, weak_type=True)
    """
    k, n, p, loc = promote_args_inexact("binom.logpmf", k, n, p, loc)
    y = k - loc
    outside = (k < loc) | (k >= loc + n + 1)
    y, rest = jnp.where(outside, 0, y), jnp.where(outside, 0, n - y)
    log_probs = apply(log_binomial_density, [y, rest, p, 1 - p], weak=True)
    return jnp.where(outside, -np.inf, log_probs)


@jit(inline=True)
def pmf(k: ArrayLike, n: ArrayLike, p: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Probability; see `logpmf`.

    >>> stats.binom.pmf(2, 5, 0.5)
    Array(0.3125, dtype=float32, weak_type=True)
    """
    return lax.exp(logpmf(k, n, p, loc))
