"""``take``, ``put`` and their along-axis forms.

Invariant: unlike ``x[i]``, taking out of bounds *fills* by default (NaN, or the integer type's
extreme); negative indices count from the end once, except in modes "clip" and "wrap".
"""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from ferrax._core import Array, bind, ufuncs
from ferrax._src.base import dtypes
from ferrax._src.base.jax_version import follows
from ferrax._src.base.traceback_util import bounded, leave
from ferrax._src.core.op_types import GatherDimensionNumbers, GatherScatterMode
from ferrax._src.core.typing import ArrayLike
from ferrax._src.lax import elementwise as lax
from ferrax._src.lax.arguments import canonical_axis, hashable_axis
from ferrax._src.lax.creation import broadcasted_iota, full, full_like
from ferrax._src.lax.gather_scatter import _static_scalar, gather
from ferrax._src.lax.reduce import reduce_or, reduce_sum
from ferrax._src.lax.shape import (
    _broadcast_to,
    broadcast_shapes,
    expand_dims,
    reshape,
    squeeze,
)
from ferrax._src.numpy import index_checks
from ferrax._src.numpy.at import IndexUpdateHelper
from ferrax._src.numpy.index_plan import wrap_negative
from ferrax._src.numpy.util import ensure_array
from ferrax._src.transforms.jit import jit

_INT32 = np.dtype(np.int32)


def _integer_indices(x: Array, message: str, error=ValueError) -> Array:
    if dtypes.issubdtype(x.dtype, np.integer):
        return x
    raise error(message)


@bounded
def take(
    a: ArrayLike, indices: ArrayLike, axis: int | None = None, out: None = None,
    mode: str | None = None, unique_indices: bool = False, indices_are_sorted: bool = False,
    fill_value: Any = None,
) -> Array:
    """Elements (or slices along ``axis``) at integer positions.

    Args:
      a: array of any shape.
      indices: integer array; its shape replaces the axis.
      axis: the axis to take along; None takes from the flattened array.
      out: not supported.
      mode: "fill" (default), "clip" or "wrap".
      unique_indices, indices_are_sorted: promises about ``indices``.
      fill_value: scalar for mode "fill".

    Raises IndexError when taking from an empty axis.

    >>> jnp.take(jnp.array([10.0, 20.0]), jnp.array([1, 5]))
    Array([20., nan], dtype=float32)
    """
    try:
        if out is not None:
            raise NotImplementedError("take: arrays are immutable; leave out the argument out")
        a = ensure_array(a, "take", 0)
        indices = ensure_array(indices, "take", 1)
        if axis is not None:
            axis = operator.index(axis)
        if mode == "raise":
            raise NotImplementedError("take: there is no mode 'raise'; use 'fill', 'clip' or 'wrap'")
        if mode not in (None, "fill", "clip", "wrap"):
            raise ValueError(f"take: mode has to be 'fill', 'clip' or 'wrap', got {mode!r}")
        if fill_value is not None:
            fill_value = _static_scalar(fill_value)
            if isinstance(fill_value, float) and fill_value != fill_value:
                fill_value = None  # NaN is the default; as a key it would equal nothing
        if index_checks.wanted(mode) and dtypes.issubdtype(indices.dtype, np.integer):
            if axis is None:
                index_checks.check("take", indices, a.size, 0, True)
            elif a.ndim:
                index_checks.check("take", indices, a.shape[axis], canonical_axis(axis, a.ndim), True)
        return _take_jit(
            a, indices, axis, mode, bool(unique_indices), bool(indices_are_sorted), fill_value
        )
    except Exception:
        leave()
        raise


