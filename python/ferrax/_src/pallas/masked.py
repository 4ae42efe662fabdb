"""Loads, stores and atomic updates of elements that a mask names.

Elements that a mask leaves out are neither read nor written, so that their places may be out of
bounds. Atomic updates happen one after another in the order of the elements; each gives what was there
before it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from ferrax._src import core
from ferrax._src.lax import elementwise as lax
from ferrax._src.lax.control_flow.scan import scan
from ferrax._src.lax.elementwise import _convert_element_type
from ferrax._src.lax.slicing import dynamic_update_slice
from ferrax._src.numpy.conditional import where
from ferrax._src.numpy.shape import broadcast_to
from ferrax._src.state import at_user_line


def _value(ref, mask, name):
    if mask is None:
        return ref[...], None
    value = ref[...]
    mask = core.as_array(mask, name)
    if mask.dtype != np.bool_:
        raise ValueError(f"{name}: a mask is of bools, got {mask.dtype}.{at_user_line()}")
    return value, broadcast_to(mask, value.shape)


def load(
    ref: Any, *, mask: Any = None, other: Any = None, cache_modifier: str | None = None,
    eviction_policy: str | None = None, volatile: bool = False,
) -> Any:
    """The elements of a ref, or of a view, where a mask holds.

    Args:
      ref: a ref, or `ref.at[index]`.
      mask: bools, which broadcast to the shape; None: all.
      other: what the others are; None: what is there.
      cache_modifier, eviction_policy, volatile: hints for other machines.

    >>> def kernel(x_ref, o_ref):
    ...     i = jnp.arange(4)
    ...     o_ref[...] = plgpu.load(x_ref.at[i], mask=i < 3, other=0.0)
    """
    value, mask = _value(ref, mask, "load")
    if mask is None or other is None:
        return value
    return where(mask, value, _convert_element_type(core.as_array(other, "load"), value.dtype))


def store(ref: Any, val: Any, *, mask: Any = None, eviction_policy: str | None = None) -> None:
    """Writes elements of a ref, or of a view, where a mask holds.

    Args: ref: a ref, or `ref.at[index]`; val: an array of its shape and dtype; mask: bools, which broadcast to the
    shape; None: all; eviction_policy: a hint for other machines.

    >>> ref = ferrax.new_ref(jnp.zeros(4))
    >>> pltpu.store(ref.at[1:], jnp.ones(3), mask=jnp.array([True, False, True]))
    >>> ref
    Ref([0., 1., 0., 1.], dtype=float32)
    """
    before, mask = _value(ref, mask, "store")
    ref[...] = val if mask is None else where(mask, val, before)


def _update(name: str, combine: Callable[[Any, Any], Any], together: str | None = None) -> Callable[..., Any]:
    """An atomic update. `together` is the update of an array by index that does the same for all
    elements at once, where there is one; it leaves the loop to whoever uses what was there before."""

    def update(x_ref_or_view: Any, idx: Any, val: Any, *, mask: Any = None) -> Any:
        kind = f"atomic_{name}"
        ref, index = x_ref_or_view, idx if isinstance(idx, tuple) else (idx,)
        start = ref[...]
        places, values, flags = _elements(ref, start, index, (val,), mask, kind)
        after, before = _one_by_one(start, places, values, flags, lambda old, given: combine(old, given))
        if together is not None:
            flat = start.reshape(start.size)
            # A place out of bounds is dropped.
            kept = places if flags is None else where(flags, places, np.int32(start.size))
            after = getattr(flat.at[kept], together)(values[0]).reshape(start.shape)
        ref[...] = after
        return before

    update.__name__ = update.__qualname__ = f"atomic_{name}"
    update.__doc__ = f"""Combines elements of a ref with `val` by `{name}`, one after another.

    Args: x_ref_or_view: a ref or a view of one; idx: the index of the elements; val: an array of their shape and the
    ref's dtype, or a scalar; mask: bools of that shape: the others stay; None: all.

    Returns what was there before each update.

    >>> def kernel(x_ref, o_ref):
    ...     plgpu.atomic_{name}(o_ref, (jnp.zeros(4, int),), x_ref[...])
    """
    return update


def _elements(ref, start, index, values, mask, name):
    """Where the elements that an index names are among all, the values for them, and which are
    meant; None: all. Flat, but for the shape of `places`, which is that of the elements."""
    number = core.as_array(np.arange(start.size, dtype=np.int32), name).reshape(start.shape)
    places = number[index]
    values = [
        broadcast_to(
            _convert_element_type(core.as_array(value, name), ref.dtype, weak_type=False), places.shape
        )
        for value in values
    ]
    flags = None if mask is None else broadcast_to(core.as_array(mask, name), places.shape)
    return places, values, flags


def _one_by_one(start, places, values, flags, change):
    """`start` with each element changed in turn, and what was at each before that."""
    flat = start.reshape(start.size)

    def body(now, step):
        place, given, flag = step
        old = now[place]
        new = _convert_element_type(change(old, *given), old.dtype, weak_type=False)
        new = new if flag is None else where(flag, new, old)
        return dynamic_update_slice(now, new.reshape(1), (place,)), old

    steps = (places.reshape(places.size), [value.reshape(places.size) for value in values])
    after, before = scan(body, flat, (*steps, None if flags is None else flags.reshape(places.size)))
    return after.reshape(start.shape), before.reshape(places.shape)


atomic_add = _update("add", operator.add, "add")
atomic_max = _update("max", lax.max, "max")
atomic_min = _update("min", lax.min, "min")
atomic_and = _update("and", operator.and_)
atomic_or = _update("or", operator.or_)
atomic_xor = _update("xor", operator.xor)
atomic_xchg = _update("xchg", lambda old, new: new)


def atomic_cas(ref: Any, cmp: Any, val: Any) -> Any:
    """Writes `val` to a ref of one element if it holds `cmp`; returns what was there before.

    Args: ref: a 0-d ref or view; cmp, val: scalars of its dtype.

    >>> ref = ferrax.new_ref(jnp.array([3, 4]))
    >>> plgpu.atomic_cas(ref.at[0], 3, 7)
    Array(3, dtype=int32)
    >>> ref
    Ref([7, 4], dtype=int32)
    """
    old = ref[...]
    cmp, val = (
        _convert_element_type(core.as_array(x, "atomic_cas"), old.dtype, weak_type=False) for x in (cmp, val)
    )
    ref[...] = where(old == cmp, val, old)
    return old
