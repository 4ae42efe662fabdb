"""Arrays whose axes lie in memory in another order than row by row (`experimental.layout`).

A `PermutedArray` holds an array of the permuted shape, `data`, whose rows are one after the other: axis `k` of the data
is axis `order[k]` of the array. So everything that knows memory (the native core, plans, devices) knows rows alone, and
the elements lie as the layout says; over several devices, the parts of the data are the parts of the array. It is an
`Array` to `isinstance`. What computes asks for it row by row, with `__jax_array__`, and operators and methods are those
of that array: a copy of the elements for each, which within traced functions is an equation and falls into those that
read it. Jitted functions with layouts (`transforms/layouts.py`) take and give the data itself.

Invariant: `order` is no identity: what lies row by row is an `Array` as any other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import numpy as np

from ferrax import _core
from ferrax._src.core import array as array_methods, placements
from ferrax._src.core.array import Shard
from ferrax._src.core.avals import Extents, ShapedArray
from ferrax._src.core.layout import Format, Order, ordered
from ferrax._src.core.partition import filled
from ferrax._src.core.parts import parts_of
from ferrax._src.core.sharding import NamedSharding, Sharding
from ferrax._src.core.values import (
    Array,
    ArrayImpl,
    Tracer,
    as_array,
    ensure_compile_time_eval,
    register_type,
)


def inverse(order: Order) -> Order:
    """The order that undoes one: that of the data's axes in the array."""
    return tuple(sorted(range(len(order)), key=order.__getitem__))


def transposed(array: Any, order: Order) -> Any:
    """The array, or tracer, with its axes in this order."""
    return _core.bind("transpose", (array,), {"permutation": order})


def permuted(sharding: Sharding, order: Order) -> Sharding:
    """The sharding of an array with the axes of one with this sharding in another order.

    Errors: NotImplementedError for a sharding over several devices that names no axes, and over several processes.
    """
    if not sharding.is_fully_addressable:
        raise NotImplementedError(
            f"arrays over several processes lie row by row, got the order {order} with {sharding}: leave the layout out"
        )
    if isinstance(sharding, NamedSharding):
        entries = filled(sharding.spec, len(order)).partitions
        return sharding.update(spec=sharding.spec.update(partitions=[entries[axis] for axis in order]))
    if sharding.num_devices > 1:
        raise NotImplementedError(
            f"an array with a layout of its own is over several devices by a NamedSharding, got {sharding}"
        )
    return sharding


# What is the same of an array and of its data.
_OF_DATA = {
    "_committed", "_varying", "committed", "copy_to_host_async", "is_fully_addressable", "is_fully_replicated",
    "is_ready", "on_device_size_in_bytes", "platform",
}  # fmt: skip


