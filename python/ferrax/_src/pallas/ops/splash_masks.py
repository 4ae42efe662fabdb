"""Masks of attention that are cut into blocks: `splash_attention_mask`. Plain NumPy.

A mask has a shape `(queries, keys)`, and is indexed by two slices of step 1, which give booleans: True
where a query sees a key. Masks that a rule makes hold no array; cost of an index: of its block.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np


class Mask:
    """What a query sees, as a function of slices of queries and of keys. Masks combine by `&` and `|`.

    >>> from ferrax.experimental.pallas.ops.tpu import splash_attention as sa
    >>> (sa.CausalMask((4, 4)) & sa.FullMask((4, 4)))[0:1, :]
    array([[ True, False, False, False]])
    """

    @property
    def shape(self) -> tuple[int, ...]:
        """`(queries, keys)`; of several heads `(heads, queries, keys)`."""
        raise NotImplementedError(f"{type(self).__name__} has no shape: a subclass of Mask defines it")

    def __getitem__(self, idx: Any) -> np.ndarray:
        raise NotImplementedError(f"{type(self).__name__} has no __getitem__: a subclass of Mask defines it")

    def __bool__(self) -> bool:
        raise NotImplementedError("a mask is no truth value: combine masks with & and |, not with `and` and `or`")

    def __or__(self, other: Mask) -> Mask:
        return LogicalOr(self, other)

    def __and__(self, other: Mask) -> Mask:
        return LogicalAnd(self, other)


@dataclasses.dataclass(unsafe_hash=True)
class _Both(Mask):
    left: Mask
    right: Mask

    def __post_init__(self) -> None:
        if self.left.shape != self.right.shape:
            raise ValueError(f"masks that are combined have one shape, got {self.left.shape} and {self.right.shape}")

    @property
    def shape(self) -> tuple[int, ...]:
        return self.left.shape


class LogicalOr(_Both):
    """What one of two masks of one shape shows.

    Args: left, right: the masks.

    >>> from ferrax.experimental.pallas.ops.tpu import splash_attention as sa
    >>> both = splash_attention_mask.LogicalOr(sa.CausalMask((2, 2)), sa.NumpyMask(np.eye(2, dtype=bool)))
    >>> int(both[:, :].sum())
    3
    """

    def __getitem__(self, idx: Any) -> np.ndarray:
        return self.left[idx] | self.right[idx]


class LogicalAnd(_Both):
    """What both of two masks of one shape show.

    Args: left, right: the masks.

    >>> from ferrax.experimental.pallas.ops.tpu import splash_attention as sa
    >>> both = splash_attention_mask.LogicalAnd(sa.CausalMask((2, 2)), sa.NumpyMask(np.eye(2, dtype=bool)))
    >>> int(both[:, :].sum())
    2
    """

    def __getitem__(self, idx: Any) -> np.ndarray:
        return self.left[idx] & self.right[idx]


@dataclasses.dataclass(unsafe_hash=True)
class MultiHeadMask(Mask):
    """A mask for each head.

    Args: masks: masks of one shape, none of them a `MultiHeadMask`.

    It is indexed by a head, or a slice of heads, and two slices.

    >>> from ferrax.experimental.pallas.ops.tpu import splash_attention as sa
    >>> sa.MultiHeadMask([sa.CausalMask((4, 4)), sa.FullMask((4, 4))]).shape
    (2, 4, 4)
    """

    masks: Sequence[Mask] = dataclasses.field(hash=False)
    _frozen: tuple[Mask, ...] = dataclasses.field(init=False, repr=False, compare=False, hash=True)

    def __post_init__(self) -> None:
        if not self.masks:
            raise ValueError("MultiHeadMask: there is a mask for each head, got none")
        for mask in self.masks:
            if not isinstance(mask, Mask) or isinstance(mask, MultiHeadMask):
                raise ValueError(f"MultiHeadMask: a head's mask is a Mask of one head, got {mask!r}")
            if mask.shape != self.masks[0].shape:
                raise ValueError(f"MultiHeadMask: masks have one shape, got {self.masks[0].shape} and {mask.shape}")
        self._frozen = tuple(self.masks)

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.masks), *self.masks[0].shape)

    def __getitem__(self, idx: Any) -> np.ndarray:
        if len(idx) != 3:
            raise NotImplementedError(f"MultiHeadMask: an index is a head or heads and two slices, got {idx}")
        head, *rest = idx
        if isinstance(head, slice):
            return np.stack([mask[tuple(rest)] for mask in self.masks[head]])
        return self.masks[head][tuple(rest)]


class _Rule(Mask):
    """A mask of a rule: `mask_function(rows, columns)` of numbers of queries `(n, 1)` and keys `(1, m)`.

    `q_sequence` are the queries' numbers; `facts`, with these, says which masks are equal.
    """

    def __init__(
        self, shape: tuple[int, int], mask_function: Callable[..., Any], shard_count: int, facts: tuple
    ) -> None:
        if shape[0] % shard_count**2:
            raise ValueError(f"{type(self).__name__}: {shard_count} shards, squared, do not divide {shape[0]} queries")
        self._shape = shape
        self.mask_function = mask_function
        self.q_sequence = np.arange(shape[0], dtype=np.int32)
        self._facts = (tuple(shape), *facts)

    @property
    def shape(self) -> tuple[int, ...]:
        return self._shape

    def __getitem__(self, idx: Any) -> np.ndarray:
        rows, columns = _bounds(idx, self.shape)
        numbers = np.arange(columns.start, columns.stop)
        return self.mask_function(self.q_sequence[rows][:, None], numbers[None])

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self) or not isinstance(other, _Rule):
            return False
        return self._facts == other._facts and np.array_equal(self.q_sequence, other.q_sequence)

    def __hash__(self) -> int:
        return hash((type(self), self._facts, self.q_sequence.tobytes()))


def _bounds(idx, shape):
    if len(idx) != 2 or not all(isinstance(part, slice) and part.step in (None, 1) for part in idx):
        raise NotImplementedError(f"a mask is indexed by two slices of step 1, got {idx}")
    found = []
    for part, size in zip(idx, shape):
        start = 0 if part.start is None else part.start
        stop = size if part.stop is None else part.stop
        if not 0 <= start <= stop <= size:
            raise ValueError(f"a slice of a mask lies in it, got {part} of {size}")
        found.append(slice(start, stop))
    return found


class CausalMask(_Rule):
    """Query t sees keys up to `t + offset`.

    Args:
      shape: `(queries, keys)`.
      offset: negative, the first queries see nothing.
      shard_count: of which the square divides the queries.

    >>> from ferrax.experimental.pallas.ops.tpu import splash_attention as sa
    >>> sa.CausalMask((4, 4))[0:2, 0:3]
    array([[ True, False, False],
           [ True,  True, False]])
    """

    def __init__(self, shape: tuple[int, int], offset: int = 0, shard_count: int = 1) -> None:
        self.offset = offset
        super().__init__(shape, lambda rows, columns: _shifted(rows, offset) >= columns, shard_count, (offset,))


def _shifted(rows, offset):
    return rows + offset if offset else rows


class ChunkedCausalMask(_Rule):
    """Query t sees keys up to t of its own chunk.

    Args:
      shape: `(queries, keys)`.
      chunk_size: how long a chunk is. Errors: ValueError unless it is positive.
      shard_count: of which the square divides the queries.

    >>> splash_attention_mask.ChunkedCausalMask((4, 4), 2)[2:4, :]
    array([[False, False,  True, False],
           [False, False,  True,  True]])
    """

    def __init__(self, shape: tuple[int, int], chunk_size: int, shard_count: int = 1) -> None:
        _check_chunk(chunk_size)
        self.chunk_size = chunk_size

        def sees(rows, columns):
            return (rows // chunk_size == columns // chunk_size) & (rows >= columns)

        super().__init__(shape, sees, shard_count, (chunk_size,))


def _check_chunk(chunk_size):
    if chunk_size <= 0:
        raise ValueError(f"chunk_size must be positive, got {chunk_size}")


class LocalMask(_Rule):
    """Query t sees keys from `t + offset - left` to `t + offset + right`.

    Args:
      shape: `(queries, keys)`.
      window_size: `(left, right)`, of which None is no bound.
      offset: how far queries begin behind the keys.
      shard_count: of which the square divides the queries.

    >>> from ferrax.experimental.pallas.ops.tpu import splash_attention as sa
    >>> sa.LocalMask((4, 4), (1, 0), 0)[2:3, :]
    array([[False,  True,  True, False]])
    """

    def __init__(
        self, shape: tuple[int, int], window_size: tuple[int | None, int | None], offset: int, shard_count: int = 1
    ) -> None:
        self.window_size = window_size
        self.offset = offset
        left, right = window_size

        def sees(rows, columns):
            rows = _shifted(rows, offset)
            if left is None and right is None:
                return np.ones(np.broadcast_shapes(rows.shape, columns.shape), np.bool_)
            found = True if left is None else rows - left <= columns
            return found if right is None else (rows + right >= columns) & found

        super().__init__(shape, sees, shard_count, (tuple(window_size), offset))


@dataclasses.dataclass
class NumpyMask(Mask):
    """A mask that is an array. Args: array: booleans `(queries, keys)`.

    >>> from ferrax.experimental.pallas.ops.tpu import splash_attention as sa
    >>> sa.NumpyMask(np.eye(2, dtype=bool)).shape
    (2, 2)
    """

    array: np.ndarray

    def __post_init__(self) -> None:
        if self.array.ndim != 2 or self.array.dtype != np.bool_:
            raise ValueError(f"NumpyMask: booleans of 2 axes, got {self.array.dtype}{list(self.array.shape)}")

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    def __getitem__(self, idx: Any) -> np.ndarray:
        return self.array[idx]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NumpyMask) and np.array_equal(self.array, other.array)

    def __hash__(self) -> int:
        return hash((type(self), self.array.shape, self.array.tobytes()))


@dataclasses.dataclass(frozen=True)
class FullMask(Mask):
    """Every query sees every key. Args: _shape: `(queries, keys)`, a tuple.

    >>> from ferrax.experimental.pallas.ops.tpu import splash_attention as sa
    >>> sa.FullMask((2, 2))[:, 0:1]
    array([[ True],
           [ True]])
    """

    _shape: tuple[int, int]

    def __post_init__(self) -> None:
        if not isinstance(self._shape, tuple):
            raise ValueError(f"FullMask: the shape is a tuple, got {self._shape!r}")

    @property
    def shape(self) -> tuple[int, ...]:
        return self._shape

    def __getitem__(self, idx: Any) -> np.ndarray:
        rows, columns = _bounds(idx, self.shape)
        return np.ones((rows.stop - rows.start, columns.stop - columns.start), np.bool_)


# Whole arrays.


def make_causal_mask(shape: tuple[int, int], offset: int = 0) -> np.ndarray:
    """The booleans of `CausalMask`. Args: shape: `(queries, keys)`; offset: how far query 0 sees.

    >>> from ferrax.experimental.pallas.ops.tpu import splash_attention as sa
    >>> sa.make_causal_mask((2, 2))
    array([[ True, False],
           [ True,  True]])
    """
    return CausalMask(shape, offset)[:, :]


def make_local_attention_mask(
    shape: tuple[int, int], window_size: tuple[int | None, int | None], *, offset: int = 0
) -> np.ndarray:
    """The booleans of `LocalMask`. Args: shape: `(queries, keys)`; window_size, offset: as there.

    >>> from ferrax.experimental.pallas.ops.tpu import splash_attention as sa
    >>> sa.make_local_attention_mask((2, 3), (0, 1))
    array([[ True,  True, False],
           [False,  True,  True]])
    """
    return LocalMask(shape, window_size, offset)[:, :]


def make_chunk_attention_mask(shape: tuple[int, int], chunk_size: int) -> np.ndarray:
    """The booleans of `ChunkedCausalMask`. Args: shape: `(queries, keys)`; chunk_size: as there.

    >>> splash_attention_mask.make_chunk_attention_mask((2, 2), 1)
    array([[ True, False],
           [False,  True]])
    """
    return ChunkedCausalMask(shape, chunk_size)[:, :]


def make_random_mask(shape: tuple[int, int], sparsity: float, seed: int) -> np.ndarray:
    """Booleans of which a share is False, drawn by NumPy's legacy generator of this seed.

    Args: shape: `(queries, keys)`; sparsity: the share, from 0 to 1; seed: of the generator.

    >>> from ferrax.experimental.pallas.ops.tpu import splash_attention as sa
    >>> sa.make_random_mask((4, 4), 0.5, seed=0).shape
    (4, 4)
    """
    return np.random.RandomState(seed).binomial(1, 1 - sparsity, shape).astype(np.bool_)
