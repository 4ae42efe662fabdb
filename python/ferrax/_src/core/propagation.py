"""Where results of operations are, by where their operands are.

What goes in is a program and the number of the placement of each operand (`placements`); what comes out
is that of each result. Where an operand lies over explicit axes of a mesh its type says so, and results
have the types that `spec_rules` gives. Else results are cut as what they are made of, and what a program says itself
(constraints, functions of meshes), as the native core finds (`ferrax-transform/src/spmd`). Cost: linear in the
program; the native core remembers the answers.
"""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Callable, Sequence
from typing import Any

from ferrax import _core
from ferrax._src.core.devices import Device
from ferrax._src.core.global_array import OverProcesses
from ferrax._src.core.jaxpr import ClosedJaxpr, Literal
from ferrax._src.core.mesh import (
    AbstractMesh,
    Mesh,
    concrete_mesh,
    get_abstract_mesh,
    over_devices_of,
)
from ferrax._src.core.partition import PartitionSpec, entry_names, filled, names_of
from ferrax._src.core.placements import (
    COMMITTED,
    TYPED,
    device_number,
    number_of,
    numbered,
    placement,
    terms_of,
)
from ferrax._src.core.sharding import NamedSharding, Sharding, SingleDeviceSharding, of_type
from ferrax._src.core.spec_rules import control, is_alias, of_operation, specs_of, terms_of_results


class _Call(threading.local):
    # The mesh that programs are over where neither they nor their operands say devices: that of the jitted function.
    mesh: Mesh | None = None


call = _Call()


def results(program: Any, numbers: Sequence[int]) -> list[int]:
    """The numbers of the placements of a program's results."""
    for number in numbers:
        if number & TYPED:
            return _typed_results(program, numbers, _mesh_of_all(numbers))
    given = [numbered(number).sharding if number else None for number in numbers]
    committed = [numbered(number).sharding for number in numbers if number & COMMITTED]
    on = [x.mesh for x in committed if isinstance(x, NamedSharding) and isinstance(x.mesh, Mesh)]
    if not on and call.mesh is not None:
        on = [call.mesh]
    of_program, count = said_shardings(program, on), len(program.out_types)
    # A function over a mesh sees to it itself.
    pinned = said_shardings(program, on, _CONSTRAINTS)
    if not all(sharding._shares_memory for sharding in pinned):
        raise OverProcesses(
            f"{program.name}: arrays in the program are over several processes, or over devices with memories of their "
            "own: call it within jit"
        )
    said = [*committed, *of_program]
    _check_known(program, said, on)
    if not said:
        somewhere = next(filter(None, numbers), 0)
        return [somewhere] * count
    _check_said(committed, said)
    meshes = [x.mesh for x in said if isinstance(x, NamedSharding) and isinstance(x.mesh, Mesh)]
    if not meshes:
        return [number_of(said[0])] * count
    mesh, kind = meshes[0], said[0].memory_kind
    if mesh.explicit_axes:
        return _typed_results(program, numbers, mesh)
    # Where a result is divided as an argument is, it has that one's sharding, as it was written.
    written = {
        (x.mesh, _cutting(x.spec, x.mesh, len(ty[0])), x.memory_kind): x.spec
        for x, ty in reversed(list(zip(given, program.in_types)))
        if isinstance(x, NamedSharding) and x in committed and len(x.spec) <= len(ty[0])
    }
    over = [mesh] * count
    if of_program:
        said_over = _said_meshes(ClosedJaxpr(program).open, [_mesh_in(number, COMMITTED) for number in numbers])
        over = [mesh if x is None else over_devices_of(mesh, x) or mesh for x in said_over]
    found = {x: _propagated(program, numbers, x) for x in set(over)}

    def place(index):
        mesh = over[index]
        spec = found[mesh][index]
        spec = written.get((mesh, _cutting(spec, mesh, len(program.out_types[index][0])), kind), spec)
        return number_of(NamedSharding(mesh, spec, memory_kind=kind))

    return [place(index) for index in range(count)]


def _cutting(spec, mesh, rank) -> tuple[tuple[Any, ...], ...]:
    """The axes of a mesh that cut each axis of an array: those of several devices."""
    return tuple(tuple(name for name in entry_names(x) if mesh.shape[name] > 1) for x in filled(spec, rank).partitions)


def _propagated(program, numbers, mesh) -> list[PartitionSpec]:
    """The specs of results over a mesh, as they follow from what is known over it."""
    cut = Cuts(mesh)
    inputs = [cut.entries(numbered(number).sharding) if number & COMMITTED else None for number in numbers]
    found = _core.propagate(program, mesh.axis_sizes, inputs, NAMES, cut.stated)
    return [cut.spec(entries, ty[0]) for entries, ty in zip(found, program.out_types)]


