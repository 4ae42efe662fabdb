"""`shard_map`: a program of one device, run by all devices of a mesh on their parts of the arguments.

The function is traced once, for the types of the parts, with the axes of the mesh as named axes; the
call is an equation `shard_map` over that jaxpr. Types in it say along which axes a value may differ from
device to device (`ferrax-ir/src/varying.rs`), unless `check_vma` is false. Transformations act on the jaxpr
(`shard_map_rules`). Its meaning is the one program over whole arrays that `_whole` makes: arguments are cut
into parts, the jaxpr is batched over each axis of the mesh, which makes operations of arrays of its
collectives, and the results are put together. An axis of size one needs no batch: its parts are the arrays,
and what the jaxpr does stays as it is.

Invariant: nothing is run over a mesh of more devices than there are (`_check_mesh`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Hashable, Set as AbstractSet
from typing import Any, TypeVar

from ferrax._src import core
from ferrax._src.base import effects
from ferrax._src.base.traceback_util import api_boundary
from ferrax._src.core import api_util, named_axes, placements
from ferrax._src.core.devices import device_count
from ferrax._src.core.explicit_types import all_typed
from ferrax._src.core.global_array import GlobalArray, OverProcesses
from ferrax._src.core.jaxpr import ClosedJaxpr
from ferrax._src.core.lowering import lower_fun, register_lowering
from ferrax._src.core.manual_axes import ManualAxisType, texts_of
from ferrax._src.core.mesh import (
    AbstractMesh,
    Mesh,
    concrete_mesh,
    get_abstract_mesh,
)
from ferrax._src.core.partition import PartitionSpec, entry_names, names_of
from ferrax._src.core.placement import check_devices
from ferrax._src.core.primitives import (
    Primitive,
    apply_program,
)
from ferrax._src.core.sharding import NamedSharding
from ferrax._src.core.spec_rules import specs_of
from ferrax._src.core.spec_rules.control import of_shard_map
from ferrax._src.lax.creation import full_like
from ferrax._src.lax.elementwise import select
from ferrax._src.lax.parallel import axis_index, psum
from ferrax._src.lax.shape import broadcast, reshape, transpose
from ferrax._src.lax.slicing import index_in_dim
from ferrax._src.lax.varying import as_terms, lying
from ferrax._src.parallel import eager
from ferrax._src.parallel.part_jaxprs import inside, know_axes, on_each_device
from ferrax._src.tracing import staging
from ferrax._src.tree import tree_util

F = TypeVar("F", bound=Callable[..., Any])


class InferSpecs:
    """In the place of specs: those of the arguments' types."""

    def __repr__(self) -> str:
        return "ferrax.sharding.Infer"

    def __reduce__(self) -> tuple[Any, ...]:
        return _infer, ()


Infer = InferSpecs()


def _infer():
    return Infer


def shard_map(
    f: F | None = None, /, *, out_specs: Any, in_specs: Any = Infer,
    mesh: Mesh | AbstractMesh | None = None, axis_names: AbstractSet[Hashable] = frozenset(),
    check_vma: bool = True,
) -> Any:
    """A function that runs `f` on each device of a mesh, on that device's part of the arguments.

    Args:
        f: the function of the parts. Collectives such as `lax.psum` know the axes of the mesh by name.
            Without it, a decorator is returned.
        in_specs: for each argument a `PartitionSpec`, or a tree of these above its leaves: over which
            axes of the mesh it is cut. What no spec names, all devices get. None in place of a spec passes
            the argument as it is. Not given, specs are those of the arguments' types, for a mesh of
            explicit axes.
        out_specs: of the results: how parts are put together. Along axes that a spec does not name,
            all devices have the same, and one of them is taken.
        mesh: the mesh; None: the one in use.
        axis_names: the axes that `f` is run over; empty: all of them. Arguments are whole along others.
        check_vma: whether to check that what `out_specs` says to be the same on all devices is.

    Errors: TypeError for specs that are none and for other meshes; ValueError for names that are no
    axes, for specs that are longer than an argument has axes or whose parts would not be equal,
    for results that may differ between devices where `out_specs` says that they do not, for trees
    that do not fit, and for meshes of more devices than there are.

    Example:
        >>> mesh = ferrax.make_mesh((1,), ("x",))
        >>> total = ferrax.shard_map(
        ...     lambda x: lax.psum(x.sum(), "x"), mesh=mesh,
        ...     in_specs=ferrax.P("x"), out_specs=ferrax.P())
        >>> total(jnp.arange(4.0))
        Array(6., dtype=float32)
    """
    options = {"in_specs": in_specs, "out_specs": out_specs, "mesh": mesh}
    options |= {"axis_names": axis_names, "check_vma": check_vma}
    if f is None:
        return lambda f: _shard_map(f, **options)
    return _shard_map(f, **options)


