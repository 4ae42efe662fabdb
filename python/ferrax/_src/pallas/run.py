"""Running a grid: in parallel where steps do not see each other, in order where they may.

In: a `Call`, with what its kernel and its index maps are. Out: the arrays that the kernel writes.

An axis of the grid is *batched* where its steps work on blocks of their own: each array that a step
changes is tiled by it, that is, the block index of one dimension is the step's index and no other
depends on it. Such axes become axes of arrays, over which the kernel is mapped. The other axes are run
in order, the last one fastest, by one loop that carries the arrays that change and the scratch memory.
Where index maps are known beforehand, this is read off their values at all steps, so nothing is
assumed of how they are written.

Steps may hand values on through scratch memory. Axes are batched only where what it holds at the
start of the others does not matter; and not where the kernel has effects, whose order is the grid's, or exchanges
something with others that an axis outside maps over.

Cost: of planning, the steps times the dimensions; of a step in order, what `lax.scan` costs.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from ferrax._src.core import as_array
from ferrax._src.lax.control_flow.scan import scan
from ferrax._src.lax.control_flow.while_loop import fori_loop
from ferrax._src.lax.shape import reshape, squeeze, transpose
from ferrax._src.lax.slicing import dynamic_slice, dynamic_update_slice
from ferrax._src.pallas.blocks import Operand, no_value
from ferrax._src.pallas.specs import SemaphoreDtype
from ferrax._src.transforms.batching import vmap

_INT32 = np.dtype(np.int32)
# As few steps in order are written out, so that what they do at the first and the last is known.
_UNROLLED = 8


class Layout(NamedTuple):
    """How an operand lies in the grid. `tiles`: for a dimension, the batched axis of the grid that it
    is divided by. `starts`: for a dimension, where all steps' blocks begin, if that is one place."""

    tiles: dict[int, int]
    starts: dict[int, int]


class Plan(NamedTuple):
    """Which axes of the grid are batched, which are run in order, and the operands' layouts."""

    batched: tuple[int, ...]
    ordered: tuple[int, ...]
    layouts: list[Layout]


def plan(call) -> Plan:
    """How to run a grid of known sizes."""
    axes = [axis for axis, size in enumerate(call.grid) if size > 1]
    tiles = {
        number: {axis: _tiled(call.operands[number], call.grid, axis) for axis in axes}
        for number in [*call.shared, *call.aliases]
    }
    same = all(tiles[number] == tiles[source] for number, source in call.aliases.items())
    batched = tuple(
        axis for axis in axes if same and all(tile[axis] is not None for tile in tiles.values())
    )
    ordered = tuple(axis for axis in range(len(call.grid)) if axis not in batched)
    first = len(call.operands)
    scratch = [
        first + number
        for number, (_, dtype) in enumerate(call.scratch)
        if call.kernel.modified[first + number] and not isinstance(dtype, SemaphoreDtype)
    ]
    if call.kernel.has_effects or call.kernel.uses_axes or (
        batched and scratch and call.kernel.reads_at_start(ordered, scratch)
    ):
        batched, ordered = (), tuple(range(len(call.grid)))
    return Plan(batched, ordered, [_layout(operand, call.grid, batched) for operand in call.operands])


def _tiled(operand: Operand, grid, axis: int) -> int | None:
    """The dimension of an operand that an axis of the grid divides into blocks, one for each of its
    steps; None unless the other dimensions do not depend on the axis."""
    if operand.table is None:
        return None
    found = None
    for number, dim in enumerate(operand.dims):
        column = operand.table[:, number].reshape(grid)
        if not _depends(column, axis):
            continue
        if found is not None or not _counts(column, axis) or dim.scale != dim.size or dim.low:
            return None
        if grid[axis] * dim.size > operand.padded[number]:
            return None
        found = number
    return found


def _depends(column, axis) -> bool:
    return bool((column != column.take([0], axis)).any())


def _counts(column, axis) -> bool:
    shape = [1] * column.ndim
    shape[axis] = -1
    return bool((column == np.arange(column.shape[axis]).reshape(shape)).all())


def _layout(operand: Operand, grid, batched) -> Layout:
    found = {axis: _tiled(operand, grid, axis) for axis in batched}
    tiles = {number: axis for axis, number in found.items() if number is not None}
    starts = {}
    if operand.table is not None and len(operand.table):
        for number, dim in enumerate(operand.dims):
            column = operand.table[:, number]
            if number not in tiles and (column == column[0]).all():
                size = operand.padded[number]
                start = int(column[0]) * dim.scale
                start = start + size if start < 0 else start
                starts[number] = max(0, min(start, size - dim.size))
    return Layout(tiles, starts)