def _with_auto_axes(spec, more, mesh, rank) -> PartitionSpec | None:
    """A spec by explicit axes with that by the other axes, which follows from what the result is made of."""
    if not mesh.explicit_axes:
        return more
    auto = set(mesh.auto_axes)
    known = filled(PartitionSpec() if spec is None else spec, rank)
    joined = [
        (*entry_names(own), *(name for name in entry_names(other) if name in auto))
        for own, other in zip(known.partitions, filled(more, rank).partitions)
    ]
    return known.update(partitions=joined) if any(joined) or spec is not None else None


def _typed_results(program, numbers, mesh) -> list[int]:
    """Of one operation, which the rules may refuse, or of a program, whose operations were checked."""
    jaxpr = ClosedJaxpr(program).open
    one = len(jaxpr.eqns) == 1 and program.name == jaxpr.eqns[0].primitive.name
    if one:
        name, params = program.name, jaxpr.eqns[0].params
        if name == "reshard":
            where = _of_reshard(params)
            return [number_of(where, terms=_terms(jaxpr, numbers, [where.spec], mesh, mesh.shape)[0])]
        if name not in _STATED and not is_alias(jaxpr.eqns[0]):
            _check_context(name, numbers)
    said = [None] if one else _said_meshes(jaxpr, [_mesh_in(number, TYPED) for number in numbers])
    sizes = {name: size for x in (*said, mesh) if x is not None for name, size in x.shape_tuple}
    specs = specs_of(jaxpr, [_spec(given, mesh) for given in numbers], sizes, strict=one)
    over = [mesh if x is None else over_devices_of(mesh, x) or mesh for x in said * (len(specs) if one else 1)]
    specs = [None if spec is None else _shown(spec, x) for spec, x in zip(specs, over)]
    opened = {x: _propagated(program, numbers, x) for x in set(over) if x._any_axis_auto and isinstance(x, Mesh)}
    specs = [
        _with_auto_axes(spec, opened[x][index], x, out.aval.ndim) if x in opened else spec
        for index, (spec, x, out) in enumerate(zip(specs, over, jaxpr.outvars))
    ]
    asked = any(number & COMMITTED for number in numbers)
    return [
        number_of(NamedSharding(x, PartitionSpec() if spec is None else spec), asked or spec is not None, cut)
        if spec is not None or asked
        else number_of(NamedSharding(mesh, PartitionSpec(*[None] * out.aval.ndim)), committed=False)
        for spec, x, out, cut in zip(specs, over, jaxpr.outvars, _terms(jaxpr, numbers, specs, mesh, sizes))
    ]


def _terms(jaxpr, numbers, specs, mesh, sizes) -> list[PartitionSpec | None]:
    """What results with these specs are cut into, those that are sums over devices."""
    if not any(spec is not None and spec.unreduced for spec in specs):
        return [None] * len(specs)
    return terms_of_results(jaxpr, [_spec(given, mesh) for given in numbers], list(map(terms_of, numbers)), sizes)


def types_of_results(
    program: Any, given: Sequence[NamedSharding | None], used: AbstractMesh
) -> list[NamedSharding | None]:
    """The explicit types of a program's results, by those of its operands and the mesh that was in use; None of
    results that have none."""
    if not used.explicit_axes and not any(given) and not _core.equations_named(program, NAMES):
        return [None] * len(program.out_types)
    jaxpr = ClosedJaxpr(program).open
    said = _said_meshes(jaxpr, [None if x is None else x.mesh for x in given])
    over = [(used if x is None else x).abstract_mesh for x in said]
    sizes = {name: size for mesh in (used, *over) for name, size in mesh.shape_tuple}
    specs = specs_of(jaxpr, [None if x is None else x.spec for x in given], sizes, strict=False)
    return [
        of_type(NamedSharding(mesh, PartitionSpec() if spec is None else _shown(spec, mesh)), out.aval.ndim)
        if mesh.explicit_axes
        else None
        for spec, mesh, out in zip(specs, over, jaxpr.outvars)
    ]


def _mesh_in(number, bits) -> Mesh | AbstractMesh | None:
    """The mesh of a placement that was asked for, where its number has these bits."""
    sharding = numbered(number).sharding if number & COMMITTED and number & bits else None
    return sharding.mesh if isinstance(sharding, NamedSharding) and not sharding.mesh.empty else None


