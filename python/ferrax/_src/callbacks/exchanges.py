"""Collectives of programs of one device as exchanges with the others: a primitive, run by a callback.

What goes in is a program in which axes of a mesh are named; what comes out is, by batching over the axis `FRAMES`, the
program of all devices of this process at once, whose exchanges are of all their frames (`over_processes`), or that of
one of them, which has a memory of its own and meets the others where they exchange something (`separate_devices`).
Cost: that of the batch; at run time of the exchanges.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from ferrax import _core
from ferrax._src import core
from ferrax._src.base import dtypes
from ferrax._src.callbacks.callback import io_callback
from ferrax._src.core import named_axes
from ferrax._src.core.avals import ShapeDtypeStruct
from ferrax._src.core.devices import Device
from ferrax._src.core.mesh import Mesh
from ferrax._src.core.primitives import Primitive, axis_primitive_batchers
from ferrax._src.lax.shape import broadcast
from ferrax._src.lax.slicing import index_in_dim
from ferrax._src.parallel import exchange, lockstep, ranks
from ferrax._src.transforms.batching_rules import moveaxis

FRAMES = "<frames>"


def check_mesh(mesh: Mesh) -> None:
    """Errors: NotImplementedError for a mesh over processes that has not as many devices of each, each device once."""
    if not mesh.is_multi_process:
        return
    joined = ranks.current()
    each = len(devices_of(mesh))
    held = [device.process_index for device in mesh.devices.flat]
    numbers = {device.id for device in mesh.devices.flat}
    if sorted(held) != sorted(list(range(joined.processes)) * each) or len(numbers) != len(held):
        raise NotImplementedError(
            f"shard_map over several processes: the mesh must have as many devices of each of the {joined.processes} "
            f"processes, each once, got {mesh}"
        )


def devices_of(mesh: Mesh) -> list[Device]:
    """The devices of this process, in their own order."""
    return sorted(mesh.local_devices, key=lambda device: device.id)


@functools.lru_cache(256)
def _numbers(mesh: Mesh) -> dict[Device, int]:
    """The numbers of devices as `exchange` counts: those of each process follow one another, in their own order."""
    devices = sorted(mesh.devices.flat, key=lambda device: (device.process_index, device.id))
    return {device: number for number, device in enumerate(devices)}


class Collective(NamedTuple):
    """What devices do together: the name as `exchange` has it, groups of devices by number, its other parameters, the
    user's line, and whether devices of other processes are among them."""

    kind: str
    groups: tuple[tuple[int, ...], ...]
    more: tuple[tuple[str, Any], ...]
    line: str
    over_processes: bool

    def __str__(self) -> str:
        return f"{self.kind} at {self.line}" if self.line else self.kind

    def run(self, frames: np.ndarray) -> np.ndarray:
        """What this process's devices hold then of what they hold now, [k, ...]. Errors: as `exchange.run`."""
        # Programs of this package have no lines, as others call them, too: that is where they are called.
        line = self.line or _core.user_location() or ""
        joined = ranks.current() if self.over_processes else ranks.ALONE
        return exchange.run(self.kind, frames, self.groups, line=line, joined=joined, **dict(self.more))


def replacement(mesh: Mesh, device: Device | None, name: str, params: Any, line: str | None) -> Any:
    """The primitive that stands for a collective, its parameters, and the axis that it is over, in the program of one
    device of this process, or of all."""
    axes = params.get("axes", params.get("axis_name"))
    names = tuple(map(named_axes.from_text, (axes,) if isinstance(axes, str) else axes))
    kind, more = _KINDS[name](params)
    if kind == "axis_index":
        more = {"places": _places(mesh, devices_of(mesh) if device is None else [device], names)}
    collective = Collective(
        kind, _groups(mesh, names, params.get("axis_index_groups")), tuple(more.items()), line or "",
        mesh.is_multi_process,
    )  # fmt: skip
    return exchange_p, {"collective": collective, "alone": device is not None}, FRAMES


def _groups(mesh, names, within) -> tuple[tuple[int, ...], ...]:
    """The devices that talk over these axes, by number, in the order of the axes as they are named."""
    places = [mesh.axis_names.index(name) for name in names]
    rest = [axis for axis in range(mesh.devices.ndim) if axis not in places]
    devices = np.transpose(mesh.devices, (*rest, *places))
    count = int(np.prod([mesh.devices.shape[place] for place in places], dtype=int))
    groups = [[_numbers(mesh)[device] for device in group] for group in devices.reshape(-1, count)]
    if within is not None:
        groups = [[group[place] for place in part] for group in groups for part in within]
    return tuple(map(tuple, groups))


