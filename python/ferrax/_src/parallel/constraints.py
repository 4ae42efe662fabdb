"""What a program says of where its values are: `with_sharding_constraint`, `reshard`, and functions
whose axes of the mesh are of another type.

Values are those given. Concrete arrays have the sharding from then on; of traced ones it is an
equation of the jaxpr, the identity, and their type.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ferrax._src import core
from ferrax._src.base.traceback_util import api_boundary
from ferrax._src.core import call_borders, named_axes
from ferrax._src.core.explicit_types import of_cotangent, typed, with_axis
from ferrax._src.core.layout import Format, Layout, order_of, refuse_order
from ferrax._src.core.mesh import (
    AxisType,
    Mesh,
    concrete_mesh,
    get_abstract_mesh,
    using_abstract,
)
from ferrax._src.core.partition import PartitionSpec, entry_names, filled, names_of
from ferrax._src.core.permuted_array import PermutedArray, data_of, laid_out_as
from ferrax._src.core.placement import device_put, explicit_sharding, over_devices
from ferrax._src.core.placements import WHOLE, place, placed, placement
from ferrax._src.core.primitives import (
    axis_primitive_batchers,
    primitive_jvps,
    primitive_transposes,
)
from ferrax._src.core.sharding import NamedSharding, Sharding, SingleDeviceSharding, of_type
from ferrax._src.transforms.ad import Zero
from ferrax._src.transforms.composites import composite
from ferrax._src.transforms.placed_jit import check_leaves, is_leaf, resolved
from ferrax._src.tree import tree_util

__all__ = [
    "auto_axes", "explicit_axes", "layout_constraint_p", "reshard", "reshard_p",
    "sharding_constraint_p", "with_layout_constraint", "with_sharding_constraint",
]  # fmt: skip


def _identity(x, **params):
    return x


sharding_constraint_p = composite("sharding_constraint", _identity)
reshard_p = composite("reshard", _identity)
layout_constraint_p = composite("layout_constraint", _identity)


# The same of what is reduced: its cotangent is a sum over devices, and cut into terms as the result is.
_reduced_reshard_p = composite("reshard", _identity)
# The same at the borders of a called program: of an argument, and of a result.
_argument_p = composite("sharding_constraint", _identity)
_result_p = composite("sharding_constraint", _identity)
call_borders.install(_argument_p, _result_p)


def _constraint_jvp(primitive, primals, tangents, **params):
    """Tangents are laid out as what they are tangents of."""
    (x,), (t,) = primals, tangents
    out = primitive.bind(x, **params)
    return out, Zero.from_primal_value(out) if type(t) is Zero else primitive.bind(t, **params)


def _constraint_transpose(primitive, cotangent, x, **params):
    """`primitive`: what is said of the cotangent."""
    if type(cotangent) is Zero:
        return [Zero(x.aval.to_tangent_aval())]
    return [primitive.bind(cotangent, **params)]


def _constraint_batch(
    primitive, size, axis_name, trace_type, args, dims, /, *, sharding, unconstrained_dims, **params
):
    """The new axis is divided over the axes of the mesh that vmap was told of, else as the program wants.

    Errors: ValueError for these where the sharding has them already, or is no `NamedSharding`.
    """
    (x,), (dim,) = args, dims
    over = named_axes.batched_over()
    free = {n + (n >= dim) for n in unconstrained_dims}
    if isinstance(sharding, NamedSharding):
        if both := set(over) & set(names_of(sharding.spec.partitions)):
            raise ValueError(
                f"with_sharding_constraint: {sharding.spec} divides an element over {both}, over which vmap's "
                f"spmd_axis_name={over} divides the batch: name other axes"
            )
        entries = [*sharding.spec.partitions, *[None] * (x.ndim - 1 - len(sharding.spec))]
        opened = not over and sharding.mesh._any_axis_auto
        entries.insert(dim, PartitionSpec.UNCONSTRAINED if opened else over)
        free |= {dim} if opened else set()
        sharding = sharding.update(spec=sharding.spec.update(partitions=entries))
    elif over:
        raise ValueError(
            f"with_sharding_constraint: vmap's spmd_axis_name={over} divides the batch over a mesh, the sharding of an "
            f"element is on none: {sharding!r}. Use a NamedSharding"
        )
    return primitive.bind(x, sharding=sharding, unconstrained_dims=frozenset(free), **params), dim


def _reshard_jvp(primitive, primals, tangents, **params):
    (x,), (t,) = primals, tangents
    out = primitive.bind(x, **params)
    return out, Zero.from_primal_value(out) if type(t) is Zero else primitive.bind(t, **params)


def _reshard_transpose(cotangent, x, **params):
    """What is divided how is said of the cotangents of a function's arguments, by `linearized`."""
    return [Zero(x.aval.to_tangent_aval()) if type(cotangent) is Zero else cotangent]


