"""Which blocks of a mask attention visits, and in which order: `splash_attention_mask_info`.

In: a mask of several heads and the shape of a block. Out: a `MaskInfo` of integers for each block, for
kernels that fetch the next block while they work on one. A block is empty (0), partial (1) or full (2).

Cost: every block of every mask that differs from the others is looked at once.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from ferrax._src.numpy import api as jnp
from ferrax._src.pallas.ops.splash_masks import MultiHeadMask


class MaskInfo(NamedTuple):
    """The blocks of a mask.

    The first axis of the first three is that of heads, or of shards of heads if each has one mask.

    Attributes:
      data_next: integers `(heads, blocks of queries, blocks of keys)`: the block of keys, or of queries for
        derivatives by keys, that is needed here, or next if this is empty.
      mask_next: the same of the block of `partial_mask_blocks`; None if there is none.
      block_mask: 0, 1 or 2 for each block, see the module.
      partial_mask_blocks: booleans `(number, queries, keys)`: the partial blocks, each once.
      q_sequence: the queries' numbers where a rule makes the mask; `mask_next` and `partial_mask_blocks` are
        None then.
      is_dynamic_mask: True for an array that is known when attention runs: there is a partial block for
        every block then.

    >>> from ferrax.experimental.pallas.ops.tpu import splash_attention as sa
    >>> masks = sa.MultiHeadMask((sa.CausalMask((4, 4)),))
    >>> splash_attention_mask_info.process_mask(masks, (2, 2))[0].data_next.tolist()
    [[[0, 0], [0, 1]]]
    """

    data_next: Any
    mask_next: Any
    block_mask: Any
    partial_mask_blocks: Any
    q_sequence: Any
    is_dynamic_mask: bool | None = None


class _Sizes(NamedTuple):
    """Of heads and blocks in all, and in each shard."""

    heads: int
    rows: int
    columns: int
    shard_heads: int
    shard_rows: int


def _sizes(shape, block_shape, head_shards, q_seq_shards):
    if len(shape) != 3:
        raise ValueError(f"a mask of heads, queries and keys has 3 axes, got shape {shape}")
    heads, queries, keys = shape
    high, wide = block_shape
    for what, size, divisor in (
        ("queries", queries, high), ("keys", keys, wide), ("queries", queries, q_seq_shards),
        ("queries of a shard", queries // q_seq_shards, high), ("heads", heads, head_shards),
    ):  # fmt: skip
        if size % divisor:
            raise ValueError(f"{divisor} does not divide {size} {what} evenly")
    return _Sizes(heads, queries // high, keys // wide, heads // head_shards, queries // q_seq_shards // high)


def _least(array):
    """Integers that are not negative, in the narrowest of int8, int16 and int32."""
    top = int(array.max(initial=0))
    return array.astype(next(ty for ty in (np.int8, np.int16, np.int32) if top <= np.iinfo(ty).max))


class _Catalogue:
    """The partial blocks of all masks, each once, by number in the order in which they are met."""

    def __init__(self) -> None:
        self.numbers: dict[bytes, int] = {}
        self.blocks: list[np.ndarray] = []

    def add(self, block) -> int:
        number = self.numbers.setdefault(block.tobytes(), len(self.blocks))
        if number == len(self.blocks):
            self.blocks.append(np.array(block, np.bool_))
        return number


def _kinds(mask, sizes, block_shape, catalogue):
    """Of one head's mask: the kinds of its blocks, and the numbers of those that are partial."""
    high, wide = block_shape
    kinds = np.zeros((sizes.rows, sizes.columns), np.int32)
    numbers = np.zeros_like(kinds)
    for row, column in np.ndindex(kinds.shape):
        block = mask[row * high : (row + 1) * high, column * wide : (column + 1) * wide]
        if block.all():
            kinds[row, column] = 2
        elif block.any():
            kinds[row, column] = 1
            numbers[row, column] = catalogue.add(block)
    return kinds, numbers


def _next(wanted, found, order):
    """For each place of an array: `found` at the first place from there on, in the order of these axes, that
    is wanted; behind the last one at the first of all; 0 if none is."""
    wanted, found = wanted.transpose(order), found.transpose(order)
    places = np.flatnonzero(wanted)
    if not len(places):
        return np.zeros(wanted.transpose(np.argsort(order)).shape, np.int32)
    following = np.searchsorted(places, np.arange(wanted.size)) % len(places)
    values = found.reshape(-1)[places[following]].reshape(wanted.shape)
    return values.transpose(np.argsort(order))


def _by_shard(function, sizes, heads, *arrays):
    """`function` of the blocks of each shard of heads and of queries, `heads` to a shard."""
    rows = []
    for head in range(0, arrays[0].shape[0], heads):
        parts = [
            function(*(x[head : head + heads, row : row + sizes.shard_rows] for x in arrays))
            for row in range(0, sizes.rows, sizes.shard_rows)
        ]
        rows.append(np.concatenate(parts, 1))
    return np.concatenate(rows, 0)


