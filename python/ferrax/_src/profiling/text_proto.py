"""The text form of profiles: the language of protocol buffers, for the messages of XPlane.

In: text such as `planes { name: "/host:CPU" }`. Out: the bytes of the XSpace, fields in the order of their numbers.
Cost: linear in the text. Language: https://protobuf.dev/reference/protobuf/textformat-spec/
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ferrax._src.profiling import wire


class _Field(NamedTuple):
    number: int
    # "int", "double", "str", or the name of a message.
    kind: str
    repeated: bool = False


# Values of a stat, of which it has one.
_VALUES = {
    "double_value": _Field(2, "double"),
    "uint64_value": _Field(3, "uint"),
    "int64_value": _Field(4, "int"),
    "str_value": _Field(5, "str"),
    "bytes_value": _Field(6, "str"),
    "ref_value": _Field(7, "uint"),
}
_ID, _NAME = {"id": _Field(1, "int")}, {"name": _Field(2, "str")}
_SCHEMA: dict[str, dict[str, _Field]] = {
    "XSpace": {
        "planes": _Field(1, "XPlane", True),
        "errors": _Field(2, "str", True),
        "warnings": _Field(3, "str", True),
        "hostnames": _Field(4, "str", True),
    },
    "XPlane": {
        **_ID,
        **_NAME,
        "lines": _Field(3, "XLine", True),
        "event_metadata": _Field(4, "EventEntry", True),
        "stat_metadata": _Field(5, "StatEntry", True),
        "stats": _Field(6, "XStat", True),
    },
    "XLine": {
        **_ID,
        **_NAME,
        "timestamp_ns": _Field(3, "int"),
        "events": _Field(4, "XEvent", True),
        "duration_ps": _Field(9, "int"),
        "display_id": _Field(10, "int"),
        "display_name": _Field(11, "str"),
    },
    "XEvent": {
        "metadata_id": _Field(1, "int"),
        "offset_ps": _Field(2, "int"),
        "duration_ps": _Field(3, "int"),
        "stats": _Field(4, "XStat", True),
        "num_occurrences": _Field(5, "int"),
    },
    "XStat": {"metadata_id": _Field(1, "int"), **_VALUES},
    "EventEntry": {"key": _Field(1, "int"), "value": _Field(2, "XEventMetadata")},
    "StatEntry": {"key": _Field(1, "int"), "value": _Field(2, "XStatMetadata")},
    "XEventMetadata": {
        **_ID,
        **_NAME,
        "metadata": _Field(3, "str"),
        "display_name": _Field(4, "str"),
        "stats": _Field(5, "XStat", True),
        "child_id": _Field(6, "int", True),
    },
    "XStatMetadata": {**_ID, **_NAME, "description": _Field(3, "str")},
}
# Fields of which a message has one at most.
_ONE_OF = {"XStat": frozenset(_VALUES), "XEvent": frozenset({"offset_ps", "num_occurrences"})}

_TOKEN = re.compile(
    r"""(?P<space>(?:\s|\#[^\n]*)+)
    |(?P<name>[A-Za-z_]\w*)
    |(?P<number>(?:0[xX][0-9a-fA-F]+|\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?)[fF]?)
    |(?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    |(?P<sign>[-{}<>\[\]:,;])""",
    re.VERBOSE,
)
_ESCAPE = re.compile(rb"\\([0-7]{1,3}|[xX][0-9a-fA-F]{1,2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)")
_SHORT = {b"a": 7, b"b": 8, b"f": 12, b"n": 10, b"r": 13, b"t": 9, b"v": 11}
_CLOSING = {"{": "}", "<": ">"}


def _unescape(match: re.Match[bytes]) -> bytes:
    body = match[1]
    if body[:1] in b"01234567":
        return bytes([int(body, 8) & 0xFF])
    if body[:1] in b"xX" and len(body) > 1:
        return bytes([int(body[1:], 16)])
    if body[:1] in b"uU" and len(body) > 1:
        return chr(int(body[1:], 16)).encode()
    return bytes([_SHORT[body]]) if body in _SHORT else body


class _Reader:
    """The tokens of a text, and where it is."""

    def __init__(self, source: str) -> None:
        self.source, self.position = source, 0
        self.kind, self.token, self.begin = "", "", 0
        self.advance()

    def error(self, expected: str) -> ValueError:
        line = self.source.count("\n", 0, self.begin) + 1
        got = f"'{self.token}'" if self.kind else "the end"
        return ValueError(f"line {line} of the text of a profile: {expected} expected, got {got}")

    def advance(self) -> None:
        """Goes on to the next token; its kind is "" at the end."""
        while True:
            self.begin = self.position
            if self.position == len(self.source):
                self.kind = self.token = ""
                return
            match = _TOKEN.match(self.source, self.position)
            if match is None:
                self.kind, self.token = "sign", self.source[self.position]
                raise self.error("something else was")
            self.position = match.end()
            self.kind, self.token = match.lastgroup or "", match[0]
            if self.kind != "space":
                return

    def take(self, *tokens: str) -> str:
        """The token, if it is one of these, which is gone past; else nothing."""
        if self.kind != "sign" or self.token not in tokens:
            return ""
        token = self.token
        self.advance()
        return token

    def message(self, kind: str, end: str) -> bytes:
        """The fields of a message up to its end."""
        known, found = _SCHEMA[kind], []
        seen: set[str] = set()
        while not (self.take(end) if end else not self.kind):
            name = self.token
            if self.kind != "name" or name not in known:
                raise self.error(f"a field of {kind} ({', '.join(known)})")
            field = known[name]
            alike = _ONE_OF.get(kind, frozenset())
            if not field.repeated and (name in seen or name in alike and seen & alike):
                raise self.error(f"no further value of {name} was")
            seen.add(name)
            self.advance()
            colon = self.take(":")
            if not colon and field.kind not in _SCHEMA:
                raise self.error("':'")
            if field.repeated and self.take("["):
                while not self.take("]"):
                    found.append((field.number, self.value(field)))
                    if not self.take(",") and self.token != "]":
                        raise self.error("',' or ']'")
            else:
                found.append((field.number, self.value(field)))
            self.take(",", ";")
        # Integers of a repeated field stand one after another.
        integers = [field.number for field in known.values() if field.repeated and field.kind == "int"]
        for number in integers:
            own = [value for field, body in found if field == number for _, value in wire.fields(body)]
            found = [pair for pair in found if pair[0] != number]
            found += [(number, wire.packed(number, [x for x in own if isinstance(x, int)]))] if own else []
        # Stable: values of one field stay in their order.
        return b"".join(body for _, body in sorted(found, key=lambda pair: pair[0]))

    def value(self, field: _Field) -> bytes:
        """A field with its value."""
        if field.kind in _SCHEMA:
            opening = self.take("{", "<")
            if not opening:
                raise self.error("'{'")
            return wire.block(field.number, self.message(field.kind, _CLOSING[opening]))
        if field.kind == "str":
            return wire.block(field.number, self.string())
        negative = bool(self.take("-"))
        token, isname = self.token, self.kind == "name"
        if field.kind == "double":
            isnumber = self.kind == "number" or isname and token.lower() in ("inf", "infinity", "nan")
            if not isnumber:
                raise self.error("a number")
            ishex = token[:2] in ("0x", "0X")
            value = float(int(token, 16)) if ishex else float(token if isname else token.rstrip("fF"))
            self.advance()
            return wire.double(field.number, -value if negative else value)
        base = 16 if token[:2] in ("0x", "0X") else 8 if token[:1] == "0" and len(token) > 1 else 10
        try:
            integer = int(token, base) if self.kind == "number" else None
        except ValueError:
            integer = None
        if integer is None:
            raise self.error("an integer")
        integer = -integer if negative else integer
        low, high = (0, 1 << 64) if field.kind == "uint" else (-1 << 63, 1 << 63)
        if not low <= integer < high:
            raise self.error("an integer of 64 bits")
        self.advance()
        return wire.number(field.number, integer)

    def string(self) -> bytes:
        """Literals that follow one another, as one."""
        if self.kind != "text":
            raise self.error("a text in quotes")
        parts = []
        while self.kind == "text":
            parts.append(_ESCAPE.sub(_unescape, self.token[1:-1].encode()))
            self.advance()
        return b"".join(parts)


def serialized(source: str) -> bytes:
    """The bytes of an XSpace that is given as text.

    Errors: ValueError, with the line, for what is no such text.
    """
    return _Reader(source).message("XSpace", "")
