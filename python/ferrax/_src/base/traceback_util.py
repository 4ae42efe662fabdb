"""Tracebacks without the frames of this package: `jax_traceback_filtering`.

Errors leave the package at boundaries: functions that users call, which `api_boundary` makes of functions
written in Python, and native calls that run Python code (`rust/ferrax-python/src/tracebacks.rs`). There, when
all frames of the package are in the traceback, `filter_error` takes them out, or marks them. Functions of the
user's that the package called keep theirs: what is left are the user's own lines, and the last one is where
the error comes from.

As long as nothing is raised a boundary costs a call, and nothing in functions that are `bounded`. It stands where
users are, at the names of public modules (`public`), and not between functions of the package.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import sys
from collections.abc import Callable, Iterator
from types import CodeType, FrameType, FunctionType, TracebackType
from typing import Any, TypeVar, cast

import numpy as np

from ferrax import _core
from ferrax._src.base import config, source_info
from ferrax._src.base.errors import PACKAGE_DIRECTORY, OverProcesses

F = TypeVar("F", bound=Callable[..., Any])

# Of Python and of NumPy. Where hidden frames call these, they do the package's work.
_STANDARD_LIBRARY = os.path.dirname(contextlib.__file__) + os.sep
_SITE_PACKAGES = ("site-packages" + os.sep, "dist-packages" + os.sep)
_NUMPY = os.path.dirname(np.__file__) + os.sep

_NOTE = (
    "For simplicity, frames of ferrax are left out here; JAX_TRACEBACK_FILTERING=off keeps them, and so does "
    'ferrax.config.update("jax_traceback_filtering", "off").'
)
# IPython hides frames since this version.
_HIDING_IPYTHON = (7, 17)


class UnfilteredStackTrace(Exception):  # noqa: N818  JAX's name
    """The `__cause__` of an error whose traceback was filtered. Its own traceback is the whole one.

    Example:
        >>> ferrax.config.update("jax_traceback_filtering", "remove_frames")
        >>> try:
        ...     jnp.reshape(jnp.ones(3), (2,))
        ... except TypeError as error:
        ...     print(type(error.__cause__).__name__)
        UnfilteredStackTrace
    """


class SimplifiedTraceback(Exception):  # noqa: N818  JAX's name
    """The `__cause__` that says that frames are left out, where errors have no notes (Python 3.10).

    Example:
        >>> print(str(ferrax.errors.SimplifiedTraceback())[:44])
        For simplicity, frames of ferrax are left ou
    """

    def __str__(self) -> str:
        return _NOTE


# ---------------------------------------------------------------------------------------------
# Which frames are hidden.


def is_hidden(filename: str) -> bool:
    """Whether frames of this file are not the user's."""
    return filename.startswith((PACKAGE_DIRECTORY, *source_info.excluded_paths))


def _is_helper(filename: str) -> bool:
    """Whether this is a file of Python's or NumPy's."""
    if filename.startswith(_STANDARD_LIBRARY):
        return filename.startswith(_NUMPY) or not any(part in filename for part in _SITE_PACKAGES)
    return filename.startswith((_NUMPY, "<frozen "))


def _entries(traceback: TracebackType | None) -> Iterator[TracebackType]:
    while traceback is not None:
        yield traceback
        traceback = traceback.tb_next


def _hidden(entries: list[TracebackType]) -> list[bool]:
    """Which entries of a traceback, outermost first, are not the user's."""
    flags: list[bool] = []
    for entry in entries:
        filename = entry.tb_frame.f_code.co_filename
        inside = bool(flags) and flags[-1]
        flags.append(is_hidden(filename) or (inside and _is_helper(filename)))
    return flags


def is_from_users(error: BaseException) -> bool:
    """Whether an error that is handled here went through a function of the user's."""
    return not all(_hidden(list(_entries(error.__traceback__))))


# ---------------------------------------------------------------------------------------------
# What is done to errors.


def filter_error(error: BaseException) -> None:
    """Does what `jax_traceback_filtering` says to an error that leaves the package, and to those that it was
    raised from or while handling."""
    mode = config.traceback_filtering.value
    if mode == "off":
        return
    ipython = mode == "auto" and _is_under_ipython()
    if mode == "auto":
        mode = "tracebackhide" if ipython else "quiet_remove_frames"
    seen: set[int] = set()
    pending: list[BaseException | None] = [error]
    while pending:
        other = pending.pop()
        if other is None or id(other) in seen or isinstance(other, UnfilteredStackTrace):
            continue
        seen.add(id(other))
        pending += [other.__cause__, other.__context__]
        _filter_one(other, mode, ipython, other is error)
        context = other.__context__
        if context is not None and context.__traceback__ is None:
            # It was raised and handled within the package.
            other.__suppress_context__ = True


