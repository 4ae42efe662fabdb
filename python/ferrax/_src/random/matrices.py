"""Random vectors and matrices: multivariate normal vectors, orthogonal and unitary matrices.

The invariants are those of `samplers`: JAX's use of keys, and formulas in the result's dtype.
"""

from __future__ import annotations

from operator import index
from typing import Any

from ferrax._src import core
from ferrax._src.base import config, dtypes
from ferrax._src.core import Array
from ferrax._src.core.typing import ArrayLike, DTypeLike, Shape
from ferrax._src.lax import api as lax
from ferrax._src.numpy import api as jnp, decompositions, systems
from ferrax._src.numpy.util import promote_dtypes_inexact
from ferrax._src.random.placement import placed
from ferrax._src.random.prng import canonicalize_shape
from ferrax._src.random.samplers import _begin, _check_shape, _sample_dtype, normal
from ferrax._src.transforms.jit import jit


@placed
def multivariate_normal(
    key: Array, mean: ArrayLike, cov: ArrayLike, shape: Shape | None = None,
    dtype: DTypeLike | None = None, method: str = "cholesky", *, out_sharding: Any = None,
) -> Array:
    """Normal random vectors of the given mean and covariance.

    Args:
        key: a single key.
        mean: float array of shape (..., n).
        cov: float array of shape (..., n, n): positive definite; for 'svd' and 'eigh' semi-definite.
        shape: result shape without its last axis, to which the leading axes of `mean` and `cov`
            broadcast; default: their broadcast shape.
        dtype: a float dtype; default that of `mean` and `cov` promoted.
        method: how the root of the covariance is found: 'cholesky', 'eigh' or 'svd'.
    Returns:
        Array of shape `shape + (n,)` and `dtype`.
    Raises:
        ValueError: for another method, and shapes that do not fit.

    Example:
        >>> cov = jnp.array([[2.0, 1.0], [1.0, 2.0]])
        >>> ferrax.random.multivariate_normal(ferrax.random.key(0), jnp.zeros(2), cov, (3,)).shape
        (3, 2)
    """
    key = _begin("multivariate_normal", key)
    mean, cov = promote_dtypes_inexact(jnp.asarray(mean), jnp.asarray(cov))
    if method not in ("svd", "eigh", "cholesky"):
        raise ValueError(
            f"multivariate_normal: method has to be 'svd', 'eigh' or 'cholesky', got {method!r}"
        )
    dtype = _sample_dtype("multivariate_normal", dtype, default=mean.dtype)
    if shape is not None:
        shape = canonicalize_shape(shape, "multivariate_normal")
    return _multivariate_normal(key, mean, cov, shape, dtype, method)


@jit(static_argnums=(3, 4, 5))
def _multivariate_normal(key, mean, cov, shape, dtype, method):
    if mean.ndim < 1:
        raise ValueError("multivariate_normal requires a mean of one axis or more, got a scalar")
    if cov.ndim < 2 or cov.shape[-2:] != (mean.shape[-1],) * 2:
        n = mean.shape[-1]
        raise ValueError(
            f"multivariate_normal requires cov of shape (..., {n}, {n}) beside a mean of shape "
            f"{mean.shape}, got {cov.shape}"
        )
    if shape is None:
        shape = tuple(lax.broadcast_shapes(mean.shape[:-1], cov.shape[:-2]))
    else:
        _check_shape("multivariate_normal", shape, mean.shape[:-1], cov.shape[:-2])
    if method == "cholesky":
        root = systems.cholesky(cov)
    elif method == "eigh":
        values, vectors = decompositions.eigh(cov)
        root = vectors * jnp.sqrt(jnp.expand_dims(values, -2))
    else:
        vectors, values, _ = decompositions.svd(cov)
        root = vectors * jnp.sqrt(jnp.expand_dims(values, -2))
    z = normal(key, shape + mean.shape[-1:], dtype)
    with config.numpy_rank_promotion("allow"):
        return mean + jnp.einsum("...ij,...j->...i", root, z)


@placed
def orthogonal(
    key: Array, n: int, shape: Shape = (), dtype: DTypeLike | None = None, m: int | None = None, *,
    out_sharding: Any = None,
) -> Array:
    """Uniform random orthogonal matrices; unitary ones for complex dtypes.

    Args:
        key: a single key.
        n: number of rows.
        shape: leading part of the result's shape.
        dtype: a float or complex dtype; default float32 (float64 with x64).
        m: number of columns, default `n`. The shorter vectors, rows or columns, that the matrix has are
            orthonormal.
    Returns:
        Array of shape `shape + (n, m)` and `dtype`.
    Raises:
        TypeError: if `n` or `m` is no integer.

    The method is the QR decomposition of a normal matrix, with the signs of R's diagonal: Mezzadri,
    "How to generate random matrices from the classical compact groups" (2007).

    Example:
        >>> q = ferrax.random.orthogonal(ferrax.random.key(0), 3)
        >>> jnp.allclose(q @ q.T, jnp.eye(3), atol=1e-5)
        Array(True, dtype=bool)
    """
    shape = canonicalize_shape(shape, "orthogonal")
    key = _begin("orthogonal", key)
    dtype = dtypes.check_and_canonicalize_user_dtype(float if dtype is None else dtype, "orthogonal")
    where = "The error occurred in ferrax.random.orthogonal()"
    n = core.concrete_or_error(index, n, where)
    m = core.concrete_or_error(index, n if m is None else m, where)
    return _orthogonal(key, n, m, shape, dtype)


@jit(static_argnums=(1, 2, 3, 4))
def _orthogonal(key, n, m, shape, dtype):
    z = normal(key, (*shape, max(n, m), min(n, m)), dtype)
    q, r = systems.qr(z)
    q = q * jnp.expand_dims(jnp.sign(jnp.diagonal(r, axis1=-2, axis2=-1)), -2)
    return q.mT if n < m else q