def _reduced_reshard_transpose(cotangent, x, **params):
    """As a result's cotangent it is laid out first, where the result is divided."""
    known = params["dst_sharding"]
    if type(cotangent) is Zero or not any(known.spec.partitions):
        return _reshard_transpose(cotangent, x)
    return [reshard_p.bind(cotangent, **params | {"dst_sharding": of_cotangent(known)})]


def _reshard_batch(primitive, size, axis_name, trace_type, args, dims, /, *, dst_sharding, concrete_mesh):
    """The new axis is divided over the axes of the mesh that the batch is divided over, if these are explicit."""
    (x,), (dim,) = args, dims
    explicit = dst_sharding.mesh.explicit_axes
    over = tuple(name for name in named_axes.batched_over() if name in explicit)
    of_element = dst_sharding.update(spec=filled(dst_sharding.spec, x.ndim - 1))
    return primitive.bind(x, dst_sharding=with_axis(of_element, dim, over), concrete_mesh=concrete_mesh), dim


for _primitive, _transpose in (reshard_p, _reshard_transpose), (_reduced_reshard_p, _reduced_reshard_transpose):
    primitive_jvps[_primitive] = functools.partial(_reshard_jvp, _primitive)
    primitive_transposes[_primitive] = _transpose
    axis_primitive_batchers[_primitive] = functools.partial(_reshard_batch, _primitive)
# An argument's cotangent is a result of the transposed call, and the other way round.
for _primitive, _of_cotangents in (
    (sharding_constraint_p, sharding_constraint_p), (_argument_p, _result_p), (_result_p, _argument_p)
):  # fmt: skip
    primitive_jvps[_primitive] = functools.partial(_constraint_jvp, _primitive)
    primitive_transposes[_primitive] = functools.partial(_constraint_transpose, _of_cotangents)
    axis_primitive_batchers[_primitive] = functools.partial(_constraint_batch, _primitive)


