"""Arrays that lie apart: over the devices of several processes, of which each holds the parts of its own, or over
several devices with memories of their own, of which each holds its part.

Where the parts of one process make the whole in one memory, as where all its devices hold it, the array is an `Array`
as any other, which lies there once; its sharding says that others have it, too. Else it is a `GlobalArray`, which
knows shape, dtype and sharding, and holds the parts. It is an `Array` to `isinstance`. The native core, which computes
with whole arrays, is told by `__jax_array__` that there is none, so that each operation says so; operators and methods
are jitted functions (`callbacks/global_operators`). Python and NumPy get the values where this process has all parts.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import numpy as np

from ferrax import _core
from ferrax._src.base.errors import OverProcesses as OverProcesses
from ferrax._src.core import placements
from ferrax._src.core.array import Shard
from ferrax._src.core.avals import Extents, ShapedArray
from ferrax._src.core.devices import Device
from ferrax._src.core.layout import Format, dense
from ferrax._src.core.parts import assembled, joined, part_of
from ferrax._src.core.sharding import Sharding, SingleDeviceSharding
from ferrax._src.core.values import Array, ArrayImpl, register_type, trace_state_clean


def holds_whole(sharding: Sharding, shape: Sequence[int]) -> bool:
    """Whether this process's devices hold all tiles of an array in one memory."""
    if sharding._shares_memory:
        return True
    if sharding._apart:
        return False
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
    """An array that is whole in this process over devices of several, or over several memories: the parts of this
    process's are kept of it."""
    if holds_whole(sharding, array.shape):
        return placements.placed(array, sharding)
    on_host = _core.place_at(placements.alias(array), 0, True)
    indices = sharding.addressable_devices_indices_map(tuple(array.shape))
    parts = {device: part_of(on_host, sharding, device, index) for device, index in indices.items()}
    return GlobalArray(array.shape, sharding, parts, array.dtype, array.weak_type)


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
    """An array of which this process holds some parts, and other processes the rest; or all, in several memories.

    Args: shape: of the whole; sharding: how it is laid out; parts: those of this process's devices, each on its device;
    dtype: of the array, None: of the parts.
    """

    __slots__ = ("shape", "dtype", "weak_type", "_sharding", "_parts", "_deleted", "_constant", "__weakref__")
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
        self._constant: Array | None = None
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
    is_fully_addressable = property(lambda self: self._sharding.is_fully_addressable)
    is_fully_replicated = property(lambda self: self._sharding.is_fully_replicated)

    @property
    def _has_values(self) -> bool:
        """Whether this process has all values: all parts, or one that is the whole."""
        return self._sharding.is_fully_addressable or self._sharding.is_fully_replicated and bool(self._parts)

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
        self._constant = None

    def _check_if_deleted(self) -> None:
        if self._deleted:
            raise RuntimeError(f"{self!r} has been deleted: it was deleted or donated")

    def block_until_ready(self) -> GlobalArray:
        """The array itself, when its parts are there."""
        for part in self._arrays:
            part.block_until_ready()
        return self

    def copy_to_host_async(self) -> None:
        """Asks for copies of the parts on the host."""
        for part in self._arrays:
            part.copy_to_host_async()

    def is_ready(self) -> bool:
        """Whether the elements are there."""
        return all(part.is_ready() for part in self._arrays)

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

    def __iter__(self) -> Iterator[Any]:
        if not self._has_values:
            raise AssertionError(self._unknown("iterate over"))
        if not self.shape:
            raise TypeError("iteration over an array without axes")
        return (self[number] for number in range(self.shape[0]))  # type: ignore[index]

    def __repr__(self) -> str:
        if self._deleted:
            return f"Array(<deleted>, shape={self.shape}, dtype={self.dtype.name})"
        if self._has_values:
            return repr(self.whole())
        weak = ", weak_type=True" if self.weak_type else ""
        return f"Array(shape={self.shape}, dtype={self.dtype.name}{weak})"

    def __str__(self) -> str:
        return str(self.whole()) if self._has_values and not self._deleted else repr(self)

    def __format__(self, spec: str) -> str:
        return format(self.whole() if self._has_values and not self._deleted else repr(self), spec)

    def _unknown(self, what: str) -> str:
        array = f"cannot {what} an array of shape {self.shape} with {self._sharding}"
        if self.is_fully_addressable:
            return f"{array}: its parts are in several memories. device_put(x, a device) has it in one"
        return (
            f"{array}: this process holds some of its parts and others the rest. addressable_shards has those of this "
            "process, and experimental.multihost_utils.process_allgather(x, tiled=True), called in all processes, the "
            "whole"
        )

    def whole(self, what: str = "take the values of") -> Array:
        """The array in the host's memory. Errors: RuntimeError where other processes have parts."""
        self._check_if_deleted()
        if not self._has_values:
            raise RuntimeError(self._unknown(what))
        return _core.place_at(assembled(self.shape, self._sharding, self._parts), 0, True)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        value = np.asarray(self.whole())
        return value if dtype is None else value.astype(dtype, copy=False)

    def __reduce__(self) -> Any:
        return self.whole().__reduce__()

    def tolist(self) -> Any:
        return self.whole().tolist()

    def item(self, *index: Any) -> Any:
        return self.whole().item(*index)

    @property
    def _value(self) -> np.ndarray:
        return np.asarray(self.whole())

    def __bool__(self) -> bool:
        if self.size != 1:
            raise ValueError(
                f"the truth value of an array of shape {self.shape} is ambiguous: use x.any() or x.all()"
            )
        return bool(self.whole())

    def __jax_array__(self) -> Any:
        found = _stand_ins.known.get(id(self))
        if found is None and self._has_values and not trace_state_clean():
            # As any array that a function closes over, it is a constant, which is nowhere by request.
            if self._constant is None:
                self._constant = self.whole()
            return self._constant
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


def _number(name: str) -> Any:
    def number(self):
        if self.ndim:
            raise TypeError(f"an array of shape {self.shape} is no number: a number of Python is made of one element")
        return getattr(self.whole(), name)()

    number.__name__ = name
    return number


for _name in ("__int__", "__float__", "__complex__", "__index__"):
    setattr(GlobalArray, _name, _number(_name))


register_type(GlobalArray, lambda array: array.aval)


def all_parts(sharding: Sharding, mine: Iterable[tuple[Device, Array]]) -> list[tuple[Device, Array | None]]:
    """The parts of all devices in the order of the sharding, None for those of other processes."""
    known = dict(mine)
    return [(device, known.get(device)) for device in sharding._device_assignment]


def shards(array: Any, parts: Iterable[tuple[Device, Array | None]]) -> list[Any]:
    """The parts as `Shard`s."""
    return [Shard(device, array.sharding, array.shape, part) for device, part in parts]
