"""The multinomial distribution: how many of n trials have each of several outcomes."""

from __future__ import annotations

import numpy as np

from ferrax._src.core import Array
from ferrax._src.core.typing import ArrayLike
from ferrax._src.lax import api as lax
from ferrax._src.numpy import api as jnp
from ferrax._src.numpy.util import ensure_arrays, promote_args_inexact, promote_dtypes_numeric
from ferrax._src.scipy.stats.common import gammaln, xlogy
from ferrax._src.transforms.jit import jit


@jit(inline=True)
def logpmf(x: ArrayLike, n: ArrayLike, p: ArrayLike) -> Array:
    """Logarithm of the probability `n! * prod(p**x / x!)`; -inf where x does not add up to n along its last
    axis or is negative somewhere, NaN where n is negative or a p is not between 0 and 1.

    Args: x: integer array of shape (..., k): how often each outcome happened. n: integer: number of
        trials. p: array of shape (..., k): probabilities of the outcomes.
    Raises: ValueError if x or n is not of integers; TypeError for what is no array or number.

    >>> stats.multinomial.logpmf(jnp.array([1, 2]), 3, jnp.array([0.25, 0.75]))
    Array(-0.86304617, dtype=float32)
    """
    # Ranks stay: n has none of x's last axis.
    counts, trials = promote_dtypes_numeric(*ensure_arrays("multinomial.logpmf", x, n))
    if counts.dtype.kind not in "iu":
        raise ValueError(f"multinomial: x and n have to be integers, got {counts.dtype}")
    (p,) = promote_args_inexact("multinomial.logpmf", p)
    possible = (jnp.sum(counts, -1) == trials) & (jnp.min(counts, -1, initial=0) >= 0)
    valid = (trials >= 0) & jnp.all((p >= 0) & (p <= 1), -1)
    log_orders = _log_factorial(trials, p.dtype) - jnp.sum(_log_factorial(counts, p.dtype), -1)
    log_order = jnp.sum(xlogy(counts.astype(p.dtype), p), -1)
    return jnp.where(valid, jnp.where(possible, log_orders + log_order, -np.inf), np.nan)


def _log_factorial(count, dtype):
    """Logarithm of the factorial, of 0 for negative numbers."""
    return gammaln(lax.max(count, lax.full_like(count, 0)).astype(dtype) + 1)


@jit(inline=True)
def pmf(x: ArrayLike, n: ArrayLike, p: ArrayLike) -> Array:
    """Probability; see `logpmf`.

    >>> stats.multinomial.pmf(jnp.array([1, 2]), 3, jnp.array([0.25, 0.75]))
    Array(0.42187503, dtype=float32)
    """
    return lax.exp(logpmf(x, n, p))
