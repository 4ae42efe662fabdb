"""A profile as data, and its bytes: XPlane, the form that TensorBoard and `jax.profiler.ProfileData` read.

In: planes of lines of events. Out: the bytes of an XSpace message, and back. Events that show the same share one
object, so that an event is a few machine words here and about a dozen bytes there. Cost: linear, some microseconds
an event.
Format: `xplane.proto` of XLA.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ferrax._src.profiling import wire

# Numbers with a sign, floats, and texts; bytes only where others wrote them.
Stat = int | float | str | bytes


class Shown(NamedTuple):
    """What events show: a name, and values by name."""

    name: str
    stats: tuple[tuple[str | None, Stat | None], ...] = ()


class Event(NamedTuple):
    """Something that ran, in picoseconds from when its line begins."""

    shown: Shown
    offset: int
    duration: int


class Line:
    """The events of a thread; `begin` in nanoseconds."""

    __slots__ = ("id", "name", "begin", "events")

    def __init__(self, id: int, name: str, events: list[Event], begin: int = 0) -> None:
        self.id, self.name, self.events, self.begin = id, name, events, begin


class Plane:
    """The lines of a machine."""

    __slots__ = ("name", "lines", "stats")

    def __init__(
        self, name: str, lines: list[Line], stats: tuple[tuple[str | None, Stat | None], ...] = ()
    ) -> None:
        self.name, self.lines, self.stats = name, lines, stats


class Space:
    """A profile: its planes, and the names of the machines that it is of."""

    __slots__ = ("planes", "hosts")

    def __init__(self, planes: list[Plane], hosts: tuple[str, ...] = ()) -> None:
        self.planes, self.hosts = planes, hosts

    def plane(self, name: str) -> Plane | None:
        """The plane of that name."""
        return next((plane for plane in self.planes if plane.name == name), None)


def encode(space: Space) -> bytes:
    """The bytes of an XSpace."""
    planes = [wire.block(1, _plane(number, plane)) for number, plane in enumerate(space.planes, 1)]
    return b"".join(planes) + b"".join(wire.text(4, host) for host in space.hosts)


class _Names:
    """Names by number from 1 on."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def number(self, name: str) -> int:
        return self.numbers.setdefault(name, len(self.numbers) + 1)

    def metadata(self, field: int) -> bytes:
        """The table as entries of a map."""
        entries = []
        for name, number in self.numbers.items():
            key = wire.number(1, number)
            entries.append(wire.block(field, key + wire.block(2, key + wire.text(2, name))))
        return b"".join(entries)


def _plane(number: int, plane: Plane) -> bytes:
    events, stats = _Names(), _Names()
    # What is the same in all events that show the same: the name, and the stats.
    known: dict[int, tuple[bytes, bytes]] = {}
    parts = [wire.number(1, number), wire.text(2, plane.name)]
    for line in plane.lines:
        lines = [wire.number(1, line.id), wire.text(2, line.name), wire.number(3, line.begin)]
        for shown, offset, duration in line.events:
            same = known.get(id(shown))
            if same is None:
                head = wire.number(1, events.number(shown.name))
                same = head, b"".join(_stats(4, shown.stats, stats))
                known[id(shown)] = same
            body = b"%b\x10%b\x18%b%b" % (same[0], wire.varint(offset), wire.varint(duration), same[1])
            lines.append(b'"' + wire.varint(len(body)) + body)
        parts.append(wire.block(3, b"".join(lines)))
    own = list(_stats(6, plane.stats, stats))
    return b"".join([*parts, events.metadata(4), stats.metadata(5), *own])


def _stats(field: int, stats: tuple[tuple[str | None, Stat | None], ...], names: _Names) -> Iterator[bytes]:
    for name, value in stats:
        if name is None or value is None:
            continue
        key = wire.number(1, names.number(name))
        if isinstance(value, float):
            body = wire.double(2, value)
        elif isinstance(value, str):
            body = wire.text(5, value)
        elif isinstance(value, bytes):
            body = wire.block(6, value)
        else:
            # Numbers above those with a sign have a field of their own.
            body = wire.number(3 if value >> 63 == 1 else 4, value)
        yield wire.block(field, key + body)


def decode(data: bytes) -> Space:
    """The space of these bytes, by anyone.

    Errors: wire.MalformedError.
    """
    planes, hosts = [], []
    for field, value in wire.fields(data):
        if field == 1:
            planes.append(_read_plane(_bytes(value)))
        elif field == 4:
            hosts.append(_text(value))
    return Space(planes, tuple(hosts))


def _bytes(value: wire.Value) -> bytes:
    if isinstance(value, int):
        raise wire.MalformedError("a number where a message should be")
    return value