def with_sharding_constraint(x: Any, shardings: Any) -> Any:
    """The arrays, laid out so.

    Args:
        x: a tree of arrays.
        shardings: a sharding, a `PartitionSpec` of the mesh in use, a `Format`, or a tree of these above
            `x`.

    Errors: TypeError for other shardings; RuntimeError for a `PartitionSpec` where no mesh is in use;
    ValueError for None, for trees that do not fit, and where a sharding does not fit the array.

    Example:
        >>> mesh = ferrax.sharding.Mesh(ferrax.devices()[:1], ("x",))
        >>> x = lax.with_sharding_constraint(jnp.arange(3), ferrax.NamedSharding(mesh, ferrax.P("x")))
        >>> x.sharding.spec
        P('x',)
    """
    function = "with_sharding_constraint"
    check_leaves(shardings, "shardings", function)
    leaves, tree = tree_util.tree_flatten(x)
    places = tree_util.broadcast_prefix(shardings, x, is_leaf=is_leaf)
    out = []
    for leaf, where in zip(leaves, places):
        if where is None:
            raise ValueError(f"{function}: an array has the sharding None; pass a sharding")
        leaf = core.as_array(leaf, function)
        where = _on_the_mesh_of(leaf, where)
        if _is_stated(leaf, where):
            out.append(leaf)
            continue
        eager = not isinstance(leaf, core.Tracer) and core.trace_state_clean()
        if isinstance(where, Format):
            if eager and order_of(where.layout, leaf.shape, function) is not None:
                out.append(device_put(leaf, where))
                continue
            refuse_order(where.layout, leaf.shape, function)
        sharding = resolved(where, leaf.shape, "shardings", function, uneven=not eager)
        if eager:
            _check_devices(leaf, sharding)
            out.append(leaf if sharding is None else placed(leaf, sharding))
            continue
        named = sharding if sharding is not None else _named(where)
        _check_not_manual(function, named)
        spec = named.spec.partitions if isinstance(named, NamedSharding) else ()
        free = [n for n, entry in enumerate(spec) if entry is PartitionSpec.UNCONSTRAINED]
        result = sharding_constraint_p.bind(
            leaf,
            sharding=named if isinstance(where, Sharding) or get_abstract_mesh().empty else _named(where),
            layout=None,
            context_mesh=concrete_mesh(),
            unconstrained_dims=frozenset(free),
        )
        out.append(_typed(result, named))
    return tree.unflatten(out)


def _check_not_manual(function, sharding) -> None:
    """Errors: ValueError for a sharding over axes that the function within `shard_map` is run over."""
    named = names_of(sharding.spec.partitions) if isinstance(sharding, NamedSharding) else []
    manual = [str(name) for name in named if name in get_abstract_mesh().manual_axes]
    if manual:
        raise ValueError(
            f"{function}: {sharding.spec} names {', '.join(manual)}, over which shard_map runs the function: a device "
            "has its part there, and nothing to divide. Name other axes"
        )


def _check_devices(leaf, sharding) -> None:
    """Errors: ValueError for an array that was put on other devices by request, or on these in another order."""
    known, committed = placement(leaf)
    if committed and sharding is not None and known._device_assignment != sharding._device_assignment:
        raise ValueError(
            f"with_sharding_constraint: incompatible devices: the array is on {known}, and "
            f"is to be divided as {sharding}: "
            "use ferrax.device_put"
        )


def _on_the_mesh_of(leaf, where):
    """A sharding over a mesh without devices as one over those of an array that is on such a mesh."""
    if not isinstance(where, NamedSharding) or isinstance(where.mesh, Mesh) or over_devices(where.mesh) is not None:
        return where
    known = placement(leaf).sharding
    if isinstance(known, NamedSharding) and known.mesh.shape_tuple == where.mesh.shape_tuple:
        if isinstance(known.mesh, Mesh):
            return where.update(mesh=known.mesh.update(axis_types=where.mesh.axis_types))
    return where


def _is_stated(leaf, where) -> bool:
    """Whether all axes of the mesh are explicit, so that types say already how arrays are divided.

    Errors: AssertionError where the type says something else.
    """
    if isinstance(where, PartitionSpec) and not get_abstract_mesh().are_all_axes_explicit:
        return False
    sharding = _named(where)
    if not isinstance(sharding, NamedSharding) or not sharding.mesh.are_all_axes_explicit:
        return False
    known, wanted = core.typeof(leaf).sharding.spec, filled(sharding.spec, leaf.ndim)
    if of_type(sharding, leaf.ndim).spec != known and wanted != known:
        raise AssertionError(
            f"with_sharding_constraint: by explicit axes of a mesh types say how arrays are divided, an array of type "
            f"{core.typeof(leaf).str_short()} is to be divided as {sharding.spec}: use ferrax.reshard"
        )
    return True


def _named(where):
    """A place as a sharding over the mesh in use, of which no devices are known."""
    return NamedSharding(get_abstract_mesh(), where) if isinstance(where, PartitionSpec) else where


