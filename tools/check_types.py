"""Checks the annotations of what ferrax exports, as the interpreter and as a type checker sees them.

- Every public function, and every public method of a public class, has annotations for all of its
  parameters and for what it returns.
- To mypy, no public function is `Any`: none lost its signature on the way, in a decorator or for want
  of a stub.

Exits with 1 and names each one. Needs the extension module.
"""

from __future__ import annotations

import importlib
import inspect
import pathlib
import pkgutil
import re
import subprocess
import sys
import tempfile
import types
from collections.abc import Iterator

import ferrax

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Methods whose signatures Python knows, whatever is written.
OBVIOUS = {"__init_subclass__", "__class_getitem__"}


def public_modules() -> list[types.ModuleType]:
    found = pkgutil.walk_packages(ferrax.__path__, "ferrax.")
    names = ["ferrax", *(module.name for module in found if "._" not in module.name)]
    modules = [importlib.import_module(name) for name in names]
    # Where a package gives a module's name to something else, no text that a type checker reads leads there.
    return [module for module in modules if _reached(module)]


def _reached(module: types.ModuleType) -> bool:
    package, _, name = module.__name__.rpartition(".")
    return not package or getattr(sys.modules[package], name, module) is module


def public_names(module: types.ModuleType) -> list[str]:
    return [
        name
        for name, value in sorted(vars(module).items())
        if not name.startswith("_") and not isinstance(value, types.ModuleType)
    ]


def _functions(key, value) -> Iterator[tuple[types.FunctionType, bool]]:
    """The Python functions that an attribute is made of, and whether the first parameter is given."""
    bound = key == "__new__" or not isinstance(value, staticmethod)
    if isinstance(value, property):
        value = value.fget
    elif isinstance(value, (staticmethod, classmethod)):
        value = value.__func__
    value = inspect.unwrap(value) if callable(value) else value
    if isinstance(value, types.FunctionType) and value.__module__.startswith("ferrax"):
        yield value, bound


def _is_generated(function: types.FunctionType) -> bool:
    """Whether there is no source of the function: methods of dataclasses and named tuples."""
    return not pathlib.Path(function.__code__.co_filename).is_file()


def _missing(function: types.FunctionType, bound: bool) -> list[str]:
    signature = inspect.signature(function, follow_wrapped=False)
    parameters = list(signature.parameters.values())[1 if bound else 0 :]
    missing = [p.name for p in parameters if p.annotation is p.empty]
    return missing + ["return"] * (signature.return_annotation is signature.empty)


def without_annotations() -> list[str]:
    """What lacks annotations, with the names of the parameters."""
    failures, seen = [], set()
    for module in public_modules():
        for name in public_names(module):
            value = getattr(module, name)
            place = f"{module.__name__}.{name}"
            if inspect.isclass(value) and value.__module__.startswith("ferrax"):
                members = [
                    (key, f"{place}.{key}", member)
                    for key, member in vars(value).items()
                    if (key.startswith("__") or not key.startswith("_")) and key not in OBVIOUS
                ]
            else:
                members = [(name, place, staticmethod(value))] if callable(value) else []
            for key, where, member in members:
                for function, bound in _functions(key, member):
                    missing = _missing(function, bound)
                    if missing and function not in seen and not _is_generated(function):
                        failures.append(f"{where}: no annotation of {', '.join(missing)}")
                    seen.add(function)
    return failures


def untyped() -> list[str]:
    """The public functions that are `Any` to mypy."""
    lines, places = [], []
    for module in public_modules():
        lines.append(f"import {module.__name__}")
        places.append("")
        for name in public_names(module):
            value = getattr(module, name)
            if callable(value) and not isinstance(value, type):
                place = f"{module.__name__}.{name}"
                lines.append(f"reveal_type({place})")
                places.append(place)
    with tempfile.TemporaryDirectory() as folder:
        program = pathlib.Path(folder) / "program.py"
        program.write_text("\n".join(lines) + "\n", encoding="utf-8")
        command = [sys.executable, "-m", "mypy", "--config-file", ROOT / "pyproject.toml", program]
        shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout
    failures, revealed = [], 0
    for line in shown.splitlines():
        found = re.search(r'program\.py:(\d+): (note: Revealed type is "(.*)"|error: .*)$', line)
        if found is None:
            continue
        place = places[int(found[1]) - 1]
        revealed += found[3] is not None
        if found[3] is None or found[3] == "Any":
            failures.append(f"{place}: to mypy {found[3] or found[2]}")
    if revealed != sum(map(bool, places)):
        failures.append(f"mypy revealed {revealed} of {sum(map(bool, places))} types:\n{shown}")
    return failures


def main() -> int:
    failures = without_annotations() + untyped()
    print("\n".join(failures) or "types of public functions: ok")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
