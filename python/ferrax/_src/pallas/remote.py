"""What a kernel does to the memory of other devices: it writes to their refs and adds to their semaphores.

In: a device of the mesh that `shard_map` maps the kernel over, and what is to be written there. Devices run a kernel in
lockstep: each is at the same operation of its program, so that an operation on another device is one of all of them,
which show each other what they send (`lax.all_gather`) and take what is for them.

A branch that only some devices take would keep the others from taking what they are sent. So `pl.when`, where what it
runs reaches other devices, has all devices run it and makes its writes depend on the condition (`state.masked`):
`Apart` tells it so.

Invariants: what is received is written whatever the receiver's own conditions say; of several devices that write to
one place in one operation the last, in the order of the mesh, remains.
Cost: an operation moves what all devices send to each of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ferrax._src import core, state
from ferrax._src.core import named_axes
from ferrax._src.lax.control_flow.common import bodies
from ferrax._src.lax.control_flow.conditionals import cond
from ferrax._src.lax.control_flow.while_loop import fori_loop
from ferrax._src.lax.elementwise import _convert_element_type, select
from ferrax._src.lax.parallel import all_gather, axis_index
from ferrax._src.lax.slicing import dynamic_index_in_dim
from ferrax._src.pallas import grid
from ferrax._src.pallas.specs import DeviceIdType
from ferrax._src.state import at_user_line
from ferrax._src.tree import tree_util

_INT32 = np.dtype(np.int32)


class Apart(NotImplementedError):
    """An operation on another device is in a branch or a loop that devices may not all run alike."""


def mesh_axes() -> dict[Any, int]:
    """The axes of the mesh that the kernel is mapped over, outermost first, and their sizes."""
    return {name: named_axes.size_of(name) for name in named_axes.names() if named_axes.is_of_mesh(name)}


def device_index(name: str, device_id: Any, device_id_type: DeviceIdType) -> Any:
    """The number of a device in the order of the mesh, an int32 scalar. Errors: ValueError for what names none."""
    axes = mesh_axes()
    if not axes:
        raise ValueError(
            f"{name}: device_id={device_id!r} names a device of a mesh, and no function is mapped over one here: call "
            f"the kernel in shard_map.{at_user_line()}"
        )
    if device_id_type is DeviceIdType.LOGICAL:
        if isinstance(device_id, (tuple, list, Mapping)):
            raise ValueError(
                f"{name}: with DeviceIdType.LOGICAL a device is one number, got {device_id!r}.{at_user_line()}"
            )
        return _index(name, device_id, math.prod(axes.values()))
    if isinstance(device_id, Mapping):
        others = [axis for axis in device_id if axis not in axes]
        if others:
            raise NotImplementedError(
                f"{name}: device_id names places on the axes of the mesh, {list(axes)}, got {others!r}. Cores of other "
                f"devices have no memory of their own: leave their axis out.{at_user_line()}"
            )
        places = [device_id[axis] if axis in device_id else axis_index(axis) for axis in axes]
    else:
        places = list(device_id) if isinstance(device_id, Sequence) else [device_id]
    if len(places) != len(axes):
        raise ValueError(
            f"{name}: the mesh has the axes {list(axes)}, got {len(places)} places in device_id={device_id!r}."
            f"{at_user_line()}"
        )
    number: Any = core.as_array(np.int32(0))
    for place, size in zip(places, axes.values()):
        number = number * np.int32(size) + _index(name, place, size)
    return number


def _index(name, place, size):
    if isinstance(place, (int, np.integer)) and not 0 <= place < size:
        raise ValueError(f"{name}: device_id names place {place} of {size}, from 0 on.{at_user_line()}")
    return _convert_element_type(core.as_array(place, "device_id"), _INT32, weak_type=False)


def to_device(name: str, target: Any, message: Any, receive: Callable[[Any], None]) -> None:
    """Has a device do `receive(message)`, with this device's message.

    Args: name: of the operation; target: the device's number; message: a pytree of arrays, refs and views, which stand
    for the device's own; receive: writes to these refs.
    """
    frame = grid.innermost()
    within = [kind for kind in bodies()[0 if frame is None else frame.depth :] if kind != "scan"]
    if within:
        raise Apart(
            f"{name}: of another device, in a {'branch' if within[0] in ('cond', 'switch') else 'loop'} that devices "
            f"may not all run alike. Make it depend on pl.when, and loops have a known length.{at_user_line()}"
        )
    sizes = mesh_axes()
    axes, count = tuple(sizes), math.prod(sizes.values())
    for mask in state.masks():
        target = select(mask, target, core.as_array(np.int32(-1)))
    leaves, tree = tree_util.tree_flatten(state.opened(message))
    sent = [number for number, leaf in enumerate(leaves) if isinstance(leaf, core.Array)]
    targets, *values = [all_gather(x, axes) for x in (target, *(leaves[number] for number in sent))]
    own = axis_index(axes)

    def of(sender, carry):
        def take():
            now = list(leaves)
            for number, value in zip(sent, values):
                now[number] = dynamic_index_in_dim(value, sender, keepdims=False)
            receive(tree.unflatten(now))

        cond(dynamic_index_in_dim(targets, sender, keepdims=False) == own, take, lambda: None)
        return carry

    with state.masked(()):
        fori_loop(np.int32(0), np.int32(count), of, ())
