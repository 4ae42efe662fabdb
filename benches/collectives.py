"""Functions mapped over a named axis, beside JAX: normalisation over the batch, a ring, and what
each lane gathers."""

from __future__ import annotations

import numpy as np
from timing import timed

TITLE = "Named axes"

LANES, WIDTH = 1_000, 1_000


def _mapped(function, gradient=False):
    """Prepares the compiled map of a function of a library and a lane."""

    def prepare(library):
        jax = library.jax
        x = np.random.default_rng(0).standard_normal((LANES, WIDTH), np.float32)
        fun = jax.vmap(lambda x: function(library, x), axis_name="lanes")
        if gradient:
            inner = fun
            fun = jax.grad(lambda x: (inner(x) ** 3).sum())
        fun, x = jax.jit(fun), jax.device_put(x)
        return lambda: jax.block_until_ready(fun(x))

    return prepare


def _normalised(library, x):
    lax = library.jax.lax
    x = x - lax.pmean(x, "lanes")
    return x * lax.rsqrt(lax.pmean(x * x, "lanes") + 1e-5)


def _ring(library, x):
    lanes = [(lane, (lane + 1) % LANES) for lane in range(LANES)]
    return x + library.jax.lax.ppermute(x, "lanes", lanes)


def _exchanged(library, x):
    return library.jax.lax.all_to_all(x, "lanes", 0, 0) * 2


NAMED = "1,000 lanes of 1,000 floats"
ROWS = [
    timed(f"`vmap` with `pmean`: {NAMED} normalised", "ms", None, _mapped(_normalised)),
    timed("gradient of `vmap` with `pmean`", "ms", None, _mapped(_normalised, gradient=True)),
    timed(f"`vmap` with `ppermute`: a ring of {NAMED}", "ms", None, _mapped(_ring)),
    timed(f"`vmap` with `all_to_all` of {NAMED}", "ms", None, _mapped(_exchanged)),
]
