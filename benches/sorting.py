"""Order: sorts, places and the largest elements, beside JAX and beside NumPy."""

from __future__ import annotations

import numpy as np
from timing import Row, compiled, timed

SIZE = 1_000_000
LINES = 1_000


def _floats(*shape):
    return np.random.default_rng(0).standard_normal(shape, np.float32)


CASES = [
    ("`sort` of 1M floats", _floats(SIZE), lambda lib, x: lib.jnp.sort(x), np.sort),
    ("`argsort` of 1M floats", _floats(SIZE), lambda lib, x: lib.jnp.argsort(x),
     lambda x: np.argsort(x, kind="stable")),
    ("`top_k` 10 of 1M floats", _floats(SIZE), lambda lib, x: lib.jax.lax.top_k(x, 10),
     lambda x: np.sort(np.partition(x, -10)[-10:])),
    ("`sort` of 1,000 rows of 1,000 floats", _floats(LINES, LINES), lambda lib, x: lib.jnp.sort(x),
     np.sort),
    ("`sort` of 1,000 columns of 1,000 floats", _floats(LINES, LINES),
     lambda lib, x: lib.jnp.sort(x, axis=0), lambda x: np.sort(x, axis=0)),
]  # fmt: skip


class _NumPy:
    """Looks like a library to `timed`: its calls run NumPy."""


def _part_of_numpy(array, function, of_numpy):
    """The times as parts of NumPy's."""
    prepare = compiled(array, function)

    def start(library):
        return (lambda: of_numpy(array)) if library is _NumPy else prepare(library)

    row = timed("", "ms", None, start, rounds=3, samples=3)

    def measure(found):
        times = row.measure({**found, "numpy": _NumPy})
        return {key: times[key] / times["numpy"] for key in found}

    return measure


ROWS = [
    row
    for name, array, function, of_numpy in CASES
    for row in (
        timed(name, "ms", None, compiled(array, function), rounds=3, samples=3),
        Row(f"{name}, parts of NumPy's time", "", 1.0, _part_of_numpy(array, function, of_numpy)),
    )
]
