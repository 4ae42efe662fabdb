"""Functions of ``ferrax.lax`` that create arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from ferrax._core import bind
from ferrax._src.base import dtypes
from ferrax._src.core import Array, ShapeDtypeStruct, Tracer, as_array, trace_state_clean, transfers
from ferrax._src.core.explicit_types import laid_out, retyped, typed
from ferrax._src.core.global_array import GlobalArray, of_copies
from ferrax._src.core.placement import device_put
from ferrax._src.core.placements import placed_like
from ferrax._src.core.sharding import NamedSharding
from ferrax._src.core.typing import ArrayLike, DTypeLike, Shape
from ferrax._src.dims.sizes import is_constant_shape
from ferrax._src.lax.arguments import (
    canonical_shape as _canonical_shape,
    known_axis,
    operand as _operand,
)
from ferrax._src.lax.elementwise import _convert_element_type
from ferrax._src.lax.out_sharding import with_out_sharding
from ferrax._src.lax.shape import _nonnegative, broadcast_in_dim, concatenate, expand_dims
from ferrax._src.lax.varying import varying_like

__all__ = [
    "broadcasted_iota",
    "empty",
    "full",
    "full_like",
    "iota",
    "shape_as_value",
    "zeros_like_array",
]


def full(shape: Shape, fill_value: Any, dtype: DTypeLike | None = None, *, sharding: Any = None) -> Array:
    """An array of one value; weakly typed if ``dtype`` is None and the value is.

    Raises TypeError unless ``fill_value`` is a scalar.
    Args: shape: ints; fill_value: the scalar; dtype: the result's; sharding: where to put it.

    >>> lax.full((2,), 7.0)
    Array([7., 7.], dtype=float32, weak_type=True)
    """
    shape = _canonical_shape(shape)
    holds = getattr(fill_value, "dtype", None)
    if isinstance(dtype, dtypes.ExtendedDType) and not isinstance(holds, dtypes.ExtendedDType):
        return _full_of_keys(shape, fill_value, dtype, sharding)
    value = _operand(fill_value, "full", 1) if dtype is None else fill_value
    if getattr(value, "ndim", 0) != 0:
        raise TypeError(
            f"full: fill_value has to be a scalar, got shape {value.shape}; use broadcast_to"
        )
    if dtype is not None:
        value = _literal(value, dtype)
        if value is None:
            value = _convert_element_type(fill_value, dtype, False)
    if shape and is_constant_shape(shape) and min(shape) >= 0:  # nothing is left that `broadcast_in_dim` would check
        result = bind("broadcast_in_dim", (value,), {"shape": shape, "broadcast_dimensions": ()})
    else:
        result = broadcast_in_dim(value, shape, ())
    transfers.filled(result)
    return result if sharding is None else _put(result, sharding)


def _put(x, where):
    """The array where it is asked to be; a traced one, and one of a type that is so divided, by its type."""
    if isinstance(where, NamedSharding) and (isinstance(x, Tracer) or where.mesh.explicit_axes):
        return laid_out(x, where)
    return device_put(x, where)


def _full_of_keys(shape, word, dtype, sharding):
    """Keys of which each word of the data is `word`."""
    words = full((*shape, *dtype._impl.key_shape), word, np.uint32)
    keys = bind("random_wrap", (words,), {"impl": dtype._native[1]})
    return keys if sharding is None else _put(keys, sharding)


def _literal(value, dtype):
    """A Python scalar as a NumPy scalar of `dtype` where no value changes; None elsewhere.

    It spares a conversion in the program; conversions that saturate or wrap are not NumPy's.
    """
    if type(value) not in (bool, int, float) or not isinstance(dtype, (np.dtype, type)):
        return None
    dtype = dtypes.canonicalize_dtype(dtype)
    if dtype.kind == "f" or (dtype.kind == "i" and value in (0, 1)):
        return dtype.type(value)
    return None


def empty(shape: Shape, dtype: DTypeLike, *, out_sharding: Any = None) -> Array:
    """An array whose contents do not matter (zeros).

    Args: shape: ints; dtype: the result's; out_sharding: how the result is divided over a mesh.

    >>> lax.empty((2,), jnp.int32)
    Array([0, 0], dtype=int32)
    """
    if out_sharding is not None:
        return with_out_sharding("empty", out_sharding, empty, shape, dtype)
    return full(shape, 0, dtype)


def full_like(
    x: ArrayLike, fill_value: Any, dtype: DTypeLike | None = None, shape: Shape | None = None,
    sharding: Any = None,
) -> Array:
    """An array of one value with ``x``'s shape and dtype, unless others are given.

    Args: x: array or what has a shape and a dtype; fill_value: scalar; dtype, shape: the result's;
    sharding: where to put it; None: where ``x`` is, if it has the shape. Raises: TypeError unless the
    value is a scalar.

    >>> lax.full_like(jnp.arange(3), 7)
    Array([7, 7, 7], dtype=int32)
    """
    return varying_like(_full_like(x, fill_value, dtype, shape, sharding), x)


def _full_like(x, fill_value, dtype, shape, sharding):
    if type(x) is GlobalArray:
        here = sharding is None and (shape is None or tuple(shape) == x.shape) and trace_state_clean()
        if here:
            tile = ShapeDtypeStruct(x.sharding.shard_shape(x.shape), x.dtype, weak_type=x.weak_type)
            return of_copies(x.shape, x.sharding, _full_like(tile, fill_value, dtype, None, None))
        x = ShapeDtypeStruct(x.shape, x.dtype, weak_type=x.weak_type)
    if not (hasattr(x, "shape") and hasattr(x, "dtype")):
        x = _operand(x, "full_like")
    shape = x.shape if shape is None else _canonical_shape(shape)
    if sharding is None and not isinstance(x, Array) and tuple(shape) == tuple(x.shape):
        sharding = getattr(x, "sharding", None)
    if dtype is not None or not getattr(x, "weak_type", False):
        result = full(shape, fill_value, x.dtype if dtype is None else dtype, sharding=sharding)
        if sharding is not None:
            return result
        known = typed(x) if tuple(shape) == tuple(x.shape) else None
        return placed_like(result, x) if known is None else retyped(result, known)
    value = _operand(fill_value, "full_like", 1)
    if value.ndim:
        raise TypeError(
            f"full: fill_value has to be a scalar, got shape {value.shape}; use broadcast_to"
        )
    result = full(shape, _convert_element_type(value, x.dtype, True), sharding=sharding)
    return placed_like(result, x) if sharding is None else result


def zeros_like_array(x: ArrayLike) -> Array:
    """Zeros of ``x``'s shape, dtype and weak type.

    Args: x: array or scalar.

    >>> lax.zeros_like_array(jnp.arange(3))
    Array([0, 0, 0], dtype=int32)
    """
    return full_like(x, 0)


def iota(dtype: DTypeLike, size: int) -> Array:
    """``0, 1, … size-1`` as a 1-D array of a numeric dtype.

    >>> lax.iota(jnp.float32, 3)
    Array([0., 1., 2.], dtype=float32)
    """
    return broadcasted_iota(dtype, (size,), 0)


def broadcasted_iota(dtype: DTypeLike, shape: Shape, dimension: int, *, out_sharding: Any = None) -> Array:
    """An array of ``shape`` whose element is its own position along ``dimension``.

    Args: dtype: of the positions, real or complex; shape: ints; dimension: the axis; out_sharding:
    how the result is divided over a mesh.

    >>> lax.broadcasted_iota(jnp.int32, (2, 3), 1)
    Array([[0, 1, 2],
           [0, 1, 2]], dtype=int32)
    """
    if out_sharding is not None:
        return with_out_sharding(
            "broadcasted_iota", out_sharding, broadcasted_iota, dtype, shape, dimension,
        )  # fmt: skip
    dtype = dtypes.check_and_canonicalize_user_dtype(dtype, "iota")
    shape = _canonical_shape(shape)
    _nonnegative("iota", "shape", shape)
    dimension = known_axis("lax.broadcasted_iota", dimension)
    if not 0 <= dimension < len(shape):
        raise ValueError(
            f"iota: dimension has to be an axis of the shape {shape}, that is one of 0 to "
            f"{len(shape) - 1}, got {dimension}"
        )
    return bind("iota", (), {"dtype": dtype, "shape": shape, "dimension": dimension})


def shape_as_value(shape: Shape) -> Array:
    """A shape as a 1-D integer array.

    Args: shape: ints.

    >>> lax.shape_as_value((2, 3))
    Array([2, 3], dtype=int32, weak_type=True)
    """
    shape = _canonical_shape(shape)
    if not shape:
        return full((0,), 0, dtypes.dtype(0))
    return concatenate([expand_dims(as_array(size), (0,)) for size in shape], 0)
