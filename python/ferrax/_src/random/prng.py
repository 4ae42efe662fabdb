"""PRNG keys: generators by name, the key primitives, and checks of what users pass as keys.

A key array has an extended dtype (`key<fry>`), so that arithmetic on it is a type error. A legacy
key is a uint32 array whose last axis holds the words of one key; samplers accept both.

Invariants:
- Bits are a counter hash (threefry2x32, 20 rounds: Salmon et al., "Parallel random numbers: as
  easy as 1, 2, 3", 2011). With `jax_threefry_partitionable`, each element's bits depend on its own
  position alone: word i of a sample is the xor of both outputs of the hash of the counter i.
- The native core's `random_bits` and `random_split` are the partitionable ones; the older stream
  is composed here of `threefry2x32`.
"""

from __future__ import annotations

import math
import operator
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from ferrax import _core
from ferrax._src import core
from ferrax._src.base import config, dtypes
from ferrax._src.base.extended_dtypes import PRNG_IMPLS
from ferrax._src.core import Array
from ferrax._src.core.typing import ArrayLike, DTypeLike
from ferrax._src.numpy import api as jnp

PRNGImpl = dtypes.PRNGImpl

# Generators that exist, by name; and those that JAX has besides.
prngs = PRNG_IMPLS
threefry_prng_impl = dtypes.threefry2x32_impl
_UNAVAILABLE = ("threefry4x32", "rbg", "unsafe_rbg", "philox2x32", "philox4x32")
_key_dtypes = {"threefry2x32": dtypes.key_fry}


def key_type(impl):
    """The dtype of keys of a generator."""
    return _key_dtypes[impl.name]


# ---------------------------------------------------------------------------------------------
# Primitives. Names and parameters are those of JAX's programs.


def random_seed(seeds: Any, impl: Any) -> Array:
    """Keys of shape `seeds.shape` from integers.

    Args: seeds: an integer or an array of integers; impl: a generator.

    >>> from ferrax.extend.random import random_seed
    >>> random_seed(jnp.array([0, 1]), ferrax.extend.random.threefry_prng_impl).shape
    (2,)
    """
    if isinstance(seeds, int):
        # A Python int is cut to the default integer width, as are int64 arrays, rather than
        # refused: hashes are common seeds.
        seeds = np.int64(seeds)
    seeds = jnp.asarray(seeds)
    if not dtypes.issubdtype(seeds.dtype, np.integer) and seeds.dtype != np.dtype(bool):
        raise TypeError(f"PRNG key seed must be an integer; got dtype {seeds.dtype}.")
    if config.random_seed_offset.value:
        seeds = seeds + config.random_seed_offset.value
    return _core.bind("random_seed", (seeds,), {"impl": impl.name})


def seed_with_impl(impl: Any, seed: Any) -> Array:
    """A key of this generator from an integer.

    Args: impl: a generator; seed: an integer.

    >>> from ferrax.extend import random
    >>> ferrax.random.key_data(random.seed_with_impl(random.threefry_prng_impl, 3))
    Array([0, 3], dtype=uint32)
    """
    return random_seed(seed, impl)


def random_split(key, shape):
    """Keys of this shape from a single key."""
    if not config.threefry_partitionable.value:
        return random_wrap(_older_words(key, 2 * math.prod(shape)).reshape((*shape, 2)), _impl(key))
    return _core.bind("random_split", (key,), {"shape": shape})


def random_fold_in(keys, data):
    """Keys that depend on `keys` and on the uint32 array `data`, elementwise."""
    return _core.bind("random_fold_in", (keys, data), {})


def random_bits(key, bit_width, shape):
    """Uniform unsigned integers of 8, 16, 32 or 64 bits, of this shape, from a single key."""
    if not config.threefry_partitionable.value:
        return _older_bits(key, bit_width, shape)
    return _core.bind("random_bits", (key,), {"bit_width": bit_width, "shape": shape})


def random_wrap(key_data, impl):
    """Keys from their uint32 words along the last axis."""
    _check_key_data(impl, key_data)
    key_data = key_data if isinstance(key_data, core.Array) else jnp.asarray(key_data)
    return _core.bind("random_wrap", (key_data,), {"impl": impl.name})


def random_unwrap(keys):
    """The uint32 words of keys, along a new last axis."""
    return _core.bind("random_unwrap", (keys,), {})


