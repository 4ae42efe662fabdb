"""The primitive of `select_and_scatter`: each window picks an element, which takes a source.

A window folds its elements in row-major order by a predicate that says whether to keep the one that
it has. Windows that pick by the same place in them pick different elements, so sources are taken
place by place, for all windows at once; elements that several windows pick take their sources in
the order of these places. Padding is never picked. Cost: the window's size times the result's.
"""

from __future__ import annotations

import math

import numpy as np

from ferrax._src import core
from ferrax._src.composed.window_primitives import spanned_axes, windows_of
from ferrax._src.core.jaxpr import ClosedJaxpr
from ferrax._src.core.primitives import coupled_axes
from ferrax._src.lax import elementwise
from ferrax._src.lax.shape import _broadcast_to, pad, reshape
from ferrax._src.lax.slicing import slice
from ferrax._src.transforms.batching import vmap
from ferrax._src.transforms.composites import composite
from ferrax._src.transforms.jit import jit


def _vectorized(jaxpr, consts):
    """The function that a jaxpr of scalars is, on two vectors."""
    closed = jaxpr if isinstance(jaxpr, ClosedJaxpr) else ClosedJaxpr(jaxpr, consts)
    return jit(vmap(lambda a, b: closed._run([a, b])[0]))


def _slices(windows, place):
    """Starts, limits and strides of the elements that all windows have at a place of theirs."""
    for p, d, n, s in zip(place, windows.steps, windows.out, windows.strides):
        yield p * d, p * d + (n - 1) * s + 1, s


def _select_and_scatter(
    operand, source, init_value, *, select_jaxpr, select_consts, scatter_jaxpr, scatter_consts,
    **params,
):
    windows = windows_of(operand, params)
    if tuple(source.shape) != windows.out:
        raise TypeError(
            f"select_and_scatter: the source needs an element for each window, shape {windows.out}, "
            f"got {tuple(source.shape)}"
        )
    start = elementwise._convert_element_type(init_value, operand.dtype)
    total = math.prod(windows.out)
    if not total:
        return _broadcast_to(start, operand.shape)
    picked = _picked(windows, operand, _vectorized(select_jaxpr, select_consts), total)
    scatter = _vectorized(scatter_jaxpr, scatter_consts)
    size = math.prod(windows.padded)
    result = _broadcast_to(start, (size,))
    nothing, unpicked = core.as_array(np.zeros((), source.dtype)), core.as_array(np.False_)
    for number, place in enumerate(np.ndindex(*windows.sizes)):
        config = [
            (first, n - last, stride - 1)
            for n, (first, last, stride) in zip(windows.padded, _slices(windows, place))
        ]
        here = reshape(elementwise.eq(picked, np.int32(number)), windows.out)
        here = reshape(pad(here, unpicked, config), (size,))
        sources = reshape(pad(source, nothing, config), (size,))
        result = elementwise.select(here, scatter(result, sources), result)
    config = [(-low, -high, 0) for low, high in windows.pads]
    return pad(reshape(result, windows.padded), start, config)


def _picked(windows, operand, select, total):
    """For each window the number of the place of its element, -1 if it has none."""
    present = windows.present()
    padded = windows.pad(operand, 0)
    best = core.as_array(np.zeros(total, operand.dtype))
    picked = core.as_array(np.full(total, -1, np.int32))
    for number, place in enumerate(np.ndindex(*windows.sizes)):
        starts, limits, strides = zip(*_slices(windows, place)) or ((),) * 3
        there = present[tuple(np.s_[a:b:c] for a, b, c in zip(starts, limits, strides))]
        there = core.as_array(there.reshape(total))
        element = reshape(slice(padded, starts, limits, strides), (total,))
        keep = elementwise.bitwise_and(select(best, element), elementwise.ge(picked, np.int32(0)))
        keep = elementwise.bitwise_or(keep, elementwise.bitwise_not(there))
        best = elementwise.select(keep, best, element)
        picked = elementwise.select(keep, picked, core.as_array(np.full(total, number, np.int32)))
    return picked


select_and_scatter_p = composite("select_and_scatter", _select_and_scatter)
coupled_axes[select_and_scatter_p] = spanned_axes
