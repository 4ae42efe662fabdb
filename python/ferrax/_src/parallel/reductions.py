"""Sums and extrema over groups of devices: psum, pmax, pmin, psum_scatter.

Devices of one process are folded in its memory before anything is sent. Where each process has one subtree of each
group, of one size, and they are a power of two, subtrees are folded by doubling or halving; else each process folds a
part of the elements, of what all send it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ferrax._src.parallel import algorithms
from ferrax._src.parallel.algorithms import Plan
from ferrax._src.parallel.folds import FOLDS, Node, folded, wide
from ferrax._src.parallel.groups import (
    SMALL,
    Class,
    Here,
    bytes_of,
    check_cut,
    classes_of,
    places_of,
    shared,
)


class _Subtrees:
    """Folds of the frames of this process, made where they are asked for; flat."""

    def __init__(self, kind: str, frames: np.ndarray, here: Here) -> None:
        self.fold = FOLDS[kind]
        self.dtype = wide(kind, frames.dtype)
        self.narrow = frames.dtype
        self.frames = frames.reshape(len(frames), math.prod(frames.shape[1:]))
        self.here = here

    def value(self, group: int, node: Node, dtype: np.dtype[Any]) -> np.ndarray:
        low, high = node
        leaves = {
            (place, place + 1): self.frames[self.here.frame(group, place)].astype(dtype, copy=False)
            for place in range(low, high)
        }
        return folded(self.fold, low, high, leaves)

    def sent_as(self, parts: list[tuple[int, Node]]) -> np.dtype[Any]:
        """The dtype that subtrees are sent in: frames that nothing was added to as they are."""
        single = all(high - low == 1 for _, (low, high) in parts)
        return self.narrow if single else self.dtype

    def rows(self, parts: list[tuple[int, Node]], dtype: np.dtype[Any]) -> np.ndarray:
        """Subtrees, one in each row."""
        rows = [self.value(group, node, dtype) for group, node in parts]
        return rows[0][None] if len(rows) == 1 else np.stack(rows)

    def whole(self, group: int, received: dict[tuple[int, Node], np.ndarray]) -> np.ndarray:
        """The fold of a group, of subtrees that processes sent."""
        known = {
            node: row.astype(self.dtype, copy=False) for (number, node), row in received.items() if number == group
        }
        return folded(self.fold, 0, len(self.here.groups[group]), known).astype(self.narrow, copy=False)


def reduce(kind: str, frames: np.ndarray, here: Here) -> Plan[np.ndarray]:
    """psum, pmax, pmin: each device gets the fold of its group."""
    trees = _Subtrees(kind, frames, here)
    classes = classes_of(here)
    found = yield from algorithms.together(
        [(_even_fold if each.even else _mixed_fold)(each, trees) for each in classes]
    )
    by_group = {
        group: row.reshape(frames.shape[1:])
        for each, rows in zip(classes, found)
        for group, row in zip(each.groups, rows)
    }
    return shared([by_group[group] for group, _ in places_of(here)])


def _even_fold(each: Class, trees: _Subtrees) -> Plan[np.ndarray]:
    me = each.members.index(trees.here.process)
    rows = trees.rows(each.parts[trees.here.process], trees.dtype)
    block = rows.reshape(-1)
    if len(each.members) == 1 or block.nbytes <= SMALL:
        block = yield from algorithms.doubling(each.members, me, block, trees.fold)
        return block.reshape(rows.shape).astype(trees.narrow, copy=False)
    part, halved = yield from algorithms.halving(each.members, me, block, trees.fold)
    part = part.astype(trees.narrow, copy=False)
    whole = yield from algorithms.gathered_back(each.members, part, block.size, halved)
    return whole.reshape(rows.shape)


def _mixed_fold(each: Class, trees: _Subtrees) -> Plan[list[np.ndarray]]:
    members = each.members
    process = trees.here.process
    me = members.index(process)
    size = trees.frames.shape[1]
    sent_as = {member: trees.sent_as(each.parts[member]) for member in members}
    rows = trees.rows(each.parts[process], sent_as[process])
    heights = {member: len(each.parts[member]) for member in members}
    total = sum(heights[member] * size * sent_as[member].itemsize for member in members)
    if total <= SMALL:
        # Everybody gets all of it, and folds it.
        sizes = [heights[member] * size * sent_as[member].itemsize for member in members]
        gathered = yield from algorithms.all_gather(members, me, bytes_of(rows), sizes)
        received: dict[tuple[int, Node], np.ndarray] = {}
        for member, block in zip(members, algorithms.cut(gathered, sizes)):
            there = block.view(sent_as[member]).reshape(heights[member], size)
            received.update(zip(each.parts[member], there))
        return [trees.whole(group, received) for group in each.groups]
    # Each folds a range of the elements, and all get all ranges.
    ends = [size * place // len(members) for place in range(len(members) + 1)]
    ranges = dict(zip(members, zip(ends, ends[1:])))
    low, high = ranges[process]
    sends = {
        member: np.ascontiguousarray(rows[:, start:stop])
        for member, (start, stop) in ranges.items()
        if member != process
    }
    receives = {
        member: np.empty((heights[member], high - low), sent_as[member]) for member in members if member != process
    }
    yield from algorithms.routed(process, trees.here.processes, sends, receives)
    receives[process] = rows[:, low:high]
    received = {}
    for member in members:
        received.update(zip(each.parts[member], receives[member]))
    mine = np.concatenate([trees.whole(group, received) for group in each.groups])
    width = len(each.groups) * trees.narrow.itemsize
    sizes = [(stop - start) * width for start, stop in ranges.values()]
    gathered = yield from algorithms.all_gather(members, me, bytes_of(mine), sizes)
    pieces = [block.view(trees.narrow).reshape(len(each.groups), -1) for block in algorithms.cut(gathered, sizes)]
    return list(np.concatenate(pieces, axis=1))


def scatter(kind: str, frames: np.ndarray, here: Here, axis: int = 0, tiled: bool = False) -> Plan[np.ndarray]:
    """psum_scatter: each device gets the part of its group's sum that has its place, along an axis."""
    size = here.size()
    shape = list(frames.shape[1:])
    check_cut("psum_scatter", shape, axis, size, tiled)
    # Parts first: [k, parts, what a part has].
    cut = frames.reshape(here.each, *shape[:axis], size, shape[axis] // size, *shape[axis + 1 :])
    cut = np.ascontiguousarray(np.moveaxis(cut, axis + 1, 1))
    trees = _Subtrees("psum", cut.reshape(here.each, size, -1), here)
    classes = classes_of(here)
    found = yield from algorithms.together(
        [(_even_scatter if each.even else _mixed_scatter)(each, trees, size) for each in classes]
    )
    parts = {key: row for rows in found for key, row in rows.items()}
    part = [*shape[:axis], *([shape[axis] // size] if tiled else []), *shape[axis + 1 :]]
    return np.stack([parts[key] for key in places_of(here)]).reshape(here.each, *part)


def _even_scatter(each: Class, trees: _Subtrees, size: int) -> Plan[dict[tuple[int, int], np.ndarray]]:
    count = len(each.members)
    me = each.members.index(trees.here.process)
    bits = count.bit_length() - 1
    rows = trees.rows(each.parts[trees.here.process], trees.dtype).reshape(len(each.groups), count, size // count, -1)
    # By the members' places, their bits turned around: so the first halving, with a neighbour, sends one piece.
    turned = [int(f"{place:0{bits}b}"[::-1], 2) if bits else 0 for place in range(count)]
    block = np.ascontiguousarray(rows.transpose(1, 0, 2, 3)[turned]).reshape(-1)
    part, _ = yield from algorithms.halving(each.members, me, block, trees.fold)
    part = part.reshape(len(each.groups), size // count, -1).astype(trees.narrow, copy=False)
    first = me * (size // count)
    return {
        (group, first + place): part[row, place]
        for row, group in enumerate(each.groups)
        for place in range(size // count)
    }


def _mixed_scatter(each: Class, trees: _Subtrees, size: int) -> Plan[dict[tuple[int, int], np.ndarray]]:
    here = trees.here
    sent_as = {member: trees.sent_as(each.parts[member]) for member in each.members}
    length = trees.frames.shape[1] // size
    # The places that each process has in each group.
    places = {
        (member, group): [place for place, owner in enumerate(here.owners(group)) if owner == member]
        for member in each.members
        for group in each.groups
    }
    rows = trees.rows(each.parts[here.process], sent_as[here.process]).reshape(-1, size, length)
    pieces = {
        member: [rows[row][places[member, group]] for row, (group, _) in enumerate(each.parts[here.process])]
        for member in each.members
    }
    sends = {member: np.concatenate(found) for member, found in pieces.items() if member != here.process}
    heights = {member: [len(places[here.process, group]) for group, _ in each.parts[member]] for member in each.members}
    receives = {
        member: np.empty((sum(heights[member]), length), sent_as[member])
        for member in each.members
        if member != here.process
    }
    yield from algorithms.routed(here.process, here.processes, sends, receives)
    receives[here.process] = np.concatenate(pieces[here.process])
    received: dict[tuple[int, Node], np.ndarray] = {}
    for member in each.members:
        cuts = np.cumsum(heights[member])[:-1]
        received.update(zip(each.parts[member], np.split(receives[member], cuts)))
    return {
        (group, place): row
        for group in each.groups
        for place, row in zip(places[here.process, group], trees.whole(group, received))
    }
