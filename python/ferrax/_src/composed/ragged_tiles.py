"""Products of ragged arrays, tile by tile: each tile of rows meets the groups that have rows in it, and no others.

In: the operands of `ragged_dot_general` whose ragged axis is free or contracted, and vectors of sizes. A *visit* is a
group with a tile that has rows of it. Groups lie one after the other, so there are less visits than tiles and groups
together. A loop over the visits computes the product of the tile with the group's part.

Cost: less than two products without groups, and of memory no more than the operands and the result; each visit, some
microseconds.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ferrax._src.core import Array, as_array
from ferrax._src.lax import api as lax
from ferrax._src.lax.control_flow.scan import scan
from ferrax._src.transforms.ad_checkpoint import checkpoint

_LARGEST_TILE = 128
_LEAST_TILE = 8
# Additions of products below which the operand spread over all groups is as fast.
_LEAST_WORK = 1 << 21


def pays(rows: int, groups: int, work: int) -> bool:
    """Whether to go by tiles: `work` is how many multiplications the product takes without groups."""
    return groups > 1 and rows >= 2 * _LEAST_TILE and work * groups >= _LEAST_WORK


def _tile(rows: int, groups: int) -> int:
    tile = _LEAST_TILE
    while tile < _LARGEST_TILE and tile * groups < rows:
        tile *= 2
    return tile


def _visits(sizes: Array, rows: int, tile: int) -> tuple[Array, ...]:
    """Of each visit: the group, where the tile begins, and which of its rows are of the group: from, until."""
    groups = sizes.shape[0]
    count = -(-rows // tile) + groups - 1
    if sizes.dtype.itemsize < 4:
        sizes = lax.convert_element_type(sizes, np.int32)
    ends = lax.cumsum(sizes)
    starts = lax.sub(ends, sizes)
    limit = lax.full_like(ends, rows)
    starts, ends = (lax.convert_element_type(lax.min(x, limit), np.int32) for x in (starts, ends))
    size = _full(starts, tile)
    first = lax.div(starts, size)
    last = lax.div(lax.sub(ends, _full(ends, 1)), size)
    visited = lax.select(
        lax.gt(ends, starts), lax.add(lax.sub(last, first), _full(first, 1)), _full(first, 0)
    )
    until = lax.cumsum(visited)
    number = lax.iota(np.int32, count)
    shape = (count, groups)
    is_before = lax.le(lax.broadcast_in_dim(until, shape, (1,)), lax.broadcast_in_dim(number, shape, (0,)))
    group = lax.reduce_sum(lax.convert_element_type(is_before, np.int32), (1,))
    is_visit = lax.lt(group, _full(group, groups))
    group = lax.min(group, _full(group, groups - 1))
    begins = lax.sub(until, visited)
    at = lax.add(_of(first, group), lax.sub(number, _of(begins, group)))
    at = lax.mul(lax.min(at, _full(at, -(-rows // tile) - 1)), _full(at, tile))
    bounds = [lax.select(is_visit, lax.sub(_of(x, group), at), _full(at, 0)) for x in (starts, ends)]
    return group, at, *bounds


def _full(x: Array, value: int) -> Array:
    return lax.full_like(x, value)


def _of(x: Array, indices: Array) -> Array:
    """The elements of a vector at these indices, which are within it."""
    return x[indices]


def _filled(x: Array, axis: int, tile: int) -> Array:
    missing = -x.shape[axis] % tile
    if not missing:
        return x
    return lax.pad(x, np.zeros((), x.dtype), [(0, missing if i == axis else 0, 0) for i in range(x.ndim)])


def _inside(shape: Any, axis: int, low: Array, high: Array) -> Array:
    """Which elements of a tile are of the visit's group."""
    place = lax.broadcasted_iota(np.int32, tuple(shape), axis)
    return lax.bitwise_and(lax.ge(place, low), lax.lt(place, high))


def free_rows(lhs: Array, rhs: Array, sizes: Array, axis: int, group: int, numbers: Any, product: Any) -> Array:
    """The product where `axis` of `lhs` is free and ragged, and `group` is the axis of `rhs` with its groups.

    `numbers` are those of `dot_general` for `lhs` and `rhs` without that axis, `product(x, y, numbers)` that product.
    """
    rows = lhs.shape[axis]
    tile = _tile(rows, sizes.shape[0])
    filled = _filled(lhs, axis, tile)
    (contract, _), (batch, _) = numbers
    free = [i for i in range(lhs.ndim) if i not in contract and i not in batch]
    place = len(batch) + free.index(axis)

    @checkpoint
    def part(filled, rhs, number, at):
        x = lax.dynamic_slice_in_dim(filled, at, tile, axis)
        y = lax.dynamic_index_in_dim(rhs, number, group, keepdims=False)
        return product(x, y, numbers)

    def visit(out, where):
        number, at, low, high = where
        found = part(filled, rhs, number, at)
        before = lax.dynamic_slice_in_dim(out, at, tile, place)
        found = lax.select(_inside(found.shape, place, low, high), found, before)
        return lax.dynamic_update_slice_in_dim(out, found, at, place), None

    zero = as_array(np.int32(0))
    like = part(filled, rhs, zero, zero)
    shape = [filled.shape[axis] if i == place else size for i, size in enumerate(like.shape)]
    out, _ = scan(visit, lax.full(shape, 0, like.dtype), _visits(sizes, rows, tile))
    return lax.slice_in_dim(out, 0, rows, axis=place)


def contracted_rows(
    lhs: Array, rhs: Array, sizes: Array, axes: tuple[int, int], numbers: Any, product: Any, dtype: Any
) -> Array:
    """The product for each group, in front, where `axes`, of `lhs` and of `rhs`, are contracted and ragged.

    `product(x, y, numbers)` is the product in which sums are kept, `dtype` that of the result.
    """
    rows = lhs.shape[axes[0]]
    tile = _tile(rows, sizes.shape[0])
    left, right = _filled(lhs, axes[0], tile), _filled(rhs, axes[1], tile)

    def own(x, axis, at, low, high):
        x = lax.dynamic_slice_in_dim(x, at, tile, axis)
        return lax.select(_inside(x.shape, axis, low, high), x, lax.full_like(x, 0))

    @checkpoint
    def part(left, right, at, low, high):
        return product(own(left, axes[0], at, low, high), own(right, axes[1], at, low, high), numbers)

    def visit(out, where):
        number, at, low, high = where
        before = lax.dynamic_index_in_dim(out, number, 0, keepdims=False)
        found = lax.add(before, part(left, right, at, low, high))
        return lax.dynamic_update_index_in_dim(out, found, number, 0), None

    zero = as_array(np.int32(0))
    like = part(left, right, zero, zero, zero)
    out = lax.full((sizes.shape[0], *like.shape), 0, like.dtype)
    out, _ = scan(visit, out, _visits(sizes, rows, tile))
    return lax.convert_element_type(out, dtype)
