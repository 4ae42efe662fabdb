"""Functions of arrays over several processes, called outside of `jit`: each call is a program of its own.

Such a function computes as it does ever, until the native core meets an array of which this process has parts and says
so (`OverProcesses`). The boundary at which that error would leave the package (`base/traceback_util`) calls the
function here again, jitted: its arrays are arguments, and so are those that it closes over, for which traced values
stand meanwhile (`core.global_array.standing_for`); all else is as it was given. Within a trace nothing is done here:
the error goes on to whoever began the trace, so that a gradient is one program. Where Python asks for a value within
it, the program so far is run (`_Call.answer`), and what follows is the program of this call alone.

Functions that have no boundary, as they are native or filter errors themselves, get one when processes are joined
(`_install`). Cost: that of a jitted function, which is kept with the function that was given, for each list of what is
no array; functions that close over arrays are traced twice.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Sequence
from types import BuiltinFunctionType, FunctionType
from typing import Any

import numpy as np

from ferrax import _core
from ferrax._src import core
from ferrax._src.base import errors, public, traceback_util
from ferrax._src.callbacks.over_processes import run_program
from ferrax._src.core import named_axes
from ferrax._src.core.global_array import GlobalArray, OverProcesses, standing_for
from ferrax._src.core.placement import device_put
from ferrax._src.core.primitives import BuiltinPrimitive, Primitive
from ferrax._src.numpy.ufunc_api import ufunc
from ferrax._src.parallel.across import at_joining
from ferrax._src.transforms.jit import jit
from ferrax._src.tree import tree_util

# Values were asked for where there are none.
_ASKED = (
    errors.ConcretizationTypeError, errors.TracerArrayConversionError, errors.TracerIntegerConversionError,
    errors.NonConcreteBooleanIndexError,
)  # fmt: skip
# Of these some are equal that are not the same, as zeros of both signs are.
_NUMBERS = (float, complex, np.generic)
_ATTRIBUTE = "_over_processes"
_MOST = 256


class _Call:
    """A call that is being made: its arrays, those that the function closes over, and whether it asked for values."""

    def __init__(self, operands: list[Any]) -> None:
        self.operands = operands
        self.outside: list[Any] = []
        self.asked = False

    def answer(self, tracer: Any) -> Any:
        """The value of a tracer, where this process has all of it and nothing has to happen for it; else None."""
        recorded = _core.recorded_so_far(tracer)
        if recorded is None:
            return None
        self.asked = True
        program, captured = recorded
        with core.ensure_compile_time_eval(), named_axes.no_axes():
            results = run_program(program, [*self.operands, *self.outside, *captured])
        if results is None or type(results[0]) is not GlobalArray:
            return None if results is None else results[0]
        return results[0].whole() if results[0]._has_values else None


class _State(threading.local):
    call: _Call | None = None


_state = _State()


def call(error: OverProcesses, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """What a function gives that ended by this error.

    Errors: the error itself within a trace; RuntimeError if a function of this package asks for values of which other
    processes have parts; else those of the function.
    """
    if not core.trace_state_clean() or hasattr(error, "asks_places"):
        raise error
    if getattr(function, "_takes_types", False):
        args, kwargs = tree_util.tree_map(_type_of, (tuple(args), kwargs))
        return function(*args, **kwargs)
    return run(function, args, kwargs)


def _type_of(x: Any) -> Any:
    if type(x) is not GlobalArray:
        return x
    return core.ShapeDtypeStruct(x.shape, x.dtype, weak_type=x.weak_type, sharding=x.sharding)


def run(function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """What a function gives as a program over the mesh of its arguments; see `call`."""
    leaves, tree = tree_util.tree_flatten((tuple(args), kwargs))
    arrays = [number for number, x in enumerate(leaves) if is_operand(x)]
    spread = [number for number in arrays if type(leaves[number]) is GlobalArray]
    try:
        try:
            return _run(function, leaves, tree, arrays)
        except _ASKED:
            if len(spread) == len(arrays):
                raise
        # Other arrays may be what shapes are made of.
        return _run(function, leaves, tree, spread)
    except _ASKED as error:
        if traceback_util.is_from_users(error):
            raise
        if spread and all(leaves[number].is_fully_addressable for number in spread):
            # What follows from values is computed where the first device can see them all.
            for number in spread:
                x = leaves[number]
                leaves[number] = device_put(x, x.sharding._device_assignment[0])
            args, kwargs = tree.unflatten(leaves)
            return function(*args, **kwargs)
        name = getattr(function, "__name__", repr(function))
        name = "x[...]" if name == "__getitem__" else name
        # What is said of a value that was asked for without more is about functions that are traced.
        instead = error.instead or f"Use lax.cond, jnp.where or size=.... What was asked for: {error}"
        raise RuntimeError(
            f"{name} asks for values of an array of which this process holds some parts and others the rest: shapes "
            "and choices of Python cannot depend on them. Gather the array first, in all processes: "
            f"experimental.multihost_utils.process_allgather(x, tiled=True). Or do without: {instead}"
        ) from None


def is_operand(x: Any) -> bool:
    """Whether a leaf is an array. A number is none: what a function does may depend on it."""
    return hasattr(x, "shape") and hasattr(x, "dtype") and not isinstance(x, (type, np.generic))


def _run(function, leaves, tree, places):
    own = _Call([leaves[place] for place in places])
    kept, key = _where_kept(function, leaves, tree, places)
    jitted = kept.pop(key, None)
    if jitted is None:
        jitted = _made(function, leaves, tree, places)
    before, _state.call = _state.call, own
    try:
        while True:
            try:
                result = jitted(own.operands, own.outside).whole()
                break
            except OverProcesses as error:
                if error.array is None or any(error.array is x for x in own.outside):
                    raise
                own.outside.append(error.array)
    finally:
        _state.call = before
    # A program that follows from values is that of this call alone.
    if not own.asked:
        if len(kept) >= _MOST:
            kept.clear()
        kept[key] = jitted
    return result


def _where_kept(function, leaves, tree, places):
    """What keeps the jitted function, and its key: the last function that the user gave, as long as which it lives."""
    others = [x for number, x in enumerate(leaves) if number not in places]
    owners = [x for x in (function, *others) if type(x) is FunctionType]
    kept = owners[-1].__dict__.setdefault(_ATTRIBUTE, {}) if owners else _of_others
    key = function, tree, tuple(places), tuple((type(x), _known_by(x)) for x in others)
    try:
        hash(key)
    except TypeError:
        return {}, None
    return kept, key


def _known_by(x: Any) -> Any:
    """What tells one thing that is no array from others of its type."""
    if isinstance(x, slice):  # which has no hash before Python 3.12
        return x.start, x.stop, x.step
    return repr(x) if isinstance(x, _NUMBERS) else x


_of_others: dict[Any, Any] = {}


def _made(function, leaves, tree, places):
    others = [x for number, x in enumerate(leaves) if number not in places]

    def called(operands, outside):
        leaves, rest = list(others), list(operands)
        for place in places:
            leaves.insert(place, rest.pop(0))
        args, kwargs = tree.unflatten(leaves)
        own = _state.call
        assert own is not None
        _core.set_frame_answer(_core.ref_frames()[-1][0], own.answer)
        with standing_for(own.outside, outside):
            return _Result.of(function(*args, **kwargs))

    called.__name__ = getattr(function, "__name__", type(function).__name__)
    return jit(called)


@tree_util.register_pytree_node_class
class _Result:
    """What a function returned: a tree whose leaves may be other things than arrays, which are known by the trace."""

    def __init__(self, arrays: Sequence[Any], rest: Any) -> None:
        self.arrays, self.rest = arrays, rest

    @classmethod
    def of(cls, result: Any) -> _Result:
        leaves, tree = tree_util.tree_flatten(result)
        places = tuple(number for number, x in enumerate(leaves) if is_operand(x))
        others = tuple(x for number, x in enumerate(leaves) if number not in places)
        return cls([leaves[place] for place in places], (tree, places, others))

    def whole(self) -> Any:
        tree, places, others = self.rest
        leaves = list(others)
        for place, x in zip(places, self.arrays):
            leaves.insert(place, x)
        return tree.unflatten(leaves)

    def tree_flatten(self) -> tuple[Any, Any]:
        return tuple(self.arrays), self.rest

    @classmethod
    def tree_unflatten(cls, rest: Any, arrays: Any) -> _Result:
        return cls(arrays, rest)


# ---------------------------------------------------------------------------------------------
# Functions without boundaries.


def _left(own: Any) -> Any:
    """An operator of arrays that leaves arrays over several processes to theirs."""

    @functools.wraps(own)
    def operator_of_arrays(self, other):
        return NotImplemented if type(other) is GlobalArray else own(self, other)

    return operator_of_arrays


_BINARY = (
    "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor", "lshift", "rshift",
    "divmod",
)  # fmt: skip
_COMPARED = ("eq", "ne", "lt", "le", "gt", "ge")


def _install() -> None:
    """Lets functions compute with arrays over processes, which are joined from now on."""
    traceback_util.over_processes = call
    for name in public.exported():
        namespace = vars(sys.modules[name])
        for key, value in list(namespace.items()):
            native = type(value) is BuiltinFunctionType
            if not key.startswith("_") and (native or type(value) is FunctionType and traceback_util.is_bounded(value)):
                namespace[key] = traceback_util.over_native(value)
    for cls in (Primitive, BuiltinPrimitive):
        cls.bind = traceback_util.over_native(cls.bind)  # type: ignore[method-assign]
    ufunc.__call__ = traceback_util.over_native(ufunc.__call__)  # type: ignore[method-assign]
    for name in (*(f"__{name}__" for name in (*_BINARY, *_COMPARED)), *(f"__r{name}__" for name in _BINARY)):
        setattr(_core.Array, name, _left(getattr(_core.Array, name)))


at_joining.append(_install)
