"""Where an array's elements are. Arrays here are whole on one device."""

from __future__ import annotations

from typing import Any, ClassVar

from ferrax._src.core.devices import Device, devices


class Sharding:
    """How an array is laid out over devices.

    >>> ferrax.sharding.SingleDeviceSharding(ferrax.devices()[0]).device_set == set(ferrax.devices())
    True
    """

    __slots__ = ()

    @property
    def device_set(self) -> set[Device]:
        """The devices that hold parts of the array."""
        raise NotImplementedError(f"{type(self).__name__} must define device_set")

    @property
    def num_devices(self) -> int:
        return len(self.device_set)

    @property
    def addressable_devices(self) -> set[Device]:
        """The devices of this process among them: there is one process."""
        return self.device_set

    @property
    def has_addressable_devices(self) -> bool:
        return bool(self.device_set)

    @property
    def is_fully_addressable(self) -> bool:
        return True


class SingleDeviceSharding(Sharding):
    """The whole array on one device.

    Args:
        device: the device.
        memory_kind: the device's only memory, "device", or None, which means it. Errors:
            ValueError for others.

    Example:
        >>> x = ferrax.numpy.ones((2, 3))
        >>> x.sharding
        SingleDeviceSharding(device=CpuDevice(id=0), memory_kind=device)
        >>> x.sharding.shard_shape(x.shape)
        (2, 3)
    """

    __slots__ = ("_device",)

    def __init__(self, device: Device, *, memory_kind: str | None = None) -> None:
        if not isinstance(device, Device):
            raise TypeError(
                f"SingleDeviceSharding requires a device, such as ferrax.devices()[0]; got {device!r} of "
                f"type {type(device).__name__}"
            )
        if memory_kind not in (None, "device"):
            raise ValueError(
                f"Could not find memory addressable by device {device.platform}. Got memory kind: "
                f"{memory_kind}; there is 'device'"
            )
        self._device = device

    @property
    def device_set(self) -> set[Device]:
        return {self._device}

    @property
    def memory_kind(self) -> str:
        return "device"

    @property
    def is_fully_replicated(self) -> bool:
        return True

    def devices_indices_map(self, global_shape: Any) -> dict:
        """For each device the slices of the array that it holds."""
        return {self._device: (slice(None),) * len(global_shape)}

    addressable_devices_indices_map = devices_indices_map

    def shard_shape(self, global_shape: Any) -> tuple:
        """The shape of what one device holds."""
        return tuple(global_shape)

    def is_equivalent_to(self, other: object, ndim: Any) -> bool:
        """Whether arrays of `ndim` axes are laid out alike."""
        return self == other

    def check_compatible_aval(self, aval_shape: Any) -> None:
        """Every shape fits on one device."""

    def with_memory_kind(self, kind: Any) -> SingleDeviceSharding:
        """The sharding with this memory; there is one."""
        return SingleDeviceSharding(self._device, memory_kind=kind)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SingleDeviceSharding):
            return NotImplemented
        return self._device == other._device

    def __hash__(self) -> int:
        return hash(self._device)

    def __reduce__(self) -> tuple[Any, ...]:
        return _of_number, (self._device.id,)

    def __repr__(self) -> str:
        return f"SingleDeviceSharding(device={self._device!r}, memory_kind=device)"


class AbstractMesh:
    """A mesh of devices that are not named. Here it has no axes: there is one device."""

    __slots__ = ()
    axis_names = axis_sizes = axis_types = ()
    shape: ClassVar[dict] = {}
    size = 0
    empty = True

    def __eq__(self, other):
        return isinstance(other, AbstractMesh)

    def __hash__(self):
        return hash(AbstractMesh)

    def __repr__(self):
        return "AbstractMesh((), axis_types=())"


class PartitionSpec:
    """Which axes of a mesh each axis of an array is divided over; None: not at all."""

    __slots__ = ("_partitions",)

    def __init__(self, *partitions):
        self._partitions = partitions

    def __iter__(self):
        return iter(self._partitions)

    def __len__(self):
        return len(self._partitions)

    def __getitem__(self, index):
        return self._partitions[index]

    def __eq__(self, other):
        return isinstance(other, PartitionSpec) and self._partitions == other._partitions

    def __hash__(self):
        return hash(self._partitions)

    def __repr__(self):
        return f"P{self._partitions!r}"


class UnplacedSharding(Sharding):
    """The sharding of a type: arrays of `rank` axes, none of which is divided, over no mesh.

    It answers as JAX's `NamedSharding` over an empty mesh does, as which it prints.
    """

    __slots__ = ("spec",)
    mesh = AbstractMesh()
    memory_kind = None
    num_devices = 0
    is_fully_replicated = True

    def __init__(self, rank: int):
        self.spec = PartitionSpec(*(None,) * rank)

    @property
    def device_set(self):
        raise ValueError("a type is on no device: ask an array for its sharding")

    @property
    def is_fully_addressable(self):
        raise ValueError("a type is on no device: ask an array for its sharding")

    def shard_shape(self, global_shape) -> tuple:
        """The shape of what one device holds: the whole."""
        return tuple(global_shape)

    def __eq__(self, other):
        return isinstance(other, UnplacedSharding) and self.spec == other.spec

    def __hash__(self):
        return hash(self.spec)

    def __reduce__(self):
        return UnplacedSharding, (len(self.spec),)

    def __repr__(self):
        return f"NamedSharding(mesh={self.mesh!r}, spec={self.spec!r})"


def _of_number(number):
    return SingleDeviceSharding(devices()[number])
