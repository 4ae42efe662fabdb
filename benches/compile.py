"""How long programs take to trace and to compile, by their number of equations."""

from __future__ import annotations

import numpy as np
from timing import timed_once

TITLE = "Tracing and compiling"

TRACED = 1000
COMPILED = 3000


def _chain(library, equations):
    """A fresh function of `equations` elementwise equations, in turn sin, mul and add."""
    jnp = library.jnp

    def chain(x):
        for _ in range(equations // 3):
            x = jnp.sin(x) * 0.99 + 0.01
        return x

    return chain


def _trace(library):
    fun = library.jax.jit(_chain(library, TRACED))
    x = library.jnp.ones(8, np.float32)
    return lambda: fun.trace(x)


def _compile(library):
    fun = library.jax.jit(_chain(library, COMPILED))
    x = library.jnp.ones(8, np.float32)
    return lambda: fun(x).block_until_ready()


def _compile_grad(library):
    chain = _chain(library, COMPILED)
    fun = library.jax.jit(library.jax.grad(lambda x: chain(x).sum()))
    x = library.jnp.ones(8, np.float32)
    return lambda: fun(x).block_until_ready()


ROWS = [
    timed_once("trace, per equation (chain of 1,000)", "µs", 5.0, _trace, per=TRACED // 3 * 3),
    timed_once("trace and compile 3,000 equations", "ms", 100.0, _compile, rounds=3),
    timed_once("the same for their gradient", "ms", 300.0, _compile_grad, rounds=3),
]