def _typed(result, sharding):
    """A value of the program, whose type has this sharding: one over no mesh, if it is on one device."""
    if isinstance(result, core.Tracer) and isinstance(sharding, NamedSharding):
        return place(result, sharding)
    if isinstance(result, core.Tracer) and isinstance(sharding, SingleDeviceSharding):
        return place(result, WHOLE, committed=False)
    return result


def reshard(xs: Any, out_shardings: Any) -> Any:
    """The arrays, divided so over the explicit axes of a mesh.

    Args:
        xs: a tree of arrays.
        out_shardings: a `NamedSharding`, a `PartitionSpec` of the mesh in use, or a tree of these above
            `xs`.

    Errors: TypeError for other shardings; ValueError for a `PartitionSpec` where no mesh is in use, for
    axes that are not explicit, and where a sharding does not fit the array.

    Example:
        >>> with ferrax.set_mesh(ferrax.make_mesh((1,), ("x",))):
        ...     ferrax.typeof(ferrax.reshard(jnp.ones((2, 3)), ferrax.P("x")))
        ShapedArray(float32[2@x,3])
    """
    leaves, tree = tree_util.tree_flatten(xs)
    places = tree_util.broadcast_prefix(out_shardings, xs, is_leaf=is_leaf)
    out = []
    for leaf, where in zip(leaves, places):
        leaf = core.as_array(leaf, "reshard")
        if where is None:
            raise ValueError("reshard: an array has the sharding None; pass a sharding")
        sharding = explicit_sharding(where, "reshard", leaf.ndim)
        if sharding is None:
            out.append(leaf)
            continue
        if not sharding.mesh.explicit_axes:
            out.append(_open(leaf, sharding))
            continue
        found = resolved(sharding, leaf.shape, "out_shardings", "reshard")
        if not isinstance(leaf, core.Tracer) and core.trace_state_clean():
            out.append(leaf if found is None else placed(leaf, _over_auto_axes(leaf, found)))
            continue
        abstract = sharding.update(mesh=sharding.mesh.abstract_mesh, memory_kind=None)
        concrete = sharding.mesh if isinstance(sharding.mesh, Mesh) else None
        known = typed(leaf)
        primitive = reshard_p if known is None or not known.spec.reduced else _reduced_reshard_p
        result = primitive.bind(leaf, dst_sharding=abstract, concrete_mesh=concrete)
        out.append(_typed(result, abstract))
    return tree.unflatten(out)


def _open(leaf, sharding):
    """An array whose type says nothing of how it is divided, over the axes of this mesh."""
    if isinstance(leaf, core.Tracer) or not core.trace_state_clean():
        if not sharding.mesh._any_axis_auto:
            return leaf  # a device's part, which nothing divides further
        entries = (PartitionSpec.UNCONSTRAINED,) * leaf.ndim
        return _typed(_constrained(leaf, sharding.update(spec=PartitionSpec(*entries))), sharding)
    found = resolved(sharding, leaf.shape, "out_shardings", "reshard")
    if found is None:
        return leaf
    if not placement(leaf).committed:
        return placed(leaf, found)
    own = _by_axes_of(found, leaf)
    return leaf if own is None else placed(leaf, own.update(mesh=own.mesh.update(axis_types=sharding.mesh.axis_types)))


def _by_axes_of(sharding, leaf) -> NamedSharding | None:
    """The sharding of an array that is on the devices of this one by the same axes; None of others."""
    own = placement(leaf).sharding
    if not isinstance(own, NamedSharding) or own.mesh.shape_tuple != sharding.mesh.shape_tuple:
        return None
    return own if own._device_assignment == sharding._device_assignment else None


def _over_auto_axes(leaf, sharding):
    """The sharding that says how an array is divided over explicit axes, with how it is divided over the others."""
    auto, own = sharding.mesh.auto_axes, _by_axes_of(sharding, leaf)
    if not auto or own is None:
        return sharding
    pairs = zip(filled(sharding.spec, leaf.ndim).partitions, filled(own.spec, leaf.ndim).partitions)
    entries = [
        (*entry_names(said), *(name for name in entry_names(entry) if name in auto)) or None for said, entry in pairs
    ]
    return sharding.update(spec=sharding.spec.update(partitions=entries))


