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
        "only one reference to a mutable array may be passed as an argument to a function, but "
        f"when tracing {api_util.fun_place(fun)} for {kind} the mutable array reference of type "
        f"{type_text(ref)} appeared at both {first} and {second}. Pass it once, or pass a copy: "
        f"new_ref(ref[...]).{at_user_line()}"
    )


def both(ref, fun, kind, name) -> str:
    name = f" {name}" if name else ""
    return (
        f"when tracing {api_util.fun_place(fun)} for {kind}, a mutable array reference of type "
        f"{type_text(ref)} was both closed over and passed as the argument{name}. Use the argument "
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
        f"function {api_util.fun_place(fun)} traced for {kind} returned a mutable array reference "
        f"of type {type_text(ref)}{path}, but mutable array references cannot be returned. Return "
        f"its value, ref[...], and make a ref of it outside.{origin}"
    )


def not_mapped(ref):
    return ValueError(
        "performing a set/swap or addupdate operation inside vmap on an unbatched array reference "
        f"of type {type_text(ref)}, which vmap does not map over. Move the array reference to be a "
        "mapped argument of the vmapped function, with one element for each of the batch."
        f"{at_user_line()}"
    )


def differentiated_write(entry):
    """The error for a value that depends on differentiated arguments, in a ref from outside."""
    at = f"\nAt {entry.line}." if entry.line else ""
    return ValueError(
        "performing a set/swap operation with a differentiated value on a non-differentiated array "
        f"reference of type {type_text(entry.ref)}. Write lax.stop_gradient(value), or make the "
        f"reference inside of the differentiated function.{at}"
    )


def escaped(ref):
    made = f" It was {_origin(ref)}." if ref._made else ""
    return errors.UnexpectedTracerError(
        f"Encountered an unexpected tracer: the mutable array reference of type {type_text(ref)} "
        f"belongs to a transformed function that has already returned, or to another thread.{made} "
        "Make references outside of the functions that are to share them."
        f"{at_user_line()}"
    )


def _origin(ref) -> str:
    how = "passed in as the argument" if isinstance(ref._made, ArgumentName) else "created at"
    return f"{how} {ref._made}"


def at_user_line() -> str:
    line = _core.user_location()
    return f"\nAt {line}." if line else ""
