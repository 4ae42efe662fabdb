"""Calls of Python functions from compiled programs: `pure_callback` and `io_callback`.

A callback is a primitive whose implementation is the user's function. Programs call it on the
thread that runs them, which takes the interpreter's lock for the call; a callback may use arrays
and compiled functions itself.
"""

from __future__ import annotations

import dataclasses
import itertools
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np

from ferrax._src import core
from ferrax._src.base import dtypes, effects, errors
from ferrax._src.core import api_util, named_axes
from ferrax._src.core.partition import PartitionSpec, filled
from ferrax._src.core.primitives import Primitive, primitive_jvps, primitive_transposes
from ferrax._src.core.sharding import NamedSharding, SingleDeviceSharding
from ferrax._src.lax.parallel import axis_index
from ferrax._src.random.prng import random_unwrap
from ferrax._src.transforms.batching_rules import bdim_at_front, fancy_primitive_batchers, moveaxis
from ferrax._src.tree import tree_util

VMAP_METHODS = (
    "sequential", "sequential_unrolled", "expand_dims", "broadcast_all", "legacy_vectorized", None,
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class FlatCallback:
    """The user's function on flat arguments and results.

    Equal for the same function called with the same structure of arguments.
    """

    callback_func: Any
    in_tree: Any

    def __call__(self, *leaves):
        args, kwargs = self.in_tree.unflatten(leaves)
        return tree_util.tree_leaves(self.callback_func(*args, **kwargs))


@dataclasses.dataclass(frozen=True)
class Lanes:
    """A callback over batches that is called once for each lane.

    `levels` are the batch axes, innermost `vmap` first: a size, and where each argument has the
    axis. Lanes come in the order in which unrolled calls would: those of the innermost vary last.
    """

    callback: Any
    levels: tuple

    def __call__(self, *leaves):
        results = []
        for lane in itertools.product(*(range(size) for size, _ in self.levels)):
            own = list(leaves)
            for (_, dims), index in reversed(list(zip(self.levels, lane))):
                own = [
                    x if dim is None else x[(slice(None),) * dim + (index,)]
                    for x, dim in zip(own, dims)
                ]
            results.append([np.asarray(leaf) for leaf in self.callback(*own)])
        # The batch axes of results are in front, the outermost first.
        sizes = tuple(size for size, _ in self.levels)
        stacked = []
        for parts in zip(*results):
            whole = np.stack(parts).reshape(sizes + parts[0].shape)
            order = tuple(reversed(range(len(sizes))))
            stacked.append(
                whole.transpose(order + tuple(range(len(sizes), whole.ndim)))
            )
        return stacked


@dataclasses.dataclass(frozen=True)
class Devices:
    """A callback that is called once for each device of a mesh, in the order of the mesh.

    `levels` are as of `Lanes`, one for each axis of the mesh, the last axis first.
    """

    callback: Any
    levels: tuple

    def __call__(self, *leaves):
        results = []
        sizes = tuple(size for size, _ in reversed(self.levels))
        for place in itertools.product(*map(range, sizes)):
            own = list(leaves)
            for (_, dims), index in zip(reversed(self.levels), place):
                own = [x if dim is None else x[(slice(None),) * dim + (index,)] for x, dim in zip(own, dims)]
            results.append([np.asarray(leaf) for leaf in self.callback(*own)])
        return [np.stack(parts).reshape(sizes + parts[0].shape) for parts in zip(*results)]


@dataclasses.dataclass(frozen=True)
class Tiles:
    """A callback that is called once for each device, in the order of the mesh, with what that one has of whole arrays.

    `cuts` has for each device and each argument the indices of its part.
    """

    callback: Any
    cuts: tuple

    def __call__(self, *leaves):
        for own in self.cuts:
            self.callback(*(x[cut] for x, cut in zip(leaves, own)))
        return ()


def of_tiles(callback, shapes, shardings, count):
    """The callback, which gives nothing, called for each of `count` devices, of these shardings. One over lanes is
    called for each device in each lane: what a lane has is divided along the axes that are not the lanes'.
    """
    if isinstance(callback, Lanes):
        shapes, specs = [list(shape) for shape in shapes], [_entries(x, len(s)) for x, s in zip(shardings, shapes)]
        for _, dims in reversed(callback.levels):
            for number, dim in enumerate(dims):
                if dim is not None:
                    del shapes[number][dim], specs[number][dim]
        shardings = [_of_entries(where, entries) for where, entries in zip(shardings, specs)]
        return Lanes(of_tiles(callback.callback, shapes, shardings, count), callback.levels)
    if count == 1:
        return callback
    if not shardings:
        return Tiles(callback, ((),) * count)
    maps = [where.devices_indices_map(tuple(shape)) for where, shape in zip(shardings, shapes)]
    return Tiles(callback, tuple(tuple(own[device] for own in maps) for device in shardings[0]._device_assignment))


def _entries(sharding, rank):
    return list(filled(sharding.spec, rank).partitions) if isinstance(sharding, NamedSharding) else [None] * rank


def _of_entries(sharding, entries):
    return sharding.update(spec=PartitionSpec(*entries)) if isinstance(sharding, NamedSharding) else sharding


@dataclasses.dataclass(frozen=True)
class Numbered:
    """A callback whose last arguments, `count` of them, are the device's number and not the user's."""

    callback: Any
    count: int

    def __call__(self, *leaves):
        return self.callback(*leaves[: len(leaves) - self.count])


def numbered(callback, leaves, typed=True):
    """The callback and its arguments, among these the number of the device within functions of a mesh: so that it is
    called by all devices, also where its arguments are the same on all. Not along axes over which types say what
    varies unless `typed`: results would vary."""
    names = named_axes.of_mesh()
    if not typed:
        names = tuple(name for name in names if name not in named_axes.typed_of(names))
    if not names:
        return callback, leaves
    return Numbered(callback, len(names)), (*leaves, *map(axis_index, names))


def over_lanes(callback, axis, dims):
    """The callback with one more batch axis, which may be one of a mesh."""
    level = (axis.size, tuple(dims))
    if named_axes.is_over_devices(axis.name):
        if isinstance(callback, Devices):
            return Devices(callback.callback, (*callback.levels, level))
        return Devices(callback, (level,))
    if isinstance(callback, Lanes):
        return Lanes(callback.callback, (*callback.levels, level))
    return Lanes(callback, (level,))


_SHOWN_CALLBACKS = 8
_SHOWN_FRAMES = 16


def _failure(failed, error):
    """The error for a callback that raised this.

    If a callback within it had raised, the text has a line for each, the outermost first, and the
    traceback of what the innermost raised, which is the cause: it grows with their number only.
    """
    lines, cause, trace = getattr(error, "_callbacks", ((), error, None))
    if trace is None:
        trace = "".join(traceback.format_exception(error, limit=-_SHOWN_FRAMES)).rstrip()
    what = "this:" if lines else f"{type(error).__name__}."
    lines = (f"{failed} raised {what}", *lines)
    shown = lines
    if len(lines) > 2 * _SHOWN_CALLBACKS:
        left_out = f"({len(lines) - 2 * _SHOWN_CALLBACKS} more callbacks)"
        shown = (*lines[:_SHOWN_CALLBACKS], left_out, *lines[-_SHOWN_CALLBACKS:])
    failure: Any = errors.JaxRuntimeError("\n".join((*shown, trace)))
    failure._callbacks = lines, cause, trace
    failure.__cause__ = cause
    return failure


def run_callback(name, callback, arguments, avals):
    """What the callback gives, as NumPy arrays of these types.

    Errors: JaxRuntimeError where it raises or gives something else; its cause is what was raised.
    """
    arguments = [_words(core.as_array(argument, name)) for argument in arguments]
    try:
        results = [np.asarray(leaf) for leaf in callback(*arguments)]
    except errors.IndexCheckError:
        raise
    except Exception as error:
        raise _failure(f"{name} failed: {place(callback)}", error)  # noqa: B904
    if len(results) != len(avals):
        raise errors.JaxRuntimeError(
            f"{name} failed: {place(callback)} returned {len(results)} arrays, but "
            f"result_shape_dtypes has {len(avals)}. Return a tree of the same structure."
        )
    checked = []
    for number, (result, aval) in enumerate(zip(results, avals)):
        # As for arguments of functions, 64-bit results become 32-bit ones unless these are on.
        wanted = aval.dtype
        if not dtypes.issubdtype(wanted, dtypes.extended):
            canonical = dtypes.canonicalize_dtype(result.dtype)
            if canonical != result.dtype:
                result = result.astype(canonical)
        if result.shape != tuple(aval.shape) or result.dtype != wanted:
            got = core.ShapedArray(result.shape, result.dtype).str_short()
            raise errors.JaxRuntimeError(
                f"{name} failed: result {number} of {place(callback)} is {got}, but "
                f"result_shape_dtypes says {aval.str_short()}. Convert it in the callback, or "
                "correct result_shape_dtypes."
            )
        checked.append(result)
    return checked


def _words(array):
    """Keys as their words: those are numbers."""
    return random_unwrap(array) if dtypes.issubdtype(array.dtype, dtypes.prng_key) else array


def place(callback) -> str:
    """The user's function with its file and line."""
    while not isinstance(callback, FlatCallback):
        inner = getattr(callback, "callback", None)
        if inner is None:
            return "the callback"
        callback = inner
    return f"the callback {api_util.fun_place(callback.callback_func)}"


def callback_primitive(name) -> Primitive:
    """A primitive whose implementation runs as Python code in compiled programs."""
    primitive = Primitive(name)
    primitive.multiple_results = True
    primitive._host = lambda *args, **params: primitive.impl(*args, **params)
    return primitive


def no_derivative(primitive, jvp, transpose):
    """Gives rules of differentiation that raise ValueError with these texts."""

    def refuse(text):
        def rule(*args, **params):
            raise ValueError(text)

        return rule

    primitive_jvps[primitive] = refuse(jvp)
    primitive_transposes[primitive] = refuse(transpose)


def check_vmap_method(vmap_method) -> None:
    """ValueError for what is no method of `vmap`."""
    if vmap_method not in VMAP_METHODS:
        raise ValueError(
            f"vmap_method must be one of the allowed methods {list(VMAP_METHODS)}, but got: "
            f"{vmap_method}"
        )


def batched_aval(size, aval):
    return aval.update(shape=(size, *aval.shape))


def primitive_with_results(name) -> Primitive:
    """A primitive that calls `callback` and gives arrays of the types `result_avals`."""
    primitive = callback_primitive(name)

    @primitive.def_impl
    def impl(*args, callback, result_avals, **params):
        results = run_callback(name, callback, args, result_avals)
        return [core.as_array(result) for result in results]

    return primitive


def _bind(primitive, callback, result_shape_dtypes, args, kwargs, **params):
    if not isinstance(params["sharding"], (SingleDeviceSharding, type(None))):
        raise NotImplementedError(
            f"{primitive.name}: sharding must be None or a SingleDeviceSharding, got "
            f"{params['sharding']!r} of type {type(params['sharding']).__name__}"
        )
    avals, out_tree = result_types(result_shape_dtypes)
    leaves, in_tree = tree_util.tree_flatten((args, kwargs))
    callback = FlatCallback(callback, in_tree)
    if primitive is io_callback_p:
        callback, leaves = numbered(callback, leaves, typed=not avals)
    outs = primitive.bind(*leaves, callback=callback, result_avals=avals, **params)
    return out_tree.unflatten(outs)


# pure_callback

pure_callback_p = primitive_with_results("pure_callback")


@pure_callback_p.def_abstract_eval
def _pure_callback_types(*avals, callback, result_avals, sharding, vmap_method):
    return result_avals


no_derivative(
    pure_callback_p,
    "pure_callback has no JVP: Python code that is called back cannot be differentiated. Give the "
    "function around it a rule, with ferrax.custom_jvp or ferrax.custom_vjp.",
    "pure_callback has no transpose: Python code that is called back cannot be run backwards. Give "
    "the function around it a rule with ferrax.custom_vjp.",
)


def batch_by_method(primitive, of_types=lambda callback, result_avals: callback) -> None:
    """Gives a primitive the batching rule that goes by its parameter `vmap_method`.

    `of_types(callback, result_avals)` is the callback over whole batches, whose results are of these
    types.
    """

    def rule(axis, args, dims, *, callback, result_avals, vmap_method, **params):
        size = axis.size
        result_avals_batched = tuple(batched_aval(size, aval) for aval in result_avals)
        if vmap_method in ("sequential", "sequential_unrolled") or named_axes.is_over_devices(axis.name):
            callback = over_lanes(callback, axis, dims)
        elif vmap_method in ("expand_dims", "broadcast_all"):
            extent = size if vmap_method == "broadcast_all" else 1
            args = [bdim_at_front(x, dim, extent) for x, dim in zip(args, dims)]
            callback = of_types(callback, result_avals_batched)
        elif vmap_method == "legacy_vectorized":
            args = [moveaxis(x, dim, 0) for x, dim in zip(args, dims)]
            callback = of_types(callback, result_avals_batched)
        else:
            raise NotImplementedError(
                f"{primitive.name} under vmap: {vmap_method=} does not say how a batch is called "
                "back. Pass vmap_method='sequential' or 'sequential_unrolled' for a call for each "
                "element, 'expand_dims', 'broadcast_all' or 'legacy_vectorized' for one call with "
                "all of them."
            )
        outs = primitive.bind(
            *args,
            callback=callback,
            result_avals=result_avals_batched,
            vmap_method=vmap_method,
            **params,
        )
        return outs, [0] * len(outs)

    fancy_primitive_batchers[primitive] = rule


batch_by_method(pure_callback_p)


def result_types(result_shape_dtypes):
    """The types of results of callbacks, flat, and their tree."""
    leaves, tree = tree_util.tree_flatten(result_shape_dtypes)
    avals = []
    for leaf in leaves:
        if not (hasattr(leaf, "shape") and hasattr(leaf, "dtype")):
            raise TypeError(
                "result_shape_dtypes must be a tree of objects with shape and dtype, such as "
                f"ShapeDtypeStruct, got {leaf!r}"
            )
        dtype = leaf.dtype
        if not dtypes.issubdtype(dtype, dtypes.extended):
            dtype = np.dtype(dtype)
            if dtypes.canonicalize_dtype(dtype) != dtype:
                raise ValueError(
                    "result_shape_dtypes cannot specify 64-bit types unless jax_enable_x64 is set; "
                    "give 32-bit ones"
                )
        avals.append(core.ShapedArray(leaf.shape, dtype))
    return tuple(avals), tree


def pure_callback(
    callback: Callable[..., Any], result_shape_dtypes: Any, *args: Any, sharding: Any = None,
    vmap_method: Any = None, **kwargs: Any,
) -> Any:
    """Calls a Python function without side effects from a program.

    Args:
        callback: a function of trees of arrays, which returns a tree of arrays or NumPy arrays. It
            may be called any number of times, or not at all where nothing uses its results.
        result_shape_dtypes: a tree like that of its results, of anything with shape and dtype.
        args, kwargs: its arguments, trees of arrays.
        sharding: where the function runs: None or the sharding of the one device.
        vmap_method: what `vmap` does: "sequential" calls it once for each lane; "expand_dims"
            calls it once on the whole batch, where arguments that are not batched have a new
            first axis of size 1; "broadcast_all" likewise, with that axis repeated;
            "legacy_vectorized" leaves them as they are. In functions of a mesh (`shard_map`, `pmap`) each
            device calls it by itself.

    Errors: NotImplementedError under `vmap` without `vmap_method`; ValueError under derivatives
    and for 64-bit result types where these are off; JaxRuntimeError where the function raises
    (what it raised is the cause) or its results have other types than `result_shape_dtypes`.

    Example:
        >>> ferrax.jit(lambda x: ferrax.pure_callback(np.sin, x, x))(jnp.float32(0.0))
        Array(0., dtype=float32)
    """
    check_vmap_method(vmap_method)
    settings = {"sharding": sharding, "vmap_method": vmap_method}
    return _bind(pure_callback_p, callback, result_shape_dtypes, args, kwargs, **settings)


# io_callback

io_callback_p = primitive_with_results("io_callback")


@io_callback_p.def_effectful_abstract_eval
def _io_callback_types(*avals, callback, result_avals, sharding, ordered):
    effect = effects.ordered_io_effect if ordered else effects.io_effect
    return result_avals, {effect}


no_derivative(
    io_callback_p,
    "IO callbacks do not support JVP. Wrap the function in custom_jvp, or use pure_callback there.",
    "IO callbacks do not support transpose. Wrap the function in custom_vjp.",
)


def _io_callback_batch(axis, args, dims, *, callback, result_avals, ordered, **params):
    if ordered and not named_axes.is_over_devices(axis.name):
        raise ValueError(
            "Cannot `vmap` ordered IO callback: the lanes of a batch have no order. Pass "
            "ordered=False."
        )
    outs = io_callback_p.bind(
        *args,
        callback=over_lanes(callback, axis, dims),
        result_avals=tuple(batched_aval(axis.size, aval) for aval in result_avals),
        ordered=ordered,
        **params,
    )
    return outs, [0] * len(outs)


fancy_primitive_batchers[io_callback_p] = _io_callback_batch


def io_callback(
    callback: Callable[..., Any], result_shape_dtypes: Any, *args: Any, sharding: Any = None,
    ordered: bool = False, **kwargs: Any,
) -> Any:
    """Calls a Python function with side effects from a program.

    It is called exactly once each time that its place in the program is reached, whether or not its
    results are used; `ordered=True` keeps the order of such calls. `vmap` calls an unordered one
    once for each lane. Other arguments (callback, result_shape_dtypes, args, sharding, kwargs) are
    as for `pure_callback`.

    Errors: as `pure_callback`; ValueError for `vmap` of an ordered callback.

    Example:
        >>> seen = []
        >>> def note(x):
        ...     seen.append(float(x))
        >>> ferrax.jit(lambda x: ferrax.experimental.io_callback(note, None, x, ordered=True))(2.0)
        >>> seen
        [2.0]
    """
    settings = {"sharding": sharding, "ordered": ordered}
    return _bind(io_callback_p, callback, result_shape_dtypes, args, kwargs, **settings)


def observe_jvp(primitive):
    """The rule of callbacks that look at primals only."""

    def rule(primals, tangents, **params):
        return primitive.bind(*primals, **params), []

    primitive_jvps[primitive] = rule
    primitive_transposes[primitive] = lambda _, *args, **params: [None] * len(args)


__all__ = ["io_callback", "io_callback_p", "pure_callback", "pure_callback_p"]
