"""`shard_map`: a program of one device, run by all devices of a mesh on their parts of the arguments.

What goes in is a function of parts and specs that say how arguments are cut and results put together; what comes out
is a function of whole arrays. The function is traced once, for the types of the parts, with the axes of the mesh as
named axes; the call is an equation `shard_map` over that jaxpr (`shard_map_primitive`). Types in it say along which
axes a value may differ from device to device (`ferrax-ir/src/varying.rs`), unless `check_vma` is false.
Transformations act on the jaxpr (`shard_map_rules`). Cost: a trace for each call outside of `jit`, and what the
equation costs.

Invariant: an equation has specs that were checked, against its arguments and its results (`shard_map_specs`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Set as AbstractSet
from typing import Any, TypeVar

from ferrax._src import core, state
from ferrax._src.base.traceback_util import api_boundary
from ferrax._src.core import api_util
from ferrax._src.core.global_array import GlobalArray
from ferrax._src.core.jaxpr import ClosedJaxpr
from ferrax._src.core.mesh import AbstractMesh, Mesh
from ferrax._src.core.partition import PartitionSpec, names_of
from ferrax._src.parallel import eager
from ferrax._src.parallel.part_jaxprs import inside, on_each_device
from ferrax._src.parallel.shard_map_primitive import (
    is_local,
    on_whole_arrays,
    run_equation,
    shard_map_p,
)
from ferrax._src.parallel.shard_map_programs import differing
from ferrax._src.parallel.shard_map_specs import (
    AtAxis,
    Infer,
    check_outputs,
    checked,
    of_argument,
    part_type,
    prefix,
)
from ferrax._src.state import arguments as ref_args, opened
from ferrax._src.tracing import staging
from ferrax._src.tree import tree_util

F = TypeVar("F", bound=Callable[..., Any])


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

    Mutable arrays among the arguments are cut as arrays are: `f` gets a `Ref` of each part, and what it writes there
    is written to the argument.

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
        return AtAxis(axis, axis_name) if axis < 0 else PartitionSpec(*[None] * axis, axis_name)

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


def _shard_map(f, *, in_specs, out_specs, mesh, axis_names, check_vma):
    if not callable(f):
        raise TypeError(f"shard_map requires a function, got {f!r} of type {type(f).__name__}")

    @api_boundary
    @functools.wraps(f)
    def sharded(*args):
        used, manual = checked(mesh, axis_names, in_specs, out_specs)
        specs = prefix(in_specs, args, "in_specs")
        leaves, tree = tree_util.tree_flatten(args)
        if any(type(leaf) in (state.Ref, state.TransformedRef) for leaf in leaves):
            return _with_refs(f, args, leaves, specs, out_specs, used, manual, check_vma)
        given = [x for x, spec in zip(leaves, specs) if spec is not None]
        flat_specs = [spec for spec in specs if spec is not None]

        def body(*parts):
            rest = iter(parts)
            merged = [x if spec is None else next(rest) for x, spec in zip(leaves, specs)]
            return f(*tree.unflatten(merged))

        functools.update_wrapper(body, f)
        return mapped(body, given, flat_specs, out_specs, used, manual, check_vma, asked=True)

    return sharded


def _with_refs(f, args, leaves, specs, out_specs, mesh, manual, check_vma):
    """`f` of parts where mutable arrays are among the leaves of its arguments: each device gets refs of its own, of its
    parts of what they hold, and what it writes to these is put together as their specs say."""
    whole = PartitionSpec()
    every: list[Any] = []
    for leaf, spec in zip(leaves, specs):
        if type(leaf) is not state.TransformedRef:
            every.append(spec)
        elif isinstance(spec, PartitionSpec) and names_of(spec.partitions):
            raise NotImplementedError(
                f"shard_map: a view of a mutable array is whole on all devices, got the spec {spec} for {leaf!r}. Pass "
                f"the array itself, and index in the function.{state.at_user_line()}"
            )
        else:
            # The ref, and the arrays in its indices.
            every += [whole] * len(tree_util.tree_leaves(opened(leaf)))
    args = opened(args)
    leaves, tree = tree_util.tree_flatten(args)
    refs = ref_args.of_leaves(leaves)
    ref_args.check_distinct(refs, f, "shard_map", functools.partial(api_util.argument_names, f, args, {}))
    values = ref_args.values(leaves, refs)
    for n in refs:
        every[n] = whole if every[n] is None else of_argument(n, every[n], values[n], mesh, manual)
    given = [x for x, spec in zip(values, every) if spec is not None]
    written: list[int] = []

    def body(*parts):
        rest = iter(parts)
        merged = [x if spec is None else next(rest) for x, spec in zip(leaves, every)]
        own = {n: state.new_ref(merged[n], kind=ref._kind) for n, ref in refs.items()}
        starts = {n: state.held(ref) for n, ref in own.items()}
        result = f(*tree.unflatten([own.get(n, x) for n, x in enumerate(merged)]))
        ref_args.check_returned(f, "shard_map", tree_util.tree_leaves(opened(result)), result)
        written[:] = [n for n, ref in own.items() if state.held(ref) is not starts[n]]
        return result, [state.read(own[n]) for n in written]

    functools.update_wrapper(body, f)
    flat_specs = [spec for spec in every if spec is not None]
    outs = lambda: (out_specs, [every[n] for n in written])  # noqa: E731
    result, held = mapped(body, given, flat_specs, outs, mesh, manual, check_vma)
    for n, value in zip(written, held):
        state.write(refs[n], state.conform(refs[n], value))
    return result


def mapped(body, args, in_specs, out_specs, mesh, manual, check_vma, asked=False):
    """What `body(*parts of args)` returns on all devices, put together: `shard_map` of a function of
    arrays, whose `in_specs` are flat. `out_specs` may be a function that is called when `body` was. `asked`: whether
    `body` may ask for values where nothing is traced."""
    args = [x if type(x) is GlobalArray else core.as_array(x, "shard_map") for x in args]
    pairs = enumerate(zip(in_specs, args))
    in_specs = [of_argument(number, spec, x, mesh, manual) for number, (spec, x) in pairs]
    # Jitted functions in the body know the mesh by its axes, which are manual there.
    known = inside(mesh, manual)
    pairs = enumerate(zip(args, in_specs))
    parts = [part_type(number, x, spec, mesh, check_vma, known) for number, (x, spec) in pairs]
    own = body
    if asked and core.trace_state_clean() and is_local(mesh) and not any(type(x) is GlobalArray for x in args):
        whole = functools.partial(_part_of_program, args, in_specs, mesh, manual)
        axes = [(name, mesh.shape[name]) for name in mesh.axis_names if name in manual]
        own = eager.watched(body, whole, mesh, axes, check_vma)
    with on_each_device(mesh, manual, check_vma):
        program, captured, flat = staging.stage(own, parts, {})
    out_specs = out_specs() if callable(out_specs) else out_specs
    out_types = program.out_types[: flat.out_tree.num_leaves]
    dummy = tree_util.with_placeholders(flat.out_tree)
    specs = [
        spec.of_rank(len(shape)) if isinstance(spec, AtAxis) else spec
        for spec, (shape, *_) in zip(prefix(out_specs, dummy, "out_specs"), out_types)
    ]
    in_specs = (*in_specs, *[PartitionSpec()] * len(captured))
    check_outputs(body, program.out_types, specs, manual, check_vma)
    params = {
        "jaxpr": ClosedJaxpr(differing(program, specs, manual, check_vma)).open,
        "mesh": mesh,
        "in_specs": in_specs,
        "out_specs": tuple(specs),
        "check_vma": check_vma,
        "newly_manual_axes": frozenset(manual),
    }
    operands = [*args, *captured]
    if any(type(x) is GlobalArray for x in operands) and not any(isinstance(x, core.Tracer) for x in operands):
        return flat.out_tree.unflatten(run_equation(*operands, **params))
    return flat.out_tree.unflatten(shard_map_p.bind(*operands, **params))


def _part_of_program(args, in_specs, mesh, manual, program, captured, spec):
    """The one result of a program of the parts, put together by this spec."""
    specs = (*in_specs, *[PartitionSpec()] * len(captured))
    params = {"jaxpr": ClosedJaxpr(program).open, "mesh": mesh, "in_specs": specs, "out_specs": (spec,)}
    return on_whole_arrays(*args, *captured, **params, check_vma=False, newly_manual_axes=frozenset(manual))[0]
