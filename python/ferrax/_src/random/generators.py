"""The generators that have names, as functions of the words of one key, and `define_prng_impl`.

In: uint32 words of one key. Out: words of new keys, or bits. Each is compiled, for the ciphers are many small
operations.

| name | words | cipher of a counter |
|---|---|---|
| threefry2x32 | 2 | Threefry-2x32, 20 rounds |
| threefry4x32 | 4 | Threefry-4x32, 20 rounds |
| philox2x32 | 1 | Philox-2x32, 10 rounds |
| philox4x32 | 2 | Philox-4x32, 10 rounds |
| rbg | 4 | bits by `lax.rng_bit_generator`; keys are pairs of keys of Threefry-2x32 |
| unsafe_rbg | 4 | all by `lax.rng_bit_generator`; each tenth block makes a key |

All are of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (2011), with the rotations
of Threefish for four words. Of bits of up to 32 the words of a block are combined by xor; of 64 there are two.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ferrax import _core
from ferrax._src.base import dtypes
from ferrax._src.base.extended_dtypes import PRNG_IMPLS
from ferrax._src.composed.random_bits import rng_bit_generator
from ferrax._src.lax import api as lax
from ferrax._src.numpy import api as jnp
from ferrax._src.random import key_primitives as keys
from ferrax._src.random.prng import PRNGSpec
from ferrax._src.transforms.batching import vmap
from ferrax._src.transforms.jit import jit

__all__ = ["define_prng_impl", "rbg_prng_impl", "unsafe_rbg_prng_impl"]

_ROTATIONS = ((10, 26), (11, 21), (13, 27), (23, 5), (6, 20), (17, 11), (25, 10), (18, 20))
_PARITY = 0x1BD11BDA
_MULTIPLIERS = {2: (0xD256D193,), 4: (0xD2511F53, 0xCD9E8D57)}
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)


def _word(value: int) -> Any:
    return np.uint32(value & 0xFFFFFFFF)


# ---------------------------------------------------------------------------------------------
# Ciphers: blocks of words, which are arrays of one shape, under the words of a key.


def _threefry4(key, block):
    schedule = [*key, key[0] ^ key[1] ^ key[2] ^ key[3] ^ _word(_PARITY)]
    x = [word + key for word, key in zip(block, schedule)]

    def mix(a, b, rotation):
        x[a] = x[a] + x[b]
        x[b] = (x[b] << _word(rotation)) | (x[b] >> _word(32 - rotation))
        x[b] = x[a] ^ x[b]

    for number in range(20):
        first, second = _ROTATIONS[number % 8]
        odd = number % 2
        mix(0, 3 if odd else 1, first)
        mix(2, 1 if odd else 3, second)
        if number % 4 == 3:
            group = number // 4 + 1
            x = [word + schedule[(group + n) % 5] for n, word in enumerate(x)]
            x[3] = x[3] + _word(group)
    return x


def _philox2(key, block):
    (k,), (x0, x1) = key, block
    (multiplier,) = _MULTIPLIERS[2]
    for _ in range(10):
        m = lax.full_like(x0, _word(multiplier))
        x0, x1 = lax.mulhi(m, x0) ^ x1 ^ k, m * x0
        k = k + _word(_KEY_STEPS[0])
    return x0, x1


def _philox4(key, block):
    (k0, k1), (x0, x1, x2, x3) = key, block
    for _ in range(10):
        m0, m1 = (lax.full_like(x0, _word(multiplier)) for multiplier in _MULTIPLIERS[4])
        x0, x1, x2, x3 = lax.mulhi(m1, x2) ^ x1 ^ k0, m1 * x2, lax.mulhi(m0, x0) ^ x3 ^ k1, m0 * x0
        k0, k1 = k0 + _word(_KEY_STEPS[0]), k1 + _word(_KEY_STEPS[1])
    return x0, x1, x2, x3


def _counters(shape):
    """The high and low words of 0, 1, … in row-major order."""
    count = math.prod(shape)
    if count > 2**32:
        raise NotImplementedError(
            f"a sample of shape {shape} has more than 2**32 elements, which this generator does not count: use "
            "threefry2x32, or several keys"
        )
    low = jnp.reshape(lax.iota(np.uint32, count), shape)
    return lax.full_like(low, 0), low


def _seed_words(seed):
    """The high and low words of an integer."""
    words = keys.random_unwrap(_core.bind("random_seed", (seed,), {"impl": "threefry2x32"}))
    return words[0], words[1]


def _unsigned(words, bit_width):
    dtype = np.dtype(f"uint{bit_width}")
    if bit_width == 64:
        high, low = (lax.convert_element_type(word, dtype) for word in words)
        return (high << dtype.type(32)) | low
    return lax.convert_element_type(functools.reduce(lax.bitwise_xor, words), dtype)


def _counting(name, tag, words, cipher, seed, block, fold, halves) -> dtypes.PRNGImpl:
    """The generator of a cipher: elements and new keys are blocks of their numbers.

    `seed`, `block` and `fold` say where a number stands: they give the key and block of a seed's words, the block
    that an element has, that which a new key has. `halves` makes two words of a block's for 64 bits.
    """

    def stacked(found):
        return jnp.stack(found[:words], axis=-1)

    @jit
    def seeded(number):
        high, low = _seed_words(number)
        return stacked(cipher(*seed(high, low)))

    @functools.partial(jit, static_argnums=1)
    def split(key, shape):
        high, low = _counters(shape)
        return stacked(cipher(tuple(key), fold(high, low)))

    @jit
    def fold_in(key, data):
        low = jnp.asarray(data).astype(np.uint32)
        return stacked(cipher(tuple(key), fold(lax.full_like(low, 0), low)))

    @functools.partial(jit, static_argnums=(1, 2))
    def random_bits(key, bit_width, shape):
        high, low = _counters(shape)
        found = cipher(tuple(key), block(high, low))
        return _unsigned(halves(found) if bit_width == 64 else found, bit_width)

    return dtypes.PRNGImpl((words,), seeded, split, random_bits, fold_in, name, tag)


def _zeros(high, count):
    return (lax.full_like(high, 0),) * count


threefry4x32_prng_impl = _counting(
    "threefry4x32", "fry4", 4, _threefry4,
    seed=lambda high, low: ((high, low, *_zeros(high, 2)), _zeros(high, 4)),
    block=lambda high, low: (high, low, *_zeros(high, 2)),
    fold=lambda high, low: (*_zeros(high, 2), high, low),
    halves=lambda x: (x[0] ^ x[2], x[1] ^ x[3]),
)  # fmt: skip
philox2x32_prng_impl = _counting(
    "philox2x32", "phx2", 1, _philox2,
    seed=lambda high, low: (_zeros(high, 1), (high, low)),
    block=lambda high, low: (high, low),
    fold=lambda high, low: (high, low),
    halves=lambda x: x,
)  # fmt: skip
philox4x32_prng_impl = _counting(
    "philox4x32", "phx4", 2, _philox4,
    seed=lambda high, low: (_zeros(high, 2), (high, low, *_zeros(high, 2))),
    block=lambda high, low: (high, low, *_zeros(high, 2)),
    fold=lambda high, low: (*_zeros(high, 2), high, low),
    halves=lambda x: x[:2],
)  # fmt: skip


# ---------------------------------------------------------------------------------------------
# Threefry-2x32, which the native core has, and what is made of it and of `rng_bit_generator`.


def _of_threefry(function, words, *args):
    """A function of keys on the words of Threefry keys."""
    return keys.random_unwrap(function(keys.random_wrap(words, keys.threefry_prng_impl), *args))


def _threefry_seed(number):
    return jnp.stack(_seed_words(number))


def _threefry_split(key, shape):
    return _of_threefry(keys.random_split, key, tuple(shape))


def _threefry_fold_in(key, data):
    return _of_threefry(keys.random_fold_in, key, jnp.asarray(data).astype(np.uint32))


def _threefry_bits(key, bit_width, shape):
    return keys.random_bits(keys.random_wrap(key, keys.threefry_prng_impl), bit_width, tuple(shape))


def _rbg_seed(number):
    half = _threefry_seed(number)
    return jnp.concatenate([half, half])


@functools.partial(jit, static_argnums=1)
def _rbg_split(key, shape):
    halves = vmap(lambda half: _threefry_split(half, shape), out_axes=len(shape))(key.reshape(2, 2))
    return halves.reshape(*shape, 4)


def _rbg_fold_in(key, data):
    return vmap(_threefry_fold_in, (0, None))(key.reshape(2, 2), data).reshape(4)


def _rbg_bits(key, bit_width, shape):
    return rng_bit_generator(key, shape, np.dtype(f"uint{bit_width}"))[1]


def _unsafe_rbg_split(key, shape):
    _, blocks = rng_bit_generator(key, (10 * math.prod(shape), 4))
    return blocks[::10].reshape(*shape, 4)


def _unsafe_rbg_fold_in(key, data):
    _, blocks = rng_bit_generator(_rbg_seed(data), (10, 4))
    return key ^ blocks[-1]


rbg_prng_impl = dtypes.PRNGImpl((4,), _rbg_seed, _rbg_split, _rbg_bits, _rbg_fold_in, "rbg", "rbg")
unsafe_rbg_prng_impl = dtypes.PRNGImpl(
    (4,), _rbg_seed, _unsafe_rbg_split, _rbg_bits, _unsafe_rbg_fold_in, "unsafe_rbg", "urbg"
)


def _install() -> None:
    known = keys.threefry_prng_impl
    known.seed, known.split = _threefry_seed, _threefry_split
    known.random_bits, known.fold_in = _threefry_bits, _threefry_fold_in
    for impl in (
        threefry4x32_prng_impl, philox2x32_prng_impl, philox4x32_prng_impl, rbg_prng_impl, unsafe_rbg_prng_impl
    ):  # fmt: skip
        PRNG_IMPLS[impl.name] = impl
        keys.key_type(impl, defines=False)


_install()


def define_prng_impl(
    *,
    key_shape: tuple[int, ...],
    seed: Callable[[Any], Any],
    split: Callable[[Any, tuple[int, ...]], Any],
    random_bits: Callable[[Any, int, tuple[int, ...]], Any],
    fold_in: Callable[[Any, Any], Any],
    name: str = "<unnamed>",
    tag: str = "?",
) -> PRNGSpec:
    """A generator of one's own, for `random.key(seed, impl=...)`.

    The functions are traced, and applied to batches of keys by `vmap`.

    Args:
        key_shape: the shape of the uint32 words of one key: one, two or four words.
        seed: gives the words of a key for a 0-d integer array.
        split: gives the words of new keys, of shape `shape + key_shape`, for the words of a key and `shape`.
        random_bits: gives an unsigned array for the words of a key, the width in bits and the shape.
        fold_in: gives the words of a new key for the words of a key and a 0-d integer array.
        name, tag: its name, and that in the dtype of its keys.
    Raises:
        ValueError: for keys of another number of words, when the first key is made.

    Example:
        >>> counting = ferrax.extend.random.define_prng_impl(
        ...     key_shape=(1,),
        ...     seed=lambda seed: seed.astype("uint32").reshape(1),
        ...     split=lambda key, shape: jnp.broadcast_to(key, (*shape, 1)),
        ...     random_bits=lambda key, width, shape: jnp.full(shape, key[0], f"uint{width}"),
        ...     fold_in=lambda key, data: key + data.astype("uint32"),
        ...     tag="count",
        ... )
        >>> ferrax.random.bits(ferrax.random.key(7, impl=counting), (2,))
        Array([7, 7], dtype=uint32)
    """
    return PRNGSpec(dtypes.PRNGImpl(key_shape, seed, split, random_bits, fold_in, name, tag))
