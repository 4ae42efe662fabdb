"""Elementwise work from 1,000 to 10 million floats: calls decide at one end, memory and page faults at
the other."""

from __future__ import annotations

import resource

import numpy as np
from timing import Row, case, timed

TITLE = "Elementwise"
LARGEST = 10_000_000
SIZES = {"1k": 1_000, "10k": 10_000, "100k": 100_000, "1M": 1_000_000, "10M": LARGEST}
VALUES = np.random.default_rng(0).uniform(-4, 4, LARGEST).astype(np.float32)
SECOND, THIRD = VALUES[::-1].copy(), np.roll(VALUES, 1)

FUNCTIONS = {
    "`x + y`": (2, lambda lib, x, y: x + y),
    "`x * y + z`": (3, lambda lib, x, y, z: x * y + z),
    "`exp(x)`": (1, lambda lib, x: lib.jnp.exp(x)),
    "`tanh(exp(sin(x)))`": (1, lambda lib, x: lib.jnp.tanh(lib.jnp.exp(lib.jnp.sin(x)))),
    "sum of `log1p(abs(x)**1.7)`": (1, lambda lib, x: lib.jnp.sum(lib.jnp.log1p(abs(x) ** 1.7))),
}
# Some ten operations and more on each element.
ACTIVATIONS = {
    "gelu": lambda lib, x: lib.jax.nn.gelu(x),
    "silu": lambda lib, x: lib.jax.nn.silu(x),
    "a polynomial of degree 6": lambda lib, x: lib.jnp.polyval(lib.jnp.arange(1.0, 8.0), x),
}


def _exp(library):
    x = library.jax.device_put(np.linspace(-4, 4, LARGEST, dtype=np.float32))
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
    *(
        case(f"{name} of {size} floats", [x[:count] for x in (VALUES, SECOND, THIRD)[:operands]],
             function, numpy=True, torch=True)
        for name, (operands, function) in FUNCTIONS.items()
        for size, count in SIZES.items()
    ),
    *(
        case(f"`{name}` of {size} floats", [VALUES[:count]], function)
        for name, function in ACTIVATIONS.items()
        for size, count in SIZES.items()
        if size in ("100k", "1M")
    ),
    timed("`exp` of 10M floats, repeated", "ms", 6.0, _exp),
    Row("page faults of each such run", "", 0.0, _exp_faults),
]  # fmt: skip