def _constrained(leaf, sharding):
    spec = sharding.spec.partitions
    free = frozenset(n for n, entry in enumerate(spec) if entry is PartitionSpec.UNCONSTRAINED)
    return sharding_constraint_p.bind(
        leaf, sharding=sharding, layout=None, context_mesh=concrete_mesh(), unconstrained_dims=free
    )


def _over_other_axes(function, axes, kind, shardings):
    """The mesh in use, or that of shardings, and the one with these axes of type `kind`. Errors: ValueError."""
    mesh = get_abstract_mesh()
    if mesh.empty:
        leaves = tree_util.tree_leaves(shardings, is_leaf=is_leaf)
        mesh = next((x.mesh.abstract_mesh for x in leaves if isinstance(x, NamedSharding)), mesh)
    if mesh.empty:
        raise ValueError(
            f"{function}: no mesh is in use; set one with ferrax.set_mesh, or pass shardings that have one"
        )
    names = (axes,) if isinstance(axes, str) else mesh.axis_names if axes is None else tuple(axes)
    for name in names:
        if name not in mesh.axis_names:
            raise ValueError(f"{function}: {name!r} is no axis of {mesh}")
    return mesh, mesh.update_axis_types(dict.fromkeys(names, kind))


def _undivided(mesh, leaf):
    """An array whose type says nothing of the axes that are not explicit in this mesh."""
    if not isinstance(leaf, core.Array):
        return leaf
    known = core.typeof(leaf).sharding.spec
    abstract = of_type(NamedSharding(mesh, known), leaf.ndim)
    if isinstance(leaf, core.Tracer) or not core.trace_state_clean():
        return _typed(reshard_p.bind(leaf, dst_sharding=abstract, concrete_mesh=None), abstract)
    over, own = over_devices(mesh), placement(leaf).sharding
    if over is None and isinstance(own, NamedSharding) and isinstance(own.mesh, Mesh):
        over = own.mesh.update(axis_types=mesh.axis_types) if own.mesh.shape_tuple == mesh.shape_tuple else None
    return leaf if over is None else placed(leaf, abstract.update(mesh=over))


def _left(mesh, within, leaf):
    """An array that is divided as its type over the mesh `within` says, of a type by the explicit axes of `mesh`."""
    if not isinstance(leaf, core.Array):
        return leaf
    known = NamedSharding(mesh, core.typeof(leaf).sharding.spec)
    if isinstance(leaf, core.Tracer) or not core.trace_state_clean():
        spec = filled(known.spec, leaf.ndim)
        if within._any_axis_auto:
            # Of the other axes it says nothing.
            spec = spec.update(partitions=[entry or PartitionSpec.UNCONSTRAINED for entry in spec.partitions])
        return _typed(_constrained(leaf, known.update(spec=spec)), of_type(known, leaf.ndim))
    found = placement(leaf).sharding
    if not isinstance(found, NamedSharding) or not isinstance(found.mesh, Mesh):
        return leaf
    return placed(leaf, NamedSharding(found.mesh.update(axis_types=mesh.axis_types), found.spec))