def _squeezed(kinds, arrays, axis):
    """Arrays of one shard without empty blocks along an axis: those that are left moved to its beginning, or
    for queries (axis 1) to its end, and filled up with 0."""
    kept = kinds[0] != 0
    other = 1 - (axis - 1)
    width = int(kept.sum(axis - 1).max(initial=0))
    found = [np.zeros((*x.shape[:axis], width, *x.shape[axis + 1 :]), x.dtype) for x in arrays]
    for line in range(kept.shape[other]):
        places = np.flatnonzero(kept[line] if axis == 2 else kept[:, line])
        for source, target in zip(arrays, found):
            if axis == 2:
                target[:, line, : len(places)] = source[:, line, places]
            else:
                target[:, width - len(places) :, line] = source[:, places, line]
    return found


def _shrunk(kinds, arrays, sizes, axis):
    """All arrays without empty blocks, shard by shard of queries; shorter shards are filled up: kinds by 0,
    the others by their last values, which fetch nothing new."""
    shards = []
    for row in range(0, sizes.rows, sizes.shard_rows):
        part = [x[:, row : row + sizes.shard_rows] for x in (kinds, *arrays)]
        shards.append(_squeezed(part[0], part, axis))
    width = max(shard[0].shape[axis] for shard in shards)
    found = []
    for number, parts in enumerate(zip(*shards)):
        filled = []
        for part in parts:
            pads = [(0, 0)] * 3
            pads[axis] = (0, width - part.shape[axis])
            filled.append(np.pad(part, pads, mode="edge" if number else "constant"))
        found.append(np.concatenate(filled, 1))
    return found


def process_mask(
    mask: MultiHeadMask, block_shape: tuple[int, int], *, is_dkv: bool = False, downcast_smem_data: bool = True,
    head_shards: int = 1, q_seq_shards: int = 1, shrink_grid: bool = True,
) -> tuple[MaskInfo, Any]:  # fmt: skip
    """The blocks of a mask for values and for derivatives by queries.

    Args:
      mask: a `MultiHeadMask` of shape `(heads, queries, keys)`.
      block_shape: how many queries and keys a block has.
      is_dkv: whether it is for derivatives by keys and values.
      downcast_smem_data: whether integers are as narrow as they can be; else int32.
      head_shards, q_seq_shards: on how many devices heads and queries are.
      shrink_grid: whether empty blocks are left out where all heads have one mask.

    Returns `(info, function)`: the function of queries' and keys' numbers that makes the mask, or None.

    Errors: ValueError for blocks and shards that do not divide the mask.

    >>> from ferrax.experimental.pallas.ops.tpu import splash_attention as sa
    >>> masks = sa.MultiHeadMask((sa.CausalMask((4, 4)),))
    >>> splash_attention_mask_info.process_mask(masks, (2, 2))[0].block_mask.tolist()
    [[[1, 0], [2, 1]]]
    """
    return _processed(
        mask, tuple(block_shape), bool(is_dkv), downcast_smem_data, head_shards, q_seq_shards, shrink_grid
    )


def process_mask_dkv(
    mask: MultiHeadMask, block_shape: tuple[int, int], *, is_dkv: bool = True, downcast_smem_data: bool = True,
    head_shards: int = 1, q_seq_shards: int = 1, shrink_grid: bool = True,
) -> tuple[MaskInfo, Any]:  # fmt: skip
    """The blocks of a mask for derivatives by keys and values, which visit queries for each block of keys.

    Args: mask, block_shape, is_dkv, downcast_smem_data, head_shards, q_seq_shards, shrink_grid: as for `process_mask`.

    Returns and errors as there. Partial blocks are transposed; blocks of queries are numbered in their shard.

    >>> from ferrax.experimental.pallas.ops.tpu import splash_attention as sa
    >>> masks = sa.MultiHeadMask((sa.CausalMask((4, 4)),))
    >>> splash_attention_mask_info.process_mask_dkv(masks, (2, 2))[0].block_mask.tolist()
    [[[1, 0], [2, 1]]]
    """
    return _processed(
        mask, tuple(block_shape), bool(is_dkv), downcast_smem_data, head_shards, q_seq_shards, shrink_grid
    )


