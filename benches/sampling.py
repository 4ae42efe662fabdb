"""Random numbers, beside JAX: a key is split anew in each call, as programs do."""

from __future__ import annotations

import numpy as np
from timing import case

TITLE = "Random numbers"

SIZE = 100_000
WORDS = np.array([0, 7], np.uint32)

RANDOM = np.random.default_rng(0)


def _row(name, sample, numpy=None, torch=None):
    """NumPy and PyTorch draw from generators of their own."""
    return case(
        name, [WORDS], lambda library, key: sample(library.jax.random, key), unit="ms", rounds=3, alike=False,
        numpy=numpy and (lambda _: numpy(RANDOM)), torch=torch and (lambda t, _: torch(t)),
    )  # fmt: skip


ROWS = [
    _row("`random.normal`, 100k numbers", lambda random, key: random.normal(key, (SIZE,)),
         lambda random: random.standard_normal(SIZE, np.float32), lambda t: t.randn(SIZE)),
    _row("`random.gamma`, 100k numbers", lambda random, key: random.gamma(key, 2.5, (SIZE,)),
         lambda random: random.standard_gamma(2.5, SIZE, np.float32),
         lambda t: t.distributions.Gamma(2.5, 1.0).sample((SIZE,))),
    _row("`random.dirichlet`, 100k numbers in vectors of 10",
         lambda random, key: random.dirichlet(key, np.ones(10, np.float32), (SIZE // 10,)),
         lambda random: random.dirichlet(np.ones(10), SIZE // 10),
         lambda t: t.distributions.Dirichlet(t.ones(10)).sample((SIZE // 10,))),
    _row("`random.poisson`, 100k numbers of mean 3", lambda random, key: random.poisson(key, 3.0, (SIZE,)),
         lambda random: random.poisson(3.0, SIZE), lambda t: t.poisson(t.full((SIZE,), 3.0))),
    _row("`random.poisson`, 100k numbers of mean 100",
         lambda random, key: random.poisson(key, 100.0, (SIZE,)),
         lambda random: random.poisson(100.0, SIZE), lambda t: t.poisson(t.full((SIZE,), 100.0))),
    _row("`random.binomial`, 100k numbers of 100 trials",
         lambda random, key: random.binomial(key, 100, 0.3, (SIZE,)),
         lambda random: random.binomial(100, 0.3, SIZE),
         lambda t: t.binomial(t.full((SIZE,), 100.0), t.full((SIZE,), 0.3))),
    _row("`random.bits` of `rbg`, 1M numbers",
         lambda random, key: random.bits(random.wrap_key_data(key.repeat(2), impl="rbg"), (1 << 20,)),
         lambda random: random.integers(0, 1 << 32, 1 << 20, np.uint32)),
]  # fmt: skip