def _said_meshes(jaxpr, given) -> list[Mesh | AbstractMesh | None]:
    """For each output the mesh over which its type is: the last one that the program says, else that of an operand."""
    known: dict[Any, Any] = dict(zip(jaxpr.invars, given))

    def of(atom):
        return None if isinstance(atom, Literal) else known.get(atom)

    for eqn in jaxpr.eqns:
        operands = [of(atom) for atom in eqn.invars]
        known.update(zip(eqn.outvars, _meshes_of(eqn, operands)))
    return [of(atom) for atom in jaxpr.outvars]


def _meshes_of(eqn, operands) -> list[Any]:
    if eqn.primitive.name in _CONSTRAINTS:
        sharding = _STATED[eqn.primitive.name][0](eqn.params)[0]
        if isinstance(sharding, NamedSharding) and not sharding.mesh.empty:
            return [sharding.mesh]
    called = None if eqn.primitive.name == "shard_map" else control.called(eqn)
    if called is not None:
        return _said_meshes(called, operands)
    return [next((mesh for mesh in operands if mesh is not None), None)] * len(eqn.outvars)


def _check_context(name, numbers) -> None:
    """Errors: ValueError for operands whose types are over axes of other types than those in use."""
    used = get_abstract_mesh()
    if used.empty or used._any_axis_manual:
        return
    for number in numbers:
        if number & TYPED and number & COMMITTED:
            sharding = numbered(number).sharding
            mesh = sharding.mesh.abstract_mesh if isinstance(sharding, NamedSharding) else used
            if mesh.shape_tuple == used.shape_tuple and mesh.axis_types != used.axis_types:
                raise ValueError(
                    f"{name}: an operand's type is over {mesh}, the mesh in use is {used}: reshard the operand within "
                    "the context, or use auto_axes or explicit_axes"
                )


class Cuts:
    """Specs over a mesh as the native core has them: for each axis of an array numbers of axes of the mesh."""

    def __init__(self, mesh: Mesh) -> None:
        self.mesh = mesh
        self.numbers = {name: number for number, name in enumerate(mesh.axis_names)}

    def entries(self, sharding: Sharding | None) -> list[list[int]] | None:
        """None for shardings over other axes."""
        if not isinstance(sharding, NamedSharding) or sharding.mesh.shape_tuple != self.mesh.shape_tuple:
            return None
        return [[self.numbers[name] for name in entry_names(entry)] for entry in sharding.spec.partitions]

    def spec(self, entries: list[list[int]], shape: Sequence[int]) -> PartitionSpec:
        """Axes that cannot be cut into equal parts are not cut. Axes of one device are named where types name them,
        and where there is no other device, as they were said."""
        sizes = self.mesh.axis_sizes
        if not self.mesh.explicit_axes and self.mesh.size > 1:
            entries = [[number for number in entry if sizes[number] > 1] for entry in entries]
        for axis, size in enumerate(shape[: len(entries)]):
            if size % math.prod(sizes[number] for number in entries[axis]):
                entries[axis] = []
        while entries and not entries[-1] and not self.mesh.explicit_axes:
            entries.pop()
        names = self.mesh.axis_names
        return PartitionSpec(*(tuple(names[number] for number in entry) for entry in entries))

    def stated(self, name: str, params: dict[str, Any]) -> tuple[list[Any], bool, bool]:
        """What an equation says of its results; see `_core.propagate`."""
        rule, passes = _STATED[name]
        said = rule(params)
        found = [self.entries(sharding) for sharding in said]
        # Of axes that are not explicit a `reshard` says nothing.
        opened = name == "reshard" and said[0].mesh._any_axis_auto
        return found, not opened and not params.get("unconstrained_dims"), passes or opened


def said_shardings(program: Any, meshes: Sequence[Mesh] = (), names: set[str] | None = None) -> list[Sharding]:
    """The shardings over devices that equations of a program say, of those primitives; those over meshes without
    devices are over these.
    """
    stated = _core.equations_named(program, NAMES if names is None else names)
    here = functools.partial(_here, meshes=meshes)
    return [found for name, params in stated for found in map(here, _STATED[name][0](params)) if found is not None]


def said_device(program: Any) -> int:
    """The native core's number of the one device that a program says values are on; 0 for several, or none."""
    return next((number for number in map(device_number, said_shardings(program)) if number), 0)