def _filter_one(error, mode, ipython, is_raised):
    entries = list(_entries(error.__traceback__))
    flags = _hidden(entries)
    if not any(flags):
        return
    if mode == "tracebackhide":
        for entry, flag in zip(entries, flags):
            if flag and entry.tb_frame.f_locals is not entry.tb_frame.f_globals:
                entry.tb_frame.f_locals["__tracebackhide__"] = True
        if not ipython:
            return
        # IPython shows the last frame even if it is hidden.
        count = len(flags) - flags[::-1].index(False) if False in flags else 0
        if is_raised or count:
            error.__traceback__ = _linked(entries[:count])
        return
    if is_raised and mode == "remove_frames":
        _keep_whole(error, entries)
    elif is_raised:
        _say_so(error)
    error.__traceback__ = _linked([entry for entry, flag in zip(entries, flags) if not flag])


def _linked(entries: list[TracebackType]) -> TracebackType | None:
    """A traceback of these entries' frames."""
    linked = None
    for entry in reversed(entries):
        linked = TracebackType(linked, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return linked


def _say_so(error):
    if sys.version_info < (3, 11):
        if not _has_cause(error, SimplifiedTraceback):
            _set_cause(error, SimplifiedTraceback())
    elif _NOTE not in getattr(error, "__notes__", ()):
        error.add_note(_NOTE)


def _keep_whole(error, entries):
    if _has_cause(error, UnfilteredStackTrace):
        return
    whole = _linked(entries)
    # From here outwards: what is in no traceback yet.
    frame: FrameType | None = entries[0].tb_frame.f_back
    while frame is not None:
        whole = TracebackType(whole, frame, frame.f_lasti, frame.f_lineno)
        frame = frame.f_back
    text = (
        f"{type(error).__name__}: {error}\n\nThis is the error with all frames. It follows without those of ferrax."
    )
    _set_cause(error, UnfilteredStackTrace(text).with_traceback(whole))


def _has_cause(error: BaseException, kind: type) -> bool:
    cause, seen = error.__cause__, set()
    while cause is not None and id(cause) not in seen:
        if isinstance(cause, kind):
            return True
        seen.add(id(cause))
        cause = cause.__cause__
    return False


def _set_cause(error, cause):
    """Puts a cause before those that an error has."""
    cause.__cause__ = error.__cause__
    cause.__context__ = error.__context__
    cause.__suppress_context__ = error.__suppress_context__
    error.__cause__ = cause


def _is_under_ipython() -> bool:
    """Whether this is IPython or a notebook, of a version that hides frames."""
    ipython = sys.modules.get("IPython")
    if ipython is None or getattr(ipython, "version_info", (0,))[:2] < _HIDING_IPYTHON:
        return False
    return ipython.get_ipython() is not None


_core.set_error_filter(filter_error)


# ---------------------------------------------------------------------------------------------
# Boundaries.


def leave() -> None:
    """What a boundary does with the error that it handles, before it raises it again."""
    error = cast(Exception, sys.exc_info()[1])
    filter_error(error)
    if sys.version_info < (3, 11):
        # There `raise` takes the traceback from elsewhere.
        _core.set_handled_traceback(error, error.__traceback__)


def _leave_without_own_frame() -> None:
    """The same for boundaries that are made of functions. Their own frame, which comes first, is never shown."""
    error = cast(Exception, sys.exc_info()[1])
    error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next
    leave()


# Calls a function that computed with whole arrays anew, for arrays of which this process has parts. It is told the
# error, the function and its arguments; set once processes are joined.
over_processes: Callable[[OverProcesses, Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any] | None = None


def again(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What a boundary returns that handles `OverProcesses`, by which its function ended."""
    first = cast(OverProcesses, sys.exc_info()[1])
    try:
        if over_processes is None:
            raise first
        return over_processes(first, function, args, kwargs)
    except Exception as error:
        _forget(error, first)
        leave()
        raise


def _forget(error: BaseException, handled: BaseException) -> None:
    """An error does not tell of the one that was being handled when it was raised."""
    inner = error
    while inner.__context__ is not None and inner.__context__ is not handled:
        inner = inner.__context__
    inner.__context__ = None


# The native functions behind those that public modules have in their places.
_behind: dict[Any, Any] = {}


def over_native(function: F) -> F:
    """A boundary for a native function, or one that filters errors itself, where there are arrays over processes."""

    @functools.wraps(function)
    def bounded(*args, **kwargs):
        try:
            return function(*args, **kwargs)
        except OverProcesses:
            return again(function, args, kwargs)

    _behind[bounded] = function
    return cast(F, bounded)


def behind(function: Any) -> Any:
    """The function itself, or that which it stands for (`over_native`). Errors: TypeError for what has no hash."""
    return _behind.get(function, function)


# Functions that filter errors themselves.
_bounded: set[Any] = set()


def bounded(fun: F) -> F:
    """Says that the body of a function is `try: ... except Exception: leave(); raise`: it is a boundary, and costs
    nothing. For functions that take less than a few microseconds."""
    _bounded.add(fun)
    return fun


def is_bounded(fun: Callable[..., Any]) -> bool:
    """Whether a function is said to filter errors itself."""
    return fun in _bounded


@functools.cache
def _maker(positional_only: int, positional: int, rest: bool, named: int, others: bool) -> FunctionType:
    """What makes a boundary of a function with so many parameters, whose names are `p0`, `p1`, … first."""
    places = [f"p{index}" for index in range(positional)]
    names = [f"p{positional + index}" for index in range(named)]
    parameters, arguments = list(places), list(places)
    if positional_only:
        parameters.insert(positional_only, "/")
    if rest:
        parameters.append("*rest")
        arguments.append("*rest")
    elif named:
        parameters.append("*")
    parameters += names
    arguments += [f"{name}={name}" for name in names]
    if others:
        parameters.append("**others")
        arguments.append("**others")
    positions = [*places, "*rest"] if rest else places
    by_name = ", ".join([f"'{name}': {name}" for name in names] + ["**others"] * others)
    scope: dict[str, Any] = {}
    exec(
        f"def make(function, leave, over, again):\n"
        f"    def boundary({', '.join(parameters)}):\n"
        f"        try:\n"
        f"            return function({', '.join(arguments)})\n"
        f"        except over:\n"
        f"            return again(function, ({''.join(f'{place}, ' for place in positions)}), {{{by_name}}})\n"
        f"        except Exception:\n"
        f"            leave()\n"
        f"            raise\n"
        f"    return boundary\n",
        scope,
    )
    return scope["make"]


def _named(code: CodeType, own: CodeType) -> CodeType:
    """The code of a boundary with the names of the function's parameters, where the function's own is."""
    first, last = own.co_argcount, own.co_argcount + own.co_kwonlyargcount
    names = own.co_varnames[: len(code.co_varnames)]
    named: dict[Any, Any] = {f"p{index}": own.co_varnames[index] for index in range(first, last)}
    # How calls name their arguments: one by one, or all of them as a tuple.
    named[tuple(named)] = tuple(named.values())
    consts = tuple(named.get(const, const) for const in code.co_consts)
    changed: dict[str, Any] = {"co_varnames": names, "co_consts": consts}
    changed |= {"co_name": own.co_name, "co_filename": own.co_filename}
    if sys.version_info >= (3, 11):
        changed["co_qualname"] = own.co_qualname
    return code.replace(**changed, co_firstlineno=own.co_firstlineno)


def boundary(function: F) -> F:
    """A function with the same signature, help and attributes, whose errors are filtered.

    Its parameters are those of the function: arguments are passed on by place, which is faster than
    by `*args, **kwargs`, and wrong ones are refused in the user's line.
    """
    if function in _bounded:
        return function
    plain = cast(FunctionType, function)
    own = plain.__code__
    made = _maker(
        own.co_posonlyargcount,
        own.co_argcount,
        bool(own.co_flags & inspect.CO_VARARGS),
        own.co_kwonlyargcount,
        bool(own.co_flags & inspect.CO_VARKEYWORDS),
    )(function, _leave_without_own_frame, OverProcesses, again)
    made.__code__ = _named(made.__code__, own)
    made.__defaults__, made.__kwdefaults__ = plain.__defaults__, plain.__kwdefaults__
    return cast(F, functools.update_wrapper(made, function))


def api_boundary(fun: F) -> F:
    """The callable, with errors filtered as `jax_traceback_filtering` says.

    For functions that are made while programs run; it takes less to make than `boundary`, and more to call.
    """

    def bounded(*args, **kwargs):
        try:
            return fun(*args, **kwargs)
        except OverProcesses:
            return again(fun, args, kwargs)
        except Exception:
            _leave_without_own_frame()
            raise

    return cast(F, functools.update_wrapper(bounded, fun))
