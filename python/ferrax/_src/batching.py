"""`vmap`: a function over a batch of arguments."""

from __future__ import annotations

import functools

from ferrax import _core
from ferrax._src import api_util, core, tree_util
from ferrax._src.api import Flat


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


def _batch_size(fun, arrays, axes, names, axis_size):
    sizes = {}
    for index, (array, axis) in enumerate(zip(arrays, axes)):
        if axis is None:
            continue
        if not -array.ndim <= axis < array.ndim:
            raise ValueError(
                f"vmap was requested to map its argument along axis {axis}, which implies that "
                "its rank "
                f"should be at least {axis + 1 if axis >= 0 else -axis}, but is only {array.ndim} "
                "(its "
                f"shape is {array.shape})"
            )
        sizes.setdefault(array.shape[axis], []).append((index, axis))
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
        arrays = [core.as_array(leaf, "vmap") for leaf in leaves]
        axes = _flatten_axes("in_axes", args, in_axes, "arguments")
        axes += [0] * (len(arrays) - len(axes))
        names = functools.partial(api_util.argument_names, fun, args, kwargs)
        size = _batch_size(fun, arrays, axes, names, axis_size)
        axes = [
            axis if axis is None else axis % array.ndim for array, axis in zip(arrays, axes)
        ]
        types = []
        for array, axis in zip(arrays, axes):
            shape = array.shape
            if axis is not None:
                shape = shape[:axis] + shape[axis + 1 :]
            types.append((shape, array.dtype, array.weak_type))
        flat = Flat(fun, in_tree)
        program, captured = _core.trace_program(
            flat, "batch", api_util.fun_name(fun), types, names, arrays
        )
        dims = axes + [None] * len(captured)
        out_types = program.out_types
        dummy = flat.out_tree.unflatten(range(len(out_types)))
        wanted = _flatten_axes("out_axes", dummy, out_axes, "outputs")
        wanted = [
            _canonical_out_axis(axis, len(shape)) for axis, (shape, _, _) in zip(wanted, out_types)
        ]
        batched, _ = program.batch(size, dims, wanted, axis_name and str(axis_name))
        return flat.out_tree.unflatten(_core.apply_program(batched, arrays + captured))

    return vmap_f


def _canonical_out_axis(axis, rank):
    if axis is None:
        return None
    if not -rank - 1 <= axis <= rank:
        raise ValueError(
            f"axis {axis} is out of bounds for array of dimension {rank + 1} (vmap out_axes)"
        )
    return axis % (rank + 1)
