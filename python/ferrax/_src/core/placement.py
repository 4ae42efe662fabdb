"""Arrays put on devices and taken from them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ferrax import _core
from ferrax._src import core
from ferrax._src.base import config, dtypes
from ferrax._src.core import placements, transfers
from ferrax._src.core.devices import Device, Space, _processes
from ferrax._src.core.explicit_types import laid_out
from ferrax._src.core.global_array import GlobalArray
from ferrax._src.core.layout import AutoLayout, Format, order_of, refuse_order
from ferrax._src.core.mesh import (
    AbstractMesh,
    Mesh,
    concrete_mesh,
    get_abstract_mesh,
    mesh_of_specs,
    over_devices_of,
)
from ferrax._src.core.partition import PartitionSpec, filled, names_of
from ferrax._src.core.permuted_array import (
    PermutedArray,
    data_of,
    laid_out_as,
    order_in_memory,
    permuted,
)
from ferrax._src.core.placements import placed, placement
from ferrax._src.core.sharding import (
    IndivisibleError,
    NamedSharding,
    Sharding,
    SingleDeviceSharding,
)
from ferrax._src.tree import tree_util

# Puts an array over devices of several processes, or takes it from there, in all of them together; None where there
# is one process. What joins processes sets it.
over_processes: Callable[[Any, Sharding], Any] | None = None
# Puts a traced value somewhere; a layer that knows of transformations sets it (`device_moves`).
of_traced: Callable[[Any, Sharding], Any] | None = None


def block_until_ready(x: Any) -> Any:
    """Waits for all arrays of a tree, which on this backend are ready at once. Returns the tree.

    Args: x: any tree.

    >>> ferrax.block_until_ready({"a": jnp.arange(3)})
    {'a': Array([0, 1, 2], dtype=int32)}
    """
    return tree_util.tree_map(lambda leaf: getattr(leaf, "block_until_ready", lambda: leaf)(), x)


def copy_to_host_async(x: Any) -> Any:
    """Asks all arrays of a tree for a copy on the host, which needs none here. Returns the tree.

    Args: x: any tree; of leaves that have it, the method `copy_to_host_async` is called.

    >>> ferrax.copy_to_host_async({"a": jnp.arange(3)})
    {'a': Array([0, 1, 2], dtype=int32)}
    """
    for leaf in tree_util.tree_leaves(x):
        if hasattr(leaf, "copy_to_host_async"):
            leaf.copy_to_host_async()
    return x


def device_put(
    x: Any,
    device: Any = None,
    src: Any = None,
    *,
    donate: Any = False,
    may_alias: Any = None,
) -> Any:
    """The leaves of a tree as arrays that are where they are asked to be.

    Args:
        x: a tree of arrays and scalars.
        device, src: where to and where from: None (anywhere), a device, a sharding, a `PartitionSpec` of
            the mesh in use, a `Format`, a `memory.Space`, or a tree of these above the leaves.
        donate: whether the memory of arrays may be reused, or a tree of such above the leaves. There is no need
            for it here: without `may_alias=False` a result has the memory of its array. Arrays that go to their devices
            in another order are deleted.
        may_alias: False for results that share no memory with `x`.

    Errors: ValueError for other places and trees, for shardings that the leaf's shape does not fit
    or that have other devices than there are, and for `donate` with `may_alias`;
    NotImplementedError for layouts with tiles, of arrays over several processes, and of values that are traced.

    >>> ferrax.device_put({"a": np.float32(1.0)}, ferrax.devices()[0])
    {'a': Array(1., dtype=float32)}
    """
    if may_alias and any(tree_util.tree_leaves(donate)):
        raise ValueError("device_put: donate and may_alias cannot both be true")
    leaves, tree = tree_util.tree_flatten(x)
    places = _places("device", device, x, len(leaves))
    _places("src", src, x, len(leaves))
    donates = tree_util.broadcast_prefix(donate, x)

    def put(leaf, place, donated):
        order = order_in_memory(leaf)
        if isinstance(place, Format) and place != Format():
            order = order_of(place.layout, np.shape(leaf), "device_put")
        if order is not None or type(leaf) is PermutedArray:
            return put_in_order(leaf, place, donated, order)
        if over_processes is not None and type(leaf) is GlobalArray:
            place = _sharding(place, leaf)
            return leaf if place is None else over_processes(leaf, place)
        array = core.as_array(leaf, "device_put")
        if array is leaf and not isinstance(array, core.Tracer) and array.is_deleted():
            raise RuntimeError(
                f"device_put: an array of type {core.typeof(array)} has been deleted: it was deleted or donated "
                "to a jitted function; keep a copy (x.copy()) if it is needed afterwards"
            )
        place = _sharding(place, array)
        given = array
        if may_alias is False and array is leaf:
            array = _unshared(array)
        if place is None:
            over_mesh = array is not leaf and placement(array).sharding.num_devices > 1
            return placements.place(array, placements.WHOLE, committed=False) if over_mesh else array
        if isinstance(array, core.Tracer) and isinstance(place, NamedSharding) and place.mesh.explicit_axes:
            return laid_out(array, place)
        if over_processes is not None and not isinstance(array, core.Tracer):
            if array is not leaf:
                array = placements.place(array, placements.WHOLE, committed=False)
            if not (place._shares_memory and placement(array).sharding._shares_memory):
                return over_processes(array, place)
        if array is not leaf:
            return placements.place(array, place)
        transfers.moved(array, placement(array).sharding, place, True)
        if isinstance(array, core.Tracer):
            assert of_traced is not None
            return of_traced(array, place)
        found = placed(array, place)
        if donated and given is leaf and _other_order(placement(given).sharding, place, given.ndim):
            given.delete()
        return found

    def put_in_order(leaf, place, donated, order):
        if isinstance(leaf, core.Tracer):
            refuse_order(place.layout, leaf.shape, "device_put")
        if type(leaf) is GlobalArray:
            permuted(leaf.sharding, order)  # refuses it
        array = leaf if type(leaf) is PermutedArray else core.as_array(leaf, "device_put")
        array._check_if_deleted()
        where = _sharding(place, array)
        data = data_of(array, order, "device_put")
        inner = where if where is None or order is None else permuted(where, order)
        moved = put(data, inner, False)
        if order is not None and moved is getattr(array, "_data", None):
            return array
        found = laid_out_as(moved, order, where)
        if donated and array is leaf and order_in_memory(leaf) != order:
            leaf.delete()
        return found

    with transfers.explicit():
        return tree.unflatten(list(map(put, leaves, places, donates)))


def check_moves(x: Any, device: Any) -> None:
    """Errors: ValueError for an array that was put on another device than this one by request."""
    known, committed = placement(x)
    if committed and isinstance(device, Device) and known.device_set != {device}:
        raise ValueError(
            f"jnp.array: incompatible devices: the array is on {known}, not on {device}: use ferrax.device_put"
        )


def _other_order(before, after, rank) -> bool:
    """Whether an array goes to the same devices in another order, and none holds what it held: there it is given up, as
    everywhere else nothing is, since memory is shared."""
    if before.num_devices == 1 or before.device_set != after.device_set or before.is_fully_replicated:
        return False
    return before._device_assignment != after._device_assignment and not before.is_equivalent_to(after, rank)


def _sharding(place, array):
    """The sharding that a place means for an array; None: wherever it is."""
    if isinstance(place, Format):
        if place == Format():
            return None
        if isinstance(place.layout, AutoLayout) or place.sharding is None:
            raise ValueError(
                f"device_put: a Format says of what layout and where arrays are to be, got {place}"
            )
        place = place.sharding
    if place is None:
        return None
    if isinstance(place, Space):
        if isinstance(array, core.Tracer):
            return None
        return placement(array).sharding.with_memory_kind(_KINDS[place])
    if isinstance(place, Device):
        return SingleDeviceSharding(place)
    if isinstance(place, PartitionSpec):
        mesh = mesh_of_specs(entered=False)
        if mesh.empty:
            raise ValueError(
                f"device_put: a PartitionSpec refers to the mesh of ferrax.set_mesh, and none is set; got "
                f"{place}"
            )
        place = NamedSharding(mesh, place)
    check_fits(place, array.shape, "device_put")
    return place


_KINDS = {Space.Device: "device", Space.Host: "pinned_host", Space.Any: "device"}


@functools.lru_cache(4096)
def check_fits(sharding: Sharding, shape: tuple[int, ...], function: str) -> None:
    """Errors: ValueError unless arrays of this shape can be laid out so over devices of this process and those
    that are joined with it.
    """
    try:
        if isinstance(sharding, NamedSharding):
            sharding.shard_shape(shape)
    except IndivisibleError:
        raise
    except ValueError as error:
        raise ValueError(f"{function}: {error}") from None
    check_joined(sharding, function)


def check_devices(sharding: Sharding, function: str) -> None:
    """Errors: ValueError unless all devices of the sharding are this process's."""
    if not sharding.is_fully_addressable:
        raise ValueError(f"{function}: other processes have some of the devices of {sharding}")


