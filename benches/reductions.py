"""Sums, variances and extremes along each axis, and contractions."""

from __future__ import annotations

import numpy as np
from timing import case

TITLE = "Reductions"


def _array(*shape):
    return np.random.default_rng(0).standard_normal(shape, np.float32)


THIN, SQUARE, LONG = _array(1_000_000, 3), _array(1000, 1000), _array(10_000_000)
PAIR, TALL = _array(1_000_000, 2), _array(1_000_000, 10)


def _gradient(name, array, function, result, torch):
    """Of a reduction, for a cotangent of the shape of its result."""
    return case(name, [array, _array(*result)], function, gradient=1, torch=torch)


def _row(name, array, function, torch, unit="µs"):
    """`torch` is what PyTorch does, where its names of arguments are others."""
    return case(name, [array], function, numpy=True, torch=torch, unit=unit)


ROWS = [
    *(_row(f"`sum` of {size} floats", LONG[:count], lambda lib, x: lib.jnp.sum(x), True)
      for size, count in (("1k", 1_000), ("100k", 100_000), ("1M", 1_000_000), ("10M", 10_000_000))),
    *(_row(f"`var` of {size} floats", LONG[:count], lambda lib, x: lib.jnp.var(x),
           lambda t, x: t.var(x, correction=0))
      for size, count in (("1k", 1_000), ("1M", 1_000_000), ("10M", 10_000_000))),
    _row("`sum` of 1M×3 floats over axis 0", THIN, lambda lib, x: lib.jnp.sum(x, 0), True),
    _row("`sum` of 1000×1000 floats over axis 0", SQUARE, lambda lib, x: lib.jnp.sum(x, 0), True),
    _row("`sum` of 1000×1000 floats over axis 1", SQUARE, lambda lib, x: lib.jnp.sum(x, 1), True),
    _row("`mean` of 1000×1000 floats over axis 0", SQUARE, lambda lib, x: lib.jnp.mean(x, 0), True),
    _row("`max` of 1000×1000 floats over axis 1", SQUARE, lambda lib, x: lib.jnp.max(x, 1),
         lambda t, x: t.amax(x, 1)),
    _row("`var` of 1000×1000 floats over axis 0", SQUARE, lambda lib, x: lib.jnp.var(x, 0),
         lambda t, x: t.var(x, 0, correction=0)),
    _row("`var` of 1000×1000 floats over axis 1", SQUARE, lambda lib, x: lib.jnp.var(x, 1),
         lambda t, x: t.var(x, 1, correction=0)),
    _row("`var` of 1M×3 floats over axis 0", THIN, lambda lib, x: lib.jnp.var(x, 0),
         lambda t, x: t.var(x, 0, correction=0)),
    _row("`argmax` of 1M floats", LONG[:1_000_000], lambda lib, x: lib.jnp.argmax(x), True),
    _row("`argmax` of 1000×1000 floats over axis 0", SQUARE, lambda lib, x: lib.jnp.argmax(x, 0), True),
    _row("`argmax` of 1000×1000 floats over axis 1", SQUARE, lambda lib, x: lib.jnp.argmax(x, 1), True),
    _gradient("gradient of `sum(sin(x))` of 1000×1000 over axis 1", SQUARE,
              lambda lib, x: lib.jnp.sum(lib.jnp.sin(x), 1), (1000,), True),
    _gradient("gradient of `var` of 1000×1000 over axis 1", SQUARE,
              lambda lib, x: lib.jnp.var(x, 1), (1000,), lambda t, x: t.var(x, 1, correction=0)),
    _gradient("gradient of `max` of 1000×1000 over axis 1", SQUARE,
              lambda lib, x: lib.jnp.max(x, 1), (1000,), lambda t, x: t.amax(x, 1)),
    _row("`einsum('ij,ij->j')` of 1M×2 floats", PAIR, lambda lib, x: lib.jnp.einsum("ij,ij->j", x, x), True),
    _row("`dot` of 1M floats", LONG[:1_000_000], lambda lib, x: lib.jnp.dot(x, x), True),
    _row("`dot` of 10M floats", LONG, lambda lib, x: lib.jnp.dot(x, x), True),
    _row("`x.T @ x` of 1M×10 floats", TALL, lambda lib, x: x.T @ x, True),
    _row("`x @ x` of 1000×1000 floats", SQUARE, lambda lib, x: x @ x, True, unit="ms"),
]  # fmt: skip
