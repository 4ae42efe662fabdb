"""Work that moves elements: transposes, running sums, gathers, scatters, segments."""

from __future__ import annotations

import numpy as np
from timing import case

TITLE = "Movement"
SIZE, GROUPS = 1_000_000, 1_000
LINES, WIDTH = 10_000, 64

_random = np.random.default_rng(0)
SQUARE = _random.standard_normal((2000, 2000), np.float32)
LONG, COTANGENT = (_random.standard_normal(SIZE, np.float32) for _ in range(2))
TABLE = _random.standard_normal((LINES, WIDTH), np.float32)
CUBE = _random.standard_normal((64, 128, 8, 32), np.float32)
PLACES = _random.integers(0, SIZE, SIZE).astype(np.int32)
TAKEN = _random.integers(0, LINES, LINES).astype(np.int32)
UPDATES = _random.standard_normal((LINES, WIDTH), np.float32)
PAIRS = [_random.integers(0, 2000, 200_000).astype(np.int32) for _ in range(2)]
FRACTIONS = [_random.uniform(0, 1999, 200_000).astype(np.float32) for _ in range(2)]
SEGMENTS = np.sort(_random.integers(0, GROUPS, SIZE)).astype(np.int32)


def _segment_sum(library, x, segments):
    return library.jax.ops.segment_sum(x, segments, GROUPS)


def _np_scatter(x, places, updates):
    x = x.copy()
    np.add.at(x, places, updates)
    return x


def _t_scatter(t, x, places, updates):
    return x.index_add(0, places, updates)


def _interpolated(library, x, i, j):
    return library.jax.scipy.ndimage.map_coordinates(x, [i, j], order=1)


ROWS = [
    case("transpose of 2000×2000, copied", [SQUARE], lambda lib, x: x.T + 0,
         numpy=True, torch=lambda t, x: x.T.contiguous()),
    case("`x + x.T` of 2000×2000", [SQUARE], lambda lib, x: x + x.T, numpy=True, torch=True),
    case("transpose of 64×128×8×32 to 64×8×128×32", [CUBE], lambda lib, x: x.transpose(0, 2, 1, 3) + 0,
         numpy=True, torch=lambda t, x: x.permute(0, 2, 1, 3).contiguous()),
    case("`cumsum` of 1M floats", [LONG], lambda lib, x: lib.jnp.cumsum(x),
         numpy=True, torch=lambda t, x: t.cumsum(x, 0)),
    case("`cumsum` of 2000×2000 over axis 0", [SQUARE], lambda lib, x: lib.jnp.cumsum(x, 0),
         numpy=True, torch=True),
    case("`cumsum` of 2000×2000 over axis 1", [SQUARE], lambda lib, x: lib.jnp.cumsum(x, 1),
         numpy=True, torch=True),
    case("`concatenate` of 1M floats and 1M floats", [LONG, COTANGENT],
         lambda lib, x, y: lib.jnp.concatenate([x, y]), numpy=True, torch=True),
    case("`x[i]`, 10,000 lines of 64 floats", [TABLE, TAKEN], lambda lib, x, i: x[i],
         numpy=True, torch=True),
    case("gradient of this `x[i]`", [TABLE, TAKEN, UPDATES], lambda lib, x, i: x[i], gradient=1,
         torch=True),
    case("`2 * x[i] + 1`, 1M floats of 1M", [LONG, PLACES], lambda lib, x, i: 2 * x[i] + 1,
         numpy=True, torch=True),
    case("`x[i, j]`, 200,000 of 2000×2000", [SQUARE, *PAIRS], lambda lib, x, i, j: x[i, j],
         numpy=True, torch=True),
    case("`map_coordinates` of 200,000 places in 2000×2000, linear", [SQUARE, *FRACTIONS], _interpolated,
         unit="ms"),
    case("`x.at[i].add(y)`, 1M floats into 1M", [LONG, PLACES, COTANGENT],
         lambda lib, x, i, y: x.at[i].add(y), numpy=_np_scatter, torch=_t_scatter),
    case("`x.at[i].add(y)`, 10,000 lines of 64 floats", [TABLE, TAKEN, UPDATES],
         lambda lib, x, i, y: x.at[i].add(y), numpy=_np_scatter, torch=_t_scatter),
    case("`segment_sum` of 1M floats in 1,000 segments", [LONG, SEGMENTS], _segment_sum,
         numpy=lambda x, i: np.bincount(i, x, GROUPS).astype(np.float32),
         torch=lambda t, x, i: t.zeros(GROUPS).index_add(0, i, x)),
    case("`segment_sum` of 10,000 lines of 64 floats in 1,000", [UPDATES, TAKEN % GROUPS], _segment_sum,
         torch=lambda t, x, i: t.zeros((GROUPS, WIDTH)).index_add(0, i, x)),
    case("gradient of the former `segment_sum`", [LONG, SEGMENTS, COTANGENT[:GROUPS]], _segment_sum,
         gradient=1, torch=lambda t, x, i: t.zeros(GROUPS).index_add(0, i, x)),
]  # fmt: skip