def shard_map_of_old(
    f: Callable[..., Any], mesh: Mesh | AbstractMesh, in_specs: Any, out_specs: Any,
    check_rep: bool = True,
) -> Any:
    """`shard_map` with the arguments of `experimental.shard_map`; `check_rep` is `check_vma` now."""
    return shard_map(f, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=check_rep)


def smap(
    f: F | None = None, /, *, in_axes: Any = Infer, out_axes: Any, axis_name: Hashable
) -> Any:
    """`shard_map` over one axis of the mesh in use, by numbers of axes in place of specs.

    Args:
        f: the function of the parts; without it, a decorator is returned.
        in_axes: for each argument the axis that is cut, or None; one for all, or a tuple of these or
            trees of them.
        out_axes: the axes along which results are put together, or None.
        axis_name: the axis of the mesh.

    Errors: TypeError for axes that are not ints; else as `shard_map`.

    Example:
        >>> with ferrax.set_mesh(ferrax.make_mesh((1,), ("x",))):
        ...     x = ferrax.device_put(jnp.arange(3), ferrax.P("x"))
        ...     ferrax.smap(lambda x: 2 * x, in_axes=0, out_axes=0, axis_name="x")(x)
        Array([0, 2, 4], dtype=int32)
    """
    if f is None:
        return lambda f: smap(f, in_axes=in_axes, out_axes=out_axes, axis_name=axis_name)
    if isinstance(axis_name, (list, tuple)):
        raise TypeError(f"smap: axis_name is one name, got {axis_name!r}")
    if in_axes is not Infer and not isinstance(in_axes, (int, tuple, type(None))):
        raise TypeError(f"smap: in_axes is one int or None, or a tuple of these, got {in_axes!r}")
    for what, axes in (("in_axes", in_axes), ("out_axes", out_axes)):
        if axes is not Infer and not all(type(x) is int for x in tree_util.tree_leaves(axes)):
            raise TypeError(f"smap: {what} must be ints and None, or trees of these, got {axes!r}")

    def spec(axis):
        if axis is None:
            return PartitionSpec()
        return _AtAxis(axis, axis_name) if axis < 0 else PartitionSpec(*[None] * axis, axis_name)

    def specs(axes):
        return tree_util.tree_map(spec, axes, is_leaf=lambda x: x is None)

    return _shard_map(
        f,
        in_specs=Infer if in_axes is Infer else specs(in_axes),
        out_specs=specs(out_axes),
        mesh=None,
        axis_names={axis_name},
        check_vma=True,
    )


class _AtAxis:
    """The spec that cuts an axis counted from the end, until the number of axes is known."""

    def __init__(self, axis, name):
        self.axis, self.name = axis, name

    def of_rank(self, rank):
        if self.axis + rank < 0:
            raise ValueError(f"smap: axis {self.axis} is out of bounds for {rank} axes")
        return PartitionSpec(*[None] * (self.axis + rank), self.name)


def _is_spec(x):
    return isinstance(x, (PartitionSpec, _AtAxis))


def _shard_map(f, *, in_specs, out_specs, mesh, axis_names, check_vma):
    if not callable(f):
        raise TypeError(f"shard_map requires a function, got {f!r} of type {type(f).__name__}")

    @api_boundary
    @functools.wraps(f)
    def sharded(*args):
        used, manual = _checked(mesh, axis_names, in_specs, out_specs)
        leaves, tree = tree_util.tree_flatten(args)
        specs = _prefix(in_specs, args, "in_specs")
        given = [x for x, spec in zip(leaves, specs) if spec is not None]
        flat_specs = [spec for spec in specs if spec is not None]

        def body(*parts):
            rest = iter(parts)
            merged = [x if spec is None else next(rest) for x, spec in zip(leaves, specs)]
            return f(*tree.unflatten(merged))

        functools.update_wrapper(body, f)
        return mapped(body, given, flat_specs, out_specs, used, manual, check_vma, asked=True)

    return sharded


