"""Recording: from options to a profile as data.

In: what is recorded, and what the native core, the Python tracer and GPUs then tell. Out: a `Space`, whose times
count from when recording began. One recording at a time; the child of a fork has none. Cost: that of events while
they happen (see `rust/ferrax-compile/src/profile.rs`), and about a microsecond for each when recording ends.
"""

from __future__ import annotations

import os
import platform
import threading
import time
import warnings
from typing import NamedTuple

import numpy as np

from ferrax import _core
from ferrax._core import __version__
from ferrax._src.base.errors import JaxRuntimeError, user_stacklevel
from ferrax._src.core import devices
from ferrax._src.profiling import options as _options, python_tracer
from ferrax._src.profiling.space import Event, Line, Plane, Shown, Space

HOST = "/host:CPU"
_NO_END = (1 << 64) - 1


class _Gpu(NamedTuple):
    """A GPU that tells its times."""

    device: devices.Device
    # By which calls that run on it are known.
    call: str


class Recording:
    """A recording from its start on.

    Errors: RuntimeError if there is one; JaxRuntimeError if a GPU cannot tell its times and the options want an error;
    else as `options.checked`.
    """

    def __init__(self, given: _options.ProfileOptions | None = None) -> None:
        options, advanced = _options.checked(given)
        began, now = time.time_ns(), _core.profile_now()
        wait = max(options.start_timestamp_ns - began, 0) if options.start_timestamp_ns else 0
        # Times count from here: nanoseconds since 1970, and of the core.
        self.started, self._begin = began + wait, now + wait
        self._has_marks = options.host_tracer_level > 0
        end = self._begin + options.duration_ms * 1_000_000 if options.duration_ms else _NO_END
        if not _core.profile_start(_level(options), advanced[_options.EVENTS], self._begin, min(end, _NO_END)):
            raise RuntimeError("a profile is being taken already, and there is one at a time")
        self._names = _thread_names()
        self._gpus: list[_Gpu] = []
        try:
            if options.device_tracer_level:
                self._begin_gpus(options.raise_error_on_start_failure)
            self._tracer = python_tracer.start(
                options.python_tracer_level,
                advanced[_options.SHORTEST] * 1000,
                _core.ProfileLabel,
                _core.profile_now,
            )
        except BaseException:
            _core.profile_stop()
            self._end_gpus()
            raise

    def _begin_gpus(self, strict: bool) -> None:
        for device in devices.opened_gpus:
            try:
                _core.device_begin_profile(device._number)
            except Exception as error:
                if strict:
                    raise JaxRuntimeError(f"{device} cannot tell its times: {error}") from error
                text = f"the profile has no times of {device}: {error}"
                warnings.warn(text, RuntimeWarning, stacklevel=user_stacklevel())
            else:
                self._gpus.append(_Gpu(device, f"run on device {device._number}"))

    def _end_gpus(self) -> list[tuple[_Gpu, list[tuple[str, float, float, bool]]]]:
        gpus, self._gpus = self._gpus, []
        return [(gpu, _core.device_end_profile(gpu.device._number)) for gpu in gpus]

    def stop(self) -> Space:
        """Ends the recording and gives what was recorded. Warns if events were dropped."""
        if self._tracer is not None:
            self._tracer.stop()
        on_gpus = self._end_gpus()
        whats, threads = _core.profile_stop()
        stopped = time.time_ns()
        # Marks that show the same are one.
        known: dict[tuple[Shown, str], Shown] = {}
        wanted = (_shown(*what) if self._is_wanted(*what[:2]) else None for what in whats)
        # By their text as well: 1 is not 1.0.
        shown = [None if what is None else known.setdefault((what, repr(what.stats)), what) for what in wanted]
        seen = {} if self._tracer is None else self._tracer.names
        names = {**seen, **self._names, **_thread_names()}
        lines, dropped = [], 0
        for number, name, missing, packed in threads:
            dropped += missing
            events = self._events(shown, packed)
            if events:
                lines.append(Line(number, name or names.get(number) or f"thread {number}", events))
        if dropped:
            warnings.warn(
                f"the profile has no room for {dropped} events, the oldest of their threads; record less "
                f"(ProfileOptions.host_tracer_level) or set advanced_configuration['{_options.EVENTS}']",
                RuntimeWarning,
                stacklevel=user_stacklevel(),
            )
        about = (("process_id", os.getpid()), ("dropped_events", dropped))
        planes = [Plane(HOST, lines, about)]
        planes += [_gpu_plane(gpu, events, lines) for gpu, events in on_gpus]
        times = (("profile_start_time", self.started), ("profile_stop_time", stopped))
        planes.append(Plane("Task Environment", [], times))
        planes.append(Plane("/host:metadata", [], (("ferrax_version", __version__), ("process_id", os.getpid()))))
        return Space(planes, (platform.node(),))

    def _is_wanted(self, name: str, kind: str) -> bool:
        """Whether such events are kept: marks are recorded where only functions of Python are asked for."""
        return bool(kind) or self._has_marks or name.startswith("$")

    def _events(self, shown: list[Shown | None], packed: bytes) -> list[Event]:
        """The events of a thread in the order in which they began, what is around others first."""
        numbers, begins, ends = np.frombuffer(packed, np.uint64).reshape(-1, 3).T.astype(np.int64)
        order = np.lexsort((-ends, begins))
        offsets = 1000 * (begins[order] - self._begin)
        durations = 1000 * np.maximum(ends - begins, 0)[order]
        found = zip(map(shown.__getitem__, numbers[order].tolist()), offsets.tolist(), durations.tolist())
        return [Event(what, offset, duration) for what, offset, duration in found if what is not None]


def _level(options: _options.ProfileOptions) -> int:
    """The level of the core's events; marks are asked for by the Python tracer, too."""
    return max(min(options.host_tracer_level, 3), min(options.python_tracer_level, 1))


def _shown(name: str, kind: str, line: str | None, stats: list[tuple[str, int | float | str]]) -> Shown:
    own = (("kind", kind),) if kind else ()
    source = (("source", line),) if line else ()
    return Shown(name, (*own, *source, *stats))


def _thread_names() -> dict[int, str]:
    """The names of Python's threads by the system's numbers."""
    threads = threading.enumerate()
    return {thread.native_id: thread.name for thread in threads if thread.native_id is not None}


def _gpu_plane(gpu: _Gpu, events: list[tuple[str, float, float, bool]], lines: list[Line]) -> Plane:
    """The kernels of a GPU, whose clock is moved so that the first begins with the first call that ran there."""
    offsets = [event.offset for line in lines for event in line.events if event.shown.name == gpu.call]
    shift = {False: min(offsets, default=0), True: 0}
    shown: dict[str, Shown] = {}
    rows: dict[bool, list[Event]] = {False: [], True: []}
    for name, begin, end, host in sorted(events, key=lambda event: event[1]):
        what = shown.setdefault(name, Shown(name, (("kind", "kernel"),)))
        rows[host].append(Event(what, round(1000 * begin) + shift[host], round(1000 * max(end - begin, 0))))
    named = [(1, "kernels", rows[False]), (2, "library calls on the host", rows[True])]
    return Plane(f"/device:GPU:{gpu.device.id}", [Line(*row) for row in named if row[2]])
