"""Samplers of `jax.random` that loop: rejection methods for gamma, Poisson and binomial numbers.

Gamma numbers have a derivative with respect to their parameter (`lax.random_gamma_grad`), and so
have beta, Dirichlet, t, chi-square and F numbers, which are made of them. A sample of several
gamma numbers splits the key once per element, so that each element loops on its own key.

Methods: gamma: Marsaglia and Tsang, "A simple method for generating gamma variables", 2000.
Poisson: Knuth's product of uniforms below 10, Hoermann's PTRS (1993) above. Binomial: counting
geometric gaps for small means, Hoermann's BTRS (1993) for others.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from ferrax import lax, numpy as jnp
from ferrax._src import core, dtypes
from ferrax._src.api import custom_jvp, jit
from ferrax._src.prng import canonicalize_shape
from ferrax._src.random import (
    _begin,
    _check_arraylike,
    _check_castable,
    _check_shape,
    _sample_dtype,
    _shape_with,
    _split,
    exponential,
    normal,
    rademacher,
    uniform,
)

# ---------------------------------------------------------------------------------------------
# Gamma.


def _gamma_one(key, alpha, log_space):
    """One gamma number (or its logarithm) of parameter `alpha`, a scalar array."""
    dtype = alpha.dtype

    def constant(value):
        return lax.full_like(alpha, value)

    zero, one = constant(0), constant(1)
    # Below 1, sample at alpha + 1 and multiply by u ** (1 / alpha).
    large = lax.ge(alpha, one)
    boosted = lax.select(large, alpha, lax.add(alpha, one))
    third = constant(1.0 / 3.0)
    d = lax.sub(boosted, third)
    c = lax.div(third, lax.sqrt(d))

    def rejected(state):
        _, x2, v, u = state
        quick = lax.ge(u, lax.sub(one, lax.mul(constant(0.0331), lax.mul(x2, x2))))
        bound = lax.add(
            lax.mul(x2, constant(0.5)), lax.mul(d, lax.add(lax.sub(one, v), lax.log(v)))
        )
        return lax.bitwise_and(quick, lax.ge(lax.log(u), bound))

    def propose(state):
        def next_normal(inner):
            key, subkey = _split(inner[0])
            x = normal(subkey, (), dtype)
            return key, x, lax.add(one, lax.mul(x, c))

        key, x_key, u_key = _split(state[0], 3)
        _, x, v = lax.while_loop(
            lambda inner: lax.le(inner[2], zero), next_normal, (x_key, zero, constant(-1))
        )
        return key, lax.mul(x, x), lax.mul(lax.mul(v, v), v), uniform(u_key, (), dtype)

    key, boost_key = _split(key)
    v = lax.while_loop(rejected, propose, (key, zero, one, constant(2)))[2]
    if log_space:
        # Where u is 1, its logarithm is 0, also where alpha is 0.
        log_u = lax.neg(exponential(boost_key, (), dtype))
        log_boost = lax.select(large | (log_u == 0), zero, lax.mul(log_u, lax.div(one, alpha)))
        return lax.add(lax.add(lax.log(d), lax.log(v)), log_boost)
    u = 1 - uniform(boost_key, (), dtype)
    boost = lax.select(large, one, lax.pow(u, lax.div(one, alpha)))
    return lax.mul(lax.mul(d, v), boost)


@functools.partial(custom_jvp, nondiff_argnums=(2,))
def _random_gamma(key, a, log_space):
    keys = _split(key, math.prod(a.shape))
    samples = lax.map(lambda args: _gamma_one(*args, log_space), (keys, a.ravel()))
    return samples.reshape(a.shape)


@_random_gamma.defjvp
def _random_gamma_jvp(log_space, primals, tangents):
    key, a = primals
    samples = _random_gamma(key, a, log_space)
    if log_space:
        # d log(x) / da = (dx / da) / x; the quotient's limit at 0 is that at the least number.
        x = lax.exp(samples)
        tiny = lax.full_like(x, dtypes.finfo(x.dtype).tiny)
        x = lax.select(lax.eq(x, lax.full_like(x, 0)), tiny, x)
        slope = lax.random_gamma_grad(a, x) / x
    else:
        slope = lax.random_gamma_grad(a, samples)
    return samples, tangents[1] * slope


@functools.partial(jit, static_argnames=("shape", "dtype", "log_space"))
def _gamma(key, a, shape, dtype, log_space=False):
    if shape is None:
        shape = np.shape(a)
    else:
        _check_shape("gamma", shape, np.shape(a))
    a = lax.convert_element_type(a, dtype)
    return _random_gamma(key, jnp.broadcast_to(a, shape), log_space)


def gamma(key, a, shape=None, dtype=None, *, out_sharding=None):
    """Gamma random numbers: density proportional to `x**(a - 1) * exp(-x)` for x >= 0.

    Differentiable in `a`. For `a` much below 1, use `loggamma`: numbers may underflow to 0.

    Args:
        key: a single key.
        a: float scalar or array: the shape parameter.
        shape: result shape, to which `a` broadcasts; default: that of `a`.
        dtype: a float dtype; default float32 (float64 with x64).
    Returns:
        Array of `dtype`.
    """
    key = _begin("gamma", key, out_sharding)
    dtype = _sample_dtype("gamma", dtype)
    shape = None if shape is None else canonicalize_shape(shape, "gamma")
    return _gamma(key, a, shape=shape, dtype=dtype)


def loggamma(key, a, shape=None, dtype=None, *, out_sharding=None):
    """Logarithms of gamma random numbers, exact also where the numbers underflow.

    Args and result as those of `gamma`; the numbers differ from `log(gamma(...))` by rounding
    for `a >= 1`, and belong to another draw for `a < 1`.
    """
    key = _begin("loggamma", key, out_sharding)
    dtype = _sample_dtype("loggamma", dtype)
    shape = None if shape is None else canonicalize_shape(shape, "loggamma")
    return _gamma(key, a, shape=shape, dtype=dtype, log_space=True)


def beta(key, a, b, shape=None, dtype=None, *, out_sharding=None):
    """Beta random numbers: density proportional to `x**(a - 1) * (1 - x)**(b - 1)` in [0, 1].

    Args:
        key: a single key.
        a, b: float scalars or arrays.
        shape: result shape, to which they broadcast; default: their broadcast shape.
        dtype: a float dtype; default float32 (float64 with x64).
    Returns:
        Array of `dtype`.
    """
    key = _begin("beta", key, out_sharding)
    dtype = _sample_dtype("beta", dtype)
    _check_castable("beta", dtype, a, b)
    return _beta(key, a, b, _shape_with("beta", shape, a, b), dtype)


@functools.partial(jit, static_argnums=(3, 4))
def _beta(key, a, b, shape, dtype):
    key_a, key_b = _split(key)
    a = jnp.broadcast_to(lax.convert_element_type(a, dtype), shape)
    b = jnp.broadcast_to(lax.convert_element_type(b, dtype), shape)
    log_a = loggamma(key_a, a, shape, dtype)
    log_b = loggamma(key_b, b, shape, dtype)
    # Scaled by the larger of the two, which neither over- nor underflows.
    largest = lax.max(log_a, log_b)
    scaled_a, scaled_b = jnp.exp(log_a - largest), jnp.exp(log_b - largest)
    return scaled_a / (scaled_a + scaled_b)


def dirichlet(key, alpha, shape=None, dtype=None, *, out_sharding=None):
    """Dirichlet random vectors: non-negative, of sum one.

    Args:
        key: a single key.
        alpha: float array of shape (..., n): concentrations.
        shape: batch shape of the result, to which that of `alpha` broadcasts; default: that.
        dtype: a float dtype; default float32 (float64 with x64).
    Returns:
        Array of shape `shape + (n,)`.
    Raises:
        ValueError: if `alpha` is a scalar.
    """
    key = _begin("dirichlet", key, out_sharding)
    dtype = _sample_dtype("dirichlet", dtype)
    shape = None if shape is None else canonicalize_shape(shape, "dirichlet")
    return _dirichlet(key, alpha, shape, dtype)


@functools.partial(jit, static_argnums=(2, 3))
def _dirichlet(key, alpha, shape, dtype):
    alpha_shape = np.shape(alpha)
    if not alpha_shape:
        raise ValueError("dirichlet requires alpha.ndim >= 1, got alpha.ndim == 0")
    if shape is None:
        shape = alpha_shape[:-1]
    else:
        _check_shape("dirichlet", shape, alpha_shape[:-1])
    alpha = lax.convert_element_type(alpha, dtype)
    logs = loggamma(key, alpha, shape + alpha_shape[-1:], dtype)
    scaled = jnp.exp(logs - lax.stop_gradient(jnp.max(logs, -1, keepdims=True)))
    return scaled / jnp.sum(scaled, -1, keepdims=True)


def chisquare(key, df, shape=None, dtype=None, *, out_sharding=None):
    """Chi-square random numbers of `df` degrees of freedom.

    Args:
        key: a single key.
        df: float scalar or array.
        shape: result shape, to which `df` broadcasts; default: that of `df`.
        dtype: a float dtype; default float32 (float64 with x64).
    Returns:
        Array of `dtype`.
    """
    key = _begin("chisquare", key, out_sharding)
    dtype = _sample_dtype("chisquare", dtype)
    shape = _shape_with("chisquare", shape, df)
    _check_castable("chisquare", dtype, df)
    return _chisquare(key, df, shape, dtype)


@functools.partial(jit, static_argnums=(2, 3))
def _chisquare(key, df, shape, dtype):
    two = np.array(2, dtype)
    log_g = loggamma(key, lax.div(lax.convert_element_type(df, dtype), two), shape, dtype)
    return lax.mul(jnp.exp(log_g), two)


def f(key, dfnum, dfden, shape=None, dtype=None, *, out_sharding=None):
    """F random numbers: the ratio of two chi-square numbers, each over its degrees of freedom.

    Args:
        key: a single key.
        dfnum, dfden: float scalars or arrays: degrees of freedom.
        shape: result shape, to which they broadcast; default: their broadcast shape.
        dtype: a float dtype; default float32 (float64 with x64).
    Returns:
        Array of `dtype`.
    """
    key = _begin("f", key, out_sharding)
    dtype = _sample_dtype("f", dtype)
    shape = _shape_with("f", shape, dfnum, dfden)
    _check_castable("f", dtype, dfnum, dfden)
    return _f(key, dfnum, dfden, shape, dtype)


@functools.partial(jit, static_argnums=(3, 4))
def _f(key, dfnum, dfden, shape, dtype):
    dfnum = lax.convert_element_type(dfnum, dtype)
    dfden = lax.convert_element_type(dfden, dtype)
    key_den, key_num = _split(key)
    return (chisquare(key_num, dfnum, shape, dtype) / dfnum) / (
        chisquare(key_den, dfden, shape, dtype) / dfden
    )


def t(key, df, shape=None, dtype=None, *, out_sharding=None):
    """Student's t random numbers of `df` degrees of freedom.

    Args:
        key: a single key.
        df: float scalar or array.
        shape: result shape, to which `df` broadcasts; default: that of `df`.
        dtype: a float dtype; default float32 (float64 with x64).
    Returns:
        Array of `dtype`.
    """
    key = _begin("t", key, out_sharding)
    dtype = _sample_dtype("t", dtype)
    shape = _shape_with("t", shape, df)
    _check_castable("t", dtype, df)
    return _t(key, df, shape, dtype)


@functools.partial(jit, static_argnums=(2, 3))
def _t(key, df, shape, dtype):
    normal_key, gamma_key = _split(key)
    half = lax.div(lax.convert_element_type(df, dtype), np.array(2, dtype))
    z = normal(normal_key, shape, dtype)
    return z * jnp.sqrt(half / gamma(gamma_key, half, shape, dtype))


def generalized_normal(key, p, shape=(), dtype=None, *, out_sharding=None):
    """Random numbers of density proportional to `exp(-abs(x)**p)`.

    Args:
        key: a single key.
        p: float.
        shape: result shape.
        dtype: a float dtype; default float32 (float64 with x64).
    Returns:
        Array of `shape`.
    """
    shape = canonicalize_shape(shape, "generalized_normal")
    key = _begin("generalized_normal", key, out_sharding)
    return _generalized_normal(key, p, shape, _sample_dtype("generalized_normal", dtype))


@functools.partial(jit, static_argnums=(2, 3))
def _generalized_normal(key, p, shape, dtype):
    gamma_key, sign_key = _split(key)
    g = gamma(gamma_key, 1 / p, shape, dtype)
    return rademacher(sign_key, shape, dtype) * g ** (1 / p)


def ball(key, d, p=2, shape=(), dtype=None, *, out_sharding=None):
    """Random points, uniform in the unit ball of the p-norm in d dimensions.

    The method is that of Barthe, Guedon, Mendelson and Naor (2005).

    Args:
        key: a single key.
        d: int: the dimension.
        p: float: which norm.
        shape: batch shape.
        dtype: a float dtype; default float32 (float64 with x64).
    Returns:
        Array of shape `shape + (d,)`.
    """
    shape = canonicalize_shape(shape, "ball")
    key = _begin("ball", key, out_sharding)
    dtype = _sample_dtype("ball", dtype)
    d = core.concrete_or_error(int, d, "The error occurred in jax.random.ball()")
    return _ball(key, p, d, shape, dtype)


@functools.partial(jit, static_argnums=(2, 3, 4))
def _ball(key, p, d, shape, dtype):
    point_key, radius_key = _split(key)
    g = generalized_normal(point_key, p, (*shape, d), dtype)
    e = exponential(radius_key, shape, dtype)
    return g / (((jnp.abs(g) ** p).sum(-1) + e) ** (1 / p))[..., None]


# ---------------------------------------------------------------------------------------------
# Poisson.


def poisson(key, lam, shape=None, dtype=None, *, out_sharding=None):
    """Poisson random numbers of mean `lam`; -1 where `lam` is NaN.

    Args:
        key: a single key.
        lam: scalar or array: means.
        shape: result shape, to which `lam` broadcasts; default: that of `lam`.
        dtype: an integer dtype; default int32 (int64 with x64).
    Returns:
        Array of `dtype`.
    """
    key = _begin("poisson", key, out_sharding)
    dtype = dtypes.check_and_canonicalize_user_dtype(int if dtype is None else dtype, "poisson")
    shape = np.shape(lam) if shape is None else canonicalize_shape(shape, "poisson")
    lam = lax.convert_element_type(jnp.broadcast_to(lam, shape), np.float32)
    return _poisson(key, lam, shape, dtype)


@functools.partial(jit, static_argnums=(2, 3))
def _poisson(key, lam, shape, dtype):
    small = lax.ne(lam, lam) | (lam < 10)
    most = dtype.type(dtypes.iinfo(dtype).max)
    # Lanes of the other method get a mean at which this one ends at once.
    lam_small = lax.select(small, lam, lax.full_like(lam, 0.0))
    lam_large = lax.select(small, lax.full_like(lam, 1e5), lam)
    result = lax.select(
        small,
        _poisson_by_products(key, lam_small, shape, dtype, most),
        _poisson_by_rejection(key, lam_large, shape, dtype, most),
    )
    return lax.select(lam == 0, lax.full_like(result, 0), result)


@functools.partial(jit, static_argnums=(2, 3, 4))
def _poisson_by_products(key, lam, shape, dtype, most):
    def body(state):
        step, count, key, log_product = state
        key, subkey = _split(key)
        count = lax.select(log_product > -lam, count + 1, count)
        return step + 1, count, key, log_product + jnp.log(uniform(subkey, shape, np.float32))

    def unfinished(state):
        return (state[3] > -lam).any() & (state[0] < most)

    start = (0, jnp.zeros(shape, dtype), key, jnp.zeros(shape, np.float32))
    return (lax.while_loop(unfinished, body, start)[1] - 1).astype(dtype)


@functools.partial(jit, static_argnums=(2, 3, 4))
def _poisson_by_rejection(key, lam, shape, dtype, most):
    log_lam = lax.log(lam)
    b = 0.931 + 2.53 * lax.sqrt(lam)
    a = -0.059 + 0.02483 * b
    inverse_alpha = 1.1239 + 1.1328 / (b - 3.4)
    v_r = 0.9277 - 3.6224 / (b - 2)

    def body(state):
        step, result, accepted, key = state
        key, u_key, v_key = _split(key, 3)
        u = uniform(u_key, shape, lam.dtype) - 0.5
        v = uniform(v_key, shape, lam.dtype)
        distance = 0.5 - jnp.abs(u)
        k = lax.floor((2 * a / distance + b) * u + lam + 0.43)
        log_height = lax.log(v * inverse_alpha / (a / (distance * distance) + b))
        log_density = -lam + k * log_lam - lax.lgamma(k + 1)
        inside = (distance >= 0.07) & (v <= v_r)
        outside = (k < 0) | ((distance < 0.013) & (v > distance))
        accept = inside | (~outside & (log_height <= log_density))
        return step + 1, lax.select(accept, k, result), accepted | accept, key

    def unfinished(state):
        return (~state[2]).any() & (state[0] < most)

    start = (0, jnp.full(shape, -1, lam.dtype), jnp.zeros(shape, bool), key)
    return lax.while_loop(unfinished, body, start)[1].astype(dtype)


# ---------------------------------------------------------------------------------------------
# Binomial and multinomial.


def binomial(key, n, p, shape=None, dtype=None):
    """Binomial random numbers: how many of `n` trials of probability `p` succeed.

    Args:
        key: a single key.
        n: scalar or array: numbers of trials; NaN results where negative or NaN.
        p: float scalar or array: probabilities; NaN results where out of [0, 1] or NaN.
        shape: result shape, to which they broadcast; default: their broadcast shape.
        dtype: a float dtype; default float32 (float64 with x64).
    Returns:
        Array of `dtype`.
    """
    key = _begin("binomial", key)
    _check_arraylike("binomial", n, p)
    dtype = _sample_dtype("binomial", dtype)
    shape = None if shape is None else canonicalize_shape(shape, "binomial")
    return _binomial(key, n, p, shape, dtype)


@functools.partial(jit, static_argnums=(3, 4), inline=True)
def _binomial(key, n, p, shape, dtype):
    shape = _shape_with("binomial", shape, n, p)
    p = jnp.asarray(p)
    p = lax.convert_element_type(p, dtypes.to_inexact_dtype(p.dtype))
    n = jnp.broadcast_to(lax.convert_element_type(n, p.dtype), shape)
    p = jnp.broadcast_to(p, shape)
    # Sample the rarer outcome, of probability q.
    p_is_q = p < 0.5
    q = lax.select(p_is_q, p, 1.0 - p)
    bad_n = lax.ne(n, n) | (n < 0.0)
    infinite_n = jnp.isinf(n)
    nan_q = lax.ne(q, q)
    bad_q = nan_q | (q < 0.0)
    q = lax.select(bad_q, lax.full_like(q, 0.01), q)
    few = bad_n | (n * q <= 10.0)
    n = jnp.floor(n)
    # Lanes of the other method get parameters at which this one ends at once.
    n_few = lax.select(few, n, lax.full_like(n, 0.0))
    n_many = lax.select(few, lax.full_like(n, 1e4), n)
    q_many = lax.select(few, lax.full_like(q, 0.5), q)
    most = dtype.type(dtypes.finfo(dtype).max)
    samples = lax.select(
        few,
        _binomial_by_gaps(key, n_few, q, shape, dtype, most),
        _binomial_by_rejection(key, n_many, q_many, shape, dtype, most),
    )
    bad = bad_q | bad_n
    samples = lax.select(bad, lax.full_like(samples, np.nan), samples)
    samples = lax.select(infinite_n & ~bad, lax.full_like(samples, np.inf), samples)
    as_they_are = p_is_q | bad_n | nan_q | infinite_n
    return lax.select(as_they_are, samples, n.astype(dtype) - samples)


def _binomial_by_gaps(key, n, q, shape, dtype, most):
    log_failure = jnp.log1p(-q)

    def body(state):
        step, successes, position, key = state
        subkey, key = _split(key)
        successes = lax.select(position <= n, successes + 1, successes)
        gap = jnp.ceil(jnp.log(uniform(subkey, shape, q.dtype)) / log_failure)
        return step + 1, successes, position + gap, key

    def unfinished(state):
        return (state[2] <= n).any() & (state[0] < most)

    zeros = jnp.zeros(shape, q.dtype)
    return (lax.while_loop(unfinished, body, (0, zeros, zeros, key))[1] - 1).astype(dtype)


# log(k!) less Stirling's approximation to it, for k = 0 ... 9.
_STIRLING_TAILS = (
    0.0810614667953272, 0.0413406959554092, 0.0276779256849983, 0.02079067210376509,
    0.0166446911898211, 0.0138761288230707, 0.0118967099458917, 0.010411265261972,
    0.00925546218271273, 0.00833056343336287,
)  # fmt: skip


def _stirling_tail(k):
    table = jnp.array(_STIRLING_TAILS, k.dtype)
    tabulated = k <= 9
    k = lax.clamp(np.array(0.0, k.dtype), k, np.array(9.0, k.dtype))
    square = (k + 1) * (k + 1)
    series = (1.0 / 12 - (1.0 / 360 - 1.0 / 1260 / square) / square) / (k + 1)
    return lax.select(tabulated, table[jnp.floor(k).astype(np.int32)], series)


def _binomial_by_rejection(key, n, q, shape, dtype, most):
    deviation = jnp.sqrt(n * q * (1 - q))
    b = 1.15 + 2.53 * deviation
    a = -0.0873 + 0.0248 * b + 0.01 * q
    c = n * q + 0.5
    v_r = 0.92 - 4.2 / b
    odds = q / (1 - q)
    alpha = (2.83 + 5.1 / b) * deviation
    mode = jnp.floor((n + 1) * q)

    def body(state):
        step, result, accepted, key = state
        key, u_key, v_key = _split(key, 3)
        u = uniform(u_key, shape, q.dtype)
        v = uniform(v_key, shape, q.dtype)
        u = u - 0.5
        distance = 0.5 - jnp.abs(u)
        inside = (distance >= 0.07) & (v <= v_r)
        k = jnp.floor((2 * a / distance + b) * u + c)
        outside = (k < 0) | (k > n)
        log_height = jnp.log(v * alpha / (a / (distance * distance) + b))
        log_density = (
            (mode + 0.5) * jnp.log((mode + 1) / (odds * (n - mode + 1)))
            + (n + 1) * jnp.log((n - mode + 1) / (n - k + 1))
            + (k + 0.5) * jnp.log(odds * (n - k + 1) / (k + 1))
            + _stirling_tail(mode)
            + _stirling_tail(n - mode)
            - _stirling_tail(k)
            - _stirling_tail(n - k)
        )
        accept = inside | (~outside & (log_height <= log_density))
        return step + 1, lax.select(accept, k, result), accepted | accept, key

    def unfinished(state):
        return (~state[2]).any() & (state[0] < most)

    start = (0, jnp.full(shape, -1, q.dtype), jnp.zeros(shape, bool), key)
    return lax.while_loop(unfinished, body, start)[1].astype(dtype)


def multinomial(key, n, p, *, shape=None, dtype=None, unroll=1):
    """Multinomial random vectors: how many of `n` draws fall into each category.

    Args:
        key: a single key.
        n: scalar or array: numbers of draws.
        p: float array of shape (..., k): probabilities of the categories.
        shape: result shape, to which `p` broadcasts; default: that of `p`.
        dtype: dtype of the result; default float32 (float64 with x64).
        unroll: how many categories are unrolled in the loop over them.
    Returns:
        Array of `shape`, whose sum over the last axis is `n`.
    """
    key = _begin("multinomial", key)
    _check_arraylike("multinomial", n, p)
    n, p = jnp.asarray(n), jnp.asarray(p)
    common = dtypes.to_inexact_dtype(dtypes.result_type(n, p))
    n, p = n.astype(common), p.astype(common)
    shape = p.shape if shape is None else canonicalize_shape(shape, "multinomial")
    n = jnp.broadcast_to(n, shape[:-1])
    p = jnp.moveaxis(jnp.broadcast_to(p, shape), -1, 0)
    remaining = lax.cumsum(p, 0, reverse=True)
    ratios = p / jnp.where(remaining == 0, 1, remaining)

    def draw(left, ratio_and_key):
        ratio, key = ratio_and_key
        count = binomial(key, left, ratio.clip(0, 1), dtype=left.dtype)
        return left - count, count

    keys = _split(key, ratios.shape[0])
    _, counts = lax.scan(draw, n, (ratios, keys), unroll=unroll)
    counts = jnp.moveaxis(counts, 0, -1)
    return counts.astype(dtypes.default_float_dtype() if dtype is None else dtype)
