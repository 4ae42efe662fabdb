"""`vmap`: a function over a batch of arguments."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import numpy as np

from ferrax import _core
from ferrax._src import core, state
from ferrax._src.base import config, dtypes
from ferrax._src.core import api_util, float0 as float0_leaves, named_axes
from ferrax._src.core.explicit_types import all_typed, retyped, set_type, with_axis, without_axis
from ferrax._src.core.partition import PartitionSpec, entry_names, names_of
from ferrax._src.core.primitives import apply_program
from ferrax._src.core.sharding import NamedSharding
from ferrax._src.state import arguments as ref_args, new_ref
from ferrax._src.tracing.staging import Flat
from ferrax._src.transforms import vmappables
from ferrax._src.tree import opaque, tree_util

P = ParamSpec("P")
R = TypeVar("R")


def _is_axis_leaf(x):
    return x is None


def _has_vmappables(args, kwargs, in_axes, out_axes):
    values = tree_util.tree_leaves((args, kwargs), is_leaf=vmappables.is_vmappable)
    axes = tree_util.tree_leaves((in_axes, out_axes), is_leaf=vmappables.is_spec)
    return any(map(vmappables.is_vmappable, values)) or any(map(vmappables.is_spec, axes))


def _is_spec(axes):
    return isinstance(axes, opaque.ValueSpec) or vmappables.is_spec(axes)


def _check_axes(axes, name):
    if axes is None or isinstance(axes, (int, list, tuple, dict)) or _is_spec(axes):
        pass
    elif not hasattr(axes, "__index__"):
        raise TypeError(
            f"vmap: {name} must be an int, None, or a tree of these, got {axes!r} of type "
            f"{type(axes).__name__}."
        )
    for leaf in tree_util.tree_leaves(axes, is_leaf=_is_axis_leaf):
        if leaf is None or _is_spec(leaf):
            continue
        if type(leaf) is not int:
            raise TypeError(
                f"vmap: {name} must be an int, None, or a tree of these, got {leaf!r} of type "
                f"{type(leaf).__name__} in {axes!r}."
            )


def _flatten_axes(name, tree_like, axes, what):
    """One axis or None for each leaf of `tree_like`."""
    try:
        return opaque.broadcast_specs(axes, tree_like, _is_axis_leaf)
    except ValueError as error:
        raise ValueError(
            f"vmap: {name} has to be a tree prefix of the {what}, got {axes} for "
            f"{tree_util.tree_structure(tree_like)}: {error}"
        ) from None


def _batch_size(fun, arrays, axes, names, axis_size):
    sizes: dict[Any, Any] = {}
    for index, (array, axis) in enumerate(zip(arrays, axes)):
        if not -array.ndim <= axis < array.ndim:
            raise ValueError(
                f"vmap: in_axes asks for axis {axis} of an argument that has rank {array.ndim} and "
                f"shape {array.shape}; expected an axis of {-array.ndim} to {array.ndim - 1}"
                if array.ndim
                else f"vmap: in_axes asks for axis {axis} of a scalar; pass None for it"
            )
        sizes.setdefault(array.shape[axis], []).append((index, axis))
    if axis_size is not None:
        if not hasattr(axis_size, "__index__"):
            raise TypeError(f"vmap: axis_size must be an int or None, got {axis_size!r}")
        sizes.setdefault(axis_size, [])
    if len(sizes) == 1:
        (size,) = sizes
        if size < 0:
            raise TypeError(f"vmap: axis_size must not be negative, got {axis_size!r}")
        return size
    if not sizes:
        raise ValueError(
            "vmap: no argument is mapped; give in_axes at least one non-None entry, or pass axis_size"
        )
    labels = names()
    lines = [
        f"  * argument {labels[index]} of type {_type_text(arrays[index])} has size {size} along "
        f"axis {axis}"
        for size, places in sizes.items()
        for index, axis in places[:3]
    ]
    extra = "" if axis_size is None else f"\n  * axis_size is {axis_size}"
    raise ValueError(
        f"vmap got axes of inconsistent sizes (the axes that in_axes names have to be equally long), "
        f"in the call of {api_util.fun_place(fun)}:\n" + "\n".join(lines) + extra
    )


def _type_text(array):
    if float0_leaves.is_float0(array):
        return core.typeof(array).str_short()
    return array._type_text()


def _mesh_axes(spmd_axis_name, given, axes, leaves) -> tuple[tuple[Any, ...], Any]:
    """The axes of a mesh over which the batch is divided, and the mesh if they are explicit axes of types.

    Errors: ValueError where arguments are divided differently, where an argument that is not mapped over is divided
    over these axes, and for `spmd_axis_name` where types say something else.
    """
    names = () if spmd_axis_name is None else named_axes.as_names(spmd_axis_name)
    mesh = next((sharding.mesh for sharding in given if sharding is not None), None)
    if mesh is None:
        return names, None
    entries = {None if sharding is None else sharding.spec.partitions[axis] for sharding, axis in zip(given, axes)}
    if len(entries) > 1:
        raise ValueError(
            "vmap: arguments are divided differently along the axis that is mapped over, over "
            f"{' and '.join(map(str, entries))}: reshard some of them"
        )
    over = entry_names(*entries)
    if over and spmd_axis_name is not None:
        if config.remove_size_one_mesh_axis_from_type.value:
            names = tuple(name for name in names if mesh.shape.get(name) != 1)
        if over != names:
            raise ValueError(
                f"vmap: spmd_axis_name={spmd_axis_name!r} was given, and the types of the arguments divide the axis "
                f"over {over}: say it in one way"
            )
    if over:
        for leaf, sharding in zip(leaves, all_typed(leaves)):
            if sharding is not None and set(names_of(sharding.spec.partitions)) & set(over):
                raise ValueError(
                    f"vmap: the axis that is mapped over is divided over {over}, and so is an argument of type "
                    f"{core.typeof(leaf).str_short()} that is not mapped over: reshard it"
                )
    return over or names, mesh if over else None


def _retyped(results, types, axes, over, explicit) -> list:
    """The results with the types of a lane's and an axis that is divided over these axes, if they are explicit."""
    found = []
    for x, sharding, axis in zip(results, types, axes):
        if sharding is None and explicit is not None:
            rank = x.ndim if axis is None else x.ndim - 1
            sharding = NamedSharding(explicit, PartitionSpec(*[None] * rank))
        if sharding is not None:
            sharding = with_axis(sharding, axis, over if explicit is not None else None)
        found.append(retyped(x, sharding))
    return [*found, *results[len(found) :]]


