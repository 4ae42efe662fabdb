"""Arrays made of the parts that devices hold: of each process those of its devices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ferrax import _core
from ferrax._src import core
from ferrax._src.base import dtypes, errors
from ferrax._src.core import Array, Tracer
from ferrax._src.core.devices import Device, default_device
from ferrax._src.core.global_array import of_parts
from ferrax._src.core.layout import Format, Order, check_concrete, order_of
from ferrax._src.core.mesh import mesh_of_specs
from ferrax._src.core.partition import PartitionSpec
from ferrax._src.core.permuted_array import data_of, laid_out_as, order_in_memory, permuted
from ferrax._src.core.placement import check_joined, device_put
from ferrax._src.core.placements import alias, number_of, place, placed
from ferrax._src.core.sharding import NamedSharding, Sharding, SingleDeviceSharding
from ferrax._src.tree import tree_util

Shape = Sequence[int]


def _sharding(sharding, shape, function) -> Sharding:
    """The sharding that is meant, checked against the shape and the devices there are."""
    if isinstance(sharding, Format):
        check_concrete(sharding, function)
        sharding = sharding.sharding
    if isinstance(sharding, PartitionSpec) and not mesh_of_specs().empty:
        sharding = NamedSharding(mesh_of_specs(), sharding)
    if not isinstance(sharding, Sharding):
        raise TypeError(
            f"{function}: sharding must be a sharding, a Format, or a PartitionSpec of the mesh in use; "
            f"got {sharding!r} of type {type(sharding).__name__}"
        )
    check_joined(sharding, function)
    return sharding


def _order(sharding, shape, function) -> Order | None:
    """The order of axes in memory that a format asks for."""
    return order_of(sharding.layout, shape, function) if isinstance(sharding, Format) else None


def _check_part(part, shape, sharding, dtype, function) -> None:
    if dtype not in (None, part.dtype):
        raise ValueError(f"{function}: dtype is {dtype}, got a part of dtype {part.dtype}")
    got, expected = tuple(part.shape), sharding.shard_shape(shape)
    if got != expected:
        raise ValueError(
            f"{function}: of an array of shape {tuple(shape)} with {sharding} a device holds a part of "
            f"shape {expected}, got one of shape {got}"
        )


def make_array_from_callback(
    shape: Shape,
    sharding: Sharding | Format,
    data_callback: Callable[[tuple[slice, ...]], Any],
    dtype: Any = None,
) -> Array:
    """An array whose parts a function gives.

    Args:
        shape: of the array.
        sharding: how it is laid out.
        data_callback: given the slices of the array that a device holds, returns that part.
        dtype: of the array; None: that of the parts.

    Errors: TypeError for other shardings; ValueError for parts of another shape or dtype, and for
    devices that there are not.

    Example:
        >>> mesh = ferrax.make_mesh((1,), ("x",))
        >>> data = np.arange(4.0)
        >>> sharding = ferrax.NamedSharding(mesh, ferrax.P("x"))
        >>> ferrax.make_array_from_callback((4,), sharding, lambda index: data[index])
        Array([0., 1., 2., 3.], dtype=float32)
    """
    function = "make_array_from_callback"
    order = _order(sharding, shape, function)
    sharding = _sharding(sharding, shape, function)
    wanted = None if dtype is None else dtypes.canonicalize_dtype(dtype)
    sharding.shard_shape(shape)
    known: dict[Any, Array] = {}
    parts = {}
    for device, index in sharding.addressable_devices_indices_map(shape).items():
        # Devices that hold the same tile share what the callback gives for it.
        key = tuple((cut.start, cut.stop) for cut in index)
        if key not in known:
            part = data_callback(index)
            if isinstance(part, Tracer):
                raise errors.UnexpectedTracerError(
                    f"{function}: the callback returned a traced value, {part}; parts are arrays"
                )
            array = core.as_array(np.asarray(part) if isinstance(part, (list, tuple)) else part, function)
            _check_part(array, shape, sharding, wanted, function)
            wanted = array.dtype
            known[key] = array
        parts[device] = known[key]
    return _joined(shape, sharding, parts, dtype, order)


def make_array_from_process_local_data(
    sharding: Any, local_data: Any, global_shape: Any = None
) -> Any:
    """Arrays of which each process has a part: with one process, the arrays themselves, put there.

    Args:
        sharding: how they are laid out, or a tree of this above the leaves.
        local_data: a tree of arrays: what this process's devices hold of each axis, or all of it.
        global_shape: the shapes of the whole, or a tree of shapes; None: each axis that is divided over processes has
            what all of them hold.

    Errors: ValueError where an axis of `local_data` has neither the size that this process holds nor that of
    `global_shape`; else as `device_put`.

    >>> sharding = jnp.zeros(2).sharding
    >>> ferrax.make_array_from_process_local_data(sharding, np.ones(2))
    Array([1., 1.], dtype=float32)
    """
    function = "make_array_from_process_local_data"

    def is_shape(x):
        return x is None or isinstance(x, tuple) and all(isinstance(size, int) for size in x)

    def is_place(x):
        return isinstance(x, (Sharding, PartitionSpec, Format))

    leaves, tree = tree_util.tree_flatten(local_data)
    shapes = [global_shape] * len(leaves)
    if not is_shape(global_shape):
        shapes = tree_util.broadcast_prefix(global_shape, local_data, is_leaf=is_shape)
    places = [sharding] * len(leaves)
    if not is_place(sharding):
        places = tree_util.broadcast_prefix(sharding, local_data, is_leaf=is_place)
    made = []
    for leaf, shape, where in zip(leaves, shapes, places):
        array = leaf if isinstance(leaf, (np.ndarray, Array)) else np.asarray(leaf)
        if isinstance(where, Sharding) and not where.is_fully_addressable:
            made.append(_of_local_data(where, array, shape, function))
            continue
        if shape is not None and tuple(shape) != np.shape(array):
            raise ValueError(
                f"{function}: where this process has all devices global_shape is None or the shape of local_data, "
                f"{np.shape(array)}; got {shape}"
            )
        made.append(device_put(leaf, where))
    return tree.unflatten(made)


def _of_local_data(sharding: Sharding, data: Any, shape: Any, function: str) -> Array:
    """The array over several processes of which this one has `data`."""
    check_joined(sharding, function)
    rank = data.ndim
    if shape is not None and len(shape) != rank:
        raise ValueError(f"{function}: global_shape is {tuple(shape)}, and local_data has {rank} axes")
    counts = sharding._parts(rank)
    numbers = dict(zip(sharding._device_assignment, sharding._tile_numbers(rank)))
    mine = [numbers[device] for device in sharding._addressable_device_assignment]
    # By axis, the tiles that this process has of it: they are one after the other in the data.
    held = [sorted({tile[axis] for tile in mine}) for axis in range(rank)]
    if shape is None:
        shape = tuple(size * count // max(len(tiles), 1) for size, count, tiles in zip(data.shape, counts, held))
    tile_shape = sharding.shard_shape(shape)
    for axis, (size, whole, tiles, tile) in enumerate(zip(data.shape, shape, held, tile_shape)):
        if size not in (whole, len(tiles) * tile):
            raise ValueError(
                f"{function}: of axis {axis} of size {whole} this process holds {len(tiles) * tile}; local_data has "
                f"{size}, which is neither (local_data {tuple(data.shape)}, global_shape {tuple(shape)})"
            )

    def part(tile_numbers):
        cuts = []
        for number, size, whole, tiles, tile in zip(tile_numbers, data.shape, shape, held, tile_shape):
            first = number if size == whole else tiles.index(number)
            cuts.append(slice(first * tile, (first + 1) * tile))
        return core.as_array(data[tuple(cuts)], function)

    known = {tile: part(tile) for tile in dict.fromkeys(mine)}
    parts = {device: known[numbers[device]] for device in sharding._addressable_device_assignment}
    return _joined(shape, sharding, parts, data.dtype)


def make_array_from_single_device_arrays(
    shape: Shape, sharding: Sharding, arrays: Sequence[Array], *, dtype: Any = None
) -> Array:
    """An array of parts that are on their devices.

    Args:
        shape: of the whole.
        sharding: how it is laid out. Without a `Format` it lies in memory as the parts do, if these agree.
        arrays: for each of its devices the part, in any order.
        dtype: of the array; needed where there are no parts.

    Errors: TypeError unless `arrays` is a list or tuple of arrays; ValueError for another number of
    parts than of devices, for parts on other devices or two on one, and for parts of another shape or dtype.
    Parts that several devices hold are not compared: the first device's is taken.

    >>> part = jnp.arange(3)
    >>> ferrax.make_array_from_single_device_arrays((3,), part.sharding, [part])
    Array([0, 1, 2], dtype=int32)
    """
    function = "make_array_from_single_device_arrays"
    if not isinstance(arrays, (list, tuple)):
        raise TypeError(
            f"{function}: arrays must be a list or a tuple, got {type(arrays).__name__}"
        )
    if not arrays and dtype is None:
        raise ValueError(f"{function}: without arrays, dtype says of what dtype the array is")
    orders = {order_in_memory(array) for array in arrays}
    order = orders.pop() if len(orders) == 1 else None
    if isinstance(sharding, Format):
        order = _order(sharding, shape, function)
    sharding = _sharding(sharding, shape, function)
    for array in arrays:
        if isinstance(array, Tracer):
            raise ValueError(f"{function}: parts are arrays with values, got the traced {array}")
        if not isinstance(array, Array):
            raise TypeError(f"{function}: parts are arrays, got one of type {type(array).__name__}")
    if len(arrays) != len(sharding.addressable_devices):
        raise ValueError(
            f"{function}: {sharding} has {len(sharding.addressable_devices)} devices of this process, got "
            f"{len(arrays)} parts"
        )
    wanted = dtype
    for array in arrays:
        _check_part(array, shape, sharding, wanted, function)
        wanted = array.dtype
    mine = sharding.addressable_devices
    parts: dict[Device, Array] = {}
    for array in arrays:
        held = array.devices()
        if len(held) != 1 or not held <= mine:
            raise ValueError(
                f"{function}: a part is on one of the devices of {sharding}, got one on "
                f"{', '.join(sorted(map(str, held)))}"
            )
        (device,) = held
        if device in parts:
            raise ValueError(f"{function}: two of the parts are on {device}; each device has one")
        parts[device] = array
    return _joined(shape, sharding, parts, dtype, order)


def _joined(shape, sharding, parts, dtype=None, order=None) -> Array:
    """The array that this process's parts make, by device, in this order of axes; the part itself where there is but
    one of all."""
    data = {device: data_of(part, order, "make_array") for device, part in parts.items()}
    if order is not None:
        whole = _joined([shape[axis] for axis in order], permuted(sharding, order), data, dtype)
        return laid_out_as(whole, order, sharding)
    parts = data
    if sharding._shares_memory:
        if len(parts) == 1:
            return placed(next(iter(parts.values())), sharding)
    else:
        parts = {
            device: place(alias(part), SingleDeviceSharding(device, memory_kind=sharding.memory_kind))
            for device, part in parts.items()
        }
    return of_parts(shape, sharding, parts, dtype)


def _constructed(cls: type, aval: Any, sharding: Sharding, arrays: Sequence[Array], committed: bool) -> Array:
    """`Array(aval, sharding, arrays, committed)`: the array of this type that parts make, as libraries that restore
    checkpoints write it.

    Errors: those of `make_array_from_single_device_arrays`; NotImplementedError for one that is not committed
    and is on one device, not the default one. One over several devices that is not committed can be read, and put
    elsewhere, and is no operand.
    """
    several = sharding.num_devices > 1
    if not committed and not several and set(sharding.device_set) != {default_device()}:
        raise NotImplementedError(
            f"{cls.__name__}: an array that is on another device than the default is committed; got committed=False "
            f"and {sharding}"
        )
    made = make_array_from_single_device_arrays(aval.shape, sharding, list(arrays), dtype=aval.dtype)
    if committed:
        return made
    return _core.place_at(alias(made), number_of(sharding, committed=False) if several else 0, True)


for _class in (core.Array, core.ArrayImpl):
    _class.__new__ = staticmethod(_constructed)  # type: ignore[method-assign]
