"""Programs over the devices of several processes: each process runs the part of its own devices.

What goes in is an equation `shard_map` and arrays of which this process has the parts of its devices; what comes out
are arrays of the same kind. The devices of a process go in lockstep: the jaxpr of one device's part is batched over
them, and what it says over axes of the mesh becomes an exchange with other processes (`exchange`), of all frames at
once, in the order of the program. A program of more than one function over the mesh is taken equation by equation:
what these functions give to each other stays where it is, and all else each process computes of whole arrays. Cost:
that of the batched program, which is kept by jaxpr, and of the exchanges; laying an array out anew where the specs
ask for it.

Invariants: all processes run the same program; a mesh has all devices of all processes.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from ferrax import _core
from ferrax._src import core
from ferrax._src.base import dtypes
from ferrax._src.base.source_info import called_by_user
from ferrax._src.callbacks.callback import io_callback
from ferrax._src.core import named_axes, propagation
from ferrax._src.core.avals import ShapeDtypeStruct
from ferrax._src.core.devices import OF_A_PROCESS
from ferrax._src.core.global_array import GlobalArray, of_parts, spread
from ferrax._src.core.mesh import Mesh
from ferrax._src.core.partition import names_of
from ferrax._src.core.parts import parts_of
from ferrax._src.core.placement import device_put
from ferrax._src.core.placements import alias, place, placement
from ferrax._src.core.primitives import Primitive, apply_program, axis_primitive_batchers
from ferrax._src.core.sharding import NamedSharding, Sharding, SingleDeviceSharding
from ferrax._src.lax.creation import full_like
from ferrax._src.lax.shape import broadcast, concatenate, expand_dims
from ferrax._src.lax.slicing import index_in_dim
from ferrax._src.parallel import exchange, ranks, shard_map_primitive
from ferrax._src.parallel.partition import is_over_some, over_all_axes, partition
from ferrax._src.parallel.shard_map_programs import device_program
from ferrax._src.transforms import placed_jit, placed_programs, stages
from ferrax._src.transforms.batching_rules import moveaxis
from ferrax._src.tree import tree_util

FRAMES = "<frames>"


def is_over_processes(mesh: Any) -> bool:
    """Whether a mesh has devices of other processes."""
    mine = ranks.current().process
    return isinstance(mesh, Mesh) and any(device.process_index != mine for device in mesh.devices.flat)


def run(args: Sequence[Any], params: dict[str, Any]) -> list[Any]:
    """What an equation `shard_map` over several processes gives.

    Errors: NotImplementedError for meshes without some of the devices.
    """
    mesh = params["mesh"]
    _check(mesh)
    if is_over_some(params):
        places = tuple(known if isinstance(known, NamedSharding) else None for known, _ in map(placement, args))
        params, consts = _over_all(*(params[name] for name in _ASKED_OF), places)
        args = [*args, *consts]
    shardings = [NamedSharding(mesh, spec) for spec in params["in_specs"]]
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
    sharding, devices = NamedSharding(mesh, spec), _devices(mesh)
    shape = tuple(size * count for size, count in zip(sizes, sharding._parts(len(sizes))))
    holders = {number for number, device in enumerate(devices) if sharding._holds_sum(device)}
    return sharding, shape, devices, holders


def _check(mesh) -> None:
    joined, each = ranks.current(), len(_devices(mesh))
    numbers = sorted(_number(device, each) for device in mesh.devices.flat)
    if numbers != list(range(joined.processes * each)):
        raise NotImplementedError(
            f"shard_map over several processes: the mesh must have each device of all {joined.processes} processes "
            f"once, got {mesh}"
        )


def _devices(mesh):
    """The devices of this process, in their own order."""
    mine = ranks.current().process
    return sorted((d for d in mesh.devices.flat if d.process_index == mine), key=lambda device: device.id)


def _number(device, each) -> int:
    """The number of a device among those of all processes, as `exchange` counts."""
    return device.process_index * each + device.id % OF_A_PROCESS


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
    own = [_core.place_at(alias(parts[device]), 0, True) for device in _devices(sharding.mesh)]
    return concatenate([expand_dims(part, (0,)) for part in own], 0)


_ASKED_OF = ("jaxpr", "mesh", "in_specs", "out_specs", "newly_manual_axes")


@functools.lru_cache(256)
def _over_all(jaxpr, mesh, in_specs, out_specs, manual, places):
    """The parameters of an equation over some axes as one over all, and its last operands; see `over_all_axes`."""
    params = dict(zip(_ASKED_OF, (jaxpr, mesh, in_specs, out_specs, manual)))
    cuts = propagation.Cuts(mesh)
    return over_all_axes(params, mesh, list(map(cuts.entries, places)))[:2]


@functools.lru_cache(256)
def _framed(jaxpr, mesh, in_specs, out_specs):
    """The program of all devices of this process, and where its inputs and results have the axis of the devices."""
    program = device_program(jaxpr, mesh, in_specs, out_specs, frozenset(mesh.axis_names)).combine_sums()
    each = len(_devices(mesh))
    program = _core.replace_named(program, functools.partial(_replacement, mesh, each))
    in_dims = [0 if names_of(spec.partitions) else None for spec in in_specs]
    program, out_dims = program.batch(each, in_dims, None, FRAMES)
    return program, in_dims, out_dims


# ---------------------------------------------------------------------------------------------
# Collectives.


def _replacement(mesh, each, name, params, line):
    """The primitive that stands for a collective, its parameters, and the axis that it is over."""
    axes = params.get("axes", params.get("axis_name"))
    names = tuple(map(named_axes.from_text, (axes,) if isinstance(axes, str) else axes))
    groups = _groups(mesh, each, names, params.get("axis_index_groups"))
    kind, more = _KINDS[name](params)
    own = {"kind": kind, "groups": groups, "more": tuple(more.items()), "line": line or ""}
    if kind == "axis_index":
        own["more"] = (("places", _places(mesh, each, names)),)
    return exchange_p, own, FRAMES


def _groups(mesh, each, names, within) -> tuple[tuple[int, ...], ...]:
    """The devices that talk over these axes, by number, in the order of the axes as they are named."""
    places = [mesh.axis_names.index(name) for name in names]
    rest = [axis for axis in range(mesh.devices.ndim) if axis not in places]
    devices = np.transpose(mesh.devices, (*rest, *places))
    count = int(np.prod([mesh.devices.shape[place] for place in places], dtype=int))
    groups = [[_number(device, each) for device in group] for group in devices.reshape(-1, count)]
    if within is not None:
        groups = [[group[place] for place in part] for group in groups for part in within]
    return tuple(map(tuple, groups))


def _places(mesh, each, names) -> tuple[int, ...]:
    """The place of each device of this process on an axis."""
    (name,) = names
    axis = mesh.axis_names.index(name)
    found = {_number(device, each): where[axis] for where, device in np.ndenumerate(mesh.devices)}
    first = ranks.current().process * each
    return tuple(found[first + frame] for frame in range(each))


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


def _batch(size, axis_name, trace_type, args, dims, *, kind, groups, more, line):
    """The exchange of all frames; what all of them have is one value."""
    params = dict(more)
    if kind == "axis_index":
        return core.as_array(np.asarray(params["places"], np.int32)), 0
    (x,), (dim,) = args, dims
    if dtypes.issubdtype(x.dtype, dtypes.extended):
        # Of keys their words move, which are along further axes behind.
        words = _core.bind("random_unwrap", (x,), {})
        moved, dim = _batch(
            size, axis_name, trace_type, [words], dims, kind=kind, groups=groups, more=more, line=line
        )
        return _core.bind("random_wrap", (moved,), {"impl": x.dtype._native[1]}), dim
    sizes = {len(group) for group in groups}
    if dim is None and kind in ("psum", "pmax", "pmin") and len(sizes) == 1:
        return (x * np.asarray(sizes.pop(), x.dtype) if kind == "psum" else x), None
    frames = broadcast(x, (size,)) if dim is None else moveaxis(x, dim, 0)
    shape = _shape(kind, tuple(frames.shape[1:]), len(groups[0]), params)
    together = kind in ("psum", "pmax", "pmin", "all_gather", "pbroadcast") and len(groups) == 1
    struct = ShapeDtypeStruct(shape if together else (size, *shape), frames.dtype)
    result = io_callback(
        functools.partial(_exchange, kind, groups, params, line, together), struct, frames, ordered=True
    )
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


def _exchange(kind, groups, params, line, together, frames):
    """The exchange itself, called by the program as it runs."""
    frames = np.asarray(frames)
    # Programs of this package have no lines, as others call them, too: that is where they are called.
    result = exchange.run(kind, frames, groups, line=line or _core.user_location() or "", **params)
    return np.asarray(result[0] if together else result, order="C")


exchange_p = Primitive("exchange")
axis_primitive_batchers[exchange_p] = _batch
shard_map_primitive.over_processes = run


# ---------------------------------------------------------------------------------------------
# Jitted functions.


def call_jitted(function: Any, args: Any, kwargs: Any) -> Any:
    """What a jitted function gives of arrays of which this process has parts: each process runs the program of its
    devices' parts (`partition`). Else it is one whose program asks where its arrays are (`placed_programs`).

    Errors: NotImplementedError for arrays that can be written to, and arrays over no mesh or several.
    """
    if ranks.current().processes == 1:
        return placed_programs.call_jitted(function, args, kwargs)
    if not core.trace_state_clean():
        # Whoever began the trace may know what stands for the array.
        for leaf in tree_util.tree_leaves((args, kwargs)):
            if type(leaf) is GlobalArray:
                core.as_array(leaf)
    *dynamic, static = placed_programs.apart(function, args, kwargs)
    typed = [x if number in static else tree_util.tree_map(_type_of, x) for number, x in enumerate(args)]
    named = {name: x if name in static else tree_util.tree_map(_type_of, x) for name, x in kwargs.items()}
    program, captured, _, out_tree, donated, refs = called_by_user(functools.partial(function._traced, *typed, **named))
    if refs is not None:
        raise NotImplementedError(
            "jit over several processes: arrays that can be written to are not supported; pass arrays, and return "
            "those that are to be kept"
        )
    leaves = tree_util.tree_leaves(tuple(dynamic))
    said = placed_programs.said_of(function, out_tree, program.out_types)
    results = run_program(program, [*leaves, *captured], said)
    if results is None:
        return placed_programs.call_jitted(function, args, kwargs)
    for leaf, flag in zip(leaves, donated or ()):
        if flag and isinstance(leaf, core.Array):
            leaf.delete()
    return out_tree.unflatten(results)


def run_program(program: Any, operands: Sequence[Any], said: Sequence[Sharding | None] = ()) -> list[Any] | None:
    """The results of a program over whole arrays, where `said` says, if that is given; None if neither an array nor
    what is said of it, within and of results, is over several processes.

    Errors: NotImplementedError for arrays over no mesh or several; ValueError for results over other devices.
    """
    ins = tuple(map(_said_sharding, operands))
    mesh = _mesh_over_processes(program, ins) or next(filter(None, map(_mesh_of, said)), None)
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
    results = run([*operands, *consts], params)
    return [x if where is None else _laid(x, where) for x, where in zip(results, outs)]


def _mesh_of(sharding) -> Mesh | None:
    """The mesh of a sharding over several processes."""
    known = isinstance(sharding, NamedSharding) and is_over_processes(sharding.mesh)
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
def _mesh_over_processes(program, ins) -> Mesh | None:
    """The mesh of arguments, and of what the program says, that has devices of other processes; None for none.

    Errors: NotImplementedError for several.
    """
    said = [*ins, *propagation.said_shardings(program)]
    named = [sharding.mesh for sharding in said if isinstance(sharding, NamedSharding)]
    meshes = [mesh for mesh in dict.fromkeys(named) if isinstance(mesh, Mesh) and is_over_processes(mesh)]
    if len({(mesh.shape_tuple, tuple(mesh.devices.flat)) for mesh in meshes}) > 1:
        raise NotImplementedError(
            "jit over several processes: the arrays and what the program says of shardings must be over one mesh, got "
            + " and ".join(map(str, meshes))
        )
    return next(iter(meshes), None)


@functools.lru_cache(256)
def _partitioned(program, mesh, ins, outs):
    """The parameters of the equation `shard_map` that a program over whole arrays is, and its last operands."""
    cut = [where if isinstance(where, NamedSharding) and where.mesh == mesh else None for where in outs]
    params, consts, _ = partition(program, mesh, ins, cut)
    return params, consts
