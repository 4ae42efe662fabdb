"""Files of tiles of arrays: what a checkpoint lies in. Bytes in, checked tables of tiles out; nothing in them is run.

A checkpoint is a folder. `index.json` names the arrays, their types, and for each the boxes that it is cut into and
the file that has each; it is written last, so that a folder without it is none. `part-00003.safetensors` has the tiles
that process 3 wrote: the length of a header in eight bytes, the header, which is JSON, and the bytes of the tiles, as
in files of the library `safetensors`. A tile's name is the array's number and its box, `3[0:8,4:6]`.

Files come from anywhere: all that they say is checked before it is used, against their sizes, the types that there are,
and itself; what does not hold is a ValueError that says where. Cost of opening: one header; tiles are mapped.
"""

from __future__ import annotations

import json
import math
import os
import pathlib
import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

Box = tuple[tuple[int, int], ...]

INDEX = "index.json"
FORMAT, VERSION = "ferrax checkpoint", 1
LONGEST_HEADER = 256 << 20
MOST_CELLS = 1 << 24

# The dtypes that arrays have, with their names in files of safetensors; others are bytes there.
_CODES = {
    "bool": "BOOL", "int8": "I8", "int16": "I16", "int32": "I32", "int64": "I64", "uint8": "U8", "uint16": "U16",
    "uint32": "U32", "uint64": "U64", "float16": "F16", "bfloat16": "BF16", "float32": "F32", "float64": "F64",
    "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2", "complex64": "C64",
}  # fmt: skip
_OTHERS = (
    "complex128", "int2", "int4", "uint2", "uint4", "float4_e2m1fn", "float8_e3m4", "float8_e4m3",
    "float8_e4m3b11fnuz", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu",
)  # fmt: skip
# Dtypes whose elements are not any byte.
_PARTIAL = ("int2", "int4", "uint2", "uint4", "float4_e2m1fn")
_NAME = re.compile(r"(\d{1,9})\[((?:\d{1,18}:\d{1,18}(?:,\d{1,18}:\d{1,18})*)?)\]")


class Tile(NamedTuple):
    """A box of an array and the part that has it."""

    box: Box
    part: int


class Entry(NamedTuple):
    """An array of a checkpoint: `key` is the generator if it is one of keys, whose words it has then."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    weak_type: bool
    key: str | None
    tiles: tuple[Tile, ...]


def part_name(number: int) -> str:
    return f"part-{number:05d}.safetensors"


def dtype_named(name: Any, where: str) -> np.dtype[Any]:
    """The dtype of a name. Errors: ValueError if arrays have none of this name."""
    if not isinstance(name, str) or name not in _CODES and name not in _OTHERS:
        raise ValueError(f"{where}: there is no dtype {name!r}")
    return np.dtype(getattr(ml_dtypes, name, name))


def _tile_name(array: int, box: Box) -> str:
    return f"{array}[{','.join(f'{start}:{stop}' for start, stop in box)}]"


def write_part(folder: pathlib.Path, number: int, tiles: Iterable[tuple[int, Box, np.ndarray]]) -> None:
    """Writes the tiles of a process: the number of the array, the box, the elements."""
    header: dict[str, Any] = {"__metadata__": {"format": FORMAT, "version": str(VERSION)}}
    # Wide elements first, so that all are where their size divides.
    ordered = sorted(tiles, key=lambda tile: -tile[2].itemsize)
    end = 0
    for array, box, data in ordered:
        code = _CODES.get(data.dtype.name)
        shape = list(data.shape) if code else [data.nbytes]
        header[_tile_name(array, box)] = {
            "dtype": code or "U8", "shape": shape, "data_offsets": [end, end + data.nbytes]
        }  # fmt: skip
        end += data.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with _written(folder / part_name(number)) as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for _, _, data in ordered:
            file.write(np.ascontiguousarray(data).reshape(-1).view(np.uint8).data)


def write_index(folder: pathlib.Path, parts: int, entries: Sequence[Entry]) -> None:
    """Writes what makes the folder a checkpoint."""
    arrays = [
        {
            "name": entry.name, "dtype": entry.dtype.name, "shape": list(entry.shape), "weak_type": entry.weak_type,
            "key": entry.key, "tiles": [[tile.part, [list(cut) for cut in tile.box]] for tile in entry.tiles],
        }
        for entry in entries
    ]  # fmt: skip
    index = {"format": FORMAT, "version": VERSION, "parts": parts, "arrays": arrays}
    with _written(folder / INDEX) as file:
        file.write(json.dumps(index, separators=(",", ":")).encode())


class _written:
    """A file that has its name when all of it is on the disk."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        self.unfinished = path.with_name(path.name + ".unfinished")

    def __enter__(self):
        self.file = open(self.unfinished, "wb")  # noqa: SIM115  closed at the end of the block
        return self.file

    def __exit__(self, kind, error, traceback) -> None:
        if kind is None:
            self.file.flush()
            os.fsync(self.file.fileno())
        self.file.close()
        if kind is None:
            os.replace(self.unfinished, self.path)
        else:
            self.unfinished.unlink(missing_ok=True)


