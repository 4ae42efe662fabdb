"""Checks what import-linter cannot of the imports of python/ferrax.

- `_src` imports no public module, only `ferrax._src` and the native module `ferrax._core`.
- Imports stand at the top of files; one in a function has its reason in a comment, on its line or
  on the one above.
- Public modules re-export: they define no functions and no classes but those that `DEFINED` names.

Exits with 1 and names each place.
"""

from __future__ import annotations

import ast
import pathlib
import sys
from collections.abc import Iterator

PACKAGE = pathlib.Path(__file__).resolve().parent.parent / "python" / "ferrax"

# Public modules that are something else than names of what `_src` holds.
DEFINED: dict[str, str] = {}

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def imports(tree: ast.Module) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    """The import statements, each with whether it is in a function."""

    def walk(node, inside):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.Import, ast.ImportFrom)):
                yield child, inside
            yield from walk(child, inside or isinstance(child, FUNCTIONS))

    return walk(tree, False)


def modules_of(statement) -> list[str]:
    """The modules of this package that a statement imports from, with full names."""
    if isinstance(statement, ast.Import):
        names = [alias.name for alias in statement.names]
    elif statement.level:
        names = ["a relative import"]
    elif statement.module == "ferrax":
        names = [f"ferrax.{alias.name}" for alias in statement.names]
    else:
        names = [statement.module]
    return [name for name in names if name.split(".")[0] in ("ferrax", "a relative import")]


def has_reason(statement, lines) -> bool:
    around = lines[max(statement.lineno - 2, 0) : statement.end_lineno]
    return any("#" in line for line in around)


def check(name: str, source: str) -> list[str]:
    """What is wrong with a file of the package, whose path from there is `name`."""
    tree, lines = ast.parse(source), source.split("\n")
    private = name.startswith("_src/")
    found = []
    for statement, inside in imports(tree):
        for module in modules_of(statement) if private else ():
            if not module.startswith(("ferrax._src", "ferrax._core")):
                found.append((statement.lineno, f"_src imports {module}: import from _src"))
        if inside and not has_reason(statement, lines):
            found.append(
                (statement.lineno, "an import in a function without a comment that says why")
            )
    if not private and name not in DEFINED:
        found += [
            (node.lineno, f"a public module defines {node.name}: define it in _src")
            for node in tree.body
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name not in ("__getattr__", "__dir__")
        ]
    return [f"python/ferrax/{name}:{line}: {message}" for line, message in found]


def main() -> int:
    failures = []
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        failures += check(name, path.read_text(encoding="utf-8"))
    print("\n".join(failures) or "imports: ok")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
