"""The public functions and classes of the package, each once, and what its help says.

Public are the modules without an underscore in their path, and of them `__all__` or else the names
without one. What is there under several names counts under the first: those of `ferrax` itself, then
module by module. Of an object that is not called, such as `ferrax.config` or a primitive, the class
counts. NumPy's and the standard library's objects are left out: constants, dtypes, aliases.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import types
from collections.abc import Iterator
from typing import Any

import ferrax


def public_modules() -> list[types.ModuleType]:
    """All public modules, `ferrax` first."""
    names = [module.name for module in pkgutil.walk_packages(ferrax.__path__, "ferrax.")]
    public = [name for name in names if not any(part.startswith("_") for part in name.split("."))]
    return [ferrax, *map(importlib.import_module, sorted(public))]


def is_ours(value: Any) -> bool:
    """Whether this is a function, a class or another object to call of this package."""
    if isinstance(value, types.ModuleType) or not callable(value):
        return False
    module = getattr(value, "__module__", None) or ""
    if not module.startswith("ferrax"):  # an object, rather than a class or a function, of ours
        module = getattr(value, "func", type(value)).__module__
    return module.startswith("ferrax")


def public_names() -> Iterator[tuple[types.ModuleType, str, Any]]:
    """`(module, name, object)` of each public function and class."""
    seen = set()
    for module in public_modules():
        names = getattr(module, "__all__", None)
        for name in sorted(n for n in vars(module) if not n.startswith("_")) if names is None else names:
            value = getattr(module, name)
            if not callable(value) and type(value).__module__.startswith("ferrax"):
                value = type(value)  # what help is of
            if id(value) not in seen and is_ours(value):
                seen.add(id(value))
                yield module, name, value


def help_of(value: Any) -> str:
    """Its docstring, not that of its class; "" without one."""
    text = value.__doc__
    if not isinstance(value, type) and text == type(value).__doc__:
        text = None
    return inspect.cleandoc(text or "")
