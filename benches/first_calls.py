"""First calls of small jitted functions, each with one operation that is more than elementwise: tracing,
compiling and running."""

from __future__ import annotations

import importlib

import numpy as np
from timing import timed_once

TITLE = "First calls of small functions"

MATRIX = np.random.default_rng(0).standard_normal((16, 16), np.float32)
DEFINITE = MATRIX @ MATRIX.T + np.eye(16, dtype=np.float32)
KEY = np.array([0, 7], np.uint32)


def _special(library):
    return importlib.import_module(f"{library.name}.scipy.special")


CASES = [
    ("`fft`", MATRIX, lambda lib, a: lib.jnp.fft.fft(a)),
    ("`cholesky`", DEFINITE, lambda lib, a: lib.jnp.linalg.cholesky(a)),
    ("`lu`", MATRIX, lambda lib, a: lib.jax.lax.linalg.lu(a)),
    ("`qr`", MATRIX, lambda lib, a: lib.jnp.linalg.qr(a)),
    ("`solve`", MATRIX, lambda lib, a: lib.jnp.linalg.solve(a, a)),
    ("`inv`", MATRIX, lambda lib, a: lib.jnp.linalg.inv(a)),
    ("`det`", MATRIX, lambda lib, a: lib.jnp.linalg.det(a)),
    ("`svd`", MATRIX, lambda lib, a: lib.jnp.linalg.svd(a)),
    ("`eigh`", DEFINITE, lambda lib, a: lib.jnp.linalg.eigh(a)),
    ("`random.gamma`", KEY, lambda lib, key: lib.jax.random.gamma(key, 2.5, (100,))),
    ("`random.poisson`", KEY, lambda lib, key: lib.jax.random.poisson(key, 3.0, (100,))),
    ("`random.dirichlet`", KEY, lambda lib, key: lib.jax.random.dirichlet(key, np.ones(4, np.float32), (100,))),
    ("`betainc`", DEFINITE, lambda lib, a: _special(lib).betainc(abs(a) + 1, abs(a) + 1, 0.4)),
    ("`igamma`", DEFINITE, lambda lib, a: lib.jax.lax.igamma(abs(a) + 1, abs(a) + 1)),
    ("`image.resize`", MATRIX, lambda lib, a: lib.jax.image.resize(a, (24, 20), "cubic")),
    ("max-pool", MATRIX, lambda lib, a: lib.jax.lax.reduce_window(
        a, -np.float32(np.inf), lib.jax.lax.max, (2, 2), (2, 2), "VALID")),
]  # fmt: skip


def _first(array, function):
    def prepare(library):
        x = library.jax.device_put(array)
        run = library.jax.jit(lambda x: function(library, x))
        return lambda: library.jax.block_until_ready(run(x))

    return prepare


ROWS = [timed_once(f"first call of {name}", "ms", None, _first(array, function), rounds=3)
        for name, array, function in CASES]
