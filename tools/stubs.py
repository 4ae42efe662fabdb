"""Writes the stubs of the native core that are made from something else.

`_core/lax.pyi` and `_core/ufuncs.pyi` are made from the functions' signatures, which come from the
op rows. `_core/__init__.pyi` is written by hand but for the methods of `Array` that Python gives it,
which are put where two comments say so, from the functions' annotations. `make docs-check` has mypy's
stubtest compare all of them with the extension module.
"""

import inspect
import pathlib
import types

from generated import ROOT, emit

from ferrax import _core, numpy

PACKAGE = "python/ferrax/_core"
BEGIN = "    # From Python, by tools/stubs.py:\n"
END = "    # To here.\n"
# The buffer protocol's method is there from Python 3.12 on; the others only raise, and programs that
# use them are to be refused by type checkers too.
LEFT_OUT = {"__buffer__", "__setitem__", "flat"}
# Parameters of the native functions that are no operands.
SETTINGS = {"accuracy": "None"}


def of_functions(module, names, exported) -> str:
    """The functions of a native module with their parameters; `exported` is what a star imports."""
    lines = [
        "from ferrax._core import Array",
        "from ferrax._src.core.typing import ArrayLike",
        "",
        "__all__ = [",
        *(f'    "{name}",' for name in sorted(exported)),
        "]",
        "",
    ]
    for name in sorted(names):
        signature = inspect.signature(getattr(module, name))
        parameters = [
            parameter.replace(annotation=SETTINGS.get(parameter.name, "ArrayLike"))
            for parameter in signature.parameters.values()
        ]
        lines.append(f"def {name}{_text(signature.replace(parameters=parameters))} -> Array: ...")
    return "\n".join(lines) + "\n"


def _text(signature: inspect.Signature) -> str:
    """A signature whose annotations are texts."""

    def shown(parameter):
        kind = parameter.annotation
        text = str(parameter.replace(annotation=inspect.Parameter.empty, default=parameter.empty))
        text += "" if kind is parameter.empty else f": {kind}"
        if parameter.default is not parameter.empty:
            text += f" = {parameter.default!r}"
        return text

    parts, kinds = [], [parameter.kind for parameter in signature.parameters.values()]
    for i, parameter in enumerate(signature.parameters.values()):
        first = not i or kinds[i - 1] < inspect.Parameter.VAR_POSITIONAL
        if parameter.kind == inspect.Parameter.KEYWORD_ONLY and first:
            parts.append("*")
        parts.append(shown(parameter))
        last = i + 1 == len(kinds) or kinds[i + 1] != inspect.Parameter.POSITIONAL_ONLY
        if parameter.kind == inspect.Parameter.POSITIONAL_ONLY and last:
            parts.append("/")
    returns = signature.return_annotation
    arrow = "" if returns is signature.empty else f" -> {returns}"
    return f"({', '.join(parts)}){arrow}"


def _method(name: str, function) -> list[str]:
    signature = inspect.signature(function)
    own, *others = signature.parameters.values()
    own = own.replace(annotation=own.empty)
    assert signature.return_annotation is not signature.empty, f"Array.{name} has no annotations"
    text = _text(signature.replace(parameters=[own, *others])).replace("core.Array", "Array")
    return [f"    def {name}{text}: ..."]


def _property(name: str, getter) -> list[str]:
    if isinstance(getter, type):
        returns = getter.__name__
    else:
        returns = inspect.signature(getter).return_annotation
    returns = returns.replace("core.Array", "Array")
    return ["    @property", f"    def {name}(self) -> {returns}: ..."]


def of_methods(cls) -> str:
    """The methods and properties of a native class that are Python functions."""
    lines = []
    for name, value in sorted(vars(cls).items()):
        if name in LEFT_OUT:
            continue
        if isinstance(value, property):
            lines += _property(name, value.fget)
        elif isinstance(value, types.FunctionType):
            lines += _method(name, value)
        elif hasattr(value, "function"):
            lines += _method(name, value.function)
    return "".join(f"{line}\n" for line in lines)


def core_stub() -> str:
    text = (pathlib.Path(ROOT) / PACKAGE / "__init__.pyi").read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    return f"{before}{BEGIN}{of_methods(_core.Array)}{END}{after}"


def main() -> None:
    lax, ufuncs = _core.lax.__all__, _core.ufuncs.__all__
    emit(f"{PACKAGE}/lax.pyi", of_functions(_core.lax, {*lax, "copy"}, lax), __doc__)
    # To a type checker the first import of a name counts: a function that `ferrax.numpy` replaces by an
    # object with methods, such as `add.reduce`, is not to be the name's first.
    own = [name for name in ufuncs if getattr(numpy, name) is getattr(_core.ufuncs, name)]
    emit(f"{PACKAGE}/ufuncs.pyi", of_functions(_core.ufuncs, ufuncs, own), __doc__)
    emit(f"{PACKAGE}/__init__.pyi", core_stub(), __doc__)


if __name__ == "__main__":
    main()