def _check_known(program, said, on) -> None:
    """Errors: ValueError where a program says that a value is divided over a mesh whose devices nobody said."""
    meshes = [*on, *(x.mesh for x in said if isinstance(x, NamedSharding) and isinstance(x.mesh, Mesh))]
    for name, params in _core.equations_named(program, _CONSTRAINTS):
        for sharding in _STATED[name][0](params):
            if isinstance(sharding, NamedSharding) and sharding.mesh.size > 1 and _here(sharding, meshes) is None:
                raise ValueError(
                    f"{program.name}: a value is divided as {sharding.spec} over {sharding.mesh}, and of no mesh of "
                    f"{sharding.mesh.size} devices is known which they are: set one with ferrax.set_mesh, or put an "
                    "argument on one with ferrax.device_put"
                )


def _check_said(committed, said) -> None:
    """Errors: ValueError for operands that were put on other devices than a program says that values are on."""
    if committed:
        devices = _assigned(committed[0])
        other = next((x for x in said if devices and _assigned(x) not in (None, devices)), None)
        if other is not None:
            raise ValueError(
                f"incompatible devices: an operand is on {_named(devices)}, and a sharding within the program is over "
                f"{_named(_assigned(other))}. Put the arguments on one mesh with ferrax.device_put."
            )


def _named(devices) -> str:
    return ", ".join(map(str, devices or ()))


@functools.lru_cache(256)
def undivided(number: int, rank: int) -> int:
    """The number of an array of so many axes that nobody put anywhere, while a mesh is in use, of which `number` is: by
    explicit axes with an entry for each axis."""
    sharding = numbered(number).sharding
    assert isinstance(sharding, NamedSharding)
    if not sharding.mesh.explicit_axes:
        return number
    return number_of(NamedSharding(sharding.mesh, PartitionSpec(*[None] * rank)), committed=False)


@functools.lru_cache(4096)
def of_pair(x: int, y: int, x_shape: Sequence[int], y_shape: Sequence[int]) -> int:
    """The number of the result of an elementwise operation on two operands that are broadcast."""
    _check_pair(x, y)
    rank = max(len(x_shape), len(y_shape))
    if (x | y) & TYPED:
        mesh = _mesh_of_all((x, y))
        shapes = [tuple(x_shape), tuple(y_shape)]
        specs = [_spec(number, mesh) for number in (x, y)]
        full = [None if spec is None else filled(spec, len(shape)) for spec, shape in zip(specs, shapes)]
        if not (x | y) & COMMITTED:
            undivided = PartitionSpec(*[None] * rank)
            return number_of(NamedSharding(mesh, undivided), committed=False)
        spec = of_operation(shapes, full, mesh.shape)
        if mesh._any_axis_auto and isinstance(mesh, Mesh):
            found = numbered(_auto_pair(x, y, shapes[0], shapes[1], rank)).sharding
            if isinstance(found, NamedSharding):
                spec = _with_auto_axes(spec, found.spec, mesh, rank) or spec
        return number_of(NamedSharding(mesh, spec))
    return _auto_pair(x, y, x_shape, y_shape, rank)


def _auto_pair(x, y, x_shape, y_shape, rank) -> int:
    """As `of_pair`, over axes that are not explicit: cut as both are, as far as they agree."""
    given = [(numbered(number).sharding, number, shape) for number, shape in ((x, x_shape), (y, y_shape)) if number]
    named = [(sharding, shape) for sharding, _, shape in given if isinstance(sharding, NamedSharding)]
    if not named:
        return next((number for _, number, _ in given if number & COMMITTED), given[0][1])
    mesh, kind = named[0][0].mesh, named[0][0].memory_kind
    wide = [max(pair) for pair in zip(*((1,) * (rank - len(shape)) + tuple(shape) for shape in (x_shape, y_shape)))]
    entries: list[tuple[Any, ...]] = [()] * rank
    for sharding, shape in named:
        own = [entry_names(entry) for entry in sharding.spec.partitions]
        for axis, (names, size) in enumerate(zip(own, shape), rank - len(shape)):
            if size != 1 or wide[axis] == 1:
                entries[axis] = _agreed(entries[axis], names)
    used: set[Any] = set()
    kept: list[tuple[Any, ...]] = []
    for names in entries:
        kept.append(names if not used & set(names) else ())
        used |= set(kept[-1])
    while kept and not kept[-1]:
        kept.pop()
    spec = PartitionSpec(*kept)
    same = [x.spec for x, shape in named if len(shape) == rank and filled(x.spec, rank) == filled(spec, rank)]
    return number_of(NamedSharding(mesh, same[0] if same else spec, memory_kind=kind))


