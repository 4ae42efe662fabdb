"""`vmap`: a function over a batch of arguments."""

from __future__ import annotations

import functools

from ferrax import _core
from ferrax._src import api_util, core, dtypes, float0, ref_args, tree_util
from ferrax._src.api import Flat
from ferrax._src.refs import new_ref


def _is_axis_leaf(x):
    return x is None


def _check_axes(axes, name):
    if axes is None or isinstance(axes, (int, list, tuple, dict)):
        pass
    elif not hasattr(axes, "__index__"):
        raise TypeError(
            f"vmap {name} must be an int, None, or a (pytree of a) tuple or list of them, but got "
            f"{type(axes).__name__}."
        )
    for leaf in tree_util.tree_leaves(axes, is_leaf=_is_axis_leaf):
        if leaf is not None and (isinstance(leaf, bool) or not hasattr(leaf, "__index__")):
            raise TypeError(
                f"vmap {name} must be an int, None, or a (pytree of a) tuple or list of them, but "
                "got "
                f"{axes!r}."
            )


def _flatten_axes(name, tree_like, axes, what):
    """One axis or None for each leaf of `tree_like`."""
    try:
        return tree_util.broadcast_prefix(axes, tree_like, is_leaf=_is_axis_leaf)
    except ValueError as error:
        raise ValueError(
            f"vmap {name} specification must be a tree prefix of the corresponding value, got "
            f"specification {axes} for value tree {tree_util.tree_structure(tree_like)} ({what}): "
            f"{error}"
        ) from None


def _check_axis(shape, axis):
    if axis is not None and not -len(shape) <= axis < len(shape):
        raise ValueError(
            f"vmap was requested to map its argument along axis {axis}, which implies that its rank "
            f"should be at least {axis + 1 if axis >= 0 else -axis}, but is only {len(shape)} (its "
            f"shape is {shape})"
        )


def _batch_size(fun, arrays, axes, names, axis_size, tangents):
    """The size of the mapped axes; `tangents` are the shapes and axes of arrays of float0."""
    sizes = {}
    for index, (array, axis) in enumerate(zip(arrays, axes)):
        _check_axis(array.shape, axis)
        if axis is not None:
            sizes.setdefault(array.shape[axis], []).append((index, axis))
    for shape, axis in tangents:
        if axis is not None:
            sizes.setdefault(shape[axis], [])
    if axis_size is not None:
        sizes.setdefault(axis_size, [])
    if len(sizes) == 1:
        return next(iter(sizes))
    if not sizes:
        raise ValueError(
            "vmap must have at least one non-None value in in_axes, or axis_size must be given"
        )
    labels = names()
    lines = [
        f"  * argument {labels[index]} of type {arrays[index]._type_text()} has size {size} along "
        f"axis {axis}"
        for size, places in sizes.items()
        for index, axis in places[:3]
    ]
    lines += [
        f"  * an argument of type {core.ShapedArray(shape, dtypes.float0).str_short()} has size "
        f"{shape[axis]} along axis {axis}"
        for shape, axis in tangents
        if axis is not None
    ]
    extra = "" if axis_size is None else f"\n  * axis_size is {axis_size}"
    raise ValueError(
        f"vmap got inconsistent sizes for array axes to be mapped, in the call of "
        f"{api_util.fun_place(fun)}:\n" + "\n".join(lines) + extra
    )


