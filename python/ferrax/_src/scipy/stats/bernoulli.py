"""The Bernoulli distribution: 1 with probability p, else 0."""

from __future__ import annotations

import numpy as np

from ferrax._src.core import Array
from ferrax._src.core.typing import ArrayLike
from ferrax._src.lax import api as lax
from ferrax._src.numpy import api as jnp
from ferrax._src.numpy.util import constant, promote_args_inexact
from ferrax._src.scipy.stats.common import xlog1py, xlogy
from ferrax._src.transforms.jit import jit


@jit(inline=True)
def logpmf(k: ArrayLike, p: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Logarithm of the probability `p**k * (1 - p)**(1 - k)` of 0 and 1; -inf for others.

    Args: k: array: the outcome. p: probabilities. loc: shift of the outcomes.
    They broadcast, and integers become floats. Raises: TypeError for what is no array or number.

    >>> stats.bernoulli.logpmf(1, 0.25)
    Array(-1.3862944, dtype=float32, weak_type=True)
    """
    k, p, loc = promote_args_inexact("bernoulli.logpmf", k, p, loc)
    x = k - loc
    log_probs = xlogy(x, p) + xlog1py(1 - x, -p)
    return jnp.where((x < 0) | (x > 1), -np.inf, log_probs)


@jit(inline=True)
def pmf(k: ArrayLike, p: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Probability of 0 and 1; see `logpmf`.

    >>> stats.bernoulli.pmf(1, 0.25)
    Array(0.25, dtype=float32, weak_type=True)
    """
    return lax.exp(logpmf(k, p, loc))


@jit(inline=True)
def cdf(k: ArrayLike, p: ArrayLike) -> Array:
    """Probability of at most k; NaN where p is no probability. As for `logpmf`.

    >>> stats.bernoulli.cdf(0, 0.25)
    Array(0.75, dtype=float32, weak_type=True)
    """
    k, p = promote_args_inexact("bernoulli.cdf", k, p)
    bad = jnp.isnan(k) | (p != p) | (p < 0) | (p > 1)
    return jnp.where(bad, np.nan, jnp.where(k < 0, 0, jnp.where(k < 1, 1 - p, 1)))


@jit(inline=True)
def ppf(q: ArrayLike, p: ArrayLike) -> Array:
    """The smallest outcome with a `cdf` of at least q; NaN where q or p is no probability. p: as
    for `logpmf`.

    >>> stats.bernoulli.ppf(0.8, 0.25)
    Array(1., dtype=float32, weak_type=True)
    """
    q, p = promote_args_inexact("bernoulli.ppf", q, p)
    bad = (q != q) | (p != p) | (p < 0) | (p > 1) | (q < 0) | (q > 1)
    return jnp.where(bad, np.nan, jnp.where(q <= 1 - p, constant(0, q), constant(1, q)))
