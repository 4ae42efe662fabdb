"""Pooling, special functions, pictures and sparse products, beside JAX."""

from __future__ import annotations

import contextlib
import importlib

import numpy as np
from timing import compiled, timed

IMAGES = np.random.default_rng(0).standard_normal((32, 64, 64, 32), np.float32)
POSITIVE = np.random.default_rng(1).uniform(0.1, 10, 1_000_000).astype(np.float32)
SPARSE = np.where(np.random.default_rng(2).uniform(size=(2000, 2000)) < 0.01, np.float32(1.5), np.float32(0))


def _max_pool(library, x):
    lax = library.jax.lax
    return lax.reduce_window(x, -np.float32(np.inf), lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def _mean_pool(library, x):
    lax = library.jax.lax
    return lax.reduce_window(x, np.float32(0), lax.add, (1, 3, 3, 1), (1, 2, 2, 1), "SAME") / 9


def _special(name):
    def function(library, x):
        special = importlib.import_module(f"{library.name}.scipy.special")
        several = {"betainc": (x, x + 1, x / 11), "gammainc": (x, x + 0.5), "zeta": (x + 1.1, x)}
        return getattr(special, name)(*several.get(name, (x,)))

    return function


def _product(library):
    sparse = importlib.import_module(f"{library.name}.experimental.sparse")
    matrix = sparse.BCOO.fromdense(SPARSE)
    vectors = library.jax.device_put(IMAGES.reshape(-1)[: 2000 * 64].reshape(2000, 64))
    run = library.jax.jit(lambda m, v: m @ v)
    return lambda: library.jax.block_until_ready(run(matrix, vectors))


def _taken(checked):
    """`x[i]` jitted; `checked` under ferrax's `debug_index`, which JAX lacks."""

    def prepare(library):
        taken = np.random.default_rng(3).integers(0, POSITIVE.size, POSITIVE.size).astype(np.int32)
        x, i = library.jax.device_put(POSITIVE), library.jax.device_put(taken)
        function = library.jax.jit(lambda x, i: x[i])
        check = checked and library.name == "ferrax"

        def run():
            with library.jax.debug_index(True) if check else contextlib.nullcontext():
                return library.jax.block_until_ready(function(x, i))

        return run

    return prepare


def _resize(method):
    def function(library, x):
        return library.jax.image.resize(x, (8, 128, 128, 32), method)

    return function


CASES = [
    ("max-pool 2×2, 32×64×64×32", IMAGES, _max_pool),
    ("gradient of this max-pool", IMAGES, lambda lib, x: lib.jax.grad(lambda x: _max_pool(lib, x).sum())(x)),
    ("mean-pool 3×3 by 2, 32×64×64×32", IMAGES, _mean_pool),
    ("gradient of this mean-pool", IMAGES, lambda lib, x: lib.jax.grad(lambda x: (_mean_pool(lib, x) ** 2).sum())(x)),
    *((f"`{name}` of 1M floats", POSITIVE, _special(name))
      for name in ("gammaln", "digamma", "gammainc", "betainc", "i0e", "i1e", "ndtri", "zeta")),
    ("`image.resize` of 8×64×64×32 to 128×128, bilinear", IMAGES[:8], _resize("bilinear")),
    ("`image.resize` of the same, cubic", IMAGES[:8], _resize("cubic")),
]  # fmt: skip

ROWS = [
    *(timed(name, "ms", None, compiled(array, function), rounds=3, samples=3) for name, array, function in CASES),
    timed("`x[i]`, 1M indices of 1M floats", "ms", None, _taken(False), rounds=3, samples=3),
    timed("the same `x[i]` under `debug_index`", "ms", None, _taken(True), rounds=3, samples=3),
    timed("BCOO 2000×2000 (1 %) by 2000×64", "ms", None, _product, rounds=3, samples=3),
]