def run(call, sizes, arrays) -> list[Any]:
    """What the operands that steps share, by `call.shared`, hold in the end, without padding. `sizes`
    are those of the grid that are known now alone; `arrays` the operands, with their padding."""
    if not call.is_static:
        arrays = _in_order(call, sizes, arrays)
    elif all(size > 0 for size in call.grid):
        arrays = _planned(call, arrays)
    return [call.operands[number].unpad(arrays[number]) for number in call.shared]


def _scratch(call):
    return [no_value(shape, dtype) for shape, dtype in call.scratch]


# Of known sizes.


def _planned(call, arrays):
    how = call.plan
    parts = [
        _divided(operand, layout, how.batched, call.grid, array)
        for operand, layout, array in zip(call.operands, how.layouts, arrays)
    ]

    def inner(ids, parts):
        return _steps(call, how, dict(zip(how.batched, ids)), parts)

    mapped = inner
    for axis in reversed(how.batched):
        given = [0 if axis in layout.tiles.values() else None for layout in how.layouts]
        mapped = _over_axis(mapped, how.batched, axis, given)
    ids = [np.arange(call.grid[axis], dtype=_INT32) for axis in how.batched]
    found = mapped([as_array(x) for x in ids], parts)
    results = list(arrays)
    for number, part in zip(call.shared, found):
        operand, layout = call.operands[number], how.layouts[number]
        results[number] = _joined(operand, layout, how.batched, call.grid, part, arrays[number])
    return results


def _over_axis(function, batched, axis, given):
    flags = [0 if other == axis else None for other in batched]
    return vmap(function, in_axes=(flags, given))


def _divided(operand, layout, batched, grid, array):
    """The operand with the batched axes that it is divided by in front."""
    if not layout.tiles:
        return array
    shape: list[int] = []
    front: dict[int, int] = {}
    rest = []
    limits = list(operand.padded)
    for number, dim in enumerate(operand.dims):
        axis = layout.tiles.get(number)
        if axis is not None:
            limits[number] = grid[axis] * dim.size
            front[axis] = len(shape)
            shape.append(grid[axis])
        rest.append(len(shape))
        shape.append(dim.size if axis is not None else operand.padded[number])
    if tuple(limits) != operand.padded:
        array = array[tuple(slice(limit) for limit in limits)]
    order = [front[axis] for axis in batched if axis in front] + rest
    return transpose(reshape(array, shape), order)


def _joined(operand, layout, batched, grid, part, before):
    """The whole of an operand, from its parts with the batched axes in front."""
    if not layout.tiles:
        return part
    rank = len(batched)
    order, shape = [], []
    for number in range(len(operand.dims)):
        size = part.shape[rank + number]
        axis = layout.tiles.get(number)
        if axis is not None:
            order.append(batched.index(axis))
            size *= grid[axis]
        order.append(rank + number)
        shape.append(size)
    whole = reshape(transpose(part, order), shape)
    if whole.shape == before.shape:
        return whole
    return dynamic_update_slice(before, whole, [np.int32(0)] * len(shape))


def _steps(call, how: Plan, ids: dict, parts):
    """The shared operands' parts after the ordered steps, for one step of each batched axis."""
    grid = call.grid
    held = _scratch(call)
    if all(grid[axis] == 1 for axis in how.ordered):
        ids = ids | {axis: as_array(np.int32(0)) for axis in how.ordered}
        parts, _ = _step(call, [ids[axis] for axis in range(len(grid))], (), parts, held, how.layouts)
        return [parts[number] for number in call.shared]
    # Where all steps have one block, the block is carried in place of the array.
    seen_as = {source: number for number, source in call.aliases.items()}
    fixed = [
        number
        for number in call.shared
        if _is_fixed(call.operands[number], how.layouts[number])
        and how.layouts[seen_as.get(number, number)] == how.layouts[number]
    ]
    layouts = list(how.layouts)
    carried = list(parts)
    for number in fixed:
        operand, layout = call.operands[number], how.layouts[number]
        carried[number] = _cut(operand, _places(operand, layout, ()), parts[number])
        everywhere = Layout({}, dict.fromkeys(range(len(operand.dims)), 0))
        layouts[number] = layouts[seen_as.get(number, number)] = everywhere

    def body(carry, step):
        shared, scratch = carry
        now = dict(zip(how.ordered, step)) | ids
        given = list(carried)
        for number, value in zip(call.shared, shared):
            given[number] = value
        given, scratch = _step(
            call, [now[axis] for axis in range(len(grid))], (), given, scratch, layouts
        )
        return ([given[number] for number in call.shared], scratch), None

    count = math.prod(grid[axis] for axis in how.ordered)
    steps = np.unravel_index(np.arange(count), [grid[axis] for axis in how.ordered])
    carry = ([carried[number] for number in call.shared], held)
    if count <= _UNROLLED:
        for step in zip(*steps):
            carry, _ = body(carry, [as_array(np.int32(place)) for place in step])
    else:
        carry, _ = scan(body, carry, [as_array(x.astype(_INT32)) for x in steps])
    found = list(carry[0])
    for index, number in enumerate(call.shared):
        if number in fixed:
            operand, layout = call.operands[number], how.layouts[number]
            found[index] = _put(operand, _places(operand, layout, ()), parts[number], found[index])
    return found