# A model makes the same mask for each of its layers.
@functools.lru_cache(maxsize=16)
def _processed(mask, block_shape, is_dkv, narrow, head_shards, q_seq_shards, shrink_grid):
    sizes = _sizes(mask.shape, block_shape, head_shards, q_seq_shards)
    unique: dict[Any, int] = {}
    of_head = [unique.setdefault(head, len(unique)) for head in mask.masks]
    shards = [set(of_head[n : n + sizes.shard_heads]) for n in range(0, sizes.heads, sizes.shard_heads)]
    is_shared = all(len(shard) == 1 for shard in shards)
    lines = [next(iter(shard)) for shard in shards] if is_shared else of_head

    catalogue = _Catalogue()
    parts = [_kinds(head, sizes, block_shape, catalogue) for head in unique]
    kinds = np.stack([parts[line][0] for line in lines])
    numbers = np.stack([parts[line][1] for line in lines])

    order, moving = ((2, 0, 1), 1) if is_dkv else ((0, 1, 2), 2)
    heads = 1 if is_shared else sizes.shard_heads

    def data(kinds):
        return _next(kinds != 0, np.indices(kinds.shape, np.int32)[moving], order)

    arrays = [_by_shard(data, sizes, heads, kinds)]
    if catalogue.blocks:
        found = _by_shard(lambda kinds, numbers: _next(kinds == 1, numbers, order), sizes, heads, kinds, numbers)
        arrays.append(found)
    if shrink_grid and is_shared and len(unique) == 1:
        kinds, *arrays = _shrunk(kinds, arrays, sizes, moving)
    if narrow:
        kinds, *arrays = (_least(x) for x in (kinds, *arrays))

    rule = next(iter(unique)) if len(unique) == 1 else None
    function = getattr(rule, "mask_function", None)
    if function is not None or not catalogue.blocks:
        info = MaskInfo(arrays[0], None, kinds, None, getattr(rule, "q_sequence", None))
        return info, function
    blocks = np.stack(catalogue.blocks)
    return MaskInfo(arrays[0], arrays[1], kinds, blocks.swapaxes(1, 2) if is_dkv else blocks, None), None


def process_dynamic_mask(
    mask: Any, block_shape: tuple[int, int], *, is_dkv: bool = False, downcast_smem_data: bool = True,
    head_shards: int = 1, q_seq_shards: int = 1, shrink_grid: bool = True,
) -> tuple[MaskInfo, None]:  # fmt: skip
    """The blocks of a mask that is an array, traced or not, for values and derivatives by queries.

    Args:
      mask: a boolean array `(heads, queries, keys)`.
      block_shape, is_dkv, downcast_smem_data, head_shards, q_seq_shards: as for `process_mask`.
      shrink_grid: without effect, for which blocks are empty is not known.

    Returns `(info, None)`; its `partial_mask_blocks` are all blocks, `(heads, rows, columns, queries, keys)`.

    Errors: ValueError for another dtype, and for blocks and shards that do not divide the mask.

    >>> splash_attention_mask_info.process_dynamic_mask(jnp.tri(4, dtype=bool)[None], (2, 2))[0].block_mask.tolist()
    [[[1, 0], [2, 1]]]
    """
    return _dynamic(mask, block_shape, bool(is_dkv), downcast_smem_data, head_shards, q_seq_shards)


def process_dynamic_mask_dkv(
    mask: Any, block_shape: tuple[int, int], *, is_dkv: bool = True, downcast_smem_data: bool = True,
    head_shards: int = 1, q_seq_shards: int = 1, shrink_grid: bool = True,
) -> tuple[MaskInfo, None]:  # fmt: skip
    """`process_dynamic_mask` for derivatives by keys and values, see `process_mask_dkv`.

    Args: mask, block_shape, is_dkv, downcast_smem_data, head_shards, q_seq_shards, shrink_grid: as there.

    >>> splash_attention_mask_info.process_dynamic_mask_dkv(jnp.tri(4, dtype=bool)[None], (2, 2))[0].block_mask.tolist()
    [[[1, 0], [2, 1]]]
    """
    return _dynamic(mask, block_shape, bool(is_dkv), downcast_smem_data, head_shards, q_seq_shards)


def _dynamic(mask, block_shape, is_dkv, narrow, head_shards, q_seq_shards):
    sizes = _sizes(mask.shape, block_shape, head_shards, q_seq_shards)
    if mask.dtype != np.bool_:
        raise ValueError(f"a mask is of booleans, got {mask.dtype}")
    high, wide = block_shape
    blocks = mask.reshape(sizes.heads, sizes.rows, high, sizes.columns, wide).swapaxes(2, 3)
    kinds = jnp.where(blocks.all((-2, -1)), 2, jnp.where(blocks.any((-2, -1)), 1, 0)).astype(np.int32)
    head, row, column = np.indices(kinds.shape, np.int32)
    row = row % sizes.shard_rows
    place = ((head % sizes.shard_heads) * sizes.shard_rows + row) * sizes.columns + column
    data = jnp.where(kinds == 0, 0, row if is_dkv else column)
    numbers = jnp.where(kinds == 1, place, 0)
    if narrow:
        kinds = kinds.astype(np.int8)
        data = data.astype(_narrowest(sizes.shard_rows if is_dkv else sizes.columns))
        numbers = numbers.astype(_narrowest(sizes.shard_heads * sizes.shard_rows * sizes.columns))
    return MaskInfo(data, numbers, kinds, blocks.swapaxes(-1, -2) if is_dkv else blocks, None, True), None


def _narrowest(bound):
    return next(ty for ty in (np.int8, np.int16, np.int32) if bound <= np.iinfo(ty).max)
