"""Random counts: Poisson, binomial and multinomial numbers.

Invariants:
- Keys are used as JAX uses them. A loop draws numbers for the whole shape from one key each time.
- Each element belongs to one of two methods, by the size of its mean. What a sum or a product of random numbers
  has reached stays; so other elements are done from the start.
- Rejection takes the last number that was accepted until all elements had one, other elements with stand-ins for
  their parameters included: JAX's numbers are those. Without elements of its own the loop makes no step.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from ferrax._src.base import dtypes
from ferrax._src.core import Array
from ferrax._src.core.typing import ArrayLike, DTypeLike, Shape
from ferrax._src.lax import api as lax
from ferrax._src.numpy import api as jnp
from ferrax._src.numpy.util import promote_dtypes_inexact
from ferrax._src.random.placement import placed
from ferrax._src.random.prng import canonicalize_shape, clone, split, threefry_prng_impl
from ferrax._src.random.samplers import (
    _begin,
    _check_arraylike,
    _check_shape,
    _sample_dtype,
    _split,
    check_method,
    uniform,
)
from ferrax._src.transforms.jit import jit

# ---------------------------------------------------------------------------------------------
# Poisson numbers.


@placed
def poisson(
    key: Array, lam: ArrayLike, shape: Shape | None = None, dtype: DTypeLike | None = None, *,
    method: str = "exact", out_sharding: Any = None,
) -> Array:
    """Poisson random numbers: k with probability `lam**k * exp(-lam) / k!`.

    Args:
        key: a single threefry key.
        lam: float scalar or array: the mean, not negative.
        shape: result shape, to which `lam` broadcasts; default: that of `lam`.
        dtype: an integer dtype; default int32 (int64 with x64).
        method: "exact", or "approximate", which allows JAX an approximation; samples are exact here.
    Returns:
        Array of `dtype`; -1 where `lam` is NaN or negative.
    Raises:
        NotImplementedError: for keys of another generator.

    The methods are Knuth's products of uniform numbers (The Art of Computer Programming, 3.4.1) for
    means below 10, and else transformed rejection (Hörmann, "The transformed rejection method for
    generating Poisson random variables", 1993).

    Example:
        >>> x = ferrax.random.poisson(ferrax.random.key(0), 4.0, (10000,))
        >>> jnp.mean(x).round(1)
        Array(4., dtype=float32)
    """
    check_method("poisson", method)
    key = _begin("poisson", key)
    dtype = dtypes.check_and_canonicalize_user_dtype(int if dtype is None else dtype, "poisson")
    if key.dtype._impl != threefry_prng_impl:
        raise NotImplementedError(
            f"poisson takes keys of the generator threefry2x32, got one of {key.dtype._impl.name}"
        )
    shape = np.shape(lam) if shape is None else canonicalize_shape(shape, "poisson")
    lam = lax.convert_element_type(jnp.broadcast_to(lam, shape), np.float32)
    return _poisson(key, lam, shape, dtype)


@jit(static_argnums=(2, 3))
def _poisson(key, lam, shape, dtype):
    small = (lam != lam) | (lam < 10)
    steps = dtypes.iinfo(dtype).max
    products = _poisson_products(key, lam, small, shape, dtype, steps)
    # Each element takes the numbers of one of the two.
    rejection = _poisson_rejection(clone(key), lam, small, shape, dtype, steps)
    result = lax.select(small, products, rejection)
    return lax.select(lam == 0, jnp.zeros_like(result), result)


def _poisson_products(key, lam, mine, shape, dtype, steps):
    """How many uniform numbers make a product above `exp(-lam)`."""
    bound = -lam

    def unfinished(state):
        step, _, log_product, _ = state
        return (step < steps) & jnp.any(log_product > bound)

    def multiply(state):
        step, key, log_product, factors = state
        key, own = _split(key)
        factors = factors + (log_product > bound).astype(dtype)
        return step + 1, key, log_product + lax.log(uniform(own, shape, np.float32)), factors

    log_product = jnp.where(mine, np.float32(0), np.float32(-np.inf))
    *_, factors = lax.while_loop(
        unfinished, multiply, (0, key, log_product, jnp.zeros(shape, dtype))
    )
    return (factors - 1).astype(dtype)


class _Hat(NamedTuple):
    """The hat of Hörmann's transformed rejection: its inverse is G(u) = (2 a / (1/2 - |u|) + b) u.

    `scale` is that of the uniform number which is compared with the density; below `sure` it needs no
    comparison, away from the ends of the range of u.
    """

    a: Array
    b: Array
    scale: Array
    sure: Array


def _transformed_rejection(key, hat, candidate, possible, log_density, others, dtype, steps):
    """Whole numbers from uniform numbers u in [-1/2, 1/2) and v in [0, 1), drawn until all are taken.

    k = `candidate(G(u))` is taken where v is `sure`, and else where it is `possible(k, s, v)`, with
    s = 1/2 - |u|, and the logarithm of v `scale` / G'(u) is at most `log_density(k)`. What is taken in
    a later round replaces what was; JAX's numbers do so. Elements of `others` are not wanted.
    """
    a, b, scale, sure = hat
    shape = a.shape

    def unfinished(state):
        step, _, pending, _ = state
        return pending.any() & (step < steps)

    def draw(state):
        step, key, pending, found = state
        key, *of_uniforms = _split(key, 3)
        u, v = (uniform(own, shape, a.dtype) for own in of_uniforms)
        u = u - 0.5
        s = 0.5 - lax.abs(u)
        k = lax.floor(candidate((2 * a / s + b) * u))
        below = lax.log(v * scale / (a / (s * s) + b)) <= log_density(k)
        taken = ((v <= sure) & (s >= 0.07)) | (possible(k, s, v) & below)
        return step + 1, key, pending & ~taken, jnp.where(taken, k, found)

    pending = jnp.broadcast_to(~others.all(), shape)
    start = (0, key, pending, jnp.full(shape, -1, a.dtype))
    return lax.while_loop(unfinished, draw, start)[3].astype(dtype)


def _poisson_rejection(key, lam, others, shape, dtype, steps):
    """Poisson numbers of means from 10 on, by the constants of algorithm PTRS."""
    lam = jnp.where(others, np.float32(1e5), lam)
    b = 0.931 + 2.53 * lax.sqrt(lam)
    a = -0.059 + 0.02483 * b
    hat = _Hat(a, b, scale=1.1239 + 1.1328 / (b - 3.4), sure=0.9277 - 3.6224 / (b - 2))
    log_lam = lax.log(lam)
    return _transformed_rejection(
        key,
        hat,
        lambda x: x + lam + 0.43,
        lambda k, s, v: (k >= 0) & ((s >= 0.013) | (v <= s)),
        lambda k: -lam + k * log_lam - lax.lgamma(k + 1),
        others, dtype, steps,
    )  # fmt: skip


# ---------------------------------------------------------------------------------------------
# Binomial numbers.


def binomial(
    key: Array, n: ArrayLike, p: ArrayLike, shape: Shape | None = None,
    dtype: DTypeLike | None = None,
) -> Array:
    """Binomial random numbers: how many of `n` trials of probability `p` succeed.

    Args:
        key: a single key.
        n: float or integer scalar or array: numbers of trials.
        p: float scalar or array: probabilities.
        shape: result shape, to which they broadcast; default: their broadcast shape.
        dtype: a float dtype; default float32 (float64 with x64).
    Returns:
        Array of `dtype`; NaN where `n` is NaN or negative or `p` is NaN or outside of [0, 1], infinite
        where `n` is.
    Raises:
        ValueError: if `dtype` is no float dtype, or the parameters do not broadcast to `shape`.

    The methods are sums of geometric numbers (Devroye, Non-Uniform Random Variate Generation, 1986,
    X.4) for means up to 10, and else transformed rejection (Hörmann, "The generation of binomial random
    variates", 1993).

    Example:
        >>> x = ferrax.random.binomial(ferrax.random.key(0), 20, 0.25, (10000,))
        >>> jnp.mean(x).round(1)
        Array(5., dtype=float32)
    """
    key = _begin("binomial", key)
    _check_arraylike("binomial", n, p)
    dtype = _sample_dtype("binomial", dtype)
    if shape is not None:
        shape = canonicalize_shape(shape, "binomial")
    return _binomial(key, n, p, shape, dtype)


@jit(static_argnums=(3, 4), inline=True)
def _binomial(key, count, prob, shape, dtype):
    if shape is None:
        shape = tuple(lax.broadcast_shapes(np.shape(count), np.shape(prob)))
    else:
        _check_shape("binomial", shape, np.shape(count), np.shape(prob))
    prob = jnp.asarray(prob)
    prob = prob.astype(dtypes.to_inexact_dtype(prob.dtype))
    count = jnp.broadcast_to(lax.convert_element_type(count, prob.dtype), shape)
    prob = jnp.broadcast_to(prob, shape)

    # Of the rarer outcome, so that its probability q is at most a half.
    rare = prob < 0.5
    q = jnp.where(rare, prob, 1 - prob)
    bad_count = (count != count) | (count < 0)
    bad_q = (q != q) | (q < 0)
    q = jnp.where(bad_q, jnp.full_like(q, 0.01), q)
    endless = jnp.isinf(count)
    # Infinitely many trials without a success have no mean; their number is set below.
    count = jnp.where(endless & (q == 0), jnp.ones_like(count), count)
    small = bad_count | (count * q <= 10)
    count = lax.floor(count)
    samples = lax.select(
        small,
        _binomial_sums(key, count, q, small & ~bad_count, shape, dtype),
        _binomial_rejection(clone(key), count, q, small, shape, dtype),
    )
    bad = bad_count | bad_q
    samples = jnp.where(bad, jnp.full_like(samples, np.nan), samples)
    samples = jnp.where(endless & ~bad, jnp.full_like(samples, np.inf), samples)
    keep = rare | bad_count | (prob != prob) | endless
    return lax.select(keep, samples, count.astype(dtype) - samples)


def _binomial_sums(key, count, q, mine, shape, dtype):
    """How many geometric numbers have a sum of at most `count`."""
    log_failure = lax.log1p(-q)
    # Numbers of others are not used: their sum is beyond any count.
    count = jnp.where(mine, count, jnp.zeros_like(count))

    def cond(state):
        return (state[1] <= count).any()

    def body(state):
        k, total, key = state
        subkey, key = _split(key)
        k = lax.select(total <= count, k + 1, k)
        u = uniform(subkey, shape, q.dtype)
        return k, total + lax.ceil(lax.log(u) / log_failure), key

    total = jnp.where(mine, jnp.zeros_like(q), jnp.full_like(q, np.inf))
    return (lax.while_loop(cond, body, (jnp.zeros_like(q), total, key))[0] - 1).astype(dtype)


def _binomial_rejection(key, count, q, others, shape, dtype):
    """Binomial numbers of means from 10 on, by the constants of algorithm BTRS."""
    count = jnp.where(others, jnp.full_like(count, 1e4), count)
    q = jnp.where(others, jnp.full_like(q, 0.5), q)
    deviation = lax.sqrt(count * q * (1 - q))
    b = 1.15 + 2.53 * deviation
    a = -0.0873 + 0.0248 * b + 0.01 * q
    hat = _Hat(a, b, scale=(2.83 + 5.1 / b) * deviation, sure=0.92 - 4.2 / b)
    centre = count * q + 0.5
    odds = q / (1 - q)
    mode = lax.floor((count + 1) * q)
    failures = count - mode + 1  # at the mode, and one

    def log_density(k):
        """The logarithm of the density over that at the mode, with Stirling's formula for factorials."""
        from_mode = (mode + 0.5) * lax.log((mode + 1) / (odds * failures))
        of_count = (count + 1) * lax.log(failures / (count - k + 1))
        of_k = (k + 0.5) * lax.log(odds * (count - k + 1) / (k + 1))
        with_mode = from_mode + of_count + of_k + _stirling_error(mode) + _stirling_error(count - mode)
        return with_mode - _stirling_error(k) - _stirling_error(count - k)

    return _transformed_rejection(
        key,
        hat,
        lambda x: x + centre,
        lambda k, s, v: (k >= 0) & (k <= count),
        log_density,
        others, dtype, np.iinfo(np.int32).max,
    )  # fmt: skip


def _log_factorial_error(k: int) -> float:
    stirling = (k + 0.5) * math.log(k + 1) - (k + 1) + 0.5 * math.log(2 * math.pi)
    return math.log(math.factorial(k)) - stirling


# log(k!) less Stirling's formula for k + 1, (k + 1/2) log(k + 1) - (k + 1) + log(2 pi) / 2.
_STIRLING_ERRORS = tuple(map(_log_factorial_error, range(10)))


def _stirling_error(k):
    """What log(k!) has over Stirling's formula for k + 1: a table, and beyond it the series at 9, which is
    too large by less than 0.0084. JAX's numbers are accepted with these values."""
    place = jnp.clip(k, 0, 9)
    square = (place + 1) * (place + 1)
    series = (1 / 12 - (1 / 360 - 1 / 1260 / square) / square) / (place + 1)
    table = jnp.array(_STIRLING_ERRORS, k.dtype)
    known = jnp.take(table, lax.floor(place).astype(np.int32), mode="clip")
    return jnp.where(k <= 9, known, series)


def multinomial(
    key: Array, n: ArrayLike, p: ArrayLike, *, shape: Shape | None = None,
    dtype: DTypeLike | None = None, unroll: int | bool = 1,
) -> Array:
    """Multinomial random vectors: how many of `n` trials have each of the outcomes.

    Args:
        key: a single key.
        n: float or integer array that broadcasts to `p.shape[:-1]`: numbers of trials.
        p: float array of shape (..., k): probabilities of the outcomes, whose sum is one.
        shape: result shape, to which `p` broadcasts; default: that of `p`.
        dtype: dtype of the result; default float32 (float64 with x64).
        unroll: of the loop over outcomes; see `lax.scan`.
    Returns:
        Array of `shape` and `dtype`, whose sums along the last axis are `n`.

    The method is a binomial number for each outcome, of the trials that are left.

    Example:
        >>> p = jnp.array([0.2, 0.3, 0.5])
        >>> ferrax.random.multinomial(ferrax.random.key(0), 10, p).sum()
        Array(10., dtype=float32)
    """
    key = _begin("multinomial", key)
    _check_arraylike("multinomial", n, p)
    n, p = promote_dtypes_inexact(jnp.asarray(n), jnp.asarray(p))
    shape = p.shape if shape is None else canonicalize_shape(shape, "multinomial")
    n, p = jnp.broadcast_to(n, shape[:-1]), jnp.broadcast_to(p, shape)

    outcomes = jnp.moveaxis(p, -1, 0)
    remaining = lax.cumsum(outcomes, 0, reverse=True)
    chances = jnp.clip(outcomes / jnp.where(remaining == 0, 1, remaining), 0, 1)

    def draw(trials, given):
        chance, own_key = given
        hits = binomial(own_key, trials, chance, dtype=trials.dtype)
        return trials - hits, hits

    _, hits = lax.scan(draw, n, (chances, split(key, outcomes.shape[0])), unroll=unroll)
    return jnp.moveaxis(hits, 0, -1).astype(float if dtype is None else dtype)
