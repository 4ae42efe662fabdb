"""``lax.rng_uniform``: numbers that differ each time that a program runs."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ferrax._src import core
from ferrax._src.base import dtypes
from ferrax._src.callbacks.callback import io_callback
from ferrax._src.core import Array
from ferrax._src.core.typing import ArrayLike
from ferrax._src.lax.arguments import canonical_shape, operand as _operand
from ferrax._src.transforms.composites import composite


@functools.cache
def _generator() -> np.random.Generator:
    # At the first draw: `numpy.random` is loaded when it is asked for.
    return np.random.default_rng()


def rng_uniform(a: ArrayLike, b: ArrayLike, shape: Sequence[int]) -> Array:
    """Uniform random numbers in [a, b), others at each run: for tests and experiments.

    Use `ferrax.random` for numbers that a key determines.

    Args:
      a, b: scalars of one dtype, floats or integers.
      shape: the shape of the result.

    Errors: ValueError for other shapes and for unequal dtypes; TypeError for dtypes without an order.

    Source: NumPy's default generator, PCG-64 (O'Neill, 2014), seeded by the system.

    >>> x = lax.rng_uniform(0.0, 1.0, (100,))
    >>> bool((x >= 0).all() and (x < 1).all())
    True
    """
    a, b = _operand(a, "rng_uniform"), _operand(b, "rng_uniform", 1)
    return rng_uniform_p.bind(a, b, shape=canonical_shape(shape))


def _draw(shape: tuple[int, ...], dtype: np.dtype[Any], a: Any, b: Any) -> np.ndarray:
    low, high = np.asarray(a), np.asarray(b)
    if dtypes.issubdtype(dtype, np.integer):
        # Of dtypes that NumPy does not draw, such as int4, too.
        return _generator().integers(int(low), int(high), shape).astype(dtype)
    low, high = low.astype(np.float64), high.astype(np.float64)
    drawn = (low + (high - low) * _generator().random(shape)).astype(dtype)
    # Rounding may reach the bound that is excluded.
    below = np.nextafter(high.astype(dtype), low.astype(dtype))
    return np.minimum(drawn, below).astype(dtype)


def _run(a: Array, b: Array, *, shape: tuple[int, ...]) -> Array:
    if a.dtype != b.dtype:
        raise ValueError(
            f"rng_uniform: the bounds a and b need one dtype, got {a.dtype} and {b.dtype}."
        )
    if a.ndim or b.ndim:
        raise ValueError(
            f"rng_uniform: the bounds a and b are scalars, got shapes {tuple(a.shape)} and"
            f" {tuple(b.shape)}."
        )
    if not (dtypes.issubdtype(a.dtype, np.floating) or dtypes.issubdtype(a.dtype, np.integer)):
        raise TypeError(f"rng_uniform draws floats or integers, got dtype {a.dtype}")
    if math.prod(shape) == 0:
        return core.as_array(np.zeros(shape, a.dtype))
    draw = functools.partial(_draw, shape, np.dtype(a.dtype))
    return io_callback(draw, core.ShapedArray(shape, a.dtype), a, b)


rng_uniform_p = composite("rng_uniform", _run)
