"""Pooling, special functions, pictures and sparse products."""

from __future__ import annotations

import contextlib
import importlib

import numpy as np
from timing import case, timed

TITLE = "Pools, special functions, pictures, sparse products"

IMAGES = np.random.default_rng(0).standard_normal((32, 64, 64, 32), np.float32)
HALVES = np.random.default_rng(4).standard_normal((32, 32, 32, 32), np.float32)
POSITIVE = np.random.default_rng(1).uniform(0.1, 10, 1_000_000).astype(np.float32)
PLACES = np.random.default_rng(3).integers(0, POSITIVE.size, POSITIVE.size).astype(np.int32)
SPARSE = np.where(np.random.default_rng(2).uniform(size=(2000, 2000)) < 0.01, np.float32(1.5), np.float32(0))


def _max_pool(library, x):
    lax = library.jax.lax
    return lax.reduce_window(x, -np.float32(np.inf), lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def _mean_pool(library, x):
    lax = library.jax.lax
    return lax.reduce_window(x, np.float32(0), lax.add, (1, 3, 3, 1), (1, 2, 2, 1), "SAME") / 9


def _t_pools(t, x, pool):
    """A pool of PyTorch, which has features before places, in JAX's order."""
    return pool(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)


def _t_max_pool(t, x):
    return _t_pools(t, x, lambda x: t.nn.functional.max_pool2d(x, 2))


def _t_mean_pool(t, x):
    """JAX's padding of an even length is behind alone."""

    def pool(x):
        return t.nn.functional.avg_pool2d(t.nn.functional.pad(x, (0, 1, 0, 1)), 3, 2)

    return _t_pools(t, x, pool)


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


def _checked(library):
    """`x[i]` jitted, under ferrax's `debug_index`, which JAX lacks."""
    x, i = library.jax.device_put((POSITIVE, PLACES))
    function = library.jax.jit(lambda x, i: x[i])

    def run():
        check = library.name == "ferrax"
        with library.jax.debug_index(True) if check else contextlib.nullcontext():
            return library.jax.block_until_ready(function(x, i))

    return run


def _resize(method):
    def function(library, x):
        return library.jax.image.resize(x, (8, 128, 128, 32), method)

    return function


SPECIAL = ("gammaln", "digamma", "gammainc", "betainc", "i0e", "i1e", "ndtri", "zeta")
T_SPECIAL = ("gammaln", "digamma", "i0e", "i1e", "ndtri")


def _row(name, arrays, function, torch=None, **more):
    return case(name, arrays, function, torch=torch, unit="ms", rounds=3, **more)


def _t_special(name):
    return (lambda t, x: getattr(t.special, name)(x)) if name in T_SPECIAL else None


ROWS = [
    _row("max-pool 2×2, 32×64×64×32", [IMAGES], _max_pool, _t_max_pool),
    _row("gradient of this max-pool", [IMAGES, HALVES], _max_pool, _t_max_pool, gradient=1),
    _row("mean-pool 3×3 by 2, 32×64×64×32", [IMAGES], _mean_pool, _t_mean_pool),
    _row("gradient of this mean-pool", [IMAGES, HALVES],
         lambda lib, x: _mean_pool(lib, x) ** 2, lambda t, x: _t_mean_pool(t, x) ** 2, gradient=1),
    *(_row(f"`{name}` of 1M floats", [POSITIVE], _special(name), _t_special(name)) for name in SPECIAL),
    _row("`image.resize` of 8×64×64×32 to 128×128, bilinear", [IMAGES[:8]], _resize("bilinear")),
    _row("`image.resize` of the same, cubic", [IMAGES[:8]], _resize("cubic")),
    _row("`x[i]`, 1M indices of 1M floats", [POSITIVE, PLACES], lambda lib, x, i: x[i], True, numpy=True),
    timed("the same `x[i]` under `debug_index`", "ms", None, _checked, rounds=3),
    timed("BCOO 2000×2000 (1 %) by 2000×64", "ms", None, _product, rounds=3),
]  # fmt: skip
