"""The specs of `shard_map`: checks of what the user gave, and types of parts by them.

What goes in are trees of `PartitionSpec`s, a mesh and axes of it; what comes out are flat lists of specs, one for each
leaf, and the types that one device's parts have. Places where the user's word stands for a spec are `Infer`, those of
the arguments' types, and `AtAxis`, an axis counted from the end: `of_argument` is where both become specs. Cost: a few
steps for each leaf, once for each trace.

Invariant: a spec that has passed names axes of the mesh that are manual, cuts no argument unevenly and says of no
result that it is the same along an axis where its type differs.
"""

from __future__ import annotations

import math
from collections.abc import Set as AbstractSet
from typing import Any

from ferrax._src import core
from ferrax._src.core import api_util
from ferrax._src.core.manual_axes import ManualAxisType
from ferrax._src.core.mesh import (
    AbstractMesh,
    Mesh,
    concrete_mesh,
    get_abstract_mesh,
)
from ferrax._src.core.partition import PartitionSpec, entry_names, names_of
from ferrax._src.core.sharding import NamedSharding
from ferrax._src.tree import opaque, tree_util


class InferSpecs:
    """In the place of specs: those of the arguments' types."""

    def __repr__(self) -> str:
        return "ferrax.sharding.Infer"

    def __reduce__(self) -> tuple[Any, ...]:
        return _infer, ()


Infer = InferSpecs()


def _infer():
    return Infer


class AtAxis:
    """The spec that cuts an axis counted from the end, until the number of axes is known."""

    def __init__(self, axis, name):
        self.axis, self.name = axis, name

    def of_rank(self, rank):
        if self.axis + rank < 0:
            raise ValueError(f"smap: axis {self.axis} is out of bounds for {rank} axes")
        return PartitionSpec(*[None] * (self.axis + rank), self.name)


def _is_spec(x):
    return isinstance(x, (PartitionSpec, AtAxis))


def named_in(spec, manual):
    """The axes that a spec names, of those."""
    return [name for name in names_of(spec.partitions) if name in manual]


def checked(mesh, axis_names, in_specs, out_specs) -> tuple:
    """The mesh, and the axes that are manual."""
    context = get_abstract_mesh()
    if mesh is None:
        if context.empty:
            raise ValueError("shard_map: no mesh was given, and none is in use (ferrax.set_mesh)")
        concrete = concrete_mesh()
        mesh = context if concrete.empty or concrete.abstract_mesh != context else concrete
    elif not isinstance(mesh, (Mesh, AbstractMesh)):
        raise TypeError(f"shard_map: mesh must be a Mesh or an AbstractMesh, got {mesh!r}")
    elif not context.empty and mesh.abstract_mesh != context:
        raise ValueError(f"shard_map: the mesh in use is {context}, and {mesh} was given")
    if mesh.empty:
        raise ValueError(f"shard_map requires a mesh with devices, got {mesh!r}")
    if not isinstance(axis_names, AbstractSet):
        raise TypeError(f"shard_map: axis_names must be a set of names, got {axis_names!r}")
    manual = frozenset(axis_names) or frozenset(mesh.axis_names) - set(mesh.manual_axes)
    if not manual <= set(mesh.axis_names):
        raise ValueError(f"shard_map: axis_names={set(manual)} are not all axes of {mesh}")
    if in_specs is Infer:
        if not manual <= set(mesh.explicit_axes):
            raise TypeError(
                f"shard_map: in_specs may be left out for explicit axes alone; got {set(manual)} of {mesh}"
            )
    elif in_specs is not None:
        _check_specs("in_specs", in_specs, mesh, manual)
    _check_specs("out_specs", out_specs, mesh, manual)
    return mesh, manual


def _check_specs(what, specs, mesh, manual) -> None:
    leaves = tree_util.tree_leaves(specs, is_leaf=_is_spec)
    for spec in leaves:
        if isinstance(spec, opaque.ValueSpec):
            continue  # checked as those of the arrays that it stands for
        if not _is_spec(spec):
            raise TypeError(
                f"shard_map: {what} must be PartitionSpecs, or a tree of these, got {spec!r} of type "
                f"{type(spec).__name__}"
            )
        if isinstance(spec, AtAxis):
            names = [spec.name]
        else:
            names = [*names_of(spec.partitions), *spec.unreduced, *spec.reduced]
            if not (spec.unreduced | spec.reduced) <= set(mesh.explicit_axes):
                raise ValueError(
                    f"shard_map: {what} has {spec}, and arrays are unreduced or reduced over explicit axes alone; got "
                    f"{mesh}"
                )
        for name in names:
            if name not in manual:
                raise ValueError(
                    f"shard_map: {what} has {spec}, whose axis {name!r} is not among {set(manual)}"
                )


def prefix(specs, tree, what) -> list:
    if specs is Infer:
        return [Infer] * len(tree_util.tree_leaves(tree))
    try:
        return opaque.broadcast_specs(specs, tree, lambda x: x is None or _is_spec(x))
    except ValueError as error:
        raise ValueError(f"shard_map {what} do not fit the tree that they are for: {error}") from None


