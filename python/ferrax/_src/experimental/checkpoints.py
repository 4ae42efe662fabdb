"""Trees of arrays kept in files: each process writes what its devices hold, and reads what its devices are to hold.

So no process ever has an array whole that lies over several, and a checkpoint is read on any other mesh, by any other
number of processes, which all see the same files. `tile_files` has the format.
"""

from __future__ import annotations

import os
import pathlib
from typing import Any

import numpy as np

from ferrax import _core
from ferrax._src.base import config, dtypes
from ferrax._src.core import Array
from ferrax._src.core.placement import device_put
from ferrax._src.core.placements import placement
from ferrax._src.core.sharding import Sharding
from ferrax._src.experimental.tile_files import (
    INDEX,
    Box,
    Entry,
    Reader,
    Tile,
    write_index,
    write_part,
)
from ferrax._src.parallel import algorithms, ranks
from ferrax._src.parallel.global_arrays import make_array_from_callback
from ferrax._src.random import prng
from ferrax._src.tree import tree_util
from ferrax._src.tree.tree_paths import keystr

__all__ = ["load", "save"]


def _named(tree, function) -> tuple[list[str], list[Any], Any]:
    """The names of leaves, which are their paths, the leaves, and the structure."""
    found, structure = tree_util.tree_flatten_with_path(tree)
    names = [keystr(path) for path, _ in found]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{function}: two leaves have the path {twice!r}")
    return names, [leaf for _, leaf in found], structure


def _together(what: str, detail: Any = "") -> None:
    """Waits for all processes, which agree on the detail."""
    joined = ranks.current()
    everybody = range(joined.processes)
    joined.run(
        ranks.Call(what, _core.user_location(), everybody, detail), algorithms.barrier(everybody, joined.process)
    )


def _box(index, shape) -> Box:
    return tuple((cut.start or 0, size if cut.stop is None else cut.stop) for cut, size in zip(index, shape))


def save(path: str | os.PathLike[str], tree: Any, *, overwrite: bool = False) -> None:
    """Writes the arrays of a tree to a folder. All processes call it, with the same tree, and see the same folder.

    Of arrays over several processes each writes the parts that its devices have first (`replica_id` 0); of others
    process 0 writes what it has. The folder is a checkpoint when all is written: what is interrupted before is none,
    and says so when it is read. Cost: the bytes of this process's parts, and two waits for all processes.

    Args:
        path: the folder, which is made.
        tree: arrays, also of keys, and numbers; their names are their paths in the tree.
        overwrite: whether a checkpoint that is there is lost.

    Errors: FileExistsError for a checkpoint that is there; TypeError for other leaves; ValueError for keys of the
    user's generators; OSError; JaxRuntimeError if other processes do not come.

    >>> import tempfile
    >>> from ferrax.experimental import checkpoint
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     checkpoint.save(f"{folder}/step1", {"w": jnp.ones((2, 2)), "step": 1})
    ...     checkpoint.load(f"{folder}/step1")["['step']"]
    Array(1, dtype=int32, weak_type=True)
    """
    folder = pathlib.Path(path)
    names, leaves, _ = _named(tree, "save")
    joined = ranks.current()
    if (folder / INDEX).exists() and not overwrite:
        raise FileExistsError(f"save: {folder} is a checkpoint already; overwrite=True replaces it")
    _together(f"save of {folder.name}")
    if joined.process == 0:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / INDEX).unlink(missing_ok=True)
        for old in folder.glob("part-*.safetensors"):
            old.unlink()
    entries, tiles = [], []
    for number, (name, leaf) in enumerate(zip(names, leaves)):
        entry, mine = _cut(name, leaf, joined.process)
        entries.append(entry)
        tiles += [(number, box, data) for box, data in mine]
    _together(f"save of {folder.name}: the arrays", entries)
    write_part(folder, joined.process, tiles)
    _together(f"save of {folder.name}: the parts")
    if joined.process == 0:
        write_index(folder, joined.processes, entries)
    _together(f"save of {folder.name}: the index")


