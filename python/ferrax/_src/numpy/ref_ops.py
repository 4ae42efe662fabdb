"""Reads and writes of mutable arrays: `ferrax.ref.get`, `set`, `swap`, `addupdate`.

A write checks shape and dtype, computes the updated copy of the value as ``x.at[index]`` does, and
makes the ref hold it. `install` gives `Ref` the methods that index.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from ferrax import _core
from ferrax._src import core, state
from ferrax._src.base import dtypes
from ferrax._src.core.typing import ArrayLike
from ferrax._src.lax.creation import full
from ferrax._src.lax.elementwise import _convert_element_type
from ferrax._src.numpy.index_parse import parse
from ferrax._src.numpy.indexing import _settle_booleans, concrete_masks, structure_of
from ferrax._src.state import Ref, at_user_line, check_ref, new_ref

__all__ = ["addupdate", "empty_ref", "get", "set", "swap"]


def empty_ref(ty: Any, memory_space: Any = None) -> Ref:
    """A mutable array of the shape and dtype of `ty`, whose elements are to be written first.

    Args: ty: what has a shape and a dtype; memory_space: None.

    Example:
        >>> ref = ferrax.ref.empty_ref(ferrax.ShapeDtypeStruct((2,), jnp.float32))
        >>> ref[...] = jnp.ones(2)
    """
    shape, dtype, *_ = core.abstract_type(ty)
    return new_ref(full(shape, 0, dtype), memory_space=memory_space)


def get(ref: Ref, idx: Any = None) -> Any:
    """``ref[idx]``: the elements that an index names, as an array.

    Args:
      ref: a mutable array.
      idx: integers, slices with positive steps, ``...``, integer arrays and masks, or a tuple of
        them; None is all of it.

    Errors: ValueError for a static index out of bounds, more indices than dimensions, and what is
    no ref.

    Example:
        >>> ferrax.ref.get(ferrax.new_ref(jnp.arange(5)), slice(1, 3))
        Array([1, 2], dtype=int32)
    """
    index = _index(check_ref(ref, "ref_get"), idx)
    value = state.read(ref)
    return _core.alias(value) if index == () else value[index]


def set(ref: Ref, idx: Any, value: Any) -> None:
    """``ref[idx] = value``. The value has the shape and dtype of the elements.

    Args as `get`; ``value`` is an array or a number. Numbers take the ref's dtype if both are
    integers or both floating.

    Errors: ValueError for another shape or dtype, and as `get`.

    Example:
        >>> ref = ferrax.new_ref(jnp.zeros(3))
        >>> ferrax.ref.set(ref, 1, 10.0)
        >>> ref
        Ref([ 0., 10.,  0.], dtype=float32)
    """
    _set(check_ref(ref, "ref_set"), _index(ref, idx), value)


def swap(ref: Ref, idx: Any, value: Any) -> Any:
    """Writes and returns what was there before: ``ref[idx], previous = value, ref[idx]``.

    Args and errors as `set`.

    Example:
        >>> ref = ferrax.new_ref(jnp.arange(3))
        >>> ferrax.ref.swap(ref, 1, 10)
        Array(1, dtype=int32)
    """
    previous = get(check_ref(ref, "ref_swap"), idx)
    _set(ref, _index(ref, idx), value)
    return previous


def addupdate(ref: Ref, idx: Any, x: ArrayLike) -> None:
    """``ref[idx] += x``; what an index array names several times is added as often.

    Args and errors as `set`.

    Example:
        >>> ref = ferrax.new_ref(jnp.arange(3))
        >>> ferrax.ref.addupdate(ref, 2, 10)
        >>> ref
        Ref([ 0,  1, 12], dtype=int32)
    """
    index = _index(check_ref(ref, "ref_addupdate"), idx)
    value = _value(ref, index, x, "addupdate")
    old = state.read(ref)
    if index == ():
        state.write(ref, state.conform(ref, old + value))
    else:
        state.write(ref, old.at[index].add(value))


def _set(ref, index, value):
    value = _value(ref, index, value, "swap")
    if index == ():
        # Reading first makes the ref an input of what is traced: it may be carried by a loop.
        state.read(ref)
        state.write(ref, state.conform(ref, _core.alias(value)))
    else:
        state.write(ref, state.read(ref).at[index].set(value))


def _index(ref, idx) -> tuple:
    """The index as a tuple, empty for all elements."""
    if idx is None or idx is Ellipsis:
        return ()
    idx = tuple(_item(item) for item in idx) if isinstance(idx, tuple) else (_item(idx),)
    items = [item for item in idx if item is not Ellipsis]
    if not items:
        return ()
    given = sum(item.ndim if _is_mask(item) else item is not None for item in items)
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
    return item


def _is_mask(item) -> bool:
    return isinstance(item, (core.Array, np.ndarray)) and item.dtype == np.bool_


def _check_items(ref, idx, given):
    """Errors: ValueError for static integers out of bounds and for steps below 1."""
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
        elif isinstance(item, (int, np.integer)) and not isinstance(item, bool):
            size = ref.shape[axis]
            if not -size <= operator.index(item) < size:
                raise ValueError(
                    f"index {item} is out of bounds for axis {axis} of size {size} of a mutable "
                    f"array of shape {ref.shape}.{at_user_line()}"
                )
        axis += item.ndim if _is_mask(item) else 1


def _value(ref, index, value, name):
    """What is written, as an array of the right shape and dtype. Errors: ValueError for others."""
    if isinstance(value, Ref):
        raise ValueError(
            f"{name}: a Ref holds numbers, got another Ref. Did you forget to read it, with `[...]`?"
            f"{at_user_line()}"
        )
    value = core.as_array(value, name)
    if value.dtype != ref.dtype and _casts(ref.dtype, value):
        value = _convert_element_type(value, ref.dtype, weak_type=False)
    expected = _shape(ref, index)
    if expected is not None and value.shape != expected:
        raise ValueError(
            f"Invalid shape for `{name}` of a mutable array of shape {ref.shape}: the index names "
            f"elements of shape {expected}, but the value has shape {value.shape}. Broadcast it "
            f"first, for instance with jnp.broadcast_to(value, {expected}).{at_user_line()}"
        )
    if value.dtype != ref.dtype:
        raise ValueError(
            f"Invalid dtype for `{name}` of a mutable array: its dtype is {ref.dtype}, but the "
            f"value's is {value.dtype}. Convert it: jnp.asarray(value, {str(ref.dtype)!r})."
            f"{at_user_line()}"
        )
    return value


def _casts(dtype, value) -> bool:
    """Whether a value of another dtype is converted: weak floats to floats, integers to integers."""

    def both(kind):
        return dtypes.issubdtype(dtype, kind) and dtypes.issubdtype(value.dtype, kind)

    return (value.weak_type and both(np.floating)) or both(np.integer)


def _shape(ref, index):
    """The shape of the elements that an index names; None if a traced mask decides it."""
    if index == ():
        return ref.shape
    entries = parse(ref.shape, index)
    if any(_is_traced_mask(entry) for entry in entries):
        return None
    entries, empty = _settle_booleans(concrete_masks(entries))
    shape = list(structure_of(ref.shape, entries, True)[0].result_shape)
    if empty is not None:
        shape[empty] = 0
    return tuple(shape)


def _is_traced_mask(entry) -> bool:
    return type(entry).__name__ == "Mask" and not entry.concrete


def install(cls) -> None:
    """Sets the methods of `Ref` that index."""

    def addupdate_method(self, value: Any, idx: Any = ()) -> None:
        """`ref[idx] += value`; what an index array names several times is added as often."""
        addupdate(self, idx, value)

    addupdate_method.__name__ = "addupdate"
    addupdate_method.__qualname__ = f"{cls.__qualname__}.addupdate"
    cls.__getitem__ = get
    cls.__setitem__ = set
    cls.addupdate = addupdate_method
