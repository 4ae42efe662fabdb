"""Protocol buffers as bytes: fields of messages written and read, without a schema.

In and out: numbers of fields with integers, floats (64 bits) and bytes. Cost: linear in the bytes.
Format: https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterable, Iterator

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
# What a field of messages holds, by the kind of its bytes.
Value = int | bytes


class MalformedError(ValueError):
    """Bytes that are no message."""


def varint(value: int) -> bytes:
    """`value` in 7 bits a byte, the lowest first; negative ones as those of 64 bits."""
    if 0 <= value < 0x80:
        return _SMALL[value]
    value &= 0xFFFFFFFFFFFFFFFF
    last, going_on = _pairs()
    parts = []
    while value > 0x3FFF:
        parts.append(going_on[value & 0x3FFF])
        value >>= 14
    parts.append(last[value])
    return b"".join(parts)


_SMALL = [bytes([value]) for value in range(0x80)]


@functools.cache
def _pairs() -> tuple[list[bytes], list[bytes]]:
    """Numbers of 14 bits: as the end of a varint, and as two bytes after which it goes on."""
    going_on = [bytes([low | 0x80, high | 0x80]) for high in range(0x80) for low in range(0x80)]
    last = _SMALL + [bytes([low | 0x80, high]) for high in range(1, 0x80) for low in range(0x80)]
    return last, going_on


def number(field: int, value: int) -> bytes:
    """A field with an integer."""
    return varint(field << 3 | _VARINT) + varint(value)


def double(field: int, value: float) -> bytes:
    """A field with a float."""
    return varint(field << 3 | _FIXED64) + struct.pack("<d", value)


def block(field: int, value: bytes) -> bytes:
    """A field with bytes: a message, or text in UTF-8."""
    return varint(field << 3 | _BYTES) + varint(len(value)) + value


def text(field: int, value: str) -> bytes:
    """A field with text."""
    return block(field, value.encode("utf-8", "replace"))


def packed(field: int, values: Iterable[int]) -> bytes:
    """A field with integers one after another."""
    return block(field, b"".join(map(varint, values)))


def fields(message: bytes) -> Iterator[tuple[int, Value]]:
    """The fields of a message in order; floats as the integer of their bits.

    Errors: MalformedError.
    """
    position, end = 0, len(message)
    while position < end:
        key, position = _varint(message, position)
        field, kind = key >> 3, key & 7
        if not field:
            raise MalformedError("a field without a number")
        value: Value
        if kind == _VARINT:
            value, position = _varint(message, position)
        elif kind == _BYTES:
            size, position = _varint(message, position)
            value = message[position : position + size]
            position += size
        elif kind in (_FIXED64, _FIXED32):
            size = 8 if kind == _FIXED64 else 4
            value = int.from_bytes(message[position : position + size], "little")
            position += size
        else:
            raise MalformedError(f"a field of kind {kind}")
        if position > end:
            raise MalformedError("the message ends within a field")
        yield field, value


def _varint(message: bytes, position: int) -> tuple[int, int]:
    """An integer and where it ends."""
    value = shift = 0
    while True:
        if position >= len(message) or shift > 63:
            raise MalformedError("an integer without an end")
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, position
        shift += 7


def signed(value: int) -> int:
    """The integer of 64 bits with a sign that an unsigned one stands for."""
    return value - (1 << 64) if value >> 63 else value


def as_double(value: int) -> float:
    """The float whose bits these are."""
    return float(struct.unpack("<d", value.to_bytes(8, "little"))[0])