def _json(text: bytes, where: str) -> Any:
    def once(pairs):
        found = dict(pairs)
        if len(found) != len(pairs):
            raise ValueError(f"{where}: a name occurs twice")
        return found

    def no_number(text):
        raise ValueError(f"{where}: {text[:30]} is no size")

    try:
        return json.loads(text, object_pairs_hook=once, parse_float=no_number, parse_constant=no_number)
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"{where}: no JSON: {error}") from None


def _is_size(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 62


def _shape_of(value: Any, where: str) -> tuple[int, ...]:
    if not isinstance(value, list) or len(value) > 64 or not all(map(_is_size, value)) or math.prod(value) >= 1 << 62:
        raise ValueError(f"{where}: no shape: {str(value)[:80]}")
    return tuple(value)


def _box_of(value: Any, shape: tuple[int, ...], where: str) -> Box:
    good = isinstance(value, list) and len(value) == len(shape) and all(
        isinstance(cut, list) and len(cut) == 2 and all(map(_is_size, cut)) and cut[0] <= cut[1] <= size
        for cut, size in zip(value, shape)
    )  # fmt: skip
    if not good:
        raise ValueError(f"{where}: no box of an array of shape {shape}: {str(value)[:80]}")
    return tuple((start, stop) for start, stop in value)


def _check_cover(tiles: Sequence[Tile], shape: tuple[int, ...], where: str) -> None:
    """Errors: ValueError unless the boxes have each element once."""
    if math.prod(shape) == 0:
        return
    cuts = [sorted({0, size, *(edge for tile in tiles for edge in tile.box[axis])}) for axis, size in enumerate(shape)]
    counts = tuple(len(edges) - 1 for edges in cuts)
    if math.prod(counts) > MOST_CELLS:
        raise ValueError(f"{where}: tiles are cut in too many ways")
    places = [{edge: place for place, edge in enumerate(edges)} for edges in cuts]
    seen = np.zeros(counts, np.int32)
    for tile in tiles:
        seen[tuple(slice(place[a], place[b]) for place, (a, b) in zip(places, tile.box))] += 1
    if not (seen == 1).all():
        raise ValueError(f"{where}: its tiles do not have each element of shape {shape} once")


def read_index(folder: pathlib.Path) -> list[Entry]:
    """The arrays of a checkpoint. Errors: FileNotFoundError where there is none; ValueError as above."""
    path = folder / INDEX
    if not path.is_file():
        raise FileNotFoundError(f"{folder} is no checkpoint: there is no {INDEX}, which is written when all parts are")
    index = _json(path.read_bytes(), str(path))
    if not isinstance(index, dict) or index.get("format") != FORMAT or index.get("version") != VERSION:
        raise ValueError(f"{path}: not of format {FORMAT!r}, version {VERSION}")
    parts, arrays = index.get("parts"), index.get("arrays")
    if not _is_size(parts) or not isinstance(arrays, list):
        raise ValueError(f"{path}: parts must be a number and arrays a list")
    entries, names = [], set()
    for number, array in enumerate(arrays):
        where = f"{path}: array {number}"
        if not isinstance(array, dict) or not isinstance(array.get("name"), str) or array["name"] in names:
            raise ValueError(f"{where} has no name of its own")
        names.add(array["name"])
        shape = _shape_of(array.get("shape"), where)
        key, weak, cut = array.get("key"), array.get("weak_type"), array.get("tiles")
        if not (key is None or isinstance(key, str)) or not isinstance(weak, bool) or not isinstance(cut, list):
            raise ValueError(f"{where}: key, weak_type or tiles are of another type")
        tiles = []
        for tile in cut:
            if not isinstance(tile, list) or len(tile) != 2 or not _is_size(tile[0]) or tile[0] >= parts:
                raise ValueError(f"{where}: no tile: {str(tile)[:80]}")
            tiles.append(Tile(_box_of(tile[1], shape, where), tile[0]))
        _check_cover(tiles, shape, where)
        entries.append(Entry(array["name"], dtype_named(array.get("dtype"), where), shape, weak, key, tuple(tiles)))
    return entries


class Part:
    """The tiles of one file. Errors: ValueError unless its header and its size agree; OSError."""

    def __init__(self, folder: pathlib.Path, number: int) -> None:
        self.path = folder / part_name(number)
        size = self.path.stat().st_size
        with open(self.path, "rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or length > min(LONGEST_HEADER, size - 8):
                raise ValueError(f"{self.path}: its header would have {length} bytes, the file has {size}")
            header = _json(file.read(length), str(self.path))
        self._start = 8 + length
        if not isinstance(header, dict):
            raise ValueError(f"{self.path}: its header is no object")
        header.pop("__metadata__", None)
        self._offsets: dict[str, tuple[int, int]] = {}
        for name, entry in header.items():
            offsets = entry.get("data_offsets") if isinstance(entry, dict) else None
            if not isinstance(offsets, list) or len(offsets) != 2 or not all(map(_is_size, offsets)):
                offsets = [1, 0]
            if not _NAME.fullmatch(name) or not offsets[0] <= offsets[1] <= size - self._start:
                raise ValueError(f"{self.path}: no tile of the file: {name[:80]!r}: {str(entry)[:80]}")
            self._offsets[name] = offsets[0], offsets[1]
        # Empty files cannot be mapped.
        self._bytes = np.memmap(self.path, np.uint8, "r") if size else np.empty(0, np.uint8)

    def tile(self, array: int, box: Box, dtype: np.dtype[Any]) -> np.ndarray:
        """A tile, in the file's memory. Errors: ValueError if it is not there, or of another size."""
        name = _tile_name(array, box)
        shape = tuple(stop - start for start, stop in box)
        start, stop = self._offsets.get(name, (0, -1))
        if stop - start != math.prod(shape) * dtype.itemsize:
            raise ValueError(f"{self.path}: has no tile {name} of {dtype.name}{list(shape)}")
        if dtype == np.bool_:
            # Other bytes than 0 and 1 are no booleans.
            return self._bytes[self._start + start : self._start + stop].reshape(shape) != 0
        found = np.ndarray(shape, dtype, self._bytes, self._start + start)
        if dtype.name in _PARTIAL and found.astype(np.float32).astype(dtype).tobytes() != found.tobytes():
            raise ValueError(f"{self.path}: tile {name} has bytes that are no {dtype.name}")
        return found


class Reader:
    """The elements of arrays of a checkpoint, by box. Files are opened where they are first needed."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.entries = read_index(folder)
        self._parts: dict[int, Part] = {}

    def box(self, number: int, box: Box) -> np.ndarray:
        """What a box of an array has. Errors: ValueError, OSError, as of the files."""
        entry = self.entries[number]
        pieces = []
        for tile in entry.tiles:
            shared = [(max(a, c), min(b, d)) for (a, b), (c, d) in zip(tile.box, box)]
            if any(start >= stop for start, stop in shared):
                continue
            if tile.part not in self._parts:
                self._parts[tile.part] = Part(self.folder, tile.part)
            data = self._parts[tile.part].tile(number, tile.box, entry.dtype)
            there = tuple(slice(a - c, b - c) for (a, b), (c, _) in zip(shared, tile.box))
            here = tuple(slice(a - c, b - c) for (a, b), (c, _) in zip(shared, box))
            pieces.append((here, data[there]))
        # Memory only for what files really have.
        result = np.empty([stop - start for start, stop in box], entry.dtype)
        for here, data in pieces:
            result[here] = data
        return result
