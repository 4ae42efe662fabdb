"""What errors about mutable arrays say: which ref, where it was made, and what to do."""

from __future__ import annotations

from ferrax import _core
from ferrax._src import core
from ferrax._src.base import errors
from ferrax._src.core import api_util
from ferrax._src.tree import tree_util


class ArgumentName(str):
    """The name of the argument that a ref stands for."""


def type_text(ref) -> str:
    """A ref's type as `Ref{float32[2]}`."""
    return f"Ref{{{core.ShapedArray(*ref._type).str_short()}}}"


def passed_twice(ref, fun, kind, first, second) -> str:
    return (
        f"{kind} of {api_util.fun_place(fun)}: a mutable array reference of type {type_text(ref)} "
        f"appeared at both {first} and {second}, so that a write to one would change the other. "
        f"Pass it once, or pass a copy: new_ref(ref[...]).{at_user_line()}"
    )


def both(ref, fun, kind, name) -> str:
    name = f" {name}" if name else ""
    return (
        f"{kind} of {api_util.fun_place(fun)}: a mutable array reference of type {type_text(ref)} "
        f"comes in twice, as the argument{name} and closed over. Use the argument "
        f"alone in the function.{at_user_line()}"
    )


def returned(ref, fun, kind, result) -> str:
    path = ""
    for keys, leaf in tree_util.tree_leaves_with_path(result):
        if leaf is ref and keys:
            path = f" at output tree path result{tree_util.keystr(keys)}"
            break
    origin = f"\n\nThe returned mutable array was {_origin(ref)}." if ref._made else ""
    return (
        f"{kind} of {api_util.fun_place(fun)}: the result has a mutable array reference of type "
        f"{type_text(ref)}{path}; results are values, which do not change afterwards. Return "
        f"ref[...], and make a ref of it outside.{origin}"
    )


def not_mapped(ref):
    return ValueError(
        "vmap: every element of the batch writes to an unbatched array reference, of type "
        f"{type_text(ref)}, and there is no order of these writes. Pass a reference "
        "with an element for each as an argument that vmap maps over."
        f"{at_user_line()}"
    )


def differentiated_write(entry):
    """The error for a value that depends on differentiated arguments, in a ref from outside."""
    at = f"\nAt {entry.line}." if entry.line else ""
    return ValueError(
        f"a differentiated value is written to a reference of type {type_text(entry.ref)} from outside "
        "of the differentiated function, where its derivative would be lost. Write "
        f"lax.stop_gradient(value), or make the reference inside of the differentiated function.{at}"
    )


def of_other_kind(fun, name, traced, given):
    return NotImplementedError(
        f"jit of {api_util.fun_place(fun)}: the argument {name}, which is written to, is a mutable array reference of "
        f"kind={given!r}, and the function was traced for one of kind={traced!r}. Jit a function of its own for each "
        f"kind.{at_user_line()}"
    )


def escaped(ref):
    made = f" It was {_origin(ref)}." if ref._made else ""
    return errors.UnexpectedTracerError(
        f"Encountered an unexpected tracer: the mutable array reference of type {type_text(ref)} "
        f"belongs to a transformed function that has already returned, or to another thread.{made} "
        "Make references outside of the functions that are to share them."
        f"{at_user_line()}"
    )


def freed(ref):
    made = f" It was {_origin(ref)}." if ref._made else ""
    return ValueError(
        f"the mutable array reference of type {type_text(ref)} was freed by free_ref and is used "
        f"again.{made} Free it after its last use.{at_user_line()}"
    )


def not_freed(ref):
    return ValueError(
        f"free_ref: the mutable array reference of type {type_text(ref)} comes from outside of the "
        f"function that is traced. Free it where it was made.{at_user_line()}"
    )


def _origin(ref) -> str:
    how = "passed in as the argument" if isinstance(ref._made, ArgumentName) else "created at"
    return f"{how} {ref._made}"


def at_user_line() -> str:
    line = _core.user_location()
    return f"\nAt {line}." if line else ""