def _take(a, indices, axis, mode, unique_indices, indices_are_sorted, fill_value):
    if axis is None:
        a = reshape(a, (math.prod(a.shape),))
        axis = 0
    elif a.ndim:
        axis = canonical_axis(axis, a.ndim)
    if a.ndim == 0:
        a, axis = reshape(a, (1,)), 0
    if indices.dtype == np.bool_:
        indices = lax._convert_element_type(indices, _INT32)
    _integer_indices(indices, "take_along_axis: indices have to be integers")
    size = a.shape[axis]
    if size == 0 and math.prod(indices.shape):
        raise IndexError(f"take_along_axis: axis {axis} of shape {tuple(a.shape)} has no elements to take")
    if size == 0:
        return full((*a.shape[:axis], *indices.shape, *a.shape[axis + 1 :]), 0, a.dtype)
    if mode == "wrap":
        indices = _floor_mod(indices, size)
        gather_mode = "promise_in_bounds"
    elif mode == "clip":
        gather_mode = "clip"
    else:
        gather_mode = "fill"
        if dtypes.issubdtype(indices.dtype, np.signedinteger):
            indices = wrap_negative(indices, size, _INT32)
    if indices.dtype != _INT32 and indices.dtype.itemsize < 4:
        indices = lax._convert_element_type(indices, _INT32)
    numbers = GatherDimensionNumbers(
        offset_dims=(*range(axis), *range(axis + indices.ndim, a.ndim + indices.ndim - 1)),
        collapsed_slice_dims=(axis,),
        start_index_map=(axis,),
    )
    return gather(
        a,
        expand_dims(indices, (indices.ndim,)),
        numbers,
        (*a.shape[:axis], 1, *a.shape[axis + 1 :]),
        mode=gather_mode,
        unique_indices=unique_indices,
        indices_are_sorted=indices_are_sorted,
        fill_value=fill_value,
    )


_take_jit = jit(_take, static_argnums=(2, 3, 4, 5, 6))


def _floor_mod(x: Array, size: int) -> Array:
    """``x`` modulo a positive size, in ``[0, size)``."""
    if size > dtypes.iinfo(x.dtype).max:
        x = lax._convert_element_type(x, _INT32)
    size = x.dtype.type(size)
    remainder = lax.rem(x, size)
    if x.dtype.kind == "u":
        return remainder
    zero = x.dtype.type(0)
    return lax.select_n(lax.lt(remainder, zero), remainder, lax.add(remainder, size))


def _along_axis_shapes(
    name: str, arr: Array, indices: Array, axis: int | None
) -> tuple[Array, Array, int]:
    """Flattens for ``axis=None``; checks ranks and the index dtype."""
    _integer_indices(
        indices,
        f"{name} indices must be of integer type, got {indices.dtype}",
        TypeError,
    )
    if axis is None:
        if indices.ndim != 1:
            raise ValueError(
                f"{name}: axis=None takes from the flattened array, by a vector of indices; got shape"
                f" {tuple(indices.shape)}"
            )
        return reshape(arr, (math.prod(arr.shape),)), indices, 0
    if arr.ndim != indices.ndim:
        raise ValueError(
            "take_along_axis: indices and arr need as many axes as each other, got "
            f"{indices.ndim} and {arr.ndim}"
        )
    return arr, indices, canonical_axis(axis, arr.ndim)


def take_along_axis(
    arr: ArrayLike, indices: ArrayLike, axis: int | None = -1, mode: Any = None,
    fill_value: Any = None, *, wrap_negative_indices: bool | None = None,
) -> Array:
    """Elements at positions along one axis, which may differ at each place of the other axes.

    Args:
      arr: array.
      indices: integer array of the same rank; other axes broadcast against ``arr``'s.
      axis: the axis; None takes from the flattened array by 1-D indices.
      mode: "fill" (default), "clip", "promise_in_bounds", or "one_hot", which sums the products
        with 0 or 1 instead of looking elements up, and gives 0 out of bounds.
      fill_value: scalar for mode "fill".
      wrap_negative_indices: False if no index is negative, which mode "promise_in_bounds" says too, unless
        JAX 0.12 is followed.

    >>> x = jnp.array([[3, 1], [2, 4]])
    >>> jnp.take_along_axis(x, jnp.argsort(x, axis=1), axis=1)
    Array([[1, 3],
           [2, 4]], dtype=int32)
    """
    arr = ensure_array(arr, "take_along_axis", 0)
    indices = ensure_array(indices, "take_along_axis", 1)
    checked = index_checks.wanted(mode) and dtypes.issubdtype(indices.dtype, np.integer)
    mode = GatherScatterMode.from_any(mode)
    mode = "one_hot" if mode is GatherScatterMode.ONE_HOT else mode.core_name
    if fill_value is not None:
        fill_value = _static_scalar(fill_value)
    if axis is not None:
        axis = operator.index(hashable_axis("take_along_axis", axis))
    wrap = (
        mode != "promise_in_bounds" or follows(0, 12)
        if wrap_negative_indices is None
        else bool(wrap_negative_indices)
    )
    if checked:
        size, at = (arr.size, 0) if axis is None else (arr.shape[axis], canonical_axis(axis, arr.ndim))
        index_checks.check("take_along_axis", indices, size, at, wrap)
    return _take_along_axis_jit(arr, indices, axis, mode, fill_value, wrap)


