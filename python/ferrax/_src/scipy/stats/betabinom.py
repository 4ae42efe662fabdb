"""The beta-binomial distribution: a binomial one whose probability is beta distributed."""

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


@jit
def logpmf(k: ArrayLike, n: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Logarithm of the probability `C(n, k) * B(k + a, n - k + b) / B(a, b)`.

    Args: k: array: the number of successes. n: number of trials. a, b: positive parameters of the
        beta distribution. loc: shift of k.
    They broadcast, and integers become floats. Raises: TypeError for what is no array or number.

    >>> stats.betabinom.logpmf(2, 5, 2.0, 3.0)
    Array(-1.4350843, dtype=float32, weak_type=True)
    """
    k, n, a, b, loc = promote_args_inexact("betabinom.logpmf", k, n, a, b, loc)
    y = lax.floor(k) - loc
    outside = (y < 0) | (y > n)
    y, rest = jnp.where(outside, 0, y), jnp.where(outside, 0, n - y)
    log_probs = apply(_log_probability, [y, rest, a, b], weak=True)
    log_probs = jnp.where(outside, -np.inf, log_probs)
    return jnp.where((n < 0) | (a <= 0) | (b <= 0), np.nan, log_probs)


def _log_probability(y, rest, a, b):
    """By three binomial densities of one probability, whose powers cancel, as Loader does it for the
    hypergeometric distribution (Fast and accurate computation of binomial probabilities, 2000)."""
    p, q = y + a, rest + b
    total = p + q
    at, left = p / total, q / total
    found = log_binomial_density(y, rest, at, left) + log_binomial_density(a, b, at, left)
    found = found - log_binomial_density(p, q, at, left)
    return found + lax.log(a / p) + lax.log(b / q) + lax.log(total / (a + b))


@jit(inline=True)
def pmf(k: ArrayLike, n: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Probability; see `logpmf`.

    >>> stats.betabinom.pmf(2, 5, 2.0, 3.0)
    Array(0.23809528, dtype=float32, weak_type=True)
    """
    return lax.exp(logpmf(k, n, a, b, loc))
