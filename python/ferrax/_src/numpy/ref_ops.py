"""Reads and writes of mutable arrays: `ferrax.ref.get`, `set`, `swap`, `addupdate`.

A write checks shape and dtype, computes the updated copy of the value as ``x.at[index]`` does, and
makes the ref hold it. Traced integers and starts of slices are moved into bounds; index arrays are
not, and what they write out of bounds is dropped. `install` gives `Ref` and its views the methods
that index.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, cast

import numpy as np

from ferrax import _core
from ferrax._src import core, state
from ferrax._src.base import dtypes
from ferrax._src.core.typing import ArrayLike
from ferrax._src.lax.creation import full
from ferrax._src.lax.elementwise import _convert_element_type
from ferrax._src.numpy import ref_views as views
from ferrax._src.numpy.index_parse import Mask, parse
from ferrax._src.numpy.indexing import _settle_booleans, concrete_masks, structure_of
from ferrax._src.numpy.ref_index import checked_index
from ferrax._src.numpy.slices import Slice
from ferrax._src.state import Ref, TransformedRef, at_user_line, check_ref, freeze, new_ref
from ferrax._src.tree import opaque, tree_util

__all__ = ["addupdate", "empty_ref", "get", "run_state", "set", "swap"]


def empty_ref(ty: Any, memory_space: Any = None, pin: bool = False) -> Ref:
    """A mutable array of the shape and dtype of `ty`, whose elements are to be written first.

    Args: ty: what has a shape and a dtype; memory_space, pin: None and False, as for `new_ref`.

    Example:
        >>> ref = ferrax.ref.empty_ref(ferrax.ShapeDtypeStruct((2,), jnp.float32))
        >>> ref[...] = jnp.ones(2)
    """
    if getattr(ty, "is_high", False):
        return new_ref(ty.raise_val(*[full(x.shape, 0, x.dtype) for x in ty.lo_ty()]))
    shape, dtype, *_ = core.abstract_type(ty)
    return new_ref(full(shape, 0, dtype), memory_space=memory_space, pin=pin)


def get(ref: Ref | TransformedRef, idx: Any = None) -> Any:
    """``ref[idx]``: the elements that an index names, as an array.

    Args:
      ref: a mutable array, or a view of one.
      idx: integers, slices with positive steps, `ds`, ``...``, integer arrays and masks, or a tuple
        of them; None is all of it.

    Errors: ValueError for a static index out of bounds, more indices than dimensions, and what is
    no ref.

    Example:
        >>> ferrax.ref.get(ferrax.new_ref(jnp.arange(5)), slice(1, 3))
        Array([1, 2], dtype=int32)
    """
    index = checked_index(_checked(ref, "ref_get"), idx)
    view = _view(ref, index)
    if view is not None:
        return views.read(view)
    value = views.read(ref) if type(ref) is TransformedRef else state.read(ref)
    return state.copied(value) if index == () else value[index]


def set(ref: Ref | TransformedRef, idx: Any, value: Any) -> None:
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
    _set(_checked(ref, "ref_set"), checked_index(ref, idx), value)


def swap(ref: Ref | TransformedRef, idx: Any, value: Any) -> Any:
    """Writes and returns what was there before: ``ref[idx], previous = value, ref[idx]``.

    Args and errors as `set`.

    Example:
        >>> ref = ferrax.new_ref(jnp.arange(3))
        >>> ferrax.ref.swap(ref, 1, 10)
        Array(1, dtype=int32)
    """
    previous = get(_checked(ref, "ref_swap"), idx)
    _set(ref, checked_index(ref, idx), value)
    return previous


def addupdate(ref: Ref | TransformedRef, idx: Any, x: ArrayLike) -> None:
    """``ref[idx] += x``; what an index array names several times is added as often.

    Args and errors as `set`.

    Example:
        >>> ref = ferrax.new_ref(jnp.arange(3))
        >>> ferrax.ref.addupdate(ref, 2, 10)
        >>> ref
        Ref([ 0,  1, 12], dtype=int32)
    """
    index = checked_index(_checked(ref, "ref_addupdate"), idx)
    value = _value(ref, index, x, "addupdate")
    view = _view(ref, index)
    if view is not None:
        views.add(view, value)
        return
    old = state.read(ref)
    if index == ():
        state.store(ref, state.conform(ref, old + value))
    else:
        state.store(ref, old.at[index].add(value))


def run_state(f: Callable[..., None]) -> Callable[[Any], Any]:
    """A function of values, made from one that works on mutable arrays.

    Args: f: a function of one pytree of mutable arrays, which returns None.

    Returns: a function of a pytree of arrays and numbers, which makes a ref of each leaf, calls `f`
    and gives what the refs hold then. It can be differentiated, batched and compiled.

    Errors: ValueError if `f` returns something.

    Example:
        >>> def accumulate(refs):
        ...     total, x = refs
        ...     total[...] += x[...] ** 2
        >>> pl.run_state(accumulate)((1.0, 3.0))[0]
        Array(10., dtype=float32, weak_type=True)
    """

    @functools.wraps(f)
    def wrapped(init):
        leaves, tree = opaque.flatten(init)
        refs = [new_ref(leaf) for leaf in leaves]
        result: Any = cast(Any, f)(tree.unflatten(refs))
        if tree_util.tree_leaves(result):
            raise ValueError(
                "run_state: the function works on the refs that it gets and returns None, got "
                f"{result!r}.{at_user_line()}"
            )
        return tree.unflatten([freeze(ref) for ref in refs])

    return wrapped


def _set(ref, index, value):
    value = _value(ref, index, value, "swap")
    view = _view(ref, index)
    if view is not None:
        views.write(view, value)
    elif index == ():
        # Reading first makes the ref an input of what is traced: it may be carried by a loop.
        state.read(ref)
        state.store(ref, state.conform(ref, _core.alias(value)))
    else:
        state.store(ref, state.read(ref).at[index].set(value))


def _checked(ref, name):
    return ref if type(ref) is TransformedRef else check_ref(ref, name)


def _view(ref, index) -> TransformedRef | None:
    """What is read and written by way of a view: views, and what traced integers and starts of
    slices name. None for indices with new axes, which are of what was read."""
    if type(ref) is TransformedRef:
        if index == ():
            return ref
    elif not any(_moves(item) for item in index):
        return None
    if any(item is None or isinstance(item, bool) or _is_traced_mask(item) for item in index):
        return None
    return views.view_at(ref, index)


def _moves(item) -> bool:
    return type(item) is Slice or (isinstance(item, core.Array) and not item.ndim)


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
    return type(entry) is Mask and not entry.concrete


class _Methods:
    """What `Ref` and its views have in common."""

    __getitem__ = get
    __setitem__ = set

    @property
    def at(self) -> Any:
        """Views: `ref.at[index]` is one of these elements."""
        return views.At(self)

    @property
    def T(self) -> TransformedRef:
        """The elements with their axes in reverse order, as a view."""
        return views.permuted(self)

    def get(self: Any, idx: Any = ()) -> Any:
        """`ref[idx]`."""
        return get(self, idx)

    def swap(self: Any, value: Any, idx: Any = ()) -> Any:
        """`ref[idx] = value`, and what was there before."""
        return swap(self, idx, value)

    def addupdate(self: Any, value: Any, idx: Any = ()) -> None:
        """`ref[idx] += value`; what an index array names several times is added as often."""
        addupdate(self, idx, value)

    def reshape(self, *shape: Any) -> TransformedRef:
        """The elements in another shape, as a view; one size may be -1."""
        return views.reshaped(self, *shape)

    def bitcast(self, dtype: Any) -> TransformedRef:
        """The bits as another dtype, as a view. One of another width changes the axis before the
        last."""
        return views.bitcast(self, dtype)

    def transpose(self, *axes: Any) -> TransformedRef:
        """The elements with their axes in another order, as a view; without one, reversed."""
        return views.permuted(self, *axes)

    def set(self: Any, value: Any, idx: Any = ()) -> None:
        """`ref[idx] = value`."""
        set(self, idx, value)


def install(cls) -> None:
    """Gives `Ref` or its views their methods that index and make views."""
    for name, member in vars(_Methods).items():
        if name in _SPECIAL or not name.startswith("_"):
            setattr(cls, name, member)


_SPECIAL = ("__getitem__", "__setitem__")
