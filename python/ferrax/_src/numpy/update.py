"""How ``x.at[index]`` updates are computed.

An update becomes

  a scatter           in general
  an elementwise op   if the index covers the array
  a select            if the index holds one boolean mask and the values do not depend on how many
                      of its elements are True, or the mask is traced: then the k-th element that is
                      True takes the k-th value, and those without a value stay as they are

Invariants: the result has the operand's shape, dtype and weak type; updates out of bounds are
dropped unless ``mode`` says otherwise.
"""

from __future__ import annotations

import warnings

import numpy as np

from ferrax._core import Array, Tracer, bind, update_at
from ferrax._src.base import dtypes
from ferrax._src.base.config import config
from ferrax._src.base.errors import NonConcreteBooleanIndexError, user_stacklevel
from ferrax._src.core import as_array
from ferrax._src.core.op_types import (
    GatherDimensionNumbers,
    GatherScatterMode,
    ScatterDimensionNumbers,
)
from ferrax._src.lax import elementwise as lax, gather_scatter
from ferrax._src.lax.creation import full
from ferrax._src.lax.reduce import cumsum
from ferrax._src.lax.shape import _broadcast_to, reshape
from ferrax._src.numpy import index_checks
from ferrax._src.numpy.array_creation import asarray
from ferrax._src.numpy.index_parse import Mask, Range, Window, parse
from ferrax._src.numpy.index_plan import as_arguments, traced
from ferrax._src.numpy.indexing import (
    _settle_booleans,
    concrete_masks,
    static_getitem,
    structure_of,
)
from ferrax._src.transforms.jit import jit

_COMBINE = {
    "scatter_add": lax.add,
    "scatter_sub": lax.sub,
    "scatter_mul": lax.mul,
    "scatter_min": lax.min,
    "scatter_max": lax.max,
}


def update(op: str, x, index, values, is_sorted, unique, mode, wrap: bool) -> Array:
    """``x`` with ``values`` scattered (set, added, …) at an index expression."""
    if mode is None and wrap and not index_checks.wanted():
        result = update_at(x, index, values, op)
        if result is not None:
            return result
    entries = parse(x.shape, index)
    mode_name = GatherScatterMode.from_any(mode).core_name
    values = _as_values(values)
    if any(type(entry) is Mask for entry in entries):
        result = _masked_update(op, x, entries, values, mode, wrap)
        if result is not None:
            return result
        entries = concrete_masks(entries)
    if index_checks.wanted(mode):
        index_checks.check_entries("x.at[i]", x.shape, entries, wrap)
    entries, empty = _settle_booleans(entries)
    plan, starts, arrays = structure_of(x.shape, entries, wrap)
    if not plan.has_arrays:
        unique = is_sorted = True
    work_dtype = scatter_dtype(op, x, values)
    settings = (plan, op, mode_name, bool(unique), bool(is_sorted), bool(wrap), work_dtype)
    if empty is not None or 0 in x.shape:
        result_shape = list(plan.result_shape)
        if empty is not None:
            result_shape[empty] = 0
        _broadcast_to(values, tuple(result_shape))
        return x
    if isinstance(values, Tracer) or traced(x, starts, arrays):
        return _scatter(*settings, x, values, starts, arrays)
    return _compiled_scatter(*settings, x, values, as_arguments(plan, starts), arrays)


def apply_at(x, index, func, is_sorted: bool, unique: bool, mode, wrap: bool) -> Array:
    """``x`` with an elementwise function applied at an index expression."""
    entries = parse(x.shape, index)
    mask = _only_mask(entries)
    if mask is not None:
        return _masked(x, entries, mask, lambda region: func(region), mode, wrap)
    entries, empty = _settle_booleans(concrete_masks(entries))
    if index_checks.wanted(mode):
        index_checks.check_entries("x.at[i].apply", x.shape, entries, wrap)
    mode = GatherScatterMode.from_any(mode)
    plan, starts, arrays = structure_of(x.shape, entries, wrap)
    if empty is not None or 0 in plan.core_shape or 0 in x.shape:
        return x
    if not plan.components:
        return lax._convert_element_type(func(x), x.dtype, bool(x.weak_type))
    numbers = ScatterDimensionNumbers(plan.offset_dims, plan.collapsed, plan.index_map)
    out = gather_scatter.scatter_apply(
        x,
        plan.index_array(starts, arrays, wrap),
        func,
        numbers,
        update_shape=plan.core_shape,
        indices_are_sorted=is_sorted or not plan.has_arrays,
        unique_indices=unique or not plan.has_arrays,
        mode=mode,
    )
    return lax._convert_element_type(out, x.dtype, bool(x.weak_type))


