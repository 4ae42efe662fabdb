"""Indices of mutable arrays: which are allowed, what they name, and one after another.

In: what is written between brackets, and the shape that it is an index of. Out: an `Indexed`, whose
integers and slices are within bounds: known ones are checked, traced ones moved. Index arrays stay as
they are: what they read out of bounds is the nearest element, what they write there is dropped.
"""

from __future__ import annotations

import operator
from typing import Any, NamedTuple

import numpy as np

from ferrax._src import core
from ferrax._src.lax.elementwise import clamp
from ferrax._src.lax.shape import reshape
from ferrax._src.lax.slicing import dynamic_slice, dynamic_update_slice
from ferrax._src.numpy import index_checks
from ferrax._src.numpy.index_parse import Range, Window, parse
from ferrax._src.numpy.indexing import concrete_masks, dynamic_start, structure_of
from ferrax._src.numpy.slices import Slice
from ferrax._src.state import Ref, at_user_line

_INT32 = np.dtype(np.int32)


def checked_index(ref, idx) -> tuple:
    """The index as a tuple, empty for all elements."""
    if idx is None or idx is Ellipsis:
        return ()
    idx = tuple(_item(item) for item in idx) if isinstance(idx, tuple) else (_item(idx),)
    items = [item for item in idx if item is not Ellipsis]
    if not items:
        return ()
    given = sum(item.ndim if is_mask(item) else item is not None for item in items)
    if given > ref.ndim:
        raise ValueError(
            f"the index of a mutable array has {given} entries, but its shape {ref.shape} has "
            f"{ref.ndim} dimensions: {idx!r}.{at_user_line()}"
        )
    _check_items(ref, idx, given)
    return idx


def _item(item):
    if isinstance(item, Ref):
        raise TypeError(
            "a mutable array was used as an index. Read it first: ref[i[...]]."
            f"{at_user_line()}"
        )
    if type(item) is Slice:
        return Slice(_known(item.start), _known(item.size), item.stride)
    return _known(item)


def _known(item):
    """An integer for an integer scalar whose value is known."""
    if isinstance(item, (np.integer, core.Array)) and not item.ndim and not is_mask(item) and core.is_concrete(item):
        return operator.index(item)
    return item


def is_mask(item) -> bool:
    return isinstance(item, (core.Array, np.ndarray)) and item.dtype == np.bool_


def _check_items(ref, idx, given):
    """Errors: ValueError for static integers and slices out of bounds and for steps below 1."""
    axis = 0
    for item in idx:
        if item is None:
            continue
        if item is Ellipsis:
            axis += ref.ndim - given
            continue
        if isinstance(item, slice):
            step = item.step
            if isinstance(step, (int, np.integer)) and step < 1:
                raise ValueError(
                    f"slices of mutable arrays must have a step >= 1, found {step}. Reverse what "
                    f"was read: ref[...][{':' if axis == 0 else '..., :'}:{step}]."
                    f"{at_user_line()}"
                )
        elif type(item) is Slice:
            _check_slice(item, ref.shape[axis], axis)
        elif isinstance(item, (int, np.integer)) and not isinstance(item, bool):
            size = ref.shape[axis]
            if not -size <= operator.index(item) < size:
                raise ValueError(
                    f"index {item} is out of bounds for axis {axis} of size {size} of a mutable "
                    f"array of shape {ref.shape}.{at_user_line()}"
                )
        axis += item.ndim if is_mask(item) else 1


def _check_slice(item: Slice, size: int, axis: int) -> None:
    count, step = item.size, item.stride
    length = max(count, 1) * step - step + 1 if isinstance(count, int) else 0
    if isinstance(item.start, int):
        first = item.start + size if item.start < 0 else item.start
        inside = first >= 0 and first + length <= size
    else:
        inside = length <= size
    if not inside:
        raise ValueError(
            f"a slice of {count} elements from {item.start} in steps of {step} is out of bounds for "
            f"axis {axis} of size {size} of a mutable array.{at_user_line()}"
        )


