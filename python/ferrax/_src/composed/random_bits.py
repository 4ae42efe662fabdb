"""Bits of counter-based generators from a state of 128 bits, as `lax` names them.

In: a state of four 32-bit words, the key and a counter, least significant words first. Out: the state after so
many blocks, and bits. Block i is the cipher of the counter plus i:

- Philox-4x32, 10 rounds: four words a block; the counter is 128 bits wide, with the key above it.
- Threefry-2x32, 20 rounds: two words a block, beside each other along the first axis of even size, else along the
  longest one, of which the last word is cut off; of 64 bits one element a block. The counter has 64 bits.

Both are of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (2011). Narrow dtypes take
the low bits of a word each, 64 bits two words, low first.

A batch of states has the bits that the first state gives in the shape of the whole batch, and only that state moves
on: as in JAX, where the batch is one draw.
"""

from __future__ import annotations

import enum
import functools
import math
from typing import Any

import numpy as np

from ferrax._core import bind
from ferrax._src import core
from ferrax._src.base import dtypes
from ferrax._src.core import Array
from ferrax._src.core.primitives import axis_primitive_batchers
from ferrax._src.core.typing import ArrayLike, DTypeLike, Shape
from ferrax._src.lax import api as lax
from ferrax._src.lax.out_sharding import with_out_sharding
from ferrax._src.transforms.batching_rules import moveaxis
from ferrax._src.transforms.composites import composite
from ferrax._src.transforms.jit import jit

__all__ = ["RandomAlgorithm", "rng_bit_generator", "rng_bit_generator_p"]


class RandomAlgorithm(enum.IntEnum):
    """A generator of bits: `RNG_DEFAULT` is `RNG_PHILOX` on CPUs.

    >>> print(lax.RandomAlgorithm.RNG_PHILOX)
    RNG_PHILOX
    """

    RNG_DEFAULT = 0
    RNG_THREE_FRY = 1
    RNG_PHILOX = 2

    def __str__(self) -> str:
        return self.name


_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)


def _word(value, like):
    return lax.full_like(like, np.uint32(value & 0xFFFFFFFF))


def _philox(counter, key):
    """Ten rounds of Philox-4x32 over arrays of words."""
    (x0, x1, x2, x3), (k0, k1) = counter, key
    for _ in range(10):
        m0, m1 = _word(_MULTIPLIERS[0], x0), _word(_MULTIPLIERS[1], x0)
        high0, low0, high1, low1 = lax.mulhi(x0, m0), x0 * m0, lax.mulhi(x2, m1), x2 * m1
        x0, x1, x2, x3 = high1 ^ x1 ^ k0, low1, high0 ^ x3 ^ k1, low0
        k0, k1 = k0 + _word(_KEY_STEPS[0], k0), k1 + _word(_KEY_STEPS[1], k1)
    return x0, x1, x2, x3


def _advance(low, high, steps, more=None):
    """A counter of two words plus words (`more` the high ones, zeros by default), and whether it passed its end."""
    sum_low = low + steps
    carry = (sum_low < low).astype(np.uint32)
    sum_high = high + carry
    over = (carry == 1) & (sum_high == 0)
    if more is not None:
        sum_high = sum_high + more
        over = over | (sum_high < more)
    return sum_low, sum_high, over.astype(np.uint32)


