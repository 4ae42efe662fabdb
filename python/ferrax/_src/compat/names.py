"""Names that JAX has in one of the versions that can be followed and not in another.

ferrax has them all. The `jax` that `install` gives has those of the version that is followed: `hide` takes
the others out of a module, and `show` puts them back.
"""

from __future__ import annotations

import types
from typing import Any

from ferrax._src.base import jax_version

# By module of JAX: what came after 0.10.2, and what went. Modules themselves are names of what they are in.
ADDED: dict[str, str] = {}
REMOVED: dict[str, str] = {}

_hidden: dict[str, dict[str, Any]] = {}


def absent(path: str) -> frozenset[str]:
    """The names that JAX's module `path` has in another version and not in the one that is followed."""
    table = ADDED if jax_version.of_process() == jax_version.OLD else REMOVED
    return frozenset(table.get(path, "").split())


def hide(module: types.ModuleType, path: str) -> None:
    """From now on the module has no names that JAX's module `path` has not in the version followed."""
    show(module, path)
    namespace = vars(module)
    _hidden[path] = {name: namespace.pop(name) for name in absent(path) if name in namespace}


def show(module: types.ModuleType, path: str) -> None:
    """Undoes `hide`."""
    vars(module).update(_hidden.pop(path, {}))


def is_hidden(path: str, name: str) -> bool:
    """Whether the name is one that the version followed has not, for names that a module's `__getattr__` gives."""
    return name in absent(path)
