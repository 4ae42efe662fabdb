"""What users see of functions and classes that public modules export: the name of that module, and errors
that end in the user's own line.

Public modules call `export` when their names are there.
"""

from __future__ import annotations

import enum
import inspect
import sys
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any, TypeVar, cast

from ferrax._src.base import flags
from ferrax._src.base.traceback_util import boundary

F = TypeVar("F", bound=Callable[..., Any])

# The function of a public name by the one that it stands for, and those themselves.
_exported: dict[FunctionType, FunctionType] = {}
_boundaries: set[FunctionType] = set()
_modules: list[str] = []
# Methods that are not called by name, and get a boundary nevertheless. Others are asked for what there may
# not be, or called where no error is to be expected.
_CALLED = ("__call__", "__getitem__", "__init__", "__matmul__", "__setitem__")


def export(name: str) -> None:
    """Makes the functions of a public module boundaries, and gives its name to them and to its classes."""
    _modules.append(name)
    namespace = vars(sys.modules[name])
    for key, value in list(namespace.items()):
        if key.startswith("_"):
            continue
        if type(value) is FunctionType and _is_own(value):
            namespace[key] = value if value in _boundaries else _function(value)
            _rename(namespace[key], name, key)
        elif isinstance(value, type) and _is_own(value) and not issubclass(value, BaseException | enum.Enum):
            bound_methods(value)
            _rename(value, name, key)
        elif isinstance(value, type) and _is_own(value):
            _rename(value, name, key)


def exported() -> list[str]:
    """The names of the public modules that were loaded."""
    return list(_modules)


def show(module: ModuleType) -> None:
    """Gives a module the functions of public names where it has those that these stand for."""
    namespace = vars(module)
    for key, value in list(namespace.items()):
        if type(value) is FunctionType:
            namespace[key] = _exported.get(value, value)


def shown(function: F) -> F:
    """The function of a public name by the one that it stands for: for names that a module's `__getattr__` gives."""
    return cast(F, _function(cast(FunctionType, function)))


def _is_own(value: Any) -> bool:
    return value.__module__.partition(".")[0] == "ferrax"


def _rename(value: Any, name: str, key: str) -> None:
    """The module that is fewest packages deep is the one by which a function or class is known."""
    module = value.__module__
    if value.__qualname__ == key and (
        module.startswith("ferrax._src") or module.count(".") > name.count(".")
    ):
        value.__module__ = name


def _function(function: FunctionType) -> FunctionType:
    made = _exported.get(function)
    if made is None:
        made = function if inspect.isgeneratorfunction(function) else boundary(function)
        _exported[function] = made
        _boundaries.add(made)
    return made


def bound_methods(cls: type) -> None:
    """Makes the methods that a class has from this package boundaries."""
    for own in cls.__mro__:
        if not _is_own(own):
            continue
        for key, value in list(vars(own).items()):
            if key.startswith("_") and key not in _CALLED:
                continue
            inner = value.__func__ if isinstance(value, (classmethod, staticmethod)) else value
            if type(inner) is FunctionType and inner not in _boundaries:
                made = _function(inner)
                setattr(own, key, made if inner is value else type(value)(made))


# `ferrax.config` and the contexts of flags, which are no public classes.
bound_methods(flags.Config)
bound_methods(flags.State)
