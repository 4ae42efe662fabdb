"""The multivariate normal distribution."""

from __future__ import annotations

import math

from ferrax._src.core import Array
from ferrax._src.core.typing import ArrayLike
from ferrax._src.lax import api as lax, factorisations
from ferrax._src.numpy import api as jnp
from ferrax._src.numpy.util import promote_dtypes_inexact
from ferrax._src.transforms.jit import jit


@jit(inline=True)
def logpdf(x: ArrayLike, mean: ArrayLike, cov: ArrayLike, allow_singular: None = None) -> Array:
    """Logarithm of the density `exp(-y @ inv(cov) @ y / 2) / sqrt(det(2 * pi * cov))`, `y = x - mean`.

    Args: x: array of shape (..., n). mean: array of shape (..., n), or a scalar. cov: positive definite array
        of shape (..., n, n), or a scalar variance of each. allow_singular: None.
    Raises: ValueError for shapes that do not fit; NotImplementedError for another `allow_singular`.

    >>> ferrax.scipy.stats.multivariate_normal.logpdf(jnp.ones(2), jnp.zeros(2), jnp.eye(2))
    Array(-2.837877, dtype=float32)
    """
    if allow_singular is not None:
        raise NotImplementedError("multivariate_normal: covariances have to be definite; leave allow_singular out")
    x, mean, cov = promote_dtypes_inexact(jnp.asarray(x), jnp.asarray(mean), jnp.asarray(cov))
    y = x - mean
    if not mean.ndim:
        return -0.5 * jnp.square(y) / cov - 0.5 * (math.log(2 * math.pi) + lax.log(cov))
    n = mean.shape[-1]
    if not cov.ndim:
        return -0.5 * jnp.sum(y * y, axis=-1) / cov - n / 2 * (math.log(2 * math.pi) + lax.log(cov))
    if cov.ndim < 2 or cov.shape[-2:] != (n, n):
        raise ValueError(
            f"multivariate_normal: beside a mean of shape {mean.shape} cov needs shape (..., {n}, {n}), got "
            f"{cov.shape}"
        )
    root = factorisations.cholesky(cov)
    batch = lax.broadcast_shapes(root.shape[:-2], y.shape[:-1])
    y = jnp.expand_dims(jnp.broadcast_to(y, (*batch, n)), -1)
    roots = jnp.broadcast_to(root, (*batch, n, n))
    white = factorisations.triangular_solve(roots, y, left_side=True, lower=True)
    log_root = jnp.sum(lax.log(jnp.diagonal(root, axis1=-2, axis2=-1)), axis=-1)
    return -0.5 * jnp.sum(white * white, axis=(-2, -1)) - n / 2 * math.log(2 * math.pi) - log_root


@jit(inline=True)
def pdf(x: ArrayLike, mean: ArrayLike, cov: ArrayLike) -> Array:
    """Density; see `logpdf`.

    >>> ferrax.scipy.stats.multivariate_normal.pdf(jnp.ones(2), jnp.zeros(2), jnp.eye(2))
    Array(0.05854983, dtype=float32)
    """
    return lax.exp(logpdf(x, mean, cov))
