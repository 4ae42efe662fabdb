"""What is in memory, as a profile for pprof.

In: the arrays that are alive, and the compiled functions. Out: a profile whose samples are counts and bytes of what is
alike: arrays of one type on one device, and the executables of one function. Nothing is noted when memory is taken, so
that arrays do not know the line that made them: they are told apart by type. Cost: that of `live_arrays`.
Format: https://github.com/google/pprof/blob/main/proto/profile.proto
"""

from __future__ import annotations

import gc
import gzip
import os
import time
from collections import defaultdict

from ferrax import _core
from ferrax._src.core import devices
from ferrax._src.core.live import live_arrays
from ferrax._src.profiling import wire


class _Texts:
    """Texts by number; 0 is the empty one."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {"": 0}

    def __call__(self, text: str) -> int:
        return self.numbers.setdefault(text, len(self.numbers))


# What samples are of: kind, device, a name and the file and line of that.
_Key = tuple[str, str, str, str, int]


def _counted(platform: str) -> dict[_Key, list[int]]:
    """How many there are and their bytes."""
    found: dict[_Key, list[int]] = defaultdict(lambda: [0, 0])

    def add(key: _Key, size: int) -> None:
        found[key][0] += 1
        found[key][1] += size

    for array in live_arrays(platform):
        for shard in array.addressable_shards:
            if (data := shard.data) is not None:
                kind = f"{data.dtype}[{','.join(map(str, data.shape))}]"
                add(("buffer", str(shard.device), kind, "", 0), data.nbytes)
    if platform == "cpu":
        where = str(devices.local_devices(backend="cpu")[0])
        for function in [x for x in gc.get_objects() if type(x) is _core.PjitFunction]:
            code = getattr(getattr(function, "__wrapped__", None), "__code__", None)
            file, line = (code.co_filename, code.co_firstlineno) if code is not None else ("", 0)
            for size in function._executable_bytes():
                add(("executable", where, function._function_name, file, line), size)
    return found


def device_memory_profile(backend: str | None = None) -> bytes:
    """What is in memory now, as a profile that pprof shows.

    Each sample is of arrays of one type on one device (`kind` "buffer"), or of the executables of one function with
    their constants ("executable"), with how many there are and their bytes.

    Args: backend: "cpu" or "gpu"; None: the default. Returns: the profile, packed by gzip. Errors: RuntimeError for
    backends that do not exist.

    Example:
        >>> x = jnp.ones(1000)
        >>> profile = ferrax.profiler.device_memory_profile()
        >>> import gzip
        >>> b"float32[1000]" in gzip.decompress(profile)
        True
    """
    platform = devices.devices(backend)[0].platform
    texts = _Texts()
    parts = []
    for name, unit in (("allocations", "count"), ("space", "bytes")):
        parts.append(wire.block(1, wire.number(1, texts(name)) + wire.number(2, texts(unit))))
    places: dict[tuple[str, str, int], int] = {}
    for (kind, device, name, file, line), (count, size) in _counted(platform).items():
        place = places.setdefault((name, file, line), len(places) + 1)
        labels = [
            wire.block(3, wire.number(1, texts(key)) + wire.number(2, texts(value)))
            for key, value in (("kind", kind), ("device", device))
        ]
        parts.append(wire.block(2, wire.packed(1, [place]) + wire.packed(2, [count, size]) + b"".join(labels)))
    for (name, file, line), place in places.items():
        at = wire.block(4, wire.number(1, place) + wire.number(2, line))
        parts.append(wire.block(4, wire.number(1, place) + at))
        ids = wire.number(1, place) + wire.number(2, texts(name)) + wire.number(3, texts(name))
        parts.append(wire.block(5, ids + wire.number(4, texts(file)) + wire.number(5, line)))
    parts += [wire.text(6, text) for text in texts.numbers]
    parts.append(wire.number(9, time.time_ns()))
    return gzip.compress(b"".join(parts))


def save_device_memory_profile(filename: str | os.PathLike[str], backend: str | None = None) -> None:
    """Writes what is in memory now to a file, for pprof.

    Args: filename: the file's path; backend: as of `device_memory_profile`.

    Errors: OSError if the file cannot be written; RuntimeError for backends that do not exist.

    Example:
        >>> import tempfile
        >>> ferrax.profiler.save_device_memory_profile(tempfile.mktemp(".prof"))
    """
    profile = device_memory_profile(backend)
    with open(filename, "wb") as file:
        file.write(profile)
