"""What users read of a profile: `ProfileData` with its planes, their lines and events.

In: the bytes of an XSpace, by ferrax or by others. Out: views of it, made as they are asked for. All is read at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NoReturn

from ferrax._src.base.errors import JaxRuntimeError
from ferrax._src.profiling import space, text_proto, wire

Stats = Iterator[tuple[str | None, int | float | str | None]]


def _stats(stats: tuple[tuple[str | None, space.Stat | None], ...]) -> Stats:
    for name, value in stats:
        yield name, value.decode() if isinstance(value, bytes) else value


def _nanoseconds(picoseconds: int) -> int:
    """Towards zero."""
    return picoseconds // 1000 if picoseconds >= 0 else -(-picoseconds // 1000)


class ProfileEvent:
    """Something that ran, in a profile that was read.

    Attributes: `name`; `start_ns`, `duration_ns` and `end_ns` in nanoseconds, as floats; `stats`, an iterator of names
    and values, which are None twice where the profile has no name for a value.

    Errors: TypeError when called: events come from lines.

    >>> data = ferrax.profiler.ProfileData.from_text_proto(
    ...     'planes { lines { timestamp_ns: 7 events { duration_ps: 2000 } } }')
    >>> [event.end_ns for plane in data.planes for line in plane.lines for event in line.events]
    [9.0]
    """

    __slots__ = ("_event", "_begin")
    _event: space.Event
    _begin: int

    def __init__(self) -> None:
        raise TypeError("ProfileEvent: events are read of the lines of a ProfileData")

    @property
    def name(self) -> str:
        """Name of the event."""
        return self._event.shown.name

    @property
    def start_ns(self) -> float:
        """When it began."""
        return float(self._begin + _nanoseconds(self._event.offset))

    @property
    def duration_ns(self) -> float:
        """How long it took."""
        return float(_nanoseconds(self._event.duration))

    @property
    def end_ns(self) -> float:
        """When it ended."""
        return self.start_ns + self.duration_ns

    @property
    def stats(self) -> Stats:
        """Names and values that it came with."""
        return _stats(self._event.shown.stats)


class ProfileLine:
    """A thread, or a queue of a device, in a profile that was read.

    Attributes: `name`; `events`, an iterator.

    Errors: TypeError when called: lines come from planes.
    """

    __slots__ = ("_line",)
    _line: space.Line

    def __init__(self) -> None:
        raise TypeError("ProfileLine: lines are read of the planes of a ProfileData")

    @property
    def name(self) -> str:
        """Name of the line."""
        return self._line.name

    @property
    def events(self) -> Iterator[ProfileEvent]:
        """Its events."""
        for event in self._line.events:
            made = ProfileEvent.__new__(ProfileEvent)
            made._event, made._begin = event, self._line.begin
            yield made


class ProfilePlane:
    """A machine in a profile that was read, such as "/host:CPU".

    Attributes: `name`; `lines`, an iterator; `stats`, an iterator of names and values.

    Errors: TypeError when called: planes come from a `ProfileData`.

    >>> data = ferrax.profiler.ProfileData.from_text_proto('planes { name: "/host:CPU" lines { name: "main" } }')
    >>> [line.name for line in data.find_plane_with_name("/host:CPU").lines]
    ['main']
    """

    __slots__ = ("_plane",)
    _plane: space.Plane

    def __init__(self) -> None:
        raise TypeError("ProfilePlane: planes are read of a ProfileData")

    @property
    def name(self) -> str:
        """Name of the plane."""
        return self._plane.name

    @property
    def lines(self) -> Iterator[ProfileLine]:
        """Its lines."""
        for line in self._plane.lines:
            made = ProfileLine.__new__(ProfileLine)
            made._line = line
            yield made

    @property
    def stats(self) -> Stats:
        """Names and values that it came with."""
        return _stats(self._plane.stats)


def _as_plane(plane: space.Plane) -> ProfilePlane:
    made = ProfilePlane.__new__(ProfilePlane)
    made._plane = plane
    return made


class ProfileData:
    """A profile that was read: what `ferrax.profiler.trace` wrote, or any other file of XPlane.

    Args: serialized_xspace: the bytes of an XSpace message.

    Attributes: `planes`, an iterator of the machines.

    Errors: TypeError for what is not bytes; RuntimeError for bytes that are no XSpace.

    >>> data = ferrax.profiler.ProfileData.from_text_proto('''
    ...     planes {
    ...       name: "/host:CPU"
    ...       lines { name: "main" events { metadata_id: 1 offset_ps: 5000 duration_ps: 2000 } }
    ...       event_metadata { key: 1 value { id: 1 name: "step" } }
    ...     }''')
    >>> [(e.name, e.start_ns, e.duration_ns) for p in data.planes for line in p.lines for e in line.events]
    [('step', 5.0, 2.0)]
    """

    __slots__ = ("_space",)

    def __init__(self, serialized_xspace: bytes, /) -> None:
        if not isinstance(serialized_xspace, bytes):
            raise TypeError(f"ProfileData takes the bytes of an XSpace, got {type(serialized_xspace).__name__}")
        try:
            self._space = space.decode(serialized_xspace)
        except wire.MalformedError as error:
            raise RuntimeError(f"these {len(serialized_xspace)} bytes are no XSpace: {error}") from None

    @staticmethod
    def from_file(proto_file_path: str) -> ProfileData:
        """The profile in the file with the path `proto_file_path`.

        Errors: TypeError for what is no text; JaxRuntimeError if the file cannot be read; RuntimeError for
        one that is no XSpace.
        """
        if not isinstance(proto_file_path, str):
            raise TypeError(f"from_file takes a path as str, got {type(proto_file_path).__name__}")
        try:
            with open(proto_file_path, "rb") as file:
                data = file.read()
        except OSError as error:
            raise JaxRuntimeError(f"NOT_FOUND: {proto_file_path}: {error.strerror}") from error
        return ProfileData(data)

    @staticmethod
    def from_serialized_xspace(serialized_xspace: bytes) -> ProfileData:
        """The profile with the bytes `serialized_xspace`, as the class itself gives it."""
        return ProfileData(serialized_xspace)

    @staticmethod
    def from_text_proto(text: str, /) -> ProfileData:
        """The profile that `text` describes, in the text form of protocol buffers.

        Errors: TypeError for what is no text; ValueError, with the line, for text that describes no XSpace.
        """
        return ProfileData(ProfileData.text_proto_to_serialized_xspace(text))

    @staticmethod
    def text_proto_to_serialized_xspace(text: str, /) -> bytes:
        """The bytes of the XSpace that `text` describes; errors as of `from_text_proto`."""
        if not isinstance(text, str):
            raise TypeError(f"the text of a profile is a str, got {type(text).__name__}")
        return text_proto.serialized(text)

    @staticmethod
    def from_raw_cpp_ptr(capsule: object) -> NoReturn:
        """Not supported: raises NotImplementedError, for a `capsule` holds a message of XLA's own library."""
        raise NotImplementedError(
            "ProfileData.from_raw_cpp_ptr: there are no C++ messages here; take from_serialized_xspace"
        )

    @property
    def planes(self) -> Iterator[ProfilePlane]:
        """The machines."""
        return map(_as_plane, self._space.planes)

    def find_plane_with_name(self, name: str) -> ProfilePlane | None:
        """The plane called `name`; None if there is none. Errors: TypeError for what is no text."""
        if not isinstance(name, str):
            raise TypeError(f"find_plane_with_name takes a str, got {type(name).__name__}")
        plane = self._space.plane(name)
        return None if plane is None else _as_plane(plane)
