"""Programs over the devices of several processes: each process runs the part of its own devices. So are programs over
devices of this process with memories of their own, of which each runs its part (`separate_devices`).

What goes in is an equation `shard_map` and arrays of which this process has the parts of its devices; what comes out
are arrays of the same kind. The devices of a process go in lockstep: the jaxpr of one device's part is batched over
them, and what it says over axes of the mesh becomes an exchange with other processes (`exchange`), of all frames at
once, in the order of the program. A program of more than one function over the mesh is taken equation by equation:
what these functions give to each other stays where it is, and all else each process computes of whole arrays. Cost:
that of the batched program, which is kept by jaxpr, and of the exchanges; laying an array out anew where the specs
ask for it.

Invariants: all processes run the same program; a mesh has as many devices of each.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from ferrax import _core
from ferrax._src import core
from ferrax._src.base.source_info import called_by_user
from ferrax._src.callbacks import separate_devices
from ferrax._src.callbacks.exchanges import FRAMES, check_mesh, devices_of, replacement
from ferrax._src.core import propagation
from ferrax._src.core.avals import ShapeDtypeStruct
from ferrax._src.core.global_array import GlobalArray, of_parts, spread
from ferrax._src.core.mesh import Mesh
from ferrax._src.core.partition import names_of
from ferrax._src.core.parts import parts_of
from ferrax._src.core.placement import device_put
from ferrax._src.core.placements import alias, place, placement
from ferrax._src.core.primitives import apply_program
from ferrax._src.core.sharding import NamedSharding, Sharding, SingleDeviceSharding
from ferrax._src.lax.creation import full_like
from ferrax._src.lax.shape import concatenate, expand_dims
from ferrax._src.lax.slicing import index_in_dim
from ferrax._src.parallel import across, shard_map_primitive
from ferrax._src.parallel.partition import is_over_some, over_all_axes, partition
from ferrax._src.parallel.shard_map_programs import device_program
from ferrax._src.transforms import placed_jit, placed_programs, stages
from ferrax._src.tree import tree_util


def run(args: Sequence[Any], params: dict[str, Any], constants: int = 0) -> list[Any]:
    """What an equation `shard_map` over several processes gives. The last arguments, so many, are constants.

    Errors: NotImplementedError for meshes without some of the devices.
    """
    mesh = params["mesh"]
    check_mesh(mesh)
    if is_over_some(params):
        places = tuple(known if isinstance(known, NamedSharding) else None for known, _ in map(placement, args))
        params, consts = _over_all(*(params[name] for name in _ASKED_OF), places)
        args, constants = [*args, *consts], constants + len(consts)
    shardings = [NamedSharding(mesh, spec) for spec in params["in_specs"]]
    if mesh._apart:
        return separate_devices.run(args, shardings, params, constants)
    program, in_dims, out_dims = _framed(
        params["jaxpr"], mesh, tuple(params["in_specs"]), tuple(params["out_specs"])
    )
    given = [_frames(x, sharding, cut) for x, sharding, cut in zip(args, shardings, in_dims)]
    results = apply_program(program, given)
    specs = params["out_specs"]
    return [_result(result, dim, mesh, spec) for result, dim, spec in zip(results, out_dims, specs)]


def _result(frames, dim, mesh, spec):
    """The array whose parts on this process's devices are these, along an axis, or all the same."""
    sizes = frames.shape if dim is None else frames.shape[:dim] + frames.shape[dim + 1 :]
    sharding, shape, devices, holders = _laid_out(mesh, spec, sizes)

    def part(number):
        own = frames if dim is None else index_in_dim(frames, number, dim, keepdims=False)
        return alias(own) if number in holders else full_like(own, 0)

    if shape == sizes:
        # One tile, which this process has: as `of_parts` finds, the first device's.
        return place(part(devices.index(sharding._addressable_device_assignment[0])), sharding)
    parts = {device: place(part(number), SingleDeviceSharding(device)) for number, device in enumerate(devices)}
    return of_parts(shape, sharding, parts, frames.dtype, frames.weak_type)


