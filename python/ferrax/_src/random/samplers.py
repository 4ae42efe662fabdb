"""Samplers of `ferrax.random` whose samples are elementwise functions of random bits.

Invariants:
- The same key gives the same numbers as in JAX: each sampler splits its key, and uses the bits,
  exactly as JAX's does; formulas are evaluated in the result's dtype.
- Samplers take a single key; batches of keys go through `vmap`, which gives, lane by lane, what
  separate calls give.
- Argument checks run in Python; the sample itself is one compiled function per shape and dtype.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ferrax._src import core
from ferrax._src.base import config, dtypes
from ferrax._src.base.traceback_util import bounded, leave
from ferrax._src.core import Array
from ferrax._src.core.typing import ArrayLike, DTypeLike, Shape
from ferrax._src.lax import api as lax
from ferrax._src.numpy import api as jnp
from ferrax._src.random.normal_tail import may_be_tail, tail_sample
from ferrax._src.random.placement import placed
from ferrax._src.random.prng import canonicalize_shape, check_key, random_bits, random_split
from ferrax._src.transforms.jit import jit

_UINT_DTYPES = {bits: np.dtype(f"uint{bits}") for bits in (8, 16, 32, 64)}


# ---------------------------------------------------------------------------------------------
# Arguments.


def check_method(name: str, method: str) -> None:
    """Errors: ValueError for what is no method of sampling."""
    if method not in ("exact", "approximate"):
        raise ValueError(f"{name}: method must be 'exact' or 'approximate', got {method!r}")


def _sample_dtype(name, dtype, default=float, kind=np.floating, error=ValueError):
    dtype = dtypes.check_and_canonicalize_user_dtype(default if dtype is None else dtype, name)
    if not dtypes.issubdtype(dtype, kind):
        wanted = {
            np.floating: "a float dtype",
            np.inexact: "a float or complex dtype",
            np.integer: "an int dtype",
            np.unsignedinteger: "an unsigned int dtype",
        }[kind]
        raise error(f"dtype argument to `{name}` must be {wanted}, got {dtype}")
    return dtype


def _check_shape(name, shape, *parameter_shapes):
    """Raises ValueError unless the parameters' shapes broadcast to exactly `shape`."""
    if parameter_shapes:
        together = lax.broadcast_shapes(shape, *parameter_shapes)
        if tuple(together) != shape:
            raise ValueError(
                f"{name} parameter shapes must be broadcast-compatible with the shape argument, "
                f"and broadcast to it: parameters of shapes {parameter_shapes} with shape "
                f"argument {shape} give {together}."
            )


def _shape_with(name, shape, *parameters):
    """The shape argument, checked, or the parameters' broadcast shape where it is None."""
    of_parameters = map(np.shape, parameters)
    if shape is not None:
        given = canonicalize_shape(shape, name)
        _check_shape(name, given, *of_parameters)
        return given
    return tuple(lax.broadcast_shapes((), *of_parameters))


def _check_castable(name, dtype, *parameters):
    for parameter in parameters:
        if not dtypes.safe_to_cast(parameter, dtype):
            raise dtypes.TypePromotionError(
                f"{name}: a parameter of dtype {dtypes.dtype(parameter)} does not fit samples of "
                f"dtype {dtype}; pass dtype= or convert it"
            )


def _check_arraylike(name, *arguments):
    for position, x in enumerate(arguments):
        if not (isinstance(x, (core.Array, np.ndarray, np.generic, bool, int, float, complex))
                or hasattr(x, "__jax_array__")):
            raise TypeError(
                f"{name} requires ndarray or scalar arguments, got {type(x)} at position "
                f"{position}."
            )


def _begin(name, key):
    key, _ = check_key(name, key)
    return key


def _standard(name, sample, key, shape, dtype):
    """Samples of a distribution of real numbers without parameters."""
    key = _begin(name, key)
    dtype = _sample_dtype(name, dtype)
    return sample(key, canonicalize_shape(shape, name), dtype)


def _split(key, num=2):
    return random_split(key, (num,))


