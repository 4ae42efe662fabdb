"""What a block of an operation's result needs of its operands, and how it is computed of these.

In: an equation and the block that is wanted of its result. Out: by `PULL` the block that is wanted of each operand;
by `COMPUTE` the result's block, of the operands' blocks and of where it is. Operations of elements need no rule of the
second kind: they are applied to blocks.

Invariant: a block index counts blocks, so that a rule that moves a block's beginning asks that it stays one of a block.
Dimensions whose block size is None are not there in the values of blocks.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

from ferrax._src.core import as_array
from ferrax._src.core.jaxpr import Literal
from ferrax._src.lax.creation import broadcasted_iota
from ferrax._src.lax.shape import broadcast_in_dim, concatenate, reshape, transpose
from ferrax._src.numpy.conditional import where
from ferrax._src.numpy.rounding import clip
from ferrax._src.pallas.specs import Blocked, Buffered, Squeezed


def _no_index(*indices: Any) -> Any:
    """No index: a block that is not one of an array.

    Args: indices: any.

    >>> from ferrax.experimental.pallas import fuser
    >>> fuser.BlockIndexTransform(None).block_index_transform((0, 0))
    """
    return None


@dataclasses.dataclass
class BlockIndexTransform:
    """The block of an array that a block of a result needs.

    Args: block_shape: as that of a `BlockSpec`; block_index_transform: a function of the block indices of each result,
    tuples, to those of this array; memory_space, pipeline_mode: as for a `BlockSpec`.

    >>> from ferrax.experimental.pallas import fuser
    >>> fuser.BlockIndexTransform((None, 8), lambda index: index[::-1]).block_index_transform((2, 3))
    (3, 2)
    """

    block_shape: Any
    block_index_transform: Callable[..., Any] = _no_index
    memory_space: Any = dataclasses.field(kw_only=True, default=None)
    pipeline_mode: Buffered | None = dataclasses.field(kw_only=True, default=None)

    def replace(self, **changes: Any) -> BlockIndexTransform:
        """The same with other attributes."""
        return dataclasses.replace(self, **changes)

    def moved(self, shape: Sequence[Any], index: Callable[[tuple], tuple]) -> BlockIndexTransform:
        """A block of this shape, whose index is a function of this one's."""
        before = self.block_index_transform
        return self.replace(block_shape=tuple(shape), block_index_transform=lambda *given: index(tuple(before(*given))))


def size_of(dim: Any) -> int | None:
    """The elements of a block along a dimension, None where that is not there in the block."""
    if dim is None or isinstance(dim, Squeezed):
        return None
    return dim if isinstance(dim, int) else dim.block_size


def seen(shape: Sequence[Any]) -> tuple[int, ...]:
    """The shape of a block's values."""
    return tuple(size for size in map(size_of, shape) if size is not None)


def sizes(shape: Sequence[Any]) -> list[int]:
    """The elements of a block along each dimension."""
    return [1 if size_of(dim) is None else size_of(dim) for dim in shape]  # type: ignore[misc]


def _counted(eqn, wanted: BlockIndexTransform) -> tuple:
    """The shape of a block whose index counts blocks. Errors: NotImplementedError for other ones."""
    for dim in wanted.block_shape:
        if not (dim is None or isinstance(dim, (int, Blocked, Squeezed))):
            raise NotImplementedError(f"pull_block_spec: {eqn.primitive.name} of blocks with {dim!r}")
    return tuple(wanted.block_shape)


def _refuse(eqn, why):
    raise NotImplementedError(
        f"pull_block_spec: {eqn.primitive.name} from {[atom.aval.shape for atom in eqn.invars]} to "
        f"{eqn.outvars[0].aval.shape} {why}. Compute it before the kernel."
    )


# What is needed of operands: `(eqn, wanted, scalar)`, where `scalar(atom)` is a function to the value of a scalar
# that is known before the kernel.


def elementwise(eqn, wanted, scalar):
    """The same block of each operand; scalars are operands of all blocks."""
    shape = eqn.outvars[0].aval.shape
    whole = BlockIndexTransform((), lambda *given: ())
    return [wanted if tuple(atom.aval.shape) == tuple(shape) else whole for atom in eqn.invars]


def _broadcast_in_dim(eqn, wanted, scalar):
    source, shape = eqn.invars[0].aval.shape, eqn.outvars[0].aval.shape
    places = eqn.params["broadcast_dimensions"]
    alike = [size != shape[place] for size, place in zip(source, places)]
    blocks = [wanted.block_shape[place] for place in places]
    blocks = [(None if size_of(dim) is None else 1) if flag else dim for dim, flag in zip(blocks, alike)]
    return [wanted.moved(blocks, lambda index: tuple(0 if f else index[p] for p, f in zip(places, alike)))]


def _transpose(eqn, wanted, scalar):
    places = [eqn.params["permutation"].index(dim) for dim in range(len(wanted.block_shape))]
    return [wanted.moved([wanted.block_shape[p] for p in places], lambda index: tuple(index[p] for p in places))]


def _at(index, places, rank):
    """The indices at these places, by dimension, and 0 for other dimensions."""
    return tuple(index[places[dim]] if dim in places else 0 for dim in range(rank))


