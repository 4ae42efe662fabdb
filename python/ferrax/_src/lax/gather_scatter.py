"""Gathers and scatters of ``ferrax.lax``.

Invariants: dimension numbers reach the core as tuples of Python integers, modes as strings.
Negative indices do not wrap here (``index_take`` excepted): that is the indexing layer's business.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ferrax._core import Array, bind
from ferrax._src.base import dtypes
from ferrax._src.core import as_array, is_concrete
from ferrax._src.core.op_types import (
    GatherDimensionNumbers,
    GatherScatterMode,
    ScatterDimensionNumbers,
)
from ferrax._src.core.typing import ArrayLike
from ferrax._src.lax import elementwise
from ferrax._src.lax.arguments import (
    canonical_axis as _canonical_axis,
    canonical_shape as _canonical_shape,
    int_tuple as _int_tuple,
    operand as _operand,
)
from ferrax._src.lax.control_flow.while_loop import while_loop
from ferrax._src.lax.creation import full
from ferrax._src.lax.shape import concatenate, expand_dims
from ferrax._src.lax.slicing import _wrap_dynamic

__all__ = [
    "gather",
    "index_take",
    "scatter",
    "scatter_add",
    "scatter_apply",
    "scatter_max",
    "scatter_min",
    "scatter_mul",
    "scatter_sub",
]


def _default_fill(dtype):
    """What an out-of-bounds gather yields: NaN, the lowest signed or the highest unsigned value."""
    if dtypes.issubdtype(dtype, np.inexact):
        return float("nan")
    if dtypes.issubdtype(dtype, np.signedinteger):
        return int(dtypes.iinfo(dtype).min)
    if dtypes.issubdtype(dtype, np.unsignedinteger):
        return int(dtypes.iinfo(dtype).max)
    if dtypes.issubdtype(dtype, np.bool_):
        return 1
    return 0xFFFFFFFF  # PRNG keys: all bits of their words set


def _static_scalar(value):
    if isinstance(value, (Array, np.ndarray, np.generic)):
        if isinstance(value, Array) and not is_concrete(value):
            raise TypeError("gather: fill_value must be a static scalar, got a traced value")
        return np.asarray(value).item()
    return value


def _check_indices(indices: Array) -> None:
    if not dtypes.issubdtype(indices.dtype, np.integer):
        raise ValueError(f"indices must have an integer type, got {indices.dtype}")


def bind_gather(operand: Array, indices: Array, params: dict[str, Any]) -> Array:
    """A `gather` equation; of keys, with a fill value for their words, one of the words."""
    if params["mode"] != "fill" or not isinstance(operand.dtype, dtypes.KeyTy):
        return bind("gather", (operand, indices), params)
    words = bind("random_unwrap", (operand,), {})
    inner = words.shape[operand.ndim :]
    rank = indices.ndim - 1 + len(params["offset_dims"])
    found = bind(
        "gather",
        (words, indices),
        params | {
            "offset_dims": (*params["offset_dims"], *range(rank, rank + len(inner))),
            "slice_sizes": (*params["slice_sizes"], *inner),
        },
    )  # fmt: skip
    return bind("random_wrap", (found,), {"impl": operand.dtype._native[1]})


def gather(
    operand: ArrayLike, start_indices: ArrayLike, dimension_numbers: GatherDimensionNumbers,
    slice_sizes: Sequence[int], *, unique_indices: bool = False, indices_are_sorted: bool = False,
    mode: Any = None, fill_value: Any = None,
) -> Array:
    """Windows of an array at many positions.

    Args:
      operand: the array.
      start_indices: integers; the last axis holds an index vector.
      dimension_numbers: what the axes mean; see ``GatherDimensionNumbers``.
      slice_sizes: the window's size along each operand axis.
      unique_indices, indices_are_sorted: promises about ``start_indices``.
      mode: what to do out of bounds: "fill", "clip" or "promise_in_bounds" (default; such indices
        are clipped, but their gradient is dropped).
      fill_value: scalar for mode "fill"; default NaN, or the integer type's extreme.

    Errors: TypeError for shapes and dtypes that do not fit.

    >>> rows = lax.GatherDimensionNumbers((1,), collapsed_slice_dims=(0,), start_index_map=(0,))
    >>> operand = jnp.array([[1, 2], [3, 4], [5, 6]])
    >>> lax.gather(operand, jnp.array([[2], [0]]), rows, slice_sizes=(1, 2))
    Array([[5, 6],
           [1, 2]], dtype=int32)
    """
    operand = _operand(operand, "gather")
    start_indices = _operand(start_indices, "gather", 1)
    _check_indices(start_indices)
    mode_name = "promise_in_bounds" if mode is None else GatherScatterMode.from_any(mode).core_name
    if mode_name != "fill":
        fill_value = None
    elif fill_value is None:
        fill_value = _default_fill(operand.dtype)
    else:
        fill_value = _static_scalar(fill_value)
    numbers = dimension_numbers
    return bind_gather(
        operand,
        start_indices,
        {
            "offset_dims": _int_tuple(numbers.offset_dims),
            "collapsed_slice_dims": _int_tuple(numbers.collapsed_slice_dims),
            "start_index_map": _int_tuple(numbers.start_index_map),
            "operand_batching_dims": _int_tuple(numbers.operand_batching_dims),
            "start_indices_batching_dims": _int_tuple(numbers.start_indices_batching_dims),
            "slice_sizes": _canonical_shape(slice_sizes),
            "mode": mode_name,
            "fill_value": fill_value,
            "unique_indices": bool(unique_indices),
            "indices_are_sorted": bool(indices_are_sorted),
        },
    )


def index_take(src: Any, idxs: Sequence, axes: Sequence[int]) -> Array:
    """``src`` at equal-length 1-D index arrays, one for each of ``axes``; the result's axis 0 runs
    over them.

    Args: src: array; idxs: as many integer vectors of one length; axes: the axes that they index.

    >>> lax.index_take(jnp.array([[1, 2], [3, 4]]), (jnp.array([1, 0]),), (0,))
    Array([[3, 4],
           [1, 2]], dtype=int32)
    """
    src = _operand(src, "index_take")
    axes = tuple([_canonical_axis(axis, src.ndim) for axis in axes])
    columns = [_operand(i, "index_take", 1) for i in idxs]
    wrapped = [_wrap_columns(column, src.shape[axis]) for column, axis in zip(columns, axes)]
    indices = concatenate([expand_dims(column, (1,)) for column in wrapped], 1)
    sizes = tuple([1 if axis in axes else size for axis, size in enumerate(src.shape)])
    numbers = GatherDimensionNumbers(
        offset_dims=tuple(range(1, src.ndim - len(axes) + 1)),
        collapsed_slice_dims=tuple(sorted(axes)),
        start_index_map=axes,
    )
    return gather(src, indices, numbers, sizes)


def _wrap_columns(column: Array, size: int) -> Array:
    """``_wrap_dynamic`` for an index array of any rank."""
    _check_indices(column)
    return _wrap_dynamic(column, size)


def _scatter(
    name: str, operand, indices, updates, numbers, indices_are_sorted, unique_indices, mode
) -> Array:
    operand = _operand(operand, name)
    indices = _operand(indices, name, 1)
    updates = _operand(updates, name, 2)
    _check_indices(indices)
    return bind(
        name,
        (operand, indices, updates),
        {
            "update_window_dims": _int_tuple(numbers.update_window_dims),
            "inserted_window_dims": _int_tuple(numbers.inserted_window_dims),
            "scatter_dims_to_operand_dims": _int_tuple(numbers.scatter_dims_to_operand_dims),
            "operand_batching_dims": _int_tuple(numbers.operand_batching_dims),
            "scatter_indices_batching_dims": _int_tuple(numbers.scatter_indices_batching_dims),
            "mode": GatherScatterMode.from_any(mode).core_name,
            "unique_indices": bool(unique_indices),
            "indices_are_sorted": bool(indices_are_sorted),
        },
    )


def scatter(
    operand: ArrayLike, scatter_indices: ArrayLike, updates: ArrayLike,
    dimension_numbers: ScatterDimensionNumbers, *, indices_are_sorted: bool = False,
    unique_indices: bool = False, mode: Any = None,
) -> Array:
    """``operand`` with windows at many positions replaced by ``updates``.

    Args:
      operand: the array.
      scatter_indices: integers; the last axis holds an index vector.
      updates: the windows' new values, of the operand's dtype.
      dimension_numbers: what the axes mean; see ``ScatterDimensionNumbers``.
      indices_are_sorted, unique_indices: promises about ``scatter_indices``.
      mode: out of bounds: "drop" (default), "clip" or "promise_in_bounds".

    Where windows overlap, which update wins is unspecified.

    Errors: TypeError for shapes and dtypes that do not fit.

    >>> numbers = lax.ScatterDimensionNumbers((), (0,), (0,))
    >>> lax.scatter(jnp.zeros(4), jnp.array([[1], [3]]), jnp.array([5.0, 6.0]), numbers)
    Array([0., 5., 0., 6.], dtype=float32)
    """
    return _scatter(
        "scatter", operand, scatter_indices, updates, dimension_numbers, indices_are_sorted,
        unique_indices, mode,
    )  # fmt: skip


def scatter_add(
    operand: ArrayLike, scatter_indices: ArrayLike, updates: ArrayLike,
    dimension_numbers: ScatterDimensionNumbers, *, indices_are_sorted: bool = False,
    unique_indices: bool = False, mode: Any = None,
) -> Array:
    """As ``scatter``, but each update is added to what is there.

    Updates are added one after the other, in the order of the indices and the dtype of ``operand``:
    the same bits each time, but the rounding error of an element grows with the number of its updates
    (``sum`` has no such error).

    Args: operand, scatter_indices, updates, dimension_numbers, indices_are_sorted, unique_indices,
    mode: as for `scatter`, with its errors.

    >>> numbers = lax.ScatterDimensionNumbers((), (0,), (0,))
    >>> lax.scatter_add(jnp.ones(4), jnp.array([[1], [1]]), jnp.array([5.0, 6.0]), numbers)
    Array([ 1., 12.,  1.,  1.], dtype=float32)
    """
    return _scatter(
        "scatter_add", operand, scatter_indices, updates, dimension_numbers, indices_are_sorted,
        unique_indices, mode,
    )  # fmt: skip


def scatter_sub(
    operand: ArrayLike, scatter_indices: ArrayLike, updates: ArrayLike,
    dimension_numbers: ScatterDimensionNumbers, *, indices_are_sorted: bool = False,
    unique_indices: bool = False, mode: Any = None,
) -> Array:
    """As ``scatter``, but each update is subtracted from what is there.

    Args: operand, scatter_indices, updates, dimension_numbers, indices_are_sorted, unique_indices,
    mode: as for `scatter`, with its errors.

    >>> numbers = lax.ScatterDimensionNumbers((), (0,), (0,))
    >>> lax.scatter_sub(jnp.ones(4), jnp.array([[1], [3]]), jnp.array([5.0, 6.0]), numbers)
    Array([ 1., -4.,  1., -5.], dtype=float32)
    """
    return _scatter(
        "scatter_sub", operand, scatter_indices, updates, dimension_numbers, indices_are_sorted,
        unique_indices, mode,
    )  # fmt: skip


def scatter_mul(
    operand: ArrayLike, scatter_indices: ArrayLike, updates: ArrayLike,
    dimension_numbers: ScatterDimensionNumbers, *, indices_are_sorted: bool = False,
    unique_indices: bool = False, mode: Any = None,
) -> Array:
    """As ``scatter``, but what is there is multiplied by each update.

    Args: operand, scatter_indices, updates, dimension_numbers, indices_are_sorted, unique_indices,
    mode: as for `scatter`, with its errors.

    >>> numbers = lax.ScatterDimensionNumbers((), (0,), (0,))
    >>> lax.scatter_mul(jnp.array([1, 2, 3]), jnp.array([[1], [1]]), jnp.array([5, 6]), numbers)
    Array([ 1, 60,  3], dtype=int32)
    """
    return _scatter(
        "scatter_mul", operand, scatter_indices, updates, dimension_numbers, indices_are_sorted,
        unique_indices, mode,
    )  # fmt: skip


def scatter_min(
    operand: ArrayLike, scatter_indices: ArrayLike, updates: ArrayLike,
    dimension_numbers: ScatterDimensionNumbers, *, indices_are_sorted: bool = False,
    unique_indices: bool = False, mode: Any = None,
) -> Array:
    """As ``scatter``, but the lesser of each update and what is there stays.

    Args: operand, scatter_indices, updates, dimension_numbers, indices_are_sorted, unique_indices,
    mode: as for `scatter`, with its errors.

    >>> numbers = lax.ScatterDimensionNumbers((), (0,), (0,))
    >>> lax.scatter_min(jnp.array([4, 5, 6]), jnp.array([[0], [2]]), jnp.array([1, 9]), numbers)
    Array([1, 5, 6], dtype=int32)
    """
    return _scatter(
        "scatter_min", operand, scatter_indices, updates, dimension_numbers, indices_are_sorted,
        unique_indices, mode,
    )  # fmt: skip


def scatter_max(
    operand: ArrayLike, scatter_indices: ArrayLike, updates: ArrayLike,
    dimension_numbers: ScatterDimensionNumbers, *, indices_are_sorted: bool = False,
    unique_indices: bool = False, mode: Any = None,
) -> Array:
    """As ``scatter``, but the greater of each update and what is there stays.

    Args: operand, scatter_indices, updates, dimension_numbers, indices_are_sorted, unique_indices,
    mode: as for `scatter`, with its errors.

    >>> numbers = lax.ScatterDimensionNumbers((), (0,), (0,))
    >>> lax.scatter_max(jnp.array([4, 5, 6]), jnp.array([[0], [2]]), jnp.array([1, 9]), numbers)
    Array([4, 5, 9], dtype=int32)
    """
    return _scatter(
        "scatter_max", operand, scatter_indices, updates, dimension_numbers, indices_are_sorted,
        unique_indices, mode,
    )  # fmt: skip


def scatter_apply(
    operand: ArrayLike, scatter_indices: ArrayLike, func: Callable,
    dimension_numbers: ScatterDimensionNumbers, *, update_shape: Sequence[int] = (),
    indices_are_sorted: bool = False, unique_indices: bool = False, mode: Any = None,
) -> Array:
    """Applies an elementwise function at the positions that a scatter would update.

    Args:
      func: elementwise function that keeps shape and dtype; where indices repeat it is applied
        repeatedly.
      update_shape: the shape that a scatter's updates would have.
      operand, scatter_indices, dimension_numbers, indices_are_sorted, unique_indices, mode: as for
        ``scatter``.

    >>> numbers = lax.ScatterDimensionNumbers((), (0,), (0,))
    >>> indices = jnp.array([[1], [3]])
    >>> lax.scatter_apply(jnp.arange(4.0), indices, jnp.square, numbers, update_shape=(2,))
    Array([0., 1., 2., 9.], dtype=float32)
    """
    operand = _operand(operand, "scatter_apply")
    scatter_indices = _operand(scatter_indices, "scatter_apply", 1)
    numbers = dimension_numbers
    update_shape = _canonical_shape(update_shape)
    flags = {"indices_are_sorted": indices_are_sorted, "unique_indices": unique_indices}
    if unique_indices:
        windows = iter([update_shape[d] for d in numbers.update_window_dims])
        absent = {*numbers.inserted_window_dims, *numbers.operand_batching_dims}
        sizes = tuple([1 if d in absent else next(windows) for d in range(operand.ndim)])
        inverse = GatherDimensionNumbers(
            offset_dims=tuple(numbers.update_window_dims),
            collapsed_slice_dims=tuple(numbers.inserted_window_dims),
            start_index_map=tuple(numbers.scatter_dims_to_operand_dims),
            operand_batching_dims=tuple(numbers.operand_batching_dims),
            start_indices_batching_dims=tuple(numbers.scatter_indices_batching_dims),
        )
        # What is read out of bounds is dropped again by the scatter.
        read = "clip" if GatherScatterMode.from_any(mode).core_name == "fill" else mode
        old = gather(operand, scatter_indices, inverse, sizes, mode=read, **flags)
        new = elementwise._convert_element_type(func(old), operand.dtype)
        return scatter(operand, scatter_indices, new, numbers, mode=mode, **flags)
    count_dtype = np.dtype(np.int32)
    counts = scatter_add(
        full(operand.shape, 0, count_dtype),
        scatter_indices,
        full(update_shape, 1, count_dtype),
        numbers,
        mode=mode,
        **flags,
    )
    return _apply_repeatedly(operand, counts, func)


def _apply_repeatedly(x: Array, counts: Array, func: Callable) -> Array:
    """``func`` applied ``counts`` times to each element."""
    if 0 in x.shape:
        return x

    def step(done: Array, values: Array) -> Array:
        new = elementwise._convert_element_type(func(values), x.dtype)
        return elementwise.select(elementwise.gt(counts, done), new, values)

    result = step(_spread(0, counts), x)
    most = bind("reduce_max", (counts,), {"axes": tuple(range(counts.ndim))})
    if is_concrete(most):
        for done in range(1, int(most)):
            result = step(_spread(done, counts), result)
        return result

    one = as_array(np.int32(1))
    return while_loop(
        lambda state: elementwise.lt(state[0], most),
        lambda state: (
            elementwise.add(state[0], one),
            step(_spread(state[0], counts), state[1]),
        ),
        (one, result),
    )[1]


def _spread(value, like: Array) -> Array:
    value = as_array(np.int32(value)) if isinstance(value, int) else value
    if like.ndim == 0:
        return value
    return bind(
        "broadcast_in_dim", (value,), {"shape": like.shape, "broadcast_dimensions": ()}
    )
