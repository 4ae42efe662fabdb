"""Which functions only refuse: whatever they are given, they raise NotImplementedError.

Found in the source. A function refuses if it returns nothing and its last statement raises
NotImplementedError, itself or as what a helper returns. A class refuses if its `__init__` does. Checks
of arguments before that change nothing. Functions without Python source do not refuse. Cost: one
parse a module.
"""

from __future__ import annotations

import ast
import functools
import inspect
import sys

Definition = ast.FunctionDef | ast.ClassDef


@functools.cache
def _definitions(module: str) -> dict[str, Definition]:
    """The functions and classes at the top of a module, by name."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except (KeyError, OSError, TypeError):
        return {}
    return {node.name: node for node in tree.body if isinstance(node, Definition)}


def _is_refusal(module: str, raised: ast.expr | None) -> bool:
    """Whether this is a NotImplementedError, by its name or as what a helper of the module gives."""
    if isinstance(raised, ast.Call):
        raised = raised.func
    if not isinstance(raised, ast.Name):
        return False
    if raised.id == "NotImplementedError":
        return True
    helper = _definitions(module).get(raised.id)
    if not isinstance(helper, ast.FunctionDef):
        return False
    last = helper.body[-1]
    return isinstance(last, ast.Return) and _is_refusal(module, last.value)


def refuses(value: object) -> bool:
    """Whether this function or class does nothing but raise NotImplementedError."""
    value = inspect.unwrap(value) if callable(value) else value
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str):
        return False
    found = _definitions(module).get(name)
    if isinstance(found, ast.ClassDef):
        made = [n for n in found.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"]
        found = made[0] if made else None
    if found is None or any(isinstance(node, ast.Return) for node in ast.walk(found)):
        return False
    last = found.body[-1]
    return isinstance(last, ast.Raise) and _is_refusal(module, last.exc)