def _int(value: wire.Value) -> int:
    if not isinstance(value, int):
        raise wire.MalformedError("bytes where a number should be")
    return value


def _text(value: wire.Value) -> str:
    return _bytes(value).decode("utf-8", "replace")


def _metadata(entry: bytes) -> tuple[int, str]:
    """A number and its name, of an entry of a map."""
    number, name = 0, ""
    for field, value in wire.fields(entry):
        if field == 1:
            number = _int(value)
        elif field == 2:
            for inner, content in wire.fields(_bytes(value)):
                if inner == 2:
                    name = _text(content)
    return number, name


def _read_plane(data: bytes) -> Plane:
    name, lines, own = "", [], []
    events: dict[int, str] = {}
    names: dict[int, str] = {}
    for field, value in wire.fields(data):
        if field == 2:
            name = _text(value)
        elif field == 3:
            lines.append(_bytes(value))
        elif field == 4:
            number, text = _metadata(_bytes(value))
            events[number] = text
        elif field == 5:
            number, text = _metadata(_bytes(value))
            names[number] = text
        elif field == 6:
            own.append(_bytes(value))
    known: dict[tuple[int, bytes], Shown] = {}
    read = [_read_line(line, events, names, known) for line in lines]
    return Plane(name, read, tuple(_read_stat(stat, names) for stat in own))


def _read_line(
    data: bytes, events: dict[int, str], names: dict[int, str], known: dict[tuple[int, bytes], Shown]
) -> Line:
    number, name, begin, found = 0, "", 0, []
    for field, value in wire.fields(data):
        if field == 1:
            number = wire.signed(_int(value))
        elif field == 2:
            name = _text(value)
        elif field == 3:
            begin = wire.signed(_int(value))
        elif field == 4:
            found.append(_read_event(_bytes(value), events, names, known))
    return Line(number, name, found, begin)


# Keys of the fields of an event: three integers and its stats.
_NUMBER, _OFFSET, _DURATION, _STATS = 0x08, 0x10, 0x18, 0x22


def _event_fields(data: bytes) -> tuple[int, int, int, list[bytes]]:
    """The number of what it shows, its offset, its duration, its stats. Written out: most of a profile is events."""
    integers = {_NUMBER: 0, _OFFSET: 0, _DURATION: 0}
    stats: list[bytes] = []
    position, end = 0, len(data)
    try:
        while position < end:
            key, byte = data[position], data[position + 1]
            position += 2
            if key not in integers and key != _STATS:
                return _event_of_others(data)
            value, shift = byte & 0x7F, 7
            while byte > 0x7F:
                byte = data[position]
                position += 1
                value |= (byte & 0x7F) << shift
                shift += 7
            if key == _STATS:
                stats.append(data[position : position + value])
                position += value
            else:
                integers[key] = value
    except IndexError:
        raise wire.MalformedError("an event without an end") from None
    if position > end:
        raise wire.MalformedError("the message ends within a field")
    return integers[_NUMBER], wire.signed(integers[_OFFSET]), wire.signed(integers[_DURATION]), stats


def _event_of_others(data: bytes) -> tuple[int, int, int, list[bytes]]:
    """The same of an event with fields that have no meaning here."""
    integers, stats = [0, 0, 0, 0], []
    for field, value in wire.fields(data):
        if field in (1, 2, 3):
            integers[field] = _int(value)
        elif field == 4:
            stats.append(_bytes(value))
    return integers[1], wire.signed(integers[2]), wire.signed(integers[3]), stats


def _read_event(
    data: bytes, events: dict[int, str], names: dict[int, str], known: dict[tuple[int, bytes], Shown]
) -> Event:
    number, offset, duration, stats = _event_fields(data)
    key = number, b"\0".join(stats)
    shown = known.get(key)
    if shown is None:
        shown = Shown(events.get(number, ""), tuple(_read_stat(stat, names) for stat in stats))
        known[key] = shown
    return Event(shown, offset, duration)


def _read_stat(data: bytes, names: dict[int, str]) -> tuple[str | None, Stat | None]:
    """A name and a value; None twice where there is no such name, or no value."""
    number = 0
    found: Stat | None = None
    for field, value in wire.fields(data):
        if field == 1:
            number = _int(value)
        elif field == 2:
            found = wire.as_double(_int(value))
        elif field == 3:
            found = _int(value)
        elif field == 4:
            found = wire.signed(_int(value))
        elif field == 5:
            found = _text(value)
        elif field == 6:
            found = _bytes(value)
        elif field == 7:
            found = names.get(_int(value), "")
    return (names[number], found) if number in names and found is not None else (None, None)
