"""Events that are counted and timed, and those who listen to them.

What is recorded goes to the listeners of its kind, in the order in which they were registered, on the
thread that records it. Nothing is kept. `on_change` tells the layers above when the first listener
comes and the last one goes, so that traces and compilations are only timed where somebody listens.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol


class EventListener(Protocol):
    """Called as `listener(event, **metadata)`."""

    def __call__(self, event: str, /, **kwargs: str | int) -> None: ...


class DurationListener(Protocol):
    """Called as `listener(event, seconds, **metadata)`."""

    def __call__(self, event: str, duration: float, /, **kwargs: str | int) -> None: ...


class TimeSpanListener(Protocol):
    """Called as `listener(event, start, end, **metadata)`, with seconds since the epoch."""

    def __call__(self, event: str, start: float, end: float, /, **kwargs: str | int) -> None: ...


class ScalarListener(Protocol):
    """Called as `listener(event, value, **metadata)`."""

    def __call__(self, event: str, value: float | int, /, **kwargs: str | int) -> None: ...


# Replaced when they change, never changed: a recording goes on with those that it began with.
_events: tuple[EventListener, ...] = ()
_durations: tuple[DurationListener, ...] = ()
_spans: tuple[TimeSpanListener, ...] = ()
_scalars: tuple[ScalarListener, ...] = ()

_on_change: list[Callable[[], None]] = []


def on_change(function: Callable[[], None]) -> None:
    """Has `function()` called when listeners were registered or unregistered."""
    _on_change.append(function)


def heard() -> bool:
    """Whether somebody listens."""
    return bool(_events or _durations or _spans or _scalars)


def _changed() -> None:
    for function in _on_change:
        function()


def _without(listeners, listener):
    """`listeners` less the first that equals `listener`."""
    if listener not in listeners:
        raise AssertionError(f"{listener!r} is not registered as a listener of this kind")
    place = listeners.index(listener)
    return (*listeners[:place], *listeners[place + 1 :])


def record_event(event: str, **kwargs: str | int) -> None:
    """Tells the listeners of events that one happened.

    Args:
        event: its name, by custom a path such as "/library/part/what".
        kwargs: metadata, which listeners get by name.

    Example:
        >>> ferrax.monitoring.record_event("/examples/run", user="me")
    """
    for listener in _events:
        listener(event, **kwargs)


def record_event_duration_secs(event: str, duration: float, **kwargs: str | int) -> None:
    """Tells the listeners of durations how long an event took.

    Args:
        event, kwargs: as for `record_event`.
        duration: in seconds.

    Example:
        >>> ferrax.monitoring.record_event_duration_secs("/examples/run", 0.25)
    """
    for listener in _durations:
        listener(event, duration, **kwargs)


def record_event_time_span(
    event: str, start_time: float, end_time: float, **kwargs: str | int
) -> None:
    """Tells the listeners of time spans when an event began and ended.

    Args:
        event, kwargs: as for `record_event`.
        start_time, end_time: in seconds since the epoch, as `time.time()` has them.

    Example:
        >>> ferrax.monitoring.record_event_time_span("/examples/run", 10.0, 10.25)
    """
    for listener in _spans:
        listener(event, start_time, end_time, **kwargs)


def record_scalar(event: str, value: float | int, **kwargs: str | int) -> None:
    """Tells the listeners of scalars a value.

    Args:
        event, kwargs: as for `record_event`.
        value: a number.

    Example:
        >>> ferrax.monitoring.record_scalar("/examples/loss", 0.5)
    """
    for listener in _scalars:
        listener(event, value, **kwargs)


def record_elapsed(event: str, seconds: float, fun_name: str) -> None:
    """Records something that ended now and took so long: as scalar (when it began), duration and span."""
    end = time.time()
    record_scalar(event, end - seconds, fun_name=fun_name)
    record_event_duration_secs(event, seconds, fun_name=fun_name)
    record_event_time_span(event, end - seconds, end, fun_name=fun_name)


def register_event_listener(callback: EventListener) -> None:
    """Has `callback(event, **metadata)` called by each `record_event`.

    ferrax records events of the cache of compiled programs on disk, when one was asked for: their names begin with
    "/jax/compilation_cache/" and end with "compile_requests_use_cache", "cache_hits", "cache_misses" and, once,
    "tasks_using_cache" or "task_disabled_cache".

    Example:
        >>> seen = []
        >>> listener = lambda event, **metadata: seen.append((event, metadata))
        >>> ferrax.monitoring.register_event_listener(listener)
        >>> ferrax.monitoring.record_event("/examples/run", user="me")
        >>> ferrax.monitoring.unregister_event_listener(listener)
        >>> seen
        [('/examples/run', {'user': 'me'})]
    """
    global _events
    _events = (*_events, callback)
    _changed()


def register_event_duration_secs_listener(callback: DurationListener) -> None:
    """Has `callback(event, seconds, **metadata)` called by each `record_event_duration_secs`.

    ferrax records these events itself. With the function's name as `fun_name`:
    "/jax/core/compile/jaxpr_trace_duration" when `jit` has traced a function and
    "/jax/core/compile/backend_compile_duration" when a program was compiled. They are recorded as
    time spans, and their beginnings as scalars, too. Without metadata:
    "/jax/compilation_cache/cache_retrieval_time_sec" when a program was found on disk.

    Example:
        >>> compiled = []
        >>> def listener(event, seconds, **metadata):
        ...     if event.endswith("backend_compile_duration"):
        ...         compiled.append(metadata["fun_name"])
        >>> ferrax.monitoring.register_event_duration_secs_listener(listener)
        >>> def twice(x):
        ...     return 2 * x
        >>> _ = ferrax.jit(twice)(3.0)
        >>> ferrax.monitoring.unregister_event_duration_listener(listener)
        >>> compiled
        ['jit(twice)']
    """
    global _durations
    _durations = (*_durations, callback)
    _changed()


def register_event_time_span_listener(callback: TimeSpanListener) -> None:
    """Has `callback(event, start_time, end_time, **metadata)` called by each `record_event_time_span`.

    ferrax's own events are those that `register_event_duration_secs_listener` names.

    Example:
        >>> listener = lambda event, start, end, **metadata: print(event, end - start)
        >>> ferrax.monitoring.register_event_time_span_listener(listener)
        >>> ferrax.monitoring.record_event_time_span("/examples/run", 10.0, 10.25)
        /examples/run 0.25
        >>> ferrax.monitoring.unregister_event_time_span_listener(listener)
    """
    global _spans
    _spans = (*_spans, callback)
    _changed()


def register_scalar_listener(callback: ScalarListener) -> None:
    """Has `callback(event, value, **metadata)` called by each `record_scalar`.

    Example:
        >>> listener = lambda event, value, **metadata: print(event, value)
        >>> ferrax.monitoring.register_scalar_listener(listener)
        >>> ferrax.monitoring.record_scalar("/examples/loss", 0.5)
        /examples/loss 0.5
        >>> ferrax.monitoring.unregister_scalar_listener(listener)
    """
    global _scalars
    _scalars = (*_scalars, callback)
    _changed()


def unregister_event_listener(callback: EventListener) -> None:
    """Undoes one `register_event_listener(callback)`. AssertionError if there was none.

    >>> ferrax.monitoring.register_event_listener(print)
    >>> ferrax.monitoring.unregister_event_listener(print)
    """
    global _events
    _events = _without(_events, callback)
    _changed()


def unregister_event_duration_listener(callback: DurationListener) -> None:
    """Undoes one `register_event_duration_secs_listener(callback)`. AssertionError if there was none.

    >>> ferrax.monitoring.register_event_duration_secs_listener(print)
    >>> ferrax.monitoring.unregister_event_duration_listener(print)
    """
    global _durations
    _durations = _without(_durations, callback)
    _changed()


def unregister_event_time_span_listener(callback: TimeSpanListener) -> None:
    """Undoes one `register_event_time_span_listener(callback)`. AssertionError if there was none.

    >>> ferrax.monitoring.register_event_time_span_listener(print)
    >>> ferrax.monitoring.unregister_event_time_span_listener(print)
    """
    global _spans
    _spans = _without(_spans, callback)
    _changed()


def unregister_scalar_listener(callback: ScalarListener) -> None:
    """Undoes one `register_scalar_listener(callback)`. AssertionError if there was none.

    >>> ferrax.monitoring.register_scalar_listener(print)
    >>> ferrax.monitoring.unregister_scalar_listener(print)
    """
    global _scalars
    _scalars = _without(_scalars, callback)
    _changed()


def clear_event_listeners() -> None:
    """Unregisters all listeners, of all kinds.

    >>> ferrax.monitoring.clear_event_listeners()
    """
    global _events, _durations, _spans, _scalars
    _events, _durations, _spans, _scalars = (), (), (), ()
    _changed()
