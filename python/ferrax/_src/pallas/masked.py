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
    """
    before, mask = _value(ref, mask, "store")
    ref[...] = val if mask is None else where(mask, val, before)


def _update(name: str, combine: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def update(x_ref_or_view, idx, val, *, mask=None):
        def write(view, given):
            old = view[...]
            view[...] = _convert_element_type(combine(old, given), old.dtype)
            return old

        return _one_by_one(x_ref_or_view, idx, (val,), mask, write, f"atomic_{name}")

    update.__name__ = update.__qualname__ = f"atomic_{name}"
    update.__doc__ = f"""Combines elements of a ref with `val` by `{name}`, one after another.

    Args: x_ref_or_view: a ref or a view of one; idx: the index of the elements; val: an array of their shape and the
    ref's dtype, or a scalar; mask: bools of that shape: the others stay; None: all.

    Returns what was there before each update.

    >>> def kernel(x_ref, o_ref):
    ...     plgpu.atomic_{name}(o_ref, (jnp.zeros(4, int),), x_ref[...])
    """
    return update


def _one_by_one(ref, idx, values, mask, write, name):
    """`write(view, *values)` for one element after another: what it returned for each."""
    index = idx if isinstance(idx, tuple) else (idx,)
    view = ref.at[index] if index else ref
    shape = view.shape
    dtype = ref.dtype
    values = [
        broadcast_to(_convert_element_type(core.as_array(value, name), dtype, weak_type=False), shape)
        for value in values
    ]
    held = None if mask is None else broadcast_to(core.as_array(mask, name), shape)
    if not shape:
        if held is None:
            return write(view, *values)
        old = view[...]
        before = write(view, *values)
        view[...] = where(held, view[...], old)
        return before
    count = int(np.prod(shape))
    flags = None if held is None else held.reshape(count)

    def body(_, step):
        place, given, flag = step
        at = []
        for size in reversed(shape):
            at.append(place % np.int32(size))
            place = place // np.int32(size)
        element = view.at[tuple(at[::-1])]
        old = element[...]
        before = write(element, *given)
        if flag is not None:
            element[...] = where(flag, element[...], old)
        return (), before

    steps = core.as_array(np.arange(count, dtype=np.int32), name)
    _, found = scan(body, (), (steps, [value.reshape(count) for value in values], flags))
    return found.reshape(shape)


atomic_add = _update("add", operator.add)
atomic_max = _update("max", lax.max)
atomic_min = _update("min", lax.min)
atomic_and = _update("and", operator.and_)
atomic_or = _update("or", operator.or_)
atomic_xor = _update("xor", operator.xor)
atomic_xchg = _update("xchg", lambda old, new: new)


def atomic_cas(ref: Any, cmp: Any, val: Any) -> Any:
    """Writes `val` to a ref of one element if it holds `cmp`; returns what was there before.

    Args: ref: a 0-d ref or view; cmp, val: scalars of its dtype.
    """

    def write(view, cmp, val):
        old = view[...]
        view[...] = where(old == cmp, val, old)
        return old

    return _one_by_one(ref, (), (cmp, val), None, write, "atomic_cas")
