"""The Poisson distribution: how many events happen that are independent and have a mean number."""

from __future__ import annotations

import numpy as np

from ferrax._src.composed.special.gamma_parts import log_poisson_density
from ferrax._src.composed.special.incomplete_gamma import igammac as gammaincc
from ferrax._src.core import Array
from ferrax._src.core.typing import ArrayLike
from ferrax._src.lax import api as lax
from ferrax._src.numpy import api as jnp
from ferrax._src.numpy.util import ensure_arrays, promote_args_inexact, promote_dtypes_inexact
from ferrax._src.scipy.special.arguments import apply
from ferrax._src.scipy.stats.common import entr
from ferrax._src.transforms.jit import jit


@jit(inline=True)
def logpmf(k: ArrayLike, mu: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Logarithm of the probability `mu**k * exp(-mu) / k!`; -inf where k is no natural number.

    Args: k: array: the number of events. mu: mean number, positive. loc: shift of k.
    They broadcast, and integers become floats. Raises: TypeError for what is no array or number.

    >>> stats.poisson.logpmf(2, 3.0)
    Array(-1.4959226, dtype=float32, weak_type=True)
    """
    k, mu, loc = promote_args_inexact("poisson.logpmf", k, mu, loc)
    x = k - loc
    outside = (x < 0) | ((jnp.round(k) != k) & (k == k))
    log_probs = apply(log_poisson_density, [jnp.where(outside, 0, x), mu], weak=True)
    return jnp.where(outside, -np.inf, log_probs)


@jit(inline=True)
def pmf(k: ArrayLike, mu: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Probability; see `logpmf`.

    >>> stats.poisson.pmf(2, 3.0)
    Array(0.22404182, dtype=float32, weak_type=True)
    """
    return lax.exp(logpmf(k, mu, loc))


@jit(inline=True)
def cdf(k: ArrayLike, mu: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Probability of at most k: the upper incomplete gamma function. As for `logpmf`.

    >>> stats.poisson.cdf(2, 3.0)
    Array(0.42319012, dtype=float32, weak_type=True)
    """
    k, mu, loc = promote_args_inexact("poisson.cdf", k, mu, loc)
    x = k - loc
    return jnp.where(x < 0, 0, gammaincc(jnp.floor(1 + x), mu))


@jit
def entropy(mu: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Entropy, in nats; it does not depend on the shift.

    Args: mu: array: mean number. loc: shift, which the result only takes its shape from.

    For means below 100 the sum over the numbers near the mean, else `log(2 * pi * e * mu) / 2` with
    one more term of its series (Evans, Boersma, Blachman and Jagers, "The entropy of a Poisson
    distribution", SIAM Review 30, 1988).

    >>> stats.poisson.entropy(3.0)
    Array(1.9314702, dtype=float32)
    """
    mu, loc = promote_dtypes_inexact(*ensure_arrays("poisson.entropy", mu, loc))
    shape = lax.broadcast_shapes(mu.shape, loc.shape)
    flat = jnp.ravel(mu)
    near = _entropy_sum(flat, 35, flat + 20)
    middle = _entropy_sum(flat, 250, flat + 10 * jnp.sqrt(flat) + 20)
    series = 0.5 * jnp.log(2 * np.pi * np.e * flat) - 1.0 / (12 * flat)
    below = jnp.where(flat < 10, near, jnp.where(flat < 100, middle, series))
    return jnp.broadcast_to(jnp.where(flat == 0, 0, below).reshape(mu.shape), shape)


def _entropy_sum(mu, terms, end):
    """The sum of the first terms of the entropy, up to the number `end`."""
    k = jnp.expand_dims(jnp.arange(terms, dtype=mu.dtype), 1)
    inside = k < jnp.expand_dims(jnp.ceil(end), 0)
    return jnp.sum(entr(jnp.where(inside, pmf(k, mu), 0.0)), axis=0)
