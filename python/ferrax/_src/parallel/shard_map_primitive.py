"""The primitive `shard_map`: what an equation over the devices of a mesh is typed by, lowered to and run by.

What goes in are whole arrays, or those of which this process has parts, and the parameters of the equation; what comes
out are arrays that lie as its specs say. Within one process the equation is one program over whole arrays
(`shard_map_programs`); over several, `over_processes` runs each process's part. Cost: that of the program; placing the
results, a few microseconds each.

Invariant: nothing is run over a mesh of more devices than there are (`_check_mesh`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ferrax._src import core
from ferrax._src.base import effects
from ferrax._src.core import placements
from ferrax._src.core.devices import device_count
from ferrax._src.core.explicit_types import all_typed
from ferrax._src.core.global_array import OverProcesses
from ferrax._src.core.lowering import lower_fun, register_lowering
from ferrax._src.core.mesh import Mesh, concrete_mesh
from ferrax._src.core.partition import PartitionSpec
from ferrax._src.core.placement import check_devices
from ferrax._src.core.primitives import Primitive
from ferrax._src.core.sharding import NamedSharding
from ferrax._src.core.spec_rules import specs_of
from ferrax._src.core.spec_rules.control import of_shard_map
from ferrax._src.parallel.part_jaxprs import know_axes
from ferrax._src.parallel.shard_map_programs import whole
from ferrax._src.parallel.shard_map_specs import counts_of

# What runs the equation over the devices of several processes, once they are joined.
over_processes: Callable[[Any, Any], Any] | None = None


def is_local(mesh) -> bool:
    """Whether the mesh's devices, if it has any, are this process's and have one memory."""
    return not isinstance(mesh, Mesh) or mesh._shares_memory


def _check_mesh(mesh) -> None:
    """Errors: OverProcesses for a mesh of other processes' devices; ValueError for one of processes that are not
    joined, or without devices and larger than what there is.
    """
    if over_processes is not None and not is_local(mesh):
        raise OverProcesses(
            f"shard_map: the devices of {mesh} are those of several processes, or have memories of their own: call the "
            "function within jit"
        )
    if isinstance(mesh, Mesh):
        check_devices(NamedSharding(mesh, PartitionSpec()), "shard_map")
    elif mesh.size > (count := concrete_mesh().size or device_count()):
        raise ValueError(f"shard_map requires {mesh.size} devices for {mesh}, and there are {count}")


def on_whole_arrays(*args, **params):
    """What the equation computes, of whole arrays.

    Errors: those of `_check_mesh`.
    """
    _check_mesh(params["mesh"])
    return whole(*args, **params)


def run_equation(*args, **params):
    know_axes(params["jaxpr"], params["mesh"], params["newly_manual_axes"], params["check_vma"])
    if over_processes is not None and not is_local(params["mesh"]):
        return over_processes(args, params)
    results = on_whole_arrays(*(core.as_array(x, "shard_map") for x in args), **params)
    mesh, specs = _with_devices(params["mesh"], args), params["out_specs"]
    if mesh is None:
        return results
    if set(mesh.explicit_axes) - params["newly_manual_axes"]:
        known = [None if where is None else where.spec for where in all_typed(args)]
        inner = functools.partial(specs_of, sizes=mesh.shape, strict=False)
        specs = of_shard_map(params, [x.ndim for x in results], known, inner)
    return [
        x if isinstance(x, core.Tracer) else placements.placed(x, NamedSharding(mesh, spec))
        for x, spec in zip(results, specs)
    ]


def _with_devices(mesh, args) -> Mesh | None:
    """The mesh; for one without devices that of the arguments, or the one in use, whose axes are these."""
    if isinstance(mesh, Mesh):
        return mesh
    meshes = [x.sharding.mesh for x in args if isinstance(getattr(x, "sharding", None), NamedSharding)]
    meshes = [known for known in (concrete_mesh(), *meshes) if isinstance(known, Mesh)]
    return next((known for known in meshes if known.shape_tuple == mesh.shape_tuple), None)


def _abstract_eval(*avals, jaxpr, mesh, out_specs, newly_manual_axes, **params):
    know_axes(jaxpr, mesh, newly_manual_axes, params["check_vma"])
    outs = []
    for atom, spec in zip(jaxpr.outvars, out_specs):
        aval = atom.aval
        counts = counts_of(spec, aval.ndim, mesh)
        shape = tuple(size * count for size, count in zip(aval.shape, counts))
        outs.append(core.ShapedArray(shape, aval.dtype, aval.weak_type))
    own = {effects.NamedAxisEffect(name) for name in newly_manual_axes}
    return outs, set(jaxpr.effects) - own


shard_map_p = Primitive("shard_map")
shard_map_p.multiple_results = True
shard_map_p.def_impl(run_equation)
shard_map_p.def_effectful_abstract_eval(_abstract_eval)
register_lowering(shard_map_p, lower_fun(on_whole_arrays, multiple_results=True))