def _take_along_axis(arr, indices, axis, mode, fill_value, wrap):
    arr, indices, axis = _along_axis_shapes("take_along_axis", arr, indices, axis)
    size = arr.shape[axis]
    others_arr = [*arr.shape[:axis], 1, *arr.shape[axis + 1 :]]
    others_index = [*indices.shape[:axis], 1, *indices.shape[axis + 1 :]]
    out_shape = list(broadcast_shapes(tuple(others_index), tuple(others_arr)))
    out_shape[axis] = indices.shape[axis]
    if wrap and dtypes.issubdtype(indices.dtype, np.signedinteger):
        indices = wrap_negative(indices, size, _INT32)
    elif wrap and indices.dtype.itemsize < 4:
        indices = lax._convert_element_type(indices, _INT32)

    if mode == "one_hot":
        return _by_one_hot(arr, indices, axis)
    # Per other axis: both vary (a batch), only the array does (a window), or only the indices do.
    batch, window, gone = [], [], []
    for d in range(arr.ndim):
        if d == axis:
            continue
        if arr.shape[d] == 1:
            gone.append(d)
        elif indices.shape[d] == 1:
            window.append(d)
        else:
            batch.append(d)
    kept = [d for d in range(arr.ndim) if d not in window]
    index_positions = {d: n for n, d in enumerate(kept)}
    if window:
        indices = squeeze(indices, tuple(window))
    numbers = GatherDimensionNumbers(
        offset_dims=tuple(window),
        collapsed_slice_dims=(*sorted([axis, *gone]),),
        start_index_map=(axis,),
        operand_batching_dims=tuple(batch),
        start_indices_batching_dims=tuple([index_positions[d] for d in batch]),
    )
    slice_sizes = tuple([arr.shape[d] if d in window else 1 for d in range(arr.ndim)])
    if 0 in out_shape:
        return full(tuple(out_shape), 0, arr.dtype)
    if size == 0:
        raise IndexError("Cannot do a non-empty jnp.take_along_axis() from an empty axis.")
    return gather(
        arr,
        expand_dims(indices, (indices.ndim,)),
        numbers,
        slice_sizes,
        mode=mode,
        fill_value=fill_value,
    )


def _by_one_hot(arr, indices, axis):
    """The same as a sum over the axis, which is all of a product's derivative."""
    places = expand_dims(indices, (axis + 1,))  # [..., index, 1, ...]
    shape = tuple([1 if d != axis + 1 else arr.shape[axis] for d in range(places.ndim)])
    hit = ufuncs.equal(places, broadcasted_iota(indices.dtype, shape, axis + 1))
    values = expand_dims(arr, (axis,))
    common = broadcast_shapes(hit.shape, values.shape)
    hit, values = _broadcast_to(hit, common), _broadcast_to(values, common)
    picked = lax.select(hit, values, full_like(values, 0))
    return reduce_or(picked, (axis + 1,)) if arr.dtype == bool else reduce_sum(picked, (axis + 1,))


_take_along_axis.__name__ = "take_along_axis"
_take_along_axis_jit = jit(_take_along_axis, static_argnums=(2, 3, 4, 5))


def _reject_inplace(name: str, inplace: bool) -> None:
    if inplace:
        raise ValueError(
            f"{name}: arrays cannot be changed in place; pass inplace=False, and use the array that "
            "it returns."
        )


