"""Arrays over the devices of several processes: each process holds the parts of its own devices.

Where the parts of one process make the whole, as where all devices hold it, the array is an `Array` as any other, which
lies in that process's memory once; its sharding says that others have it, too. Else it is a `GlobalArray`, which
knows shape, dtype and sharding, and holds the parts. It is an `Array` to `isinstance`. The native core, which computes
with whole arrays, is told by `__jax_array__` that there is none, so that each operation says so; operators and methods
are jitted functions (`callbacks/global_operators`).
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import numpy as np

from ferrax._src.base.errors import OverProcesses as OverProcesses
from ferrax._src.core import placements
from ferrax._src.core.array import Shard
from ferrax._src.core.avals import Extents, ShapedArray
from ferrax._src.core.devices import Device
from ferrax._src.core.layout import Format, dense
from ferrax._src.core.parts import joined, parts_of
from ferrax._src.core.sharding import Sharding, SingleDeviceSharding
from ferrax._src.core.values import Array, ArrayImpl, register_type


def holds_whole(sharding: Sharding, shape: Sequence[int]) -> bool:
    """Whether this process's devices hold all tiles of an array."""
    if sharding.is_fully_addressable:
        return True
    tiles = sharding._tile_numbers(len(shape))
    mine = sharding.addressable_devices
    held = {numbers for device, numbers in zip(sharding._device_assignment, tiles) if device in mine}
    return len(held) == len(set(tiles))


def of_parts(
    shape: Sequence[int], sharding: Sharding, parts: dict[Device, Array], dtype: Any = None, weak_type: bool = False
) -> Any:
    """The array of this process's parts, each of which is of the sharding's shape. `dtype` and `weak_type` are needed
    without parts, of which else the types are.
    """
    if holds_whole(sharding, shape):
        return joined(shape, sharding, parts)
    weak_type = next((part.weak_type for part in parts.values()), weak_type)
    return GlobalArray(shape, sharding, parts, dtype, weak_type)


def of_copies(shape: Sequence[int], sharding: Sharding, part: Array) -> Any:
    """The array each of whose parts is this one."""
    parts = {
        device: placements.place(placements.alias(part), SingleDeviceSharding(device, memory_kind=sharding.memory_kind))
        for device in sharding._addressable_device_assignment
    }
    return of_parts(shape, sharding, parts, part.dtype, part.weak_type)


def spread(array: Any, sharding: Sharding) -> Any:
    """An array that is whole in this process over devices of several: the parts of this one's are kept of it."""
    if holds_whole(sharding, array.shape):
        return placements.placed(array, sharding)
    whole = placements.placed(array, sharding)
    return GlobalArray(array.shape, sharding, dict(parts_of(whole)), array.dtype, array.weak_type)


class _StandIns(threading.local):
    """By the numbers of their objects, the traced values that arrays are in the function that is being traced."""

    def __init__(self) -> None:
        self.known: dict[int, Any] = {}


_stand_ins = _StandIns()


@contextmanager
def standing_for(arrays: Sequence[Any], values: Sequence[Any]) -> Iterator[None]:
    """A context in which computing with one of these arrays is computing with the value in its place."""
    before = _stand_ins.known
    _stand_ins.known = before | {id(array): value for array, value in zip(arrays, values)}
    try:
        yield
    finally:
        _stand_ins.known = before


