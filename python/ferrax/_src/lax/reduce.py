"""Reductions, argmax/argmin and cumulative functions of ``ferrax.lax``."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from ferrax._core import Array, bind
from ferrax._src.base import config, dtypes
from ferrax._src.core.typing import ArrayLike, DTypeLike
from ferrax._src.lax.arguments import (
    describe as _describe,
    int_tuple as _int_tuple,
    known_axis,
    operand as _operand,
)
from ferrax._src.lax.out_sharding import with_out_sharding

__all__ = [
    "argmax",
    "argmin",
    "cumlogsumexp",
    "cummax",
    "cummin",
    "cumprod",
    "cumsum",
    "reduce_and",
    "reduce_max",
    "reduce_min",
    "reduce_or",
    "reduce_prod",
    "reduce_sum",
    "reduce_xor",
]


_HALVES = frozenset(map(np.dtype, (np.float16, dtypes.bfloat16)))


def _check_axes(x: Array, axes: Sequence[int]) -> tuple[int, ...]:
    axes = _int_tuple(axes)
    if len(axes) > 1 and len(set(axes)) != len(axes):
        raise ValueError(f"duplicate value in 'axes' of a reduction, {axes}: name each axis once")
    ndim = x.ndim
    for axis in axes:
        if not 0 <= axis < ndim:
            raise ValueError(
                f"reduction axes {axes}: out-of-bounds for {_describe(x)} of {ndim} axes"
            )
    return axes


def _reduction(name: str, x, axes: Sequence[int]) -> Array:
    x = _operand(x, name)
    return bind(name, (x,), {"axes": _check_axes(x, axes)})


def reduce_sum(operand: ArrayLike, axes: Sequence[int], *, out_sharding: Any = None) -> Array:
    """Sum over ``axes`` (non-negative); the dtype, which must be numeric, stays.

    Args: operand: the array; out_sharding: how the result is divided over a mesh.
    Errors: TypeError for bools, ValueError
    for axes out of range or repeated, and of 16-bit floats if `jax_allow_f16_reductions` is False.

    >>> lax.reduce_sum(jnp.ones((2, 3)), (1,))
    Array([3., 3.], dtype=float32)
    """
    if out_sharding is not None:
        return with_out_sharding("reduce_sum", out_sharding, reduce_sum, operand, axes)
    x = _operand(operand, "reduce_sum")
    if x.dtype in _HALVES and not config.allow_f16_reductions.value:
        if any(x.shape[axis] != 1 for axis in _check_axes(x, axes)):
            raise ValueError(
                f"reduce_sum: jax_allow_f16_reductions is False, and the operand {_describe(x)} would be "
                "added in 16 bits; convert it first, for instance with x.astype('float32')"
            )
    return _reduction("reduce_sum", x, axes)


def reduce_prod(operand: ArrayLike, axes: Sequence[int]) -> Array:
    """Product over ``axes``; of nothing it is 1.

    Args: operand, axes: as for `reduce_sum`, with its errors.

    >>> lax.reduce_prod(jnp.array([[1, 2], [3, 4]]), (0,))
    Array([3, 8], dtype=int32)
    """
    return _reduction("reduce_prod", operand, axes)


def reduce_max(operand: ArrayLike, axes: Sequence[int], *, out_sharding: Any = None) -> Array:
    """Maximum over ``axes``; NaN wins; of nothing it is the dtype's lowest value.

    Args: operand: array of any dtype with an order, complex numbers by their real parts first;
    axes: those to reduce; out_sharding: how the result is divided over a mesh. Errors: ValueError for axes out of
    range or repeated.

    >>> lax.reduce_max(jnp.array([[1, 2], [3, 4]]), (0,))
    Array([3, 4], dtype=int32)
    """
    if out_sharding is not None:
        return with_out_sharding("reduce_max", out_sharding, reduce_max, operand, axes)
    return _reduction("reduce_max", operand, axes)


def reduce_min(operand: ArrayLike, axes: Sequence[int], *, out_sharding: Any = None) -> Array:
    """Minimum over ``axes``; NaN wins; of nothing it is the dtype's highest value.

    Args: operand, axes, out_sharding: as for `reduce_max`, with its errors.

    >>> lax.reduce_min(jnp.array([[1, 2], [3, 4]]), (1,))
    Array([1, 3], dtype=int32)
    """
    if out_sharding is not None:
        return with_out_sharding("reduce_min", out_sharding, reduce_min, operand, axes)
    return _reduction("reduce_min", operand, axes)


def reduce_and(operand: ArrayLike, axes: Sequence[int]) -> Array:
    """Bitwise (for booleans logical) "and" over ``axes``.

    Args: operand: array of bools or integers; axes: those to reduce. Errors: TypeError for other
    dtypes, ValueError for axes out of range or repeated.

    >>> lax.reduce_and(jnp.array([6, 3]), (0,))
    Array(2, dtype=int32)
    """
    return _reduction("reduce_and", operand, axes)


def reduce_or(operand: ArrayLike, axes: Sequence[int]) -> Array:
    """Bitwise (for booleans logical) "or" over ``axes``.

    Args: operand, axes: as for `reduce_and`, with its errors.

    >>> lax.reduce_or(jnp.array([6, 3]), (0,))
    Array(7, dtype=int32)
    """
    return _reduction("reduce_or", operand, axes)


def reduce_xor(operand: ArrayLike, axes: Sequence[int]) -> Array:
    """Bitwise (for booleans logical) "exclusive or" over ``axes``.

    Args: operand, axes: as for `reduce_and`, with its errors.

    >>> lax.reduce_xor(jnp.array([6, 3]), (0,))
    Array(5, dtype=int32)
    """
    return _reduction("reduce_xor", operand, axes)


def _arg_reduction(name: str, x, axis: int, index_dtype) -> Array:
    index_dtype = dtypes.check_and_canonicalize_user_dtype(index_dtype, name)
    x = _operand(x, name)
    axis = operator.index(axis)
    if not 0 <= axis < x.ndim:
        raise ValueError(
            f"Invalid axis {axis}: the operand of shape {tuple(x.shape)} has {x.ndim} axes"
        )
    if x.shape[axis] < 1:
        raise ValueError(
            f"argmin, argmax: axis {axis} of shape {tuple(x.shape)} is empty, so there is no least or "
            "largest element"
        )
    if index_dtype.kind not in "iu":
        raise TypeError(f"index_dtype must be an integer type, got {index_dtype.name}")
    return bind(name, (x,), {"axes": (axis,), "index_dtype": index_dtype})


def argmax(operand: ArrayLike, axis: int, index_dtype: DTypeLike) -> Array:
    """Position of the maximum along ``axis``; the first one, and NaN counts as the largest.

    Args: operand: array of real numbers; index_dtype: an integer dtype.

    >>> lax.argmax(jnp.array([1, 3, 2]), 0, jnp.int32)
    Array(1, dtype=int32)
    """
    return _arg_reduction("argmax", operand, axis, index_dtype)


def argmin(operand: ArrayLike, axis: int, index_dtype: DTypeLike) -> Array:
    """Position of the minimum along ``axis``; the first one, and NaN counts as the smallest.

    Args: operand: array of real numbers; axis: the axis; index_dtype: an integer dtype.

    >>> lax.argmin(jnp.array([5, 2, 7]), 0, jnp.int32)
    Array(1, dtype=int32)
    """
    return _arg_reduction("argmin", operand, axis, index_dtype)


def _cumulative(name: str, x, axis: int, reverse: bool) -> Array:
    x = _operand(x, name)
    axis = known_axis(f"lax.{name}", axis)
    if axis < 0:
        raise ValueError(f"lax.{name} does not take negative axes, got axis {axis}")
    if axis >= x.ndim:
        raise ValueError(f"axis {axis} is out of bounds: the array has shape {tuple(x.shape)}")
    return bind(name, (x,), {"axis": axis, "reverse": bool(reverse)})


def cumsum(operand: ArrayLike, axis: int = 0, reverse: bool = False) -> Array:
    """Running sums along ``axis``, from the end if ``reverse``.

    Args: operand: array of numbers; axis: not negative. Errors: ValueError for an axis out of
    range.

    >>> lax.cumsum(jnp.array([1, 2, 3]), reverse=True)
    Array([6, 5, 3], dtype=int32)
    """
    return _cumulative("cumsum", operand, axis, reverse)


def cumprod(operand: ArrayLike, axis: int = 0, reverse: bool = False) -> Array:
    """Running products along ``axis``, from the end if ``reverse``.

    Args: operand, axis, reverse: as for `cumsum`, with its errors.

    >>> lax.cumprod(jnp.array([1, 2, 3]))
    Array([1, 2, 6], dtype=int32)
    """
    return _cumulative("cumprod", operand, axis, reverse)


def cummax(operand: ArrayLike, axis: int = 0, reverse: bool = False) -> Array:
    """Running maxima along ``axis``, from the end if ``reverse``.

    Args: operand, axis, reverse: as for `cumsum`, with its errors.

    >>> lax.cummax(jnp.array([1, 3, 2]))
    Array([1, 3, 3], dtype=int32)
    """
    return _cumulative("cummax", operand, axis, reverse)


def cummin(operand: ArrayLike, axis: int = 0, reverse: bool = False) -> Array:
    """Running minima along ``axis``, from the end if ``reverse``.

    Args: operand, axis, reverse: as for `cumsum`, with its errors.

    >>> lax.cummin(jnp.array([2, 3, 1]), reverse=True)
    Array([1, 1, 1], dtype=int32)
    """
    return _cumulative("cummin", operand, axis, reverse)


def cumlogsumexp(operand: ArrayLike, axis: int = 0, reverse: bool = False) -> Array:
    """Running ``log(sum(exp(x)))`` along ``axis`` without overflow.

    Args: operand: array of floats; axis, reverse: as for `cumsum`, with its errors.

    >>> lax.cumlogsumexp(jnp.zeros(3))
    Array([0.       , 0.6931472, 1.0986123], dtype=float32)
    """
    return _cumulative("cumlogsumexp", operand, axis, reverse)
