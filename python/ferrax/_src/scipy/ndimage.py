"""Values of arrays between their elements, by interpolation of order 0 and 1."""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ferrax._src.base import dtypes
from ferrax._src.core import Array
from ferrax._src.core.typing import ArrayLike
from ferrax._src.lax import api as lax
from ferrax._src.numpy import api as jnp
from ferrax._src.transforms.jit import jit


def _mirrored(index: Array, size: int) -> Array:
    """A triangle wave through 0, 1, …, size - 1, …, 1, 0, …"""
    last = size - 1
    return jnp.abs((index + last) % (2 * last) - last)


def _reflected(index: Array, size: int) -> Array:
    """The wave 0, 1, …, size - 1, size - 1, …, 1, 0, 0, …"""
    return jnp.floor_divide(_mirrored(2 * index + 1, 2 * size + 1) - 1, 2)


# Where in the array an index outside of it points; for "constant" it does not.
_MODES: dict[str, Callable[[Array, int], Array]] = {
    "constant": lambda index, size: index,
    "nearest": lambda index, size: jnp.clip(index, 0, size - 1),
    "wrap": lambda index, size: index % size,
    "mirror": _mirrored,
    "reflect": _reflected,
}


def _rounded(x: Array) -> Array:
    """The nearest integers, halves away from zero."""
    return x if dtypes.issubdtype(x.dtype, np.integer) else lax.round(x)


def _nodes(coordinate: Array, order: int) -> list[tuple[Array, Any]]:
    """Indices and weights of the elements that count for a coordinate."""
    if order == 0:
        return [(_rounded(coordinate).astype(np.int32), coordinate.dtype.type(1))]
    lower = jnp.floor(coordinate)
    weight = coordinate - lower
    index = lower.astype(np.int32)
    return [(index, 1 - weight), (index + 1, weight)]


@jit(static_argnums=(2, 3, 4), inline=True)
def _map_coordinates(x, coordinates, order, mode, cval):
    wrapped = _MODES[mode]
    filler = jnp.asarray(cval, x.dtype)
    terms = []
    nodes = [_nodes(coordinate, order) for coordinate in coordinates]
    for corner in itertools.product(*nodes):
        value = x[tuple(wrapped(index, size) for (index, _), size in zip(corner, x.shape))]
        if mode == "constant":
            inside = [(index >= 0) & (index < size) for (index, _), size in zip(corner, x.shape)]
            value = jnp.where(functools.reduce(operator.and_, inside), value, filler)
        terms.append(functools.reduce(operator.mul, (weight for _, weight in corner)) * value)
    result = functools.reduce(operator.add, terms)
    if dtypes.issubdtype(x.dtype, np.integer):
        result = _rounded(result)
    return result.astype(x.dtype)


def map_coordinates(
    input: ArrayLike, coordinates: Sequence[ArrayLike] | ArrayLike, order: int,
    mode: str = "constant", cval: ArrayLike = 0.0,
) -> Array:  # fmt: skip
    """The values of an array at places between its elements.

    Args:
        input: array of n axes.
        coordinates: n arrays of one shape, the places along each axis: element i is at i.
        order: 0 for the nearest element, 1 for linear interpolation.
        mode: what the array is outside: "constant"; "nearest", the element at the edge; "wrap",
            periodic; "mirror" and "reflect", mirrored at the last element and behind it. Interpolation
            goes on over the edges: "constant" and "wrap" are SciPy's "grid-constant" and "grid-wrap".
        cval: the value outside for "constant".

    Returns: an array of the coordinates' shape and the input's dtype; integers are rounded.

    Errors: ValueError for other than n coordinates; NotImplementedError for other orders and modes.

    Example:
        >>> x = jnp.array([[0.0, 1.0], [2.0, 3.0]])
        >>> ferrax.scipy.ndimage.map_coordinates(x, [jnp.array([0.5]), jnp.array([0.5])], order=1)
        Array([1.5], dtype=float32)
    """
    x = jnp.asarray(input)
    places = [jnp.asarray(coordinate) for coordinate in coordinates]  # type: ignore[union-attr]  # as arrays and sequences both are iterated
    if len(places) != x.ndim:
        raise ValueError(
            f"map_coordinates: coordinates must be one array for each of the {x.ndim} axes of input, "
            f"got {len(places)}"
        )
    if mode not in _MODES:
        raise NotImplementedError(
            f"map_coordinates: the mode {mode!r} is not supported; those are {', '.join(_MODES)}"
        )
    if order not in (0, 1):
        raise NotImplementedError(f"map_coordinates: order must be 0 or 1, got {order!r}")
    return _map_coordinates(x, places, order, mode, cval)
