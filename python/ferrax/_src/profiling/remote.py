"""Profiles of other processes of this machine that take part in this one's.

In: ports at which such processes called `start_server`. Out: their planes, called `/host:CPU [PID]`, with times that
count from when this process's profile began. A process that does not answer is left out with a warning.
"""

from __future__ import annotations

import json
import os
import threading
import warnings
import weakref
from collections.abc import Callable

from ferrax._src.base.errors import JaxRuntimeError, user_stacklevel
from ferrax._src.profiling import space
from ferrax._src.profiling.options import ProfileOptions
from ferrax._src.profiling.wire import MalformedError

# Seconds in which a process of this machine answers; its profile may be large.
_ANSWER, _PROFILE = 5.0, 60.0
# The options that another process's profile has, too.
SENT = ("host_tracer_level", "python_tracer_level", "device_tracer_level", "duration_ms")
_registered: dict[int, int] = {}
_lock = threading.Lock()


def _forget() -> None:
    global _lock
    _registered.clear()
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def ask(port: int, path: str, body: bytes | None, timeout: float) -> bytes:
    """What the server at a port of this machine answers. Errors: OSError."""
    import urllib.request  # what is seldom needed

    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data=body)
    # Not by way of a proxy: it is this machine.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=timeout) as answer:
        return bytes(answer.read())


class _Registration:
    """Unregisters a process when it is called, or collected."""

    def __init__(self, pid: int) -> None:
        self._end = weakref.finalize(self, _registered.pop, pid, None)
        self._end.atexit = False

    def __call__(self) -> None:
        self._end()


def register_subprocess(pid: int, port: int) -> Callable[[], None]:
    """Has profiles of this process contain another's, if their options say so.

    The options say so by `advanced_configuration = {"profile_subprocesses": True}`.

    Args: pid: the number of a process of this machine; port: where it called `start_server`. Returns: a function that
    ends this when it is called, or when nobody refers to it.

    Errors: TypeError for what are no integers; RuntimeError if the process is registered already; JaxRuntimeError
    if nothing answers at the port.

    Example:
        >>> import os
        >>> ferrax.profiler.register_subprocess(os.getpid(), 1)
        Traceback (most recent call last):
            ...
        ferrax.errors.JaxRuntimeError: no profiler server answers at port 1: ...
    """
    if not isinstance(pid, int) or not isinstance(port, int):
        raise TypeError(f"register_subprocess takes integers, got {pid!r} and {port!r}")
    if pid in _registered:
        raise RuntimeError(f"the process {pid} is registered already")
    try:
        ask(port, "/", None, _ANSWER)
    except (OSError, ValueError) as error:
        raise JaxRuntimeError(f"no profiler server answers at port {port}: {error}") from error
    with _lock:
        _registered[pid] = port
    return _Registration(pid)


class Capture:
    """The profile of another process, while it is taken."""

    def __init__(self, pid: int, port: int) -> None:
        self.pid, self.port = pid, port

    def end(self, begun: int = 0) -> list[space.Plane]:
        """Ends it; its planes, with times from `begun` on, in nanoseconds since 1970."""
        try:
            found = space.decode(ask(self.port, "/end", b"{}", _PROFILE))
        except (OSError, MalformedError) as error:
            _left_out(self.pid, error)
            return []
        clock = found.plane("Task Environment")
        own = dict(clock.stats).get("profile_start_time") if clock is not None else None
        shift = own - begun if begun and isinstance(own, int) else 0
        planes = [plane for plane in found.planes if plane.lines]
        for plane in planes:
            plane.name = f"{plane.name} [{self.pid}]"
            for line in plane.lines:
                line.begin += shift
        return planes


def _left_out(pid: int, error: Exception) -> None:
    text = f"the profile is without the process {pid}: {error}"
    warnings.warn(text, RuntimeWarning, stacklevel=user_stacklevel())


def begin(options: ProfileOptions) -> list[Capture]:
    """Has all registered processes begin profiles with these options."""
    body = json.dumps({name: getattr(options, name) for name in SENT}).encode()
    captures = []
    for pid, port in list(_registered.items()):
        try:
            ask(port, "/begin", body, _ANSWER)
        except OSError as error:
            _left_out(pid, error)
        else:
            captures.append(Capture(pid, port))
    return captures
