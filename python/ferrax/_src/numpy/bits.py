"""Bits of bytes as elements, and back."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from ferrax._src.core import Array, as_array
from ferrax._src.core.typing import ArrayLike
from ferrax._src.lax import api as lax
from ferrax._src.numpy.shape import moveaxis
from ferrax._src.numpy.util import ensure_array, is_subdtype, normalize_axis, strong_constant
from ferrax._src.transforms.jit import jit

# Factors that bring bytes of 0 or 1, the first, second, third and fourth of a word, to the bits 31 to 28 or 28 to 31.
_TO_BIG = 1 << 31 | 1 << 22 | 1 << 13 | 1 << 4
_TO_LITTLE = 1 << 28 | 1 << 21 | 1 << 14 | 1 << 7


def _is_big(bitorder) -> bool:
    """Whether the first bit is the highest of a byte."""
    if bitorder not in ("big", "little"):
        raise ValueError(f"packbits, unpackbits: bitorder is 'big' or 'little', got {bitorder!r}")
    return bitorder == "big"


def _shifts(bitorder):
    """How far left the first, second, … bit of a byte is."""
    shifts = np.arange(8, dtype=np.uint8)
    return as_array(shifts[::-1].copy() if _is_big(bitorder) else shifts)


def _axis_last(x, axis) -> tuple[Array, int]:
    """(the array with `axis` last, flattened if it is None; where that axis was)"""
    if axis is None:
        return lax.reshape(x, (x.size,)), 0
    axis = normalize_axis(axis, x.ndim)
    return moveaxis(x, axis, -1), axis


@jit(static_argnames=("axis", "bitorder"))
def packbits(a: ArrayLike, axis: int | None = None, bitorder: str = "big") -> Array:
    """Each eight elements along an axis as the bits of a byte; zeros fill the last one.

    Args: a: integers or bools, of which all but 0 are set bits. axis: None flattens. bitorder:
    "big" if the first element is the highest bit, or "little".
    Returns: uint8, ceil(n / 8) for n along the axis.
    Raises: TypeError for other dtypes; ValueError for another order and an axis out of bounds.

    >>> jnp.packbits(jnp.array([1, 0, 1]))
    Array([160], dtype=uint8)
    """
    a = ensure_array(a, "packbits")
    if not (is_subdtype(a, np.integer) or is_subdtype(a, np.bool_)):
        raise TypeError(f"packbits: expected integers or booleans, got {a.dtype}")
    is_big = _is_big(bitorder)
    bits = a if is_subdtype(a, np.bool_) else lax.ne(a, strong_constant(0, a))
    bits, axis = _axis_last(lax.convert_element_type(bits, np.uint8), axis)
    size = bits.shape[-1]
    count = -(-size // 8)
    padding = [(0, 0, 0)] * (bits.ndim - 1) + [(0, 8 * count - size, 0)]
    bits = lax.pad(bits, as_array(np.uint8(0)), padding)
    # Four elements are bytes of a word, and a product moves each to its place among the highest four bits. No two terms
    # of it are at one bit (multiples of 8 and of 7 or 9 would have to be the same), so that nothing is carried there.
    words = lax.bitcast_convert_type(lax.reshape(bits, (*bits.shape[:-1], count, 2, 4)), np.uint32)
    halves = lax.shift_right_logical(
        lax.mul(words, lax.full_like(words, _TO_BIG if is_big else _TO_LITTLE)), lax.full_like(words, 28))
    first, second = (lax.index_in_dim(halves, half, -1, keepdims=False) for half in (0, 1))
    high, low = (first, second) if is_big else (second, first)
    packed = lax.convert_element_type(lax.bitwise_or(lax.shift_left(high, lax.full_like(high, 4)), low), np.uint8)
    return moveaxis(packed, -1, axis)


@jit(static_argnames=("axis", "count", "bitorder"))
def unpackbits(a: ArrayLike, axis: int | None = None, count: Any = None, bitorder: str = "big") -> Array:
    """The bits of bytes, eight elements 0 or 1 for each along an axis.

    Args: a: uint8. axis: None flattens. count: how many elements to keep, or to fill up with zeros
    to; a negative number leaves so many out. bitorder: "big" or "little", see `packbits`.
    Returns: uint8.
    Raises: TypeError for other dtypes; ValueError for another order and an axis out of bounds.

    >>> jnp.unpackbits(jnp.array([160], jnp.uint8), count=3)
    Array([1, 0, 1], dtype=uint8)
    """
    a = ensure_array(a, "unpackbits")
    if a.dtype != np.uint8:
        raise TypeError(f"unpackbits: expected bytes, of dtype uint8, got {a.dtype}")
    shifts = _shifts(bitorder)
    a, axis = _axis_last(a, axis)
    shape = (*a.shape, 8)
    wide = lax.broadcast_in_dim(a, shape, tuple(range(a.ndim)))
    shifts = lax.broadcast_in_dim(shifts, shape, (a.ndim,))
    bits = lax.bitwise_and(lax.shift_right_logical(wide, shifts), lax.full(shape, 1, np.uint8))
    size = 8 * a.shape[-1]
    bits = lax.reshape(bits, (*a.shape[:-1], size))
    if count is not None:
        count = operator.index(count)
        kept = count if count >= 0 else max(0, size + count)
        padding = [(0, 0, 0)] * (bits.ndim - 1) + [(0, kept - size, 0)]
        bits = lax.pad(bits, as_array(np.uint8(0)), padding)
    return moveaxis(bits, -1, axis)
