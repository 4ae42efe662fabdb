"""Classes of values that programs register, as `jax.interpreters.xla` and `jax.core` have it: what arrays they are, and
of what type.

A registered class gets the method `__jax_array__`, by which all of ferrax takes its values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ferrax._src import core
from ferrax._src.core import values

__all__ = ["canonicalize_dtype_handlers", "pytype_aval_mappings"]

_KNOWN = (core.Array, np.ndarray, np.generic, bool, int, float, complex)


def _array(x):
    """What is like one of NumPy's arrays, as an array of a dtype that programs have."""
    return core.as_array(x if type(x).__module__ == "builtins" else np.asarray(x))


class _Handlers:
    """By class, the function from its values to arrays. Errors: KeyError for classes that are none, and TypeError for
    those that take no methods, where one is set.

    >>> handlers = ferrax.interpreters.xla.canonicalize_dtype_handlers
    >>> handlers[np.ndarray](np.arange(2.0))
    Array([0., 1.], dtype=float32)
    """

    def __init__(self) -> None:
        self._own: dict[type, Callable[[Any], Any]] = {}

    def __getitem__(self, cls: type) -> Callable[[Any], Any]:
        if cls in self._own:
            return self._own[cls]
        if not issubclass(cls, _KNOWN):
            raise KeyError(cls)
        return core.as_array if issubclass(cls, core.Array) else _array

    def __setitem__(self, cls: type, handler: Callable[[Any], Any]) -> None:
        try:
            cls.__jax_array__ = lambda value: core.as_array(handler(value))  # type: ignore[attr-defined]
        except TypeError as error:
            raise TypeError(
                f"canonicalize_dtype_handlers: {cls} takes no method __jax_array__, by which its values would be "
                "arrays: "
                "register a subclass of it"
            ) from error
        self._own[cls] = handler


class _Rules:
    """By class, the function from its values to their types; the table of `typeof`."""

    def __getitem__(self, cls: type) -> Callable[[Any], Any]:
        rule = values.type_rule(cls)
        if rule is not None:
            return rule
        if not issubclass(cls, _KNOWN):
            raise KeyError(cls)
        return core.typeof if issubclass(cls, core.Array) else lambda x: core.typeof(_array(x))

    def __setitem__(self, cls: type, rule: Callable[[Any], Any]) -> None:
        core.register_type(cls, rule)

    def __contains__(self, cls: object) -> bool:
        return isinstance(cls, type) and (values.type_rule(cls) is not None or issubclass(cls, _KNOWN))


canonicalize_dtype_handlers = _Handlers()
pytype_aval_mappings = _Rules()