def _as_values(values) -> Array:
    if isinstance(values, Array):
        return values
    if isinstance(values, (list, tuple)):
        return asarray(values)
    return as_array(values)


def scatter_dtype(op: str, x: Array, values: Array):
    """The dtype that an update is computed in; warns where storing it in ``x`` loses something."""
    if dtypes.issubdtype(x.dtype, dtypes.extended):
        return None
    if values.dtype == x.dtype:
        return x.dtype
    common, weak = dtypes.result_type(x, values, return_weak_type_flag=True)
    fits = common == x.dtype
    if not fits and x.weak_type and not values.weak_type:
        # A weakly typed operand gives way in arithmetic, but what it stores has its own dtype.
        fits = dtypes.promote_types(x.dtype, values.dtype) == x.dtype
    if not fits:
        warnings.warn(
            f"scatter: values of dtype {values.dtype} do not fit an array of dtype {x.dtype} "
            f"(jax_numpy_dtype_promotion={config.jax_numpy_dtype_promotion}); they are converted. "
            "Convert them with astype: a later version refuses them.",
            FutureWarning,
            stacklevel=user_stacklevel(),
        )
    return x.dtype if op == "scatter" or fits else common


def _promoted(dtype, x: Array, values: Array) -> tuple[Array, Array]:
    if dtype is None:
        return x, values
    if x.dtype != dtype:
        x = lax._convert_element_type(x, dtype)
    # Made strong as well: a weak value's cotangent is weak only through this conversion.
    return x, lax._convert_element_type(values, dtype)


def _restored(x: Array, out: Array) -> Array:
    """The result in the operand's dtype and weak type."""
    if out.dtype == x.dtype and bool(out.weak_type) == bool(x.weak_type):
        return out
    if dtypes.issubdtype(x.dtype, dtypes.extended):
        return out
    return lax._convert_element_type(out, x.dtype, bool(x.weak_type))


def _scatter(plan, op, mode, unique, is_sorted, wrap, dtype, x, values, starts, arrays):
    old, values = _promoted(dtype, x, values)
    values = _broadcast_to(values, plan.result_shape)
    if plan.new_axes:
        values = reshape(values, plan.core_shape)
    if plan.components:
        indices = plan.index_array(starts, arrays, wrap)
        out = plan.scatter(op, old, indices, values, mode, unique, is_sorted)
    else:
        out = _combine(op, old, values)
    return _restored(x, out)


_scatter.__name__ = "scatter"
# Eagerly, an update is one compiled function per plan.
_compiled_scatter = jit(_scatter, static_argnums=(0, 1, 2, 3, 4, 5, 6), inline=True)


def _combine(op: str, x: Array, values: Array) -> Array:
    return values if op == "scatter" else _COMBINE[op](x, values)


# Masks


def _only_mask(entries: list) -> Mask | None:
    """The index's mask if it has one and no other advanced index but integers."""
    masks = [entry for entry in entries if type(entry) is Mask]
    others = any(
        isinstance(entry, (Array, np.ndarray)) or entry is True or entry is False
        for entry in entries
    )
    return masks[0] if len(masks) == 1 and not others else None


def _region_entries(entries: list, shape) -> list:
    """The entries with whole axes in place of the mask's."""
    result, axis = [], 0
    for entry in entries:
        if type(entry) is Mask:
            n = entry.value.ndim
            result.extend([Range(0, shape[axis + i], 1, True) for i in range(n)])
            axis += n
            continue
        result.append(entry)
        if entry is not None and type(entry) is not str:
            axis += 1
    return result


def _mask_axis(entries: list) -> int:
    """The axis of the region at which the mask's axes begin."""
    axis = 0
    for entry in entries:
        if type(entry) is Mask:
            return axis
        if entry is None or type(entry) in (Range, Window):
            axis += 1
    return axis


