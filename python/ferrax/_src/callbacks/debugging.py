"""`debug.callback`, `debug.print` and `debug.log`: looking at values of compiled programs.

They change no value and no derivative: under `grad` and `jvp` they see the primal values, once;
under `vmap` they run once for each lane, in functions of a mesh once for each device. They are never removed from a
program.
"""

from __future__ import annotations

import functools
import logging
import string
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from ferrax._src import core
from ferrax._src.base import effects, errors
from ferrax._src.callbacks.callback import (
    FlatCallback,
    callback_primitive,
    numbered,
    observe_jvp,
    of_tiles,
    over_lanes,
    run_callback,
)
from ferrax._src.core import named_axes
from ferrax._src.core.primitives import Primitive
from ferrax._src.transforms import placed_programs
from ferrax._src.transforms.batching_rules import fancy_primitive_batchers
from ferrax._src.tree import tree_util


def _effect(ordered):
    return effects.ordered_debug_effect if ordered else effects.debug_effect


def _observer(name, title):
    """A primitive that calls its parameter `callback` and gives nothing."""
    primitive = callback_primitive(name)
    primitive._observes = True

    def impl(*args, callback, **params):
        callback(*(core.as_array(arg, title) for arg in args))
        return []

    def host(*args, callback, **params):
        run_callback(title, callback, args, ())
        return []

    primitive.def_impl(impl)
    primitive._host = host
    observe_jvp(primitive)
    return primitive


def _batch(primitive, axis, args, dims, *, callback, **params):
    if axis.size > 1 and named_axes.is_over_devices(axis.name) and _is_ordered(params):
        raise ValueError(
            f"debug.callback and debug.print: ordered=True is for one device, and the mesh has {axis.size} along "
            f"{axis.name!r}: devices have no order. Pass ordered=False, or use io_callback, which is in order on each"
        )
    primitive.bind(*args, callback=over_lanes(callback, axis, dims), **params)
    return [], []


def _is_ordered(params) -> bool:
    return params.get("ordered", False) or params.get("effect") is effects.ordered_debug_effect


def _partitioned(primitive, title):
    """The primitive of the same name that calls back once for each device, with what that one has of the values."""
    parted = Primitive(primitive.name)
    parted.multiple_results = True
    parted._observes = True
    parted.def_impl(primitive.impl)
    parted.def_effectful_abstract_eval(lambda *avals, **params: primitive.abstract_eval(*avals, **params))

    def batch(axis, args, dims, **params):
        # Within functions of a mesh each device calls back anyway.
        over = primitive if named_axes.is_over_devices(axis.name) else parted
        return _batch(over, axis, args, dims, **params)

    def placed(values, shardings, params):
        shapes = [np.shape(x) for x in values]
        mesh = placed_programs.mesh_of_call()
        count = 1 if mesh is None else mesh.size
        if count > 1 and _is_ordered(params):
            raise ValueError(
                f"{title}: ordered=True is for one device, and the values are divided over {count}, which have no "
                "order: pass ordered=False or partitioned=False"
            )
        callback = of_tiles(params["callback"], shapes, shardings, count)
        return primitive.bind(*values, **(params | {"callback": callback}))

    fancy_primitive_batchers[parted] = batch
    observe_jvp(parted)
    placed_programs.asks(parted, lambda values, avals, params: [], placed, primitive.bind)
    return parted


# debug.callback

debug_callback_p = _observer("debug_callback", "debug.callback")


@debug_callback_p.def_effectful_abstract_eval
def _debug_callback_types(*avals, callback, effect, partitioned):
    return [], {effect}


fancy_primitive_batchers[debug_callback_p] = functools.partial(_batch, debug_callback_p)
partitioned_callback_p = _partitioned(debug_callback_p, "debug.callback")


