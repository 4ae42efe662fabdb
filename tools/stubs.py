"""Writes the stubs of the native modules whose functions are made from the op rows."""

import inspect

from generated import emit

from ferrax import _core

PACKAGE = "python/ferrax/_core"


def stub(module) -> str:
    """The functions of a native module with their parameters, for type checkers and editors."""
    lines = ["from typing import Any", "", "from ferrax._core import Array", ""]
    for name in sorted(module.__all__):
        parameters = []
        signature = inspect.signature(getattr(module, name))
        for parameter in signature.parameters.values():
            kind = "None" if parameter.default is None else "Any"
            parameters.append(parameter.replace(annotation=kind))
        # Defaults of None are shown as such.
        shown = str(signature.replace(parameters=parameters)).replace("'", "")
        lines.append(f"def {name}{shown} -> Array: ...")
    return "\n".join(lines) + "\n"


def main() -> None:
    emit(f"{PACKAGE}/lax.pyi", stub(_core.lax), __doc__)
    emit(f"{PACKAGE}/ufuncs.pyi", stub(_core.ufuncs), __doc__)


if __name__ == "__main__":
    main()