def _cut(name: str, leaf: Any, process: int) -> tuple[Entry, list[tuple[Box, np.ndarray]]]:
    """An array's entry, and the tiles of it that a process writes."""
    array = leaf if isinstance(leaf, Array) else device_put(leaf)
    sharding = placement(array).sharding
    key: str | None = None
    extra: tuple[int, ...] = ()
    if dtypes.issubdtype(array.dtype, dtypes.extended):
        key, extra = array.dtype._impl.name, tuple(array.dtype._impl.key_shape)
        if key not in prng.prngs:
            raise ValueError(f"save: {name} has keys of the user's generator {key}, which loading would not know")
    shape = tuple(array.shape)

    def plain(part):
        return np.asarray(part if key is None else prng.key_data(part))

    def whole(box):
        return (*box, *((0, size) for size in extra))

    mine = []
    if sharding.is_fully_addressable:
        box = whole(_box([slice(None)] * len(shape), shape))
        tiles = [Tile(box, 0)]
        if process == 0:
            mine.append((box, plain(array)))
    else:
        indices, replicas = sharding.devices_indices_map(shape), sharding._replica_ids(len(shape))
        first = [device for device in sharding._device_assignment if replicas[device] == 0]
        boxes = {device: whole(_box(indices[device], shape)) for device in first}
        tiles = [Tile(boxes[device], device.process_index) for device in first]
        for shard in array.addressable_shards:
            if shard.replica_id == 0:
                mine.append((boxes[shard.device], plain(shard.data)))
    dtype = np.dtype(np.uint32) if key else np.dtype(array.dtype)
    return Entry(name, dtype, (*shape, *extra), bool(array.weak_type), key, tuple(tiles)), mine


def load(path: str | os.PathLike[str], tree: Any = None, shardings: Any = None) -> Any:
    """Reads the arrays of a folder that `save` wrote: each process those parts that its devices are to hold.

    Args:
        path: the folder.
        tree: None: all arrays, in a dict by their paths. Else a tree whose leaves have these paths, with what they are
            expected to be: arrays or `ShapeDtypeStruct`s, whose shardings the results have; leaves without a shape
            stand for any array.
        shardings: a sharding of all arrays, or a tree of them above the leaves of `tree`; None: those of the leaves,
            and the default device where these have none.

    Returns: the arrays, in the structure of `tree`. Weak types are kept.

    Errors: FileNotFoundError where there is no whole checkpoint; KeyError for a path that it does not have; ValueError
    for another shape or dtype than expected, for shardings that do not fit, and for files that are damaged: all that
    they say is checked, and nothing in them is run. OSError.

    >>> import tempfile
    >>> from ferrax.experimental import checkpoint
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     checkpoint.save(folder, {"w": jnp.arange(3.0)})
    ...     checkpoint.load(folder, {"w": ferrax.ShapeDtypeStruct((3,), "float32")})
    {'w': Array([0., 1., 2.], dtype=float32)}
    """
    reader = Reader(pathlib.Path(path))
    numbers = {entry.name: number for number, entry in enumerate(reader.entries)}
    if tree is None:
        tree = dict.fromkeys(numbers, 0)
        names, leaves, structure = list(numbers), [0] * len(numbers), None
    else:
        names, leaves, structure = _named(tree, "load")
    if shardings is None:
        places = [getattr(leaf, "sharding", None) for leaf in leaves]
    elif isinstance(shardings, Sharding):
        places = [shardings] * len(leaves)
    else:
        places = tree_util.broadcast_prefix(shardings, tree, is_leaf=lambda x: x is None or isinstance(x, Sharding))
    found = []
    for name, leaf, place in zip(names, leaves, places):
        if name not in numbers:
            raise KeyError(f"load: {path} has no array of path {name}, it has {', '.join(sorted(numbers))}")
        found.append(_read(reader, numbers[name], leaf, place))
    return dict(zip(names, found)) if structure is None else structure.unflatten(found)


def _read(reader: Reader, number: int, expected: Any, sharding: Sharding | None) -> Array:
    entry = reader.entries[number]
    where = f"load: {entry.name} of {reader.folder}"
    extra = 0
    if entry.key is not None:
        try:
            dtype = prng.key(0, impl=entry.key).dtype
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from None
        extra = len(dtype._impl.key_shape)
        if entry.dtype != np.uint32 or entry.shape[len(entry.shape) - extra :] != tuple(dtype._impl.key_shape):
            raise ValueError(f"{where}: {entry.dtype.name}{list(entry.shape)} are no keys of {entry.key}")
    else:
        dtype = entry.dtype
    shape = entry.shape[: len(entry.shape) - extra]
    if hasattr(expected, "shape") and hasattr(expected, "dtype"):
        if (tuple(expected.shape), expected.dtype) != (shape, dtype):
            raise ValueError(
                f"{where}: has {dtype.name}{list(shape)}, expected {expected.dtype.name}{list(expected.shape)}"
            )
    rest = tuple((0, size) for size in entry.shape[len(shape) :])

    def part(index):
        words = reader.box(number, (*_box(index, shape), *rest))
        if entry.key is not None:
            return prng.wrap_key_data(words, impl=entry.key)
        with config.enable_x64(True):
            return _core.array_from_numpy(words, entry.weak_type)

    if sharding is None:
        return part((slice(None),) * len(shape))
    return make_array_from_callback(shape, sharding, part)
