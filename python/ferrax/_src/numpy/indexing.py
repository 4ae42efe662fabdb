"""``Array.__getitem__`` and the parts of indexing that ``Array.at`` shares with it.

Three lowerings, chosen by what the index contains:

  static          slice, rev, squeeze, broadcast_in_dim (integers, slices, None, Ellipsis)
  dynamic scalar  dynamic_slice (besides the above, integers and starts that are traced or out of
                  bounds)
  gather          index arrays, or mode "fill" with an index that may be out of bounds

Invariants: negative indices count from the end once; integers out of bounds are then clamped;
boolean arrays must be concrete (their number of True decides the result's shape).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn

import numpy as np

from ferrax._core import Array, Tracer, bind
from ferrax._src.base.errors import NonConcreteBooleanIndexError
from ferrax._src.base.traceback_util import boundary
from ferrax._src.core import as_array
from ferrax._src.core.op_types import GatherScatterMode
from ferrax._src.core.placements import WHOLE, placed, placement
from ferrax._src.lax.elementwise import _convert_element_type
from ferrax._src.lax.gather_scatter import _default_fill, _static_scalar
from ferrax._src.numpy import index_checks
from ferrax._src.numpy.basic_index import (
    basic_getitem,
    cached_steps,
    check_static,
    misses,
    static_integer,
    static_key,
    static_row,
)
from ferrax._src.numpy.index_parse import (
    Mask,
    Range,
    Window,
    numpy_index_array,
    parse,
    reject_large_integers,
)
from ferrax._src.numpy.index_plan import Plan, as_arguments, plan_for, traced, wrap_negative
from ferrax._src.transforms.jit import jit

_INT32 = np.dtype(np.int32)
_DEFAULT_MODE = "promise_in_bounds"


def getitem(x: Array, index) -> Array:
    """``x[index]`` by NumPy's rules, with indices out of bounds clamped.

    Raises IndexError (too many indices, traced slice bounds; under `jax_check_static_indices` also
    for known integers out of bounds), TypeError (lists, floats) and
    NonConcreteBooleanIndexError (traced masks).

    >>> getitem(jnp.arange(5), slice(None, None, 2))
    Array([0, 2, 4], dtype=int32)
    """
    kind = type(index)
    shape = x.shape
    if kind is int:
        if shape:
            place = index + shape[0] if index < 0 else index
            if 0 <= place < shape[0]:
                return static_row(x, shape, place)
    elif kind is tuple or kind is slice:
        key = static_key(index if kind is tuple else (index,))
        steps = None if key is None else cached_steps(shape, key, index)
        if steps is not None:
            for name, params in steps:
                x = bind(name, (x,), params)
            return x
    elif isinstance(index, Array) and shape and index.ndim and _plain_integers(index.dtype):
        # The most common advanced index: one array along the first axis.
        entry = ("a", index.shape, index.dtype.kind == "i")
        plan = plan_for(shape, (entry, *((":",) * (len(shape) - 1))))
        if index_checks.wanted():
            index_checks.check("x[i]", index, shape[0], 0, True)
        if isinstance(x, Tracer) or isinstance(index, Tracer):
            return _gather(plan, _DEFAULT_MODE, None, False, False, True, x, (), (index,))
        return _compiled_gather(plan, _DEFAULT_MODE, None, False, False, True, x, (), (index,))
    reject_large_integers(index)
    return static_getitem(x, parse(shape, index))


def _plain_integers(dtype) -> bool:
    return getattr(dtype, "kind", "V") in "iu"


def static_getitem(
    x: Array,
    entries: list,
    *,
    mode=None,
    fill_value=None,
    unique_indices: bool = False,
    indices_are_sorted: bool = False,
    wrap: bool = True,
) -> Array:
    """``x`` at parsed entries; the other arguments are those of ``.at[].get``."""
    mode_name = _DEFAULT_MODE if mode is None else GatherScatterMode.from_any(mode).core_name
    entries = concrete_masks(entries)
    if index_checks.wanted(mode):
        index_checks.check_entries("x[i]", x.shape, entries, wrap)
    entries, empty = _settle_booleans(entries)
    has_scalars = has_arrays = has_strides = False
    for entry in entries:
        if isinstance(entry, (Array, np.ndarray)):
            if entry.ndim:
                has_arrays = True
            else:
                has_scalars = True
        elif type(entry) is Window:
            has_scalars = True
            has_strides = has_strides or entry.step != 1
    # Integers out of bounds stay as they are, for checks to see them, where something is read.
    misses_any = mode_name != "clip" and empty is None and not has_arrays
    dynamic = has_scalars or (misses_any and misses(x.shape, entries, wrap))
    if has_arrays and mode_name != "clip":
        check_static(x.shape, entries, wrap)
    if has_arrays or has_strides or (mode_name == "fill" and dynamic):
        out = _gather_getitem(
            x, entries, mode_name, fill_value, unique_indices, indices_are_sorted, wrap
        )
    elif dynamic:
        check_static(x.shape, entries, wrap)
        out = _dynamic_getitem(x, entries, wrap)
    else:
        out = basic_getitem(x, entries, wrap)
    if empty is not None:
        limits = list(out.shape)
        limits[empty] = 0
        return bind(
            "slice",
            (out,),
            {
                "start_indices": (0,) * out.ndim,
                "limit_indices": tuple(limits),
                "strides": None,
            },
        )
    return out


def concrete_masks(entries: list) -> list:
    """The entries with each boolean mask replaced by the index arrays of its True elements."""
    result: list[Any] = []
    for entry in entries:
        if type(entry) is Mask:
            if not entry.concrete:
                raise NonConcreteBooleanIndexError(entry.value)
            result.extend(np.nonzero(entry.value))
        else:
            result.append(entry)
    return result


def _settle_booleans(entries: list) -> tuple[list, int | None]:
    """Boolean scalars that stand beside no index array, as a new axis.

    Integers belong to the same block of indices as they: where others stand between its parts, its
    axis comes first. Returns the entries and the result axis to be emptied for False, if any.
    """
    if not any(entry is True or entry is False for entry in entries):
        return entries, None
    if any(isinstance(entry, (Array, np.ndarray)) and entry.ndim for entry in entries):
        return entries, None
    # Several boolean scalars together make one axis.
    separators = (Range, Window, type(None), str)
    block = [place for place, entry in enumerate(entries) if not isinstance(entry, separators)]
    apart = block[-1] - block[0] >= len(block)
    result: list = [None] if apart else []
    axis, value, seen = len(result), True, 0 if apart else None
    for entry in entries:
        if entry is True or entry is False:
            value = value and entry
            if seen is None:
                seen = axis
                result.append(None)
                axis += 1
            continue
        result.append(entry)
        if entry is None or type(entry) in (Range, Window):
            axis += 1
    return result, None if value else seen


def _dynamic_getitem(x: Array, entries: list, wrap: bool) -> Array:
    """Integer scalars that are traced or out of bounds: dynamic_slice, after any slices with
    steps."""
    x, entries = _preslice(x, entries)
    shape = x.shape
    starts: list = []
    sizes: list[int] = []
    dropped: list[int] = []
    after: list = []
    for entry in entries:
        if entry is None:
            after.append(None)
            continue
        if type(entry) is str:
            continue
        axis = len(sizes)
        if type(entry) is Range:
            starts.append(as_array(_INT32.type(entry.start)))
            sizes.append(entry.size)
            after.append(Range(0, entry.size, 1, True))
        elif type(entry) is Window:
            starts.append(_start_array(entry.start, shape[axis], wrap))
            sizes.append(entry.size)
            after.append(Range(0, entry.size, 1, True))
        else:
            starts.append(_start_array(entry, shape[axis], wrap))
            sizes.append(1)
            dropped.append(axis)
    x = bind("dynamic_slice", (x, *starts), {"slice_sizes": tuple(sizes)})
    if dropped:
        x = bind("squeeze", (x,), {"dimensions": tuple(dropped)})
    return basic_getitem(x, after, wrap) if None in after else x


def _start(index, size: int, wrap: bool):
    if isinstance(index, int):
        return static_integer(index, size, wrap)
    return dynamic_start(index, size, wrap)


def _start_array(index, size: int, wrap: bool) -> Array:
    start = _start(index, size, wrap)
    return as_array(_INT32.type(start)) if isinstance(start, int) else start


def dynamic_start(index, size: int, wrap: bool) -> Array:
    """A traced scalar index as an int32 start, wrapped if negative."""
    if size == 0:
        raise IndexError("index is out of bounds for an axis with size 0")
    dtype = index.dtype
    if wrap and dtype.kind == "i":
        index = wrap_negative(index, size, _INT32)
    return _convert_element_type(index, _INT32, False)


def _preslice(x: Array, entries: list) -> tuple[Array, list]:
    """Applies the slices with steps, leaving whole axes in their place."""
    if not any(type(entry) is Range and entry.step != 1 for entry in entries):
        return x, entries
    before: list[Any] = []
    after: list[Any] = []
    axis = 0
    for entry in entries:
        if entry is None or entry is True or entry is False or type(entry) is str:
            after.append(entry)
            continue
        if type(entry) is Range and entry.step != 1:
            before.append(entry)
            after.append(Range(0, entry.size, 1, True))
        else:
            before.append(Range(0, x.shape[axis], 1, True))
            after.append(entry)
        axis += 1
    return basic_getitem(x, before, True), after


def structure_of(
    shape: tuple[int, ...], entries: list, wrap: bool
) -> tuple[Plan, tuple, tuple]:
    """The plan for entries, with the starts and index arrays to apply it to."""
    structure: list = []
    starts: list = []
    arrays: list = []
    axis = 0
    for entry in entries:
        kind = type(entry)
        if entry is None or entry is True or entry is False or kind is str:
            structure.append(entry)
            continue
        if kind is int:
            structure.append("i")
            starts.append(static_integer(entry, shape[axis], wrap))
        elif kind is Range:
            if entry.whole:
                structure.append(":")
            else:
                structure.append(("s", entry.size, entry.step))
                starts.append(entry.start)
        elif kind is Window:
            structure.append(("s", entry.size, entry.step))
            starts.append(_start(entry.start, shape[axis], wrap))
        elif isinstance(entry, np.ndarray):
            structure.append(("a", entry.shape, False))
            arrays.append(numpy_index_array(entry, shape[axis], wrap, _INT32))
        elif entry.ndim == 0:
            structure.append("i")
            starts.append(dynamic_start(entry, shape[axis], wrap))
        else:
            structure.append(("a", tuple(entry.shape), entry.dtype.kind == "i"))
            arrays.append(entry)
        axis += 1
    return plan_for(tuple(shape), tuple(structure)), tuple(starts), tuple(arrays)


def _gather_getitem(
    x: Array, entries: list, mode: str, fill_value, unique: bool, is_sorted: bool, wrap: bool
) -> Array:
    x, entries = _preslice(x, entries)
    plan, starts, arrays = structure_of(x.shape, entries, wrap)
    if not plan.has_arrays:
        unique = is_sorted = True
    if mode != "fill":
        fill_value = None
    elif fill_value is None:
        fill_value = _default_fill(x.dtype)
    else:
        fill_value = _static_scalar(fill_value)
    if traced(x, starts, arrays):
        return _gather(plan, mode, fill_value, unique, is_sorted, wrap, x, starts, arrays)
    starts = as_arguments(plan, starts)
    if fill_value is not None and fill_value != fill_value:
        # NaN equals nothing, itself included: it would miss the compiled function's cache.
        fill_value = _NAN
    return _compiled_gather(plan, mode, fill_value, unique, is_sorted, wrap, x, starts, arrays)


_NAN = "nan"


def _gather(plan, mode, fill_value, unique, is_sorted, wrap, x, starts, arrays):
    if fill_value is _NAN:
        fill_value = float("nan")
    indices = plan.index_array(starts, arrays, wrap)
    return plan.gather(x, indices, mode, fill_value, unique, is_sorted)


_gather.__name__ = "getitem"
# Eagerly, wrapping the indices and gathering is one compiled function per plan.
_compiled_gather = jit(_gather, static_argnums=(0, 1, 2, 3, 4, 5), inline=True)


def iterate(x: Array) -> Iterator[Array]:
    """``iter(x)``: the slices along the first axis; TypeError for 0-d arrays. Those of an array that is divided over
    devices are nowhere by request."""
    if x.ndim == 0:
        raise TypeError("iteration over a 0-d array")
    if not isinstance(x, Tracer) and not placement(x).sharding.is_fully_replicated:
        x = placed(x, WHOLE, committed=False)
    return (x[i] for i in range(x.shape[0]))


def setitem(x: Array, index: Any, value: Any) -> NoReturn:
    """``x[index] = value`` is an error: arrays cannot be changed."""
    raise TypeError(
        "x[idx] = y: ferrax arrays are immutable. Write x = x.at[idx].set(y), which "
        "makes a new array; .at[idx] has add, multiply, min, max and more as well."
    )


def install(array_class: Any) -> None:
    """Gives the array class ``iter``; ``[]`` is native and calls ``getitem`` for what is not
    static."""
    array_class.__iter__ = boundary(iterate)
    array_class.__setitem__ = boundary(setitem)
