"""Methods of `Array` beside the NumPy ones: printing, devices, exchange with other libraries."""

from __future__ import annotations

import numpy as np

from ferrax import _core
from ferrax._src import core, dtypes
from ferrax._src.devices import _CPU


def _repr(self) -> str:
    if isinstance(self, core.Tracer):
        return f"Tracer<{self._type_text()}>"
    weak = ", weak_type=True" if self.weak_type else ""
    name = self.dtype.name
    if self.is_deleted():
        return f"Array(<deleted>, shape={self.shape}, dtype={name})"
    if dtypes.issubdtype(self.dtype, dtypes.extended):
        words = _core.bind("random_unwrap", (self,), {})
        return f"Array({self.shape}, dtype={name}) overlaying:\n{np.asarray(words)}"
    value = np.asarray(self)
    options = np.get_printoptions()
    if self.size > options["threshold"] and self.size > 0:
        text = np.array2string(value, prefix="Array(", suffix=",", separator=", ")
    else:
        text = np.array2string(value, prefix="Array(", suffix=",", separator=", ")
    if self.size == 0:
        text = f"[], shape={self.shape}"
    last = text.rfind("\n") + 1
    suffix = f"dtype={name}{weak})"
    width = options["linewidth"]
    line = len(text) - last + (len("Array(") if last == 0 else 0) + len(suffix) + 2
    break_or_space = "\n" + " " * len("Array(") if line > width else " "
    return f"Array({text},{break_or_space}{suffix}"


def _str(self) -> str:
    if isinstance(self, core.Tracer):
        return _repr(self)
    if dtypes.issubdtype(self.dtype, dtypes.extended):
        return _repr(self)
    return str(np.asarray(self))


def _format(self, spec: str) -> str:
    if isinstance(self, core.Tracer):
        return format(repr(self), spec)
    return format(self[()].item() if self.ndim == 0 else np.asarray(self), spec)


def _array_namespace(self, *, api_version=None):
    """The namespace of functions on this array, `ferrax.numpy`."""
    import ferrax.numpy

    return ferrax.numpy


def _devices(self) -> set:
    """The devices that hold the array."""
    return {_CPU}


def _to_device(self, device, *, stream=None):
    """The array on a device; there is one, the CPU."""
    return self


def _addressable_data(self, index):
    return self


def install(Array) -> None:
    """Sets the methods on the array class; called once at import."""
    Array.__repr__ = _repr
    Array.__str__ = _str
    Array.__format__ = _format
    Array.__array_namespace__ = _array_namespace
    Array.devices = _devices
    Array.to_device = _to_device
    Array.addressable_data = _addressable_data
    Array.aval = property(core.typeof, doc="The type: shape, dtype, weak type.")
    Array.device = property(lambda self: _CPU, doc="The device that holds the array.")
    Array.committed = property(lambda self: False)
    Array.is_fully_addressable = property(lambda self: True)
    Array.is_fully_replicated = property(lambda self: True)
    Array.is_ready = lambda self: True
    Array.on_device_size_in_bytes = lambda self: self.nbytes
    Array.platform = lambda self: "cpu"
    Array.copy = lambda self: _core.lax.copy(self)