@functools.lru_cache(4096)
def _laid_out(mesh, spec, sizes):
    """Of an array with parts of these sizes: the sharding, the shape, this process's devices, and which of these hold
    what their tile is."""
    sharding, devices = NamedSharding(mesh, spec), devices_of(mesh)
    shape = tuple(size * count for size, count in zip(sizes, sharding._parts(len(sizes))))
    holders = {number for number, device in enumerate(devices) if sharding._holds_sum(device)}
    return sharding, shape, devices, holders


def _frames(x, sharding, dim):
    """What the devices of this process have of an argument, along a new first axis; all of it, where it is not cut."""
    if type(x) is GlobalArray:
        known = placement(x).sharding
        if dim is None or not known.is_equivalent_to(sharding, x.ndim):
            x = device_put(x, sharding)
    elif dim is not None:
        x = spread(core.as_array(x, "shard_map"), sharding)
    if dim is None:
        return core.as_array(x, "shard_map")
    parts = dict(x.parts() if type(x) is GlobalArray else parts_of(x))
    # Of this process, wherever its devices are: what devices hold is one program's.
    own = [_core.place_at(alias(parts[device]), 0, True) for device in devices_of(sharding.mesh)]
    return concatenate([expand_dims(part, (0,)) for part in own], 0)


_ASKED_OF = ("jaxpr", "mesh", "in_specs", "out_specs", "newly_manual_axes")


@functools.lru_cache(256)
def _over_all(jaxpr, mesh, in_specs, out_specs, manual, places):
    """The parameters of an equation over some axes as one over all, and its last operands; see `over_all_axes`."""
    params = dict(zip(_ASKED_OF, (jaxpr, mesh, in_specs, out_specs, manual)))
    cuts = propagation.Cuts(mesh)
    return over_all_axes(params, mesh, list(map(cuts.entries, places)))[:2]


shard_map_primitive.over_processes = run


@functools.lru_cache(256)
def _framed(jaxpr, mesh, in_specs, out_specs):
    """The program of all devices of this process, and where its inputs and results have the axis of the devices."""
    program = device_program(jaxpr, mesh, in_specs, out_specs, frozenset(mesh.axis_names)).combine_sums()
    each = len(devices_of(mesh))
    program = _core.replace_named(program, functools.partial(replacement, mesh, None))
    in_dims = [0 if names_of(spec.partitions) else None for spec in in_specs]
    program, out_dims = program.batch(each, in_dims, None, FRAMES)
    return program, in_dims, out_dims


# ---------------------------------------------------------------------------------------------
# Jitted functions.


def call_jitted(function: Any, args: Any, kwargs: Any) -> Any:
    """What a jitted function gives of arrays of which this process has parts: each process runs the program of its
    devices' parts (`partition`). Else it is one whose program asks where its arrays are (`placed_programs`).

    Errors: NotImplementedError for arrays that can be written to, and arrays over no mesh or several.
    """
    if not across.installed():
        return placed_programs.call_jitted(function, args, kwargs)
    if not core.trace_state_clean() and any(type(x) is GlobalArray for x in tree_util.tree_leaves((args, kwargs))):
        # Whoever began the trace may know what stands for the array.
        given, kwargs = tree_util.tree_map(lambda x: core.as_array(x) if type(x) is GlobalArray else x, (args, kwargs))
        return function(*given, **kwargs)
    *dynamic, static = placed_programs.apart(function, args, kwargs)
    typed = [x if number in static else tree_util.tree_map(_type_of, x) for number, x in enumerate(args)]
    named = {name: x if name in static else tree_util.tree_map(_type_of, x) for name, x in kwargs.items()}
    program, captured, _, out_tree, donated, refs = called_by_user(functools.partial(function._traced, *typed, **named))
    leaves = tree_util.tree_leaves(tuple(dynamic))
    operands = [*leaves, *captured]
    if refs is not None and _mesh_apart(program, tuple(map(_said_sharding, operands))) is not None:
        raise NotImplementedError(
            "jit over several processes or memories: arrays that can be written to are not supported; pass arrays, and "
            "return those that are to be kept"
        )
    said = placed_programs.said_of(function, out_tree, program.out_types)
    results = run_program(program, operands, said, len(captured))
    if results is None:
        return placed_programs.call_jitted(function, args, kwargs)
    for leaf, flag in zip(leaves, donated or ()):
        if flag and isinstance(leaf, core.Array):
            leaf.delete()
    return out_tree.unflatten(results)


