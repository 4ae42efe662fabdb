"""Arrays put over the devices of several processes: values that all have, and arrays laid out anew.

Each function is called by all processes that have devices in the shardings. A layout is changed by pieces: what a tile
of the new one shares with a tile of the old one. A process takes pieces from its own memory where it can, else from
one of those that hold them, once for all its devices; those for one process are one message.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ferrax import _core
from ferrax._src.base import config, dtypes
from ferrax._src.core import placement
from ferrax._src.core.devices import Device
from ferrax._src.core.global_array import GlobalArray, of_parts, spread
from ferrax._src.core.mesh import on_apart
from ferrax._src.core.parts import parts_of
from ferrax._src.core.placements import alias, place, placement as placement_of
from ferrax._src.core.sharding import Sharding, SingleDeviceSharding
from ferrax._src.core.values import Array, ensure_compile_time_eval
from ferrax._src.parallel import algorithms, ranks
from ferrax._src.parallel.algorithms import Plan

Tile = tuple[int, ...]
Box = tuple[Any, ...]


def members_of(*shardings: Sharding) -> list[int]:
    """The processes that have devices of shardings."""
    return sorted({device.process_index for sharding in shardings for device in sharding._device_assignment})


def put_over_processes(array: Any, sharding: Sharding) -> Any:
    """An array where a sharding over several processes, or over devices with memories of their own, says; what
    `device_put` does then.

    Of an array of this process alone all processes pass the same value. Errors: AssertionError if they do not.
    """
    source, committed = placement_of(array)
    # What nobody put anywhere is where the mesh in use is.
    if committed and not source.is_fully_addressable or type(array) is GlobalArray:
        if isinstance(sharding, SingleDeviceSharding) and not source.is_fully_addressable:
            raise ValueError(
                f"device_put: an array over several processes is put over devices of these, not on {sharding}, "
                "which one of them has; its parts are in addressable_shards"
            )
        return relaid(array, sharding)
    check_same(array, sharding)
    return spread(array, sharding)


def check_same(array: Array, sharding: Sharding) -> None:
    """Errors: AssertionError unless all processes of a sharding have arrays of the same bits."""
    joined = ranks.current()
    members = members_of(sharding)
    if joined.process not in members or len(members) == 1:
        return
    value = _plain(array)
    mine = np.frombuffer(hashlib.blake2b(np.ascontiguousarray(value).tobytes(), digest_size=16).digest(), np.uint8)
    what = f"device_put of {array.dtype.name}{list(array.shape)} over processes"
    call = ranks.Call(what, _core.user_location(), members)
    plan = algorithms.all_gather(members, members.index(joined.process), mine, [16] * len(members))
    found = joined.run(call, plan)
    digests = found.reshape(len(members), 16)
    others = [process for process, theirs in zip(members, digests) if (theirs != mine).any()]
    if others:
        raise AssertionError(
            f"{what}: the value is not the same in each process: processes {others} have others than process "
            f"{joined.process}. Parts that differ are put together by make_array_from_process_local_data"
        )


def relaid(array: Any, target: Sharding) -> Any:
    """An array over several processes, or several memories, with another sharding, which may have other devices.

    Returns an array that is whole in this process where it holds all tiles then, in one memory.
    """
    source = placement_of(array).sharding
    shape = tuple(array.shape)
    target.shard_shape(shape)
    if type(array) is GlobalArray and source.is_fully_addressable and source.is_equivalent_to(target, len(shape)):
        return of_parts(shape, target, dict(array.parts()), array.dtype, array.weak_type)
    joined = ranks.current()
    tiles: dict[Tile, np.ndarray] = {}
    numbers = dict(zip(source._device_assignment, source._tile_numbers(len(shape))))
    for device, part in array.parts() if type(array) is GlobalArray else parts_of(array):
        tiles.setdefault(numbers[device], _plain(part))
    layouts = _Layout(source, shape), _Layout(target, shape)
    what = f"device_put of {array.dtype.name}{list(shape)} over processes"
    call = ranks.Call(what, _core.user_location(), members_of(source, target), (layouts[0].text(), layouts[1].text()))
    dtype, extra = _plain_type(array.dtype)
    found = joined.run(call, _moved(layouts, tiles, dtype, extra, joined.process, joined.processes))
    made: dict[Tile, Array] = {}
    parts = {}
    for device, tile in layouts[1].mine(joined.process):
        if tile not in made:
            made[tile] = array_of(found[tile], array)
        parts[device] = place(alias(made[tile]), SingleDeviceSharding(device, memory_kind=target.memory_kind))
    return of_parts(shape, target, parts, array.dtype, array.weak_type)


class _Layout:
    """The tiles of an array over devices: which processes hold each, in order, and where it is."""

    def __init__(self, sharding: Sharding, shape: tuple[int, ...]) -> None:
        self.sizes = sharding.shard_shape(shape)
        self.counts = sharding._parts(len(shape))
        self.devices = list(zip(sharding._device_assignment, sharding._tile_numbers(len(shape))))
        self.holders: dict[Tile, list[int]] = {}
        for device, tile in self.devices:
            there = self.holders.setdefault(tile, [])
            if device.process_index not in there:
                there.append(device.process_index)

    def text(self) -> str:
        return f"{self.counts} {self.holders}"

    def mine(self, process: int) -> list[tuple[Device, Tile]]:
        return [(device, tile) for device, tile in self.devices if device.process_index == process]

    def box(self, tile: Tile) -> list[tuple[int, int]]:
        return [(number * size, (number + 1) * size) for number, size in zip(tile, self.sizes)]

    def overlapping(self, box: Sequence[tuple[int, int]]) -> Iterator[Tile]:
        """The tiles that have something of a box."""
        ranges = [
            range(start // size, -(-stop // size)) if size else range(0) for (start, stop), size in zip(box, self.sizes)
        ]
        return itertools.product(*ranges)


def _piece(tile: Sequence[tuple[int, int]], box: Sequence[tuple[int, int]]) -> tuple[Box, Box]:
    """What a tile and a box share: its place in the tile, and in the box. What is there of an array is a view, also of
    one without axes."""
    shared = [(max(a, c), min(b, d)) for (a, b), (c, d) in zip(tile, box)]
    return (
        (*(slice(low - first, high - first) for (low, high), (first, _) in zip(shared, tile)), ...),
        (*(slice(low - first, high - first) for (low, high), (first, _) in zip(shared, box)), ...),
    )


def _moved(
    layouts: tuple[_Layout, _Layout],
    tiles: dict[Tile, np.ndarray],
    dtype: np.dtype[Any],
    extra: tuple[int, ...],
    process: int,
    processes: int,
) -> Plan[dict[Tile, np.ndarray]]:
    """The tiles of the new layout that this process holds, from those of the old one that all hold."""
    old, new = layouts
    sends: dict[int, list[np.ndarray]] = {}
    awaited: dict[int, list[np.ndarray]] = {}
    result = {tile: np.empty((*new.sizes, *extra), dtype) for _, tile in new.mine(process)}
    copies = []
    for tile, receivers in new.holders.items():
        box = new.box(tile)
        for source in old.overlapping(box):
            holders = old.holders[source]
            if process not in holders and process not in receivers:
                continue
            there, here = _piece(old.box(source), box)
            for receiver in receivers:
                sender = receiver if receiver in holders else holders[receiver % len(holders)]
                if sender == receiver == process:
                    copies.append((result[tile][here], tiles[source][there]))
                elif sender == process:
                    sends.setdefault(receiver, []).append(tiles[source][there])
                elif receiver == process:
                    awaited.setdefault(sender, []).append(result[tile][here])
    for into, piece in copies:
        into[...] = piece
    receives = {peer: np.empty(sum(piece.size for piece in pieces), dtype) for peer, pieces in awaited.items()}
    packed = {peer: np.concatenate([piece.reshape(-1) for piece in pieces]) for peer, pieces in sends.items()}
    yield from algorithms.routed(process, processes, packed, receives)
    for peer, pieces in awaited.items():
        start = 0
        for piece in pieces:
            piece[...] = receives[peer][start : start + piece.size].reshape(piece.shape)
            start += piece.size
    return result


def _plain(array: Any) -> np.ndarray:
    """The elements; of keys their words."""
    if dtypes.issubdtype(array.dtype, dtypes.extended):
        with ensure_compile_time_eval():
            return np.asarray(_core.bind("random_unwrap", (array,), {}))
    return np.asarray(array)


def _plain_type(dtype: Any) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """The dtype and further axes of the elements; of keys their words."""
    if dtypes.issubdtype(dtype, dtypes.extended):
        return np.dtype(np.uint32), tuple(dtype._impl.key_shape)
    return np.dtype(dtype), ()


def array_of(value: np.ndarray, like: Any) -> Array:
    """The array of elements, or of keys of words, of the dtype of another."""
    with ensure_compile_time_eval(), config.enable_x64(True):
        found = _core.array_from_numpy(np.asarray(value, order="C"), bool(like.weak_type))
        if dtypes.issubdtype(like.dtype, dtypes.extended):
            return _core.bind("random_wrap", (found,), {"impl": like.dtype._native[1]})
        return found


# Called when processes are joined, or devices apart are first used, for those that let their functions reach arrays
# over them.
at_joining: list[Callable[[], None]] = []


def install() -> None:
    """Lets `device_put`, and what waits for it, reach devices of other processes, which are joined from now on, and
    those with memories of their own."""
    if placement.over_processes is None:
        placement.over_processes = put_over_processes
        for ready in at_joining:
            ready()


def installed() -> bool:
    """Whether there may be arrays that lie apart."""
    return placement.over_processes is not None


on_apart.append(install)
