"""Samplers of `ferrax.random` that are composed of those in `samplers`, most of them with parameters.

The invariants are those of `samplers`: JAX's use of keys, and formulas in the result's dtype.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ferrax._src.base import dtypes
from ferrax._src.core import Array
from ferrax._src.core.typing import ArrayLike, DTypeLike, Shape
from ferrax._src.lax import api as lax
from ferrax._src.numpy import api as jnp
from ferrax._src.random.placement import placed
from ferrax._src.random.prng import canonicalize_shape
from ferrax._src.random.samplers import (
    _begin,
    _check_arraylike,
    _check_castable,
    _sample_dtype,
    _shape_with,
    _split,
    _standard,
    exponential,
    normal,
    rademacher,
    uniform,
)
from ferrax._src.transforms.jit import jit


def _of_parameter(name, sample, key, parameter, shape, dtype):
    """Samples of a distribution of real numbers with a parameter that goes with the shape."""
    key = _begin(name, key)
    dtype = _sample_dtype(name, dtype)
    shape = _shape_with(name, shape, parameter)
    _check_castable(name, dtype, parameter)
    return sample(key, parameter, shape, dtype)


@placed
def pareto(
    key: Array, b: ArrayLike, shape: Shape | None = None, dtype: DTypeLike | None = None, *,
    out_sharding: Any = None,
) -> Array:
    """Pareto random numbers: density `b / x**(b + 1)` for x >= 1.

    Args:
        key: a single key.
        b: float scalar or array: the shape parameter.
        shape: result shape, to which `b` broadcasts; default: that of `b`.
        dtype: a float dtype; default float32 (float64 with x64).
    Returns:
        Array of `dtype`.

    >>> ferrax.random.pareto(ferrax.random.key(0), 2.0, (100,)).min() >= 1
    Array(True, dtype=bool)
    """
    return _of_parameter("pareto", _pareto, key, b, shape, dtype)


@jit(static_argnums=(2, 3))
def _pareto(key, b, shape, dtype):
    return lax.exp(exponential(key, shape, dtype) / lax.convert_element_type(b, dtype))


@placed
def rayleigh(
    key: Array, scale: Any, shape: Shape | None = None, dtype: DTypeLike | None = None, *,
    out_sharding: Any = None,
) -> Array:
    """Rayleigh random numbers: density proportional to `x * exp(-(x / scale)**2 / 2)`, x >= 0.

    Args:
        key: a single key.
        scale: float scalar or array.
        shape: result shape, to which `scale` broadcasts; default: that of `scale`.
        dtype: a float dtype; default float32 (float64 with x64).
    Returns:
        Array of `dtype`.

    >>> ferrax.random.rayleigh(ferrax.random.key(0), 2.0, (100,)).min() >= 0
    Array(True, dtype=bool)
    """
    return _of_parameter("rayleigh", _rayleigh, key, scale, shape, dtype)


@jit(static_argnums=(2, 3))
def _rayleigh(key, scale, shape, dtype):
    log_u = lax.log(uniform(key, shape, dtype))
    scale = jnp.broadcast_to(lax.convert_element_type(scale, dtype), shape)
    return lax.mul(scale, lax.sqrt(lax.mul(log_u, lax.full_like(log_u, -2))))


@placed
def lognormal(
    key: Array, sigma: ArrayLike = np.float32(1), shape: Shape | None = None,  # noqa: B008
    dtype: DTypeLike | None = None, *, out_sharding: Any = None,
) -> Array:
    """Log-normal random numbers: `exp(sigma * z)` for standard normal z.

    Args:
        key: a single key.
        sigma: float scalar or array: the standard deviation of the logarithm.
        shape: result shape, to which `sigma` broadcasts; default: that of `sigma`.
        dtype: a float or complex dtype; default float32 (float64 with x64).
    Returns:
        Array of `dtype`.

    >>> ferrax.random.lognormal(ferrax.random.key(0), 0.5, (100,)).min() > 0
    Array(True, dtype=bool)
    """
    key = _begin("lognormal", key)
    dtype = _sample_dtype("lognormal", dtype, kind=np.inexact)
    shape = _shape_with("lognormal", shape, sigma)
    _check_castable("lognormal", dtype, sigma)
    return _lognormal(key, sigma, shape, dtype)


@jit(static_argnums=(2, 3), inline=True)
def _lognormal(key, sigma, shape, dtype):
    return lax.exp(normal(key, shape, dtype) * lax.convert_element_type(sigma, dtype))


def weibull_min(
    key: Array, scale: Any, concentration: ArrayLike, shape: Shape = (),
    dtype: DTypeLike | None = None,
) -> Array:
    """Weibull random numbers: distribution function `1 - exp(-(x / scale)**concentration)`.

    Args:
        key: a single key.
        scale, concentration: floats or arrays.
        shape: shape of the uniform numbers used; the parameters broadcast with it.
        dtype: a float dtype; default float32 (float64 with x64).
    Returns:
        Array.

    >>> ferrax.random.weibull_min(ferrax.random.key(0), 1.0, 2.0, (2,)).shape
    (2,)
    """
    key = _begin("weibull_min", key)
    dtype = _sample_dtype("weibull_min", dtype)
    return _weibull_min(key, scale, concentration, canonicalize_shape(shape), dtype)


@jit(static_argnums=(3, 4))
def _weibull_min(key, scale, concentration, shape, dtype):
    # A power of an exponential number, -log(1 - u).
    exponential = -jnp.log1p(-uniform(key, shape, dtype))
    return scale * exponential ** (1.0 / concentration)


@placed
def triangular(
    key: Array, left: ArrayLike, mode: Any, right: ArrayLike, shape: Shape | None = None,
    dtype: DTypeLike | None = None, *, out_sharding: Any = None,
) -> Array:
    """Random numbers in [left, right] whose density rises to `mode` and falls, both linearly.

    Args:
        key: a single key.
        left, mode, right: float scalars or arrays, in this order of size.
        shape: result shape, to which they broadcast; default: their broadcast shape.
        dtype: a float dtype; default float32 (float64 with x64).
    Returns:
        Array of `dtype`.

    >>> x = ferrax.random.triangular(ferrax.random.key(0), 0.0, 0.5, 1.0, (100,))
    >>> x.min() >= 0, x.max() <= 1
    (Array(True, dtype=bool), Array(True, dtype=bool))
    """
    key = _begin("triangular", key)
    dtype = _sample_dtype("triangular", dtype)
    shape = _shape_with("triangular", shape, left, mode, right)
    _check_castable("triangular", dtype, left, mode, right)
    return _triangular(key, left, mode, right, shape, dtype)


@jit(static_argnums=(4, 5), inline=True)
def _triangular(key, left, mode, right, shape, dtype):
    left, mode, right = (lax.convert_element_type(x, dtype) for x in (left, mode, right))
    below = uniform(key, shape, dtype)
    # The probability from an end of the interval on grows with the square of the distance from it.
    width = right - left
    rising = below < (mode - left) / width
    beyond = jnp.where(rising, below, 1 - below)
    way = lax.sqrt(beyond * width * jnp.where(rising, mode - left, right - mode))
    return jnp.where(rising, left + way, right - way)


@placed
def maxwell(
    key: Array, shape: Shape = (), dtype: DTypeLike | None = None, *, out_sharding: Any = None,
) -> Array:
    """Maxwell random numbers: lengths of vectors of three standard normal numbers.

    Args:
        key: a single key.
        shape: result shape.
        dtype: a float dtype; default float32 (float64 with x64).
    Returns:
        Array of `shape` and `dtype`.

    >>> ferrax.random.maxwell(ferrax.random.key(0), (100,)).min() > 0
    Array(True, dtype=bool)
    """
    return _standard("maxwell", _maxwell, key, shape, dtype)


@jit(static_argnums=(1, 2))
def _maxwell(key, shape, dtype):
    z = normal(key, (*shape, 3), dtype)
    return jnp.sqrt(jnp.sum(z * z, axis=-1))


def double_sided_maxwell(
    key: Array, loc: ArrayLike, scale: Any, shape: Shape = (), dtype: DTypeLike | None = None,
) -> Array:
    """Maxwell random numbers with a random sign, scaled and shifted.

    Args:
        key: a single key.
        loc, scale: float scalars or arrays.
        shape: leading part of the result's shape; its end is the broadcast shape of the
            parameters. Default: that shape.
        dtype: a float dtype; default float32 (float64 with x64).
    Returns:
        Array.

    >>> ferrax.random.double_sided_maxwell(ferrax.random.key(0), 0.0, 1.0, (2, 3)).shape
    (2, 3)
    """
    key = _begin("double_sided_maxwell", key)
    dtype = _sample_dtype("double_sided_maxwell", dtype)
    return _double_sided_maxwell(key, loc, scale, canonicalize_shape(shape), dtype)


@jit(static_argnums=(3, 4))
def _double_sided_maxwell(key, loc, scale, shape, dtype):
    parameters = tuple(lax.broadcast_shapes(np.shape(loc), np.shape(scale)))
    shape = (shape or parameters) + parameters
    maxwell_key, sign_key = _split(key)
    lengths = maxwell(maxwell_key, shape, dtype)
    return rademacher(sign_key, shape, dtype) * lengths * scale + loc


@placed
def wald(
    key: Array, mean: Any, shape: Shape | None = None, dtype: DTypeLike | None = None, *,
    out_sharding: Any = None,
) -> Array:
    """Wald (inverse Gaussian) random numbers of the given mean and scale one.

    A function of the number is the square of a normal one, and has it and `mean**2` over it as roots; the
    method is that of Michael, Schucany and Haas (Generating random variates using transformations with
    multiple roots, The American Statistician 30, 1976). Numbers of an infinite mean are those of the Lévy
    distribution.

    Args:
        key: a single key.
        mean: float scalar or array.
        shape: result shape, to which `mean` broadcasts; default: that of `mean`.
        dtype: a float dtype; default float32 (float64 with x64).
    Returns:
        Array of `dtype`.

    >>> ferrax.random.wald(ferrax.random.key(0), 2.0, (100,)).min() > 0
    Array(True, dtype=bool)
    """
    return _of_parameter("wald", _wald, key, mean, shape, dtype)


@jit(static_argnums=(2, 3))
def _wald(key, mean, shape, dtype):
    of_square, of_choice = _split(key)
    mean = lax.convert_element_type(mean, dtype)
    rate = 1 / mean
    half = 0.5 * lax.square(normal(of_square, shape, dtype))
    # The reciprocals of the roots of (x - mean)**2 = 2 * half * mean**2 * x: their product is rate**2, the
    # larger one is a sum of positive terms.
    larger = rate + half + lax.sqrt(half) * lax.sqrt(rate + (rate + half))
    nearer = uniform(of_choice, shape, dtype) <= larger / (larger + rate)
    return jnp.where(nearer, 1 / larger, mean * (mean * larger))


@placed
def geometric(
    key: Array, p: ArrayLike, shape: Shape | None = None, dtype: DTypeLike | None = None, *,
    out_sharding: Any = None,
) -> Array:
    """Geometric random numbers: how many trials of probability `p` until the first success.

    Args:
        key: a single key.
        p: float scalar or array: probabilities.
        shape: result shape, to which `p` broadcasts; default: that of `p`.
        dtype: an integer dtype; default int32 (int64 with x64).
    Returns:
        Array of `dtype`.

    >>> ferrax.random.geometric(ferrax.random.key(0), jnp.array([1.0, 1.0]))
    Array([1, 1], dtype=int32)
    """
    key = _begin("geometric", key)
    dtype = _sample_dtype("geometric", dtype, default=int, kind=np.integer)
    shape = _shape_with("geometric", shape, p)
    _check_arraylike("geometric", p)
    return _geometric(key, p, shape, dtype)


@jit(static_argnums=(2, 3))
def _geometric(key, p, shape, dtype):
    # The whole part of an exponential waiting time in which a trial succeeds with probability p.
    probability = jnp.asarray(p)
    probability = probability.astype(dtypes.to_inexact_dtype(probability.dtype))
    u = uniform(key, shape, probability.dtype)
    waited = jnp.where(u == 0, 0, -lax.log(u))
    failures = jnp.floor(waited / -lax.log1p(-probability))
    return (1 + failures).astype(dtype)


@placed
def logistic(
    key: Array, shape: Shape = (), dtype: DTypeLike | None = None, *, out_sharding: Any = None,
) -> Array:
    """Logistic random numbers, whose distribution function is the sigmoid.

    Args:
        key: a single key.
        shape: result shape.
        dtype: a float dtype; default float32 (float64 with x64).
    Returns:
        Array of `shape` and `dtype`.

    >>> ferrax.random.logistic(ferrax.random.key(0), (2, 3)).shape
    (2, 3)
    """
    return _standard("logistic", _logistic, key, shape, dtype)


@jit(static_argnums=(1, 2))
def _logistic(key, shape, dtype):
    # The inverse of the distribution function: the logit of a number in (0, 1).
    probability = uniform(key, shape, dtype, dtypes.finfo(dtype).tiny, 1.0)
    return lax.log(probability) - lax.log1p(-probability)


@placed
def cauchy(
    key: Array, shape: Shape = (), dtype: DTypeLike | None = None, *, out_sharding: Any = None,
) -> Array:
    """Cauchy random numbers: density `1 / (pi * (1 + x**2))`.

    Args:
        key: a single key.
        shape: result shape.
        dtype: a float dtype; default float32 (float64 with x64).
    Returns:
        Array of `shape` and `dtype`.

    >>> ferrax.random.cauchy(ferrax.random.key(0), (2, 3)).shape
    (2, 3)
    """
    return _standard("cauchy", _cauchy, key, shape, dtype)


@jit(static_argnums=(1, 2))
def _cauchy(key, shape, dtype):
    u = uniform(key, shape, dtype, minval=dtypes.finfo(dtype).eps, maxval=1.0)
    pi, half = np.array(np.pi, dtype), np.array(0.5, dtype)
    return lax.tan(lax.mul(pi, lax.sub(u, half)))