class _Static:
    """Calls a function whose arguments are arrays but for some that are kept as they are."""

    def __init__(self, function, in_tree, static):
        self.function = function
        self.in_tree = in_tree
        self.static = static

    @property
    def callback(self):
        return FlatCallback(self.function, self.in_tree)

    def __call__(self, *arrays):
        leaves = iter(arrays)
        count = self.in_tree.num_leaves
        merged = [self.static[i] if i in self.static else next(leaves) for i in range(count)]
        args, kwargs = self.in_tree.unflatten(merged)
        self.function(*args, **kwargs)
        return ()


def _called(name, what, call, first, args, kwargs):
    """What `call` gives, or `call` itself if only options were given."""
    if first is not None:
        return call(first, *args, **kwargs)
    if args or kwargs:
        raise TypeError(
            f"{name}: options come first, then the {what} with its arguments; got {args=} "
            f"{kwargs=} without a {what}"
        )
    return call


def _split_arguments(args, kwargs):
    """`(tree, arrays, leaves that are no arrays by number)`."""
    leaves, in_tree = tree_util.tree_flatten((args, kwargs))
    static = {place: leaf for place, leaf in enumerate(leaves) if not _has_type(leaf)}
    return in_tree, [leaf for place, leaf in enumerate(leaves) if place not in static], static


def _has_type(leaf) -> bool:
    """Whether a leaf is an array or a number."""
    try:
        core.typeof(leaf)
    except TypeError:
        return False
    return True


def debug_callback(
    callback: Callable[..., Any] | None = None, *args: Any, ordered: bool = False,
    partitioned: Any = False, **kwargs: Any,
) -> None:
    """Calls a Python function with values of a program, to look at them; what it returns is
    dropped.

    Args:
        callback: a function of trees of arrays. Without it, a function is returned that takes the
            callback and its arguments: `debug.callback(ordered=True)(f, x)`.
        args, kwargs: its arguments; leaves that are no arrays are passed on as they are.
        ordered: whether it keeps its place among other ordered callbacks.
        partitioned: whether compiled programs over several devices call it once for each of them, with the parts
            of the values that it has; else it is called once, with whole arrays. Functions of a mesh
            (`shard_map`, `pmap`) call it on each device anyway.

    Errors: TypeError if the callback is not callable; JaxRuntimeError where it raises; ValueError for an
    ordered one in a function of a mesh of several devices, or partitioned over several.

    Example:
        >>> @ferrax.jit
        ... def f(x):
        ...     ferrax.debug.callback(lambda v: print("x is", v), x)
        ...     return 2 * x
        >>> f(1.0)
        x is 1.0
        Array(2., dtype=float32, weak_type=True)
    """

    def call(callback, *args, **kwargs):
        if not callable(callback):
            raise TypeError(f"first argument to ferrax.debug.callback must be callable, got {callback!r}")
        in_tree, arrays, static = _split_arguments(args, kwargs)
        called, arrays = numbered(_Static(callback, in_tree, static), arrays)
        (partitioned_callback_p if partitioned else debug_callback_p).bind(
            *arrays,
            callback=called,
            effect=_effect(ordered),
            partitioned=partitioned,
        )

    return _called("debug.callback", "callback", call, callback, args, kwargs)


# debug.print

debug_print_p = _observer("debug_print", "debug.print")


class _Print:
    """Formats and writes."""

    def __init__(self, fmt, in_tree, static_args, np_printoptions, has_placeholders, record):
        self.fmt = fmt
        self.print_options = dict(np_printoptions)
        self.has_placeholders = has_placeholders
        self.record = record
        self.callback = FlatCallback(self.write, in_tree)
        self.inner = _Static(self.write, in_tree, dict(static_args))

    def __call__(self, *leaves):
        return self.inner(*leaves)

    def write(self, *args, **kwargs):
        if self.has_placeholders:
            with np.printoptions(**self.print_options):
                text = self.fmt.format(*args, **kwargs)
        else:
            text = " ".join([self.fmt, *map(str, args)])
        if self.record is None:
            sys.stdout.write(text + "\n")
            return
        logger = logging.getLogger("ferrax.debug")
        file, line = self.record
        logger.handle(logger.makeRecord(logger.name, logging.INFO, file, line, text, (), None))