def check_joined(sharding: Sharding, function: str) -> None:
    """Errors: ValueError if devices of the sharding are those of processes that nothing joins with this one."""
    if _processes.count == 1:
        check_devices(sharding, function)


def _unshared(array):
    """A copy with memory of its own. Tracers have none, and that of keys is not shown to anybody."""
    transfers.copied(array)
    if isinstance(array, core.Tracer) or dtypes.issubdtype(array.dtype, dtypes.extended):
        return array.copy()
    with config.enable_x64(True):
        return _core.array_from_numpy(np.asarray(array), array.weak_type)


def _is_place(place) -> bool:
    return isinstance(place, (Device, Sharding, PartitionSpec, Format, Space))


def _places(name, places, x, count) -> list:
    """The place for each leaf."""
    if places is None or _is_place(places):
        return [places] * count
    for place in tree_util.tree_leaves(places, is_leaf=_is_place):
        if not _is_place(place):
            raise ValueError(
                f"device_put: {name} must be None, a device such as ferrax.devices()[0], a sharding, a "
                f"PartitionSpec, a Format, a memory.Space, or a tree of these; got {place!r} of type "
                f"{type(place).__name__}"
            )
    return tree_util.broadcast_prefix(
        places, x, is_leaf=lambda place: place is None or _is_place(place)
    )