def _agreed(a: tuple[Any, ...], b: tuple[Any, ...]) -> tuple[Any, ...]:
    """The longer one of two lists of axes if it begins with the other, else what both begin with."""
    common = next((n for n, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
    return a[:common] if common < min(len(a), len(b)) else max(a, b, key=len)


@functools.lru_cache(4096)
def clash(numbers: tuple[int, ...]) -> tuple[int, int] | None:
    """Which two of a program's operands were put by request on different devices; None if there are none."""
    known: tuple[int, tuple[Device, ...]] | None = None
    for place, number in enumerate(numbers):
        if number & COMMITTED:
            devices = _assigned(numbered(number).sharding)
            if devices is None:
                continue
            if known is not None and known[1] != devices:
                return known[0], place
            known = known or (place, devices)
    return None


def _assigned(sharding: Sharding) -> tuple[Device, ...] | None:
    """The devices, in order; None for a sharding over a mesh without any."""
    if isinstance(sharding, NamedSharding) and not isinstance(sharding.mesh, Mesh):
        return None
    return sharding._device_assignment


def devices_of(array: Any) -> str:
    """The devices that an array is on, as text."""
    return _named(_assigned(placement(array).sharding)) or "a mesh without devices"


def _check_pair(x, y) -> None:
    """Errors: ValueError for operands of one operation that are on different devices by request."""
    if clash((x, y)):
        first, other = (_named(_assigned(numbered(number).sharding)) for number in (x, y))
        raise ValueError(
            f"incompatible devices: one operand is on {first}, the other on {other}. An operation runs on the devices "
            "of its operands: put these on one device, or on one mesh, with ferrax.device_put."
        )


def _mesh_of_all(numbers) -> Mesh | AbstractMesh:
    """The mesh of operands whose types say where they are, the one with devices if one has them.

    Errors: ValueError for several.
    """
    given = [numbered(number).sharding for number in numbers if number & TYPED]
    meshes = list(dict.fromkeys(x.mesh for x in given if isinstance(x, NamedSharding)))
    if len({mesh.shape_tuple for mesh in meshes}) > 1:
        raise ValueError(
            f"operands lie over the explicit axes of different meshes, {' and '.join(map(str, meshes))}: "
            "put them on one mesh"
        )
    return next((mesh for mesh in meshes if isinstance(mesh, Mesh)), meshes[0])


def _spec(number, mesh) -> PartitionSpec | None:
    """The explicit axes of an operand's spec over this mesh; None for operands that nobody put there."""
    if not number & COMMITTED:
        return None
    sharding = numbered(number).sharding
    if not isinstance(sharding, NamedSharding) or sharding.mesh.shape_tuple != mesh.shape_tuple:
        return None
    return _shown(sharding.spec, mesh)


def _shown(spec, mesh) -> PartitionSpec:
    """The spec, by the explicit axes of the mesh alone."""
    if spec is None or not (spec.partitions or spec.unreduced or spec.reduced):
        return PartitionSpec() if spec is None else spec
    known = set(mesh.axis_names)
    if not known.issuperset((*names_of(spec.partitions), *spec.unreduced, *spec.reduced)):
        # Of a context with other axes.
        return PartitionSpec(*[None] * len(spec))
    return of_type(NamedSharding(mesh, spec), len(spec)).spec


def _here(sharding, meshes=()) -> Sharding | None:
    """The sharding over devices there are, else None."""
    if isinstance(sharding, NamedSharding) and not isinstance(sharding.mesh, Mesh):
        wanted, known = sharding.mesh, [mesh for mesh in (concrete_mesh(), *meshes) if not mesh.empty]
        mesh = next((mesh for mesh in known if mesh.shape_tuple == wanted.shape_tuple), None)
        if mesh is None:
            mesh = next(filter(None, (over_devices_of(mesh, wanted) for mesh in known)), None)
        if mesh is None:
            return None
        sharding = NamedSharding(mesh, sharding.spec)
    if isinstance(sharding, NamedSharding):
        free = PartitionSpec.UNCONSTRAINED
        entries = [None if entry is free else entry for entry in sharding.spec.partitions]
        return sharding.update(spec=PartitionSpec(*entries))
    return sharding if isinstance(sharding, SingleDeviceSharding) else None


def _of_reshard(params) -> NamedSharding:
    mesh, sharding = params["concrete_mesh"], params["dst_sharding"]
    return sharding if mesh is None else NamedSharding(mesh, sharding.spec)


# What primitives say of where their results are, and whether their operands are cut alike.
_STATED: dict[str, tuple[Callable[[dict[str, Any]], list[Any]], bool]] = {
    "sharding_constraint": (lambda params: [params["sharding"]], True),
    "reshard": (lambda params: [_of_reshard(params)], False),
    "shard_map": (lambda params: [NamedSharding(params["mesh"], spec) for spec in params["out_specs"]], False),
}
NAMES = set(_STATED)
_CONSTRAINTS = NAMES - {"shard_map"}
