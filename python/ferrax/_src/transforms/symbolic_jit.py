"""Functions that are traced once for all sizes of their arguments, for `jit(..., symbolic=...)`.

In: a function, and the shapes that its arguments have, with variables. Out: a function that, wherever it is called,
traces the former for these shapes, or finds the program that was traced before, gives it the sizes of its arguments
and calls it. `jit` of that is as of any function: there is a program for each size, but only the first is traced.
Cost: of a new size that of giving sizes to a program, which is linear in it.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ferrax import _core
from ferrax._src import core
from ferrax._src.base import config
from ferrax._src.core import api_util
from ferrax._src.core.avals import ShapeDtypeStruct
from ferrax._src.core.explicit_types import all_typed
from ferrax._src.dims import SymbolicScope, is_symbolic_dim
from ferrax._src.transforms.symbolic_args import symbolic_args_specs
from ferrax._src.transforms.symbolic_calls import KEPT, SizesOfCalls
from ferrax._src.tree import tree_util

# Those whose programs `clear_caches` forgets.
_all: weakref.WeakSet[SymbolicFunction] = weakref.WeakSet()

# Positions and names of arguments.
Places = tuple[Sequence[int], Sequence[str]]


class SymbolicFunction:
    """A function that is traced for symbolic sizes of some arguments, and called by its program for theirs.

    Args: fun: the function; shapes: of arguments, by their names or positions, as `jit` takes them; constraints: of
    their variables; static: arguments that are static; max_traces: how often it may be traced, or None.
    Errors: TypeError for shapes that are no dict, ValueError for arguments that there are not or that are static.
    """

    __wrapped__: Callable[..., Any]

    def __init__(
        self, fun: Callable[..., Any], shapes: Mapping[str | int, Any], constraints: Sequence[str], static: Places,
        max_traces: int | None,
    ) -> None:  # fmt: skip
        self._made_of = fun, shapes, constraints, static, max_traces
        self._shapes = _by_place(fun, shapes, static)
        self._scope = SymbolicScope(constraints)
        self._static = static
        self._lock = threading.Lock()
        self._programs: dict[int, tuple[Any, SizesOfCalls]] = {}
        numbers, names = static
        cache = _core.JitCache(one_scope=True)
        self.traced = _core.PjitFunction(
            fun, api_util.fun_name(fun), list(numbers), list(names), [], [], False, max_traces, cache
        )
        functools.update_wrapper(self, fun)
        _all.add(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return SymbolicFunction, self._made_of

    def forget(self) -> None:
        """Forgets all programs."""
        self.traced._forget()
        with self._lock:
            self._programs = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if config.disable_jit.value:
            return self.__wrapped__(*args, **kwargs)
        numbers = {number % len(args) for number in self._static[0] if -len(args) <= number < len(args)}
        dynamic = (
            {place: value for place, value in enumerate(args) if place not in numbers},
            {name: value for name, value in kwargs.items() if name not in self._static[1]},
        )
        leaves = tree_util.tree_leaves(dynamic)
        avals = [core.typeof(leaf) for leaf in leaves]
        if any(is_symbolic_dim(size) for aval in avals for size in aval.shape):
            # Within a trace for other variables, sizes are what these are.
            return self.__wrapped__(*args, **kwargs)
        if any(all_typed(leaves)):
            raise NotImplementedError(
                f"{api_util.fun_place(self)} has symbolic sizes, and arguments that are divided over explicit axes of "
                "a mesh: jit it without `symbolic`, or use axes of type Auto"
            )
        # Positions may count from the end of a call's arguments.
        positional = [
            self._spec(place if place in self._shapes else place - len(args), value) if place in dynamic[0] else value
            for place, value in enumerate(args)
        ]
        named = {name: self._spec(name, value) for name, value in dynamic[1].items()}
        program, captured, _, out_tree, _, refs = self.traced._traced(*positional, **{**kwargs, **named})
        if refs is not None:
            raise NotImplementedError(
                f"{api_util.fun_place(self)} has symbolic sizes and uses mutable arrays: pass and return their values, "
                "or jit it without `symbolic`"
            )
        types = [None if place in numbers else ty for place, ty in enumerate(positional)]
        sized = self._sizes_of(program, types, named).program([aval.shape for aval in avals])
        return out_tree.unflatten(_core.call_program(sized, [*leaves, *captured]))

    def _spec(self, place: str | int, value: Any) -> Any:
        """The types of an argument's leaves, with variables."""

        def typed(spec, leaf):
            aval = core.typeof(leaf)
            if len(spec.shape) != aval.ndim:
                raise ValueError(
                    f"jit: argument {place!r} of {api_util.fun_place(self)} has shape {aval.shape}, and its symbolic "
                    f"shape {spec.shape} another number of dimensions; '...' stands for those that have no variable"
                )
            return ShapeDtypeStruct(
                spec.shape, aval.dtype, weak_type=aval.weak_type, manual_axis_type=aval.manual_axis_type
            )

        return tree_util.tree_map(typed, symbolic_args_specs(value, self._shapes.get(place), scope=self._scope), value)

    def _sizes_of(self, program: Any, positional: Sequence[Any], named: Any) -> SizesOfCalls:
        """The programs for sizes of one that was traced for dynamic arguments of these types; both are kept."""
        with self._lock:
            known = self._programs.get(id(program))
            if known is None:
                names = api_util.argument_names(self.__wrapped__, positional, named)
                shapes = [spec.shape for spec in tree_util.tree_leaves((positional, named))]
                known = program, SizesOfCalls(program.with_saved_rules(), list(zip(names, shapes, strict=True)))
                self._programs[id(program)] = known
                if len(self._programs) > KEPT:
                    del self._programs[next(iter(self._programs))]
            return known[1]


def _by_place(fun: Callable[..., Any], shapes: Mapping[str | int, Any], static: Places) -> dict[str | int, Any]:
    """The shapes by position and by name."""
    if not isinstance(shapes, Mapping) or not all(type(place) in (str, int) for place in shapes):
        raise TypeError(
            f"jit: symbolic must be a dict from names or positions of arguments to shapes, such as {{'x': 'b, ...'}}; "
            f"got {shapes!r}"
        )
    found: dict[str | int, Any] = {}
    for place, texts in shapes.items():
        numbers = (place,) if isinstance(place, int) else None
        names = (place,) if isinstance(place, str) else None
        for one in (found_places := api_util.resolve_argnums(fun, numbers, names, "symbolic")):
            found |= dict.fromkeys(one, texts)
        if any(set(a) & set(b) for a, b in zip(found_places, static)):
            raise ValueError(f"jit: the argument {place!r} is static and has a symbolic shape")
    return found


def forget() -> None:
    """Forgets all programs for symbolic sizes."""
    for function in list(_all):
        function.forget()
