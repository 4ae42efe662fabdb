"""Whether imports of `jax` mean ferrax in this process."""

from __future__ import annotations

import importlib
import importlib.machinery
import sys
from typing import Any

from ferrax._src.base import flags
from ferrax._src.compat import required
from ferrax._src.compat.absences import explain, leave
from ferrax._src.compat.finder import PATHS, Finder, is_of_jax, known_modules

_finder = Finder()
_replaced: dict[str, Any] = {}


def is_installed() -> bool:
    """Whether imports of `jax` mean ferrax in this process.

    Example:
        >>> ferrax.compat.is_installed()
        False
    """
    return _finder in sys.meta_path


def install(jax_version: str | None = None) -> None:
    """From now on `import jax` means ferrax in this process, and so do imports of what is in it.

    A module has one object under both names: `jax.numpy is ferrax.numpy`. `jaxlib` and those private
    names that libraries use (`jax._src.core.trace_state_clean`, …) are answered too. A call after
    the first does nothing but follow the version that it names.

    Args:
        jax_version: the version of JAX to follow where versions differ: `"0.10.2"` or `"0.12.0.1"`, or how
            one of them begins. None: that which the environment (FERRAX_JAX_VERSION) or `config` says; where
            they say nothing 0.10.2, or a later one that an installed library asks for.

    Raises:
        ValueError: if it is no version that can be followed.
        RuntimeError: if JAX itself is imported already, whose arrays ferrax would not know.

    Example:
        >>> import subprocess
        >>> import sys
        >>> statements = "ferrax.compat.install()", "import jax", "print(jax.numpy is ferrax.numpy)"
        >>> command = [sys.executable, "-c", "; ".join(["import ferrax.compat", *statements])]
        >>> subprocess.run(command, capture_output=True, text=True).stdout.strip()
        'True'
    """
    if is_installed():
        if jax_version is not None:
            required.choose(jax_version)
        return
    foreign = _foreign_modules()
    if foreign:
        where = getattr(sys.modules[foreign[0]], "__file__", None)
        raise RuntimeError(
            f"{foreign[0]} is imported already, from {where}: `import jax` cannot mean ferrax in this "
            "process any more. Call ferrax.compat.install() before anything imports jax, or start the "
            "program by `python -m ferrax.compat`"
        )
    required.choose(jax_version)
    root = importlib.import_module("ferrax")
    _replaced["_src"] = root._src
    # Before the finder of files, behind those that answer for some modules alone.
    kinds = [item is importlib.machinery.PathFinder for item in sys.meta_path]
    sys.meta_path.insert(kinds.index(True) if True in kinds else 0, _finder)
    for name, module in known_modules().items():
        sys.modules[name] = module
        explain(module, name)
    # Python makes `jax._src` an attribute of ferrax, too, where programs reach it without an import.
    for name in ("jax._src", "jaxlib"):
        sys.modules.pop(name, None)  # a module of `PATHS`
        importlib.import_module(name)


def uninstall() -> None:
    """Imports of `jax` mean JAX again, if it is installed. What was imported before stays what it is.

    Example:
        >>> ferrax.compat.uninstall()  # of no effect where nothing is installed
        >>> ferrax.compat.is_installed()
        False
    """
    if not is_installed():
        return
    sys.meta_path.remove(_finder)
    for name, module in known_modules().items():
        leave(module, name)
    for name in [name for name in sys.modules if is_of_jax(name)]:
        del sys.modules[name]
    setattr(importlib.import_module("ferrax"), "_src", _replaced.pop("_src"))  # noqa: B010


def _follow(name: str, value: str, of_process: bool) -> None:
    """Modules have the names of the version that is followed from now on."""
    if name == "jax_version" and of_process and is_installed():
        for path, module in known_modules().items():
            explain(module, path)


flags.on_flag_change(_follow)


def _foreign_modules() -> list[str]:
    """Modules of JAX itself that are loaded: not those of `PATHS`, which are being imported."""
    names = [name for name in ("jax", "jaxlib") if name in sys.modules]
    files = {str(path / f"{name}.py") for name in names for path in PATHS.values()}
    return [name for name in names if getattr(sys.modules[name], "__file__", None) not in files]