class PermutedArray(Extents):
    """An array whose axes lie in memory in another order than row by row.

    Args: data: an array of the permuted shape; order: the axes, that with the largest steps first; sharding: of the
    array, which says how the data is divided, or None.
    """

    __slots__ = ("_data", "_order", "_own_sharding", "shape", "__weakref__")
    __array_priority__ = 100

    def __init__(self, data: Any, order: Order, sharding: Sharding | None = None) -> None:
        self._data = data
        self._order = order
        self.shape = tuple(data.shape[axis] for axis in inverse(order))
        self._own_sharding = permuted(data.sharding, inverse(order)) if sharding is None else sharding

    # What `isinstance(x, Array)` asks of values whose class is no subclass.
    __class__ = property(lambda self: ArrayImpl)
    __hash__ = None  # type: ignore[assignment]

    dtype = property(lambda self: self._data.dtype)
    weak_type = property(lambda self: self._data.weak_type)

    @property
    def sharding(self) -> Sharding:
        return self._own_sharding

    @property
    def _placement(self) -> placements.Placement:
        return placements.Placement(self._own_sharding, placements.placement(self._data).committed)

    @property
    def _place(self) -> int:
        """The number by which programs are known of arrays that are so divided."""
        return placements.type_number(self._own_sharding)

    @property
    def aval(self) -> ShapedArray:
        return ShapedArray(self.shape, self.dtype, self.weak_type, sharding=placements.explicit_spec(self))

    @property
    def format(self) -> Format:
        return Format(ordered(self._order), self._own_sharding)

    def _rows(self) -> Any:
        """The array row by row: a copy, or within traced functions a tracer."""
        self._check_if_deleted()
        rows = transposed(self._data, inverse(self._order))
        if isinstance(rows, Tracer):
            return rows
        return placements.place(rows, *self._placement)

    def _values(self) -> Any:
        """The array row by row, with values also within traced functions."""
        with ensure_compile_time_eval():
            return self._rows()

    __jax_array__ = _rows

    def __getattr__(self, name: str) -> Any:
        if not hasattr(Array, name) or name.startswith("__"):
            raise AttributeError(f"arrays have no attribute {name!r}")
        return getattr(self._data if name in _OF_DATA else self._rows(), name)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        view = np.asarray(self._data).transpose(inverse(self._order))
        if dtype is None or np.dtype(dtype) == view.dtype:
            return view.copy(order="K") if copy else view
        if copy is False:
            raise ValueError(
                f"__array__: copy=False, and an array of {view.dtype} has no elements of dtype={np.dtype(dtype)} to "
                "show without one; use copy=None"
            )
        return view.astype(dtype)

    @property
    def _value(self) -> np.ndarray:
        return np.asarray(self)

    def __buffer__(self, flags: int) -> memoryview:
        memoryview(cast(Any, self._data))  # refuses dtypes without a format
        return memoryview(cast(Any, np.asarray(self)))

    def __dlpack__(self, **options: Any) -> Any:
        return _core.dlpack_in_order(self._data, inverse(self._order), **options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._data.__dlpack_device__()

    def devices(self) -> set[Any]:
        """The devices that hold the array."""
        return self._own_sharding.device_set

    @property
    def device(self) -> Any:
        return self._data.device if self._own_sharding.num_devices == 1 else self._own_sharding

    def _part(self, data: Any) -> PermutedArray:
        return PermutedArray(data, self._order)

    def addressable_data(self, index: int) -> PermutedArray:
        """The part of one of this process's devices, in the sharding's order. Errors: IndexError."""
        return self._part(self._data.addressable_data(index))

    @property
    def addressable_shards(self) -> list[Shard]:
        """The parts of this process's devices, in the sharding's order."""
        parts = parts_of(self._data)
        return [Shard(device, self._own_sharding, self.shape, cast(Any, self._part(part))) for device, part in parts]

    global_shards = addressable_shards

    @property
    def _arrays(self) -> list[PermutedArray] | None:
        return None if self.is_deleted() else [self._part(part) for _, part in parts_of(self._data)]

    def is_deleted(self) -> bool:
        """Whether the memory was given up, by `delete` or by donation."""
        return self._data.is_deleted()

    def delete(self) -> None:
        """Gives the memory up."""
        self._data.delete()

    def _check_if_deleted(self) -> None:
        if self.is_deleted():
            raise RuntimeError(
                f"an array of type {self.aval} has been deleted: it was deleted or donated to a jitted function; keep "
                "a copy (x.copy()) if it is needed afterwards"
            )

    def block_until_ready(self) -> PermutedArray:
        """The array itself, once its elements are there."""
        self._data.block_until_ready()
        return self

    def unsafe_buffer_pointer(self) -> int:
        """The address of the first element. Errors: JaxRuntimeError for arrays that are on several devices."""
        return self._data.unsafe_buffer_pointer()

    def __iter__(self) -> Iterator[Any]:
        return iter(self._rows())

    def __copy__(self) -> PermutedArray:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return self._values().__reduce__()

    __repr__ = array_methods._repr
    __str__ = array_methods._str
    __format__ = array_methods._formatted


register_type(PermutedArray, lambda array: array.aval)

# Of these, `object` has its own, or NumPy and pickle ask for memory by them.
_COMPARED = {"__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"}
_LEFT = {*dir(object), "__array_module__", "__numpy_dtype__"} - _COMPARED
# What has an answer only where values are known.
_KNOWN = {"__bool__", "__int__", "__float__", "__complex__", "__index__", "__hex__", "__oct__"}


def _special(name: str) -> Any:
    def method(self, *args):
        rows = self._values() if name in _KNOWN else self._rows()
        return getattr(rows, name)(*args)

    method.__name__ = method.__qualname__ = name
    return method


def install() -> None:
    """Gives the class the operators that arrays have; called once at import, when they have them all."""
    for name in dir(Array):
        if name.startswith("__") and name not in _LEFT and name not in PermutedArray.__dict__:
            setattr(PermutedArray, name, _special(name))


def by_rows(x: Any) -> Any:
    """The value, row by row if it is an array of another order."""
    return x._rows() if type(x) is PermutedArray else x


def order_in_memory(x: Any) -> Order | None:
    """The order of the axes of a value in memory; None where that is row by row."""
    return x._order if type(x) is PermutedArray else None


def data_of(x: Any, order: Order | None, function: str) -> Any:
    """The value with its axes in this order: what a `PermutedArray` of it holds. Without a copy where it lies so;
    NumPy's arrays stay NumPy's, which nobody put anywhere."""
    if order_in_memory(x) == order:
        return x if order is None else x._data
    rows = by_rows(x)
    if order is None:
        return rows
    if isinstance(rows, np.ndarray):
        return np.ascontiguousarray(rows.transpose(order))
    rows = as_array(rows, function)
    where = placements.placement(rows)
    with ensure_compile_time_eval():
        return placements.place(transposed(rows, order), permuted(where.sharding, order), where.committed)


def laid_out_as(data: Any, order: Order | None, sharding: Sharding | None = None) -> Any:
    """The array whose data this is: the data itself where the order is None."""
    return data if order is None else PermutedArray(data, order, sharding)
