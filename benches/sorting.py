"""Order: sorts, places and the largest elements."""

from __future__ import annotations

import numpy as np
from timing import case

TITLE = "Order"
SIZE = 1_000_000
LINES = 1_000


def _floats(*shape):
    return np.random.default_rng(0).standard_normal(shape, np.float32)


def _row(name, array, function, numpy, torch):
    return case(name, [array], function, numpy=numpy, torch=torch, unit="ms", rounds=3)


ROWS = [
    _row("`sort` of 1M floats", _floats(SIZE), lambda lib, x: lib.jnp.sort(x), True,
         lambda t, x: t.sort(x)[0]),
    _row("`argsort` of 1M floats", _floats(SIZE), lambda lib, x: lib.jnp.argsort(x),
         lambda x: np.argsort(x, kind="stable"), lambda t, x: t.argsort(x, stable=True)),
    _row("`top_k` 10 of 1M floats", _floats(SIZE), lambda lib, x: lib.jax.lax.top_k(x, 10)[0],
         lambda x: np.sort(np.partition(x, -10)[-10:])[::-1], lambda t, x: t.topk(x, 10)[0]),
    _row("`sort` of 1,000 rows of 1,000 floats", _floats(LINES, LINES), lambda lib, x: lib.jnp.sort(x),
         True, lambda t, x: t.sort(x)[0]),
    _row("`sort` of 1,000 columns of 1,000 floats", _floats(LINES, LINES),
         lambda lib, x: lib.jnp.sort(x, axis=0), True, lambda t, x: t.sort(x, dim=0)[0]),
]  # fmt: skip
