"""Calls of Python functions as events of a profile.

In: what the interpreter tells of calls, by `sys.monitoring` where there is that (Python 3.12), else by profile
functions of threads. Out: an event of a call that took long enough, called `$file.py:12 function`. By `sys.monitoring`
functions that are left out are asked about once and then cost nothing; calls of all threads are seen. By profile
functions each call asks a table, and only the thread that starts the profile and those that start later are seen.
Cost: about a microsecond a call of a function that is seen.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import threading
import warnings
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any, Protocol

from ferrax._src.base.errors import PACKAGE_DIRECTORY, user_stacklevel

# What events are made by: a name, then when a call began and ended, in nanoseconds.
_Label = Callable[[str], Any]


class Tracer(Protocol):
    """What records calls until it is stopped, and the names of the threads that it saw, by the system's numbers."""

    names: dict[int, str]

    def stop(self) -> None: ...


class _Calls:
    """Calls that are running, by thread, and those that have ended."""

    def __init__(self, label: _Label, now: Callable[[], int], level: int, shortest: int) -> None:
        self._label, self._now = label, now
        self._all = level > 1
        # Nanoseconds.
        self._shortest = 0 if self._all else shortest
        self._labels: dict[CodeType, Any] = {}
        self.names: dict[int, str] = {}
        self._local = threading.local()
        paths = sysconfig.get_paths()
        # Libraries that were installed are in folders of the standard library's.
        self._others = tuple(os.path.join(paths[key], "") for key in ("purelib", "platlib"))
        self._standard = tuple(os.path.join(paths[key], "") for key in ("stdlib", "platstdlib"))

    def is_seen(self, code: CodeType) -> bool:
        """Whether calls of it are recorded."""
        if self._all:
            return True
        name = code.co_filename
        if name.startswith((PACKAGE_DIRECTORY, "<frozen", "<__array_function__")):
            return False
        return name.startswith(self._others) or not name.startswith(self._standard)

    def begun(self, code: CodeType) -> None:
        """Notes that a call begins on this thread."""
        try:
            running = self._local.running
        except AttributeError:
            running = self._local.running = []
            # Known here also of threads that end before the profile does.
            thread = threading.current_thread()
            if thread.native_id is not None:
                self.names[thread.native_id] = thread.name
        running.append((code, self._now()))

    def ended(self, code: CodeType) -> None:
        """Notes that it ends; calls within it whose end nobody told have ended, too."""
        running = getattr(self._local, "running", [])
        if not running or running[-1][0] is not code and all(known is not code for known, _ in running):
            # It began before the profile did.
            return
        end = self._now()
        while running:
            known, begin = running.pop()
            if end - begin >= self._shortest:
                self._record(known, begin, end)
            if known is code:
                return

    def _record(self, code: CodeType, begin: int, end: int) -> None:
        label = self._labels.get(code)
        if label is None:
            file = os.path.basename(code.co_filename)
            label = self._labels[code] = self._label(f"${file}:{code.co_firstlineno} {code.co_name}")
        label.record(begin, end)


class _ByMonitoring:
    """Calls as `sys.monitoring` tells them."""

    def __init__(self, calls: _Calls) -> None:
        monitoring: Any = sys.monitoring  # type: ignore[attr-defined, unused-ignore]  # of Python 3.12
        self._monitoring, self.names = monitoring, calls.names
        # The number that is meant for profilers, or one that nobody has a meaning for.
        free = (tool for tool in (monitoring.PROFILER_ID, 3, 4) if monitoring.get_tool(tool) is None)
        self._tool = next(free, None)
        if self._tool is None:
            _warn_of_other()
            return
        monitoring.use_tool_id(self._tool, "ferrax.profiler")
        events, disable = monitoring.events, monitoring.DISABLE

        def begun(code: CodeType, *_: Any) -> Any:
            if not calls.is_seen(code):
                return disable
            calls.begun(code)
            return None

        def ended(code: CodeType, *_: Any) -> Any:
            if not calls.is_seen(code):
                return disable
            calls.ended(code)
            return None

        def left(code: CodeType, *_: Any) -> None:
            # Events of exceptions cannot be turned off for a function.
            if calls.is_seen(code):
                calls.ended(code)

        handlers = {
            events.PY_START: begun,
            events.PY_RESUME: begun,
            events.PY_RETURN: ended,
            events.PY_YIELD: ended,
            events.PY_UNWIND: left,
            events.PY_THROW: lambda code, *_: begun(code) and None,
        }
        for event, handler in handlers.items():
            monitoring.register_callback(self._tool, event, handler)
        self._events = list(handlers)
        # What another profile turned off is asked about again.
        monitoring.restart_events()
        monitoring.set_events(self._tool, sum(handlers))

    def stop(self) -> None:
        """Records no more."""
        if self._tool is None:
            return
        self._monitoring.set_events(self._tool, 0)
        for event in self._events:
            self._monitoring.register_callback(self._tool, event, None)
        self._monitoring.free_tool_id(self._tool)
        self._tool = None


class _ByProfileFunction:
    """Calls as profile functions of threads are told them."""

    def __init__(self, calls: _Calls) -> None:
        self._calls, self.names = calls, calls.names
        self._stopped = False
        self._thread = threading.get_ident()
        self._known: dict[CodeType, bool] = {}
        self._installed = sys.getprofile() is None
        if not self._installed:
            _warn_of_other()
            return
        self._before = threading.getprofile()
        threading.setprofile(self._told)
        sys.setprofile(self._told)

    def _told(self, frame: FrameType, event: str, _: Any) -> None:
        if self._stopped:
            # A thread that began while the profile was taken.
            sys.setprofile(None)
            return
        if event not in ("call", "return"):
            return
        code = frame.f_code
        seen = self._known.get(code)
        if seen is None:
            seen = self._known[code] = self._calls.is_seen(code)
        if seen:
            (self._calls.begun if event == "call" else self._calls.ended)(code)

    def stop(self) -> None:
        """Records no more. The thread that started the profile, if this is another, notices at its next call."""
        self._stopped = True
        if not self._installed:
            return
        threading.setprofile(self._before)
        if threading.get_ident() == self._thread:
            sys.setprofile(None)


def _warn_of_other() -> None:
    warnings.warn(
        "another profiler is told of Python's calls, so this profile has none; set "
        "ProfileOptions.python_tracer_level = 0 to leave them out",
        RuntimeWarning,
        stacklevel=user_stacklevel(),
    )


def start(level: int, shortest: int, label: _Label, now: Callable[[], int]) -> Tracer | None:
    """Records calls from now on: of what `level` says, that take `shortest` nanoseconds at least; None for level 0."""
    if not level:
        return None
    calls = _Calls(label, now, level, shortest)
    return _ByMonitoring(calls) if hasattr(sys, "monitoring") else _ByProfileFunction(calls)
