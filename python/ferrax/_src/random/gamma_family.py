"""Random numbers made of gamma numbers: quotients, powers and points that these distribute.

The invariants are those of `samplers`: JAX's use of keys, and formulas in the result's dtype.
"""

from __future__ import annotations

from operator import index
from typing import Any

import numpy as np

from ferrax._src import core
from ferrax._src.core import Array
from ferrax._src.core.typing import ArrayLike, DTypeLike, Shape
from ferrax._src.lax import api as lax
from ferrax._src.numpy import api as jnp
from ferrax._src.random.gamma import gamma, loggamma
from ferrax._src.random.placement import placed
from ferrax._src.random.prng import canonicalize_shape
from ferrax._src.random.samplers import (
    _begin,
    _check_castable,
    _check_shape,
    _sample_dtype,
    _shape_with,
    _split,
    check_method,
    exponential,
    normal,
    rademacher,
)
from ferrax._src.transforms.jit import jit


@placed
def beta(
    key: Array, a: ArrayLike, b: ArrayLike, shape: Shape | None = None,
    dtype: DTypeLike | None = None, *, method: str = "exact", out_sharding: Any = None,
) -> Array:
    """Beta random numbers: density proportional to `x**(a - 1) * (1 - x)**(b - 1)`, 0 < x < 1.

    Args:
        key: a single key.
        a, b: float scalars or arrays, positive.
        shape: result shape, to which they broadcast; default: their broadcast shape.
        dtype: a float dtype; default float32 (float64 with x64).
        method: "exact", or "approximate", which allows JAX an approximation; samples are exact here.
    Returns:
        Array of `dtype`, differentiable in `a` and `b`.

    The method is `x / (x + y)` of gamma numbers x and y, from their logarithms.

    >>> x = ferrax.random.beta(ferrax.random.key(0), 2.0, 6.0, (10000,))
    >>> jnp.mean(x).round(2)
    Array(0.25, dtype=float32)
    """
    check_method("beta", method)
    key = _begin("beta", key)
    dtype = _sample_dtype("beta", dtype)
    _check_castable("beta", dtype, a, b)
    return _beta(key, a, b, _shape_with("beta", shape, a, b), dtype)


@jit(static_argnums=(3, 4))
def _beta(key, a, b, shape, dtype):
    a, b = (jnp.broadcast_to(lax.convert_element_type(x, dtype), shape) for x in (a, b))
    a_key, b_key = _split(key)
    log_x, log_y = loggamma(a_key, a, shape, dtype), loggamma(b_key, b, shape, dtype)
    largest = lax.max(log_x, log_y)
    x, y = lax.exp(log_x - largest), lax.exp(log_y - largest)
    return x / (x + y)


@placed
def chisquare(
    key: Array, df: ArrayLike, shape: Shape | None = None, dtype: DTypeLike | None = None, *,
    method: str = "exact", out_sharding: Any = None,
) -> Array:
    """Chi-squared random numbers: sums of the squares of `df` standard normal numbers.

    Args:
        key: a single key.
        df: float scalar or array: degrees of freedom, positive.
        shape: result shape, to which `df` broadcasts; default: that of `df`.
        dtype: a float dtype; default float32 (float64 with x64).
        method: "exact", or "approximate", which allows JAX an approximation; samples are exact here.
    Returns:
        Array of `dtype`, differentiable in `df`.

    The method is twice a gamma number for `df / 2`.

    >>> ferrax.random.chisquare(ferrax.random.key(0), 3.0, (10000,)).mean().round(0)
    Array(3., dtype=float32)
    """
    check_method("chisquare", method)
    key = _begin("chisquare", key)
    dtype = _sample_dtype("chisquare", dtype)
    shape = _shape_with("chisquare", shape, df)
    _check_castable("chisquare", dtype, df)
    return _chisquare(key, df, shape, dtype)


