"""Random numbers, beside JAX: a key is split anew in each call, as programs do."""

from __future__ import annotations

import numpy as np
from timing import compiled, timed

SIZE = 100_000
WORDS = np.array([0, 7], np.uint32)

CASES = [
    ("`random.normal`, 100k numbers", lambda random, key: random.normal(key, (SIZE,))),
    ("`random.gamma`, 100k numbers", lambda random, key: random.gamma(key, 2.5, (SIZE,))),
    ("`random.dirichlet`, 100k numbers in vectors of 10",
     lambda random, key: random.dirichlet(key, np.ones(10, np.float32), (SIZE // 10,))),
    ("`random.poisson`, 100k numbers of mean 3", lambda random, key: random.poisson(key, 3.0, (SIZE,))),
    ("`random.poisson`, 100k numbers of mean 100",
     lambda random, key: random.poisson(key, 100.0, (SIZE,))),
    ("`random.binomial`, 100k numbers of 100 trials",
     lambda random, key: random.binomial(key, 100, 0.3, (SIZE,))),
    ("`random.bits` of `rbg`, 1M numbers",
     lambda random, key: random.bits(random.wrap_key_data(key.repeat(2), impl="rbg"), (1 << 20,))),
]  # fmt: skip


def _row(name, sample):
    def function(library, words):
        return sample(library.jax.random, words)

    return timed(name, "ms", None, compiled(WORDS, function), rounds=3, samples=3)


ROWS = [_row(name, sample) for name, sample in CASES]