def vmap(
    fun,
    in_axes=0,
    out_axes=0,
    axis_name=None,
    axis_size=None,
    spmd_axis_name=None,
    sum_match=False,
):
    """A function that applies `fun` to every element of a batch, as one batched program.

    Args:
        in_axes: which axis of each argument to map over (None: not mapped); an int, or a tree
            prefix of the positional arguments. Keyword arguments are mapped over axis 0.
        out_axes: where the batch axis goes in each output; None for outputs that do not depend
            on the batch.
        axis_name: a name for the axis.
        axis_size: its size, needed where nothing is mapped.

    Errors: ValueError for sizes or trees that do not fit, TypeError for axes that are not ints.

    Example:
        >>> ferrax.vmap(jnp.dot, in_axes=(0, None))(jnp.ones((3, 2)), jnp.ones(2))
        Array([2., 2., 2.], dtype=float32)
    """
    if spmd_axis_name is not None:
        raise NotImplementedError("vmap: spmd_axis_name needs several devices")
    api_util.check_callable(fun)
    if isinstance(in_axes, list):
        in_axes = tuple(in_axes)
    _check_axes(in_axes, "in_axes")
    _check_axes(out_axes, "out_axes")

    @functools.wraps(fun)
    def vmap_f(*args, **kwargs):
        if isinstance(in_axes, tuple) and len(in_axes) != len(args):
            raise ValueError(
                f"vmap in_axes must be an int, None, or a tuple of entries corresponding to the "
                "positional arguments passed to the function, but got "
                f"len(in_axes)={len(in_axes)}, "
                f"len(args)={len(args)}"
            )
        leaves, in_tree = tree_util.tree_flatten((args, kwargs))
        axes = _flatten_axes("in_axes", args, in_axes, "arguments")
        axes += [0] * (len(leaves) - len(axes))
        tangents = [(x.shape, axis) for x, axis in zip(leaves, axes) if float0.is_float0(x)]
        if tangents:
            in_tree, axes = float0.changed(leaves, in_tree, axes, _lane_shape)
            leaves = [leaf for leaf in leaves if not float0.is_float0(leaf)]
        names = functools.partial(api_util.argument_names, fun, args, kwargs)
        refs = ref_args.of_leaves(leaves)
        if refs:
            ref_args.check_distinct(refs, fun, "vmap", names)
            leaves = ref_args.values(leaves, refs)
        arrays = [core.as_array(leaf, "vmap") for leaf in leaves]
        size = _batch_size(fun, arrays, axes, names, axis_size, tangents)
        axes = [
            axis if axis is None else axis % array.ndim for array, axis in zip(arrays, axes)
        ]
        types = [
            (_lane_shape(array.shape, axis), array.dtype, array.weak_type)
            for array, axis in zip(arrays, axes)
        ]
        flat = _FlatBatch(fun, in_tree, refs, axes)
        program, captured, touched = _core.trace_program(
            flat, "batch", api_util.fun_name(fun), types, names, arrays
        )
        dims = axes + [None] * len(captured)
        out_types = program.out_types[: flat.out_tree.num_leaves]
        dummy = flat.out_tree.unflatten(range(len(out_types)))
        wanted = _flatten_axes("out_axes", dummy, out_axes, "outputs")
        out_tree = flat.out_tree
        if len(wanted) > len(out_types):
            leaves, whole = tree_util.tree_flatten(dummy)
            insert = functools.partial(_batched_shape, size)
            out_tree, wanted = float0.changed(leaves, whole, wanted, insert)
        wanted = [
            _canonical_out_axis(axis, len(shape)) for axis, (shape, _, _) in zip(wanted, out_types)
        ]
        if touched is not None:
            wanted += [axes[number] for number in touched.written_arguments]
        batched, _ = program.batch(size, dims, wanted, axis_name and str(axis_name))
        results = _core.apply_program(batched, arrays + captured)
        if touched is not None:
            touched.write(results[len(out_types) :], refs)
        return out_tree.unflatten(flat.restore(results[: len(out_types)]))

    return vmap_f


class _FlatBatch(Flat):
    """The function of one lane. Refs that it is mapped over are refs of the lane; others are
    outer ones, which it may read. It may return refs: those stand for all lanes."""

    def __init__(self, fun, in_tree, refs, axes):
        mapped = {number: ref for number, ref in refs.items() if axes[number] is not None}
        super().__init__(fun, in_tree, refs=mapped, kind="vmap")
        self.whole = {number: ref for number, ref in refs.items() if number not in mapped}
        self.own: dict = {}
        self.returned: dict = {}

    def __call__(self, leaves):
        for number, ref in self.whole.items():
            leaves[number] = ref
        return super().__call__(leaves)

    def place_refs(self, leaves):
        leaves = super().place_refs(leaves)
        self.own = {leaves[number]: ref for number, ref in self.refs.items()}
        return leaves

    def take_refs(self, leaves, result):
        for number, ref in ref_args.of_leaves(leaves).items():
            self.returned[number] = self.own.get(ref)
            leaves[number] = ref._read()
        return leaves

    def restore(self, results):
        """The results with refs in the places of those that the function returned."""
        for number, ref in self.returned.items():
            results[number] = new_ref(results[number]) if ref is None else ref
        return results


def _lane_shape(shape, axis):
    _check_axis(shape, axis)
    if axis is None:
        return shape
    axis %= len(shape)
    return shape[:axis] + shape[axis + 1 :]


def _batched_shape(size, shape, axis):
    axis = _canonical_out_axis(axis, len(shape))
    return shape if axis is None else (*shape[:axis], size, *shape[axis:])


def _canonical_out_axis(axis, rank):
    if axis is None:
        return None
    if not -rank - 1 <= axis <= rank:
        raise ValueError(
            f"axis {axis} is out of bounds for array of dimension {rank + 1} (vmap out_axes)"
        )
    return axis % (rank + 1)
