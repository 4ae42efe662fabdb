"""Where results of operations are, by where their operands are.

What goes in is a program and the number of the placement of each operand (`placements`); what comes out
is that of each result. Where an operand lies over explicit axes of a mesh its type says so, and results
have the types that `spec_rules` gives. Else a result is where the first operand is that it is made of, if
it has as many axes, or undivided on that mesh; what a program says itself (constraints, functions of
meshes) counts before that. Cost: linear in the program; the native core remembers the answers.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from ferrax._src.core.jaxpr import ClosedJaxpr, Literal
from ferrax._src.core.mesh import AbstractMesh, Mesh, concrete_mesh
from ferrax._src.core.partition import PartitionSpec
from ferrax._src.core.placements import TYPED, number_of, numbered
from ferrax._src.core.sharding import NamedSharding, Sharding, SingleDeviceSharding
from ferrax._src.core.spec_rules import joined, specs_of


def results(program: Any, numbers: Sequence[int]) -> list[int]:
    """The numbers of the placements of a program's results."""
    jaxpr = ClosedJaxpr(program).jaxpr
    for number in numbers:
        if number & TYPED:
            mesh = _mesh_of_all(numbers)
            specs = specs_of(jaxpr, [_spec(given, mesh) for given in numbers])
            return [number_of(NamedSharding(mesh, _shown(spec))) for spec in specs]
    given = [numbered(number).sharding if number else None for number in numbers]
    said: list[Sharding] = [sharding for sharding in given if sharding is not None]
    found = _follow(jaxpr, given, said)
    if not said:
        return [0] * len(found)
    rest = _undivided(said[0])
    return [number_of(rest if sharding is None else sharding) for sharding in found]


@functools.lru_cache(4096)
def of_pair(x: int, y: int, x_shape: Sequence[int], y_shape: Sequence[int]) -> int:
    """The number of the result of an elementwise operation on two operands that are broadcast."""
    rank = max(len(x_shape), len(y_shape))
    for number in (x, y):
        if number & TYPED:
            mesh = _mesh_of_all((x, y))
            entries = []
            for given, shape in ((x, x_shape), (y, y_shape)):
                spec = _spec(given, mesh)
                if spec is not None:
                    own = [*spec, *[None] * (len(shape) - len(spec))]
                    entries.append((None,) * (rank - len(shape)) + tuple(own))
            return number_of(NamedSharding(mesh, _shown(joined("this operation", entries))))
    first, shape = (x, x_shape) if x else (y, y_shape)
    sharding = numbered(first).sharding
    return number_of(sharding if len(shape) == rank else _undivided(sharding))


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


def _spec(number, mesh) -> tuple | None:
    """The entries of an operand's spec over this mesh; None for operands that are not on it."""
    sharding = numbered(number).sharding
    if not isinstance(sharding, NamedSharding) or sharding.mesh.shape_tuple != mesh.shape_tuple:
        return None
    explicit = set(mesh.explicit_axes)

    def kept(entry):
        names = entry if isinstance(entry, tuple) else (entry,)
        left = tuple(name for name in names if name in explicit)
        return left[0] if len(left) == 1 else left or None

    return tuple(map(kept, sharding.spec.partitions))


def _shown(spec) -> PartitionSpec:
    return PartitionSpec() if spec is None else PartitionSpec(*spec)


def _undivided(sharding) -> Sharding:
    """Where arrays are whole on these devices."""
    if isinstance(sharding, NamedSharding):
        return NamedSharding(sharding.mesh, PartitionSpec(), memory_kind=sharding.memory_kind)
    return sharding


def _follow(jaxpr, given, said) -> list[Sharding | None]:
    """Where outputs of a jaxpr are, None for those that no placed value leads to. `said` gets what the
    program says itself."""
    known = dict(zip(jaxpr.invars, given))

    def of(atom):
        return None if isinstance(atom, Literal) else known.get(atom)

    for eqn in jaxpr.eqns:
        inputs = [of(atom) for atom in eqn.invars]
        known.update(zip(eqn.outvars, _of_equation(eqn, inputs, said)))
    return [of(atom) for atom in jaxpr.outvars]


def _of_equation(eqn, inputs, said) -> list[Sharding | None]:
    stated = _STATED.get(eqn.primitive.name)
    if stated is not None:
        found = [_here(sharding) for sharding in stated(eqn)]
        said += [sharding for sharding in found if sharding is not None]
        return found
    for inner in ("jaxpr", "call_jaxpr"):
        if inner in eqn.params:
            jaxpr = getattr(eqn.params[inner], "jaxpr", eqn.params[inner])
            if len(jaxpr.invars) == len(inputs) and len(jaxpr.outvars) == len(eqn.outvars):
                return _follow(jaxpr, inputs, said)
    first = next((n for n, sharding in enumerate(inputs) if sharding is not None), None)
    if first is None:
        return [None] * len(eqn.outvars)
    rank, sharding = eqn.invars[first].aval.ndim, inputs[first]
    return [sharding if out.aval.ndim == rank else _undivided(sharding) for out in eqn.outvars]


def _here(sharding) -> Sharding | None:
    """The sharding over devices there are, else None."""
    if isinstance(sharding, NamedSharding) and not isinstance(sharding.mesh, Mesh):
        mesh = concrete_mesh()
        if mesh.empty or mesh.abstract_mesh.axis_names != sharding.mesh.axis_names:
            return None
        sharding = NamedSharding(mesh, sharding.spec)
    if isinstance(sharding, NamedSharding):
        free = PartitionSpec.UNCONSTRAINED
        entries = [None if entry is free else entry for entry in sharding.spec.partitions]
        return sharding.update(spec=PartitionSpec(*entries))
    return sharding if isinstance(sharding, SingleDeviceSharding) else None


# What primitives say of where their results are.
_STATED = {
    "sharding_constraint": lambda eqn: [eqn.params["sharding"]],
    "reshard": lambda eqn: [
        NamedSharding(eqn.params["concrete_mesh"], eqn.params["dst_sharding"].spec)
        if eqn.params["concrete_mesh"] is not None
        else eqn.params["dst_sharding"]
    ],
    "shard_map": lambda eqn: [
        NamedSharding(eqn.params["mesh"], spec) for spec in eqn.params["out_specs"]
    ],
}