class Indexed(NamedTuple):
    """The elements that an index names. `items` has an integer, a `Slice` or an index array for each
    axis of an array of shape `before`. Its integers and slices are within bounds."""

    before: tuple[int, ...]
    items: tuple

    @property
    def is_basic(self) -> bool:
        """Whether there are no index arrays."""
        return not any(_is_array(item) for item in self.items)

    @property
    def is_whole(self) -> bool:
        """Whether these are all elements, as they are."""
        return all(_is_whole(item, size) for item, size in zip(self.items, self.before))

    @property
    def is_static(self) -> bool:
        """Whether all integers and starts are known."""
        return not any(
            isinstance(item.start if type(item) is Slice else item, core.Array)
            for item in self.items
        )

    def as_index(self) -> tuple:
        """As an index of an array."""
        return tuple(_plain_slice(item) if type(item) is Slice else item for item in self.items)

    def type_after(self, dtype):
        if self.is_basic:
            return tuple(item.size for item in self.items if type(item) is Slice), dtype
        plan, _, _ = structure_of(self.before, parse(self.before, self.as_index()), True)
        return plan.result_shape, dtype

    def read(self, value):
        return value if self.is_whole else value[self.as_index()]

    def write(self, before, value):
        if self.is_whole:
            return value
        if self.is_static or not self.is_basic:
            return before.at[self.as_index()].set(value)
        if any(type(item) is Slice and item.stride != 1 for item in self.items):
            return before.at[self.as_index()].set(value, mode="clip")
        return dynamic_update_slice(before, reshape(value, self._sizes()), self._starts())

    def add(self, before, value):
        """`before` with `value` added to these elements."""
        if self.is_whole:
            return before + value
        if self.is_static or not self.is_basic:
            return before.at[self.as_index()].add(value)
        if any(type(item) is Slice and item.stride != 1 for item in self.items):
            return before.at[self.as_index()].add(value, mode="clip")
        starts, sizes = self._starts(), self._sizes()
        old = dynamic_slice(before, starts, sizes)
        return dynamic_update_slice(before, old + reshape(value, sizes), starts)

    def _starts(self):
        return [item.start if type(item) is Slice else item for item in self.items]

    def _sizes(self):
        return tuple(item.size if type(item) is Slice else 1 for item in self.items)


def _is_array(item) -> bool:
    return type(item) is not Slice and isinstance(item, (core.Array, np.ndarray)) and item.ndim > 0


def _is_whole(item, size) -> bool:
    if type(item) is not Slice or item.size != size or item.stride != 1:
        return False
    return isinstance(item.start, int)


def _plain_slice(item: Slice):
    if not isinstance(item.start, int):
        return item
    return slice(item.start, item.start + max(item.size - 1, -1) * item.stride + 1, item.stride)


def indexed(shape: tuple[int, ...], index) -> Indexed | None:
    """The elements of an array of this shape that a `checked_index` names; None for one with new axes
    or boolean scalars. Errors: those of indexing an array."""
    entries = concrete_masks(parse(shape, index))
    items = []
    axis = 0
    for entry in entries:
        kind = type(entry)
        if kind is str:
            continue
        if entry is None or entry is True or entry is False:
            return None
        size = shape[axis]
        if kind is Range:
            items.append(Slice(entry.start, entry.size, entry.step))
        elif kind is Window:
            last = size - (max(entry.size, 1) - 1) * entry.step - 1
            items.append(Slice(_within(entry.start, last, size, axis), entry.size, entry.step))
        elif kind is int:
            items.append(entry + size if entry < 0 else entry)
        elif entry.ndim == 0:
            items.append(_within(entry, size - 1, size, axis))
        else:
            items.append(entry)
        axis += 1
    return Indexed(shape, tuple(items))


def _within(index, last: int, size: int, axis: int):
    """A traced integer, counted from the end if negative, moved into `[0, last]`."""
    if index_checks.wanted():
        index_checks.check("ref[i]", index, last + 1, axis, last == size - 1)
    start = dynamic_start(index, size, True)
    return clamp(_INT32.type(0), start, _INT32.type(last))


def composed(first: Indexed, second: Indexed) -> Indexed | None:
    """One index for two, one after the other; None if that needs index arrays of both."""
    if not first.is_basic:
        return None
    inner = iter(second.items)
    items: list[Any] = []
    for outer, size in zip(first.items, first.before):
        if type(outer) is not Slice:
            items.append(outer)
            continue
        item = next(inner)
        if _is_array(item):
            if not _is_whole(outer, size):
                return None
            items.append(item)
        elif type(item) is Slice:
            items.append(Slice(_along(outer, item.start), item.size, outer.stride * item.stride))
        else:
            items.append(_along(outer, item))
    if not second.is_basic and any(type(item) is not Slice for item in first.items):
        # Integers beside index arrays decide where the axes of these come.
        return None
    return Indexed(first.before, tuple(items))


def _along(outer: Slice, index):
    if outer.stride != 1:
        index = index * outer.stride
    return index if isinstance(outer.start, int) and outer.start == 0 else index + outer.start
