"""Methods of `Array` beside the NumPy ones: printing, devices, exchange with other libraries."""

from __future__ import annotations

import functools
import math
import sys
import warnings
from collections.abc import Callable
from typing import Any, cast

import numpy as np

from ferrax import _core
from ferrax._src import core
from ferrax._src.base import dtypes
from ferrax._src.base.errors import ConcretizationTypeError, JaxRuntimeError, user_stacklevel
from ferrax._src.core.devices import Device
from ferrax._src.core.layout import Format, dense
from ferrax._src.core.manual_axes import ManualAxisType
from ferrax._src.core.parts import part_of, parts_of
from ferrax._src.core.placements import placement
from ferrax._src.core.sharding import Sharding, SingleDeviceSharding


class Shard:
    """The part of an array that one device holds: `data` is the array's `index`.

    Args: device: the device; sharding: how the array is laid out; global_shape: the array's; data:
    the part, None if another process has it.

    `replica_id` counts the copies of the part, which other devices may hold too.

    >>> jnp.arange(3).addressable_shards[0].index
    (slice(None, None, None),)
    """

    __slots__ = ("_device", "_sharding", "_global_shape", "_data")

    def __init__(
        self,
        device: Device,
        sharding: Sharding,
        global_shape: tuple[int, ...],
        data: core.Array | None = None,
    ) -> None:
        self._device = device
        self._sharding = sharding
        self._global_shape = global_shape
        self._data = data

    @property
    def device(self) -> Device:
        return self._device

    @property
    def data(self) -> core.Array | None:
        return self._data

    @property
    def index(self) -> tuple[slice, ...]:
        """Which part of the array this is."""
        return self._sharding.devices_indices_map(self._global_shape)[self._device]

    @property
    def replica_id(self) -> int:
        """Which of the copies of the part this is."""
        return self._sharding._replica_ids(len(self._global_shape))[self._device]

    def __repr__(self) -> str:
        return (
            f"Shard(device={self.device!r}, index={self.index}, replica_id={self.replica_id}, "
            f"data={self.data})"
        )


# By the frame that a tracer belongs to.
_TRACERS = {"stage": "JitTracer", "diff": "GradTracer", "value": "GradTracer", "batch": "VmapTracer"}


def _traced(self: core.Array) -> str:
    found = _core.tracer_frame(self)
    name = "Tracer" if found is None else _TRACERS[found[1]]
    sizes = ",".join(map(str, self.shape))
    return f"{name}({'~' if self.weak_type else ''}{self.dtype.name}[{sizes}])"


# What devices of a mesh have of a tracer, where that is known; None of others (`parallel/eager.py`).
shown_on_devices: Callable[[core.Array], str | None] | None = None


def _repr(self: core.Array) -> str:
    if isinstance(self, core.Tracer):
        if shown_on_devices is not None and (text := shown_on_devices(self)) is not None:
            return text
        return _traced(self)
    weak = ", weak_type=True" if self.weak_type else ""
    name = self.dtype.name
    if self.is_deleted():
        return f"Array(<deleted>, shape={self.shape}, dtype={name})"
    if dtypes.issubdtype(self.dtype, dtypes.extended):
        words = _core.bind("random_unwrap", (self,), {})
        return f"Array({self.shape}, dtype={name}) overlaying:\n{np.asarray(words)}"
    if _is_partial_sum(self):
        return f"Array(shape={self.shape}, dtype={name}, sharding={placement(self).sharding})"
    if self.size == 0:
        text = f"[], shape={self.shape}"
    else:
        text = np.array2string(np.asarray(self), prefix="Array(", suffix=",", separator=", ")
    suffix = f"dtype={name}{weak})"
    # As JAX prints it, to the letter: where the last line is full the gap is wider, and no new
    # line begins.
    last_line = len(text) - text.rfind("\n") + 1
    full = last_line + len(suffix) + 1 > np.get_printoptions()["linewidth"]
    return f"Array({text},{' ' * len('Array(') if full else ' '}{suffix}"


def _is_partial_sum(array) -> bool:
    """Whether the devices hold what is to be added up (`unreduced`), so that no values are shown."""
    spec = getattr(placement(array).sharding, "spec", None)
    return spec is not None and bool(spec.unreduced)


def _str(self: core.Array) -> str:
    if isinstance(self, core.Tracer) or _is_partial_sum(self):
        return _repr(self)
    if dtypes.issubdtype(self.dtype, dtypes.extended):
        return _repr(self)
    return str(np.asarray(self))


