"""A grid as one program over whole arrays: what all its steps compute, without blocks.

In: a `Call` all of whose axes run in parallel. Out: a program from its arguments to its outputs, or None where its
kernel has an operation that no rule here does for all steps at once (`tiles.Unflat`).

A kernel that adds two blocks adds, over all steps, two arrays; one that sums the rows of blocks of rows sums rows. Its
program is gone through with all that steps hold (`tiles.Tiled`) in place of what one holds. So windows that overlap,
such as those of a stencil, are shifted parts of their array, no copies of it, and blocks that overhang are not padded:
where only a part of the last block is kept, only this part is computed.

Cost: of planning, a trace of the kernel; of running, what the same function of arrays costs.
"""

from __future__ import annotations

import functools
from fractions import Fraction
from typing import Any

import numpy as np

from ferrax._src import core
from ferrax._src.core.jaxpr import ClosedJaxpr, interpret, literal_value
from ferrax._src.lax.shape import pad, reshape, squeeze, transpose
from ferrax._src.lax.slicing import dynamic_update_slice
from ferrax._src.numpy.shape import moveaxis
from ferrax._src.pallas.blocks import Operand, no_value
from ferrax._src.pallas.tiles import (
    Extents,
    Tiled,
    Unflat,
    aligned,
    cut,
    filled,
    to_front,
    to_tile,
    uniform,
)
from ferrax._src.tracing import staging

_INT32 = np.dtype(np.int32)


def program(call, plan) -> Any:
    """A program of the call's arguments that gives its outputs, or None.

    `plan`: which axes are batched, see `run.plan`.
    """
    outputs = range(len(call.operands) - call.num_outputs, len(call.operands))
    is_parallel = plan.batched and all(call.grid[axis] == 1 for axis in plan.ordered)
    if not is_parallel or call.kernel.has_effects or call.aliases or list(call.shared) != list(outputs):
        return None
    sizes = {axis: call.grid[axis] for axis in plan.batched}
    whole = {axis: Fraction(size) for axis, size in sizes.items()}
    jaxpr = ClosedJaxpr(call.kernel.program, []).jaxpr
    types = [core.ShapeDtypeStruct(x.shape, x.dtype) for x in call.operands[: outputs.start]]
    # What is kept of the last blocks alone, if each operation can be computed for a part of a block.
    for steps in (_kept_steps(call, plan, whole), whole):
        run = functools.partial(_outputs, call, plan, jaxpr, Extents(sizes, steps))
        try:
            found, captured, _ = staging.stage(lambda *arrays, run=run: run(arrays), types, {})
        except Unflat:
            continue
        return found.bind_constants(captured) if captured else found
    return None


def _kept_steps(call, plan, whole):
    """How many steps there are along each axis for what is kept of the outputs."""
    found: dict[int, set[Fraction]] = {}
    for number in call.shared:
        operand = call.operands[number]
        for dim, axis in plan.layouts[number].tiles.items():
            kept = Fraction(operand.shape[dim], operand.dims[dim].size)
            found.setdefault(axis, set()).add(min(kept, whole[axis]))
    return {axis: found[axis].pop() if len(found.get(axis, ())) == 1 else steps for axis, steps in whole.items()}


def _outputs(call, plan, jaxpr, extents, arrays):
    ids = [
        Tiled(core.as_array(np.arange(size, dtype=_INT32)), (), (axis,)) if axis in plan.batched
        else uniform(core.as_array(np.int32(0)))
        for axis, size in enumerate(call.grid)
    ]  # fmt: skip
    first = len(arrays)
    given = {target: arrays[source] for source, target in call.given.items()}
    blocks = [
        _block(operand, call.grid, array, extents)
        for operand, array in zip(call.operands[:first], arrays)
    ]
    for number in range(first, len(call.operands)):
        operand = call.operands[number]
        block = _block(operand, call.grid, given[number], extents) if number in given else _empty(operand)
        blocks.append(block)
    scratch = [uniform(no_value(shape, dtype)) for shape, dtype in call.scratch]
    seen = [_squeezed(block, operand, extents) for block, operand in zip(blocks, call.operands)]
    after = evaluate(jaxpr, [], [*ids, *seen, *scratch], extents)
    return [
        _whole(call.operands[number], plan.layouts[number], after[number], given.get(number), extents)
        for number in call.shared
    ]


def _empty(operand: Operand) -> Tiled:
    rank = len(operand.dims)
    return Tiled(reshape(no_value((), operand.dtype), [1] * rank), operand.block)


def _squeezed(value: Tiled, operand: Operand, extents) -> Tiled:
    return _without(value, [number for number, dim in enumerate(operand.dims) if dim.squeezed], extents)


