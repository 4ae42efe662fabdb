"""Collectives over frames: groups of devices, values of all dtypes, and what the results are, in NumPy."""

import ml_dtypes
import numpy as np

DTYPES = [
    "float32",
    "float64",
    "complex64",
    "float16",
    "bfloat16",
    "float8_e4m3fn",
    "int8",
    "uint4",
    "bool",
]


def dtype_of(name):
    return np.dtype(getattr(ml_dtypes, name, name))


def values(shape, name, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape) * 10.0 ** rng.integers(-2, 3, shape)
    if name in ("uint4", "bool"):
        return np.abs(x).astype(int).astype(np.uint8).__mod__(16 if name == "uint4" else 2).astype(dtype_of(name))
    if name == "int8":
        return rng.integers(-128, 128, shape).astype(np.int8)
    if name == "complex64":
        x = x + 1j * rng.standard_normal(shape)
    return x.astype(dtype_of(name))


def groupings(devices):
    """Ways of grouping devices, as axes of a mesh give them, and odd ones."""
    yield "all", [list(range(devices))]
    yield "all, turned", [list(range(devices))[::-1]]
    for inner in range(2, devices):
        if devices % inner == 0:
            grid = np.arange(devices).reshape(-1, inner)
            yield f"rows of {inner}", grid.tolist()
            yield f"columns of {inner}", grid.T.tolist()
    shuffled = np.random.default_rng(devices).permutation(devices).tolist()
    yield "shuffled", [shuffled]
    if devices > 4:
        yield "uneven", [shuffled[:3], shuffled[3:]]


def same_bits(x, y):
    assert x.shape == y.shape and x.dtype == y.dtype
    assert np.ascontiguousarray(x).tobytes() == np.ascontiguousarray(y).tobytes()


def by_hand(kind, frames, groups, axis=0, tiled=False, split_axis=0, concat_axis=0, perm=(), source=0):
    """What a collective means, in NumPy. Sums are made pair by pair, level by level."""
    fold = {"psum": np.add, "psum_scatter": np.add, "pmax": np.maximum, "pmin": np.minimum}.get(kind)

    def folded(parts):
        dtype = parts[0].dtype
        if fold is np.add and dtype.name in ("float16", "bfloat16", "float8_e4m3fn"):
            parts = [part.astype(np.float32) for part in parts]
        while len(parts) > 1:
            pairs = [fold(a, b) for a, b in zip(parts[::2], parts[1::2])]
            parts = pairs + (parts[-1:] if len(parts) % 2 else [])
        return parts[0].astype(dtype)

    results = [None] * len(frames)
    for group in groups:
        mine = [frames[device] for device in group]
        for place, device in enumerate(group):
            if kind in ("psum", "pmax", "pmin"):
                result = folded(mine)
            elif kind == "all_gather":
                result = np.concatenate(mine, axis) if tiled else np.stack(mine, axis)
            elif kind == "psum_scatter":
                result = np.split(folded(mine), len(group), axis)[place]
                result = result if tiled else result.squeeze(axis)
            elif kind == "pbroadcast":
                result = mine[source]
            elif kind == "all_to_all":
                parts = [np.split(x, len(group), split_axis)[place] for x in mine]
                parts = parts if tiled else [part.squeeze(split_axis) for part in parts]
                result = np.concatenate(parts, concat_axis) if tiled else np.stack(parts, concat_axis)
            else:
                sources = [start for start, target in perm if target == place]
                result = mine[sources[0]] if sources else np.zeros_like(mine[0])
            results[device] = result
    return np.stack(results)


def cases(size):
    """Collectives over groups of a size: the kind, the shape of frames, and parameters."""
    yield from [
        ("psum", (3, 2), {}),
        ("psum", (1031,), {}),
        ("psum", (), {}),
        ("pmax", (5,), {}),
        ("pmin", (5,), {}),
    ]
    if size is not None:
        yield from [
            ("all_gather", (2, 3), {"axis": 1}),
            ("all_gather", (2, 3), {"axis": 1, "tiled": True}),
            ("psum_scatter", (2, size), {"axis": 1}),
            ("psum_scatter", (size * 3, 2), {"tiled": True}),
            ("all_to_all", (2, size, 3), {"split_axis": 1, "concat_axis": 2}),
            ("all_to_all", (2, 3, size * 2), {"split_axis": 2, "concat_axis": 0, "tiled": True}),
            ("ppermute", (3,), {"perm": [(0, size - 1), (size - 1, 0)][:size]}),
            ("pbroadcast", (3, 2), {"source": size // 2}),
            ("pbroadcast", (9000,), {"source": size - 1}),
            ("ppermute", (3,), {"perm": [(i, i + 1) for i in range(size - 1)]}),
        ]
