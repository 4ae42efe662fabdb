"""A profile as a table of kernels, and as a page (`flame`).

In: a profile that was written, or read. Out: for each kind of thing that ran how long it took and how often; for
kernels the user's line. Times are a thing's own: without what ran within it on the same thread and is in the table,
too. What helpers of the thread pool do is part of the steps that they help with. Cost: linear, after sorting.
"""

from __future__ import annotations

import glob
import os
import sys
from collections.abc import Iterator
from typing import NamedTuple, TextIO

from ferrax._src.profiling import flame, session
from ferrax._src.profiling.data import ProfileData
from ferrax._src.profiling.space import Line, Plane, Shown, Space

# Of what the first table is, in profiles by ferrax; the other kinds have totals.
_KERNELS = ("kernel", "library")
_TOTALS = {"compile": "compiling", "transfer": "transfers", "callback": "callbacks", "": "marks and Python functions"}


class Row(NamedTuple):
    """What ran under one name at one line: picoseconds of its own, and how often."""

    kind: str
    name: str
    source: str
    own: int
    calls: int


class Nested(NamedTuple):
    """An event among others: what it shows, its begin and duration in picoseconds, how many are around it, the time of
    what is directly in it, and the user's line of the innermost around it that has one."""

    shown: Shown
    begin: int
    duration: int
    depth: int
    inner: int
    source: str


def nested(line: Line) -> Iterator[Nested]:
    """The events of a line, each after those within it; shares of the thread pool count as what they are in."""
    events = sorted(line.events, key=lambda event: (event.offset, -event.duration))
    begin = 1000 * line.begin
    # Of what is open: the event, the time of what is in it, its line.
    stack: list[tuple[Shown, int, int, int, str]] = []

    def close() -> Nested:
        shown, offset, duration, inner, source = stack.pop()
        if stack:
            outer = stack[-1]
            stack[-1] = (*outer[:3], outer[3] + duration, outer[4])
        return Nested(shown, begin + offset, duration, len(stack), inner, source)

    for shown, offset, duration in events:
        while stack and stack[-1][1] + stack[-1][2] <= offset:
            yield close()
        # What a mark of the user's calls a source is none.
        own = stat(shown, "source") if stat(shown, "kind") else ""
        source = own or (stack[-1][4] if stack else "")
        stack.append((shown, offset, duration, 0, source))
    while stack:
        yield close()


def stat(shown: Shown, name: str) -> str:
    """A value that an event shows, as text; "" if it has none."""
    return next((str(value) for key, value in shown.stats if key == name), "")


def rows(planes: list[Plane]) -> list[Row]:
    """What ran, what took longest first."""
    found: dict[tuple[str, str, str], list[int]] = {}
    for plane in planes:
        for line in plane.lines:
            for event in nested(line):
                kind = stat(event.shown, "kind")
                if kind == "share":
                    continue
                total = found.setdefault((kind, event.shown.name, event.source), [0, 0])
                total[0] += max(event.duration - event.inner, 0)
                total[1] += 1
    made = [Row(*key, own, calls) for key, (own, calls) in found.items()]
    return sorted(made, key=lambda row: (-row.own, row.name, row.source))


