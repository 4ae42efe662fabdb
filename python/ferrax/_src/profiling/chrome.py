"""A profile as a Chrome trace, which Perfetto and `chrome://tracing` show.

In: a `Space`. Out: JSON, and, for Perfetto's page, a server that hands it out once. Cost: linear, about a
microsecond an event. Format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator

from ferrax._src.profiling.space import Plane, Shown, Space

# Where Perfetto's page looks for files of this machine.
_PORT = 9001


def trace(space: Space, metadata: bool = True) -> bytes:
    """The trace, as JSON that is packed by gzip; Perfetto shows nothing of one with `metadata`."""
    head = '{"displayTimeUnit":"ns",' + ('"metadata":{"highres-ticks":true},' if metadata else "")
    planes = [plane for plane in space.planes if plane.lines]
    events = ",\n".join(event for number, plane in enumerate(planes, 1) for event in _events(number, plane))
    return gzip.compress((head + '"traceEvents":[\n' + events + "\n]}").encode(), 2)


def _events(number: int, plane: Plane) -> Iterator[str]:
    yield json.dumps({"ph": "M", "pid": number, "name": "process_name", "args": {"name": plane.name}})
    ends: dict[int, str] = {}
    for row, line in enumerate(plane.lines, 1):
        yield json.dumps({"ph": "M", "pid": number, "tid": row, "name": "thread_name", "args": {"name": line.name}})
        begin, head = line.begin / 1e3, f'{{"ph":"X","pid":{number},"tid":{row},"ts":'
        for shown, offset, duration in line.events:
            end = ends.get(id(shown))
            if end is None:
                end = ends[id(shown)] = _end(shown)
            yield f'{head}{begin + offset / 1e6:.6f},"dur":{duration / 1e6:.6f},{end}}}'


def _end(shown: Shown) -> str:
    """The part of an event that is the same for all that show the same."""
    args = {str(name): str(value) for name, value in shown.stats if name is not None and name != "_r"}
    return f'"name":{json.dumps(shown.name)},"args":{json.dumps(args)}'


def serve_once(path: str, port: int = _PORT) -> None:
    """Prints a link to Perfetto's page that loads the file, and waits until it has.

    Errors: OSError if the port is taken.
    """
    import http.server  # what is seldom needed

    with open(path, "rb") as file:
        body = file.read()
    name = "/" + path.replace("\\", "/").rsplit("/", 1)[-1]
    handed_out: list[bool] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        """Hands out that one file, to Perfetto's page alone."""

        def do_GET(self) -> None:
            found = self.path == name
            self.send_response(200 if found else 404)
            self.send_header("Access-Control-Allow-Origin", "https://ui.perfetto.dev")
            self.send_header("Content-Type", "application/gzip")
            self.send_header("Content-Length", str(len(body) if found else 0))
            self.end_headers()
            if found:
                self.wfile.write(body)
                handed_out.append(True)

        def log_message(self, format: str, *args: object) -> None:
            """Says nothing of requests."""

    class Server(http.server.HTTPServer):
        allow_reuse_address = True

    with Server(("127.0.0.1", port), Handler) as server:
        print(f"The profile in Perfetto: https://ui.perfetto.dev/#!/?url=http://127.0.0.1:{port}{name}", flush=True)
        while not handed_out:
            server.handle_request()