def _block(operand: Operand, grid, array, extents: Extents) -> Tiled:
    """What steps see of an input: for each dimension a block that is always the same, or windows at equal distances."""
    if operand.table is None:
        raise Unflat
    tiles: dict[int, tuple[int, int]] = {}
    for number, dim in enumerate(operand.dims):
        starts = operand.table[:, number].reshape(grid) * dim.scale
        axis, stride, start = _progression(starts)
        size = operand.padded[number]
        stop = start + dim.size
        if axis is None:
            start = start + size if start < 0 else start
            start = max(0, min(start, size - dim.size))
            stop = start + dim.size
        else:
            if start < 0 or start + stride * (grid[axis] - 1) + dim.size > size:
                raise Unflat
            if axis in {other for other, _ in tiles.values()} or dim.size < stride:
                raise Unflat
            tiles[number] = axis, stride
            stop = start + extents.of(axis, stride, dim.size)
        array = _part(array, number, start - dim.low, stop - dim.low, operand.dtype)
    return Tiled(array, operand.block, (), tiles)


def _progression(starts):
    """`(axis, stride, first)` of starts that grow along one axis of the grid; axis None for equal ones."""
    first = int(starts.flat[0])
    if (starts == first).all():
        return None, 0, first
    for axis, size in enumerate(starts.shape):
        if size > 1:
            stride = int(starts.take(1, axis).flat[0]) - first
            shape = [size if other == axis else 1 for other in range(starts.ndim)]
            if stride > 0 and (starts == first + stride * np.arange(size).reshape(shape)).all():
                return axis, stride, first
    raise Unflat


def _part(array, dim, start, stop, dtype):
    """The elements of one dimension from `start` to `stop`, with what has no value where these are outside."""
    low, high = max(0, -start), max(0, stop - array.shape[dim])
    if low or high:
        config = [(low, high, 0) if other == dim else (0, 0, 0) for other in range(array.ndim)]
        array = pad(array, no_value((), dtype), config)
    return cut(array, dim, start + low, stop + low)


def _whole(operand: Operand, layout, value: Tiled, given, extents: Extents):
    """An output, of what steps left in their blocks."""
    squeezed = [number for number, dim in enumerate(operand.dims) if dim.squeezed]
    shape = list(value.array.shape)
    for number in squeezed:
        shape.insert(len(value.front) + number, 1)
    kept = [number for number in range(len(operand.dims)) if number not in squeezed]
    tiles = {kept[dim]: tile for dim, tile in value.tiles.items()}
    value = Tiled(reshape(value.array, shape), operand.block, value.front, tiles)
    wanted = {number: (axis, operand.dims[number].size) for number, axis in layout.tiles.items()}
    for number, tile in wanted.items():
        value = to_tile(value, number, tile, extents)
    if value.front or value.tiles != wanted:
        raise Unflat
    if any(dim.low for dim in operand.dims):
        raise Unflat
    array = filled(value).array
    starts = [layout.starts.get(number, 0) for number in range(len(operand.dims))]
    limits = [min(start + size, of) for start, size, of in zip(starts, array.shape, operand.shape)]
    if tuple(limits) == operand.shape and not any(starts):
        for number, limit in enumerate(limits):
            array = cut(array, number, 0, limit)
        return array
    before = no_value(operand.shape, operand.dtype) if given is None else given
    for number, (start, limit) in enumerate(zip(starts, limits)):
        array = cut(array, number, 0, max(0, limit - start))
    return dynamic_update_slice(before, array, [np.int32(start) for start in starts])


# What equations are for all steps.


def evaluate(jaxpr, consts, values, extents: Extents) -> list[Tiled]:
    """What steps hold of a jaxpr's outputs, for what they hold of its inputs. Errors: Unflat."""

    def apply(eqn, values):
        rule = _RULES.get(eqn.primitive.name)
        if rule is not None:
            return rule(eqn, values, extents)
        if not all(value.is_uniform for value in values):
            raise Unflat
        return [uniform(array) for array in _bind(eqn, [filled(value).array for value in values])]

    return interpret(jaxpr, [uniform(x) for x in consts], values, apply, lambda atom: uniform(literal_value(atom)))


def _bind(eqn, arrays, **changes):
    params = eqn.primitive.get_bind_params(eqn.params)
    results = eqn.primitive.bind(*arrays, **(params | changes))
    return list(results) if eqn.primitive.multiple_results else [results]


def _shape(eqn, number=0) -> tuple[int, ...]:
    return tuple(eqn.outvars[number].aval.shape)


def _elementwise(eqn, values, extents):
    arrays, like = aligned(values, _shape(eqn), extents)
    return [like._replace(array=array) for array in _bind(eqn, arrays)]


