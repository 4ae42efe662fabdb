"""Programs over whole arrays as programs of one device of a mesh, with what devices exchange.

What goes in is a program, a mesh, and how its arguments and results are cut; what comes out is the program that each
device runs on its parts, as the parameters of an equation `shard_map`, and a list of its collectives. The native core
does the work (`ferrax-transform/src/spmd/partition.rs`). One process computes with whole arrays and needs none of it:
it is for meshes over several processes, and to show what devices of a cluster would say to each other.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence, Set as AbstractSet
from typing import Any

from ferrax import _core
from ferrax._src.base.source_info import called_at
from ferrax._src.core import ShapeDtypeStruct, Tracer, call_borders, named_axes, propagation
from ferrax._src.core.jaxpr import ClosedJaxpr, bind_equation, interpret
from ferrax._src.core.mesh import Mesh
from ferrax._src.core.partition import PartitionSpec, entry_names
from ferrax._src.core.placements import TYPED, number_of, numbered
from ferrax._src.core.sharding import NamedSharding, Sharding
from ferrax._src.parallel.shard_map_primitive import shard_map_p
from ferrax._src.parallel.shard_map_programs import device_program
from ferrax._src.tracing.staging import stage
from ferrax._src.transforms import stages


@dataclasses.dataclass(frozen=True)
class Exchange:
    """What the devices of a mesh say to each other at one place of a program.

    Attributes:
        collective: the name, such as `"psum"` or `"all_gather"`.
        axes: the axes of the mesh, by name.
        bytes: what each device puts in.
        line: the user's line, or None.
        needed_by: the operation that needs its operand otherwise than it is cut, which nobody asked for; empty for
            sums that a cut asks for, and for what a sharding says.
    """

    collective: str
    axes: tuple[Any, ...]
    bytes: int
    line: str | None
    needed_by: str

    def __str__(self) -> str:
        why = f", as {self.needed_by} needs it" if self.needed_by else ""
        over, where = ", ".join(map(str, self.axes)), self.line or "no line"
        return f"{self.collective} over {over}: {self.bytes} bytes{why} ({where})"


def partition(
    program: Any, mesh: Mesh, ins: Sequence[Sharding | None], outs: Sequence[Sharding | None] | None = None
) -> tuple[dict[str, Any], list[Any], list[Exchange]]:
    """The parameters of the equation `shard_map` that a program is, its last operands, which are constants of the
    program, and what devices exchange.

    Args:
        program: one over whole arrays.
        mesh: the devices.
        ins: how the arguments are cut; None: not at all.
        outs: how results are to be; None, of one or all: as follows from the arguments.

    Errors: NotImplementedError for programs with arrays that can be written to, and for functions over other meshes.
    """
    program = program.erase_varying()
    cuts = propagation.Cuts(mesh)
    outs = [None] * len(program.out_types) if outs is None else list(outs)
    numbers = [0 if x is None else number_of(x) for x in ins]
    if None in outs and any(number & TYPED for number in numbers):
        typed = (numbered(number).sharding for number in propagation.results(program, numbers))
        outs = [there if where is None else where for where, there in zip(outs, typed)]
    given = [cuts.entries(sharding) or [] for sharding in ins]
    program, within = _divided(program, cuts, given)
    local, consts, found, said = _cut(program, cuts, given, [cuts.entries(sharding) for sharding in outs])
    shapes_in, shapes_out = ([ty[0] for ty in types] for types in (program.in_types, program.out_types))
    in_specs = [cuts.spec(list(entries), shape) for entries, shape in zip(given, shapes_in)]
    params = {
        "jaxpr": ClosedJaxpr(local).open,
        "mesh": mesh,
        "in_specs": (*in_specs, *[PartitionSpec()] * len(consts)),
        "out_specs": tuple(cuts.spec(entries, shape) for entries, shape in zip(found, shapes_out)),
        "check_vma": False,
        "newly_manual_axes": frozenset(mesh.axis_names),
    }
    names = mesh.axis_names
    exchanges = [
        Exchange(collective, tuple(names[axis] for axis in over), count, line, needed_by)
        for line, collective, over, count, needed_by in (*within, *said)
    ]
    return params, consts, exchanges


def _cut(program, cuts, given, wanted, manual=frozenset()):
    """What the native core makes of a program, of which each device along `manual` has one of its own already."""
    axes = [named_axes.text(name) for name in cuts.mesh.axis_names]
    return _core.partition(
        program, cuts.mesh.axis_sizes, axes, given, wanted, propagation.NAMES, cuts.stated,
        lambda name, params: _body(cuts, name, params, manual),
    )  # fmt: skip


def _body(cuts, name, params, outside):
    """The program of one device of a function over the mesh, within one over the axes `outside`, and how its arguments
    are cut."""
    if name != shard_map_p.name:
        return None
    mesh = cuts.mesh
    if params["mesh"].shape_tuple != mesh.shape_tuple:
        raise NotImplementedError(
            f"a function over {params['mesh']} within a program over {mesh}: over several processes there is one mesh"
        )
    given = [cuts.entries(NamedSharding(mesh, spec)) for spec in params["in_specs"]]
    return of_one_device(params, mesh, outside), given


def of_one_device(params: dict[str, Any], mesh: Mesh, outside: AbstractSet[Any] = frozenset()) -> Any:
    """The program of each device of a function over some axes of a mesh, or all, within one over the axes `outside`.

    Along other axes arguments and results are whole (`over_all_axes` divides them). What the function says to be cut
    there is, and devices exchange what that asks for; all else each of them does.
    """
    program = _of_parts(params)
    manual = params["newly_manual_axes"] | outside
    if manual == set(mesh.axis_names):
        return program
    wanted: list[Any] = [[]] * len(program.out_types)
    local, consts, *_ = _cut(program, propagation.Cuts(mesh), [[]] * len(program.in_types), wanted, manual)
    return local.bind_constants(consts) if consts else local


def _of_parts(params):
    names = ("jaxpr", "mesh", "in_specs", "out_specs", "newly_manual_axes")
    return device_program(*(params[name] for name in names))


def is_over_some(params: dict[str, Any]) -> bool:
    """Whether an equation `shard_map` leaves axes of its mesh to others."""
    return params["newly_manual_axes"] != set(params["mesh"].axis_names)


def over_all_axes(
    params: dict[str, Any], mesh: Mesh, known: Sequence[list[list[int]] | None]
) -> tuple[dict[str, Any], list[Any], list[Any]]:
    """The parameters of an equation over some axes of a mesh as those of one over all of them, its last operands, which
    are constants, and what devices exchange along the other axes.

    Args:
        params: the equation's.
        mesh: its mesh, with devices.
        known: how its arguments are cut, None: not at all. They stay so along the other axes, and results are cut
            there as follows.
    """
    cuts, manual = propagation.Cuts(mesh), params["newly_manual_axes"]
    own = {cuts.numbers[name] for name in manual}
    program = _of_parts(params)
    given = []
    for entries, (shape, *_) in zip(known, program.in_types):
        others = [[number for number in entry if number not in own] for entry in entries or []]
        given.append([[cuts.numbers[name] for name in names] for names in _names(cuts.spec(others, shape))])
    local, consts, found, said = _cut(program, cuts, given, [None] * len(program.out_types), manual)

    def specs(before, after):
        both = []
        for spec, entries in zip(before, after):
            pairs = itertools.zip_longest(_names(spec), _names(cuts.spec(entries, [0] * len(entries))), fillvalue=())
            both.append(PartitionSpec(*((*names, *others) for names, others in pairs)))
        return tuple(both)

    changed = {
        "jaxpr": ClosedJaxpr(local).open,
        "in_specs": (*specs(params["in_specs"], given), *[PartitionSpec()] * len(consts)),
        "out_specs": specs(params["out_specs"], found),
        "check_vma": False,
        "newly_manual_axes": frozenset(mesh.axis_names),
        "mesh": mesh,
    }
    return changed, consts, said


def _names(spec):
    return list(map(entry_names, spec.partitions))


def _divided(program, cuts, given):
    """The program whose functions over some axes of the mesh get arguments that are cut along the others, too, as they
    are by the program so far, and what devices exchange for that. Functions within loops and branches stay as they are.
    """
    some = any(is_over_some(params) for _, params in _core.equations_named(program, {shard_map_p.name}))
    if not some:
        return program, []
    exchanged: list[Any] = []

    def entries_of(value):
        recorded = _core.recorded_so_far(value) if isinstance(value, Tracer) else None
        if recorded is None:
            return None
        so_far, captured = recorded
        known = [*given, *[[]] * len(captured)]
        (found,) = _core.propagate(so_far, cuts.mesh.axis_sizes, known, propagation.NAMES, cuts.stated)
        return found

    def equation(eqn, values):
        if eqn.primitive.name == "jit":
            inner = call_borders.whole(eqn.params)["jaxpr"]
            return interpret(inner.open, inner.consts, values, equation)
        if eqn.primitive is not shard_map_p or not is_over_some(eqn.params):
            return bind_equation(eqn, values)
        if eqn.params["mesh"].shape_tuple != cuts.mesh.shape_tuple:
            return bind_equation(eqn, values)
        params, consts, said = over_all_axes(eqn.params, cuts.mesh, list(map(entries_of, values)))
        exchanged.extend(said)
        return called_at(eqn.source_info, lambda: shard_map_p.bind(*values, *consts, **params))

    closed = ClosedJaxpr(program, ())
    types = [ShapeDtypeStruct(x.shape, x.dtype, weak_type=x.weak_type) for x in closed.open.in_avals]
    made, captured, _ = stage(lambda *args: interpret(closed.open, closed.consts, args, equation), tuple(types), {})
    return (made.bind_constants(captured) if captured else made).erase_varying(), exchanged


def _exchanges(program, ins, outs):
    """As `partition` finds, over the mesh of the shardings that are said; none without one."""
    said = [*ins, *outs, *propagation.said_shardings(program)]
    mesh = next((x.mesh for x in said if isinstance(x, NamedSharding) and isinstance(x.mesh, Mesh)), None)
    if mesh is None:
        return []

    def over(shardings, count):
        known = [x if isinstance(x, NamedSharding) else None for x in shardings]
        return known + [None] * (count - len(known))

    ins, outs = over(ins, len(program.in_types)), over(outs, len(program.out_types))
    return partition(program, mesh, ins, outs)[2]


stages.exchanges = _exchanges