def mapped(body, args, in_specs, out_specs, mesh, manual, check_vma, asked=False):
    """What `body(*parts of args)` returns on all devices, put together: `shard_map` of a function of
    arrays, whose `in_specs` are flat. `out_specs` may be a function that is called when `body` was. `asked`: whether
    `body` may ask for values where nothing is traced."""
    args = [x if type(x) is GlobalArray else core.as_array(x, "shard_map") for x in args]
    pairs = enumerate(zip(in_specs, args))
    in_specs = [_of_argument(number, spec, x, mesh, manual) for number, (spec, x) in pairs]
    # Jitted functions in the body know the mesh by its axes, which are manual there.
    known = inside(mesh, manual)
    pairs = enumerate(zip(args, in_specs))
    parts = [_part(number, x, spec, mesh, check_vma, known) for number, (x, spec) in pairs]
    own = body
    if asked and core.trace_state_clean() and _is_local(mesh) and not any(type(x) is GlobalArray for x in args):
        whole = functools.partial(_part_of_program, args, in_specs, mesh, manual)
        axes = [(name, mesh.shape[name]) for name in mesh.axis_names if name in manual]
        own = eager.watched(body, whole, mesh, axes, check_vma)
    with on_each_device(mesh, manual, check_vma):
        program, captured, flat = staging.stage(own, parts, {})
    out_specs = out_specs() if callable(out_specs) else out_specs
    out_types = program.out_types[: flat.out_tree.num_leaves]
    dummy = tree_util.with_placeholders(flat.out_tree)
    specs = [
        spec.of_rank(len(shape)) if isinstance(spec, _AtAxis) else spec
        for spec, (shape, *_) in zip(_prefix(out_specs, dummy, "out_specs"), out_types)
    ]
    in_specs = (*in_specs, *[PartitionSpec()] * len(captured))
    _check_outputs(body, program.out_types, specs, manual, check_vma)
    params = {
        "jaxpr": ClosedJaxpr(differing(program, specs, manual, check_vma)).jaxpr,
        "mesh": mesh,
        "in_specs": in_specs,
        "out_specs": tuple(specs),
        "check_vma": check_vma,
        "newly_manual_axes": frozenset(manual),
    }
    operands = [*args, *captured]
    if any(type(x) is GlobalArray for x in operands) and not any(isinstance(x, core.Tracer) for x in operands):
        return flat.out_tree.unflatten(_impl(*operands, **params))
    return flat.out_tree.unflatten(shard_map_p.bind(*operands, **params))


def _part_of_program(args, in_specs, mesh, manual, program, captured, spec):
    """The one result of a program of the parts, put together by this spec."""
    specs = (*in_specs, *[PartitionSpec()] * len(captured))
    params = {"jaxpr": ClosedJaxpr(program).jaxpr, "mesh": mesh, "in_specs": specs, "out_specs": (spec,)}
    return _whole(*args, *captured, **params, check_vma=False, newly_manual_axes=frozenset(manual))[0]


def differing(program, specs, manual, check_vma):
    """The program whose results lie by type over the axes that their specs name as these say."""
    if not check_vma:
        return program
    wanted = [
        texts_of(
            ManualAxisType(varying=set(named_in(spec, manual)), unreduced=spec.unreduced, reduced=spec.reduced)
        )
        for spec in specs
    ]
    if all(set(texts) <= set(*ty[3:]) for texts, ty in zip(wanted, program.out_types)):
        return program

    def differ(*args):
        results = apply_program(program, list(args))
        return [_as_terms(lying(x, texts), texts) for x, texts in zip(results, wanted)]

    return staging.stage(differ, [core.ShapedArray(*ty) for ty in program.in_types], {})[0]


def _as_terms(x, wanted):
    sums = {name[1:] for name in wanted if name.startswith(named_axes.UNREDUCED)}
    return as_terms(x, tuple(sorted(sums & set(x._varying))))


def named_in(spec, manual):
    """The axes that a spec names, of those."""
    return [name for name in names_of(spec.partitions) if name in manual]


