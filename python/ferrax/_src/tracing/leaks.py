"""What `check_tracer_leaks` says of tracers that outlive their function."""

from __future__ import annotations

import gc
import types

from ferrax._src.base import errors

_SHOWN = 5


def error(function, tracers, descriptions) -> Exception:
    """The error for tracers that are referred to after the function that they belong to."""
    lines = []
    for index in range(min(len(tracers), _SHOWN)):
        holders = _holders(tracers[index], {id(tracers)})
        kept = f", kept by {holders[0]}" if holders else ""
        lines.append(f"  * {descriptions[index]}{kept}")
    if len(tracers) > _SHOWN:
        lines.append(f"  * ... {len(tracers) - _SHOWN} more")
    many = "tracers" if len(tracers) > 1 else "tracer"
    return errors.UnexpectedTracerError(
        f"Leaked {len(tracers)} {many} of {function}, which has ended:\n" + "\n".join(lines) + "\n"
        "Traced values mean nothing outside their function: return them instead of storing them "
        "in a global, an attribute, a container or a closure."
    )


def _holders(value, ignored) -> list[str]:
    """Who refers to a value, in words."""
    found = []
    for holder in gc.get_referrers(value):
        if id(holder) in ignored or isinstance(holder, types.FrameType):
            continue
        text = _holder(value, holder)
        if text:
            found.append(text)
    return found


def _holder(value, holder) -> str:
    if isinstance(holder, dict):
        key = next((key for key, item in holder.items() if item is value), None)
        if isinstance(holder.get("__name__"), str) and "__builtins__" in holder:
            return f"the global {key!r} of the module {holder['__name__']}"
        for owner in gc.get_referrers(holder):
            if getattr(owner, "__dict__", None) is holder:
                return _attribute(owner, key)
        return _with_owner(holder, f"the key {key!r} of a dict")
    if isinstance(holder, (list, tuple, set, frozenset)):
        return _with_owner(holder, f"a {type(holder).__name__}")
    if isinstance(holder, types.CellType):
        return "a variable of a closure"
    for name, item in getattr(holder, "__dict__", {}).items():
        if item is value:
            return _attribute(holder, name)
    return f"an object of class {type(holder).__name__}"


def _attribute(owner, name) -> str:
    if isinstance(owner, type):
        return f"the attribute {name!r} of the class {owner.__name__}"
    if isinstance(owner, types.ModuleType):
        return f"the global {name!r} of the module {owner.__name__}"
    if isinstance(owner, types.FunctionType):
        return f"the attribute {name!r} of the function {owner.__name__}"
    return f"the attribute {name!r} of an object of class {type(owner).__name__}"


def _with_owner(container, text) -> str:
    """A container's own name, where a module or an object holds it."""
    for owner in gc.get_referrers(container):
        if isinstance(owner, dict) and isinstance(owner.get("__name__"), str):
            key = next((key for key, item in owner.items() if item is container), None)
            if key is not None and "__builtins__" in owner:
                return f"{text}, the global {key!r} of the module {owner['__name__']}"
        for name, item in _attributes(owner):
            if item is container:
                return f"{text}, {_attribute(owner, name)}"
        if isinstance(owner, types.CellType):
            return f"{text}, a variable of a closure"
    return text


def _attributes(owner):
    """The attributes of an object of the user's, not those of frames and containers."""
    if isinstance(owner, (types.FrameType, dict, list, tuple)):
        return ()
    return list(getattr(owner, "__dict__", {}).items())