# ---------------------------------------------------------------------------------------------
# Bits, uniform numbers, integers.


@placed
def bits(
    key: Array, shape: Shape = (), dtype: DTypeLike | None = None, *, out_sharding: Any = None,
) -> Array:
    """Uniform random bits, as unsigned integers.

    Args:
        key: a single key.
        shape: result shape.
        dtype: uint8, uint16, uint32 or uint64; default uint32 (uint64 with x64).
    Returns:
        Array of `shape` and `dtype`.
    Raises:
        ValueError: if `dtype` is no unsigned integer dtype.

    Example:
        >>> ferrax.random.bits(ferrax.random.key(0), (2,))
        Array([4070199207, 4202968722], dtype=uint32)
    """
    key = _begin("bits", key)
    if dtype is None:
        dtype = dtypes.default_uint_dtype()
    words = _sample_dtype("bits", dtype, kind=np.unsignedinteger)
    return random_bits(key, words.itemsize * 8, canonicalize_shape(shape, "bits"))


@placed
@bounded
def uniform(
    key: Array, shape: Shape = (), dtype: DTypeLike | None = None, minval: ArrayLike = 0.0,
    maxval: ArrayLike = 1.0, *, out_sharding: Any = None,
) -> Array:
    """Uniform random numbers in [minval, maxval).

    Args:
        key: a single key.
        shape: result shape.
        dtype: a float dtype; default float32 (float64 with x64).
        minval, maxval: bounds; scalars or arrays that broadcast to `shape`.
    Returns:
        Array of `shape` and `dtype`.
    Raises:
        ValueError: if `dtype` is no float dtype, or `key` is an array of keys.

    Example:
        >>> ferrax.random.uniform(ferrax.random.key(0), (4,))
        Array([0.947667  , 0.9785799 , 0.33229148, 0.46866846], dtype=float32)
    """
    try:
        key = _begin("uniform", key)
        dtype = _sample_dtype("uniform", dtype)
        return _uniform(key, minval, maxval, canonicalize_shape(shape, "uniform"), dtype)
    except Exception:
        leave()
        raise


@jit(static_argnums=(3, 4))
def _uniform(key, minval, maxval, shape, dtype):
    info = dtypes.finfo(dtype)
    if info.bits not in _UINT_DTYPES:
        raise TypeError(f"uniform: expected a dtype of 8, 16, 32 or 64 bits, got {dtype}.")
    minval = lax.broadcast_to_rank(lax.convert_element_type(minval, dtype), len(shape))
    maxval = lax.broadcast_to_rank(lax.convert_element_type(maxval, dtype), len(shape))
    # The bits become the mantissa of a float in [1, 2). Eight bits suffice for short mantissas.
    random_width = 8 if info.nmant < 8 else info.bits
    word = _UINT_DTYPES[info.bits]
    mantissa = random_bits(key, random_width, shape)
    if random_width != info.bits:
        mantissa = lax.convert_element_type(mantissa, word)
    mantissa = lax.shift_right_logical(mantissa, jnp.array(random_width - info.nmant, word))
    one = np.array(1.0, dtype)
    in_one_to_two = lax.bitcast_convert_type(
        lax.bitwise_or(mantissa, jnp.array(one.view(word))), dtype
    )
    samples = (in_one_to_two - jnp.array(one)) * (maxval - minval) + minval
    # Rounding may lead below minval.
    return lax.max(minval, lax.reshape(samples, shape))