def _places(mesh, devices, names) -> tuple[int, ...]:
    """The place of each of these devices on an axis."""
    (name,) = names
    axis = mesh.axis_names.index(name)
    found = {device: where[axis] for where, device in np.ndenumerate(mesh.devices)}
    return tuple(found[device] for device in devices)


def _gathering(params):
    return "all_gather", {"axis": params["all_gather_dimension"], "tiled": params["tiled"]}


# By op: the collective of `exchange`, and its parameters.
_KINDS: dict[str, Any] = {
    "psum": lambda params: ("psum", {}),
    "psum_invariant": lambda params: ("psum", {}),
    "pmax": lambda params: ("pmax", {}),
    "pmin": lambda params: ("pmin", {}),
    "all_gather": _gathering,
    "all_gather_invariant": _gathering,
    "reduce_scatter": lambda params: (
        "psum_scatter", {"axis": params["scatter_dimension"], "tiled": params["tiled"]},
    ),
    "all_to_all": lambda params: (
        "all_to_all", {"split_axis": params["split_axis"], "concat_axis": params["concat_axis"], "tiled": True},
    ),
    "ppermute": lambda params: ("ppermute", {"perm": tuple(map(tuple, params["perm"]))}),
    "pbroadcast": lambda params: ("pbroadcast", {"source": params["source"]}),
    "axis_index": lambda params: ("axis_index", {}),
}  # fmt: skip


def _batch(size, axis_name, trace_type, args, dims, *, collective, alone):
    """The exchange of all frames; what all of them have is one value. Of one device's program it is that of what this
    one has."""
    kind, groups, params = collective.kind, collective.groups, dict(collective.more)
    if kind == "axis_index":
        places = np.asarray(params["places"], np.int32)
        return (core.as_array(places[0]), None) if alone else (core.as_array(places), 0)
    (x,), (dim,) = args, dims
    if dtypes.issubdtype(x.dtype, dtypes.extended):
        words = _core.bind("random_unwrap", (x,), {})
        result, dim = _batch(size, axis_name, trace_type, (words,), dims, collective=collective, alone=alone)
        return _core.bind("random_wrap", (result,), {"impl": x.dtype._native[1]}), dim
    if alone:
        x = x if dim is None else index_in_dim(x, 0, dim, keepdims=False)
        shape = _shape(kind, tuple(x.shape), len(groups[0]), params)
        struct = ShapeDtypeStruct(shape, x.dtype)
        return io_callback(functools.partial(_met, collective), struct, x, ordered=True), None
    sizes = {len(group) for group in groups}
    if dim is None and kind in ("psum", "pmax", "pmin") and len(sizes) == 1:
        return (x * np.asarray(sizes.pop(), x.dtype) if kind == "psum" else x), None
    frames = broadcast(x, (size,)) if dim is None else moveaxis(x, dim, 0)
    shape = _shape(kind, tuple(frames.shape[1:]), len(groups[0]), params)
    together = kind in ("psum", "pmax", "pmin", "all_gather", "pbroadcast") and len(groups) == 1
    struct = ShapeDtypeStruct(shape if together else (size, *shape), frames.dtype)
    result = io_callback(functools.partial(_exchange, collective, together), struct, frames, ordered=True)
    return result, None if together else 0


def _shape(kind, shape, count, params):
    """The shape of a device's result."""
    shape = list(shape)
    if kind == "all_gather":
        axis = params["axis"]
        return (*shape[:axis], shape[axis] * count, *shape[axis + 1 :]) if params["tiled"] else (
            *shape[:axis], count, *shape[axis:]
        )
    if kind == "psum_scatter":
        axis = params["axis"]
        return (*shape[:axis], *([shape[axis] // count] if params["tiled"] else []), *shape[axis + 1 :])
    if kind == "all_to_all":
        shape[params["split_axis"]] //= count
        shape[params["concat_axis"]] *= count
    return tuple(shape)


def _exchange(collective, together, frames):
    """The exchange itself, called by the program as it runs."""
    result = collective.run(np.asarray(frames))
    return np.asarray(result[0] if together else result, order="C")


def _met(collective, frame):
    """The exchange with the other devices, called by the program of one of them as it runs."""
    meet = lockstep.meeting()
    assert meet is not None, "the program of a device runs in its thread"
    return np.asarray(meet(collective, np.asarray(frame)), order="C")


exchange_p = Primitive("exchange")
axis_primitive_batchers[exchange_p] = _batch
