"""Operators and methods of arrays over several processes: each is a program of its own, which all processes run.

What goes in is an array of which this process has parts, and what `Array`'s operator or method takes beside it; what
comes out is laid out as follows from the operands, as of a jitted function (`over_processes`). Cost: that of a jitted
function, which is kept for each method and each list of arguments that are no arrays (`global_calls`).
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from ferrax._src.callbacks.global_calls import is_operand, run
from ferrax._src.core.global_array import GlobalArray
from ferrax._src.transforms.jit import jit

_BINARY = (
    "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and_", "or_", "xor", "lshift", "rshift",
)  # fmt: skip
_ALONE = ("neg", "pos", "abs", "invert")
_COMPARED = ("eq", "ne", "lt", "le", "gt", "ge")
_METHODS = (
    "all", "any", "argmax", "argmin", "argpartition", "argsort", "astype", "choose", "clip", "compress", "conj",
    "conjugate", "cumprod", "cumsum", "diagonal", "dot", "flatten", "max", "mean", "min", "nonzero", "prod", "ptp",
    "ravel", "repeat", "reshape", "round", "searchsorted", "sort", "squeeze", "std", "sum", "swapaxes", "take", "trace",
    "transpose", "var", "view",
)  # fmt: skip
_PROPERTIES = ("T", "mT", "real", "imag")
_UPDATES = ("add", "apply", "divide", "get", "max", "min", "multiply", "power", "set", "subtract")


def _method(name: str) -> Callable[..., Any]:
    def of_array(x, *args, **kwargs):
        return getattr(x, name)(*args, **kwargs)

    def method(self, *args, **kwargs):
        return run(of_array, (self, *args), kwargs)

    method.__name__ = method.__qualname__ = of_array.__name__ = name
    return method


def _operator(function: Callable[..., Any], swapped: bool = False) -> Callable[..., Any]:
    jitted = jit(function)

    def apply(self, other):
        if not is_operand(other) and not isinstance(other, (int, float, complex, np.generic)):
            return NotImplemented
        return jitted(other, self) if swapped else jitted(self, other)

    return apply


class _At:
    """What `x.at[index]` is of an array over several processes: the methods of `Array.at[index]`, each a program."""

    def __init__(self, array: GlobalArray, index: Any = None) -> None:
        self.array, self.index = array, index

    def __getitem__(self, index: Any) -> _At:
        return _At(self.array, index)


def _update(name: str) -> Callable[..., Any]:
    def updated(x, index, *args, **kwargs):
        return getattr(x.at[index], name)(*args, **kwargs)

    def update(self, *args, **kwargs):
        return run(updated, (self.array, self.index, *args), kwargs)

    update.__name__ = update.__qualname__ = updated.__name__ = name
    return update


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
    for name in (*_METHODS, "__getitem__", "__round__", "__divmod__", "__rdivmod__"):
        setattr(GlobalArray, name, _method(name))
    for name in _PROPERTIES:
        setattr(GlobalArray, name, property(_property(name)))
    for name in _UPDATES:
        setattr(_At, name, _update(name))
    GlobalArray.at = property(_At)  # type: ignore[attr-defined]


def _property(name: str) -> Callable[[Any], Any]:
    function = jit(operator.attrgetter(name))
    return lambda self: function(self)


_install()