@placed
def randint(
    key: Array, shape: Shape, minval: ArrayLike, maxval: ArrayLike, dtype: DTypeLike | None = None,
    *, out_sharding: Any = None,
) -> Array:
    """Uniform random integers in [minval, maxval).

    Where `maxval <= minval`, the result is `minval`. Numbers are remainders of twice as many bits
    as the dtype has, so there is a bias, of order `(maxval - minval) / 2**64` for int32.

    Args:
        key: a single key.
        shape: result shape.
        minval, maxval: integer bounds; scalars or arrays that broadcast to `shape`.
        dtype: an integer dtype; default int32 (int64 with x64).
    Returns:
        Array of `shape` and `dtype`.
    Raises:
        TypeError: if `dtype` is no integer dtype.

    Example:
        >>> x = ferrax.random.randint(ferrax.random.key(0), (100,), 0, 10)
        >>> x.min() >= 0, x.max() < 10
        (Array(True, dtype=bool), Array(True, dtype=bool))
    """
    key = _begin("randint", key)
    dtype = dtypes.check_and_canonicalize_user_dtype(int if dtype is None else dtype, "randint")
    shape = canonicalize_shape(shape, "randint")
    if not dtypes.issubdtype(dtype, np.integer):
        raise TypeError(f"randint: dtype has to be one of integers, got {dtype}")
    info = dtypes.iinfo(dtype)
    low, high = int(info.min), int(info.max)
    wide = dtype
    if info.bits < 32:
        # Narrow remainders would be visibly biased.
        wide = np.dtype("int32")
        minval = jnp.asarray(minval).astype(wide).clip(low, high)
        maxval = jnp.asarray(maxval).astype(wide).clip(low, high + 1)
    return _randint(key, minval, maxval, shape, wide).astype(dtype)


def _clip_to_integer_dtype(x, dtype):
    ours, target = dtypes.iinfo(x.dtype), dtypes.iinfo(dtype)
    low = np.array(max(int(ours.min), int(target.min)), x.dtype)
    high = np.array(min(int(ours.max), int(target.max)), x.dtype)
    return jnp.clip(x, low, high).astype(dtype)


