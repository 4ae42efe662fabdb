"""Devices in the order in which a mesh should have them.

On the CPU all orders are alike, so that devices are in the order they are given in; those of a TPU, which programs plan
meshes of without having one, are where `tpu_topology` says. Where devices belong to groups that are far apart (slices,
processes), the outer axes of a hybrid mesh go over the groups.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from ferrax._src.core.devices import Device, devices as all_devices
from ferrax._src.parallel.tpu_topology import arranged, is_tpu

__all__ = ["create_device_mesh", "create_hybrid_device_mesh"]


def _sizes(shape, function) -> tuple[int, ...]:
    try:
        return tuple(map(operator.index, shape))
    except TypeError:
        if not hasattr(shape, "__iter__"):
            raise
        raise ValueError(f"{function}: the shape must be a sequence of ints, got {shape!r}") from None


def create_device_mesh(
    mesh_shape: Sequence[int], devices: Sequence[Any] | None = None, *,
    contiguous_submeshes: bool = False, allow_split_physical_axes: bool = False,
) -> np.ndarray:
    """An array of all devices for a `Mesh` of this shape.

    Args:
        mesh_shape: the sizes of the axes.
        devices: the devices; None: `ferrax.devices()`.
        contiguous_submeshes: whether the devices of each process have to form a box of the mesh.
        allow_split_physical_axes: whether axes of the mesh may share an axis of the wires between devices. Both are
            about TPUs; a CPU has no wires.

    Errors: ValueError unless there are as many devices as the mesh has places, and for devices of a TPU with gaps;
    NotImplementedError for a mesh over a TPU whose axes would have to share one.

    >>> from ferrax.experimental import mesh_utils
    >>> mesh_utils.create_device_mesh((1, 1), ferrax.devices()[:1]).shape
    (1, 1)
    """
    known: list[Any] = list(all_devices() if devices is None else devices)
    sizes = _sizes(mesh_shape, "create_device_mesh")
    if math.prod(sizes) != len(known):
        raise ValueError(
            f"create_device_mesh: a mesh of shape {sizes} has {math.prod(sizes)} places, and there are "
            f"{len(known)} devices"
        )
    if known and is_tpu(known[0]):
        return arranged(sizes, known, "create_device_mesh", allow_split_physical_axes, contiguous_submeshes)
    grid = np.empty(len(known), dtype=object)
    grid[:] = known
    return grid.reshape(sizes)


def create_hybrid_device_mesh(
    mesh_shape: Sequence[int], dcn_mesh_shape: Sequence[int], devices: Sequence[Any] | None = None, *,
    process_is_granule: bool = False, should_sort_granules_by_key: bool = True,
    allow_split_physical_axes: bool = False,
) -> np.ndarray:
    """An array of all devices for a `Mesh` whose axes are outer ones, over groups of devices, times
    inner ones, within a group.

    Args:
        mesh_shape: the sizes of the axes within a group.
        dcn_mesh_shape: the sizes of the axes over groups, as many.
        devices: the devices; None: `ferrax.devices()`.
        process_is_granule: whether groups are processes, and not slices, which devices of a CPU have none.
        should_sort_granules_by_key: whether groups are in the order of their numbers.
        allow_split_physical_axes: as for `create_device_mesh`.

    Errors: ValueError for devices that belong to no group, and unless there are as many groups, and as
    many devices in each, as the shapes say.

    >>> from ferrax.experimental import mesh_utils
    >>> mesh_utils.create_hybrid_device_mesh((1,), (1,), ferrax.devices()[:1], process_is_granule=True).shape
    (1,)
    """
    function = "create_hybrid_device_mesh"
    known: list[Device] = list(all_devices() if devices is None else devices)
    key = "process_index" if process_is_granule else "slice_index"
    if not hasattr(known[0], key):
        raise ValueError(
            f"{function}: {known[0]} has no {key}; with process_is_granule=True groups are processes"
        )
    groups: dict[int, list] = {}
    for device in known:
        groups.setdefault(getattr(device, key), []).append(device)
    order = sorted(groups) if should_sort_granules_by_key else list(groups)
    outer = _sizes(dcn_mesh_shape, function)
    inner = _sizes(mesh_shape, function)
    if math.prod(outer) != len(groups):
        raise ValueError(f"{function}: there are {len(groups)} groups of devices, for the shape {outer}")
    if len(outer) != len(inner):
        raise ValueError(f"{function}: the shapes must be of one length, got {inner} and {outer}")
    blocks = np.empty(len(order), dtype=object)
    for number, group in enumerate(order):
        blocks[number] = create_device_mesh(
            inner, groups[group], allow_split_physical_axes=allow_split_physical_axes
        )
    return np.block(blocks.reshape(outer).tolist())
