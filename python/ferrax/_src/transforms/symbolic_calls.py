"""Calls of programs with symbolic dimensions, exported or of `jit(..., symbolic=...)`.

In: a program over symbolic dimensions, and the shapes of the arguments of a call. Out: the program for those
shapes. They may be symbolic themselves, in the scope of a function that is being traced. The programs of the
last sizes are kept, so that a call with known sizes costs the solving of a few equations.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from ferrax._src.core import ShapedArray, api_util
from ferrax._src.dims import is_symbolic_dim
from ferrax._src.dims.scope import SymbolicScope
from ferrax._src.dims.solving import Solver
from ferrax._src.tree import tree_util

# Programs for as many sizes are kept of one function.
KEPT = 64


def scope_of(types: Sequence[Any]) -> SymbolicScope:
    """The scope of the dimensions of types, a new one where these are texts."""
    for shape, *_ in types:
        for size in shape:
            if not isinstance(size, (int, str)):
                return size.scope
    return SymbolicScope()


def aval_of(ty: Any, scope: SymbolicScope | None) -> ShapedArray:
    """The type that the native core describes, with dimensions of a scope where it has texts."""
    shape, *rest = ty
    if scope is not None:
        shape = tuple(scope._of_native(size) if isinstance(size, str) else size for size in shape)
    return ShapedArray(shape, *rest)


def check_one_scope(fun: Any, args: tuple, kwargs: dict) -> None:
    """Errors: ValueError for arguments of a function with dimensions of several scopes."""
    first = None
    for path, leaf in tree_util.tree_leaves_with_path((args, kwargs)):
        where = ("args", "kwargs")[path[0].idx] + tree_util.keystr(path[1:])
        for size in getattr(leaf, "shape", ()):
            if not is_symbolic_dim(size):
                continue
            if first is None:
                first = where, size.scope
            elif first[1] is not size.scope:
                raise ValueError(
                    f"Invalid mixing of symbolic scopes when exporting {api_util.fun_name(fun)}.\n"
                    f"Expected current (from {first[0]}) scope {first[1]}\nand found for '{size}' ({where}) scope "
                    f"{size.scope}\nMake the shapes of all arguments with one scope: `symbolic_shape(..., scope=...)`."
                )


class SizesOfCalls:
    """The programs of a symbolic one for the sizes that it was called with.

    Args: program: the symbolic one; places: a name and the shape of each argument.
    Errors: ValueError where sizes of arguments do not tell those of all variables.
    """

    def __init__(self, program: Any, places: Sequence[tuple[str, tuple]]) -> None:
        self._symbolic = program
        self._solver = Solver(
            ((f"{name}.shape[{axis}]", size) for name, shape in places for axis, size in enumerate(shape)), places
        )
        self._names = [name for name, _ in places]
        self._programs: dict[Any, Any] = {}
        self._lock = threading.Lock()

    def program(self, shapes: Sequence[tuple]) -> Any:
        """The program for arguments of these shapes. Errors: ValueError for sizes that it cannot have."""
        sizes = {
            f"{name}.shape[{axis}]": size
            for name, shape in zip(self._names, shapes)
            for axis, size in enumerate(shape)
        }
        values = self._solver.solve(sizes)
        key = tuple(sorted(values.items(), key=lambda item: item[0]))
        with self._lock:
            known = self._programs.pop(key, None)
            if known is not None:
                self._programs[key] = known
                return known
        made = self._symbolic.specialise(values)
        if all(isinstance(value, int) for value in values.values()):
            with self._lock:
                self._programs[key] = made
                if len(self._programs) > KEPT:
                    del self._programs[next(iter(self._programs))]
        return made
