"""Interpolation on rectangular grids."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from ferrax._src.base import dtypes
from ferrax._src.core import Array
from ferrax._src.core.typing import ArrayLike
from ferrax._src.numpy import api as jnp
from ferrax._src.numpy.logsumexp import as_inexact
from ferrax._src.numpy.util import ensure_array
from ferrax._src.tree import tree_util

_METHODS = ("linear", "nearest")


def _check_method(method: str) -> None:
    if method not in _METHODS:
        raise ValueError(f"method {method!r} is not defined: use 'linear' or 'nearest'")


def _as_points(xi: Any, count: int) -> Array:
    """Coordinates as an array with the axis of coordinates last."""
    if isinstance(xi, tuple) and len(xi) == 1:
        xi = xi[0]
    if isinstance(xi, tuple):
        return jnp.stack(jnp.broadcast_arrays(*(as_inexact("xi", x) for x in xi)), axis=-1)
    points = ensure_array(xi, "RegularGridInterpolator")
    return points.reshape(-1, count) if points.ndim == 1 else points


class RegularGridInterpolator:
    """A function that interpolates values on a rectangular grid; a pytree.

    Args:
        points: N vectors, strictly increasing, of at least two coordinates each. That they increase is
            not checked.
        values: array whose first N axes are those of the grid; further axes are of the values.
        method: "linear", or "nearest" (at midpoints the lower one).
        bounds_error: must be False: values of traced arrays raise no errors.
        fill_value: the value outside of the grid; None extrapolates.

    Called as `f(xi, method=None)` with an array of shape `(..., N)`, or a tuple of N arrays that
    broadcast, it gives an array `(..., *values.shape[N:])`.

    Errors: ValueError for other methods, too many vectors, coordinates of another number, and a fill
    value that is no such value; NotImplementedError for `bounds_error`.

    Example:
        >>> grid = jnp.array([0.0, 1.0, 3.0]), jnp.array([0.0, 2.0])
        >>> f = ferrax.scipy.interpolate.RegularGridInterpolator(
        ...     grid, jnp.array([[0.0, 2.0], [1.0, 3.0], [3.0, 5.0]]))
        >>> f(jnp.array([[2.0, 1.0], [4.0, 1.0]]))
        Array([ 3., nan], dtype=float32)
    """

    method: str
    bounds_error: bool
    grid: tuple[Array, ...]
    values: Array
    fill_value: Array | None

    def __init__(
        self, points: Sequence[ArrayLike], values: ArrayLike, method: str = "linear",
        bounds_error: bool = False, fill_value: ArrayLike | None = np.nan,
    ) -> None:  # fmt: skip
        _check_method(method)
        if bounds_error:
            raise NotImplementedError(
                "RegularGridInterpolator: bounds_error must be False, values of traced arrays raise no "
                "errors; use fill_value"
            )
        array = as_inexact("RegularGridInterpolator", values)
        if len(points) > array.ndim:
            raise ValueError(
                f"RegularGridInterpolator: there are {len(points)} vectors of coordinates for values of "
                f"{array.ndim} axes"
            )
        if fill_value is not None:
            fill_value = ensure_array(fill_value, "RegularGridInterpolator")
            if not jnp.can_cast(fill_value.dtype, array.dtype, casting="same_kind"):
                raise ValueError(
                    f"RegularGridInterpolator: fill_value has dtype {fill_value.dtype}, which does not "
                    f"go with values of {array.dtype}"
                )
        self.method, self.bounds_error, self.fill_value = method, bounds_error, fill_value
        self.grid = tuple(ensure_array(p, "RegularGridInterpolator") for p in points)
        self.values = array

    def __call__(self, xi: Any, method: str | None = None) -> Array:
        """The values at `xi`, by another method if it is given."""
        method = self.method if method is None else method
        _check_method(method)
        count = len(self.grid)
        points = _as_points(xi, count)
        if points.shape[-1] != count:
            raise ValueError(
                f"RegularGridInterpolator: the points have {points.shape[-1]} coordinates, the grid has "
                f"{count} axes"
            )
        rows = points.reshape(-1, count)
        cells, places = self._cells(rows)
        if method == "linear":
            result = self._linear(cells, places)
        else:
            nearest = [jnp.where(y <= 0.5, i, i + 1) for i, y in zip(cells, places)]
            result = self.values[tuple(nearest)]
        if self.fill_value is not None:
            outside = jnp.zeros(rows.shape[0], bool)
            for axis, grid in enumerate(self.grid):
                outside |= (rows[:, axis] < grid[0]) | (rows[:, axis] > grid[-1])
            outside = outside.reshape((-1,) + (1,) * (result.ndim - 1))
            result = jnp.where(outside, self.fill_value.astype(result.dtype), result)
        return result.reshape(points.shape[:-1] + self.values.shape[count:])

    def _cells(self, rows: Array) -> tuple[list[Array], list[Array]]:
        """For each axis the cells that points are in, and where there, from 0 to 1."""
        cells, places = [], []
        for axis, grid in enumerate(self.grid):
            x = rows[:, axis]
            cell = jnp.clip(jnp.searchsorted(grid, x) - 1, 0, grid.size - 2)
            cells.append(cell)
            places.append((x - grid[cell]) / (grid[cell + 1] - grid[cell]))
        return cells, places

    def _linear(self, cells: list[Array], places: list[Array]) -> Array:
        """The sum over the corners of each cell."""
        dtype = dtypes.result_type(self.values, *places)
        trailing = (1,) * (self.values.ndim - len(cells))
        result: Any = 0
        for corner in itertools.product((0, 1), repeat=len(cells)):
            weight: Any = 1
            for upper, y in zip(corner, places):
                weight = weight * (y if upper else 1 - y)
            value = self.values[tuple(cell + upper for cell, upper in zip(cells, corner))]
            result = result + value.astype(dtype) * weight.astype(dtype).reshape((-1, *trailing))
        return result


tree_util.register_pytree_node(
    RegularGridInterpolator,
    lambda f: ((f.grid, f.values, f.fill_value), (f.method, f.bounds_error)),
    lambda settings, children: _restored(settings, children),
)


def _restored(settings, children) -> RegularGridInterpolator:
    """An interpolator of any leaves: transformations put other things than arrays there."""
    result = object.__new__(RegularGridInterpolator)
    result.method, result.bounds_error = settings
    result.grid, result.values, result.fill_value = children
    return result