def run_program(
    program: Any, operands: Sequence[Any], said: Sequence[Sharding | None] = (), captured: int = 0
) -> list[Any] | None:
    """The results of a program over whole arrays, where `said` says, if that is given; None if neither an array nor
    what is said of it, within and of results, is over several processes. The last operands, so many, are arrays that it
    closes over.

    Errors: NotImplementedError for arrays over no mesh or several; ValueError for results over other devices.
    """
    ins = tuple(map(_said_sharding, operands))
    mesh = _mesh_apart(program, ins) or next(filter(None, map(_mesh_of, said)), None)
    if mesh is None:
        return None
    outs = (*said, *[None] * (len(program.out_types) - len(said)))
    for where in outs:
        if where is not None and where.device_set != set(mesh.devices.flat):
            raise ValueError(
                f"jit: incompatible devices: arguments or results are over {mesh}, and a result is to be where {where} "
                "says, which are others"
            )
    params, consts = _partitioned(program, mesh, ins, outs)
    results = run([*operands, *consts], params, captured + len(consts))
    return [x if where is None else _laid(x, where) for x, where in zip(results, outs)]


def _mesh_of(sharding) -> Mesh | None:
    """The mesh of a sharding over several processes or memories."""
    known = isinstance(sharding, NamedSharding) and isinstance(sharding.mesh, Mesh) and not sharding._shares_memory
    return sharding.mesh if known else None


def _laid(x, sharding):
    """A result of a program where it was said to be, over its devices."""
    known = placement(x).sharding
    if known == sharding:
        return x
    if known.memory_kind != sharding.memory_kind or not known.is_equivalent_to(sharding, x.ndim):
        return device_put(x, sharding)
    return of_parts(x.shape, sharding, dict(x.parts())) if type(x) is GlobalArray else place(x, sharding)


stages.over_processes = run_program
placed_jit.over_processes = lambda function, *args, **kwargs: call_jitted(function, args, kwargs)


def _type_of(x: Any) -> Any:
    if type(x) is not GlobalArray:
        return x
    return ShapeDtypeStruct(x.shape, x.dtype, weak_type=x.weak_type, sharding=x.sharding)


def _said_sharding(x) -> NamedSharding | None:
    """How an operand is cut, if that was asked for.

    Errors: NotImplementedError for arrays of several processes that are not over a mesh.
    """
    known, committed = placement(x)
    if type(x) is GlobalArray and not isinstance(known, NamedSharding):
        raise NotImplementedError(f"jit over several processes: arrays must be over a mesh, got {known}")
    return known if committed and isinstance(known, NamedSharding) else None


@functools.lru_cache(256)
def _mesh_apart(program, ins) -> Mesh | None:
    """The mesh of arguments, and of what the program says, that has devices of other processes; None for none.

    Errors: ValueError for several devices, NotImplementedError for several meshes of the same.
    """
    said = [*ins, *propagation.said_shardings(program)]
    named = [sharding.mesh for sharding in said if isinstance(sharding, NamedSharding)]
    meshes = [mesh for mesh in dict.fromkeys(named) if isinstance(mesh, Mesh) and not mesh._shares_memory]
    if len({tuple(mesh.devices.flat) for mesh in meshes}) > 1:
        held = " and ".join(", ".join(map(str, mesh.devices.flat)) for mesh in meshes)
        raise ValueError(
            f"incompatible devices: arrays and shardings of one program are over {held}: put the arrays on one mesh, "
            "with ferrax.device_put"
        )
    if len({mesh.shape_tuple for mesh in meshes}) > 1:
        raise NotImplementedError(
            "jit over several processes or memories: the arrays and what the program says of shardings must be over "
            "one mesh, got " + " and ".join(map(str, meshes))
        )
    return next(iter(meshes), None)


@functools.lru_cache(256)
def _partitioned(program, mesh, ins, outs):
    """The parameters of the equation `shard_map` that a program over whole arrays is, and its last operands."""
    cut = [where if isinstance(where, NamedSharding) and where.mesh == mesh else None for where in outs]
    params, consts, _ = partition(program, mesh, ins, cut)
    return params, consts