@debug_print_p.def_effectful_abstract_eval
def _debug_print_types(*avals, ordered, **params):
    return [], {_effect(ordered)}


fancy_primitive_batchers[debug_print_p] = functools.partial(_batch, debug_print_p)
partitioned_print_p = _partitioned(debug_print_p, "debug.print")


class _FormatCheck(string.Formatter):
    """Raises where a format string and its arguments do not fit; formats nothing."""

    def format_field(self, value, format_spec):
        return ""

    def check_unused_args(self, used_args, args, kwargs):
        given = dict(enumerate(args)) | {name: name for name in kwargs}
        unused = {place: shown for place, shown in given.items() if place not in used_args}
        by_place = [shown for place, shown in unused.items() if isinstance(place, int)]
        if by_place:
            raise ValueError(f"Unused positional arguments to `ferrax.debug.print`: {by_place}")
        if unused:
            raise ValueError(
                f"ferrax.debug.print: the format does not use the keyword arguments {[*unused]}. An "
                'f-string is filled in before the call: write print("{x}", x=x), not '
                'print(f"{x}", x=x).'
            )


def debug_print(
    fmt: Any = None, *args: Any, ordered: bool = False, partitioned: Any = False,
    skip_format_check: bool = False, _use_logging: bool = False, **kwargs: Any,
) -> None:
    """Prints values of a program when it runs.

    Args:
        fmt: a format string, as for `str.format`; not an f-string, whose values would be formatted
            while the program is traced. Without it, a function is returned that takes it:
            `debug.print(ordered=True)("x is {}", x)`.
        args, kwargs: what it formats: trees of arrays or anything else.
        ordered: whether it keeps its place among other ordered prints.
        partitioned: as for `debug.callback`.
        skip_format_check: whether arguments that `fmt` does not use are accepted.

    Errors: ValueError for arguments that `fmt` does not use, and for an ordered one in a function of a mesh
    of several devices; IndexError and KeyError for those that it lacks.

    Example:
        >>> @ferrax.jit
        ... def f(x):
        ...     ferrax.debug.print("x = {x:.2f}", x=x)
        ...     return 2 * x
        >>> f(1.5)
        x = 1.50
        Array(3., dtype=float32, weak_type=True)
    """

    def call(fmt, *args, **kwargs):
        if not skip_format_check:
            _FormatCheck().format(fmt, *args, **kwargs)
        has_placeholders = any(field is not None for _, field, *_ in string.Formatter().parse(fmt))
        in_tree, arrays, static = _split_arguments(args, kwargs)
        params = {
            "fmt": fmt,
            "in_tree": in_tree,
            "static_args": tuple(static.items()),
            "np_printoptions": tuple(np.get_printoptions().items()),
            "has_placeholders": has_placeholders,
        }
        record = _user_place() if _use_logging else None
        called, arrays = numbered(_Print(**params, record=record), arrays)
        (partitioned_print_p if partitioned else debug_print_p).bind(
            *arrays,
            callback=called,
            ordered=ordered,
            partitioned=partitioned,
            logging_record=record,
            **params,
        )

    return _called("debug.print", "format string", call, fmt, args, kwargs)


def _user_place():
    """File and line of the user's code."""
    location = errors.user_location() or "(unknown file):0 ()"
    file, _, rest = location.rpartition(":")
    return file, int(rest.split(" ")[0])


debug_log = functools.partial(debug_print, _use_logging=True)
debug_log.__doc__ = """Logs values of a program when it runs, to the logger "ferrax.debug".

    Args: fmt, args, ordered, partitioned, skip_format_check, kwargs: as for `debug.print`, with its
    errors.

    >>> f = ferrax.jit(lambda x: ferrax.debug.log("x is {}", x))
    >>> f(1.0)
    """