def _jit(eqn, values, extents):
    closed = eqn.params["jaxpr"]
    jaxpr = getattr(closed, "jaxpr", closed)
    return evaluate(jaxpr, getattr(closed, "consts", ()), values, extents)


def _whole_along(values, dims, extents):
    """The values with dimensions that no step has a part of alone."""
    found = []
    for value in values:
        for dim in dims:
            if dim in value.tiles:
                value = to_front(value, dim, extents)
        found.append(filled(value, dims))
    return found


def _along(name):
    """Operations along one dimension or some that stay, `name` in their parameters."""

    def rule(eqn, values, extents):
        given = eqn.params[name]
        dims = tuple(given) if isinstance(given, (tuple, list)) else (given,)
        values = _whole_along(values, dims, extents)
        shape = [None if dim in dims else size for dim, size in enumerate(values[0].shape)]
        for value in values:
            if [None if dim in dims else size for dim, size in enumerate(value.shape)] != shape:
                raise Unflat
        arrays, like = _aligned_but(values, dims, extents)
        first = len(like.front)
        places = tuple(first + dim for dim in dims)
        places = places if isinstance(given, (tuple, list)) else places[0]
        found = _bind(eqn, arrays, **{name: places})
        return [like._replace(array=array, shape=_shape(eqn, number)) for number, array in enumerate(found)]

    return rule


def _aligned_but(values, dims, extents):
    """As `aligned`, of values that have other lengths along these dimensions."""
    if len(values) == 1:
        return [values[0].array], values[0]
    fronts = {value.front for value in values}
    if len(fronts) > 1 or any(value.tiles != values[0].tiles for value in values):
        raise Unflat
    values = [filled(value) for value in values]
    return [value.array for value in values], values[0]


def _reduce(eqn, values, extents):
    axes = tuple(eqn.params["axes"])
    (value,) = _whole_along(values, axes, extents)
    first = len(value.front)
    kept = [dim for dim in range(len(value.shape)) if dim not in axes]
    tiles = {place: value.tiles[dim] for place, dim in enumerate(kept) if dim in value.tiles}
    (array,) = _bind(eqn, [value.array], axes=tuple(first + axis for axis in axes))
    return [Tiled(array, _shape(eqn), value.front, tiles)]


def _slice(eqn, values, extents):
    (value,) = values
    lows, highs = eqn.params["start_indices"], eqn.params["limit_indices"]
    steps = eqn.params["strides"] or [1] * len(lows)
    for dim, (low, high, step) in enumerate(zip(lows, highs, steps)):
        value = _sliced(value, dim, low, high, step, extents)
    return [value]


