"""The primitives on keys, by the names of JAX's programs.

In: keys, or what makes them. Out: keys, their words, bits. Keys of Threefry-2x32 are known to the native core,
which has an operation for each; of other generators an equation of the same name stands for the functions of the
generator, each applied to the words of one key.

Invariants:
- Bits of Threefry are a counter hash (20 rounds: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
  2011). With `jax_threefry_partitionable`, each element's bits depend on its own position alone: word i of a
  sample is the xor of both outputs of the hash of the counter i. The native core's `random_bits` and
  `random_split` are these; the older stream is composed here of `threefry2x32`.
- A generator is registered with the native core before it has keys (`key_type`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ferrax import _core
from ferrax._src import core
from ferrax._src.base import config, dtypes
from ferrax._src.core import Array
from ferrax._src.core.primitives import axis_primitive_batchers
from ferrax._src.core.runtime import register_generator
from ferrax._src.numpy import api as jnp
from ferrax._src.transforms.batching import vmap
from ferrax._src.transforms.batching_rules import moveaxis
from ferrax._src.transforms.composites import composite
from ferrax._src.transforms.jit import jit

threefry_prng_impl = dtypes.threefry2x32_impl
_key_dtypes = {threefry_prng_impl: dtypes.key_fry}


def key_type(impl: dtypes.PRNGImpl, defines: bool = True) -> dtypes.KeyTy:
    """The dtype of keys of a generator, one object for each."""
    found = _key_dtypes.get(impl)
    if found is None:
        found = dtypes.KeyTy(impl)
        register_generator(found, defines)
        _key_dtypes[impl] = found
    return found


def _is_threefry(keys):
    return keys.dtype is dtypes.key_fry


def check_key_data(impl, key_data):
    """TypeError for what cannot be the words of keys of this generator."""
    blame = "JAX encountered invalid PRNG key data: expected "
    if not all(hasattr(key_data, name) for name in ("ndim", "shape", "dtype")):
        raise TypeError(
            f"{blame}an array of uint32, got {key_data!r}. A seed becomes a key by ferrax.random.key(seed)."
        )
    words = len(impl.key_shape)
    if key_data.ndim < words or tuple(key_data.shape[-words:]) != impl.key_shape:
        raise TypeError(
            f"{blame}a shape that ends with {impl.key_shape} for {impl.name}, got shape "
            f"{tuple(key_data.shape)}."
        )
    if key_data.dtype != np.uint32:
        raise TypeError(f"{blame}dtype uint32, got {key_data.dtype}.")


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
        if not config.enable_x64.value:
            seeds = seeds.astype(np.int32)
    seeds = jnp.asarray(seeds)
    if not dtypes.issubdtype(seeds.dtype, np.integer) and seeds.dtype != np.dtype(bool):
        raise TypeError(f"a key is made of an integer, got a seed of dtype {seeds.dtype}.")
    if config.random_seed_offset.value:
        seeds = seeds + config.random_seed_offset.value
    if impl == threefry_prng_impl:
        return _core.bind("random_seed", (seeds,), {"impl": impl.name})
    key_type(impl)
    return _seed_p.bind(seeds, impl=impl)


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
    if not _is_threefry(key):
        return _split_p.bind(key, shape=tuple(shape))
    if not config.threefry_partitionable.value:
        return random_wrap(_older_words(key, 2 * math.prod(shape)).reshape((*shape, 2)), _impl(key))
    return _core.bind("random_split", (key,), {"shape": shape})


def random_fold_in(keys, data):
    """Keys that depend on `keys` and on the uint32 array `data`, elementwise."""
    if not _is_threefry(keys):
        return _fold_in_p.bind(keys, data)
    return _core.bind("random_fold_in", (keys, data), {})


def random_bits(key, bit_width, shape):
    """Uniform unsigned integers of 8, 16, 32 or 64 bits, of this shape, from a single key."""
    if not _is_threefry(key):
        return _bits_p.bind(key, bit_width=bit_width, shape=tuple(shape))
    if not config.threefry_partitionable.value:
        return _older_bits(key, bit_width, shape)
    return _core.bind("random_bits", (key,), {"bit_width": bit_width, "shape": shape})


def random_wrap(key_data, impl):
    """Keys from their uint32 words along the last axes."""
    check_key_data(impl, key_data)
    key_data = key_data if isinstance(key_data, core.Array) else jnp.asarray(key_data)
    return _core.bind("random_wrap", (key_data,), {"impl": key_type(impl)._native[1]})


def random_unwrap(keys):
    """The uint32 words of keys, along new last axes."""
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
# Equations that stand for the functions of other generators than Threefry-2x32.


def _for_each(function: Callable, rank: int) -> Callable:
    for _ in range(rank):
        function = vmap(function)
    return function


def _seed(seeds, *, impl):
    return random_wrap(_for_each(impl.seed, seeds.ndim)(seeds), impl)


def _split(keys, *, shape):
    impl = _impl(keys)
    words = _for_each(lambda key: impl.split(key, shape), keys.ndim)(random_unwrap(keys))
    return random_wrap(words, impl)


def _fold_in(keys, data):
    impl, words = _impl(keys), random_unwrap(keys)
    if keys.ndim == 0:
        found = _for_each(lambda number: impl.fold_in(words, number), data.ndim)(data)
    elif data.ndim == 0:
        found = _for_each(lambda key: impl.fold_in(key, data), keys.ndim)(words)
    else:
        found = _for_each(impl.fold_in, keys.ndim)(words, data)
    return random_wrap(found, impl)


def _bits(keys, *, bit_width, shape):
    impl = _impl(keys)
    return _for_each(lambda key: impl.random_bits(key, bit_width, shape), keys.ndim)(random_unwrap(keys))


@functools.partial(jit, static_argnames=("primitive", "params"))
def _compiled(*args, primitive, params):
    return primitive.bind(*args, **dict(params))


def _primitive(name, run):
    """Runs compiled; a batch of keys stays one equation, which applies the functions to each."""
    primitive = composite(name, run)

    def impl(*args, **params):
        if config.disable_jit.value:
            return run(*map(core.as_array, args), **params)
        return _compiled(*args, primitive=primitive, params=tuple(params.items()))

    def batch(size, axis_name, trace_type, args, dims, **params):
        if len(args) == 1:
            return primitive.bind(args[0], **params), dims[0]
        moved = [x if dim is None else moveaxis(x, dim, 0) for x, dim in zip(args, dims)]
        ranks = [x.ndim - (dim is not None) for x, dim in zip(moved, dims)]
        most = max(ranks)
        for n, (x, dim) in enumerate(zip(moved, dims)):
            # An operand without axes goes with any other; else both have all.
            if dim is not None and ranks[n] < most:
                inner = moved[1 - n].shape[-most:]
                moved[n] = jnp.broadcast_to(x.reshape((size,) + (1,) * most), (size, *inner))
            elif dim is None and ranks[n]:
                moved[n] = jnp.broadcast_to(x, (size, *x.shape))
        return primitive.bind(*moved, **params), 0

    primitive.def_impl(impl)
    axis_primitive_batchers[primitive] = batch
    return primitive


_seed_p = _primitive("random_seed", _seed)
_split_p = _primitive("random_split", _split)
_fold_in_p = _primitive("random_fold_in", _fold_in)
_bits_p = _primitive("random_bits", _bits)
