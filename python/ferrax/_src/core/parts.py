"""Parts of arrays: what each device of a sharding holds, taken from the whole and put together to one.

The processor's devices have one memory, in which an array lies once and whole, however it is divided. So a part is
a copy of some of the elements (of a sum over devices, which lies there as the total, zeros where another device holds
an element: `sum_terms`), and an array that is made of parts has those of the first device for each tile, a sum over
devices the sum of theirs. Cost: the elements of the part; of all parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ferrax import _core
from ferrax._src.base import config, dtypes
from ferrax._src.core.devices import Device
from ferrax._src.core.placements import alias, place, placement, terms_of
from ferrax._src.core.sharding import Index, NamedSharding, Sharding, SingleDeviceSharding
from ferrax._src.core.sum_terms import term
from ferrax._src.core.values import Array, ensure_compile_time_eval


def part_of(array: Array, sharding: Sharding, device: Device, index: Index) -> Array:
    """The part of an array with this sharding that a device holds, as an array on that device alone."""
    with ensure_compile_time_eval():
        # Operations on the array itself would look where it is.
        found = _core.place_at(alias(array), 0, True)
        if any(cut != slice(None) for cut in index):
            params = {
                "start_indices": tuple(cut.start or 0 for cut in index),
                "limit_indices": tuple(size if cut.stop is None else cut.stop for cut, size in zip(index, array.shape)),
                "strides": None,
            }
            found = _core.bind("slice", (found,), params)
        if isinstance(sharding, NamedSharding) and sharding.spec.unreduced:
            terms = terms_of(_core.place_of(array)) if placement(array).sharding == sharding else None
            held = term(np.asarray(found), sharding, terms, device, index, array.shape)
            found = _from_numpy(held, found.weak_type)
        return place(found, SingleDeviceSharding(device, memory_kind=sharding.memory_kind))


def parts_of(array: Array) -> list[tuple[Device, Array]]:
    """For each of this process's devices the part that it holds, in the order of the sharding."""
    sharding = placement(array).sharding
    if sharding.num_devices == 1 and sharding.is_fully_addressable:
        return [(sharding._device_assignment[0], array)]
    indices = sharding.addressable_devices_indices_map(array.shape)
    devices = sharding._addressable_device_assignment
    return [(device, part_of(array, sharding, device, indices[device])) for device in devices]


def joined(shape: Sequence[int], sharding: Sharding, parts: dict[Device, Array]) -> Array:
    """The array of this shape that parts of equal types make. Of several that hold a tile, or a term of a sum over
    devices, the first one's is taken: of an array that is one tile it is the array, and nothing is copied."""
    return place(assembled(shape, sharding, parts), sharding)


def assembled(shape: Sequence[int], sharding: Sharding, parts: dict[Device, Array]) -> Array:
    """As `joined`, an array that nobody has put where the sharding says."""
    with ensure_compile_time_eval():
        summed = isinstance(sharding, NamedSharding) and sharding.spec.unreduced
        if not summed and sharding.shard_shape(tuple(shape)) == tuple(shape):
            return alias(parts[sharding._addressable_device_assignment[0]])
        some = next(iter(parts.values()))
        if dtypes.issubdtype(some.dtype, dtypes.extended):
            words = {device: _core.bind("random_unwrap", (part,), {}) for device, part in parts.items()}
            size = next(iter(words.values())).shape[-1]
            whole = _assembled((*shape, size), sharding, shape, words)
            return _core.bind("random_wrap", (whole,), {"impl": some.dtype._native[1]})
        return _assembled(shape, sharding, shape, parts)


def _assembled(whole_shape, sharding, shape, parts) -> Array:
    some = next(iter(parts.values()))
    indices = sharding.addressable_devices_indices_map(tuple(shape))
    if isinstance(sharding, NamedSharding) and sharding.spec.unreduced:
        return _from_numpy(_total(whole_shape, sharding, indices, parts), some.weak_type)
    whole = np.empty(tuple(whole_shape), np.asarray(some).dtype)
    for device in reversed(sharding._addressable_device_assignment):
        whole[indices[device]] = np.asarray(parts[device])
    return _from_numpy(whole, some.weak_type)


def _total(whole_shape, sharding, indices, parts) -> np.ndarray:
    """The sum over devices, tile by tile, of one of the devices that hold the same term."""
    terms: dict[Any, Device] = {}
    for device in sharding._addressable_device_assignment:
        place = tuple(sharding._place_along_sum(device).values())
        terms.setdefault((str(indices[device]), place), device)
    whole = np.zeros(tuple(whole_shape), np.asarray(next(iter(parts.values()))).dtype)
    for device in terms.values():
        whole[indices[device]] += np.asarray(parts[device])
    return whole


def _from_numpy(values: np.ndarray, weak_type: bool) -> Array:
    with config.enable_x64(True):
        return _core.array_from_numpy(values, weak_type)
