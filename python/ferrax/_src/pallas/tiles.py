"""What all steps of a grid hold at once: arrays that are not cut into blocks, and which parts of them steps see.

A `Tiled` stands for one array of `shape` at each step. Its `array` has first an axis for each axis of the grid in
`front`, then the dimensions of `shape`, of which each is one of these:

- in `tiles`, by `(axis, stride)`: the step `i` along that axis of the grid sees the elements from `i * stride` on. So
  windows overlap where they are longer than the stride;
- of length 1: all elements are that one;
- as long as in `shape`.

`Unflat` is raised where arrays cannot be held so; the grid is then run block by block (`run`).
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from ferrax._src.lax.shape import broadcast_in_dim, reshape
from ferrax._src.lax.slicing import slice as lax_slice
from ferrax._src.numpy.shape import moveaxis


class Unflat(Exception):
    """What steps hold is no part of one array, or no operation is known that computes all of it at once."""


class Tiled(NamedTuple):
    array: Any
    shape: tuple[int, ...]
    front: tuple[int, ...] = ()
    tiles: dict[int, tuple[int, int]] = {}

    @property
    def is_uniform(self) -> bool:
        """Whether all steps hold the same."""
        return not self.front and not self.tiles


class Extents(NamedTuple):
    """`sizes`: of the grid's axes. `steps`: how many steps there are along an axis, where the last is a fraction if
    only so much of what it computes is kept."""

    sizes: dict[int, int]
    steps: dict[int, Fraction]

    def of(self, axis: int, stride: int, size: int) -> int:
        """How many elements all steps along an axis see of a dimension. Errors: Unflat if that is no integer."""
        length = self.steps[axis] * stride
        if length.denominator != 1:
            raise Unflat
        return int(length) + size - stride

    def is_whole(self, axis: int) -> bool:
        return self.steps[axis] == self.sizes[axis]


def uniform(array) -> Tiled:
    return Tiled(array, tuple(array.shape))


def filled(value: Tiled, dims: Any = None) -> Tiled:
    """The same with dimensions, all of them or these, that are not of length 1 for being all alike."""
    first = len(value.front)
    shape = list(value.array.shape)
    for dim in range(len(value.shape)) if dims is None else dims:
        if dim not in value.tiles:
            shape[first + dim] = value.shape[dim]
    return value._replace(array=spread(value.array, shape))


def spread(array, shape):
    """The array with axes of length 1 repeated."""
    if tuple(array.shape) == tuple(shape):
        return array
    return broadcast_in_dim(array, tuple(shape), tuple(range(len(shape))))


def cut(array, dim: int, start: int, stop: int, stride: int = 1):
    """The elements of one dimension from `start` to `stop`."""
    if (start, stop, stride) == (0, array.shape[dim], 1):
        return array
    starts, limits, strides = [0] * array.ndim, list(array.shape), [1] * array.ndim
    starts[dim], limits[dim], strides[dim] = start, stop, stride
    return lax_slice(array, starts, limits, strides)


def to_front(value: Tiled, dim: int, extents: Extents) -> Tiled:
    """A dimension that is divided among steps with the steps in front. Errors: Unflat for windows that overlap, and
    where the last step is not whole."""
    axis, stride = value.tiles[dim]
    if stride != value.shape[dim] or not extents.is_whole(axis):
        raise Unflat
    place = len(value.front) + dim
    shape = list(value.array.shape)
    shape[place : place + 1] = [extents.sizes[axis], stride]
    front = tuple(sorted((*value.front, axis)))
    array = moveaxis(reshape(value.array, shape), place, front.index(axis))
    return Tiled(array, value.shape, front, {d: tile for d, tile in value.tiles.items() if d != dim})


def to_tile(value: Tiled, dim: int, tile: tuple[int, int], extents: Extents) -> Tiled:
    """A dimension divided among steps, as `tile` says. Errors: Unflat if steps hold their own of what they share."""
    axis, stride = tile
    if value.tiles.get(dim) == tile:
        return value
    if dim in value.tiles or stride != value.shape[dim]:
        raise Unflat
    size = extents.sizes[axis]
    array, front = filled(value, [dim]).array, value.front
    if axis in front:
        array = moveaxis(array, front.index(axis), len(front) - 1 + dim)
        front = tuple(other for other in front if other != axis)
    else:
        place = len(front) + dim
        kept = [number for number in range(array.ndim + 1) if number != place]
        array = broadcast_in_dim(array, (*array.shape[:place], size, *array.shape[place:]), kept)
    place = len(front) + dim
    shape = list(array.shape)
    shape[place : place + 2] = [size * stride]
    array = cut(reshape(array, shape), place, 0, extents.of(axis, stride, stride))
    return Tiled(array, value.shape, front, value.tiles | {dim: tile})


def aligned(values: Sequence[Tiled], shape: tuple[int, ...], extents: Extents) -> tuple[list[Any], Tiled]:
    """Arrays that an elementwise operation takes for values of this shape, or scalars, and what its result is like, but
    for the array. Errors: Unflat if windows differ."""
    tiles: dict[int, tuple[int, int]] = {}
    for value in values:
        for dim, tile in value.tiles.items():
            if tiles.setdefault(dim, tile) != tile:
                raise Unflat
    tiled = [axis for axis, _ in tiles.values()]
    if len(set(tiled)) != len(tiled):
        raise Unflat
    front = tuple(sorted({axis for value in values for axis in value.front} - set(tiled)))
    arrays = [_with_front(value, shape, front, tiles, extents) for value in values]
    target = [max(sizes) for sizes in zip(*(array.shape for array in arrays if array.ndim))]
    return [spread(array, target) if array.ndim else array for array in arrays], Tiled(None, shape, front, tiles)


def _with_front(value, shape, front, tiles, extents):
    if not value.shape and value.is_uniform:
        return value.array
    if not value.shape and shape:
        array = reshape(value.array, (*value.array.shape, *[1] * len(shape)))
        value = Tiled(array, shape, value.front, {})
    first = len(value.front)
    for dim, tile in tiles.items():
        is_alike = value.array.shape[first + dim] == 1 and dim not in value.tiles
        if tile[0] in value.front or not is_alike:
            value = to_tile(value, dim, tile, extents)
            first = len(value.front)
    sizes = [extents.sizes[axis] if axis in value.front else 1 for axis in front]
    return reshape(value.array, (*sizes, *value.array.shape[first:]))
