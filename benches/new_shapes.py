"""Calls with a shape that their function has not seen, of a structure that it has: a shape more must not
cost a compilation. A figure is the median of 200 shapes; JAX, which compiles, gets fewer."""

from __future__ import annotations

import functools

import numpy as np
from timing import NUMPY, tensor, timed_shapes, torch

TITLE = "New shapes"

# Of operands whose shapes are those that each function of i gives.
EAGER = {
    "`exp`": (lambda lib, x: lib.jnp.exp(x), lambda i: [(1000 + 7 * i,)]),
    "`x + y`, broadcast": (lambda lib, x, y: x + y, lambda i: [(11 + i, 32), (32,)]),
    "`sum` over an axis": (lambda lib, x: lib.jnp.sum(x, 0), lambda i: [(11 + i, 33)]),
    "`x @ y`": (lambda lib, x, y: x @ y, lambda i: [(11 + i, 24), (24, 16)]),
    "`concatenate`": (lambda lib, x, y: lib.jnp.concatenate([x, y]), lambda i: [(50 + i,), (70 + 2 * i,)]),
}  # fmt: skip


def _operands(shapes, i):
    return [np.ones(shape, np.float32) for shape in shapes(i)]


def _eager(function, shapes):
    def prepare(library, i):
        arrays = library.jax.block_until_ready(library.jax.device_put(_operands(shapes, i)))
        return lambda: library.jax.block_until_ready(function(library, *arrays))

    def of_numpy(i):
        return functools.partial(function, NUMPY, *_operands(shapes, i))

    def of_torch(i):
        t = type(NUMPY)("torch", None, torch())
        return functools.partial(function, t, *map(tensor, _operands(shapes, i)))

    return prepare, {"numpy": of_numpy, "torch": of_torch}


def _small(library, x, w):
    """A layer and its mean: what is jitted."""
    return library.jnp.tanh(x @ w + 1).mean(0)


@functools.cache
def _jitted(library, _purpose):
    return library.jax.jit(functools.partial(_small, library))


def _call(library, i):
    fun = _jitted(library, "call")
    x, w = library.jax.device_put(_operands(lambda i: [(11 + i, 24), (24, 16)], i))
    return lambda: library.jax.block_until_ready(fun(x, w))


def _trace(library, i):
    fun = _jitted(library, "trace")
    x, w = library.jax.device_put(_operands(lambda i: [(11 + i, 24), (24, 16)], i))
    return lambda: fun.trace(x, w) and None


def _row(name, function, shapes):
    prepare, others = _eager(function, shapes)
    return timed_shapes(f"eager {name} at a new shape", "µs", 30.0, prepare, others=others)


ROWS = [
    *(_row(name, function, shapes) for name, (function, shapes) in EAGER.items()),
    timed_shapes("jitted `tanh(x @ w + 1).mean(0)` at a new shape", "µs", None, _call),
    timed_shapes("tracing of it", "µs", None, _trace),
]