# ---------------------------------------------------------------------------------------------
# Checks.


def _checked(mesh, axis_names, in_specs, out_specs) -> tuple:
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
        if not _is_spec(spec):
            raise TypeError(
                f"shard_map: {what} must be PartitionSpecs, or a tree of these, got {spec!r} of type "
                f"{type(spec).__name__}"
            )
        if isinstance(spec, _AtAxis):
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


def _prefix(specs, tree, what) -> list:
    if specs is Infer:
        return [Infer] * len(tree_util.tree_leaves(tree))
    try:
        return tree_util.broadcast_prefix(specs, tree, is_leaf=lambda x: x is None or _is_spec(x))
    except ValueError as error:
        raise ValueError(f"shard_map {what} do not fit the tree that they are for: {error}") from None


def _of_argument(number, spec, x, mesh, manual) -> PartitionSpec:
    """The spec that is meant for an argument.

    Errors: ValueError where an array's type says, all axes being explicit, that it is divided in another way. What
    transformations make of traced values has types that they guess.
    """
    if isinstance(spec, _AtAxis):
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


def _counts(spec, rank, mesh) -> list[int]:
    """Into how many parts each axis is cut."""
    sizes = [math.prod(mesh.shape[name] for name in entry_names(e)) for e in spec.partitions]
    return sizes + [1] * (rank - len(sizes))


def _part(number, x, spec, mesh, check_vma, known):
    """The type of one device's part of an argument; over the axes that are explicit inside, as the argument's."""
    if len(spec) > x.ndim:
        hint = " For scalars the spec is P()." if x.ndim == 0 else ""
        raise ValueError(
            f"shard_map: in_specs has {spec} for argument leaf {number}, which has {x.ndim} axes and not "
            f"{len(spec)}: its type is {core.typeof(x).str_short()}.{hint}"
        )
    counts = _counts(spec, x.ndim, mesh)
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


def _check_outputs(fun, types, out_specs, manual, check_vma) -> None:
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


# ---------------------------------------------------------------------------------------------
# The program over whole arrays.