def auto_axes(
    f: Callable[..., Any] | None = None, /, *, axes: Any = None, out_sharding: Any = None
) -> Any:
    """A function in which axes of the mesh in use are `Auto` ones.

    Args:
        f: the function of arrays; without it, a decorator is returned.
        axes: the names of the axes, one or a tuple; None: all.
        out_sharding: the sharding of the results, or a tree of shardings above them; it may be given to
            the call, by this name, instead.

    Errors: TypeError if no `out_sharding` is given; ValueError where no mesh is in use; else as `reshard`.

    Example:
        >>> with ferrax.set_mesh(ferrax.make_mesh((1,), ("x",))):
        ...     ferrax.sharding.auto_axes(jnp.sin, out_sharding=ferrax.P("x"))(jnp.zeros(2))
        Array([0., 0.], dtype=float32)
    """
    if f is None:
        return lambda f: auto_axes(f, axes=axes, out_sharding=out_sharding)

    @api_boundary
    @functools.wraps(f)
    def within(*args, **kwargs):
        where = kwargs.pop("out_sharding", out_sharding)
        if where is None:
            raise TypeError("auto_axes: out_sharding is missing: give it to auto_axes or to the call")
        before, mesh = _over_other_axes("auto_axes", axes, AxisType.Auto, where)
        if mesh == before:
            out = f(*args, **kwargs)
            return out if mesh == get_abstract_mesh() else with_sharding_constraint(out, where)
        with using_abstract(mesh):
            out = f(*tree_util.tree_map(functools.partial(_undivided, mesh), args), **kwargs)
        with using_abstract(before):
            return reshard(out, where)

    return within


def explicit_axes(
    f: Callable[..., Any] | None = None, /, *, axes: Any = None, in_sharding: Any = None
) -> Any:
    """A function in which axes of the mesh in use are `Explicit` ones.

    Args:
        f: the function of arrays; without it, a decorator is returned.
        axes: the names of the axes, one or a tuple; None: all.
        in_sharding: the sharding of the arguments, or a tree of shardings above them; it may be given
            to the call, by this name, instead.

    Errors: TypeError if no `in_sharding` is given; ValueError where no mesh is in use; else as `reshard`.

    Example:
        >>> mesh = ferrax.sharding.Mesh(ferrax.devices()[:1], ("x",))
        >>> with ferrax.set_mesh(mesh):
        ...     ferrax.sharding.explicit_axes(ferrax.typeof, in_sharding=ferrax.P("x"))(jnp.zeros(2))
        ShapedArray(float32[2@x])
    """
    if f is None:
        return lambda f: explicit_axes(f, axes=axes, in_sharding=in_sharding)

    @api_boundary
    @functools.wraps(f)
    def within(*args, **kwargs):
        where = kwargs.pop("in_sharding", in_sharding)
        if where is None:
            raise TypeError("explicit_axes: in_sharding is missing: give it to explicit_axes or to the call")
        before, explicit = _over_other_axes("explicit_axes", axes, AxisType.Explicit, where)
        with using_abstract(explicit):
            out = f(*reshard(args, where), **kwargs)
        with using_abstract(before):
            return tree_util.tree_map(functools.partial(_left, before, explicit), out)

    return within


def with_layout_constraint(x: Any, layouts: Any) -> Any:
    """The arrays, lying so in memory.

    Args: x: a tree of arrays; layouts: a `Layout`, or a tree of these above `x`.

    Errors: ValueError for others, and for layouts that do not name each axis once; NotImplementedError for layouts with
    tiles, and within traced functions for those that are not row by row.

    >>> from ferrax.experimental.layout import Layout, with_layout_constraint
    >>> with_layout_constraint(jnp.ones((1, 2)), Layout((0, 1)))
    Array([[1., 1.]], dtype=float32)
    """

    def constrained(leaf, layout):
        leaf = leaf if type(leaf) is PermutedArray else core.as_array(leaf, "with_layout_constraint")
        if not isinstance(layout, Layout):
            raise ValueError(f"with_layout_constraint: layouts must be Layouts, got {layout!r}")
        if not isinstance(leaf, core.Tracer) and core.trace_state_clean():
            order = order_of(layout, leaf.shape, "with_layout_constraint")
            return laid_out_as(data_of(leaf, order, "with_layout_constraint"), order)
        refuse_order(layout, leaf.shape, "with_layout_constraint")
        return layout_constraint_p.bind(leaf, layout=layout)

    leaves, tree = tree_util.tree_flatten(x)
    wanted = tree_util.broadcast_prefix(layouts, x, is_leaf=lambda x: isinstance(x, Layout))
    return tree.unflatten([constrained(leaf, layout) for leaf, layout in zip(leaves, wanted)])