def of_argument(number, spec, x, mesh, manual) -> PartitionSpec:
    """The spec that is meant for an argument.

    Errors: ValueError where an array's type says, all axes being explicit, that it is divided in another way. What
    transformations make of traced values has types that they guess.
    """
    if isinstance(spec, AtAxis):
        return spec.of_rank(x.ndim)
    known = core.typeof(x).sharding
    checked = not isinstance(x, core.Tracer) and known.mesh.are_all_axes_explicit and known.mesh.axis_names
    if spec is not Infer and not (checked and len(spec) <= x.ndim and manual <= set(known.mesh.axis_names)):
        return spec
    names = manual
    entries = [tuple(name for name in entry_names(entry) if name in names) for entry in known.spec.partitions]
    of_type = PartitionSpec(
        *entries, unreduced=known.spec.unreduced & names, reduced=known.spec.reduced & names
    )
    if spec is Infer:
        return of_type
    said = [tuple(name for name in entry_names(entry) if name in names) for entry in spec.partitions]
    said += [()] * (x.ndim - len(said))
    own = [*map(entry_names, of_type.partitions), *[()] * (x.ndim - len(of_type))]
    if (said, spec.unreduced, spec.reduced) != (own, of_type.unreduced, of_type.reduced):
        raise ValueError(
            f"shard_map: in_specs has {spec} for argument leaf {number}, whose type {core.typeof(x).str_short()} says "
            f"that it is divided as {of_type}: reshard it (ferrax.reshard), give that spec, or leave in_specs out"
        )
    return spec


def counts_of(spec, rank, mesh) -> list[int]:
    """Into how many parts each axis is cut."""
    sizes = [math.prod(mesh.shape[name] for name in entry_names(e)) for e in spec.partitions]
    return sizes + [1] * (rank - len(sizes))


def part_type(number, x, spec, mesh, check_vma, known):
    """The type of one device's part of an argument; over the axes that are explicit inside, as the argument's."""
    if len(spec) > x.ndim:
        hint = " For scalars the spec is P()." if x.ndim == 0 else ""
        raise ValueError(
            f"shard_map: in_specs has {spec} for argument leaf {number}, which has {x.ndim} axes and not "
            f"{len(spec)}: its type is {core.typeof(x).str_short()}.{hint}"
        )
    counts = counts_of(spec, x.ndim, mesh)
    for axis, (size, count) in enumerate(zip(x.shape, counts)):
        if size % count:
            raise ValueError(
                f"shard_map: {spec} cuts axis {axis} of argument leaf {number}, of type "
                f"{core.typeof(x).str_short()}, into {count} parts, which {size} is not divisible by"
            )
    shape = tuple(size // count for size, count in zip(x.shape, counts))
    lies = core.typeof(x).manual_axis_type
    if check_vma:
        lies = ManualAxisType(
            varying=lies.varying | set(names_of(spec.partitions)),
            unreduced=lies.unreduced | spec.unreduced,
            reduced=lies.reduced | spec.reduced,
        )
    sharding = None
    if known.explicit_axes:
        entries = [
            tuple(name for name in entry_names(entry) if name in known.explicit_axes)
            for entry in core.typeof(x).sharding.spec.partitions
        ]
        if any(entries):
            sharding = NamedSharding(known, PartitionSpec(*entries))
    return core.ShapeDtypeStruct(
        shape, x.dtype, weak_type=x.weak_type, sharding=sharding, manual_axis_type=lies
    )


def check_outputs(fun, types, out_specs, manual, check_vma) -> None:
    for number, (spec, ty) in enumerate(zip(out_specs, types)):
        aval = core.ShapedArray(*ty)
        if len(spec) > aval.ndim:
            raise ValueError(
                f"shard_map: out_specs has {spec} for output {number} of {api_util.fun_name(fun)}, which has "
                f"{aval.ndim} axes: its type is {aval.str_short()}"
            )
        if not check_vma:
            continue
        lies = aval.manual_axis_type
        for what, names, said in (
            ("unreduced", lies.unreduced, spec.unreduced), ("reduced", lies.reduced, spec.reduced)
        ):
            if other := (names & manual) - said:
                raise ValueError(
                    f"shard_map: output {number} of {api_util.fun_name(fun)} is {what} over "
                    f"{', '.join(sorted(map(repr, other)))}, its type is {aval.str_short()}, and out_specs has {spec}; "
                    f"give {what}={set(names & manual)}"
                )
        more = (lies.varying & manual) - set(names_of(spec.partitions)) - spec.unreduced
        if more:
            raise ValueError(
                f"shard_map: out_specs says by {spec} that output {number} of {api_util.fun_name(fun)} is the "
                f"same along {', '.join(sorted(map(repr, more)))}, but it may differ there. Name the axes in "
                "the spec, reduce the value over them, or pass check_vma=False if you know better."
            )
