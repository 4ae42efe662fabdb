"""Where equations come from: the user's line, and the names of the scopes they were made in."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import re
import sys
from collections.abc import Callable, Iterator
from types import CodeType, FrameType, FunctionType
from typing import Any, TypeVar

from ferrax import _core
from ferrax._src.base.errors import PACKAGE_DIRECTORY

_T = TypeVar("_T")

__all__ = [
    "NameStack",
    "SourceInfo",
    "current",
    "current_name_stack",
    "extend_name_stack",
    "new_name_stack",
    "new_source_info",
    "register_exclusion",
    "reset_name_stack",
    "set_name_stack",
    "summarize",
    "transform_name_stack",
    "user_context",
]


@dataclasses.dataclass(frozen=True)
class Scope:
    """A name that the user gave."""

    name: str


@dataclasses.dataclass(frozen=True)
class Transform:
    """The name of a transformation, which is shown around those within."""

    name: str


@dataclasses.dataclass(frozen=True)
class NameStack:
    """Names of scopes, outermost first.

    Example:
        >>> from ferrax.extend.source_info_util import NameStack
        >>> str(NameStack().extend("model").transform("jvp").extend("layer"))
        'model/jvp(layer)'
    """

    stack: tuple = ()

    def extend(self, name: str) -> NameStack:
        """The stack with one more name."""
        return NameStack((*self.stack, Scope(name)))

    def transform(self, name: str) -> NameStack:
        """The stack with one more transformation, which later names are inside of."""
        return NameStack((*self.stack, Transform(name)))

    def __getitem__(self, index: slice) -> NameStack:
        return NameStack(self.stack[index])

    def __len__(self) -> int:
        return len(self.stack)

    def __add__(self, other: NameStack) -> NameStack:
        return NameStack(self.stack + other.stack)

    def __str__(self) -> str:
        parts: list[str] = []
        for item in reversed(self.stack):
            if isinstance(item, Scope):
                parts.append(item.name)
            elif parts:
                parts.append(f"{item.name}({parts.pop()})")
            else:
                parts.append(f"{item.name}()")
        return "/".join(reversed(parts))


def named_stack(names: str | None) -> NameStack:
    """The stack that the native core has as text: items separated by `/`, `()` behind those of
    transformations."""
    items = names.split("/") if names else ()
    return NameStack(
        tuple(Transform(item[:-2]) if item.endswith("()") else Scope(item) for item in items)
    )


def _encoded(stack: NameStack) -> str:
    return "/".join(
        item.name + ("()" if isinstance(item, Transform) else "") for item in stack.stack
    )


class SourceInfo:
    """Where an equation was made: `name_stack`, and `line` as 'file:line (function)' or None.

    >>> ferrax.extend.source_info_util.SourceInfo(line="model.py:3 (loss)")
    SourceInfo(line='model.py:3 (loss)', name_stack='')
    """

    __slots__ = ("traceback", "name_stack", "line")

    def __init__(self, traceback: Any = None, name_stack: Any = None, line: Any = None) -> None:
        self.traceback = traceback
        self.name_stack = NameStack() if name_stack is None else name_stack
        self.line = line

    def replace(self, *, traceback: Any = None, name_stack: Any = None) -> SourceInfo:
        """A copy with another traceback or name stack."""
        return SourceInfo(
            self.traceback if traceback is None else traceback,
            self.name_stack if name_stack is None else name_stack,
            self.line,
        )

    def __repr__(self) -> str:
        return f"SourceInfo(line={self.line!r}, name_stack={str(self.name_stack)!r})"

    def __str__(self) -> str:
        return self.line or ""


def new_source_info() -> SourceInfo:
    """A place of which nothing is known.

    >>> ferrax.extend.source_info_util.new_source_info()
    SourceInfo(line=None, name_stack='')
    """
    return SourceInfo()


def called_at(place: SourceInfo, call: Callable[[], _T]) -> _T:
    """What `call()` gives, whose equations have this line, and these names within those of now: an equation that is
    made anew stays the user's. Nothing is known of a place without a line."""
    if place.line is None:
        return call()
    if not place.name_stack.stack:
        return _at(place.line)(call)
    with set_name_stack(current_name_stack() + place.name_stack):
        return _at(place.line)(call)


@functools.lru_cache(4096)
def _at(line: str) -> Callable[[Callable[[], Any]], Any]:
    """A function that calls another one, and of which the interpreter says that it is at this line, where the native
    core looks for it."""
    found = re.fullmatch(r"(.*):(\d+) \((.*)\)", line, re.DOTALL)
    if found is None:
        return lambda call: call()
    file, number, name = found.groups()
    return FunctionType(_calling_code(file, int(number), name), {})


