"""The numbers of a range: how many they are, and those with symbolic bounds."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ferrax._core import Array
from ferrax._src.core import as_array, concrete_or_error
from ferrax._src.core.dim_values import size_as
from ferrax._src.dims.sizes import (
    definitely_equal,
    is_constant_shape,
    is_dim,
    max_dim,
    surely_below,
)
from ferrax._src.lax import api as lax


def concrete_scalar(x: Any, name: str) -> Any:
    """The value of a bound."""
    value = concrete_or_error(None, x, f"The shape of jnp.arange's result depends on its argument '{name}'.")
    return value.item() if isinstance(value, (Array, np.ndarray, np.generic)) else value


def symbolic_range(start: Any, stop: Any, step: Any, dtype: Any) -> Array:
    """A range some of whose bounds are symbolic dimensions, or that has so many steps."""
    if not all(map(is_dim, (start, stop, step))):
        raise ValueError(
            f"jnp.arange: beside symbolic dimensions there can be integers alone, got {start}, {stop} and {step}"
        )
    out = lax.iota(dtype, length_of(start, stop, step))
    if not definitely_equal(step, 1):
        out = lax.mul(out, as_array(size_as(step, dtype)))
    return out if definitely_equal(start, 0) else lax.add(out, as_array(size_as(start, dtype)))


def length_of(start: Any, stop: Any, step: Any) -> Any:
    """How many numbers a range has."""
    if all(map(is_dim, (start, stop, step))) and not is_constant_shape((start, stop, step)):
        if surely_below(step, 0):
            start, stop, step = stop, start, -step
        return max_dim(stop - start + step - 1, 0) // step
    if all(isinstance(x, int) for x in (start, stop, step)):
        return max(0, -((start - stop) // step))
    return max(0, math.ceil((stop - start) / step))
