"""Operators and methods of arrays over several processes: each is a program of its own, which all processes run.

What goes in is an array of which this process has parts, and what `Array`'s operator or method takes beside it; what
comes out is laid out as follows from the operands, as of a jitted function (`over_processes`). Cost: that of a jitted
function, which is kept for each method and each list of arguments that are no arrays.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

from ferrax._src.core.global_array import GlobalArray
from ferrax._src.transforms.jit import jit

_BINARY = (
    "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and_", "or_", "xor", "lshift", "rshift",
)  # fmt: skip
_ALONE = ("neg", "pos", "abs", "invert")
_COMPARED = ("eq", "ne", "lt", "le", "gt", "ge")
_METHODS = (
    "all", "any", "argmax", "argmin", "argsort", "astype", "clip", "conj", "conjugate", "cumprod", "cumsum",
    "diagonal", "dot", "flatten", "max", "mean", "min", "prod", "ptp", "ravel", "repeat", "reshape", "round",
    "searchsorted", "sort", "squeeze", "std", "sum", "swapaxes", "take", "trace", "transpose", "var",
)  # fmt: skip
_PROPERTIES = ("T", "mT", "real", "imag")


def _is_operand(x: Any) -> bool:
    return hasattr(x, "shape") and hasattr(x, "dtype")


@functools.lru_cache(512)
def _jitted(name: str, places: tuple[int, ...], others: tuple[Any, ...], named: tuple[tuple[str, Any], ...]) -> Any:
    """The method of its array and of the operands at these places among its arguments."""

    def call(x, *operands):
        args, rest = list(others), list(operands)
        for place in places:
            args.insert(place, rest.pop(0))
        return getattr(x, name)(*args, **dict(named))

    call.__name__ = name
    return jit(call)


def _method(name: str) -> Callable[..., Any]:
    def method(self, *args, **kwargs):
        places = tuple(place for place, x in enumerate(args) if _is_operand(x))
        others = tuple(x for x in args if not _is_operand(x))
        named = tuple(sorted(kwargs.items()))
        try:
            function = _jitted(name, places, others, named)
        except TypeError:  # an argument that has no hash, such as a slice
            function = _jitted.__wrapped__(name, places, others, named)
        return function(self, *[args[place] for place in places])

    method.__name__ = method.__qualname__ = name
    return method


def _operator(function: Callable[..., Any], swapped: bool = False) -> Callable[..., Any]:
    jitted = jit(function)

    def apply(self, other):
        if not _is_operand(other) and not isinstance(other, (int, float, complex)):
            return NotImplemented
        return jitted(other, self) if swapped else jitted(self, other)

    return apply


def _install() -> None:
    for name in _BINARY:
        function = getattr(operator, name)
        own = name.rstrip("_")
        setattr(GlobalArray, f"__{own}__", _operator(function))
        setattr(GlobalArray, f"__r{own}__", _operator(function, swapped=True))
    for name in _COMPARED:
        setattr(GlobalArray, f"__{name}__", _operator(getattr(operator, name)))
    for name in _ALONE:
        setattr(GlobalArray, f"__{name}__", _method(f"__{name}__"))
    for name in (*_METHODS, "__getitem__", "__divmod__", "__rdivmod__"):
        setattr(GlobalArray, name, _method(name))
    for name in _PROPERTIES:
        setattr(GlobalArray, name, property(_property(name)))


def _property(name: str) -> Callable[[Any], Any]:
    function = jit(operator.attrgetter(name))
    return lambda self: function(self)


_install()