def called_by_user(call: Callable[[], _T]) -> _T:
    """What a native function gives: a warning that it gives is of the user's line, as if that had called it."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(PACKAGE_DIRECTORY):
        frame = frame.f_back
    if frame is None:
        return call()
    code = _calling_code(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)
    try:
        return FunctionType(code, frame.f_globals)(call)
    except BaseException as error:
        # The line is in the traceback once, where the user's own frame is.
        own = error.__traceback__
        error.__traceback__ = own and own.tb_next and own.tb_next.tb_next
        raise


@functools.lru_cache(4096)
def _calling_code(file: str, line: int, name: str) -> CodeType:
    """The code of a function that calls another one, at this line of that file."""
    code = (lambda call: call()).__code__
    return code.replace(co_filename=file, co_firstlineno=line, co_name=name)


def new_name_stack(name: str = "") -> NameStack:
    """A stack of one name, or of none.

    Args: name: the name, "" for none.

    >>> str(ferrax.extend.source_info_util.new_name_stack("layer"))
    'layer'
    """
    return NameStack().extend(name) if name else NameStack()


def current() -> SourceInfo:
    """The user's line that runs now, and the scopes it is in.

    >>> with ferrax.named_scope("layer"):
    ...     print(ferrax.extend.source_info_util.current().name_stack)
    layer
    """
    return SourceInfo(None, current_name_stack(), _core.user_location())


def current_name_stack() -> NameStack:
    """The scopes of equations that are made now.

    >>> with ferrax.named_scope("layer"):
    ...     print(ferrax.extend.source_info_util.current_name_stack())
    layer
    """
    return named_stack(_core.source_scope())


def summarize(source_info: SourceInfo, num_frames: int = 1) -> str:
    """The user's line, as 'file:line (function)'.

    Args: source_info: a `SourceInfo`; num_frames: accepted, without effect.

    >>> from ferrax.extend import source_info_util
    >>> source_info_util.summarize(source_info_util.SourceInfo(line="model.py:3 (loss)"))
    'model.py:3 (loss)'
    """
    return source_info.line or ""


# How many paths are excluded: programs that were traced before name other lines.
exclusions = 0
excluded_paths: list[str] = []


def register_exclusion(path: str) -> None:
    """Says that code in files whose paths begin with this is a library's, not the user's: messages
    and equations name the line that calls it.

    Args: path: the beginning of paths.

    >>> ferrax.extend.source_info_util.register_exclusion("/opt/my_library/")
    """
    global exclusions
    _core.exclude_from_source(path)
    excluded_paths.append(path)
    exclusions += 1


class set_name_stack(contextlib.ContextDecorator):  # noqa: N801
    """A context, or a decorator, in which equations are given these names.

    Args: name_stack: a `NameStack`.

    >>> from ferrax.extend import source_info_util
    >>> with source_info_util.set_name_stack(source_info_util.new_name_stack("other")):
    ...     print(source_info_util.current_name_stack())
    other
    """

    def __init__(self, name_stack: NameStack) -> None:
        self.name_stack = name_stack
        self._before: list[str] = []

    def _recreate_cm(self):
        return type(self)(self.name_stack)

    def __enter__(self) -> None:
        self._before.append(_core.source_scope())
        _core.set_source_scope(_encoded(self.name_stack))

    def __exit__(self, *exc: object) -> None:
        _core.set_source_scope(self._before.pop())


def reset_name_stack() -> set_name_stack:
    """A context in which equations are given no names of outer scopes.

    >>> from ferrax.extend import source_info_util
    >>> with ferrax.named_scope("layer"), source_info_util.reset_name_stack():
    ...     print(len(source_info_util.current_name_stack().stack))
    0
    """
    return set_name_stack(NameStack())


class _Extended(contextlib.ContextDecorator):
    def __init__(self, change, name):
        self.change, self.name = change, name
        self._entered = []

    def _recreate_cm(self):
        return type(self)(self.change, self.name)

    def __enter__(self):
        stack = self.change(current_name_stack(), self.name)
        self._entered.append(set_name_stack(stack))
        self._entered[-1].__enter__()
        return stack

    def __exit__(self, *exc):
        self._entered.pop().__exit__(*exc)


def extend_name_stack(name: str) -> _Extended:
    """A context, or a decorator, in which equations are given one more name.

    Args: name: the name.

    >>> with ferrax.extend.source_info_util.extend_name_stack("inner") as stack:
    ...     print(stack)
    inner
    """
    return _Extended(NameStack.extend, name)


def transform_name_stack(name: str) -> _Extended:
    """A context, or a decorator, in which names are shown inside of a transformation's.

    Args: name: of the transformation.

    >>> from ferrax.extend import source_info_util
    >>> with source_info_util.transform_name_stack("mine") as stack, ferrax.named_scope("layer"):
    ...     print(source_info_util.current_name_stack())
    mine(layer)
    """
    return _Extended(NameStack.transform, name)


@contextlib.contextmanager
def user_context(traceback: Any = None, *, name_stack: Any = None) -> Iterator[None]:
    """A context in which equations are given these names. Lines are always the user's own.

    Args: traceback: accepted, without effect; name_stack: a `NameStack` or None.

    >>> from ferrax.extend import source_info_util
    >>> with source_info_util.user_context(name_stack=source_info_util.new_name_stack("other")):
    ...     print(source_info_util.current_name_stack())
    other
    """
    with contextlib.nullcontext() if name_stack is None else set_name_stack(name_stack):
        yield
