"""Reductions by any function of two elements: one element after the other, from the left.

In: a function of two arrays (`combine`), which is mapped over all other axes at once; an array. Out:
the array of NumPy's `ufunc` method of the same name. Cost: one call of the function an element of the
axis, in a loop of the program.
"""

from __future__ import annotations

import numpy as np

from ferrax._src.core import as_array
from ferrax._src.lax import api as lax
from ferrax._src.lax.control_flow.scan import scan
from ferrax._src.lax.control_flow.while_loop import fori_loop
from ferrax._src.numpy.array_creation import asarray
from ferrax._src.numpy.shape import moveaxis, reshape
from ferrax._src.numpy.util import (
    broadcast_to,
    convert,
    normalize_axes,
    normalize_axis,
    user_dtype,
    where as select_where,
)
from ferrax._src.tracing import staging
from ferrax._src.transforms.batching import vmap


def _common_dtype(combine, x, dtype, method):
    """The dtype in which elements are combined: the given one, or that of the function's result."""
    if dtype is not None:
        return user_dtype(dtype, method)
    one = staging.eval_shape(
        lambda a: a.reshape(-1)[0] if a.size else lax.full_like(a, 0, shape=()), x
    )
    return staging.eval_shape(combine, one, one).dtype


def reduced(ufunc, x, axis, dtype, keepdims, initial, where):
    """`ufunc.reduce`: all elements along the axes combined, beginning with `initial`, the function's
    identity, or the first element. ValueError where there is nothing to begin with."""
    axes = normalize_axes(axis, x.ndim)
    work = _common_dtype(ufunc, x, dtype, "reduce")
    kept = [size for d, size in enumerate(x.shape) if d not in axes]
    x = moveaxis(convert(x, work), axes, tuple(range(len(axes))))
    elements = (
        reshape(x, (-1, *kept))
        if x.size
        else reshape(x, (int(np.prod(x.shape[: len(axes)])), *kept))
    )
    start = ufunc.identity if initial is None else initial
    if start is None and not elements.shape[0]:
        raise ValueError(
            f"zero-size array to reduction operation {ufunc.__name__} which has no identity: pass initial="
        )
    if where is None:
        holds = None
    else:
        holds = broadcast_to(
            asarray(where), np.broadcast_shapes(np.shape(where), _original(x.shape, axes))
        )
        holds = reshape(moveaxis(holds, axes, tuple(range(len(axes)))), elements.shape)
    if start is None:
        carry, elements = elements[0], elements[1:]
    else:
        carry = broadcast_to(convert(start, work), tuple(kept))

    def step(carry, given):
        element, hold = given
        combined = convert(ufunc(carry, element), work)
        return (combined if hold is None else select_where(hold, combined, carry)), None

    out, _ = scan(step, carry, (elements, holds))
    return lax.expand_dims(out, axes) if keepdims else out


def _original(shape, axes):
    """The shape before `axes` were moved to the front."""
    front, rest = iter(shape[: len(axes)]), iter(shape[len(axes) :])
    return tuple([next(front) if d in axes else next(rest) for d in range(len(shape))])


def accumulated(ufunc, x, axis, dtype):
    """`ufunc.accumulate`: the results after each element along an axis."""
    axis = normalize_axis(axis, x.ndim)
    work = _common_dtype(ufunc, x, dtype, "accumulate")
    x = moveaxis(convert(x, work), axis, 0)
    if not x.shape[0]:
        return moveaxis(x, 0, axis)

    def step(carry, element):
        combined = convert(ufunc(carry, element), work)
        return combined, combined

    _, rest = scan(step, x[0], x[1:])
    return moveaxis(lax.concatenate([x[:1], rest], 0), 0, axis)


def applied_at(ufunc, x, indices, values):
    """`ufunc.at`: the elements at the indices, in order, replaced by the function of them and the
    values."""
    places = reshape(lax.iota(np.int32, x.size), x.shape)[indices]
    values = broadcast_to(as_array(values), places.shape)

    def step(flat, given):
        place, value = given
        return flat.at[place].set(convert(ufunc(flat[place], value), x.dtype)), None

    flat, _ = scan(step, reshape(x, (x.size,)), (reshape(places, (-1,)), reshape(values, (-1,))))
    return reshape(flat, x.shape)


def reduced_between(ufunc, x, starts, axis):
    """`ufunc.reduceat` at traced indices: element i combines those from `starts[i]` to before
    `starts[i + 1]`, or is that at `starts[i]` where there are none."""
    starts = asarray(starts)
    if starts.ndim != 1:
        raise ValueError(f"reduceat: indices is a vector, got shape {starts.shape}")
    work = _common_dtype(ufunc, x, None, "reduceat")
    x = moveaxis(convert(x, work), axis, 0)
    if not starts.shape[0]:
        return moveaxis(x[:0], 0, axis)
    stops = lax.concatenate([starts[1:], lax.full((1,), x.shape[0], starts.dtype)], 0)

    def between(start, stop):
        return fori_loop(
            start + 1, stop, lambda i, total: convert(ufunc(total, x[i]), work), x[start]
        )

    return moveaxis(vmap(between)(starts, stops), 0, axis)