def _cut(x, spec, order, mesh):
    """The parts of an array, along new leading axes: those of `order` that cut it, in that order."""
    entries = [[name for name in entry_names(entry) if name in order] for entry in spec.partitions]
    counts = [[mesh.shape[name] for name in names] for names in entries]
    counts += [[] for _ in range(x.ndim - len(counts))]
    named = [name for names in entries for name in names]
    sizes: list[int] = []
    local: list[int] = []
    places: list[int] = []
    for size, parts in zip(x.shape, counts):
        places += range(len(sizes), len(sizes) + len(parts))
        sizes += [*parts, size // math.prod(parts)]
        local.append(len(sizes) - 1)
    place = dict(zip(named, places))
    front = [place[name] for name in order if name in place]
    return transpose(reshape(x, sizes), front + local)


def _join(x, spec, axes, mesh):
    """The array that parts make which lie along the axes `axes`, by name; one that lies along none is
    the same on all devices."""
    named = names_of(spec.partitions)
    for name in [name for name in axes if name not in named]:
        x = index_in_dim(x, 0, axes[name], keepdims=False)
        axes = {n: at - (at > axes[name]) for n, at in axes.items() if n != name}
    missing = [name for name in named if name not in axes]
    x = broadcast(x, [mesh.shape[name] for name in missing])
    axes = {name: at + len(missing) for name, at in axes.items()}
    axes |= {name: number for number, name in enumerate(missing)}
    local = [axis for axis in range(x.ndim) if axis not in axes.values()]
    order, sizes = [], []
    entries = [entry_names(entry) for entry in spec.partitions]
    entries += [()] * (len(local) - len(entries))
    for axis, names in zip(local, entries):
        order += [*(axes[name] for name in names), axis]
        sizes.append(x.shape[axis] * math.prod(mesh.shape[name] for name in names))
    return reshape(transpose(x, order), sizes)


def _whole(*args, jaxpr, mesh, in_specs, out_specs, check_vma, newly_manual_axes):
    """What the equation computes, of whole arrays."""
    _check_mesh(mesh)
    program = device_program(jaxpr, mesh, in_specs, out_specs, newly_manual_axes)
    manual = [name for name in mesh.axis_names if name in newly_manual_axes]
    large = [name for name in manual if mesh.shape[name] > 1]
    cut = [[name for name in large if name in names_of(spec.partitions)] for spec in in_specs]
    values = [_cut(x, spec, large, mesh) if large else x for x, spec in zip(args, in_specs)]
    outputs: list[dict] = [{} for _ in out_specs]
    for name in reversed(manual):
        dims = [0 if name in names else None for names in cut]
        with named_axes.over_devices(name):
            program, found = program.batch(mesh.shape[name], dims, None, named_axes.text(name))
        for axes, dim in zip(outputs, found):
            if dim is not None:
                axes |= {known: at + (dim <= at) for known, at in axes.items()}
                axes[name] = dim
    results = apply_program(program, values)
    return [
        _join(x, spec, axes, mesh) if axes or large else x
        for x, spec, axes in zip(results, out_specs, outputs)
    ]


def device_program(jaxpr, mesh, in_specs, out_specs, newly_manual_axes):
    """The program of each device, whose types say nothing of the mesh.

    What is unreduced is whole on the first device and zero on the others where it enters, and summed where it leaves.
    """
    program = ClosedJaxpr(jaxpr)._to_program().erase_varying()
    if not any(spec.unreduced for spec in (*in_specs, *out_specs)):
        return program

    def order(names):
        return tuple(name for name in mesh.axis_names if name in names)

    def on_first(x, names):
        index = axis_index(order(names))
        return select(broadcast(index == 0, x.shape), x, full_like(x, 0)) if names else x

    def summing(*args):
        parts = [on_first(x, spec.unreduced) for x, spec in zip(args, in_specs)]
        results = apply_program(program, parts)
        return [psum(x, order(spec.unreduced)) for x, spec in zip(results, out_specs)]

    with on_each_device(mesh, newly_manual_axes, False):
        types = [core.ShapedArray(*ty) for ty in program.in_types]
        return staging.stage(summing, types, {})[0].erase_varying()


def _is_local(mesh) -> bool:
    return not isinstance(mesh, Mesh) or NamedSharding(mesh, PartitionSpec()).is_fully_addressable


def _check_mesh(mesh) -> None:
    """Errors: OverProcesses for a mesh of other processes' devices; ValueError for one of processes that are not
    joined, or without devices and larger than what there is.
    """
    if over_processes is not None and not _is_local(mesh):
        raise OverProcesses(f"shard_map: other processes have some devices of {mesh}: call the function within jit")
    if isinstance(mesh, Mesh):
        check_devices(NamedSharding(mesh, PartitionSpec()), "shard_map")
    elif mesh.size > (count := concrete_mesh().size or device_count()):
        raise ValueError(f"shard_map requires {mesh.size} devices for {mesh}, and there are {count}")


def staged_whole(args: Any, params: Any) -> Any:
    """The program over whole arrays of an equation with these parameters, for arguments of these types."""
    types = [core.ShapeDtypeStruct(x.shape, x.dtype, weak_type=x.weak_type) for x in args]
    program, captured, _ = staging.stage(lambda *args: _whole(*args, **params), types, {})
    return program.bind_constants(captured) if captured else program


# What runs the equation over the devices of several processes, once they are joined.
over_processes: Callable[[Any, Any], Any] | None = None


def _impl(*args, **params):
    know_axes(params["jaxpr"], params["mesh"], params["newly_manual_axes"], params["check_vma"])
    if over_processes is not None and not _is_local(params["mesh"]):
        return over_processes(args, params)
    results = _whole(*(core.as_array(x, "shard_map") for x in args), **params)
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
        counts = _counts(spec, aval.ndim, mesh)
        shape = tuple(size * count for size, count in zip(aval.shape, counts))
        outs.append(core.ShapedArray(shape, aval.dtype, aval.weak_type))
    own = {effects.NamedAxisEffect(name) for name in newly_manual_axes}
    return outs, set(jaxpr.effects) - own


shard_map_p = Primitive("shard_map")
shard_map_p.multiple_results = True
shard_map_p.def_impl(_impl)
shard_map_p.def_effectful_abstract_eval(_abstract_eval)
register_lowering(shard_map_p, lower_fun(_whole, multiple_results=True))
