"""What users mark in a profile: spans of their own, steps, functions.

While no profile is taken a mark asks once whether there is one, and makes nothing. While one is, it is an event of the
thread that it ends on.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

from ferrax import _core

F = TypeVar("F", bound=Callable[..., Any])
_MOST = (1 << 63) - 1


def _stat(value: Any) -> int | float | str:
    """A value as a profile has it: bools as integers, large integers as floats, what is no number as text."""
    if isinstance(value, int):
        return int(value) if -_MOST - 1 <= value <= _MOST else float(value)
    return value if isinstance(value, float | str) else str(value)


class TraceAnnotation:
    """A context whose body is an event of the profile that is being taken, if one is.

    Args: name: of the event; kwargs: values that are shown beside it, numbers as they are, others as text.

    Errors: TypeError if `name` is no text.

    Example:
        >>> with ferrax.profiler.TraceAnnotation("load batch", size=32):
        ...     batch = jnp.ones(32)
    """

    __slots__ = ("_name", "_stats", "_begin", "__weakref__")

    def __init__(self, name: str, /, **kwargs: Any) -> None:
        if not isinstance(name, str):
            raise TypeError(f"{type(self).__name__} takes a name as str, got {type(name).__name__}")
        self._name, self._stats = name, kwargs
        self._begin: int | None = None

    def __enter__(self) -> TraceAnnotation:
        self._begin = _core.profile_now() if _core.profile_is_on() else None
        return self

    def __exit__(self, *exception: object) -> None:
        if self._begin is not None:
            end = _core.profile_now()
            stats = [(name, _stat(value)) for name, value in self._stats.items()]
            _core.ProfileLabel(self._name, stats).record(self._begin, end)
            self._begin = None

    def set_metadata(self, **kwargs: Any) -> None:
        """Adds `kwargs` to the values that are shown, in the body of the context, too."""
        self._stats = {**self._stats, **kwargs}

    @staticmethod
    def is_enabled() -> bool:
        """Whether a profile is being taken."""
        return _core.profile_is_on()


class StepTraceAnnotation(TraceAnnotation):
    """A `TraceAnnotation` of one step of a program, such as of its training.

    Args: name: of the event; kwargs: values that are shown beside it, of which `step_num` numbers the steps.

    Errors: TypeError if `name` is no text, and for a value called `_r`, by which readers know steps.

    Example:
        >>> for step in range(2):
        ...     with ferrax.profiler.StepTraceAnnotation("train", step_num=step):
        ...         x = jnp.ones(3) + step
    """

    __slots__ = ()

    def __init__(self, name: str, /, **kwargs: Any) -> None:
        super().__init__(name, _r=1, **kwargs)


def annotate_function(func: F, name: str | None = None, **decorator_kwargs: Any) -> F:
    """`func`, whose calls are events of profiles.

    Args: func: a function; name: of the events, by default the function's; decorator_kwargs: values that are shown
    beside them.

    Errors: AttributeError if neither `name` is given nor `func` has one.

    Example:
        >>> @ferrax.profiler.annotate_function
        ... def double(x):
        ...     return 2 * x
        >>> double(jnp.float32(3.0))
        Array(6., dtype=float32)
    """
    shown = name or getattr(func, "__qualname__", "") or func.__name__
    mark = functools.partial(TraceAnnotation, shown, **decorator_kwargs)
    marked: Any = lambda *args, **kwargs: _called(mark(), func, args, kwargs)  # noqa: E731  it gets func's name
    return cast(F, functools.update_wrapper(marked, func))


def _called(mark: TraceAnnotation, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What `func` gives, called within a mark."""
    with mark:
        return func(*args, **kwargs)