@jit(static_argnums=(3, 4))
def _randint(key, minval, maxval, shape, dtype):
    _check_shape("randint", shape, np.shape(minval), np.shape(maxval))
    _check_arraylike("randint", minval, maxval)
    bounds = []
    for bound in (jnp.asarray(minval), jnp.asarray(maxval)):
        bounds.append(
            bound if dtypes.issubdtype(bound.dtype, np.integer) else bound.astype(int)
        )
    minval, maxval = bounds
    width = dtypes.iinfo(dtype).bits
    if width not in _UINT_DTYPES:
        raise TypeError(f"randint: dtype needs 8, 16, 32 or 64 bits, got {dtype}")
    largest = jnp.array(dtypes.iinfo(dtype).max, dtype)
    beyond = lax.gt(maxval, _clip_to_integer_dtype(largest, maxval.dtype))
    minval = lax.broadcast_to_rank(_clip_to_integer_dtype(minval, dtype), len(shape))
    maxval = lax.broadcast_to_rank(_clip_to_integer_dtype(maxval, dtype), len(shape))

    high_key, low_key = _split(key)
    high = random_bits(high_key, width, shape)
    low = random_bits(low_key, width, shape)

    # The number of values; 0 stands for 2**width. An empty range counts as one value.
    span = lax.convert_element_type(maxval - minval, _UINT_DTYPES[width])
    span = lax.select(maxval <= minval, lax.full_like(span, 1), span)
    one = np.array(1, span.dtype)
    span = lax.select(beyond & (maxval > minval), lax.add(span, jnp.full_like(span, one)), span)

    # (high * 2**width + low) mod span, with 2**width mod span as the square of its root.
    root = lax.rem(lax.full_like(span, 2 ** (width // 2)), span)
    multiplier = lax.rem(lax.mul(root, root), span)
    if span.shape != shape:
        span = jnp.broadcast_to(span, shape)
        multiplier = jnp.broadcast_to(multiplier, shape)
    offset = lax.add(lax.mul(lax.rem(high, span), multiplier), lax.rem(low, span))
    offset = lax.convert_element_type(lax.rem(offset, span), dtype)
    return lax.add(jnp.broadcast_to(minval, shape), offset)


@placed
def bernoulli(
    key: Array, p: ArrayLike = 0.5, shape: Shape | None = None, mode: Any = "low", *,
    out_sharding: Any = None,
) -> Array:
    """Random booleans, true with probability `p`.

    Args:
        key: a single key.
        p: float scalar or array: probabilities.
        shape: result shape, to which `p` broadcasts; default: that of `p`.
        mode: 'low', or 'high' to resolve probabilities below 1e-7 with twice the bits.
    Returns:
        Boolean array.
    Raises:
        TypeError: if `p` is not floating.

    Example:
        >>> keep = ferrax.random.bernoulli(ferrax.random.key(0), 0.9, (2, 3))
        >>> keep.shape, keep.dtype
        ((2, 3), dtype('bool'))
    """
    if shape is not None:
        shape = canonicalize_shape(shape, "bernoulli")
    if mode not in ("high", "low"):
        raise ValueError(f"bernoulli: mode has to be 'high' or 'low', got {mode!r}")
    key = _begin("bernoulli", key)
    dtype = dtypes.dtype(p)
    if not dtypes.issubdtype(dtype, np.floating):
        raise TypeError(f"bernoulli: p has to be a float, got {dtype}")
    return _bernoulli(key, lax.convert_element_type(p, dtype), shape, mode)


@jit(static_argnames=("shape", "mode"))
def _bernoulli(key, p, shape, mode):
    if shape is None:
        shape = np.shape(p)
    else:
        _check_shape("bernoulli", shape, np.shape(p))
    if mode == "low":
        return uniform(key, shape, p.dtype) < p
    coarse, fine = uniform(key, (2, *shape), p.dtype)
    return fine * 2 ** -dtypes.finfo(p.dtype).nmant < p - coarse


@placed
def rademacher(
    key: Array, shape: Shape = (), dtype: DTypeLike | None = None, *, out_sharding: Any = None,
) -> Array:
    """Random signs: -1 or 1, each with probability one half.

    Args:
        key: a single key.
        shape: result shape.
        dtype: default int32 (int64 with x64).
    Returns:
        Array of `shape` and `dtype`.

    >>> jnp.abs(ferrax.random.rademacher(ferrax.random.key(0), (3,)))
    Array([1, 1, 1], dtype=int32)
    """
    key = _begin("rademacher", key)
    dtype = dtypes.check_and_canonicalize_user_dtype(int if dtype is None else dtype, "rademacher")
    return _rademacher(key, canonicalize_shape(shape, "rademacher"), dtype)


@jit(static_argnums=(1, 2))
def _rademacher(key, shape, dtype):
    return (2 * bernoulli(key, 0.5, shape).astype(dtype) - 1).astype(dtype)


# ---------------------------------------------------------------------------------------------
# Permutations and choices.


@placed
def permutation(
    key: Array, x: ArrayLike, axis: Any = 0, independent: bool = False, *,
    out_sharding: Any = None,
) -> Array:
    """A random permutation of an array along an axis, or of `arange(x)`.

    Args:
        key: a single key.
        x: an array, or an int.
        axis: the axis that is permuted.
        independent: whether each vector along `axis` is permuted on its own.
    Returns:
        Array of the shape and dtype of `x` (or of `arange(x)`).
    Raises:
        TypeError: if `x` is a scalar that is no integer.

    Example:
        >>> jnp.sort(ferrax.random.permutation(ferrax.random.key(0), 5))
        Array([0, 1, 2, 3, 4], dtype=int32)
    """
    key = _begin("permutation", key)
    _check_arraylike("permutation", x)
    ndim = np.ndim(x) or 1
    if not -ndim <= axis < ndim:
        raise ValueError(f"axis {axis} is out of bounds for array of dimension {ndim}")
    axis %= ndim
    if not np.ndim(x):
        if not dtypes.issubdtype(dtypes.dtype(x), np.integer):
            raise TypeError(f"permutation: x has to be an integer or an array, got {x!r}")
        size = core.concrete_or_error(int, x, "argument x of ferrax.random.permutation()")
        return _shuffle(key, jnp.arange(size), axis)
    x = jnp.asarray(x)
    if independent or x.ndim == 1:
        return _shuffle(key, x, axis)
    order = _shuffle(key, jnp.arange(x.shape[axis]), 0)
    return jnp.take(x, order, axis, unique_indices=True)


@jit(static_argnums=(2,))
def _shuffle(key, x, axis):
    # Each round sorts by fresh 32-bit keys. Equal keys leave a trace of the old order, so there
    # are as many rounds as make it improbable that a pair of elements is tied in all of them.
    rounds = math.ceil(3 * np.log(max(1, x.size)) / np.log(np.iinfo(np.uint32).max))
    for _ in range(rounds):
        key, subkey = _split(key)
        _, x = lax.sort_key_val(random_bits(subkey, 32, x.shape), x, axis)
    return x


def choice(
    key: Array, a: ArrayLike, shape: Shape = (), replace: bool = True, p: ArrayLike | None = None,
    axis: Any = 0, mode: Any = None,
) -> Array:
    """A random sample of the elements of an array, or of `arange(a)`.

    Args:
        key: a single key.
        a: an array, or an int.
        shape: shape of the sample; it replaces `axis` in the result's shape.
        replace: whether an element may be drawn more than once.
        p: probabilities, of shape (a.shape[axis],); default: all equal.
        axis: the axis of `a` along which elements lie.
        mode: as in `gumbel`, for draws without replacement.
    Returns:
        Array of the dtype of `a`.
    Raises:
        TypeError: if `shape` is no sequence.
        ValueError: if `a` is empty, `p` has another shape, or more draws than elements are asked
            for without replacement.

    Example:
        >>> x = ferrax.random.choice(ferrax.random.key(0), jnp.array([1.0, 2.0, 4.0]), (5,))
        >>> jnp.isin(x, jnp.array([1.0, 2.0, 4.0])).all()
        Array(True, dtype=bool)
    """
    key = _begin("choice", key)
    if not isinstance(shape, Sequence):
        raise TypeError(f"shape argument of ferrax.random.choice must be a sequence, got {shape}")
    _check_arraylike("choice", a)
    array = jnp.asarray(a)
    if array.ndim == 0:
        population = core.concrete_or_error(int, a, "The error occurred in ferrax.random.choice()")
    else:
        if not -array.ndim <= axis < array.ndim:
            raise ValueError(
                f"axis {axis} is out of bounds for array of dimension {array.ndim}"
            )
        axis %= array.ndim
        population = array.shape[axis]
    shape = canonicalize_shape(shape, "choice")
    draws = math.prod(shape)
    if draws == 0:
        return jnp.zeros(shape, dtype=array.dtype)
    if population <= 0:
        raise ValueError(f"choice: there is nothing to choose from, got a of {population} elements")
    if not replace and draws > population:
        raise ValueError(
            f"choice: {draws} samples of {population} elements are possible with replace=True "
            "only"
        )
    if p is None and not replace:
        source = population if array.ndim == 0 else array
        result = permutation(key, source, axis)[(slice(None),) * axis + (slice(draws),)]
    else:
        index = (
            randint(key, shape, 0, population)
            if p is None
            else _weighted_index(key, p, shape, population, draws, replace, mode)
        )
        result = index if array.ndim == 0 else jnp.take(array, index, axis)
    if array.ndim == 0:
        return result.reshape(shape)
    return result.reshape(array.shape[:axis] + shape + array.shape[axis + 1 :])


def _weighted_index(key, p, shape, population, draws, replace, mode):
    _check_arraylike("choice", p)
    p = jnp.asarray(p)
    p = p.astype(dtypes.to_inexact_dtype(p.dtype))
    if p.shape != (population,):
        raise ValueError(
            "choice: p needs a probability for each element along the axis, "
            f"{population}; got shape {p.shape}."
        )
    if replace:
        cumulative = jnp.cumsum(p)
        level = cumulative[-1] * (1 - uniform(key, shape, cumulative.dtype))
        return jnp.searchsorted(cumulative, level).astype(int)
    # The largest of log p plus Gumbel noise are a sample without replacement (Vieira 2014).
    noisy = gumbel(key, (population,), p.dtype, mode=mode) + jnp.log(p)
    return lax.top_k(noisy, k=draws)[1].astype(int)


@placed
def categorical(
    key: Array, logits: ArrayLike, axis: Any = -1, shape: Shape | None = None,
    replace: bool = True, mode: Any = None, *, out_sharding: Any = None,
) -> Array:
    """Random indices, with probabilities proportional to `exp(logits)`.

    Args:
        key: a single key.
        logits: array of unnormalised log-probabilities.
        axis: the axis of `logits` that runs over categories.
        shape: result shape, whose end is the shape of `logits` without `axis`; default: that.
        replace: if false, the samples along the leading axes of `shape` are distinct.
        mode: as in `gumbel`.
    Returns:
        Integer array.
    Raises:
        ValueError: if `shape` does not fit, or too many distinct samples are asked for.

    The method is the maximum of logits and Gumbel numbers (Gumbel, Statistical Theory of Extreme
    Values, 1954); without replacement the largest ones (Kool et al., 2019).

    Example:
        >>> ferrax.random.categorical(ferrax.random.key(0), jnp.log(jnp.array([0.0, 1.0, 0.0])))
        Array(1, dtype=int32)
    """
    key = _begin("categorical", key)
    _check_arraylike("categorical", logits)
    logits = jnp.asarray(logits)
    if not -logits.ndim <= axis < logits.ndim:
        raise ValueError(f"axis {axis} is out of bounds for array of dimension {logits.ndim}")
    place = axis % logits.ndim
    batch_shape = logits.shape[:place] + logits.shape[place + 1 :]
    if shape is None:
        shape = batch_shape
    else:
        shape = canonicalize_shape(shape, "categorical")
        _check_shape("categorical", shape, batch_shape)
    prefix = shape[: len(shape) - len(batch_shape)]
    if replace:
        axis = axis - logits.ndim if axis >= 0 else axis
        sampled = list(shape[len(prefix) :])
        sampled.insert(axis % logits.ndim, logits.shape[axis])
        noise = gumbel(key, (*prefix, *sampled), logits.dtype, mode=mode)
        return jnp.argmax(noise + lax.expand_dims(logits, tuple(range(len(prefix)))), axis=axis)
    count = math.prod(prefix)
    if count > logits.shape[axis]:
        raise ValueError(
            f"Number of samples without replacement, {count}, exceeds that of categories, "
            f"{logits.shape[axis]}."
        )
    noisy = logits + gumbel(key, logits.shape, logits.dtype, mode=mode)
    _, index = lax.top_k(jnp.moveaxis(noisy, axis, -1), count)
    return lax.reshape(jnp.moveaxis(index, -1, 0), shape)


# ---------------------------------------------------------------------------------------------
# Continuous distributions without parameters of their own.


@placed
@bounded
def normal(
    key: Array, shape: Shape = (), dtype: DTypeLike | None = None, *, out_sharding: Any = None,
) -> Array:
    """Standard normal random numbers.

    Args:
        key: a single key.
        shape: result shape.
        dtype: a float or complex dtype; default float32 (float64 with x64). Complex numbers have
            variance one, half of it in each part.
    Returns:
        Array of `shape` and `dtype`.
    Raises:
        ValueError: if `dtype` is no inexact dtype, or `key` is an array of keys.

    The method is the inverse of the distribution function: `sqrt(2) * erf_inv(u)` of uniform u.

    Example:
        >>> weights = 0.1 * ferrax.random.normal(ferrax.random.key(0), (128, 64))
        >>> jnp.std(weights).round(2)
        Array(0.1, dtype=float32)
    """
    try:
        key = _begin("normal", key)
        dtype = _sample_dtype("normal", dtype, kind=np.inexact)
        return _normal(key, canonicalize_shape(shape, "normal"), dtype)
    except Exception:
        leave()
        raise


@jit(static_argnums=(1, 2))
def _normal(key, shape, dtype):
    if not dtypes.issubdtype(dtype, np.complexfloating):
        return _normal_real(key, shape, dtype)
    of_parts = dtypes.finfo(dtype).dtype
    parts = [_normal_real(own, shape, of_parts) for own in _split(key)]
    return lax.complex(*parts) / np.array(np.sqrt(2), dtype)


@jit(static_argnums=(1, 2))
def _normal_real(key, shape, dtype):
    # The inverse of the distribution function, of a number in the open interval (-1, 1).
    above_minus_one = np.nextafter(np.array(-1, dtype), np.array(0, dtype))
    u = uniform(key, shape, dtype, above_minus_one, np.array(1, dtype))
    return lax.erf_inv(u) * np.array(np.sqrt(2), dtype)


@placed
def truncated_normal(
    key: Array, lower: Any, upper: Any, shape: Shape | None = None, dtype: DTypeLike | None = None,
    *, out_sharding: Any = None,
) -> Array:
    """Standard normal random numbers, conditioned to lie in the open interval (lower, upper).

    Args:
        key: a single key.
        lower, upper: bounds; float scalars or arrays.
        shape: result shape, to which the bounds broadcast; default: their broadcast shape.
        dtype: a float dtype; default float32 (float64 with x64).
    Returns:
        Array of `shape` and `dtype`.

    The method is the inverse of the distribution function, of uniform numbers between its values at
    the bounds; in tails, of its logarithm.

    >>> x = ferrax.random.truncated_normal(ferrax.random.key(0), -1.0, 1.0, (100,))
    >>> jnp.abs(x).max() < 1
    Array(True, dtype=bool)
    """
    if shape is not None:
        shape = canonicalize_shape(shape, "truncated_normal")
    key = _begin("truncated_normal", key)
    dtype = _sample_dtype("truncated_normal", dtype)
    tails = may_be_tail(lower, upper, dtype)
    return _truncated_normal(key, lower, upper, shape, dtype, tails)


@jit(static_argnums=(3, 4, 5))
def _truncated_normal(key, lower, upper, shape, dtype, tails):
    shape = _shape_with("truncated_normal", shape, lower, upper)
    sqrt2 = np.array(np.sqrt(2), dtype)
    lower = lax.convert_element_type(lower, dtype)
    upper = lax.convert_element_type(upper, dtype)
    u = uniform(key, shape, dtype, minval=lax.erf(lower / sqrt2), maxval=lax.erf(upper / sqrt2))
    samples = sqrt2 * lax.erf_inv(u)
    if tails:
        samples = tail_sample(lower, upper, uniform(key, shape, dtype), samples)
    # Rounding may lead out of the open interval.
    infinity = np.array(np.inf, dtype)
    return jnp.clip(
        samples,
        jnp.nextafter(lax.stop_gradient(lower), infinity),
        jnp.nextafter(lax.stop_gradient(upper), -infinity),
    )


@placed
def exponential(
    key: Array, shape: Shape = (), dtype: DTypeLike | None = None, *, out_sharding: Any = None,
) -> Array:
    """Exponential random numbers of rate one: density `exp(-x)` for x >= 0.

    Args:
        key: a single key.
        shape: result shape.
        dtype: a float dtype; default float32 (float64 with x64).
    Returns:
        Array of `shape` and `dtype`.

    >>> ferrax.random.exponential(ferrax.random.key(0), (100,)).min() >= 0
    Array(True, dtype=bool)
    """
    return _standard("exponential", _exponential, key, shape, dtype)


@jit(static_argnums=(1, 2))
def _exponential(key, shape, dtype):
    # log(1 - u), since u may be 0 and is never 1.
    return lax.neg(lax.log1p(lax.neg(uniform(key, shape, dtype))))


@placed
def gumbel(
    key: Array, shape: Shape = (), dtype: DTypeLike | None = None, mode: Any = None, *,
    out_sharding: Any = None,
) -> Array:
    """Gumbel random numbers: density `exp(-x - exp(-x))`.

    Args:
        key: a single key.
        shape: result shape.
        dtype: a float dtype; default float32 (float64 with x64).
        mode: 'low': one draw of bits each, so that the largest values are about 16 in float32;
            'high': two draws, which resolves the upper tail; 'highest': two draws, and both tails
            (float32 only, 'high' for other dtypes). Default: by the flag
            `jax_high_dynamic_range_gumbel`.
    Returns:
        Array of `shape` and `dtype`.
    Raises:
        ValueError: for another mode.

    >>> ferrax.random.gumbel(ferrax.random.key(0), (2, 3)).shape
    (2, 3)
    """
    key = _begin("gumbel", key)
    dtype = _sample_dtype("gumbel", dtype)
    shape = canonicalize_shape(shape, "gumbel")
    if mode is None:
        mode = "high" if config.config.jax_high_dynamic_range_gumbel else "low"
    if mode not in ("highest", "high", "low"):
        raise ValueError(f"mode of gumbel must be 'highest', 'high' or 'low', got {mode!r}.")
    if mode == "highest" and dtype != np.float32:
        mode = "high"
    return _gumbel(key, shape, dtype, mode)


@jit(static_argnums=(1, 2, 3))
def _gumbel(key, shape, dtype, mode):
    info = dtypes.finfo(dtype)
    if mode == "low":
        return -jnp.log(-jnp.log(_uniform(key, info.tiny, 1.0, shape, dtype)))
    if mode == "high":
        high, low = _uniform(key, 0.0, 1.0, (2, *shape), dtype)
        x = jnp.where(high >= 0.5, high, high + 2 ** (-info.nmant) * low + info.tiny)
        return -jnp.log(-jnp.log1p(-x))
    # 64 random bits as a fixed-point number u. Whichever of u and 1 - u is below a half is
    # rounded to a float with its full mantissa; in two words, 1 - u is the two's complement.
    words = random_bits(key, 32, (2, *shape))
    flipped = lax.bitwise_not(words)
    carry = (flipped[1] == np.uint32(2**32 - 1)).astype(np.uint32)
    complement = flipped + jnp.array([carry, jnp.ones_like(flipped[1])], dtype=np.uint32)
    below_half = words[0] < np.uint32(1 << 31)
    x = _fixed_point_to_float32(jnp.where(below_half, words, complement))
    return jnp.where(below_half, -jnp.log(-jnp.log1p(-x)), -jnp.log(-jnp.log(x)))


def _fixed_point_to_float32(words):
    """The 64-bit fraction in two uint32 words, high first, as float32, cut to 24 bits."""
    zeros_high, zeros_low = lax.clz(words)
    high, low = words
    high_is_zero = zeros_high == 32
    top = lax.shift_left(high, zeros_high) | jnp.where(
        high_is_zero,
        lax.shift_left(low, zeros_low),
        lax.shift_right_logical(low, 32 - zeros_high),
    )
    mantissa = lax.shift_right_logical(top, lax.full_like(top, 8)) & np.uint32((1 << 23) - 1)
    exponent = 126 - jnp.where(high_is_zero, 32 + zeros_low, zeros_high)
    exponent = lax.shift_left(exponent, lax.full_like(exponent, 23))
    exponent = exponent & np.uint32((1 << 30) - (1 << 22))
    return lax.bitcast_convert_type(exponent | mantissa, np.float32)


@placed
def laplace(
    key: Array, shape: Shape = (), dtype: DTypeLike | None = None, *, out_sharding: Any = None,
) -> Array:
    """Laplace random numbers: density `exp(-abs(x)) / 2`.

    Args:
        key: a single key.
        shape: result shape.
        dtype: a float dtype; default float32 (float64 with x64).
    Returns:
        Array of `shape` and `dtype`.

    >>> ferrax.random.laplace(ferrax.random.key(0), (2, 3)).shape
    (2, 3)
    """
    return _standard("laplace", _laplace, key, shape, dtype)


@jit(static_argnums=(1, 2))
def _laplace(key, shape, dtype):
    # The inverse of the distribution function, of a number in (-1, 1): -1 is left out, as 1 is.
    signed = uniform(key, shape, dtype, dtypes.finfo(dtype).epsneg - 1.0, 1.0)
    return lax.sign(signed) * lax.log1p(-lax.abs(signed))
