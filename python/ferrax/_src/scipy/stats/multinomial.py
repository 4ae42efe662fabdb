"""The multinomial distribution: how many of n trials have each of several outcomes."""

from __future__ import annotations

import numpy as np

from ferrax._src.base import dtypes
from ferrax._src.core import Array
from ferrax._src.core.typing import ArrayLike
from ferrax._src.lax import api as lax
from ferrax._src.numpy import api as jnp
from ferrax._src.numpy.util import promote_args_inexact, promote_args_numeric
from ferrax._src.scipy.stats.common import gammaln, xlogy
from ferrax._src.transforms.jit import jit


@jit(inline=True)
def logpmf(x: ArrayLike, n: ArrayLike, p: ArrayLike) -> Array:
    """Logarithm of the probability `n! * prod(p**x / x!)`; -inf where the sum of x is not n.

    Args: x: integer array of shape (..., k): how often each outcome happened. n: integer: number of
        trials. p: array of shape (..., k): probabilities of the outcomes.
    Raises: ValueError if x or n is not of integers; TypeError for what is no array or number.

    >>> stats.multinomial.logpmf(jnp.array([1, 2]), 3, jnp.array([0.25, 0.75]))
    Array(-0.86304617, dtype=float32)
    """
    (p,) = promote_args_inexact("multinomial.logpmf", p)
    x, n = promote_args_numeric("multinomial.logpmf", x, n)
    if not dtypes.issubdtype(x.dtype, np.integer):
        raise ValueError(f"multinomial: x and n have to be integers, got {x.dtype}")
    x, n = x.astype(p.dtype), n.astype(p.dtype)
    log_probs = gammaln(n + 1) + jnp.sum(xlogy(x, p) - gammaln(x + 1), axis=-1)
    return jnp.where(jnp.sum(x) == n, log_probs, -np.inf)


@jit(inline=True)
def pmf(x: ArrayLike, n: ArrayLike, p: ArrayLike) -> Array:
    """Probability; see `logpmf`.

    >>> stats.multinomial.pmf(jnp.array([1, 2]), 3, jnp.array([0.25, 0.75]))
    Array(0.42187503, dtype=float32)
    """
    return lax.exp(logpmf(x, n, p))