def _formatted(self: core.Array, spec: str) -> str:
    if isinstance(self, core.Tracer):
        if spec:
            raise TypeError(
                f"unsupported format string {spec!r} passed to {_traced(self)}, whose value is not known "
                f"while the function is traced: print it with ferrax.debug.print."
                f"{core.traced_values([self])}"
            )
        return repr(self)
    if dtypes.issubdtype(self.dtype, dtypes.extended):
        return object.__format__(self, spec)
    return format(self[()].item() if self.ndim == 0 else np.asarray(self), spec)


def _base_array(self: core.Array) -> core.Array:
    """The words of an array of keys, by JAX's name for them, which programs use to know keys."""
    if isinstance(self, core.Tracer) or not dtypes.issubdtype(self.dtype, dtypes.extended):
        raise AttributeError(f"arrays of {self.dtype.name} have no attribute '_base_array': it is the words of keys")
    return _core.bind("random_unwrap", (self,), {})


def _concrete_only(name, function):
    """A method that has no answer for tracers: there it raises ConcretizationTypeError."""

    @functools.wraps(function)
    def method(self, *args, **kwargs):
        if isinstance(self, core.Tracer):
            raise ConcretizationTypeError(
                self,
                f"{name} was asked for.",
                origin=_core.describe_tracer(self),
                location=_core.user_location(),
            )
        return function(self, *args, **kwargs)

    method.__name__ = method.__qualname__ = name
    return method


def _arrays_only(name, function):
    """A method or property that tracers do not have: there it raises AttributeError."""

    def method(self, *args, **kwargs):
        if not isinstance(self, core.Tracer):
            return function(self, *args, **kwargs)
        raise AttributeError(f"a tracer has no attribute {name!r}: {self!r} is a value in no memory")

    functools.update_wrapper(method, function)
    method.__name__ = method.__qualname__ = name
    return method


def _devices(self: core.Array) -> set[Device]:
    """The devices that hold the array."""
    return placement(self).sharding.device_set


def _device(self: core.Array) -> Device | Sharding:
    """The device that holds the array, or its sharding if there are several."""
    sharding = placement(self).sharding
    return sharding._device_assignment[0] if sharding.num_devices == 1 else sharding


def _sharding(self: core.Array) -> Sharding:
    """How the array is laid out over devices."""
    return placement(self).sharding


def _format(self: core.Array) -> Format:
    """How the array is laid out over devices and in memory."""
    return Format(dense(self.ndim), placement(self).sharding)


def _addressable_data(self: core.Array, index: int) -> core.Array:
    """The part of the array on one of its devices, in the sharding's order. Errors: IndexError."""
    sharding = placement(self).sharding
    devices = sharding._addressable_device_assignment
    device = devices[0 if sharding.is_fully_replicated else index]
    if isinstance(sharding, SingleDeviceSharding):
        return self
    return part_of(self, sharding, device, sharding.devices_indices_map(self.shape)[device])


def _addressable_shards(self: core.Array) -> list[Shard]:
    """The parts of the array on this process's devices, in the sharding's order."""
    sharding = placement(self).sharding
    return [Shard(device, sharding, self.shape, part) for device, part in parts_of(self)]


def _global_shards(self: core.Array) -> list[Shard]:
    """The parts on all devices; those of other processes have no data."""
    sharding = placement(self).sharding
    if sharding.is_fully_addressable:
        return _addressable_shards(self)
    known = dict(parts_of(self))
    return [Shard(device, sharding, self.shape, known.get(device)) for device in sharding._device_assignment]


def _on_device_size_in_bytes(self: core.Array) -> int:
    """The bytes that the elements take, on all devices together."""
    sharding = placement(self).sharding
    return math.prod(sharding.shard_shape(self.shape)) * self.itemsize * sharding.num_devices


def _pointer(native):
    def unsafe_buffer_pointer(self: core.Array) -> int:
        """The address of the first element. Errors: JaxRuntimeError for arrays that are on several devices."""
        devices = placement(self).sharding.num_devices
        if devices > 1:
            raise JaxRuntimeError(
                f"unsafe_buffer_pointer: the array is on {devices} devices; ask one of its addressable_shards"
            )
        return native(self)

    return unsafe_buffer_pointer


def _check_if_deleted(self: core.Array) -> None:
    """Errors: RuntimeError if the array was deleted or donated."""
    if self.is_deleted():
        np.asarray(self)


def _value(self: core.Array) -> np.ndarray:
    """The elements as a NumPy array, by JAX's name for it."""
    return np.asarray(self)


def _npy_value(self: core.Array) -> None:
    """The copy as a NumPy array that JAX keeps; there is none here, where NumPy sees the array's own memory."""


def _arrays(self: core.Array) -> list[core.Array] | None:
    """What each device holds, by JAX's name for it; None once that was deleted."""
    return None if self.is_deleted() else [part for _, part in parts_of(self)]


