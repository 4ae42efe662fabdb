"""`pad` in every mode.

Invariant: axes are padded one after the other, so corners see already padded neighbours.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ferrax._core import ufuncs
from ferrax._src.core import Array, concrete_or_error
from ferrax._src.core.typing import ArrayLike
from ferrax._src.dims import is_symbolic_dim
from ferrax._src.lax import api as lax
from ferrax._src.numpy import reductions
from ferrax._src.numpy.array_creation import linspace
from ferrax._src.numpy.joining import concatenate
from ferrax._src.numpy.quantiles import median
from ferrax._src.numpy.rearrangement import flip
from ferrax._src.numpy.rounding import round as round_even
from ferrax._src.numpy.util import convert, ensure_array, is_subdtype
from ferrax._src.numpy.vectorization import apply_along_axis
from ferrax._src.transforms.jit import jit

_ALLOWED = {
    "constant": ("constant_values",),
    "linear_ramp": ("end_values",),
    "maximum": ("stat_length",),
    "mean": ("stat_length",),
    "median": ("stat_length",),
    "minimum": ("stat_length",),
    "reflect": ("reflect_type",),
    "symmetric": ("reflect_type",),
    "edge": (),
    "wrap": (),
    "empty": (),
}


def _pairs(nvals, rank, name, convert_leaf=None):
    """Normalises a scalar, a (before, after) pair or one pair per axis to ((b, a), ...)."""
    leaf = convert_leaf or (lambda x: x)
    if isinstance(nvals, (list, tuple)):
        items = [list(x) if isinstance(x, (list, tuple, np.ndarray)) else x for x in nvals]
        nested = [isinstance(x, list) for x in items]
        if all(nested) and items:
            pairs = [tuple(map(leaf, x)) for x in items]
            pairs = [p * 2 if len(p) == 1 else p for p in pairs]
            if all(len(p) == 2 for p in pairs) and len(pairs) in (1, rank):
                return tuple(pairs * rank if len(pairs) == 1 else pairs)
        elif not any(nested) and len(items) in (1, 2):
            pair = tuple(map(leaf, items))
            return (pair * 2 if len(pair) == 1 else pair,) * rank
        shape = tuple(np.shape(nvals)) if not any(isinstance(x, Array) for x in items) else (
            len(items),)
    else:
        dims = np.shape(nvals)
        if dims == ():
            return ((leaf(nvals), leaf(nvals)),) * rank
        if not isinstance(nvals, Array):
            return _pairs(np.asarray(nvals).tolist(), rank, name, convert_leaf)
        if dims in ((1,), (2,)):
            return ((leaf(nvals[0]), leaf(nvals[-1])),) * rank
        if dims in ((1, 2), (rank, 2)):
            rows = [(leaf(nvals[i, 0]), leaf(nvals[i, 1])) for i in range(dims[0])]
            return tuple(rows * rank if dims[0] == 1 else rows)
        shape = tuple(dims)
    raise ValueError(
        f"jnp.pad: {name} of shape {shape} does not fit an array of {rank} axes; expected"
        f" shape ({rank}, 2), (1, 2), (2,), (1,) or ()."
    )


def _width(x):
    x = concrete_or_error(None, x, "pad_width argument of jnp.pad")
    if is_symbolic_dim(x):
        return x
    if int(x) != x:
        raise TypeError(f"`pad_width` must be of integral type, got {x}")
    return int(x)


def _slice(x, start, stop, axis):
    return lax.slice_in_dim(x, start, stop, axis=axis)


def _stretch(edge, count, axis):
    shape = tuple(count if d == axis else n for d, n in enumerate(edge.shape))
    kept = tuple(d for d in range(edge.ndim) if d != axis)
    return lax.broadcast_in_dim(lax.squeeze(edge, (axis,)), shape, kept)


def _mirror(x, axis, before, after, offset, odd):
    """Reflects at the edges as often as the widths need; offset 1 leaves the edge out."""
    n = x.shape[axis]
    if n == 1 and offset:
        left, right = _slice(x, 0, 1, axis), _slice(x, 0, 1, axis)
        return concatenate([_stretch(left, before, axis), x, _stretch(right, after, axis)],
                           axis=axis)
    while before > 0 or after > 0:
        n = x.shape[axis]
        parts = []
        take = min(before, n - offset)
        if take > 0:
            part = flip(_slice(x, offset, offset + take, axis), axis)
            if odd:
                part = ufuncs.subtract(ufuncs.multiply(2, _slice(x, 0, 1, axis)), part)
            parts.append(part)
            before -= take
        parts.append(x)
        take = min(after, n - offset)
        if take > 0:
            part = flip(_slice(x, n - offset - take, n - offset, axis), axis)
            if odd:
                part = ufuncs.subtract(ufuncs.multiply(2, _slice(x, n - 1, n, axis)), part)
            parts.append(part)
            after -= take
        x = concatenate(parts, axis=axis)
    return x


def _wrap(x, axis, before, after):
    n = x.shape[axis]
    whole_before, rest_before = divmod(before, n)
    whole_after, rest_after = divmod(after, n)
    parts = [_slice(x, n - rest_before, n, axis)] if rest_before else []
    parts += [x] * (whole_before + 1 + whole_after)
    parts += [_slice(x, 0, rest_after, axis)] if rest_after else []
    return concatenate(parts, axis=axis)


def _ramp(x, axis, before, after, ends):
    n = x.shape[axis]
    parts = []
    for edge, count, end, left in (
        (_slice(x, 0, 1, axis), before, ends[0], True),
        (_slice(x, n - 1, n, axis), after, ends[1], False),
    ):
        ramp = linspace(end, lax.squeeze(edge, (axis,)), num=count, endpoint=False,
                        dtype=x.dtype, axis=axis)
        parts.append(ramp if left else flip(ramp, axis))
    return concatenate([parts[0], x, parts[1]], axis=axis)


def _statistic(x, axis, before, after, mode, lengths):
    n = x.shape[axis]

    def edge(start, stop, count):
        part = _slice(x, start, stop, axis)
        functions: dict[str, Callable[..., Array]] = {
            "maximum": reductions.max, "minimum": reductions.min, "mean": reductions.mean,
            "median": median,
        }  # fmt: skip
        function = functions[mode]
        value = function(part, axis=axis, keepdims=True)
        if is_subdtype(x, np.integer):
            value = round_even(value)
        return _stretch(convert(value, x.dtype), count, axis)

    first, last = (n if length is None else min(n, length) for length in lengths)
    return concatenate([edge(0, first, before), x, edge(n - last, n, after)], axis=axis)


@jit(static_argnames=("pad_width", "mode", "reflect_type", "stat_length"))
def _pad(array, pad_width, mode, values, reflect_type, stat_length):
    if mode == "constant":
        return _pad_constant(array, pad_width, values)
    for axis, (before, after) in enumerate(pad_width):
        if not before and not after:
            continue
        if array.shape[axis] == 0:
            raise ValueError(
                f"can't extend empty axis {axis} using modes other than 'constant' or 'empty'")
        if mode == "edge":
            n = array.shape[axis]
            array = concatenate([
                _stretch(_slice(array, 0, 1, axis), before, axis), array,
                _stretch(_slice(array, n - 1, n, axis), after, axis)], axis=axis)
        elif mode in ("reflect", "symmetric"):
            array = _mirror(array, axis, before, after, int(mode == "reflect"),
                            reflect_type == "odd")
        elif mode == "wrap":
            array = _wrap(array, axis, before, after)
        elif mode == "linear_ramp":
            array = _ramp(array, axis, before, after, values[axis])
        else:
            array = _statistic(array, axis, before, after, mode,
                               (None, None) if stat_length is None else stat_length[axis])
    return array


def _pad_constant(array, pad_width, values):
    pairs = list(values)
    one_value = all(v is pairs[0][0] for pair in pairs for v in pair) if pairs else True
    if not pairs:
        return array
    if one_value:
        fill = convert(pairs[0][0], array.dtype)
        return lax.pad(array, fill, tuple((b, a, 0) for b, a in pad_width))
    for axis, ((before, after), (left, right)) in enumerate(zip(pad_width, pairs)):
        none = [(0, 0, 0)] * array.ndim
        sides = ((before, left, (before, 0, 0)), (after, right, (0, after, 0)))
        for amount, value, config in sides:
            if amount:
                none[axis] = config
                array = lax.pad(array, convert(value, array.dtype), tuple(none))
    return array


def _pad_with_function(array, pad_width, function, kwargs):
    array = _pad_constant(array, pad_width, ((0, 0),) * array.ndim)
    for axis, widths in enumerate(pad_width):
        array = apply_along_axis(
            lambda row, axis=axis, widths=widths: function(row, widths, axis, kwargs), axis, array)
    return array


def pad(array: ArrayLike, pad_width: Any, mode: Any = "constant", **kwargs: Any) -> Array:
    """Extends an array at the edges of its axes.

    Args: pad_width: a count, a (before, after) pair, one pair per axis, or a dict from axis to
    either; mode: "constant" (constant_values), "edge", "reflect" or "symmetric" (reflect_type),
    "wrap", "linear_ramp" (end_values), "maximum", "minimum", "mean", "median"
    (stat_length), "empty", or a function of (row, widths, axis, kwargs) that returns the row.
    Raises: NotImplementedError for an unknown mode, ValueError for keywords of another mode.
    array: the array; kwargs: those that a mode has, in parentheses above.

    >>> jnp.pad(jnp.ones(2), 1)
    Array([0., 1., 1., 0.], dtype=float32)
    """
    array = ensure_array(array, "pad")
    rank = array.ndim
    if isinstance(pad_width, dict):
        widths = [(0, 0)] * rank
        for axis, w in pad_width.items():
            widths[axis] = (w, w) if isinstance(w, int) else tuple(w)
        pad_width = widths
    pad_width = _pairs(pad_width, rank, "pad_width", _width)
    if callable(mode):
        return _pad_with_function(array, pad_width, mode, kwargs)
    if mode not in _ALLOWED:
        raise NotImplementedError(
            f"pad: there is no mode {mode!r}; there are {', '.join(sorted(_ALLOWED))}"
        )
    if any(n < 0 for pair in pad_width for n in pair):
        raise ValueError(f"pad: pad_width cannot be negative, got {pad_width}")
    unknown = set(kwargs) - set(_ALLOWED[mode])
    if unknown:
        raise ValueError(f"unsupported keyword arguments for mode '{mode}': {unknown}")
    if mode == "empty":
        mode, kwargs = "constant", {}
    values = ()
    if mode in ("constant", "linear_ramp"):
        given = kwargs.get("constant_values" if mode == "constant" else "end_values", 0)
        if np.shape(given) == () and mode == "constant":
            return _pad_scalar(array, given, pad_width=pad_width)
        values = _pairs(given, rank, "constant_values" if mode == "constant" else "end_values")
    lengths = kwargs.get("stat_length")
    if lengths is not None:
        lengths = _pairs(lengths, rank, "stat_length", int)
        if any(n <= 0 for pair in lengths for n in pair):
            raise ValueError("stat_length of 0 or less is undefined for padding")
    reflect_type = kwargs.get("reflect_type", "even")
    if reflect_type not in ("even", "odd"):
        raise ValueError(f"reflect_type must be 'even' or 'odd', got {reflect_type!r}")
    out = _pad(array, pad_width, mode, values, reflect_type, lengths)
    return convert(out, out.dtype, array.weak_type)


@jit(static_argnames=("pad_width",))
def _pad_scalar(array, value, pad_width):
    if not pad_width:
        return array
    value = convert(value, array.dtype, array.weak_type)
    return lax.pad(array, value, tuple((b, a, 0) for b, a in pad_width))
