"""Groups of devices as a process sees them: which processes exchange what, worked out once for each grouping.

Processes that several groups join alike exchange one message for all these groups.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from ferrax._src.parallel.folds import Node, nodes

Groups = tuple[tuple[int, ...], ...]

# Of at most so many bytes, fewer messages are worth more than fewer bytes.
SMALL = 16 << 10


@functools.lru_cache(256)
def check_groups(groups: Groups, devices: int) -> None:
    """Errors: ValueError unless groups have each of the devices once."""
    numbers = sorted(number for group in groups for number in group)
    if numbers != list(range(devices)):
        raise ValueError(
            f"exchange: groups must have each of the devices 0 to {devices - 1} once, got {[list(g) for g in groups]}"
        )


class Here(NamedTuple):
    """Groups, as process `process` sees them, which has `each` devices."""

    groups: Groups
    each: int
    process: int
    processes: int

    def owners(self, group: int) -> tuple[int, ...]:
        return tuple(device // self.each for device in self.groups[group])

    def frame(self, group: int, place: int) -> int:
        """The frame of its process that a device is."""
        return self.groups[group][place] % self.each

    def size(self) -> int:
        """The size that all groups have. Errors: ValueError if they have several."""
        sizes = {len(group) for group in self.groups}
        if len(sizes) > 1:
            raise ValueError(f"exchange: groups must be of one size here, got {sorted(sizes)}")
        return sizes.pop()


class Class(NamedTuple):
    """Groups whose processes exchange alike, and so as one.

    Even: in each group each of the members, a power of two of them, has one subtree of one size, in this order. Else
    members are sorted, and `parts` are the subtrees that each has, group after group.
    """

    groups: tuple[int, ...]
    members: tuple[int, ...]
    even: bool
    parts: dict[int, list[tuple[int, Node]]]


@functools.lru_cache(256)
def places_of(here: Here) -> list[tuple[int, int]]:
    """For each of this process's devices: the number of its group, and its place in it."""
    first = here.process * here.each
    found = {}
    for number, group in enumerate(here.groups):
        for place, device in enumerate(group):
            if first <= device < first + here.each:
                found[device] = number, place
    return [found[first + frame] for frame in range(here.each)]


@functools.lru_cache(256)
def peers(groups: Groups, process: int, each: int) -> tuple[int, ...]:
    """The processes that have devices in groups with those of this one."""
    owners = [{device // each for device in group} for group in groups]
    return tuple(sorted(set().union(*(there for there in owners if process in there))))


@functools.lru_cache(256)
def classes_of(here: Here) -> tuple[Class, ...]:
    """The classes of groups that this process is in, which all processes have in one order."""
    found: dict[Any, list[int]] = {}
    cut = {}
    for number in range(len(here.groups)):
        owners = here.owners(number)
        if here.process not in owners:
            continue
        cut[number] = nodes(owners)
        order = tuple(owner for owner, _ in cut[number])
        sizes = {stop - start for _, (start, stop) in cut[number]}
        count = len(order)
        even = len(set(order)) == count and len(sizes) == 1 and count & (count - 1) == 0
        members = order if even else tuple(sorted(set(owners)))
        found.setdefault((members, even, sizes.pop() if even else 0), []).append(number)
    classes = []
    for (members, even, _), numbers in found.items():
        parts: dict[int, list[tuple[int, Node]]] = {member: [] for member in members}
        for number in numbers:
            for owner, node in cut[number]:
                parts[owner].append((number, node))
        classes.append(Class(tuple(numbers), members, even, parts))
    return tuple(classes)


@functools.lru_cache(256)
def gathering(here: Here) -> list[tuple[tuple[int, ...], list[int], dict[int, list[int]]]]:
    """Groups by the processes that they join: these, the groups, and which frames each has in any of them."""
    found: dict[tuple[int, ...], list[int]] = {}
    for number in range(len(here.groups)):
        members = tuple(sorted(set(here.owners(number))))
        if here.process in members:
            found.setdefault(members, []).append(number)
    gathering = []
    for members, groups in found.items():
        held: dict[int, list[int]] = {member: [] for member in members}
        for group in groups:
            for device in here.groups[group]:
                held[device // here.each].append(device % here.each)
        gathering.append((members, groups, {member: sorted(frames) for member, frames in held.items()}))
    return gathering


def check_cut(kind, shape, axis, size, tiled) -> None:
    fits = 0 <= axis < len(shape) and (shape[axis] % size == 0 if tiled else shape[axis] == size)
    if not fits:
        wanted = f"that {size} divides" if tiled else f"of size {size}"
        raise ValueError(f"{kind}: over {size} devices frames need an axis {axis} {wanted}, got shape {tuple(shape)}")


def bytes_of(array: np.ndarray) -> np.ndarray:
    """The memory of a contiguous array."""
    return array.reshape(-1).view(np.uint8)


def shared(results: list[np.ndarray]) -> np.ndarray:
    """Frames of these contents: one memory if all are the same array."""
    first = results[0]
    if len(results) == 1:
        return first[None]
    if all(result is first for result in results[1:]):
        return np.broadcast_to(first, (len(results), *first.shape))
    return np.stack(results)


def is_run(numbers: list[int]) -> bool:
    return numbers == list(range(numbers[0], numbers[0] + len(numbers)))


def rows_of(frames: np.ndarray, chosen: list[int]) -> np.ndarray:
    """Some of the frames, where they are if they are neighbours."""
    return frames[chosen[0] : chosen[-1] + 1] if is_run(chosen) else frames[chosen]