@jit(static_argnums=(2, 3))
def _chisquare(key, df, shape, dtype):
    half = lax.convert_element_type(df, dtype) / np.array(2, dtype)
    return lax.exp(loggamma(key, half, shape, dtype)) * np.array(2, dtype)


@placed
def f(
    key: Array, dfnum: ArrayLike, dfden: ArrayLike, shape: Shape | None = None,
    dtype: DTypeLike | None = None, *, out_sharding: Any = None,
) -> Array:
    """F random numbers: quotients of two chi-squared numbers, each over its degrees of freedom.

    Args:
        key: a single key.
        dfnum, dfden: float scalars or arrays: degrees of freedom of numerator and denominator.
        shape: result shape, to which they broadcast; default: their broadcast shape.
        dtype: a float dtype; default float32 (float64 with x64).
    Returns:
        Array of `dtype`, differentiable in the degrees of freedom.

    >>> ferrax.random.f(ferrax.random.key(0), 3.0, 5.0, (2, 3)).shape
    (2, 3)
    """
    key = _begin("f", key)
    dtype = _sample_dtype("f", dtype)
    shape = _shape_with("f", shape, dfnum, dfden)
    _check_castable("f", dtype, dfnum, dfden)
    return _f(key, dfnum, dfden, shape, dtype)


@jit(static_argnums=(3, 4))
def _f(key, dfnum, dfden, shape, dtype):
    dfnum, dfden = (lax.convert_element_type(x, dtype) for x in (dfnum, dfden))
    den_key, num_key = _split(key)
    num = chisquare(num_key, dfnum, shape, dtype) / dfnum
    return num / (chisquare(den_key, dfden, shape, dtype) / dfden)


@placed
def t(
    key: Array, df: ArrayLike, shape: Shape | None = None, dtype: DTypeLike | None = None, *,
    out_sharding: Any = None,
) -> Array:
    """Student's t random numbers: `z / sqrt(x / df)` for normal z and chi-squared x.

    Args:
        key: a single key.
        df: float scalar or array: degrees of freedom, positive.
        shape: result shape, to which `df` broadcasts; default: that of `df`.
        dtype: a float dtype; default float32 (float64 with x64).
    Returns:
        Array of `dtype`, differentiable in `df`.

    >>> ferrax.random.t(ferrax.random.key(0), 4.0, (2, 3)).shape
    (2, 3)
    """
    key = _begin("t", key)
    dtype = _sample_dtype("t", dtype)
    shape = _shape_with("t", shape, df)
    _check_castable("t", dtype, df)
    return _t(key, df, shape, dtype)


@jit(static_argnums=(2, 3))
def _t(key, df, shape, dtype):
    normal_key, gamma_key = _split(key)
    half = lax.convert_element_type(df, dtype) / np.array(2, dtype)
    return normal(normal_key, shape, dtype) * lax.sqrt(half / gamma(gamma_key, half, shape, dtype))


@placed
def dirichlet(
    key: Array, alpha: ArrayLike, shape: Shape | None = None, dtype: DTypeLike | None = None, *,
    out_sharding: Any = None,
) -> Array:
    """Dirichlet random vectors, of positive numbers whose sum is one.

    Args:
        key: a single key.
        alpha: float array of shape (..., n): concentrations, positive.
        shape: result shape without its last axis, to which `alpha` without its last axis
            broadcasts; default: `alpha.shape[:-1]`.
        dtype: a float dtype; default float32 (float64 with x64).
    Returns:
        Array of shape `shape + (n,)` and `dtype`, differentiable in `alpha`.
    Raises:
        ValueError: if `alpha` is a scalar, or does not broadcast to `shape`.

    The method is gamma numbers over their sum, from their logarithms.

    Example:
        >>> x = ferrax.random.dirichlet(ferrax.random.key(0), jnp.array([1.0, 2.0, 3.0]), (4,))
        >>> x.shape, jnp.allclose(x.sum(-1), 1)
        ((4, 3), Array(True, dtype=bool))
    """
    key = _begin("dirichlet", key)
    dtype = _sample_dtype("dirichlet", dtype)
    if shape is not None:
        shape = canonicalize_shape(shape, "dirichlet")
    return _dirichlet(key, alpha, shape, dtype)