def table(space: Space, top: int) -> str:
    """The profile as text."""
    every = rows(space.planes)
    kernels = [row for row in every if row.kind in _KERNELS]
    spent = sum(row.own for row in kernels)
    lines = [f"{'own ms':>10}  {'share':>6}  {'calls':>8}  {'mean us':>10}  kernel, and the line that it is of"]
    for row in kernels[:top]:
        at = f"  {row.source}" if row.source else ""
        lines.append(
            f"{row.own / 1e9:10.3f}  {row.own / max(spent, 1):6.1%}  {row.calls:8}  "
            f"{row.own / row.calls / 1e6:10.2f}  {row.name}{at}"
        )
    if len(kernels) > top:
        rest = kernels[top:]
        own, calls = sum(row.own for row in rest), sum(row.calls for row in rest)
        lines.append(f"{own / 1e9:10.3f}  {own / max(spent, 1):6.1%}  {calls:8}  {'':10}  {len(rest)} more")
    lines.append(f"{spent / 1e9:10.3f} ms in kernels")
    for kind, what in _TOTALS.items():
        own = sum(row.own for row in every if row.kind == kind)
        calls = sum(row.calls for row in every if row.kind == kind)
        if calls:
            lines.append(f"{own / 1e9:10.3f} ms in {calls} {what}")
    own = sum(row.own for row in every if row.kind == "call")
    calls = sum(row.calls for row in every if row.kind == "call")
    if calls:
        lines.append(f"{own / 1e9:10.3f} ms in {calls} calls, beside what they compile and run")
    stats = [found for plane in space.planes for found in plane.stats if found[0] == "dropped_events"]
    dropped = sum(value for _, value in stats if isinstance(value, int))
    if dropped:
        lines.append(f"{dropped} events are missing, the oldest: there was no room for them")
    return "\n".join(lines)


def report(
    trace: str | os.PathLike[str] | ProfileData | None = None,
    *,
    html: str | os.PathLike[str] | None = None,
    top: int = 20,
    file: TextIO | None = None,
) -> str | None:
    """Prints which kernels took how long, at which of the user's lines, and writes a page that shows when.

    The page is one file that needs nothing else: a chart of each thread, in which the wheel zooms and names tell
    more, above the table.

    Args: trace: the folder that `ferrax.profiler.trace` was given, or the one of a single profile in it, or a file of
    XPlane, or what was read of one; None: the profile that this process wrote last. html: the path of the page, by
    default `report.html` beside the profile; what is given as ProfileData has a page only if this is given. top: how
    many kernels are listed. file: where to print, standard output by default.

    Returns: the path of the page, or None if there is none.

    Errors: ValueError if no profile was written yet, and for `top` below 1; FileNotFoundError where there is no
    profile; TypeError for other kinds of `trace`; RuntimeError for a file that is no profile; OSError if the page
    cannot be written.

    Example:
        >>> import io, tempfile
        >>> f = ferrax.jit(lambda x: jnp.tanh(x) + 1)
        >>> with ferrax.profiler.trace(tempfile.mkdtemp()):
        ...     y = f(jnp.ones(1000))
        >>> out = io.StringIO()
        >>> page = ferrax.profiler.report(file=out)
        >>> "tanh_add" in out.getvalue()
        True
    """
    if not isinstance(top, int) or top < 1:
        raise ValueError(f"report: top is how many kernels are listed, 1 at least, got {top!r}")
    if isinstance(trace, ProfileData):
        space, beside = trace._space, None
    else:
        path = _find(trace)
        space, beside = ProfileData.from_file(path)._space, os.path.dirname(path)
    text = table(space, top)
    print(text, file=sys.stdout if file is None else file)
    if html is None and beside is None:
        return None
    page = os.path.join(beside, "report.html") if html is None and beside is not None else os.fspath(html or "")
    lines = [(plane.name, line.name, list(nested(line))) for plane in space.planes for line in plane.lines]
    with open(page, "w", encoding="utf-8") as out:
        out.write(flame.page(lines, text))
    return page


def _find(trace: str | os.PathLike[str] | None) -> str:
    """The file of a profile: of several in a folder the one that was written last."""
    if trace is None:
        if session.state.last is None:
            raise ValueError("report: no profile was written by this process yet; give the folder of one")
        trace = session.state.last
    if not isinstance(trace, str | os.PathLike):
        raise TypeError(f"report takes a path or a ProfileData, got {type(trace).__name__}")
    path = os.fspath(trace)
    if os.path.isfile(path):
        return path
    within = glob.escape(path)
    found = glob.glob(os.path.join(within, "*.xplane.pb"))
    found += glob.glob(os.path.join(within, "plugins", "profile", "*", "*.xplane.pb"))
    if not found:
        raise FileNotFoundError(f"report: there is no profile in {path} (no *.xplane.pb)")
    return max(found, key=os.path.getmtime)
