"""Large elementwise work, where memory and page faults decide."""

from __future__ import annotations

import resource

import numpy as np
from timing import Row, timed

SIZE = 10_000_000


def _exp(library):
    x = library.jax.device_put(np.linspace(-4, 4, SIZE, dtype=np.float32))
    fun = library.jax.jit(library.jnp.exp)
    return lambda: fun(x).block_until_ready()


def _exp_faults(found):
    """Minor page faults for each repeated call."""
    faults = {}
    for key, library in found.items():
        call = _exp(library)
        for _ in range(3):
            call()
        runs = 10
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(runs):
            call()
        faults[key] = (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / runs
    return faults


ROWS = [
    timed("`exp` of 10M floats, repeated", "ms", 6.0, _exp, rounds=5, samples=3),
    Row("page faults of each such run", "", 0.0, _exp_faults),
]
