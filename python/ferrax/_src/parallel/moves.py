"""Frames moved over groups of devices: all_gather, pbroadcast, all_to_all, ppermute.

What several devices of a process need is sent to it once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from ferrax._src.parallel import algorithms
from ferrax._src.parallel.algorithms import Plan
from ferrax._src.parallel.groups import (
    SMALL,
    Here,
    bytes_of,
    check_cut,
    gathering,
    is_run,
    places_of,
    rows_of,
    shared,
)


def all_gather(kind: str, frames: np.ndarray, here: Here, axis: int = 0, tiled: bool = False) -> Plan[np.ndarray]:
    """Each device gets the frames of its group, along a new axis, or (`tiled`) one after the other along one."""
    here.size()
    classes = gathering(here)
    plans = []
    for members, _, held in classes:
        mine = held[here.process]
        block = frames if mine == list(range(here.each)) else frames[mine]
        sizes = [len(held[member]) * frames[0].nbytes for member in members]
        plans.append(algorithms.all_gather(members, members.index(here.process), bytes_of(block), sizes))
    found = yield from algorithms.together(plans)
    by_group = {}
    for (members, groups, held), whole in zip(classes, found):
        order = [member * here.each + frame for member in members for frame in held[member]]
        rows = whole.view(frames.dtype).reshape(len(order), *frames.shape[1:])
        if axis == 0 and [order] == [list(here.groups[group]) for group in groups]:
            by_group[groups[0]] = rows.reshape(-1, *rows.shape[2:]) if tiled else rows
            continue
        row = {device: place for place, device in enumerate(order)}
        for group in groups:
            parts = [rows[row[device]] for device in here.groups[group]]
            by_group[group] = np.concatenate(parts, axis) if tiled else np.stack(parts, axis)
    return shared([by_group[group] for group, _ in places_of(here)])


def broadcast(kind: str, frames: np.ndarray, here: Here, source: int = 0) -> Plan[np.ndarray]:
    """pbroadcast: each device gets the frame of one place of its group. Large ones are dealt out, then gathered."""
    for devices in here.groups:
        if not 0 <= source < len(devices):
            raise ValueError(f"pbroadcast: a group of {len(devices)} has no place {source}")
    # Groups of the same processes, with the source in the same one.
    classes: dict[tuple[tuple[int, ...], int], list[int]] = {}
    for members, groups, _ in gathering(here):
        for group in groups:
            classes.setdefault((members, here.groups[group][source] // here.each), []).append(group)
    plans, rows = [], []
    for (members, root), groups in classes.items():
        block = np.empty((len(groups), *frames.shape[1:]), frames.dtype)
        if root == here.process:
            block = rows_of(frames, [here.frame(group, source) for group in groups])
        rows.append(block)
        me, place = members.index(here.process), members.index(root)
        deal = len(members) > 2 and block.nbytes > SMALL
        plans.append((algorithms.dealt if deal else algorithms.broadcast)(members, me, place, bytes_of(block)))
    yield from algorithms.together(plans)
    by_group = {group: row for groups, block in zip(classes.values(), rows) for group, row in zip(groups, block)}
    return shared([by_group[group] for group, _ in places_of(here)])


def all_to_all(
    kind: str,
    frames: np.ndarray,
    here: Here,
    split_axis: int = 0,
    concat_axis: int = 0,
    tiled: bool = False,
) -> Plan[np.ndarray]:
    """Frames are cut along an axis into parts, part j goes to device j of the group, and what each gets is joined."""
    size = here.size()
    shape = list(frames.shape[1:])
    check_cut("all_to_all", shape, split_axis, size, tiled)
    cut = frames.reshape(here.each, *shape[:split_axis], size, shape[split_axis] // size, *shape[split_axis + 1 :])
    if not tiled:
        cut = cut.squeeze(split_axis + 2)
    cut = np.moveaxis(cut, split_axis + 1, 1)
    outgoing, incoming = _exchanged(here)
    sends = {
        process: np.stack([cut[frame, place] for frame, place in blocks])
        for process, blocks in outgoing.items()
        if process != here.process
    }
    receives = {
        process: np.empty((len(blocks), *cut.shape[2:]), frames.dtype)
        for process, blocks in incoming.items()
        if process != here.process
    }
    yield from algorithms.routed(here.process, here.processes, sends, receives)
    receives[here.process] = np.stack([cut[frame, place] for frame, place in outgoing[here.process]])
    parts = {key: row for process, keys in incoming.items() for key, row in zip(keys, receives[process])}
    join: Callable[..., np.ndarray] = np.concatenate if tiled else np.stack
    return np.stack([join([parts[frame, place] for place in range(size)], concat_axis) for frame in range(here.each)])


Blocks = dict[int, list[tuple[int, int]]]


@functools.lru_cache(256)
def _exchanged(here: Here) -> tuple[Blocks, Blocks]:
    """What all_to_all sends to each process, as (frame, part) of this one, and gets, as (frame, place of the sender).

    Both sides have the blocks of a message in one order: of the sender's frames, then of receivers' places.
    """
    outgoing: Blocks = {}
    for frame, (group, _) in enumerate(places_of(here)):
        for place, owner in enumerate(here.owners(group)):
            outgoing.setdefault(owner, []).append((frame, place))
    incoming: dict[int, list[tuple[int, int, int, int]]] = {}
    for frame, (group, mine) in enumerate(places_of(here)):
        for place, owner in enumerate(here.owners(group)):
            incoming.setdefault(owner, []).append((here.frame(group, place), mine, frame, place))
    return outgoing, {
        owner: [(frame, place) for _, _, frame, place in sorted(blocks)] for owner, blocks in incoming.items()
    }


def ppermute(kind: str, frames: np.ndarray, here: Here, perm: Sequence[Sequence[int]] = ()) -> Plan[np.ndarray]:
    """The frame of place `source` of each group goes to place `target`, for pairs of these; others get zeros."""
    outgoing, incoming = _permuted(here, tuple((int(source), int(target)) for source, target in perm))
    result = np.empty_like(frames)
    got = {frame for found in incoming.values() for frame in found}
    for frame in range(here.each):
        if frame not in got:
            result[frame] = 0
    sends = {process: rows_of(frames, found) for process, found in outgoing.items() if process != here.process}
    receives = {}
    for process, found in incoming.items():
        if process != here.process:
            # Neighbours in memory are received where they belong.
            whole = result[found[0] : found[-1] + 1]
            receives[process] = whole if is_run(found) else np.empty((len(found), *frames.shape[1:]), frames.dtype)
    yield from algorithms.routed(here.process, here.processes, sends, receives)
    for process, found in incoming.items():
        if process == here.process:
            result[found] = frames[outgoing[process]]
        elif not is_run(found):
            result[found] = receives[process]
    return result


@functools.lru_cache(256)
def _permuted(here: Here, perm: tuple[tuple[int, int], ...]) -> tuple[dict[int, list[int]], dict[int, list[int]]]:
    """Frames that this process sends to each, and those that it gets from each, both in the order of their senders."""
    for places in zip(*perm):
        if len(set(places)) < len(places):
            raise ValueError(f"ppermute: each place may send once and get once, got {list(perm)}")
    outgoing: dict[int, list[int]] = {}
    incoming: dict[int, list[int]] = {}
    for source, target in _moves(here, perm):
        (sender, frame), (receiver, place) = divmod(source, here.each), divmod(target, here.each)
        if sender == here.process:
            outgoing.setdefault(receiver, []).append(frame)
        if receiver == here.process:
            incoming.setdefault(sender, []).append(place)
    return outgoing, incoming


def _moves(here: Here, perm) -> Iterator[tuple[int, int]]:
    moves = []
    for group in here.groups:
        for pair in perm:
            for place in pair:
                if not 0 <= place < len(group):
                    raise ValueError(
                        f"ppermute: a place of a group of {len(group)} is 0 to {len(group) - 1}, got {place}"
                    )
            moves.append((group[pair[0]], group[pair[1]]))
    return iter(sorted(moves))
