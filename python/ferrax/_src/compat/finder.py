"""Imports of `jax`, `jax.*`, `jax._src.*` and `jaxlib` answered with modules of ferrax.

A module is one object under both names: `jax.numpy is ferrax.numpy`, in `sys.modules` too. So what a
library patches in one acts in the other, and values are pickled by their names in ferrax.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.metadata
import pathlib
import sys
import types
from collections.abc import Iterable

from ferrax._src.base import jax_version, public
from ferrax._src.compat import names
from ferrax._src.compat.absences import explain, message

# Prefixes of names of JAX's modules, and of those that answer for them; the first that fits counts.
_PREFIXES = {
    "jax._src": "ferrax._src.compat.private",
    "jaxlib": "ferrax._src.compat.jaxlib",
    "jax": "ferrax",
}
# By version, folders whose `jax` and `jaxlib` an import finds that no finder answers: modules that call
# `install`, and what `importlib.metadata` reads of the two.
PATHS = {
    jax_version.OLD: pathlib.Path(__file__).with_name("path"),
    jax_version.NEW: pathlib.Path(__file__).with_name("path_0_12"),
}
# Modules of ferrax that JAX has not.
_OWN = ("ferrax._src", "ferrax._core", "ferrax.compat")


def folder() -> pathlib.Path:
    """The folder of `PATHS` for the version that is followed."""
    return PATHS[jax_version.of_process()]


def is_of_jax(name: str) -> bool:
    """Whether a module's name is one that JAX has or might have."""
    return name.partition(".")[0] in ("jax", "jaxlib")


def is_public(name: str) -> bool:
    """Whether it is the name of a module of ferrax that answers for JAX's of the same name."""
    return (name + ".").startswith("ferrax.") and not any(
        (name + ".").startswith(own + ".") for own in _OWN
    )


def own_name(name: str) -> str | None:
    """The name of ferrax's module for JAX's module `name`; None where there cannot be one."""
    for prefix, own in _PREFIXES.items():
        if (name + ".").startswith(prefix + "."):
            own += name.removeprefix(prefix)
            return own if prefix != "jax" or is_public(own) else None
    return None


class _Loader(importlib.abc.Loader):
    """Puts a module that there is under a second name.

    The import system takes the module from `sys.modules` when this has run, and gives it no attributes.
    """

    def __init__(self, own: str):
        self.own = own

    def exec_module(self, module: types.ModuleType) -> None:
        own = importlib.import_module(self.own)
        public.show(own)
        sys.modules[module.__name__] = own


class Finder(importlib.abc.MetaPathFinder):
    """Answers for JAX's modules, and for the distributions `jax` and `jaxlib`."""

    def find_spec(self, name, path=None, target=None):
        if not is_of_jax(name):
            return None
        own = None if names.is_hidden(*name.rpartition(".")[::2]) else own_name(name)
        module = None
        if own is not None:
            try:
                module = importlib.import_module(own)
            except ModuleNotFoundError as error:
                if error.name is None or not (own + ".").startswith(error.name + "."):
                    raise
        if module is not None and own is not None:
            explain(module, name)
            spec = importlib.machinery.ModuleSpec(name, _Loader(own))
            if hasattr(module, "__path__"):
                spec.submodule_search_locations = []
            return spec
        # For `importlib.util.find_spec` a module that is not there is no error.
        if sys._getframe(2).f_code.co_name != "_find_and_load_unlocked":
            return None
        owner, _, last = name.rpartition(".")
        text = message(owner, last) if owner else f"No module named {name!r}"
        raise ModuleNotFoundError(text, name=name)

    def find_distributions(
        self, context: importlib.metadata.DistributionFinder.Context
    ) -> Iterable[importlib.metadata.Distribution]:
        """What `importlib.metadata` is to know of JAX, which need not be installed."""
        if context.name not in ("jax", "jaxlib"):
            return ()
        here = importlib.metadata.DistributionFinder.Context(name=context.name, path=[str(folder())])
        return importlib.metadata.MetadataPathFinder.find_distributions(here)


def known_modules() -> dict[str, types.ModuleType]:
    """ferrax's public modules that are loaded, by their names in JAX."""
    return {
        "jax" + name.removeprefix("ferrax"): module
        for name, module in list(sys.modules.items())
        if is_public(name) and isinstance(module, types.ModuleType)
    }