def vmap(
    fun: Callable[P, R], in_axes: Any = 0, out_axes: Any = 0, axis_name: Any = None,
    axis_size: Any = None, spmd_axis_name: Any = None, sum_match: bool = False,
) -> Callable[P, R]:
    """A function that applies `fun` to every element of a batch, as one batched program.

    Args:
        fun: the function of one element.
        in_axes: which axis of each argument to map over (None: not mapped); an int, or a tree
            prefix of the positional arguments. Keyword arguments are mapped over axis 0.
        out_axes: where the batch axis goes in each output; None for outputs that do not depend
            on the batch.
        axis_name: a name for the axis, by which `lax.psum` and its like see the whole batch.
        axis_size: its size, needed where nothing is mapped.
        spmd_axis_name: the axes of a mesh that the batch is divided over, one or a tuple: what functions over
            the mesh (`shard_map`) inside of `fun` are told. Not given, those over which the arguments' types
            divide the axis, if they are explicit.
        sum_match: whether outputs that `out_axes` has None for may differ between elements: their sums over the
            batch are returned then, as `x.sum` computes them. Outputs that are the same for every element are
            returned as they are.

    Errors: ValueError for sizes or trees that do not fit, and for `spmd_axis_name` beside explicit axes of a mesh;
    TypeError for axes that are not ints.

    Example:
        >>> ferrax.vmap(jnp.dot, in_axes=(0, None))(jnp.ones((3, 2)), jnp.ones(2))
        Array([2., 2., 2.], dtype=float32)
        >>> ferrax.vmap(jnp.sin, out_axes=None, sum_match=True)(jnp.zeros(3))
        Array(0., dtype=float32)
    """
    hash(spmd_axis_name)  # TypeError for what is no name
    api_util.check_callable(fun)
    if isinstance(in_axes, list):
        in_axes = tuple(in_axes)
    _check_axes(in_axes, "in_axes")
    _check_axes(out_axes, "out_axes")

    @api_util.wraps(fun, "Vectorized version", "over a batch axis of its arguments")
    def vmap_f(*args, **kwargs):
        if vmappables.vmappables and _has_vmappables(args, kwargs, in_axes, out_axes):
            return vmappables.call(
                vmap, fun, in_axes, out_axes, axis_name, axis_size, sum_match, args, kwargs
            )
        if isinstance(in_axes, tuple) and len(in_axes) != len(args):
            raise ValueError(
                f"vmap: in_axes={in_axes} has {len(in_axes)} entries, but the call has {len(args)} "
                "arguments by position. Give an entry for each, or one int or None for all; arguments "
                "given by name are mapped over axis 0."
            )
        leaves, in_tree = tree_util.tree_flatten((args, kwargs))
        names = functools.partial(api_util.argument_names, fun, args, kwargs, tangents=True)
        refs = ref_args.of_leaves(leaves)
        if refs:
            ref_args.check_distinct(refs, fun, "vmap", names)
        axes = _flatten_axes("in_axes", args, in_axes, "arguments")
        axes += [0] * (len(leaves) - len(axes))
        # What is not mapped over is passed on as it is: a number stays a number.
        mapped = [number for number, axis in enumerate(axes) if axis is not None]
        values = ref_args.values(leaves, refs) if refs else leaves
        arrays = [
            leaf if float0_leaves.is_float0(leaf) else core.as_array(leaf, "vmap")
            for leaf in (values[number] for number in mapped)
        ]
        labels = lambda: _chosen(names(), mapped)  # noqa: E731
        own = [axes[number] for number in mapped]
        size = _batch_size(fun, arrays, own, labels, axis_size)
        own = [axis % array.ndim for array, axis in zip(arrays, own)]
        # Tangents of integers have a batch axis too, though programs do not know of them.
        whole, leaves, mapped = list(zip(mapped, arrays, own)), list(leaves), []
        arrays, own, types = [], [], []
        for number, array, axis in whole:
            axes[number] = axis
            shape = array.shape[:axis] + array.shape[axis + 1 :]
            if float0_leaves.is_float0(array):
                leaves[number] = np.zeros(shape, dtypes.float0)
                continue
            mapped.append(number)
            arrays.append(array)
            own.append(axis)
            types.append((shape, *_core.type_of(array)[1:]))
        given = all_typed(arrays)
        lane_types = [without_axis(sharding, axis) for sharding, axis in zip(given, own)]
        flat = _FlatBatch(fun, in_tree, leaves, mapped, refs, lane_types)
        axis_text = None if axis_name is None else named_axes.text(axis_name)
        over, explicit = _mesh_axes(spmd_axis_name, given, own, [x for x, axis in zip(leaves, axes) if axis is None])
        with named_axes.batch_over(over), named_axes.named_axis(axis_name, size):
            program, captured, touched = _core.trace_program(
                flat, "batch", api_util.fun_name(fun), types, labels, arrays, axis_text
            )
        dims = own + [None] * len(captured)
        out_types = program.out_types[: flat.out_tree.num_leaves]
        out, out_tree = tree_util.tree_flatten(tree_util.with_placeholders(flat.out_tree))
        dummy = out_tree.unflatten(out)
        wanted = _flatten_axes("out_axes", dummy, out_axes, "outputs")
        for number, (leaf, axis) in enumerate(zip(out, wanted)):
            if float0_leaves.is_float0(leaf):
                axis = _canonical_out_axis(axis, leaf.ndim)
                shape = leaf.shape
                if axis is not None:
                    shape = (*shape[:axis], size, *shape[axis:])
                out[number] = np.zeros(shape, dtypes.float0)
        wanted = [axis for leaf, axis in zip(out, wanted) if not float0_leaves.is_float0(leaf)]
        wanted = [
            _canonical_out_axis(axis, len(shape)) for axis, (shape, *_) in zip(wanted, out_types)
        ]
        summed = {}
        if sum_match and None in wanted:
            with named_axes.batch_over(over):
                _, found = program.batch(size, dims, None, axis_text)
            summed = {n: dim for n, (dim, axis) in enumerate(zip(found, wanted)) if axis is None and dim is not None}
            _check_sums(dummy, summed)
            wanted = [summed.get(number, axis) for number, axis in enumerate(wanted)]
        if touched is not None:
            wanted += [axes[number] for number in touched.written_arguments]
        with named_axes.batch_over(over):
            batched, _ = program.batch(size, dims, wanted, axis_text)
        results = apply_program(batched, arrays + captured)
        if explicit is not None or any(sharding is not None for sharding in flat.types):
            results = _retyped(results, flat.types, wanted, over, explicit)
        if touched is not None:
            touched.write(results[len(out_types) :], refs)
        for number, axis in summed.items():
            results[number] = results[number].sum(axis)
        made = iter(flat.restore(results[: len(out_types)]))
        result = out_tree.unflatten(
            [leaf if float0_leaves.is_float0(leaf) else next(made) for leaf in out]
        )
        return vmappables.finished(result, size, out_axes) if vmappables.vmappables else result

    return vmap_f