def threefry_2x32(keypair: Any, count: Any) -> Array:
    """The threefry2x32 hash of an array of counters.

    Args:
        keypair: two uint32 arrays that broadcast with half of `count`.
        count: uint32 array; element i of its first half and of its second make up one counter.
    Returns:
        A uint32 array of the shape of `count`.
    Raises:
        TypeError: for any other dtype.

    Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3 (2011).

    >>> words = jnp.array([0, 0], jnp.uint32)
    >>> ferrax.extend.random.threefry_2x32((words[0], words[1]), words)
    Array([1797259609, 2579123966], dtype=uint32)
    """
    key1, key2 = keypair
    count = jnp.asarray(count)
    found = [dtypes.dtype(x) for x in (key1, key2, count)]
    if any(d != np.uint32 for d in found):
        raise TypeError(f"threefry_2x32 requires uint32 arguments, got {found}.")
    flat = count.ravel()
    size = flat.shape[0]
    if size % 2:
        flat = jnp.concatenate([flat, jnp.zeros(1, np.uint32)])
    halves = jnp.split(flat, 2)
    out = _core.bind("threefry2x32", (jnp.asarray(key1), jnp.asarray(key2), *halves), {})
    return jnp.concatenate(list(out))[:size].reshape(count.shape)


def _impl(key):
    return key.dtype._impl


def _older_words(key, count):
    """The first words of the stream that `jax_threefry_partitionable=False` selects.

    Its counters are 0 ... count - 1, of which the hash takes the first half and the second half as
    pairs; so words depend on how many there are.
    """
    if count > 2**32 - 1:
        raise NotImplementedError(
            "random samples of more than 2**32 - 1 words need jax_threefry_partitionable=True."
        )
    words = random_unwrap(key)
    return threefry_2x32((words[0], words[1]), jnp.arange(count, dtype=np.uint32))


