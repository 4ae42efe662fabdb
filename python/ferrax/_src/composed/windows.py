"""``reduce_window``: a binary function folded over each window of an array.

A window's elements are those of the operand that it meets: padding and the holes of a dilated
operand count as absent. They are folded in row-major order, from the initial value on.

Sums, maxima and minima are separable and associative: axis by axis, and along an axis in log(size)
steps, where the windows of length 2k are made of two of length k. Any other function is applied
once for each place in the window, to all windows at once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ferrax._src import core
from ferrax._src.base import dtypes
from ferrax._src.composed.folds import (
    MONOIDS,
    identity_of,
    monoid_of,
    vectorized,
)
from ferrax._src.core.op_types import GatherDimensionNumbers
from ferrax._src.lax import elementwise
from ferrax._src.lax.arguments import int_tuple
from ferrax._src.lax.control_flow.scan import scan
from ferrax._src.lax.convolution_shapes import padtype_to_pads
from ferrax._src.lax.creation import full_like, iota
from ferrax._src.lax.gather_scatter import gather
from ferrax._src.lax.shape import _broadcast_to, broadcast_in_dim, expand_dims, pad, reshape
from ferrax._src.lax.slicing import dynamic_slice, slice
from ferrax._src.transforms.jit import jit
from ferrax._src.tree import tree_util

# Windows with fewer places than this are unrolled; larger ones are walked by a loop.
UNROLLED = 64
# Along an axis, windows up to these lengths are combined place by place: those that overlap, and
# those that do not, for which each element is read once.
DIRECT, DIRECT_BLOCKS = 4, 16


class Windows:
    """Where the windows lie: checked and complete parameters, and the shapes they make.

    All have one entry for each axis: ``sizes``, ``strides``, ``pads`` (pairs), ``base`` and
    ``steps``, the dilations of the operand and of the window. Equal ones are equal static values.
    """

    def __init__(self, shape, sizes, strides, padding, base, steps):
        self.shape = shape = tuple(shape)
        self.sizes = _positive("window_dimensions", sizes)
        rank = len(self.sizes)
        ones = (1,) * rank
        self.strides = _positive("window_strides", ones if strides is None else strides)
        self.base = _dilations("base_dilation", ones if base is None else base)
        self.steps = _dilations("window_dilation", ones if steps is None else steps)
        if rank != len(shape):
            raise TypeError(
                "reduce_window: window_dimensions needs a size for each axis of the operand, got "
                f"{self.sizes} for shape {shape}."
            )
        for name, values in (
            ("window_strides", self.strides),
            ("base_dilation", self.base),
            ("window_dilation", self.steps),
        ):
            if len(values) != rank:
                raise TypeError(
                    f"reduce_window got inconsistent {name} and window_dimensions: got {name} "
                    f"{values} and window_dimensions {self.sizes}."
                )
        self.spans = tuple((w - 1) * d + 1 for w, d in zip(self.sizes, self.steps))
        dilated = [(n - 1) * d + 1 if n else 0 for n, d in zip(shape, self.base)]
        if isinstance(padding, str):
            padding = padtype_to_pads(shape, self.spans, self.strides, padding)
        try:
            self.pads = tuple(int_tuple(pair) for pair in padding)
            fits = len(self.pads) == rank and all(len(pair) == 2 for pair in self.pads)
        except TypeError:
            fits = False
        if not fits:
            raise ValueError(
                "reduce_window: padding must be 'VALID', 'SAME', 'SAME_LOWER' or a pair of "
                f"integers (low, high) for each of {rank} axes, got {padding!r}."
            )
        padded = [lo + n + hi for n, (lo, hi) in zip(dilated, self.pads)]
        self.overcut = any(n < 0 for n in padded)
        self.padded = tuple(max(n, 0) for n in padded)
        self.out = tuple(
            max((n - span) // stride + 1, 0)
            for n, span, stride in zip(padded, self.spans, self.strides)
        )

    def _key(self):
        return self.shape, self.sizes, self.strides, self.pads, self.base, self.steps

    def __eq__(self, other):
        return isinstance(other, Windows) and self._key() == other._key()

    def __hash__(self):
        return hash(self._key())

    def pad(self, x, value):
        """The operand with ``value`` where it is absent."""
        if self.overcut:
            return _broadcast_to(elementwise._convert_element_type(value, x.dtype), self.padded)
        config = [(lo, hi, d - 1) for d, (lo, hi) in zip(self.base, self.pads)]
        if all(entry == (0, 0, 0) for entry in config):
            return x
        return pad(x, elementwise._convert_element_type(value, x.dtype), config)

    def axes(self):
        return zip(self.shape, self.base, self.pads)

    def present(self) -> np.ndarray:
        """For each place of the padded operand whether an element of the operand is there."""
        result = np.ones(self.padded, bool)
        for axis, (n, d, (lo, _)) in enumerate(self.axes()):
            place = np.arange(self.padded[axis]) - lo
            there = (place >= 0) & (place % d == 0) & (place // d < n)
            result &= there.reshape([-1 if a == axis else 1 for a in range(len(self.out))])
        return result


def _positive(name, values) -> tuple[int, ...]:
    return _checked(f"reduce_window: {name} have to be positive", values, name)


def _dilations(name, values) -> tuple[int, ...]:
    return _checked(f"reduce_window: {name} have to be positive", values, name)


def _checked(message, values, name) -> tuple[int, ...]:
    try:
        checked = int_tuple(values)
    except TypeError:
        raise TypeError(
            f"reduce_window: {name} are integers, got "
            f"{tuple(type(value).__name__ for value in values)}."
        ) from None
    if any(value < 1 for value in checked):
        raise TypeError(f"{message}, got {checked}.")
    return checked


def reduce_window_shape_tuple(
    operand_shape: Sequence[int], window_dimensions: Sequence[int], window_strides: Sequence[int],
    padding: Any, base_dilation: Sequence[int] | None = None,
    window_dilation: Sequence[int] | None = None,
) -> tuple[int, ...]:
    """The shape of ``reduce_window``'s result.

    Args: operand_shape: the array's shape; window_dimensions, window_strides, padding,
    base_dilation, window_dilation: as for `reduce_window`.

    >>> lax.reduce_window_shape_tuple((6,), (3,), (2,), [(0, 1)])
    (3,)
    """
    windows = Windows(
        operand_shape, window_dimensions, window_strides, padding, base_dilation, window_dilation
    )
    return windows.out


def windows_reduced(jaxpr, combine, windows, flat, init):
    """The folds over windows by the function that a jaxpr of scalars is; ``combine`` is the same
    function of two lists of vectors."""
    name = monoid_of(jaxpr) if len(flat) == 1 else None
    if name is None:
        return fold(combine, windows, flat, init)
    if name == "add":
        total = window_sum(windows, flat[0])
        return [elementwise.add(_broadcast_to(init[0], windows.out), total)]
    return _fold_known(name, windows, flat, init)


@jit(static_argnums=0)
def window_sum(windows, x):
    """The sums of windows."""
    # Sums of small floats are accumulated in float32, as those of whole axes are.
    wide = np.dtype(np.float32) if dtypes.issubdtype(x.dtype, np.floating) else x.dtype
    wide = wide if x.dtype.itemsize < 4 else x.dtype
    result = windows.pad(elementwise._convert_element_type(x, wide, x.weak_type), 0)
    for axis in range(x.ndim):
        result = _along(_one(elementwise.add), MONOIDS["add"][0], False, windows, axis, [result])[0]
    return elementwise._convert_element_type(result, x.dtype, x.weak_type)


def are_apart(windows) -> bool:
    """Whether no element is in two windows, and elements of the operand and of a window have no
    gaps."""
    return all(
        d == e == 1 and stride >= size
        for d, e, stride, size in zip(windows.base, windows.steps, windows.strides, windows.sizes)
    )


@jit(static_argnums=0)
def window_sum_transposed(windows, cotangent):
    """The cotangent of an operand of whose windows, which are apart, sums were taken: each element
    has that of its window. It is repeated, not added up."""
    x = cotangent
    zero = full_like(x, 0, shape=())
    for axis, (low, _) in enumerate(windows.pads):
        size, stride, count = windows.sizes[axis], windows.strides[axis], windows.out[axis]
        if size > 1 or stride > 1:
            before, after = x.shape[:axis], x.shape[axis + 1 :]
            kept = tuple(a for a in range(x.ndim + 1) if a != axis + 1)
            x = broadcast_in_dim(x, (*before, count, size, *after), kept)
            gaps = [(0, stride - size if a == axis + 1 else 0, 0) for a in range(x.ndim)]
            x = reshape(pad(x, zero, gaps), (*before, count * stride, *after))
        missing = windows.shape[axis] + low - x.shape[axis]
        if low or missing:
            config = [(-low, missing, 0) if a == axis else (0, 0, 0) for a in range(x.ndim)]
            x = pad(x, zero, config)
    return x


def _one(combine):
    return lambda a, b: [combine(a[0], b[0])]


@jit(static_argnums=(0, 1))
def window_extreme(name, windows, x):
    """The maxima of windows, or the minima."""
    reduction, combine = MONOIDS[name]
    result = windows.pad(x, identity_of(name, x.dtype))
    for axis in range(x.ndim):
        result = _along(_one(combine), reduction, True, windows, axis, [result])[0]
    return result


def window_picked(name, windows, values, x):
    """For each window of ``x`` the element of ``values`` at the first place that is its maximum, or
    its minimum; zero where the window is empty."""
    better = elementwise.ge if name == "max" else elementwise.le

    def first(a, b):
        # A NaN wins, the first one at that.
        keep = elementwise.bitwise_or(better(a[0], b[0]), elementwise.ne(a[0], a[0]))
        return [elementwise.select(keep, left, right) for left, right in zip(a, b)]

    size = math.prod(x.shape)
    places = reshape(iota(np.int32, size), x.shape)
    # The place `size` is that of absent elements, whose tangent is zero.
    pair = [
        windows.pad(x, identity_of(name, x.dtype)),
        windows.pad(places, size),
    ]
    for axis in reversed(range(x.ndim)):
        pair = _along(first, None, True, windows, axis, pair)
    extended = pad(reshape(values, (size,)), full_like(values, 0, shape=()), [(0, 1, 0)])
    numbers = GatherDimensionNumbers((), (0,), (0,))
    return gather(extended, expand_dims(pair[1], (x.ndim,)), numbers, (1,), mode="clip")


def _along(combine, reduction, idempotent, windows, axis, arrays):
    """The windows along one axis of arrays that are padded there, combined.

    ``combine`` takes two lists of arrays. ``reduction`` reduces whole axes, or is None.
    """
    size, stride, step = windows.sizes[axis], windows.strides[axis], windows.steps[axis]
    count, span = windows.out[axis], windows.spans[axis]

    def part(xs, start, length, every=1):
        return [_part(x, axis, start, length, every) for x in xs]

    if not count:
        return part(arrays, 0, 0)
    apart = count == 1 or stride >= size
    if size <= (DIRECT_BLOCKS if apart else DIRECT):
        result = part(arrays, 0, count, stride)
        for place in range(1, size):
            result = combine(result, part(arrays, place * step, count, stride))
        return result
    if reduction is not None and (count == 1 or (apart and step == 1)):
        return [_blocks(reduction, x, axis, size, stride, step, count) for x in arrays]
    starts = (count - 1) * stride + 1
    return part(
        _doubled(combine, part, idempotent, arrays, size, step, starts, span), 0, count, stride
    )


def _doubled(combine, part, idempotent, arrays, size, step, starts, span):
    """Windows of `size` places at each of the first `starts` positions."""
    power, length = arrays, 1
    rest, done = None, 0
    while True:
        if size & length and not idempotent:
            # Windows in order: the places before `done` are in `rest`.
            piece = part(power, done * step, starts)
            rest = piece if rest is None else combine(rest, piece)
            done += length
        if 2 * length > size:
            break
        # A window of `2 * length` places has to fit behind each position that will be asked for.
        fitting = starts + span - 1 - (2 * length - 1) * step
        power = combine(part(power, 0, fitting), part(power, length * step, fitting))
        length *= 2
    if not idempotent:
        return rest
    if length == size:
        return part(power, 0, starts)
    return combine(part(power, 0, starts), part(power, (size - length) * step, starts))


def _part(x, axis, start, length, every=1):
    limit = start + (length - 1) * every + 1 if length else start
    if start == 0 and limit == x.shape[axis] and every == 1:
        return x
    starts, limits = [0] * x.ndim, list(x.shape)
    steps = [1] * x.ndim
    starts[axis], limits[axis], steps[axis] = start, limit, every
    return slice(x, starts, limits, steps)


def _blocks(reduction, x, axis, size, stride, step, count):
    """Windows that do not overlap, or a single one, as an axis of their own."""
    if count == 1:
        x, stride = _part(x, axis, 0, size, step), size
    length = x.shape[axis]
    config = [(0, count * stride - length if a == axis else 0, 0) for a in range(x.ndim)]
    if any(hi for _, hi, _ in config):
        # What is added lies behind the last window.
        x = pad(x, full_like(x, 0, shape=()), config)
    shape = (*x.shape[:axis], count, stride, *x.shape[axis + 1 :])
    return reduction(_part(reshape(x, shape), axis + 1, 0, size), (axis + 1,))


def fold(combine, windows, flat, init):
    """Any function, of two lists of vectors: a fold over the places of the window."""
    total = math.prod(windows.out)
    result = [_broadcast_to(x, (total,)) for x in init]
    if not total:
        return [reshape(x, windows.out) for x in result]
    present = windows.present()
    padded = [windows.pad(x, full_like(x, 0, shape=())) for x in flat]
    if math.prod(windows.sizes) >= UNROLLED:
        return _fold_in_a_loop(combine, result, padded, present, windows)
    for place in np.ndindex(*windows.sizes):
        where = tuple(
            np.s_[p * d : p * d + (n - 1) * s + 1 : s]
            for p, d, n, s in zip(place, windows.steps, windows.out, windows.strides)
        )
        there = present[where].reshape(total)
        if not there.any():
            continue
        starts, limits, strides = zip(*((w.start, w.stop, w.step) for w in where)) or ((),) * 3
        elements = [reshape(slice(x, starts, limits, strides), (total,)) for x in padded]
        folded = combine(result, elements)
        if not there.all():
            folded = [elementwise.select(there, new, old) for new, old in zip(folded, result)]
        result = folded
    return [reshape(x, windows.out) for x in result]


@jit(static_argnums=(0, 1))
def _fold_known(name, windows, flat, init):
    # A fold is compiled whole where its function lives as long as the program.
    tree = tree_util.tree_structure([0])
    combine = MONOIDS[name][1]
    function = vectorized("reduce_window", lambda a, b: [combine(a[0], b[0])], tree, flat)
    return fold(function, windows, flat, init)


def _fold_in_a_loop(combine, result, padded, present, windows):
    total = math.prod(windows.out)
    lengths = [(n - 1) * s + 1 for n, s in zip(windows.out, windows.strides)]
    places = np.stack(np.unravel_index(np.arange(math.prod(windows.sizes)), windows.sizes), 1)
    full = present.all()
    sources = [*padded] if full else [*padded, core.as_array(present)]

    def step(result, start):
        starts = [start[axis] for axis in range(len(lengths))]
        elements = []
        for x in sources:
            window = dynamic_slice(x, starts, lengths)
            window = slice(window, [0] * x.ndim, lengths, windows.strides)
            elements.append(reshape(window, (total,)))
        folded = combine(result, elements[: len(padded)])
        if not full:
            there = elements[-1]
            folded = [elementwise.select(there, new, old) for new, old in zip(folded, result)]
        return folded, None

    starts = (places * np.array(windows.steps)).astype(np.int32)
    result, _ = scan(step, result, starts)
    return [reshape(x, windows.out) for x in result]