def _numbers(blocks):
    """The low words of 0, 1, …, and the high ones where there are any that are not zero."""
    if blocks <= 2**32:
        return lax.iota(np.uint32, blocks), None
    rows = (-(-blocks // 2**32), 2**32)
    return tuple(
        lax.slice_in_dim(lax.broadcasted_iota(np.uint32, rows, axis).reshape(-1), 0, blocks) for axis in (1, 0)
    )


def _halved(shape):
    """The axis along which Threefry lays its two words beside each other, and the shape of the blocks."""
    if not shape:
        return 0, (1,)
    axis = next((n for n, size in enumerate(shape) if size % 2 == 0), shape.index(max(shape)))
    return axis, (*shape[:axis], -(-shape[axis] // 2), *shape[axis + 1 :])


@functools.partial(jit, static_argnames=("shape", "dtype", "algorithm"), inline=True)
def _generate(key, shape, dtype, algorithm):
    wide_key = key.dtype == np.uint64
    state = lax.bitcast_convert_type(key, np.uint32).reshape(4) if wide_key else key
    dtype = np.dtype(dtype)
    double = dtype.itemsize == 8
    threefry = algorithm == RandomAlgorithm.RNG_THREE_FRY
    size = math.prod(shape)
    axis, halves = _halved(shape)
    if threefry:
        blocks = size if double else math.prod(halves)
    else:
        blocks = -(-size // (2 if double else 4))
    k0, k1, low, high = (lax.broadcast(state[i], (blocks,)) for i in range(4))
    low, high, over = _advance(low, high, *_numbers(blocks))
    if threefry:
        found = bind("threefry2x32", (k0, k1, low, high), {})
    else:
        top = k0 + over
        found = _philox((low, high, top, k1 + ((top == 0) & (over == 1)).astype(np.uint32)), (k0, k1))
    if threefry and not double:
        sides = [lax.expand_dims(x.reshape(halves), (axis + 1,)) for x in found]
        pairs = lax.concatenate(sides, axis + 1)
        padded = pairs.reshape(*halves[:axis], 2 * halves[axis], *halves[axis + 1 :])
        bits = lax.slice_in_dim(padded, 0, shape[axis] if shape else 1, axis=axis)
        bits = lax.convert_element_type(bits, dtype)
    else:
        stream = lax.concatenate([lax.expand_dims(x, (1,)) for x in found], 1).reshape(-1)
        if double:
            bits = lax.bitcast_convert_type(stream[: 2 * size].reshape(size, 2), np.uint64)
        else:
            bits = lax.convert_element_type(stream[:size], dtype)
    end_low, end_high, _ = _advance(state[2], state[3], np.uint32(blocks % 2**32), np.uint32(blocks // 2**32))
    after = lax.concatenate([state[:2], lax.stack([end_low, end_high])], 0)
    if wide_key:
        after = lax.bitcast_convert_type(after.reshape(2, 2), np.uint64)
    return after, lax.reshape(bits, shape)


def _run(key, *, shape, dtype, algorithm, out_sharding=None):
    return _generate(key, shape, dtype, algorithm)


def _batch(size, axis_name, trace_type, args, dims, *, shape, dtype, algorithm, out_sharding=None):
    keys = moveaxis(args[0], dims[0], 0)
    shape = (size, *shape)
    after, bits = rng_bit_generator_p.bind(
        keys[0], shape=shape, dtype=dtype, algorithm=algorithm, out_sharding=None
    )
    return (lax.dynamic_update_index_in_dim(keys, after, 0, 0), bits), (0, 0)


rng_bit_generator_p = composite("rng_bit_generator", _run, multiple_results=True)
axis_primitive_batchers[rng_bit_generator_p] = _batch


def rng_bit_generator(
    key: ArrayLike, shape: Shape, dtype: DTypeLike = np.uint32,
    algorithm: RandomAlgorithm = RandomAlgorithm.RNG_DEFAULT, *, out_sharding: Any = None,
) -> tuple[Array, Array]:
    """Bits of a counter-based generator, and its state after them.

    Args:
        key: the state: uint32 array of shape (4,), or uint64 array of shape (2,).
        shape: shape of the bits.
        dtype: uint8, uint16, uint32 or uint64.
        algorithm: Philox-4x32 or Threefry-2x32.
        out_sharding: where the bits are put.
    Returns:
        The next state, like `key`, and the bits.
    Raises:
        TypeError: for another dtype, and for a key of another shape or dtype.

    Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (2011).

    Example:
        >>> key, bits = lax.rng_bit_generator(jnp.array([1, 2, 3, 4], jnp.uint32), (2,))
        >>> key, bits
        (Array([1, 2, 4, 4], dtype=uint32), Array([ 512747620, 1298009047], dtype=uint32))
    """
    state = core.as_array(key, "rng_bit_generator")
    if out_sharding is not None:
        after, bits = rng_bit_generator(key, shape, dtype, algorithm)
        return after, with_out_sharding("rng_bit_generator", out_sharding, lambda: bits)
    if (state.shape, state.dtype.name) not in (((4,), "uint32"), ((2,), "uint64")):
        raise TypeError(
            "rng_bit_generator takes a key of four uint32 or two uint64, got "
            f"{state.dtype}{list(state.shape)}"
        )
    found = dtypes.check_and_canonicalize_user_dtype(dtype, "rng_bit_generator")
    if found.name not in ("uint8", "uint16", "uint32", "uint64"):
        raise TypeError(f"rng_bit_generator makes unsigned integers of 8 to 64 bits, got dtype {found}")
    extents = (shape,) if isinstance(shape, int) else tuple(shape)
    after, bits = rng_bit_generator_p.bind(
        state, shape=extents, dtype=found, algorithm=algorithm, out_sharding=None
    )
    return after, bits
