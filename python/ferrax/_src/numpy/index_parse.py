"""Reading an index expression: what a user may put between brackets.

``parse`` turns it into entries, one per axis or new axis, in order:

  int                 a static integer, as written (not wrapped, not checked)
  slice               normalised by ``slice.indices`` to the axis: a ``Range``
  Slice               a ``Range`` if it is known to be within the axis, else a ``Window``
  None, True, False   new axis, boolean scalars
  "e"                 a zero-length ellipsis, kept because it separates advanced indices
  Array               an integer index array or traced integer scalar
  Mask                a boolean array of one or more axes (or a traced boolean scalar)

Invariant: entries consume exactly the array's axes; errors about the expression are raised here.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ferrax._core import Array
from ferrax._src.base import dtypes
from ferrax._src.core import as_array, concrete_or_error, is_concrete, traced_values
from ferrax._src.dims.sizes import as_dim, canonicalize_slice, is_constant_shape
from ferrax._src.lax.elementwise import _convert_element_type
from ferrax._src.numpy.array_creation import array
from ferrax._src.numpy.slices import Slice
from ferrax._src.tree import tree_util

_VALID = (
    "an index is an integer, a slice, `...`, None, an array of integers or booleans, or a tuple of "
    "these."
)
_INT32 = np.iinfo(np.int32)


class Range(NamedTuple):
    """A slice of one axis: ``size`` elements from ``start`` in steps of ``step``."""

    start: int
    size: int
    step: int
    whole: bool


class Window(NamedTuple):
    """A slice of one axis whose ``start``, an integer or a scalar array, may be out of bounds."""

    start: Any
    size: int
    step: int


class Mask(NamedTuple):
    """A boolean array index. ``value`` is a NumPy array if concrete, else a tracer."""

    value: Any
    concrete: bool


def parse(shape: tuple[int, ...], index) -> list:
    """The entries of an index expression on an array of ``shape``."""
    if type(index) is not tuple:
        if isinstance(index, tuple):
            index = tuple(index)
        else:
            _reject_sequence(index)
            index = (index,)
    items: list[Any] = []
    ellipsis_at = -1
    used = 0
    for position, item in enumerate(index):
        kind = type(item)
        if kind is int:
            used += 1
        elif item is None:
            pass
        elif kind is slice or kind is Slice:
            used += 1
        elif item is Ellipsis:
            if ellipsis_at >= 0:
                raise IndexError(
                    "an index has one ellipsis ('...') at most: write ':' for the other axes"
                )
            ellipsis_at = len(items)
        elif kind is bool or kind is np.bool_:
            item = bool(item)
        else:
            item = _read_array(item, position)
            if type(item) is Mask:
                used += item.value.ndim
            elif item is not True and item is not False:
                used += 1
        items.append(item)
    ndim = len(shape)
    if used > ndim:
        raise IndexError(f"Too many indices: {used} for an array of {ndim} axes")
    missing = ndim - used
    if ellipsis_at < 0:
        items.extend([_WHOLE] * missing)
    else:
        items[ellipsis_at : ellipsis_at + 1] = [_WHOLE] * missing if missing else ["e"]

    # Now every item's axis is known.
    entries: list[Any] = []
    axis = 0
    for position, item in enumerate(items):
        kind = type(item)
        if kind is slice:
            entries.append(_range(item, shape[axis], position))
            axis += 1
        elif kind is Slice:
            entries.append(_window(item, shape[axis]))
            axis += 1
        elif kind is Mask:
            value = item.value
            for d, size in enumerate(value.shape):
                # A mask without elements picks nothing of an axis of any size.
                if size not in (0, shape[axis + d]):
                    expected = tuple(shape[axis : axis + value.ndim])
                    raise IndexError(
                        f"boolean array in index {position}: it has shape {tuple(value.shape)}, "
                        f"the axes that it selects from {expected}"
                    )
            entries.append(item)
            axis += value.ndim
        elif item is None or item is True or item is False or kind is str:
            entries.append(item)
        else:
            if kind is int and shape[axis] == 0:
                raise IndexError(f"index {item} is out of bounds for axis {axis} with size 0")
            entries.append(item)
            axis += 1
    return entries


def reject_large_integers(index) -> None:
    """OverflowError for a Python integer that the default integer type does not hold."""
    for item in index if type(index) is tuple else (index,):
        if type(item) is int and not _INT32.min <= item <= _INT32.max:
            info = np.iinfo(dtypes.default_int_dtype())
            if not info.min <= item <= info.max:
                raise OverflowError(
                    f"Python int {item} too large to convert to {info.dtype.name}, as an index; "
                    "indices out of bounds are clamped only within that type: move this one into "
                    "bounds first."
                )


_WHOLE = slice(None)


def _reject_sequence(index) -> None:
    if isinstance(index, str):
        raise TypeError(f"string indexing is not supported; got idx={index!r}")
    if isinstance(index, Sequence) and not isinstance(index, (Array, np.ndarray)):
        raise TypeError(
            f"got a {type(index).__name__} as an index: write x[jnp.array(index)] for elements "
            "along the first axis, x[tuple(index)] for an index for each axis."
        )


def _read_array(item, position: int):
    """An index that is no int, slice, None, Ellipsis or bool, as an entry of ``parse``."""
    if isinstance(item, Array):
        dtype = item.dtype
        kind = getattr(dtype, "kind", "V")
        if kind in "iu":
            if item.ndim == 0 and is_concrete(item):
                return operator.index(concrete_or_error(None, item))
            return item
        if kind == "b":
            if not is_concrete(item):
                return Mask(item, False)
            value = np.asarray(concrete_or_error(None, item))
            return Mask(value, True) if value.ndim else bool(value)
        return _read_odd_integer(item)
    if isinstance(item, np.generic) and item.dtype.kind in "iu":
        return int(item)
    if isinstance(item, str):
        raise TypeError(f"string indexing is not supported; got idx={item!r}")
    if isinstance(item, (list, tuple)):
        if any(isinstance(leaf, Array) for leaf in tree_util.tree_leaves(item)):
            return _read_array(array(item), position)
        item = np.asarray(item)
    if isinstance(item, (np.ndarray, np.generic, float, complex)):
        item = np.asarray(item)
        if item.dtype.kind == "b":
            return Mask(item, True) if item.ndim else bool(item)
        if item.dtype.kind in "iu":
            return item if item.ndim else int(item)
        raise TypeError(
            f"an index array has to hold integers or booleans, got {item.dtype}; use astype"
        )
    if hasattr(item, "__jax_array__"):
        return _read_array(item.__jax_array__(), position)
    try:
        return operator.index(item)
    except TypeError:
        raise IndexError(f"{_VALID} Got {item}") from None


def _read_odd_integer(item: Array) -> Array:
    """Index arrays of the narrow integer types, whose NumPy kind is not "i" or "u"."""
    if dtypes.issubdtype(item.dtype, np.integer):
        return _convert_element_type(item, np.dtype(np.int32))
    raise TypeError(
        f"an index array has to hold integers or booleans, got {item.dtype}; use astype"
    )


def _range(item: slice, size: int, position: int) -> Range:
    if item.start is None and item.stop is None and item.step is None:
        return Range(0, size, 1, True)
    bounds = []
    for bound in (item.start, item.stop, item.step):
        if bound is not None and type(bound) is not int:
            if isinstance(bound, Array) and not is_concrete(bound):
                raise IndexError(
                    f"Slice entries must be static integers. Got {item} at position {position}. "
                    "A slice's size must be known while tracing: use lax.dynamic_slice or "
                    "lax.dynamic_slice_in_dim for a window of static size at a traced position, "
                    "jnp.where with a mask, or mark the bound's argument as static."
                    f"{traced_values((item.start, item.stop, item.step))}"
                )
            bound = as_dim(bound)
        bounds.append(bound)
    if bounds[2] == 0:
        raise ValueError("slice step cannot be zero")
    if not is_constant_shape((size, *(bound for bound in bounds if bound is not None))):
        start, step, count = canonicalize_slice(slice(*bounds), size)
        return Range(start, count, step, step == 1 and start == 0 and count == size)
    picked = range(*slice(*bounds).indices(size))
    count = len(picked)
    if count <= 1:
        # The step of at most one element does not matter; 1 makes the plainest op.
        return Range(picked.start if count else 0, count, 1, count == size)
    return Range(picked.start, count, picked.step, count == size and picked.step == 1)


def _window(item: Slice, size: int) -> Range | Window:
    start, count, step = item.start, item.size, item.stride
    if not isinstance(count, int):
        if not is_concrete(count):
            raise TypeError(
                f"the size of a Slice must be known while tracing, got {count}: make a larger one "
                f"and mask what is too much.{traced_values((count,))}"
            )
        count = operator.index(count)
    if step == 1 and count > size:
        raise TypeError(
            f"a Slice of size {count} is larger than the axis that it is an index of, of size {size}"
        )
    if not isinstance(start, Array) or is_concrete(start):
        start = operator.index(start)
        first = start + size if start < 0 else start
        if first >= 0 and first + (count - 1) * step < size and step and count:
            return Range(first, count, step, count == size)
        return Window(start, count, step)
    if start.ndim or start.dtype.kind not in "iu":
        raise TypeError(
            f"the start of a Slice must be an integer, got {start.dtype}{list(start.shape)}"
        )
    return Window(start, count, step)


def numpy_index_array(value: np.ndarray, size: int, wrap: bool, dtype: np.dtype) -> Array:
    """A NumPy index array as an array, negative entries wrapped and extremes kept out of bounds."""
    if value.dtype.itemsize == 8 and value.dtype.kind == "u":
        value = np.minimum(value, _INT32.max)  # out of bounds all the same
    value = value.astype(np.int64)
    if wrap:
        value = np.where(value < 0, value + size, value)
    info = np.iinfo(dtype)
    return as_array(np.clip(value, info.min, info.max).astype(dtype))