def _sliced(value: Tiled, dim, low, high, step, extents: Extents):
    size = -(-(high - low) // step)
    if (low, size) == (0, value.shape[dim]):
        return value
    shape = (*value.shape[:dim], size, *value.shape[dim + 1 :])
    if dim in value.tiles and value.tiles[dim][1] == value.shape[dim] and extents.is_whole(value.tiles[dim][0]):
        value = to_front(value, dim, extents)
    place = len(value.front) + dim
    if dim not in value.tiles:
        is_alike = value.array.shape[place] == 1
        array = value.array if is_alike and size else cut(value.array, place, low, high, step)
        return value._replace(array=array, shape=shape)
    axis, stride = value.tiles[dim]
    if stride % step or size * step < stride or not size:
        raise Unflat
    # Of all windows, what the step `step` meets from the beginning `low` of the first on.
    length = extents.of(axis, stride // step, size)
    array = cut(value.array, place, low, low + (length - 1) * step + 1, step)
    return Tiled(array, shape, value.front, value.tiles | {dim: (axis, stride // step)})


def _without(value: Tiled, dims, extents) -> Tiled:
    """The value without dimensions of length 1."""
    for dim in dims:
        if dim in value.tiles:
            value = to_front(value, dim, extents)
    first = len(value.front)
    kept = [dim for dim in range(len(value.shape)) if dim not in dims]
    tiles = {place: value.tiles[dim] for place, dim in enumerate(kept) if dim in value.tiles}
    array = squeeze(value.array, [first + dim for dim in dims]) if dims else value.array
    return Tiled(array, tuple(value.shape[dim] for dim in kept), value.front, tiles)


def _squeeze(eqn, values, extents):
    return [_without(values[0], tuple(eqn.params["dimensions"]), extents)]


def _placed(value: Tiled, shape, dims, extents) -> Tiled:
    """The value with its dimensions at these of a new shape, alike along the others."""
    for dim, target in enumerate(dims):
        if dim in value.tiles and value.shape[dim] != shape[target]:
            value = to_front(value, dim, extents)
    first = len(value.front)
    sizes = [1] * len(shape)
    for dim, target in enumerate(dims):
        sizes[target] = value.array.shape[first + dim]
    tiles = {dims[dim]: tile for dim, tile in value.tiles.items()}
    return Tiled(reshape(value.array, (*value.array.shape[:first], *sizes)), tuple(shape), value.front, tiles)


def _broadcast_in_dim(eqn, values, extents):
    return [_placed(values[0], _shape(eqn), tuple(eqn.params["broadcast_dimensions"]), extents)]


def _reshape(eqn, values, extents):
    """Dimensions of length 1 come and go; others are merged and split where no steps divide the array."""
    (value,), shape = values, _shape(eqn)
    long = [dim for dim, size in enumerate(value.shape) if size != 1]
    value = _without(value, [dim for dim, size in enumerate(value.shape) if size == 1], extents)
    targets = [dim for dim, size in enumerate(shape) if size != 1]
    if [value.shape[place] for place in range(len(long))] == [shape[dim] for dim in targets]:
        return [_placed(value, shape, targets, extents)]
    if value.tiles:
        raise Unflat
    array = filled(value).array
    return [value._replace(array=reshape(array, (*array.shape[: len(value.front)], *shape)), shape=shape)]


def _transpose(eqn, values, extents):
    (value,), order = values, tuple(eqn.params["permutation"])
    first = len(value.front)
    array = transpose(value.array, [*range(first), *(first + dim for dim in order)])
    tiles = {place: value.tiles[dim] for place, dim in enumerate(order) if dim in value.tiles}
    return [Tiled(array, _shape(eqn), value.front, tiles)]


def _dot_general(eqn, values, extents):
    """Products of what no steps divide along the dimensions that both sides have."""
    (contract_left, contract_right), (batch_left, batch_right) = eqn.params["dimension_numbers"]
    left, right = (filled(value) for value in values)
    shared = [(left, (*contract_left, *batch_left)), (right, (*contract_right, *batch_right))]
    if any(dim in value.tiles for value, dims in shared for dim in dims):
        raise Unflat
    axes = [{axis for axis, _ in value.tiles.values()} | set(value.front) for value in (left, right)]
    both = left.front if left.front == right.front else ()
    if axes[0] & axes[1] - set(both) or (left.front != right.front and (left.front and right.front or batch_left)):
        raise Unflat
    first, second = len(left.front), len(right.front)
    numbers = (
        ([first + dim for dim in contract_left], [second + dim for dim in contract_right]),
        ([*range(len(both)), *(first + dim for dim in batch_left)],
         [*range(len(both)), *(second + dim for dim in batch_right)]),
    )  # fmt: skip
    (array,) = _bind(eqn, [left.array, right.array], dimension_numbers=numbers)
    free_left = [dim for dim in range(len(left.shape)) if dim not in (*contract_left, *batch_left)]
    free_right = [dim for dim in range(len(right.shape)) if dim not in (*contract_right, *batch_right)]
    if right.front and not both:
        for axis in range(second):
            array = moveaxis(array, len(free_left) + axis, axis)
    offset = len(batch_left)
    tiles = {offset + place: left.tiles[dim] for place, dim in enumerate(free_left) if dim in left.tiles}
    offset += len(free_left)
    tiles |= {offset + place: right.tiles[dim] for place, dim in enumerate(free_right) if dim in right.tiles}
    return [Tiled(array, _shape(eqn), left.front or right.front, tiles)]


_ELEMENTWISE = """
abs acos acosh add and asin asinh atan atan2 atanh bessel_i0e bessel_i1e cbrt ceil clamp clz complex conj
convert_element_type copy cos cosh digamma div eq erf erf_inv erfc exp exp2 expm1 floor ge gt igamma igammac imag
integer_pow is_finite le lgamma log log1p logistic lt max min mul mulhi ne neg nextafter not or polygamma
population_count pow real reduce_precision regularized_incomplete_beta rem round rsqrt select_n shift_left
shift_right_arithmetic shift_right_logical sign sin sinh sqrt square stop_gradient sub tan tanh xor zeta
""".split()
_RULES: dict[str, Any] = dict.fromkeys(_ELEMENTWISE, _elementwise)
_RULES |= dict.fromkeys(
    ("argmax", "argmin", "reduce_and", "reduce_max", "reduce_min", "reduce_or", "reduce_prod", "reduce_sum"), _reduce
)
_RULES |= dict.fromkeys(("cumlogsumexp", "cummax", "cummin", "cumprod", "cumsum", "top_k"), _along("axis"))
_RULES |= {
    "broadcast_in_dim": _broadcast_in_dim,
    "concatenate": _along("dimension"),
    "dot_general": _dot_general,
    "jit": _jit,
    "reshape": _reshape,
    "rev": _along("dimensions"),
    "slice": _slice,
    "sort": _along("dimension"),
    "squeeze": _squeeze,
    "transpose": _transpose,
}