def device_get(x: Any) -> Any:
    """The leaves of a tree as NumPy arrays.

    Args: x: a tree; keys, which NumPy has no dtype for, values that are being traced, and leaves that
    are no arrays stay as they are.

    >>> ferrax.device_get({"a": jnp.arange(3)})
    {'a': array([0, 1, 2], dtype=int32)}
    """

    def get(leaf):
        is_array = isinstance(leaf, core.Array) and not isinstance(leaf, core.Tracer)
        return np.asarray(leaf) if is_array and isinstance(leaf.dtype, np.dtype) else leaf

    with transfers.explicit("device_to_host"):
        return tree_util.tree_map(get, x)


def over_devices(mesh: AbstractMesh) -> Mesh | None:
    """The mesh over the devices of the one in use, which has these axes; else None."""
    return over_devices_of(concrete_mesh(), mesh)


def explicit_sharding(
    where: Any, function: str, rank: int = 0, same_mesh: bool = False
) -> NamedSharding | None:
    """The sharding over explicit axes that an argument `out_sharding` means for arrays of this rank; None
    for none.

    Errors: TypeError for other shardings; ValueError for a `PartitionSpec` where no mesh is in use, for
    axes that are not explicit and, if it must be the `same_mesh`, for another than the one in use.
    """
    if where is None:
        return None
    if isinstance(where, PartitionSpec):
        mesh = get_abstract_mesh()
        if mesh.empty:
            raise ValueError(
                f"{function}: {where} refers to the mesh in use, and there is none: set one with "
                "ferrax.set_mesh, or pass a NamedSharding"
            )
        where = NamedSharding(over_devices(mesh) or mesh, where)
    if not isinstance(where, NamedSharding):
        raise TypeError(
            f"{function}: a sharding must be a NamedSharding or a PartitionSpec, got {where!r} of type "
            f"{type(where).__name__}"
        )
    if where.mesh.empty:
        return None
    if same_mesh and where.memory_kind not in (None, "device"):
        raise ValueError(f"{function}: a sharding here says nothing of memory, got {where.memory_kind!r} of {where}")
    explicit, used = where.mesh.explicit_axes, get_abstract_mesh()
    if same_mesh and not used.empty and where.mesh.abstract_mesh != used:
        if not (used.are_all_axes_auto and where.mesh.are_all_axes_auto):
            raise ValueError(
                f"{function}: {where} is over another mesh than the one in use, {used}: use one of them"
            )
    for name in (*names_of(where.spec.partitions), *where.spec.unreduced, *where.spec.reduced):
        if name not in explicit:
            raise ValueError(
                f"{function}: {where.spec} names the axis {name!r}, which is not Explicit in {where.mesh}"
            )
    return where.update(spec=filled(where.spec, rank))
