"""Reductions of the slices of an array by the segment that each belongs to."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from ferrax._src.base import dtypes
from ferrax._src.core import Array, concrete_or_error
from ferrax._src.core.typing import ArrayLike
from ferrax._src.lax import api as lax
from ferrax._src.lax.out_sharding import with_out_sharding
from ferrax._src.numpy import reductions
from ferrax._src.numpy.util import ensure_arrays


def _identity(kind: str, dtype):
    if kind in ("add", "mul"):
        return 0 if kind == "add" else 1
    if dtypes.issubdtype(dtype, np.bool_):
        return kind == "min"
    if dtypes.issubdtype(dtype, np.inexact):
        return -np.inf if kind == "max" else np.inf
    info = dtypes.iinfo(dtype)
    return info.min if kind == "max" else info.max


_REDUCERS = {
    "add": lax.reduce_sum,
    "mul": lax.reduce_prod,
    "max": lax.reduce_max,
    "min": lax.reduce_min,
}


def _segments(
    name,
    kind,
    data,
    segment_ids,
    num_segments,
    indices_are_sorted,
    unique_indices,
    bucket_size,
    mode,
    out_sharding=None,
) -> Array:
    if out_sharding is not None:
        return with_out_sharding(
            name, out_sharding, _segments, name, kind, data, segment_ids, num_segments, indices_are_sorted,
            unique_indices, bucket_size, mode,
        )  # fmt: skip
    data, ids = ensure_arrays(name, data, segment_ids)
    if dtypes.issubdtype(ids.dtype, np.bool_):
        raise IndexError(f"{name}: segment_ids must be integers, got booleans")
    if not dtypes.issubdtype(ids.dtype, np.integer):
        raise TypeError(f"{name}: segment_ids must be integers, got {ids.dtype}")
    if dtypes.issubdtype(data.dtype, np.bool_) and kind in ("add", "mul"):
        raise TypeError(f"{name} does not accept dtype bool: convert to integers first")
    if num_segments is None:
        num_segments = reductions.max(ids) + 1
    context = f"{name}() `num_segments` argument."
    num_segments = concrete_or_error(operator.index, num_segments, context)
    if num_segments < 0:
        raise ValueError("num_segments must be non-negative.")
    fill = np.asarray(_identity(kind, data.dtype)).astype(data.dtype)
    shape = (num_segments, *data.shape[1:])
    how = {
        "indices_are_sorted": indices_are_sorted,
        "unique_indices": unique_indices,
        "mode": "fill" if mode is None else mode,
        "wrap_negative_indices": False,
    }
    count = data.shape[0] if data.ndim else 1
    buckets = 1 if bucket_size is None else -(-count // bucket_size)
    if buckets <= 1:
        return getattr(lax.full(shape, fill).at[ids], kind)(data, **how)
    numbers = lax.iota(np.int32, count)
    numbers = lax.div(numbers, lax.full_like(numbers, bucket_size))
    out = lax.full((buckets, *shape), fill)
    how["indices_are_sorted"] = False
    out = getattr(out.at[numbers, ids], kind)(data, **how)
    return _REDUCERS[kind](out, (0,))


def segment_sum(
    data: ArrayLike, segment_ids: ArrayLike, num_segments: int | None = None,
    indices_are_sorted: bool = False, unique_indices: bool = False, bucket_size: int | None = None,
    mode: Any = None, out_sharding: Any = None,
) -> Array:
    """Sums of the slices of an array along its first axis, by segment.

    The slices of a segment are added one after the other in the dtype of ``data``, as by
    ``scatter_add``, so the rounding error grows with their number; ``bucket_size`` bounds it by that
    of so many slices.

    Args:
        data: array whose first axis runs over slices; not boolean.
        segment_ids: integers, the segment of each slice. Those out of range, negative ones
            included, count nowhere.
        num_segments: static number of segments; default: the largest id and one.
        indices_are_sorted: promises that `segment_ids` ascend.
        unique_indices: promises that no id is there twice.
        bucket_size: reduce so many slices first, then their results: smaller rounding errors.
        mode: what happens to ids out of range: "drop" (default), "clip", "promise_in_bounds".
    Returns:
        Array of shape `(num_segments, *data.shape[1:])` and the dtype of `data`, with 0 for
        segments without slices.
    Raises:
        TypeError: for lists and ids that are no integers.
        ValueError: for a negative number of segments, and where there are no ids to count by.
        ConcretizationTypeError: under jit without `num_segments`.

    Example:
        >>> ferrax.ops.segment_sum(jnp.arange(4.0), jnp.array([0, 0, 2, 2]))
        Array([1., 0., 5.], dtype=float32)
    """
    return _segments(
        "segment_sum", "add", data, segment_ids, num_segments, indices_are_sorted, unique_indices,
        bucket_size, mode, out_sharding,
    )  # fmt: skip


def segment_prod(
    data: ArrayLike, segment_ids: ArrayLike, num_segments: int | None = None,
    indices_are_sorted: bool = False, unique_indices: bool = False, bucket_size: int | None = None,
    mode: Any = None, out_sharding: Any = None,
) -> Array:
    """Products by segment, 1 for those without slices; arguments and errors as of `segment_sum`.

    Derivatives need `unique_indices`.

    Args: data, segment_ids, num_segments, indices_are_sorted, unique_indices, bucket_size, mode: as
    for `segment_sum`.

    >>> ferrax.ops.segment_prod(jnp.array([2, 3, 4]), jnp.array([0, 0, 1]))
    Array([6, 4], dtype=int32)
    """
    return _segments(
        "segment_prod", "mul", data, segment_ids, num_segments, indices_are_sorted,
        unique_indices, bucket_size, mode, out_sharding,
    )  # fmt: skip


def segment_max(
    data: ArrayLike, segment_ids: ArrayLike, num_segments: int | None = None,
    indices_are_sorted: bool = False, unique_indices: bool = False, bucket_size: int | None = None,
    mode: Any = None, out_sharding: Any = None,
) -> Array:
    """Maxima by segment, the dtype's least value for those without slices; arguments and errors as
    of `segment_sum`, of any dtype with an order.

    Args: data, segment_ids, num_segments, indices_are_sorted, unique_indices, bucket_size, mode: as
    for `segment_sum`.

    >>> ferrax.ops.segment_max(jnp.array([2, 3, 4]), jnp.array([0, 0, 1]))
    Array([3, 4], dtype=int32)
    """
    return _segments(
        "segment_max", "max", data, segment_ids, num_segments, indices_are_sorted, unique_indices,
        bucket_size, mode, out_sharding,
    )  # fmt: skip


def segment_min(
    data: ArrayLike, segment_ids: ArrayLike, num_segments: int | None = None,
    indices_are_sorted: bool = False, unique_indices: bool = False, bucket_size: int | None = None,
    mode: Any = None, out_sharding: Any = None,
) -> Array:
    """Minima by segment, the dtype's greatest value for those without slices; arguments and errors
    as of `segment_sum`, of any dtype with an order.

    Args: data, segment_ids, num_segments, indices_are_sorted, unique_indices, bucket_size, mode: as
    for `segment_sum`.

    >>> ferrax.ops.segment_min(jnp.array([2, 3, 4]), jnp.array([0, 0, 1]))
    Array([2, 4], dtype=int32)
    """
    return _segments(
        "segment_min", "min", data, segment_ids, num_segments, indices_are_sorted, unique_indices,
        bucket_size, mode, out_sharding,
    )  # fmt: skip
