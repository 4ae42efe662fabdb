"""Profiles of this process for others: a small server on this machine.

In: requests by HTTP. Out: profiles as JSON or XPlane, and what is in memory. It is not TensorBoard's protocol
(gRPC), whose capture button does not reach it. It listens at 127.0.0.1 alone; from elsewhere it is reached through a
tunnel.

    GET  /                          who answers, as JSON
    GET  /profile?duration_ms=1000  a profile from now on, as a Chrome trace; further options of `ProfileOptions` as
    well GET  /xplane?duration_ms=1000   the same as XPlane
    GET  /memory                    what is in memory, for pprof
    POST /begin, /end               a profile from one to the other, as XPlane; options as JSON
"""

from __future__ import annotations

import json
import os
import threading
import time
from typing import Any

from ferrax._core import __version__
from ferrax._src.base.errors import JaxRuntimeError
from ferrax._src.core import devices
from ferrax._src.profiling import chrome, memory, remote
from ferrax._src.profiling.options import ProfileOptions
from ferrax._src.profiling.recorder import Recording
from ferrax._src.profiling.space import Space, encode

# The longest profile that is taken for a request.
_LONGEST_MS = 60_000
_JSON, _BYTES = "application/json", "application/octet-stream"


class _Refused(Exception):
    """A request that is not answered: a status and why."""


class _Captures:
    """The profile that was begun for somebody else, of which there is one at a time."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.recording: Recording | None = None

    def begin(self, options: ProfileOptions) -> None:
        with self.lock:
            try:
                self.recording = Recording(options)
            except RuntimeError as error:
                raise _Refused(409, str(error)) from error

    def end(self) -> Space:
        with self.lock:
            recording, self.recording = self.recording, None
            if recording is None:
                raise _Refused(409, "no profile was begun")
            return recording.stop()

    def during(self, options: ProfileOptions) -> Space:
        """A profile of so long from now on."""
        duration = options.duration_ms or 1000
        if duration > _LONGEST_MS:
            raise _Refused(400, f"duration_ms is {_LONGEST_MS} at most, got {duration}")
        self.begin(options)
        time.sleep(duration / 1000)
        return self.end()


def _options(given: dict[str, Any]) -> ProfileOptions:
    """The options of a request, whose values are integers or texts of such."""
    options = ProfileOptions()
    for name, value in given.items():
        if name not in remote.SENT:
            raise _Refused(400, f"there is no option {name}; there are {', '.join(remote.SENT)}")
        try:
            setattr(options, name, int(value))
        except (TypeError, ValueError) as error:
            raise _Refused(400, f"{name} takes an integer from 0 on, got {value!r}") from error
    return options


class ProfilerServer:
    """A server of profiles of this process.

    Attributes: `port`, where it listens on this machine.
    """

    def __init__(self, port: int) -> None:
        import http.server  # what is seldom needed
        import urllib.parse  # what is seldom needed

        captures = _Captures()

        class Handler(http.server.BaseHTTPRequestHandler):
            """Answers a request."""

            def do_GET(self) -> None:
                self._answer(self._get)

            def do_POST(self) -> None:
                self._answer(self._post)

            def _answer(self, made: Any) -> None:
                try:
                    status, (kind, body) = 200, made()
                except _Refused as refused:
                    status, why = refused.args
                    kind, body = _JSON, json.dumps({"error": why}).encode()
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                if body[:2] == b"\x1f\x8b" and kind == _JSON:
                    self.send_header("Content-Encoding", "gzip")
                self.end_headers()
                self.wfile.write(body)

            def _get(self) -> tuple[str, bytes]:
                asked = urllib.parse.urlsplit(self.path)
                query = dict(urllib.parse.parse_qsl(asked.query))
                if asked.path == "/":
                    about = {"process_id": os.getpid(), "ferrax_version": __version__}
                    return _JSON, json.dumps(about).encode()
                if asked.path == "/profile":
                    return _JSON, chrome.trace(captures.during(_options(query)))
                if asked.path == "/xplane":
                    return _BYTES, encode(captures.during(_options(query)))
                if asked.path == "/memory":
                    return _BYTES, memory.device_memory_profile()
                raise _Refused(404, "there are /, /profile, /xplane and /memory")

            def _post(self) -> tuple[str, bytes]:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                if self.path == "/begin":
                    try:
                        given = json.loads(body or b"{}")
                    except ValueError as error:
                        raise _Refused(400, f"options are JSON: {error}") from error
                    if not isinstance(given, dict):
                        raise _Refused(400, "options are an object of JSON")
                    captures.begin(_options(given))
                    return _JSON, b"{}"
                if self.path == "/end":
                    return _BYTES, encode(captures.end())
                raise _Refused(404, "there are /begin and /end")

            def log_message(self, format: str, *args: object) -> None:
                """Says nothing of requests."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]
        thread = threading.Thread(target=self._server.serve_forever, name="ferrax profiler server", daemon=True)
        thread.start()

    def stop(self) -> None:
        """Listens no more."""
        self._server.shutdown()
        self._server.server_close()

    def close_in_child(self) -> None:
        """Leaves the port to the process that this one was forked from."""
        self._server.socket.close()


class _State:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.server: ProfilerServer | None = None

    def forget(self) -> None:
        """In the child of a fork, which has no thread that listens."""
        if self.server is not None:
            self.server.close_in_child()
        self.__init__()  # type: ignore[misc]  # as it began


_state = _State()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_state.forget)


def start_server(port: int, requires_backend: bool = True) -> ProfilerServer:
    """Answers requests for profiles of this process, at a port of this machine.

    `GET /profile?duration_ms=1000` gives a Chrome trace, `/xplane` the same for TensorBoard, `/memory` what is in
    memory. TensorBoard's own capture button speaks another protocol (gRPC), which is not answered.

    Args: port: where to listen, 0 for any that is free; requires_backend: whether devices are looked for first.
    Returns: the server, whose `port` says where it listens.

    Errors: TypeError for what is no integer; ValueError if there is a server, and for numbers that no port has;
    JaxRuntimeError if the port is taken.

    Example:
        >>> server = ferrax.profiler.start_server(0)
        >>> server.port > 0
        True
        >>> ferrax.profiler.stop_server()
    """
    if not isinstance(port, int):
        raise TypeError(f"start_server takes a port as int, got {type(port).__name__}")
    if not 0 <= port < 1 << 16:
        raise ValueError(f"ports are numbers from 0 to 65535, got {port}")
    with _state.lock:
        if _state.server is not None:
            raise ValueError("a profiler server is listening already, and there is one at a time")
        if requires_backend:
            devices.local_devices()
        try:
            _state.server = ProfilerServer(port)
        except OSError as error:
            raise JaxRuntimeError(f"the profiler server cannot listen at port {port}: {error}") from error
        return _state.server


def stop_server() -> None:
    """Ends what `start_server` began.

    Errors: ValueError if there is no server.

    Example:
        >>> server = ferrax.profiler.start_server(0)
        >>> ferrax.profiler.stop_server()
    """
    with _state.lock:
        server, _state.server = _state.server, None
        if server is None:
            raise ValueError("no profiler server is listening: start_server begins one")
        server.stop()