def _squeeze(eqn, wanted, scalar):
    """Dimensions of length 1 come back."""
    source, gone = eqn.invars[0].aval.shape, [dim % len(eqn.invars[0].aval.shape) for dim in eqn.params["dimensions"]]
    places = {dim: place for place, dim in enumerate(dim for dim in range(len(source)) if dim not in gone)}
    blocks = [wanted.block_shape[places[dim]] if dim in places else None for dim in range(len(source))]
    return [wanted.moved(blocks, lambda index: _at(index, places, len(source)))]


def _reshape(eqn, wanted, scalar):
    found = regrouped(eqn.outvars[0].aval.shape, wanted.block_shape, eqn.invars[0].aval.shape)
    return [_refuse(eqn, "has no blocks of these") if found is None else wanted.moved(*found)]


def regrouped(shape, blocks, other):
    """`(blocks, index)` of the same elements in another shape, `index` a function of the index; None where they are no
    block there.

    Dimensions are merged and split within groups of as many elements on both sides. A block is one of both where its
    elements follow each other: its first dimensions of a group have 1 each, its last all, and one between is divided.
    """
    if not all((*shape, *other)):
        return None
    groups, start, begin, stop, end = [], 0, 0, 0, 0
    while stop < len(shape) or end < len(other):
        left, right = math.prod(shape[start:stop]), math.prod(other[begin:end])
        if stop < len(shape) and (left <= right or end == len(other)):
            stop += 1
        else:
            end += 1
        # Where a group is done, dimensions of length 1 that follow on either side belong to it.
        if math.prod(shape[start:stop]) == math.prod(other[begin:end]) and stop > start and end > begin:
            while stop < len(shape) and shape[stop] == 1 and (end == len(other) or other[end] != 1):
                stop += 1
            while end < len(other) and other[end] == 1 and (stop == len(shape) or shape[stop] != 1):
                end += 1
            groups.append((range(start, stop), range(begin, end)))
            start, begin = stop, end
    if start < stop or begin < end:
        groups.append((range(start, stop), range(begin, end)))
    made: list[Any] = []
    parts: list[tuple[list[int], list[int]] | None] = []
    for dims, targets in groups:
        if len(dims) == len(targets) == 1:
            dim = blocks[dims[0]]
            made.append(1 if size_of(dim) is None else dim)
            parts.append(None)
            continue
        if any(not (blocks[dim] is None or isinstance(blocks[dim], (int, Blocked, Squeezed))) for dim in dims):
            return None
        before = _divided([shape[dim] for dim in dims], math.prod(sizes([blocks[dim] for dim in dims])))
        after = _divided([other[dim] for dim in targets], math.prod(sizes([blocks[dim] for dim in dims])))
        if before is None or after is None or before != sizes([blocks[dim] for dim in dims]):
            return None
        made += after
        parts.append(([shape[d] // n for d, n in zip(dims, before)], [other[d] // n for d, n in zip(targets, after)]))

    def index(index):
        found: list[Any] = []
        for (dims, _), counts in zip(groups, parts):
            if counts is None:
                found.append(index[dims[0]])
                continue
            number: Any = 0
            for dim, count in zip(dims, counts[0]):
                number = number * count + index[dim]
            own: list[Any] = []
            for count in reversed(counts[1]):
                own.append(number % count if count > 1 else 0)
                number = number // count
            found += own[::-1]
        return tuple(found)

    return made, index


def _divided(shape, count):
    """The block of `count` elements that follow each other in an array of this shape; None if there is none."""
    found = []
    for size in reversed(shape):
        if count % size and size % count:
            return None
        found.append(min(size, count))
        count = max(1, count // size)
    return found[::-1]


def _shifted(eqn, wanted, starts):
    """A block as far behind as `starts`, integers, or functions to scalars."""
    blocks = _counted(eqn, wanted)
    for start, size in zip(starts, sizes(blocks)):
        if isinstance(start, int) and start % size:
            _refuse(eqn, f"begins at {start}, within a block of {size}")

    def index(index):
        found = []
        for number, start, size in zip(index, starts, sizes(blocks)):
            start = start if isinstance(start, int) else start()
            found.append(number + start // size)
        return tuple(found)

    return wanted.moved(blocks, index)


def _slice(eqn, wanted, scalar):
    if any(step != 1 for step in eqn.params["strides"] or ()):
        _refuse(eqn, "has strides")
    return [_shifted(eqn, wanted, [int(start) for start in eqn.params["start_indices"]])]


def _dynamic_slice(eqn, wanted, scalar):
    """Starts are taken for those of blocks where they are not known before."""
    limits = [of - size for of, size in zip(eqn.invars[0].aval.shape, eqn.params["slice_sizes"])]
    starts: list[Any] = []
    for atom, limit in zip(eqn.invars[1:], limits):
        if isinstance(atom, Literal) or not limit:
            starts.append(min(max(int(atom.val), 0), limit) if limit else 0)
        else:
            starts.append(functools.partial(_within, scalar(atom), limit))
    return [_shifted(eqn, wanted, starts), *[BlockIndexTransform((), lambda *given: ())] * len(limits)]


def _within(value, limit):
    return clip(value(), 0, limit)


def _concatenate(eqn, wanted, scalar):
    """Of all parts a block: the one that the result's is of, if it is within one, else the whole."""
    axis, lengths = eqn.params["dimension"], [atom.aval.shape[eqn.params["dimension"]] for atom in eqn.invars]
    blocks = list(_counted(eqn, wanted))
    size, found, first = sizes(blocks)[axis], [], 0
    if size == sum(lengths) and blocks[axis] is not None:
        for length in lengths:
            blocks[axis] = length
            found.append(wanted.moved(blocks, lambda index: (*index[:axis], 0, *index[axis + 1 :])))
        return found
    if any(length % size for length in lengths):
        _refuse(eqn, f"has parts of {lengths}, no multiples of a block of {size}")
    for length in lengths:
        count = length // size

        def index(index, first=first, count=count):
            number = index[axis] - first
            within = min(max(number, 0), count - 1) if isinstance(number, int) else clip(number, 0, count - 1)
            return (*index[:axis], within, *index[axis + 1 :])

        found.append(wanted.moved(blocks, index))
        first += count
    return found


def _reduce(eqn, wanted, scalar):
    axes, source = tuple(eqn.params["axes"]), eqn.invars[0].aval.shape
    kept = [dim for dim in range(len(source)) if dim not in axes]
    places = {dim: place for place, dim in enumerate(kept)}
    blocks = [source[dim] if dim in axes else wanted.block_shape[places[dim]] for dim in range(len(source))]
    return [wanted.moved(blocks, lambda index: _at(index, places, len(source)))]


def _nothing(eqn, wanted, scalar):
    return []


# How a block is computed: `(eqn, values, blocks, index)`, of the operands' blocks, the shapes of all blocks, operands'
# first, and the index of the result's.


def _compute_broadcast(eqn, values, blocks, index):
    *_, block = blocks
    places = eqn.params["broadcast_dimensions"]
    there = [dim for dim in range(len(block)) if size_of(block[dim]) is not None]
    kept = [there.index(place) for place in places if place in there]
    return broadcast_in_dim(values[0], seen(block), kept)


def _compute_transpose(eqn, values, blocks, index):
    source, _ = blocks
    there = [dim for dim in range(len(source)) if size_of(source[dim]) is not None]
    return transpose(values[0], [there.index(dim) for dim in eqn.params["permutation"] if dim in there])


def _compute_reshape(eqn, values, blocks, index):
    return reshape(values[0], seen(blocks[-1]))


def _compute_same(eqn, values, blocks, index):
    return values[0]


def _compute_concatenate(eqn, values, blocks, index):
    axis, block = eqn.params["dimension"], blocks[-1]
    lengths = [atom.aval.shape[axis] for atom in eqn.invars]
    size = sizes(block)[axis]
    if size == sum(lengths) and block[axis] is not None:
        return concatenate(values, sum(size_of(dim) is not None for dim in block[:axis]))
    found, end = values[-1], sum(lengths)
    for value, length in zip(values[-2::-1], lengths[:0:-1]):
        end -= length
        found = where(index[axis] < end // size, value, found)
    return found


def _compute_reduce(eqn, values, blocks, index):
    source = blocks[0]
    there = [dim for dim in range(len(source)) if size_of(source[dim]) is not None]
    axes = tuple(there.index(axis) for axis in eqn.params["axes"])
    return eqn.primitive.bind(*values, **(eqn.primitive.get_bind_params(eqn.params) | {"axes": axes}))


def _compute_iota(eqn, values, blocks, index):
    (block,), dim = blocks, eqn.params["dimension"]
    dtype = eqn.outvars[0].aval.dtype
    first = as_array(index[dim] * sizes(block)[dim]).astype(dtype)
    if size_of(block[dim]) is None:
        return broadcast_in_dim(first, seen(block), ())
    place = sum(size_of(other) is not None for other in block[:dim])
    return broadcasted_iota(dtype, seen(block), place) + first


PULL: dict[str, Any] = {
    "broadcast_in_dim": _broadcast_in_dim, "concatenate": _concatenate, "dynamic_slice": _dynamic_slice,
    "expand_dims": _reshape, "iota": _nothing, "reshape": _reshape, "slice": _slice, "squeeze": _squeeze,
    "transpose": _transpose,
}  # fmt: skip
PULL |= dict.fromkeys(("argmax", "argmin", "reduce_and", "reduce_max", "reduce_min", "reduce_or", "reduce_prod",
                       "reduce_sum"), _reduce)  # fmt: skip
COMPUTE: dict[str, Any] = {
    "broadcast_in_dim": _compute_broadcast, "concatenate": _compute_concatenate, "dynamic_slice": _compute_same,
    "expand_dims": _compute_reshape, "iota": _compute_iota, "reshape": _compute_reshape, "slice": _compute_same,
    "squeeze": _compute_reshape, "transpose": _compute_transpose,
}  # fmt: skip
COMPUTE |= {name: _compute_reduce for name, rule in PULL.items() if rule is _reduce}
