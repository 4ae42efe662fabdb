"""Checks that public names have help: a docstring, an example, and a word on each parameter.

Every public function and class (`public_names.py`) needs a docstring with an example that runs
(`tests/semantics/test_docstrings.py` runs it). That of a function has to name each of its parameters,
unless there is one alone; "as for `name`" and the like leave the rest to the docstring of `name`. Methods
need a docstring. Exits with 1 and lists what is missing.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from typing import Any

from public_names import help_of, public_modules, public_names

# Where everything is on one device and results are new arrays, these have to be None everywhere.
NEEDS_NO_WORD = {"out", "out_sharding", "sharding", "accuracy"}
REFERENCE = re.compile(r"(?:\b(?:as|of|for|see|See|by)|\bunder the name) `{1,2}([A-Za-z_][\w.]*)`{1,2}")


def parameters_of(function: Any) -> list[str]:
    """The names of parameters that help has to speak of."""
    try:
        names = [name for name in inspect.signature(function).parameters if not name.startswith("_")]
    except (TypeError, ValueError):  # no signature
        return []
    names = [name for name in names if name not in NEEDS_NO_WORD]
    return [] if len(names) == 1 else names


def texts(module: Any, text: str, depth: int = 3) -> Iterator[str]:
    """A docstring, then those that it refers to."""
    yield text
    for reference in REFERENCE.findall(text) if depth else ():
        for owner in (module, *public_modules()):
            value: Any = owner
            for part in reference.split("."):
                value = getattr(value, part, None)
            if callable(value):
                yield from texts(owner, help_of(value), depth - 1)
                break


def faults(module: Any, value: Any) -> list[str]:
    """What is missing in the help of one name."""
    text = help_of(value)
    if not text:
        return ["no docstring"]
    found = [] if ">>> " in text else ["no example"]
    if isinstance(value, type):
        methods = [name for name, item in vars(value).items() if callable(item) and name[0] != "_"]
        without = [name for name in methods if not inspect.getdoc(getattr(value, name))]
        return found + [f"no docstring of {', '.join(without)}"] * bool(without)
    known = "\n".join(texts(module, text))
    unnamed = [name for name in parameters_of(value) if not re.search(rf"\b{name}\b", known)]
    return found + [f"nothing on {', '.join(unnamed)}"] * bool(unnamed)


def main() -> int:
    checked, failures = 0, []
    for module, name, value in public_names():
        checked += 1
        missing = faults(module, value)
        if missing:
            failures.append(f"{module.__name__}.{name}: {'; '.join(missing)}")
    print("\n".join(failures) or f"docstrings: {checked} public functions and classes, all with examples")
    if failures:
        print(f"docstrings: {len(failures)} of {checked} public names lack something")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