def _older_bits(key, bit_width, shape):
    size = math.prod(shape)
    words = _older_words(key, -(-bit_width * size // 32))
    dtype = np.dtype(f"uint{bit_width}")
    if bit_width == 64:
        high, low = words[:size].astype(dtype), words[size:].astype(dtype)
        words = (high << np.array(32, dtype)) | low
    elif bit_width < 32:
        shifts = jnp.arange(0, 32, bit_width, dtype=np.uint32)
        parts = words.reshape((-1, 1)) >> shifts.reshape((1, -1))
        words = parts.astype(dtype).ravel()[:size]
    return words.reshape(shape)


# ---------------------------------------------------------------------------------------------
# Specifications of generators.


class PRNGSpec:
    """A generator as `key_impl` names one that has no registered name."""

    __slots__ = ("_impl",)

    def __init__(self, impl):
        self._impl = impl

    def __repr__(self):
        return f"PRNGSpec({self._impl.name!r})"

    def __str__(self):
        return str(self._impl)

    def __hash__(self):
        return hash(self._impl)

    def __eq__(self, other):
        return isinstance(other, PRNGSpec) and self._impl == other._impl


def default_prng_impl():
    """The generator named by the flag `jax_default_prng_impl`."""
    return resolve_prng_impl(config.default_prng_impl.value)


def resolve_prng_impl(spec):
    """The generator for a name, a key dtype, a `PRNGSpec`, or None (the default one).

    Raises:
        ValueError: for an unknown name.
        NotImplementedError: for a generator that JAX has and this package has not.
        TypeError: for anything else.
    """
    if spec is None:
        return default_prng_impl()
    if isinstance(spec, PRNGImpl):
        return spec
    if isinstance(spec, (PRNGSpec, dtypes.KeyTy)):
        return spec._impl
    if isinstance(spec, str):
        if spec in prngs:
            return prngs[spec]
        if spec in _UNAVAILABLE:
            raise NotImplementedError(
                f'the PRNG implementation "{spec}" is not available: use "threefry2x32".'
            )
        raise ValueError(
            f'unrecognized PRNG implementation "{spec}": expected one of '
            f"{', '.join(repr(name) for name in prngs)}."
        )
    raise TypeError(
        f"unrecognized type {type(spec)} for a PRNG implementation: expected its name or a "
        "PRNGSpec"
    )


# ---------------------------------------------------------------------------------------------
# Checks.


def _check_key_data(impl, key_data):
    blame = "JAX encountered invalid PRNG key data: expected "
    if not all(hasattr(key_data, name) for name in ("ndim", "shape", "dtype")):
        raise TypeError(f"{blame}an array of uint32, got {key_data!r}.")
    words = len(impl.key_shape)
    if key_data.ndim < words or tuple(key_data.shape[-words:]) != impl.key_shape:
        raise TypeError(
            f"{blame}a shape that ends with {impl.key_shape} for {impl.name}, got shape "
            f"{tuple(key_data.shape)}."
        )
    if key_data.dtype != np.uint32:
        raise TypeError(f"{blame}dtype uint32, got {key_data.dtype}.")


def is_key_array(x) -> bool:
    """Whether `x` is an array of typed keys."""
    return isinstance(x, core.Array) and dtypes.issubdtype(x.dtype, dtypes.prng_key)


def check_key(name, key, *, allow_batched=False):
    """(typed key, whether `key` was a legacy one) for the key argument of the function `name`.

    Raises:
        TypeError: if it is no key.
        ValueError: if it is an array of several keys, unless `allow_batched`; or a legacy key,
            where the flag `jax_legacy_prng_key` forbids those.
    """
    if is_key_array(key):
        typed, legacy = key, False
    elif isinstance(key, (core.Array, np.ndarray, np.generic, int, float, complex)):
        typed, legacy = random_wrap(key, default_prng_impl()), True
        _check_legacy_allowed()
    else:
        raise TypeError(f"expected a PRNG key, as random.key makes one, got {type(key)}")
    if not allow_batched and typed.ndim:
        raise ValueError(
            f"{name} accepts a single key, but was given a key array of shape {tuple(key.shape)} "
            "!= (). Use ferrax.vmap for batching."
        )
    return typed, legacy


def _check_legacy_allowed():
    policy = config.legacy_prng_key.value
    advice = (
        "A raw uint32 array was passed as a random key. Make keys with ferrax.random.key(), or, if "
        'raw keys are meant, set jax_legacy_prng_key="allow".'
    )
    if policy == config.LegacyPrngKeyState.ERROR:
        raise ValueError(advice)
    if policy == config.LegacyPrngKeyState.WARN:
        warnings.warn(advice, stacklevel=dtypes._user_stacklevel())
    elif config.enable_custom_prng.value:
        warnings.warn(
            "Raw uint32 arrays as random keys are deprecated while jax_enable_custom_prng is set.",
            FutureWarning,
            stacklevel=dtypes._user_stacklevel(),
        )


def as_given(keys, legacy):
    """Keys in the form in which the user works with them: raw words if `legacy`."""
    return random_unwrap(keys) if legacy and not config.enable_custom_prng.value else keys


def canonicalize_shape(shape, context="") -> tuple[int, ...]:
    """A shape argument as a tuple of ints; an int stands for a shape of one axis.

    Raises:
        TypeError: if an extent is no integer, or is negative, or is traced.
    """
    extents = shape if isinstance(shape, (Sequence, np.ndarray)) else (shape,)
    if isinstance(shape, str):
        raise TypeError(f"Shapes must be sequences of integers, got {shape!r}.")
    try:
        result = tuple(operator.index(extent) for extent in extents)
    except TypeError as error:
        if any(isinstance(extent, core.Tracer) for extent in extents):
            raise  # the tracer's own error says what to do
        where = f" in {context}" if context else ""
        raise TypeError(
            f"Shapes must be 1D sequences of concrete values of integer type, got {shape}{where}."
        ) from error
    if any(extent < 0 for extent in result):
        raise TypeError(f"Shapes cannot have negative extents, got {result}.")
    return result


# ---------------------------------------------------------------------------------------------
# Functions of `ferrax.random` that make and take apart keys.


def _make_key(name, seed, spec):
    impl = resolve_prng_impl(spec)
    if is_key_array(seed):
        raise TypeError(
            f"{name} makes a key of an integer, got a key; use random.split or random.fold_in"
        )
    if np.ndim(seed):
        raise TypeError(
            f"{name} accepts a scalar seed, but was given an array of shape {np.shape(seed)} != "
            "(). Use ferrax.vmap for batching."
        )
    return random_seed(seed, impl)


def _impl_or_dtype(name, impl, dtype):
    if impl is not None and dtype is not None:
        raise ValueError(f"Cannot specify both `impl` and `dtype` arguments to {name}.")
    return impl if dtype is None else dtype


def key(seed: Any, *, impl: Any = None, dtype: DTypeLike | None = None) -> Array:
    """A random key from an integer seed.

    Args:
        seed: integer scalar.
        impl: the generator: a name such as 'threefry2x32', or None for the default one.
        dtype: the same, as a key dtype.
    Returns:
        A 0-d array of dtype `key<fry>`.
    Raises:
        TypeError: if the seed is not an integer scalar.

    Example:
        >>> ferrax.random.uniform(ferrax.random.key(0))
        Array(0.947667, dtype=float32)
    """
    return _make_key("key", seed, _impl_or_dtype("ferrax.random.key", impl, dtype))


def PRNGKey(seed: Any, *, impl: Any = None) -> Array:
    """A legacy key from an integer seed: the raw words of `key(seed)`, a uint32 array.

    Args:
        seed: integer scalar.
        impl: the generator; see `key`.
    Returns:
        uint32 array of shape (2,).

    Example:
        >>> ferrax.random.PRNGKey(7)
        Array([0, 7], dtype=uint32)
    """
    return as_given(_make_key("PRNGKey", seed, impl), True)


def key_dtype(impl_spec: Any = None) -> Any:
    """The dtype of the keys of a generator, e.g. `key<fry>` for 'threefry2x32'.

    Args: impl_spec: the generator, as for `key`; default that of the settings.

    >>> ferrax.random.key_dtype("threefry2x32")
    key<fry>
    """
    return key_type(resolve_prng_impl(impl_spec))


def key_impl(keys: Any) -> str | PRNGSpec:
    """The name of the generator of keys, in the form that `key(impl=)` takes.

    Args: keys: an array of keys.

    >>> ferrax.random.key_impl(ferrax.random.key(0))
    'threefry2x32'
    """
    typed, _ = check_key("key_impl", keys, allow_batched=True)
    impl = typed.dtype._impl
    return impl.name if impl.name in prngs else PRNGSpec(impl)


def key_data(keys: Any) -> Array:
    """The words of keys: uint32 array of shape `keys.shape + (2,)`.

    Example:
        >>> ferrax.random.key_data(ferrax.random.key(7))
        Array([0, 7], dtype=uint32)
    """
    typed, _ = check_key("key_data", keys, allow_batched=True)
    return random_unwrap(typed)


def wrap_key_data(key_bits_array: ArrayLike, *, impl: Any = None, dtype: DTypeLike | None = None) -> Array:
    """Keys from their words; the inverse of `key_data`.

    Args:
        key_bits_array: uint32 array of shape (..., 2).
        impl, dtype: the generator; see `key`.
    Returns:
        Key array of shape (...).
    Raises:
        TypeError: if the array cannot be words of keys.

    >>> keys = ferrax.random.wrap_key_data(jnp.array([[0, 1], [2, 3]], jnp.uint32))
    >>> keys.shape, ferrax.random.key_data(keys[1])
    ((2,), Array([2, 3], dtype=uint32))
    """
    spec = _impl_or_dtype("ferrax.random.wrap_key_data", impl, dtype)
    return random_wrap(key_bits_array, resolve_prng_impl(spec))


def split(key: Array, num: Any = 2) -> Array:
    """New keys from one key, which should then not be used any more.

    Args:
        key: a single key.
        num: how many, or the shape of an array of them. Key i does not depend on `num`.
    Returns:
        Key array of shape (num,) or `num`.
    Raises:
        ValueError: if `key` is an array of keys.

    Example:
        >>> key, subkey = ferrax.random.split(ferrax.random.key(0))
    """
    typed, legacy = check_key("split", key)
    return as_given(random_split(typed, canonicalize_shape(num, "ferrax.random.split")), legacy)


def fold_in(key: Array, data: ArrayLike) -> Array:
    """A new key from a key and an integer, e.g. the number of a step or of a device.

    Args:
        key: a single key.
        data: integer scalar, taken as uint32.
    Returns:
        A single key.
    Raises:
        TypeError: if `data` is not a scalar.
        OverflowError: if `data` is a Python int out of the range of uint32.

    Example:
        >>> key = ferrax.random.key(0)
        >>> ferrax.random.fold_in(key, 1) == ferrax.random.fold_in(key, 2)
        Array(False, dtype=bool)
    """
    typed, legacy = check_key("fold_in", key)
    if np.ndim(data):
        raise TypeError(
            f"fold_in accepts a scalar, but was given an array of shape {np.shape(data)} != (). "
            "Use ferrax.vmap for batching."
        )
    return as_given(random_fold_in(typed, jnp.asarray(data, dtype=np.uint32)), legacy)


def clone(key: Array) -> Array:
    """The same key as a new array, which `jax_debug_key_reuse` lets be used once more.

    Args: key: an array of keys, of any shape.

    >>> ferrax.random.key_data(ferrax.random.clone(ferrax.random.key(7)))
    Array([0, 7], dtype=uint32)
    """
    typed, legacy = check_key("clone", key, allow_batched=True)
    copy = random_wrap(random_unwrap(typed), typed.dtype._impl)
    return as_given(copy, legacy)