def put_along_axis(
    arr: ArrayLike, indices: ArrayLike, values: ArrayLike, axis: int | None, inplace: bool = True,
    *, mode: str | None = None,
) -> Array:
    """A copy of ``arr`` with the elements that ``take_along_axis`` would read replaced.

    Args: arr: array; indices, values: arrays that broadcast to the shape of `arr` but for `axis`;
    axis: an axis, or None for the flattened array. ``inplace=False`` is required. ``mode`` is that
    of ``.at[].set``.

    >>> jnp.put_along_axis(jnp.zeros((2, 2)), jnp.array([[1], [0]]), 9.0, 1, inplace=False)
    Array([[0., 9.],
           [9., 0.]], dtype=float32)
    """
    _reject_inplace("jnp.put_along_axis", inplace)
    original = ensure_array(arr, "put_along_axis", 0)
    indices = ensure_array(indices, "put_along_axis", 1)
    values = ensure_array(values, "put_along_axis", 2)
    arr, indices, axis = _along_axis_shapes("put_along_axis", original, indices, axis)
    others_arr = (*arr.shape[:axis], 1, *arr.shape[axis + 1 :])
    others_index = (*indices.shape[:axis], 1, *indices.shape[axis + 1 :])
    shape = list(broadcast_shapes(others_index, others_arr))
    shape[axis] = indices.shape[axis]
    places: list[Any] = []
    for d in range(arr.ndim):
        if d == axis:
            places.append(_broadcast_to(indices, tuple(shape)))
        else:
            positions = np.arange(arr.shape[d], dtype=_INT32)
            places.append(positions.reshape([-1 if i == d else 1 for i in range(arr.ndim)]))
    result = IndexUpdateHelper(arr)[tuple(places)].set(values, mode=mode)
    return reshape(result, original.shape)


def put(
    a: ArrayLike, ind: ArrayLike, v: ArrayLike, mode: str | None = None, *, inplace: bool = True,
) -> Array:
    """A copy of ``a`` with elements at positions of the flattened array replaced.

    Args:
      a: array of any shape.
      ind: integer positions.
      v: values, repeated as needed.
      mode: "clip" and None move positions into bounds, None after counting negative ones from the
        end; "wrap" takes them modulo the size.
      inplace: must be False.

    >>> jnp.put(jnp.zeros(3), jnp.array([0, 2]), 5.0, inplace=False)
    Array([5., 0., 5.], dtype=float32)
    """
    _reject_inplace("jnp.put", inplace)
    a = ensure_array(a, "put", 0)
    ind = ensure_array(ind, "put", 1)
    v = ensure_array(v, "put", 2)
    if a.ndim == 0 and math.prod(ind.shape) == 0 or 0 in ind.shape or 0 in v.shape:
        return a
    ind = reshape(ind, (math.prod(ind.shape),))
    count, given = ind.shape[0], math.prod(v.shape)
    v = reshape(v, (given,))
    if given != count:
        v = _resized(v, given, count)
    size = math.prod(a.shape)
    flat = reshape(a, (size,))
    if mode is None or mode == "clip":
        if mode is None and ind.dtype.kind == "i":
            ind = wrap_negative(ind, size, _INT32)
        limit = min(size - 1, dtypes.iinfo(ind.dtype).max)
        ind = lax.clamp(ind.dtype.type(0), ind, ind.dtype.type(limit))
    elif mode == "wrap":
        ind = _floor_mod(ind, size)
    elif mode == "raise":
        raise NotImplementedError("put: there is no mode 'raise'; use 'clip' or 'wrap'")
    else:
        raise ValueError(f"put: mode has to be 'wrap' or 'clip', got {mode!r}")
    result = IndexUpdateHelper(flat)[ind].set(v, mode="promise_in_bounds")
    return reshape(result, a.shape)


def _resized(v: Array, given: int, count: int) -> Array:
    """The 1-D values repeated or cut to ``count``."""
    repeats = -(-count // given)
    if repeats > 1:
        spread = bind(
            "broadcast_in_dim", (v,), {"shape": (repeats, given), "broadcast_dimensions": (1,)}
        )
        v = reshape(spread, (repeats * given,))
    if v.shape[0] == count:
        return v
    return bind(
        "slice", (v,), {"start_indices": (0,), "limit_indices": (count,), "strides": None}
    )
