"""Views of mutable arrays: `ref.at[index]`, `ref.reshape(shape)`, `ref.bitcast(dtype)`, `ref.T`.

A view is the ref and a chain of *transforms*, each of which says which elements of what is before it
are seen, and how a new value of these is put back. Reading goes along the chain; writing reads along
it but for the last transform, then puts values back from the last to the first.

Indices of integers and slices, one after another, become one index of the ref's own axes, so that a
write changes these elements of the ref in place however many views it went through. Traced integers
and starts are moved into the bounds of the view that they are for.

Cost: an index costs what it costs of an array; each further transform of the chain copies what it
sees.
"""

from __future__ import annotations

import math
import operator
from typing import Any, NamedTuple

import numpy as np

from ferrax._src import state
from ferrax._src.base import dtypes
from ferrax._src.lax.elementwise import bitcast_convert_type
from ferrax._src.lax.shape import reshape, transpose
from ferrax._src.numpy.ref_index import Indexed, checked_index, composed, indexed
from ferrax._src.state import TransformedRef, at_user_line


class Reshaped(NamedTuple):
    """The elements in another shape, row by row."""

    before: tuple[int, ...]
    shape: tuple[int, ...]

    def type_after(self, dtype):
        return self.shape, dtype

    def read(self, value):
        return reshape(value, self.shape)

    def write(self, before, value):
        return reshape(value, self.before)


class Permuted(NamedTuple):
    """The elements with their axes in another order."""

    before: tuple[int, ...]
    axes: tuple[int, ...]

    def type_after(self, dtype):
        return tuple(self.before[axis] for axis in self.axes), dtype

    def read(self, value):
        return transpose(value, self.axes)

    def write(self, before, value):
        return transpose(value, tuple(np.argsort(self.axes)))


class Bitcast(NamedTuple):
    """The bits as another dtype. Where its elements have another width, the axis before the last is
    as much longer or shorter: an element's parts are below each other, the lowest bits first."""

    before: tuple[int, ...]
    old: Any
    dtype: Any

    def type_after(self, dtype):
        shape = self.before
        if self.old.itemsize != self.dtype.itemsize:
            rows = shape[-2] * self.old.itemsize // self.dtype.itemsize
            shape = (*shape[:-2], rows, shape[-1])
        return shape, self.dtype

    def read(self, value):
        return _bitcast(value, self.dtype)

    def write(self, before, value):
        return _bitcast(value, self.old)


def _bitcast(value, dtype):
    old, shape = value.dtype, value.shape
    if old.itemsize == dtype.itemsize:
        return bitcast_convert_type(value, dtype)
    *outer, rows, columns = shape
    if old.itemsize > dtype.itemsize:
        parts = bitcast_convert_type(value, dtype)
        return reshape(_swapped(parts), (*outer, rows * parts.shape[-1], columns))
    count = dtype.itemsize // old.itemsize
    return bitcast_convert_type(_swapped(reshape(value, (*outer, rows // count, count, columns))), dtype)


def _swapped(value):
    axes = tuple(range(value.ndim))
    return transpose(value, (*axes[:-2], axes[-1], axes[-2]))


# Views.


class At:
    """`ref.at`: views by index."""

    __slots__ = ("ref",)

    def __init__(self, ref):
        self.ref = ref

    def __getitem__(self, index) -> TransformedRef:
        return at(self.ref, index)


def at(ref, index) -> TransformedRef:
    """The view of these elements."""
    return view_at(ref, checked_index(ref, index))


def view_at(ref, index: tuple) -> TransformedRef:
    """The view of the elements that a `checked_index` names."""
    found = indexed(ref.shape, index)
    if found is None:
        raise IndexError(
            f"the index of a view of a mutable array makes no new axes, got {index!r}. Read first: "
            f"ref[...][{index!r}].{at_user_line()}"
        )
    return _with(ref, found)


def reshaped(ref, *shape) -> TransformedRef:
    """The view in another shape; one size may be -1."""
    sizes = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
    sizes = [operator.index(size) for size in sizes]
    if sizes.count(-1) == 1:
        rest = math.prod(size for size in sizes if size != -1)
        sizes = [ref.size // rest if size == -1 and rest else size for size in sizes]
    if math.prod(sizes) != ref.size or any(size < 0 for size in sizes):
        raise ValueError(
            f"a mutable array of shape {ref.shape} cannot be seen in shape {tuple(sizes)}: it has "
            f"{ref.size} elements.{at_user_line()}"
        )
    return _with(ref, Reshaped(ref.shape, tuple(sizes)))


def permuted(ref, *axes) -> TransformedRef:
    """The view with its axes in another order; without one, reversed."""
    given = axes[0] if len(axes) == 1 and isinstance(axes[0], (tuple, list)) else axes
    order = tuple(operator.index(axis) for axis in given) or tuple(reversed(range(ref.ndim)))
    order = tuple(axis + ref.ndim if axis < 0 else axis for axis in order)
    if sorted(order) != list(range(ref.ndim)):
        raise ValueError(
            f"{given} is no order of the {ref.ndim} axes of a mutable array.{at_user_line()}"
        )
    return _with(ref, Permuted(ref.shape, order))


def bitcast(ref, dtype) -> TransformedRef:
    """The view of the bits as another dtype."""
    new, old = dtypes.canonicalize_dtype(dtype), ref.dtype
    wide, narrow = max(new.itemsize, old.itemsize), min(new.itemsize, old.itemsize)
    if wide != narrow:
        if ref.ndim < 2:
            raise ValueError(
                f"bitcast of a mutable array of {old} to {new}, of another width, changes the axis "
                f"before the last: it needs two axes, got shape {ref.shape}.{at_user_line()}"
            )
        if ref.shape[-2] * old.itemsize % new.itemsize:
            raise ValueError(
                f"bitcast to {new}: the {ref.shape[-2]} rows of a mutable array of {old} and shape "
                f"{ref.shape} do not make whole ones.{at_user_line()}"
            )
    return _with(ref, Bitcast(ref.shape, old, new))


def _with(ref, transform) -> TransformedRef:
    base, chain = (ref.ref, ref.transforms) if type(ref) is TransformedRef else (ref, ())
    if chain and type(chain[-1]) is Indexed and type(transform) is Indexed:
        both = composed(chain[-1], transform)
        if both is not None:
            chain, transform = chain[:-1], both
    return TransformedRef(base, (*chain, transform), transform.type_after(ref.dtype))


# What is read and written.


def read(view: TransformedRef):
    """The array that the view sees."""
    value = state.read(view.ref)
    for transform in view.transforms:
        value = transform.read(value)
    return value


def write(view: TransformedRef, value) -> None:
    """Puts an array of the view's shape and dtype into the ref."""
    *first, last = view.transforms
    put(view.ref, first, lambda before: last.write(before, value))


def add(view: TransformedRef, value) -> None:
    """Adds an array of the view's shape and dtype to what is there."""
    *first, last = view.transforms
    if type(last) is Indexed:
        put(view.ref, first, lambda before: last.add(before, value))
    else:
        write(view, read(view) + value)


def put(ref, transforms, change) -> None:
    """Writes what `change` makes of the array that these transforms of the ref see."""
    values = [state.read(ref)]
    for transform in transforms:
        values.append(transform.read(values[-1]))
    value = change(values.pop())
    for transform in reversed(transforms):
        value = transform.write(values.pop(), value)
    state.store(ref, state.conform(ref, value))