@jit(static_argnums=(2, 3))
def _dirichlet(key, alpha, shape, dtype):
    if np.ndim(alpha) < 1:
        raise ValueError("dirichlet requires an alpha of one axis or more, got a scalar")
    batch, categories = np.shape(alpha)[:-1], np.shape(alpha)[-1:]
    if shape is None:
        shape = batch
    else:
        _check_shape("dirichlet", shape, batch)
    alpha = lax.convert_element_type(alpha, dtype)
    log_x = loggamma(key, alpha, shape + categories, dtype)
    # Those over their sum do not change with the largest, so that it needs no derivative.
    largest = lax.stop_gradient(jnp.max(log_x, axis=-1, keepdims=True, initial=-np.inf))
    x = lax.exp(log_x - largest)
    return x / jnp.sum(x, axis=-1, keepdims=True)


@placed
def generalized_normal(
    key: Array, p: Any, shape: Shape = (), dtype: DTypeLike | None = None, *,
    out_sharding: Any = None,
) -> Array:
    """Generalised normal random numbers: density proportional to `exp(-abs(x)**p)`.

    Args:
        key: a single key.
        p: positive float: 1 for Laplace, 2 for normal numbers of variance one half.
        shape: result shape.
        dtype: a float dtype; default float32 (float64 with x64).
    Returns:
        Array of `shape` and `dtype`.

    The method is `x**(1 / p)` of a gamma number x for `1 / p`, with a random sign.

    >>> ferrax.random.generalized_normal(ferrax.random.key(0), 3.0, (2, 3)).shape
    (2, 3)
    """
    shape = canonicalize_shape(shape, "generalized_normal")
    key = _begin("generalized_normal", key)
    return _generalized_normal(key, p, shape, _sample_dtype("generalized_normal", dtype))


@jit(static_argnums=(2, 3))
def _generalized_normal(key, p, shape, dtype):
    gamma_key, sign_key = _split(key)
    x = gamma(gamma_key, 1 / p, shape, dtype)
    return rademacher(sign_key, shape, dtype) * x ** (1 / p)


@placed
def ball(
    key: Array, d: int, p: Any = 2, shape: Shape = (), dtype: DTypeLike | None = None, *,
    out_sharding: Any = None,
) -> Array:
    """Uniform random points of the unit ball of the p-norm in `d` dimensions.

    Args:
        key: a single key.
        d: number of dimensions.
        p: positive float.
        shape: result shape without the axis of coordinates.
        dtype: a float dtype; default float32 (float64 with x64).
    Returns:
        Array of shape `shape + (d,)` and `dtype`.
    Raises:
        TypeError: if `d` is no integer.

    The method is that of Barthe, Guédon, Mendelson and Naor, "A probabilistic approach to the
    geometry of the l_p^n-ball" (2005).

    >>> x = ferrax.random.ball(ferrax.random.key(0), 3, shape=(100,))
    >>> jnp.linalg.norm(x, axis=-1).max() <= 1
    Array(True, dtype=bool)
    """
    shape = canonicalize_shape(shape, "ball")
    key = _begin("ball", key)
    dtype = _sample_dtype("ball", dtype)
    d = core.concrete_or_error(index, d, "The error occurred in ferrax.random.ball()")
    return _ball(key, p, d, shape, dtype)


@jit(static_argnums=(2, 3, 4))
def _ball(key, p, d, shape, dtype):
    point_key, radius_key = _split(key)
    x = generalized_normal(point_key, p, (*shape, d), dtype)
    excess = exponential(radius_key, shape, dtype)
    return x / jnp.expand_dims((jnp.sum(lax.abs(x) ** p, axis=-1) + excess) ** (1 / p), -1)