class GlobalArray(Extents):
    """An array of which this process holds some parts, and other processes the rest.

    Args: shape: of the whole; sharding: how it is laid out; parts: those of this process's devices, each on its device;
    dtype: of the array, None: of the parts.
    """

    __slots__ = ("shape", "dtype", "weak_type", "_sharding", "_parts", "_deleted", "__weakref__")
    __array_priority__ = 100

    def __init__(
        self,
        shape: Sequence[int],
        sharding: Sharding,
        parts: dict[Device, Array],
        dtype: Any = None,
        weak_type: bool = False,
    ) -> None:
        some = next(iter(parts.values()), None)
        self.shape = tuple(map(int, shape))
        self.dtype = some.dtype if some is not None else np.dtype(dtype)
        self.weak_type = weak_type
        self._sharding = sharding
        self._parts = parts
        self._deleted = False
        placements.number_of(sharding)  # from now on arrays are asked where they are

    # What `isinstance(x, Array)` asks of values whose class is no subclass.
    __class__ = property(lambda self: ArrayImpl)
    __hash__ = None  # type: ignore[assignment]

    @property
    def sharding(self) -> Sharding:
        return self._sharding

    device = sharding

    @property
    def _placement(self) -> placements.Placement:
        return placements.Placement(self._sharding, True)

    @property
    def aval(self) -> ShapedArray:
        return ShapedArray(self.shape, self.dtype, self.weak_type, sharding=placements.explicit_spec(self))

    @property
    def format(self) -> Format:
        return Format(dense(self.ndim), self._sharding)

    committed = _committed = property(lambda self: True)
    is_fully_addressable = is_fully_replicated = property(lambda self: False)

    @property
    def platform(self) -> str:
        return self._sharding._device_assignment[0].platform

    def devices(self) -> set[Device]:
        """The devices that hold the array, of all processes."""
        return self._sharding.device_set

    def on_device_size_in_bytes(self) -> int:
        """The bytes that the elements take, on all devices together."""
        tile = math.prod(self._sharding.shard_shape(self.shape))
        return tile * self.itemsize * self._sharding.num_devices

    def parts(self) -> list[tuple[Device, Array]]:
        """For each of this process's devices the part that it holds, in the order of the sharding."""
        self._check_if_deleted()
        return [(device, self._parts[device]) for device in self._sharding._addressable_device_assignment]

    @property
    def _arrays(self) -> list[Array]:
        return [part for _, part in self.parts()]

    def addressable_data(self, index: int) -> Array:
        """The part of one of this process's devices, in the sharding's order. Errors: IndexError."""
        return self.parts()[index][1]

    @property
    def addressable_shards(self) -> list[Any]:
        """The parts of this process's devices."""
        return shards(self, self.parts())

    @property
    def global_shards(self) -> list[Any]:
        """The parts of all devices, of which those of other processes have no data."""
        return shards(self, all_parts(self._sharding, self.parts()))

    def is_deleted(self) -> bool:
        """Whether `delete` was called."""
        return self._deleted

    def delete(self) -> None:
        """Frees the memory of this process's parts."""
        self._deleted = True
        for part in self._parts.values():
            part.delete()

    def _check_if_deleted(self) -> None:
        if self._deleted:
            raise RuntimeError(f"{self!r} has been deleted: it was deleted or donated")

    def block_until_ready(self) -> GlobalArray:
        """The array itself, whose parts are there."""
        return self

    def copy_to_host_async(self) -> None:
        """Nothing: the parts are in the host's memory."""

    def is_ready(self) -> bool:
        """Whether the elements are there, which they are."""
        return True

    def copy(self) -> GlobalArray:
        """Another array with the same elements."""
        parts = {device: placements.place(part.copy(), part.sharding) for device, part in self.parts()}
        return GlobalArray(self.shape, self._sharding, parts, self.dtype, self.weak_type)

    clone = copy

    def __copy__(self) -> GlobalArray:
        return self.copy()

    def __deepcopy__(self, memo: Any) -> GlobalArray:
        return self.copy()

    def __getattr__(self, name: str) -> NoReturn:
        if hasattr(Array, name):
            raise AttributeError(self._unknown(f"take .{name} of"))
        raise AttributeError(f"arrays have no attribute {name!r}")

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    def __iter__(self) -> NoReturn:
        raise AssertionError(self._unknown("iterate over"))

    def __repr__(self) -> str:
        if self._deleted:
            return f"Array(<deleted>, shape={self.shape}, dtype={self.dtype.name})"
        weak = ", weak_type=True" if self.weak_type else ""
        return f"Array(shape={self.shape}, dtype={self.dtype.name}{weak})"

    def __format__(self, spec: str) -> str:
        return format(repr(self), spec)

    def _unknown(self, what: str) -> str:
        return (
            f"cannot {what} an array of shape {self.shape} with {self._sharding}: this process holds some of its parts "
            "and others the rest. addressable_shards has those of this process, and "
            "experimental.multihost_utils.process_allgather(x, tiled=True), called in all processes, the whole"
        )

    def _no_values(self, *_: Any, **__: Any) -> NoReturn:
        raise RuntimeError(self._unknown("take the values of"))

    def _no_number(self) -> NoReturn:
        if self.ndim:
            raise TypeError(f"an array of shape {self.shape} is no number: a number of Python is made of one element")
        self._no_values()

    def __bool__(self) -> NoReturn:
        if self.size != 1:
            raise ValueError(
                f"the truth value of an array of shape {self.shape} is ambiguous: use x.any() or x.all()"
            )
        self._no_values()

    __array__ = tolist = item = __reduce__ = __reduce_ex__ = _no_values
    __int__ = __float__ = __complex__ = __index__ = _no_number
    _value = property(_no_values)

    def __jax_array__(self) -> Any:
        found = _stand_ins.known.get(id(self))
        if found is None:
            raise OverProcesses(
                f"{self._unknown('compute here with')}. A jitted function takes it as an argument, and does not close "
                "over it",
                self,
            )
        return found

    def __dlpack__(self, **_: Any) -> NoReturn:
        raise BufferError(self._unknown("exchange"))

    __buffer__ = __dlpack__


register_type(GlobalArray, lambda array: array.aval)


def all_parts(sharding: Sharding, mine: Iterable[tuple[Device, Array]]) -> list[tuple[Device, Array | None]]:
    """The parts of all devices in the order of the sharding, None for those of other processes."""
    known = dict(mine)
    return [(device, known.get(device)) for device in sharding._device_assignment]


def shards(array: Any, parts: Iterable[tuple[Device, Array | None]]) -> list[Any]:
    """The parts as `Shard`s."""
    return [Shard(device, array.sharding, array.shape, part) for device, part in parts]