def has_one_block(operand: Operand) -> bool:
    """Whether all steps see the same block."""
    return _is_fixed(operand, _layout(operand, (), ()))


def _is_fixed(operand, layout) -> bool:
    return len(layout.tiles) + len(layout.starts) == len(operand.dims)


def _step(call, ids, sizes, arrays, scratch, layouts):
    """One step: `(the operands, the scratch memory)` after it."""
    prefetched = [arrays[number] for number in range(call.num_prefetch)]
    places, blocks = [], []
    for number, (operand, layout) in enumerate(zip(call.operands, layouts)):
        array = arrays[call.aliases.get(number, number)]
        indices = () if _is_fixed(operand, layout) else operand.indices(ids, sizes, prefetched)
        places.append(_places(operand, layout, indices))
        blocks.append(_seen(operand, _cut(operand, places[-1], array)))
    after = call.kernel(ids, sizes, [*blocks, *scratch])
    results = list(arrays)
    for number in call.shared:
        operand = call.operands[number]
        if call.kernel.modified[number]:
            block = reshape(after[number], operand.block)
            results[number] = _put(operand, places[number], arrays[number], block)
    return results, after[len(call.operands) :]


def _places(operand, layout, indices):
    """Where a step's block begins, in each dimension."""
    return [
        0 if number in layout.tiles
        else layout.starts[number] if number in layout.starts
        else indices[number] if dim.scale == 1
        else indices[number] * np.int32(dim.scale)
        for number, dim in enumerate(operand.dims)
    ]  # fmt: skip


def _cut(operand, places, array):
    """The block at these places."""
    if array.shape == operand.block and all(isinstance(place, int) for place in places):
        return array
    if all(isinstance(place, int) for place in places):
        return array[
            tuple(slice(place, place + dim.size) for place, dim in zip(places, operand.dims))
        ]
    return dynamic_slice(array, _scalars(places), operand.block)


def _put(operand, places, array, block):
    """The array with this block at these places."""
    if array.shape == operand.block and all(isinstance(place, int) for place in places):
        return block
    return dynamic_update_slice(array, block, _scalars(places))


def _scalars(places):
    return [np.int32(place) if isinstance(place, int) else place for place in places]


def _seen(operand, block):
    gone = tuple(number for number, dim in enumerate(operand.dims) if dim.squeezed)
    return squeeze(block, gone) if gone else block


# Of sizes that are known when the kernel runs.


def indices_of(step: Any, grid: Any) -> list[Any]:
    """The indices of a step by its number, a scalar."""
    ids = []
    for size in reversed(grid):
        size = np.int32(size) if isinstance(size, int) else size
        ids.append(step % size)
        step = step // size
    return ids[::-1]


def _in_order(call, sizes, arrays):
    given = iter(sizes)
    grid = [size if isinstance(size, int) else next(given) for size in call.grid]
    total = as_array(np.int32(1))
    for size in grid:
        total = total * as_array(np.int32(size) if isinstance(size, int) else size)
    layouts = [_layout(operand, (), ()) for operand in call.operands]

    def body(step, carry):
        shared, scratch = carry
        now = list(arrays)
        for number, value in zip(call.shared, shared):
            now[number] = value
        now, scratch = _step(call, indices_of(step, grid), sizes, now, scratch, layouts)
        return [now[number] for number in call.shared], scratch

    found, _ = fori_loop(
        np.int32(0), total, body, ([arrays[number] for number in call.shared], _scratch(call))
    )
    results = list(arrays)
    for number, value in zip(call.shared, found):
        results[number] = value
    return results
