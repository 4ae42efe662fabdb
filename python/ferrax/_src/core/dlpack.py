"""Arrays shared with other libraries through DLPack."""

from __future__ import annotations

from typing import Any

from ferrax import _core
from ferrax._core import Array
from ferrax._src.core.placement import device_put
from ferrax._src.core.typing import DTypeLike


def from_dlpack(external_array: Any, device: Any = None, copy: bool | None = None) -> Array:
    """An array of another library's array, without a copy where that can be.

    The memory is shared where it is in row-major order, aligned to 16 bytes and of a dtype that
    is enabled; the producer must not write to it while the array lives. Everything else is copied.

    Args:
        external_array: an object with `__dlpack__` and `__dlpack_device__`, on the CPU.
        device: where to put the array.
        copy: True copies always, False never, None where needed.

    Returns:
        An array of the same shape and dtype, not weak. 64-bit types become 32-bit ones unless
        `jax_enable_x64` is set.

    Raises:
        TypeError: the object does not speak DLPack.
        RuntimeError: the elements are on a device that is not the CPU.
        ValueError: `copy=False`, and a copy is needed.
        BufferError: the dtype or version is not known.

    Example:
        >>> import numpy, ferrax.dlpack
        >>> ferrax.dlpack.from_dlpack(numpy.arange(3, dtype=numpy.int32))
        Array([0, 1, 2], dtype=int32)
    """
    array = _core.array_from_dlpack(external_array, copy)
    if device is None:
        return array
    return device_put(array, device)


def is_supported_dtype(dtype: DTypeLike) -> bool:
    """Whether arrays of a dtype can be exchanged: all but PRNG keys and types below a byte.

    Example:
        >>> import ferrax.dlpack
        >>> ferrax.dlpack.is_supported_dtype("bfloat16"), ferrax.dlpack.is_supported_dtype("int4")
        (True, False)
    """
    return _core.dlpack_supports(dtype)