def _fully_replicated_shard(self: core.Array) -> core.Array:
    """What each device holds of an array that all have whole, by JAX's name for it."""
    return _addressable_data(self, 0)


def _mat(self: core.Array) -> ManualAxisType:
    """Over which axes of a mesh the value varies, by type."""
    return core.typeof(self).manual_axis_type


def _platform(self: core.Array) -> str:
    """The name of the device's kind."""
    return placement(self).sharding._device_assignment[0].platform


def _is_ready(self: core.Array) -> bool:
    """Whether the elements are there, which they always are."""
    return True


def _committed(self: core.Array) -> bool:
    """Whether the array was put on its device by request; programs then run there."""
    # What is on the mesh in use, too.
    return placement(self).committed or not isinstance(placement(self).sharding, SingleDeviceSharding)


def _is_fully_addressable(self: core.Array) -> bool:
    """Whether this process has all devices of the array."""
    return placement(self).sharding.is_fully_addressable


def _is_fully_replicated(self: core.Array) -> bool:
    """Whether each of its devices holds the whole array."""
    return placement(self).sharding.is_fully_replicated


def _buffer(self: core.Array, flags: int) -> memoryview:
    """A read-only view of the memory (PEP 688). Errors: BufferError for dtypes that have no format."""
    if isinstance(self, core.Tracer) or dtypes.issubdtype(self.dtype, dtypes.extended):
        raise BufferError(f"{self!r} has no buffer")
    # `np.asarray` would ask for this very buffer.
    view = _core.as_numpy(self)
    if view.dtype.kind not in "biufc":
        raise BufferError(
            f"Python's buffers have no format for {view.dtype.name}; use np.asarray(x) or x.view(dtype)"
        )
    # NumPy's stubs know of this from Python 3.12 on, where alone the method is set.
    return memoryview(cast(Any, view))


def _copy(self: core.Array) -> core.Array:
    """Another array with the same elements."""
    return _core.lax.copy(self)


def _generator(self: core.Array) -> Any:
    return self.dtype._impl


def _numpy_dtype(self) -> Any:
    """NumPy, which took `x.dtype` for a dtype where it was given `x`, stops doing so. JAX warns as well, of
    arrays: `numpy.result_type` of a traced value, which cannot become an array, comes here, too."""
    if isinstance(self, core.Tracer):
        return self.dtype
    warnings.warn(
        "an array is no dtype: write dtype=x.dtype, not dtype=x. This will be an error.",
        DeprecationWarning,
        stacklevel=user_stacklevel(),
    )
    return self.dtype


def _manual_axis_type(self: Any) -> Any:
    return core.typeof(self).manual_axis_type


def install(Array) -> None:
    """Sets the methods on the array class; called once at import."""
    Array.__repr__ = _repr
    Array.__str__ = _str
    Array.__format__ = _formatted
    if sys.version_info >= (3, 12):
        Array.__buffer__ = _buffer
    Array._impl = property(_generator, doc="The generator, of keys alone.")
    Array.__numpy_dtype__ = property(_numpy_dtype, doc="What `numpy.dtype` makes of it.")
    Array.aval = property(core.typeof, doc="The type: shape, dtype, weak type.")
    Array.mat = property(_manual_axis_type, doc="Over which axes of a mesh the value varies, by type.")
    for name, function in {
        "devices": _devices,
        "addressable_data": _addressable_data,
        "_check_if_deleted": _check_if_deleted,
        "_fully_replicated_shard": _fully_replicated_shard,
        "on_device_size_in_bytes": _on_device_size_in_bytes,
    }.items():
        setattr(Array, name, _concrete_only(name, function))
    for name, function in {
        "addressable_shards": _addressable_shards,
        "global_shards": _global_shards,
        "committed": _committed,
        "_committed": _committed,
        "_arrays": _arrays,
        "_npy_value": _npy_value,
        "_value": _value,
        "is_fully_addressable": _is_fully_addressable,
        "is_fully_replicated": _is_fully_replicated,
    }.items():
        setattr(Array, name, property(_concrete_only(name, function)))
    for name, function in {"is_ready": _is_ready, "platform": _platform}.items():
        setattr(Array, name, _arrays_only(name, function))
    Array.sharding = property(_arrays_only("sharding", _sharding))
    Array.format = property(_arrays_only("format", _format))
    Array.device = property(_arrays_only("device", _device))
    Array.copy = Array.clone = _copy
    Array.unsafe_buffer_pointer = _pointer(Array.unsafe_buffer_pointer)
    Array._base_array = property(_base_array)