def _masked(x: Array, entries: list, mask: Mask, change, mode, wrap: bool) -> Array:
    """``change`` applied to the region around a mask, kept where the mask holds."""
    region_entries = _region_entries(entries, x.shape)
    is_all = all(type(entry) is Range and entry.whole for entry in region_entries)
    region = x if is_all else static_getitem(x, region_entries, mode=mode, wrap=wrap)
    new = change(region)
    new = _restored(x, new) if is_all else new
    value = mask.value if isinstance(mask.value, Array) else as_array(mask.value)
    if value.shape != region.shape:
        first = _mask_axis(entries)
        value = bind(
            "broadcast_in_dim",
            (value,),
            {
                "shape": region.shape,
                "broadcast_dimensions": tuple(range(first, first + value.ndim)),
            },
        )
    if new.dtype != region.dtype:
        new = lax._convert_element_type(new, region.dtype)
    picked = lax.select_n(value, region, new)
    if is_all:
        return _restored(x, picked)
    plan, starts, arrays = structure_of(x.shape, region_entries, wrap)
    mode_name = GatherScatterMode.from_any(mode).core_name
    return _scatter(plan, "scatter", mode_name, True, True, wrap, None, x, picked, starts, arrays)


def _masked_update(op: str, x: Array, entries: list, values: Array, mode, wrap: bool):
    """The update as a select, or None if the mask must be (and is) concrete instead."""
    mask = _only_mask(entries)
    traced_masks = [e for e in entries if type(e) is Mask and not e.concrete]
    aligned = None if mask is None else _values_for_mask(entries, mask, values)
    if mask is not None and aligned is None and traced_masks:
        mask, aligned = _values_in_order(entries, mask, values)
        entries = [mask if type(entry) is Mask else entry for entry in entries]
    if mask is None or aligned is None:
        if traced_masks:
            raise NonConcreteBooleanIndexError(traced_masks[0].value)
        return None
    dtype = scatter_dtype(op, x, aligned)

    def change(region):
        old, new = _promoted(dtype, region, aligned)
        return _combine(op, old, _broadcast_to(new, region.shape))

    return _masked(x, entries, mask, change, mode, wrap)


def _values_for_mask(entries: list, mask: Mask, values: Array) -> Array | None:
    """The values aligned to the region around a mask, or None if they are one for each True."""
    if values.ndim == 0:
        return values
    at = _picked_axis(entries, mask, values)
    if at is None:
        return None
    if at < 0:
        return values
    if values.shape[at] != 1:
        return None
    shape = (*values.shape[:at], *([1] * mask.value.ndim), *values.shape[at + 1 :])
    return reshape(values, shape)


def _picked_axis(entries: list, mask: Mask, values: Array) -> int | None:
    """The axis of the values that runs over the mask's True elements; negative if they have none, None
    if they do not fit or the mask's axis moves to the front."""
    integers = [i for i, entry in enumerate(entries) if type(entry) is int]
    if integers:
        span = [*integers, next(i for i, entry in enumerate(entries) if type(entry) is Mask)]
        if max(span) - min(span) != len(span) - 1:
            return None  # advanced indices apart
    axes = [entry is None or type(entry) is Range for entry in entries]
    picked_rank = sum(axes) + 1
    if values.ndim > picked_rank:
        return None
    return _mask_axis(entries) - (picked_rank - values.ndim)


def _values_in_order(entries: list, mask: Mask, values: Array):
    """The elements of a traced mask that have a value, and the values aligned to its region; None for
    the values where other advanced indices move the mask's axis to the front."""
    at = _picked_axis(entries, mask, values)
    if at is None or at < 0:
        return mask, None
    count = values.shape[at]
    flags = reshape(mask.value, (mask.value.size,))
    order = lax.sub(cumsum(lax._convert_element_type(flags, np.dtype(np.int32)), 0), np.int32(1))
    has_value = lax.bitwise_and(mask.value, reshape(lax.lt(order, np.int32(count)), mask.value.shape))
    if not count:
        return Mask(has_value, False), full((), 0, values.dtype)
    numbers = GatherDimensionNumbers(
        offset_dims=tuple(d for d in range(values.ndim) if d != at),
        collapsed_slice_dims=(at,),
        start_index_map=(at,),
    )
    sizes = tuple(1 if d == at else size for d, size in enumerate(values.shape))
    taken = gather_scatter.gather(
        values, reshape(order, (order.size, 1)), numbers, sizes, mode=GatherScatterMode.CLIP
    )
    aligned = reshape(taken, (*values.shape[:at], *mask.value.shape, *values.shape[at + 1 :]))
    return Mask(has_value, False), aligned
