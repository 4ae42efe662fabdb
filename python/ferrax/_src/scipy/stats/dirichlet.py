"""The Dirichlet distribution, of positive numbers whose sum is one."""

from __future__ import annotations

import numpy as np

from ferrax._src.core import Array
from ferrax._src.core.typing import ArrayLike
from ferrax._src.lax import api as lax
from ferrax._src.numpy import api as jnp
from ferrax._src.numpy.util import promote_dtypes_inexact
from ferrax._src.scipy.stats.common import gammaln, xlogy
from ferrax._src.transforms.jit import jit


@jit(inline=True)
def logpdf(x: ArrayLike, alpha: ArrayLike) -> Array:
    """Logarithm of the density, proportional to the product of `x[i]**(alpha[i] - 1)`.

    Args: x: array of shape (n, ...) or (n - 1, ...), where the last number is what is left of one. alpha:
        array of shape (n,): concentrations, positive.
    Returns an array of shape `x.shape[1:]`; -inf where the sum is not one within 1e-6, or a number is
    negative.
    Raises: ValueError for other shapes.

    >>> stats.dirichlet.logpdf(jnp.array([0.25, 0.75]), jnp.array([2.0, 3.0]))
    Array(0.5232482, dtype=float32)
    """
    x, alpha = promote_dtypes_inexact(x, alpha)
    if alpha.ndim != 1:
        raise ValueError(f"dirichlet: alpha needs one axis, got shape {alpha.shape}")
    if x.shape[0] not in (alpha.shape[0], alpha.shape[0] - 1):
        raise ValueError(
            f"dirichlet: x of shape {x.shape} needs as many numbers along its first axis as alpha, of shape "
            f"{alpha.shape}, or one fewer"
        )
    if x.shape[0] != alpha.shape[0]:
        x = jnp.concatenate([x, 1 - jnp.sum(x, axis=0, keepdims=True)], axis=0)
    log_total = jnp.sum(gammaln(alpha)) - gammaln(jnp.sum(alpha))
    alpha = jnp.expand_dims(alpha, tuple(range(1, x.ndim)))
    log_probs = jnp.sum(xlogy(alpha - 1, x), axis=0) - log_total
    outside = jnp.any(x < 0, axis=0) | (lax.abs(jnp.sum(x, axis=0) - 1) >= 1e-6)
    return jnp.where(outside, -np.inf, log_probs)


@jit(inline=True)
def pdf(x: ArrayLike, alpha: ArrayLike) -> Array:
    """Density; see `logpdf`.

    >>> stats.dirichlet.pdf(jnp.array([0.25, 0.75]), jnp.array([2.0, 3.0]))
    Array(1.6875001, dtype=float32)
    """
    return lax.exp(logpdf(x, alpha))
