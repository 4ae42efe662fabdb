"""Where an array's elements are. Arrays here are whole on one device."""

from __future__ import annotations

from ferrax._src.core.devices import Device, devices


class Sharding:
    """How an array is laid out over devices."""

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

    def __init__(self, device: Device, *, memory_kind: str | None = None):
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

    def devices_indices_map(self, global_shape) -> dict:
        """For each device the slices of the array that it holds."""
        return {self._device: (slice(None),) * len(global_shape)}

    addressable_devices_indices_map = devices_indices_map

    def shard_shape(self, global_shape) -> tuple:
        """The shape of what one device holds."""
        return tuple(global_shape)

    def is_equivalent_to(self, other, ndim) -> bool:
        """Whether arrays of `ndim` axes are laid out alike."""
        return self == other

    def check_compatible_aval(self, aval_shape) -> None:
        """Every shape fits on one device."""

    def with_memory_kind(self, kind) -> SingleDeviceSharding:
        return SingleDeviceSharding(self._device, memory_kind=kind)

    def __eq__(self, other):
        if not isinstance(other, SingleDeviceSharding):
            return NotImplemented
        return self._device == other._device

    def __hash__(self):
        return hash(self._device)

    def __reduce__(self):
        return _of_number, (self._device.id,)

    def __repr__(self):
        return f"SingleDeviceSharding(device={self._device!r}, memory_kind=device)"


def _of_number(number):
    return SingleDeviceSharding(devices()[number])
