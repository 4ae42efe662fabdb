"""Sums along each axis, and contractions."""

from __future__ import annotations

import numpy as np
from timing import compiled, timed


def _array(*shape):
    return np.random.default_rng(0).standard_normal(shape, np.float32)


def _row(name, array, function, unit="µs"):
    return timed(name, unit, None, compiled(array, function), rounds=5, samples=3)


THIN, SQUARE, LONG = _array(1_000_000, 3), _array(1000, 1000), _array(10_000_000)
PAIR, TALL = _array(1_000_000, 2), _array(1_000_000, 10)


def _gram(library, x):
    return x.T @ x


ROWS = [
    _row("`sum` of 1M×3 floats over axis 0", THIN, lambda lib, x: lib.jnp.sum(x, 0)),
    _row("`sum` of 1000×1000 floats over axis 0", SQUARE, lambda lib, x: lib.jnp.sum(x, 0)),
    _row("`sum` of 1000×1000 floats over axis 1", SQUARE, lambda lib, x: lib.jnp.sum(x, 1)),
    _row("`sum` of 10M floats", LONG, lambda lib, x: lib.jnp.sum(x)),
    _row("`mean` of 1000×1000 floats over axis 0", SQUARE, lambda lib, x: lib.jnp.mean(x, 0)),
    _row("`var` of 1000×1000 floats over axis 0", SQUARE, lambda lib, x: lib.jnp.var(x, 0)),
    _row("`var` of 1M×3 floats over axis 0", THIN, lambda lib, x: lib.jnp.var(x, 0)),
    _row("`einsum('ij,ij->j')` of 1M×2 floats", PAIR, lambda lib, x: lib.jnp.einsum("ij,ij->j", x, x)),
    _row("`dot` of 1M floats", LONG[:1_000_000], lambda lib, x: lib.jnp.dot(x, x)),
    _row("`dot` of 10M floats", LONG, lambda lib, x: lib.jnp.dot(x, x)),
    _row("`x.T @ x` of 1M×10 floats", TALL, _gram),
    _row("`x @ x` of 1000×1000 floats", SQUARE, lambda lib, x: x @ x, unit="ms"),
]