def _check_sums(outputs, summed):
    """Errors: NotImplementedError for a value that is no array, with arrays that would be summed."""
    if not opaque.any_values():
        return
    first = 0
    for value in tree_util.tree_leaves(outputs, lambda x: isinstance(x, opaque.Placeholder)):
        end = first + len(tree_util.tree_leaves(value))
        if isinstance(value, opaque.Placeholder) and any(first <= number < end for number in summed):
            raise NotImplementedError(
                f"vmap: sum_match sums arrays, and an output of type {value.ty} differs between elements: give its "
                "axes in out_axes, and sum it outside"
            )
        first = end


def _chosen(items, numbers):
    return [items[number] for number in numbers]


class _FlatBatch(Flat):
    """The function of one lane. Refs that it is mapped over are refs of the lane; others are
    outer ones, which it may read. It may return refs: those stand for all lanes."""

    def __init__(self, fun, in_tree, leaves, mapped, refs, lane_types):
        super().__init__(
            fun, in_tree, refs={n: refs[n] for n in mapped if n in refs}, kind="vmap"
        )
        self.leaves = leaves
        self.mapped = mapped
        self.lane_types = lane_types
        self.own: dict = {}
        self.returned: dict = {}

    def __call__(self, lanes):
        for lane, sharding in zip(lanes, self.lane_types):
            set_type(lane, sharding)
        leaves = list(self.leaves)
        for number, lane in zip(self.mapped, lanes):
            leaves[number] = lane
        return super().__call__(leaves)

    def place_refs(self, leaves):
        leaves = super().place_refs(leaves)
        self.own = {leaves[number]: ref for number, ref in self.refs.items()}
        return leaves

    def take_refs(self, leaves, result):
        for number, ref in ref_args.of_leaves(leaves).items():
            self.returned[number] = self.own.get(ref)
            leaves[number] = state.read(ref)
        return leaves

    def restore(self, results):
        """The results with refs in the places of those that the function returned."""
        for number, ref in self.returned.items():
            results[number] = new_ref(results[number]) if ref is None else ref
        return results


def _canonical_out_axis(axis, rank):
    if axis is None:
        return None
    if not -rank - 1 <= axis <= rank:
        raise ValueError(
            f"axis {axis} is out of bounds for array of dimension {rank + 1} (vmap out_axes)"
        )
    return axis % (rank + 1)
