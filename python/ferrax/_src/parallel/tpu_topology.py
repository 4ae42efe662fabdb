"""Devices of a TPU slice in the order in which the axes of a mesh should have them.

What goes in are devices that say where they are (`coords`, `core_on_chip`, `process_index`) and the shape of a mesh;
what comes out is an array of them, of that shape. Each axis of the mesh goes over whole axes of the torus that chips
form, the last one, which communicates most, over as many as it can; it may get parts of them where that is allowed.
Chips of a small plane have no links around it: one that is used as a line is gone through in a ring, as are two by two
chips of two devices each. Cost: the devices, times the ways of dividing an axis, which are few.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

# Kinds whose planes of chips have no links around, and those whose chips are in trays of two by two.
_PLANES = ("TPU v4 lite", "TPU v5 lite", "TPU v5e", "TPU v6 lite", "TPU v6e")
_TRAYS = ("TPU v2", "TPU v3")
# The largest plane that has a ring through all of its chips alone.
_RING = 4


def is_tpu(device: Any) -> bool:
    """Whether a device is one of a TPU, which says where it is."""
    return getattr(device, "platform", None) == "tpu" and hasattr(device, "coords")


def arranged(
    sizes: tuple[int, ...], devices: Sequence[Any], function: str, split: bool, contiguous: bool
) -> np.ndarray:
    """The devices as an array of these sizes, of as many places.

    Args: split: whether several axes of the mesh may share one of the torus; contiguous: whether the devices of each
    process have to form a box of the mesh.

    Errors: ValueError for devices that fill no box; NotImplementedError where axes would have to be shared.
    """
    box = _box(devices, function)
    if contiguous:
        return _laid_out(box, _assigned(box.shape, sizes, split=False, function=function), sizes, _local(box))
    line = _ring(box, devices[0].device_kind, sizes)
    if line is not None:
        return line.reshape(sizes)
    return _laid_out(box, _assigned(box.shape, sizes, split, function), sizes, (1,) * box.ndim)


def _box(devices, function) -> np.ndarray:
    """The devices by coordinates x, y, z and, where chips have several, core."""
    places = np.array([(*device.coords, device.core_on_chip) for device in devices])
    places -= places.min(0)
    shape = tuple(int(size) for size in places.max(0) + 1)
    box = np.full(shape, None, object)
    for place, device in zip(places, devices):
        box[tuple(place)] = device
    if math.prod(shape) != len(devices) or any(device is None for device in box.flat):
        raise ValueError(
            f"{function}: the {len(devices)} devices are no box without gaps: their coordinates reach over "
            f"{' x '.join(map(str, shape))}"
        )
    return box[..., 0] if shape[3] == 1 else box


def _local(box) -> tuple[int, ...]:
    """How many of the devices along each axis belong to one process."""
    first = box.flat[0].process_index
    mine = np.vectorize(lambda device: device.process_index == first, otypes=[bool])(box)
    return tuple(int(size) for size in np.argwhere(mine).max(0) + 1)


# Rings.


def _ring(box, kind, sizes) -> np.ndarray | None:
    """All devices in the order of a ring, or of rings one after the other; None where there is none."""
    x, y, z = box.shape[:3]
    if box.ndim == 4:  # two devices a chip
        if (x, y) == (2, 2):
            return np.array([_cycle(box[:, :, level]) for level in range(z)])
        if sizes[-1] == 8 and z == 1 and not (x % 2 or y % 2) and kind in _TRAYS:
            trays = box.reshape(x // 2, 2, y // 2, 2, 2).transpose(2, 0, 1, 3, 4)
            return np.array([_cycle(tray) for row in trays for tray in row])
    elif z == 1 and min(x, y) >= 2 and max(x, y) <= _RING and y % 2 == 0 and kind in _PLANES:
        if min(x, y) == 2 or sum(size > 1 for size in sizes) == 1:
            return np.array(_cycle(box[:, :, 0]))
    return None


def _cycle(plane) -> list[Any]:
    """The devices of a plane of chips, an even number along its second axis, so that neighbours in the list, and its
    ends, are neighbours in the plane: along the first row, to and fro through the rest of all others, and back along
    the first column."""
    columns, rows = plane.shape[:2]
    way = [(column, 0) for column in range(columns)]
    for row in range(1, rows):
        rest = range(1, columns)
        way += [(column, row) for column in (rest if row % 2 == 0 else reversed(rest))]
    way += [(0, row) for row in reversed(range(1, rows))]
    return [device for place in way for device in np.ravel(plane[place])]


# Axes of the mesh over axes of the torus.


def _assigned(torus: Sequence[int], sizes: Sequence[int], split: bool, function: str) -> list[tuple[int, ...]]:
    """For each axis of the mesh how much it has of each axis of the torus; whole axes, if that is possible."""
    found = _whole(tuple(torus), tuple(sizes))
    if found is not None:
        return found
    if not split:
        raise NotImplementedError(
            f"{function}: a mesh of shape {tuple(sizes)} would divide axes of the torus {tuple(torus)} among its own; "
            "allow_split_physical_axes=True lets it, where contiguous_submeshes is False"
        )
    left, parts = list(torus), []
    for size in reversed(sizes):
        part = min(_divisions(left, size), key=lambda division: _badness(division, torus, left))
        left = [rest // used for rest, used in zip(left, part)]
        parts.append(part)
    return parts[::-1]


def _whole(torus, sizes) -> list[tuple[int, ...]] | None:
    """As `_assigned`, over whole axes; None if there is no way. The last axis chooses first: many axes, of one size."""
    if not sizes:
        return [] if math.prod(torus) == 1 else None
    axes = [axis for axis, size in enumerate(torus) if size > 1]
    for count in reversed(range(len(axes) + 1)):
        for chosen in sorted(itertools.combinations(axes, count), key=lambda some: len({torus[a] for a in some})):
            if math.prod(torus[axis] for axis in chosen) == sizes[-1]:
                part = tuple(size if axis in chosen else 1 for axis, size in enumerate(torus))
                others = _whole(tuple(size // used for size, used in zip(torus, part)), sizes[:-1])
                if others is not None:
                    return [*others, part]
    return None


def _divisions(left: Sequence[int], size: int) -> Iterator[tuple[int, ...]]:
    """All ways of having a part of each axis, as many places together; large parts of the first axes come first."""
    if not left:
        if size == 1:
            yield ()
        return
    for part in range(min(left[0], size), 0, -1):
        if left[0] % part == 0 and size % part == 0:
            yield from ((part, *rest) for rest in _divisions(left[1:], size // part))


def _badness(division, torus, left) -> tuple[int, int, int]:
    """Of how many axes it leaves a rest, then of how few it takes all, then how many others have a part of."""
    taken = sum(part == rest > 1 for part, rest in zip(division, left))
    used = sum(part > 1 for part in division)
    shared = sum(part > 1 and rest < size for part, rest, size in zip(division, left, torus))
    return used - taken, -taken, shared


def _laid_out(box, parts, sizes, local) -> np.ndarray:
    """The box as an array of these sizes, of which each axis has its parts of the box's, `local` of them last."""
    count = len(sizes)
    split, order = [], []
    for axis, size in enumerate(box.shape):
        for part in parts:
            inner = local[axis] if part[axis] == size else 1
            split += [part[axis] // inner, inner]
    for number in range(count):
        places = [2 * (axis * count + number) for axis in range(box.ndim)]
        order += [*places, *(place + 1 for place in places)]
    return box.reshape(split).transpose(order).reshape(sizes)
