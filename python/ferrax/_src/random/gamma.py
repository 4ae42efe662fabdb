"""Gamma random numbers, and the primitive that draws them.

The method is that of Marsaglia and Tsang, "A simple method for generating gamma variables" (2000): with
d = a - 1/3 and c = 1 / sqrt(9 d), `d (1 + c x)**3` for a normal number x is accepted with a probability
above 0.95. For a < 1 a number for a + 1 is multiplied by `u**(1 / a)`.

Invariants:
- Every element has a key of its own, the split of the given one at its position: an element's number does
  not depend on how often others are rejected.
- Keys are split in the order in which JAX splits them, so that the numbers are its numbers.
- All elements have their first attempt at once, of which at most one in twenty fails for a >= 1; the rest
  is gathered for further ones. So the cost is that of two attempts for each element, about.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from ferrax._src.base import dtypes
from ferrax._src.composed.special.incomplete_gamma import random_gamma_grad
from ferrax._src.core import Array
from ferrax._src.core.avals import ShapedArray
from ferrax._src.core.lowering import lower_fun, register_lowering
from ferrax._src.core.primitives import Primitive, primitive_batchers
from ferrax._src.core.typing import ArrayLike, DTypeLike, Shape
from ferrax._src.lax import api as lax
from ferrax._src.numpy import api as jnp
from ferrax._src.random.placement import placed
from ferrax._src.random.samplers import (
    _begin,
    _sample_dtype,
    _shape_with,
    _split,
    check_method,
    exponential,
    normal,
    uniform,
)
from ferrax._src.transforms.ad import defjvp2
from ferrax._src.transforms.batching import vmap
from ferrax._src.transforms.jit import jit

# Of the cheap bound that spares most logarithms (Marsaglia and Tsang, section 4).
_SQUEEZE = 0.0331


def _candidate(key, c):
    """The key of the next candidate, the normal number x and 1 + c x."""
    key, subkey = _split(key)
    x = normal(subkey, (), c.dtype)
    return key, x, 1 + x * c


def _rejected(x, v, u, d):
    """Whether `d v**3` is rejected, for v = 1 + c x > 0 and the uniform number u."""
    squared, cubed = x * x, v * v * v
    return (u >= 1 - _SQUEEZE * (squared * squared)) & (
        lax.log(u) >= squared * 0.5 + d * (1 - cubed + lax.log(cubed))
    )


def _first_attempt(key, d, c):
    """v**3 of the first candidate, and whether it is accepted."""
    _, normal_key, uniform_key = _split(key, 3)
    _, x, v = _candidate(normal_key, c)
    return v * v * v, ~((v <= 0) | _rejected(x, v, uniform(uniform_key, (), c.dtype), d))


def _all_attempts(key, d, c):
    """v**3 of the first candidate that is accepted."""
    zero = jnp.zeros((), c.dtype)

    def attempt(state):
        key, normal_key, uniform_key = _split(state[0], 3)
        _, x, v = lax.while_loop(
            lambda state: state[2] <= 0,
            lambda state: _candidate(state[0], c),
            (normal_key, zero, zero),
        )
        return key, v * v * v, _rejected(x, v, uniform(uniform_key, (), c.dtype), d)

    return lax.while_loop(lambda state: state[2], attempt, (key, zero, np.bool_(True)))[1]


def _cubes(keys, d, c):
    """v**3 for each of these keys: all elements have a first attempt, and the few that are left have
    theirs together, so many at a time."""
    size = d.size
    room = max(size // 8, min(size, 32))
    cubes, accepted = vmap(_first_attempt)(keys, d, c)

    def next_ones(state):
        cubes, accepted = state
        index = jnp.nonzero(~accepted, size=room, fill_value=size)[0]
        rest = vmap(_all_attempts)(*(jnp.take(x, index, mode="clip") for x in (keys, d, c)))
        return cubes.at[index].set(rest, mode="drop"), accepted.at[index].set(True, mode="drop")

    return lax.while_loop(lambda state: ~state[1].all(), next_ones, (cubes, accepted))[0]


def _numbers(keys, a, log_space):
    """Numbers for an array `a` of one axis, or their logarithms."""
    dtype = a.dtype
    one = np.array(1, dtype)
    boosted = a < one
    d = lax.select(boosted, a + one, a) - np.array(1 / 3, dtype)
    c = np.array(1 / 3, dtype) / lax.sqrt(d)
    keys, boost_keys = jnp.moveaxis(vmap(_split)(keys), 1, 0)
    cubes = _cubes(keys, d, c)
    if log_space:
        log_u = -vmap(lambda key: exponential(key, (), dtype))(boost_keys)
        none = ~boosted | (log_u == 0)
        log_boost = lax.select(none, jnp.zeros_like(a), log_u * (one / a))
        return lax.log(d) + lax.log(cubes) + log_boost
    u = one - vmap(lambda key: uniform(key, (), dtype))(boost_keys)
    return d * cubes * lax.select(boosted, lax.pow(u, one / a), jnp.ones_like(a))


def _random_gamma(key, a, *, log_space):
    """Numbers of the shape of `a`, whose leading axes are those of the array of keys."""
    if not a.size:
        return a
    split = functools.partial(_split, num=math.prod(a.shape[key.ndim :]))
    keys = vmap(split)(key.reshape(-1)).reshape(-1)
    return _numbers(keys, a.reshape(-1), log_space).reshape(a.shape)


random_gamma_p = Primitive("random_gamma")
random_gamma_p.def_impl(jit(_random_gamma, static_argnames=("log_space",)))


@random_gamma_p.def_abstract_eval
def _abstract_eval(key, a, *, log_space):
    return ShapedArray(a.shape, a.dtype)


def _batch(args, dims, *, log_space):
    size = next(x.shape[dim] for x, dim in zip(args, dims) if dim is not None)
    key, a = (
        jnp.broadcast_to(x, (size, *x.shape)) if dim is None else jnp.moveaxis(x, dim, 0)
        for x, dim in zip(args, dims)
    )
    return random_gamma_p.bind(key, a, log_space=log_space), 0


def _slope(t, sample, key, a, *, log_space):
    """The tangent of the sample: along what leaves the distribution function at it as it is (Figurnov,
    Mohamed and Mnih, "Implicit reparameterization gradients", 2018)."""
    if not log_space:
        return t * random_gamma_grad(a, sample)
    x = lax.exp(sample)
    x = lax.select(x == 0, lax.full_like(x, dtypes.finfo(x.dtype).tiny), x)
    return t * (random_gamma_grad(a, x) / x)


primitive_batchers[random_gamma_p] = _batch
defjvp2(random_gamma_p, None, _slope)
register_lowering(random_gamma_p, lower_fun(_random_gamma, multiple_results=False))


@placed
def gamma(
    key: Array, a: ArrayLike, shape: Shape | None = None, dtype: DTypeLike | None = None, *,
    method: str = "exact", out_sharding: Any = None,
) -> Array:
    """Gamma random numbers: density `x**(a - 1) * exp(-x) / gamma(a)` for x > 0.

    Args:
        key: a single key.
        a: float scalar or array: the shape parameter, positive.
        shape: result shape, to which `a` broadcasts; default: that of `a`.
        dtype: a float dtype; default float32 (float64 with x64).
        method: "exact", or "approximate", which allows JAX an approximation; samples are exact here.
    Returns:
        Array of `dtype`, differentiable in `a`: as the number at which the distribution function has
        a fixed value (Figurnov, Mohamed and Mnih, "Implicit reparameterization gradients", 2018).
    Raises:
        ValueError: for another `method`, if `dtype` is no float dtype, or `a` does not broadcast to `shape`.

    The method is that of Marsaglia and Tsang, "A simple method for generating gamma variables" (2000).

    Example:
        >>> x = ferrax.random.gamma(ferrax.random.key(0), 3.0, (10000,))
        >>> jnp.round(jnp.mean(x))
        Array(3., dtype=float32)
    """
    check_method("gamma", method)
    return _sample("gamma", key, a, shape, dtype, False)


@placed
def loggamma(
    key: Array, a: ArrayLike, shape: Shape | None = None, dtype: DTypeLike | None = None, *,
    method: str = "exact", out_sharding: Any = None,
) -> Array:
    """Logarithms of gamma random numbers, precise also where the numbers underflow.

    Args:
        key: a single key, with which `gamma` gives the numbers themselves.
        a: float scalar or array: the shape parameter, positive.
        shape: result shape, to which `a` broadcasts; default: that of `a`.
        dtype: a float dtype; default float32 (float64 with x64).
        method: "exact", or "approximate", which allows JAX an approximation; samples are exact here.
    Returns:
        Array of `dtype`.
    Raises:
        ValueError: for another `method`, if `dtype` is no float dtype, or `a` does not broadcast to `shape`.

    The method is that of `gamma`.

    >>> key = ferrax.random.key(0)
    >>> jnp.allclose(jnp.exp(ferrax.random.loggamma(key, 2.0)), ferrax.random.gamma(key, 2.0))
    Array(True, dtype=bool)
    """
    check_method("loggamma", method)
    return _sample("loggamma", key, a, shape, dtype, True)


def _sample(name, key, a, shape, dtype, log_space):
    key = _begin(name, key)
    dtype = _sample_dtype(name, dtype)
    return _gamma(key, a, _shape_with(name, shape, a), dtype, log_space)


@jit(static_argnums=(2, 3, 4))
def _gamma(key, a, shape, dtype, log_space):
    parameters = jnp.broadcast_to(lax.convert_element_type(a, dtype), shape)
    return random_gamma_p.bind(key, parameters, log_space=log_space)
