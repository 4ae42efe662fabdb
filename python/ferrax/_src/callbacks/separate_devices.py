"""Programs over several devices of this process that have memories of their own, as GPUs have.

What goes in is an equation `shard_map` over all axes of such a mesh and its arguments; what comes out are arrays whose
parts are on these devices. Each device runs the program of its part in a thread of its own (`lockstep`); what programs
exchange goes through the host's memory, since no device reads another's, and has the bits that it has over processes.
Cost: that of the program on each device at once; what is exchanged is copied from all and to all. Arguments that are
not divided so are put so first.

Invariant: programs are the same but for their places on axes of the mesh, and each is compiled for its device.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Sequence
from typing import Any

from ferrax import _core
from ferrax._src import core
from ferrax._src.base import config
from ferrax._src.callbacks.exchanges import FRAMES, devices_of, replacement
from ferrax._src.core.devices import Device
from ferrax._src.core.global_array import GlobalArray, of_parts, spread
from ferrax._src.core.mesh import Mesh
from ferrax._src.core.placement import device_put
from ferrax._src.core.placements import alias, place
from ferrax._src.core.primitives import apply_program
from ferrax._src.core.sharding import NamedSharding, SingleDeviceSharding
from ferrax._src.lax.creation import full_like
from ferrax._src.lax.slicing import index_in_dim
from ferrax._src.parallel import lockstep
from ferrax._src.parallel.shard_map_programs import device_program


def run(
    args: Sequence[Any], shardings: Sequence[NamedSharding], params: dict[str, Any], constants: int = 0
) -> list[Any]:
    """What the equation gives of arguments that are to be divided so. The last ones, so many, are constants, whose
    parts are kept as long as they.

    Errors: JaxRuntimeError for devices that do not do the same; else those of the program, from any device.
    """
    mesh, specs = params["mesh"], (tuple(params["in_specs"]), tuple(params["out_specs"]))
    devices = devices_of(mesh)
    first = len(args) - constants
    given = [(_parts if n < first else _kept)(x, where) for n, (x, where) in enumerate(zip(args, shardings))]

    def of(device: Device):
        program, out_dims = _of_device(params["jaxpr"], mesh, *specs, device)

        def call():
            with config.default_device(device):
                results = apply_program(program, [parts[device] for parts in given])
                return [
                    x if dim is None else index_in_dim(x, 0, dim, keepdims=False) for x, dim in zip(results, out_dims)
                ]

        return call

    found = lockstep.run(list(map(of, devices)), lambda collective, frames: collective.run(frames))
    return [_array(parts, devices, NamedSharding(mesh, spec)) for parts, spec in zip(zip(*found), specs[1])]


def _array(parts: Sequence[Any], devices: list[Device], sharding: NamedSharding) -> Any:
    """The array of which these devices have these parts."""
    first = parts[0]
    counts = sharding._parts(first.ndim)
    shape = tuple(size * count for size, count in zip(first.shape, counts))

    held = {}
    for device, part in zip(devices, parts):
        own = alias(part) if sharding._holds_sum(device) else full_like(part, 0)
        held[device] = place(own, SingleDeviceSharding(device))
    return of_parts(shape, sharding, held, first.dtype, first.weak_type)


def _parts(x: Any, sharding: NamedSharding) -> dict[Device, Any]:
    """What each device has of an argument."""
    if type(x) is GlobalArray:
        return dict(device_put(x, sharding).parts())
    return dict(spread(core.as_array(x, "shard_map"), sharding).parts())


# Of constants, by the numbers of their objects and how they are divided: the object, and its parts.
_constants: dict[tuple[int, NamedSharding], tuple[weakref.ref[Any], dict[Device, Any]]] = {}


def _kept(x: Any, sharding: NamedSharding) -> dict[Device, Any]:
    key = id(x), sharding
    known = _constants.get(key)
    if known is None or known[0]() is not x:
        known = weakref.ref(x, lambda _: _constants.pop(key, None)), _parts(x, sharding)
        _constants[key] = known
    return known[1]


@functools.lru_cache(2048)
def _of_device(jaxpr, mesh: Mesh, in_specs, out_specs, device: Device):
    """The program of a device, and where its results have the axis of the devices, of which it is one."""
    program = device_program(jaxpr, mesh, in_specs, out_specs, frozenset(mesh.axis_names)).combine_sums()
    program = _core.replace_named(program, functools.partial(replacement, mesh, device))
    return program.batch(1, [None] * len(program.in_types), None, FRAMES)
