"""Static indexing: integers, slices, None and Ellipsis, as slice, rev, squeeze, broadcast_in_dim.

Invariant: the ops for an index depend only on it and on the array's shape, so they are cached.
"""

from __future__ import annotations

from ferrax._core import Array, bind
from ferrax._src.base import config
from ferrax._src.numpy.index_parse import Range, parse


def static_row(x: Array, shape: tuple[int, ...], index: int) -> Array:
    """``x[index]`` for a Python integer from 0 to the first axis' size."""
    zeros = (0,) * (len(shape) - 1)
    row = bind(
        "slice",
        (x,),
        {
            "start_indices": (index, *zeros),
            "limit_indices": (index + 1, *shape[1:]),
            "strides": None,
        },
    )
    return bind("squeeze", (row,), {"dimensions": (0,)})


def static_key(index: tuple) -> tuple | None:
    """A hashable form of an index of integers, slices, None and Ellipsis only; else None.

    The types are compared exactly: True would equal 1.
    """
    key = []
    for item in index:
        kind = type(item)
        if kind is slice:
            bounds = (item.start, item.stop, item.step)
            for bound in bounds:
                if bound is not None and type(bound) is not int:
                    return None
            key.append(bounds)
        elif kind is int or item is None or item is Ellipsis:
            key.append(item)
        else:
            return None
    return tuple(key)


_STEPS: dict[tuple, tuple] = {}
_MAX_STEPS = 8192


def cached_steps(shape: tuple[int, ...], key: tuple, index) -> tuple | None:
    """The ops of an index with this ``static_key``, computed once; None if it is out of bounds."""
    steps = _STEPS.get((shape, key))
    if steps is not None:
        return steps
    entries = parse(shape, index)
    if misses(shape, entries, True):
        return None
    if len(_STEPS) >= _MAX_STEPS:
        _STEPS.clear()
    steps = _STEPS[shape, key] = tuple(_basic_steps(shape, entries, True))
    return steps


def static_integer(value: int, size: int, wrap: bool) -> int:
    """A static integer counted from the front, kept within what an int32 holds."""
    value = value + size if value < 0 and wrap else value
    return max(-(2**31), min(value, 2**31 - 1))


def clamped(value: int, size: int, wrap: bool) -> int:
    """A static integer moved into bounds."""
    return max(0, min(static_integer(value, size, wrap), size - 1))


def misses(shape, entries: list, wrap: bool) -> bool:
    """Whether a static integer is out of bounds."""
    axis = 0
    for entry in entries:
        if type(entry) is int and not (
            0 <= static_integer(entry, shape[axis], wrap) < shape[axis]
        ):
            return True
        if entry is not None and type(entry) is not str:
            axis += 1
    return False


def check_static(shape, entries: list, wrap: bool) -> None:
    """IndexError for a static integer out of bounds, under `jax_check_static_indices`."""
    if not config.check_static_indices.value:
        return
    axis = 0
    for entry in entries:
        if type(entry) is int and misses(shape[axis:], [entry], wrap):
            raise IndexError(
                f"index {entry} out of bounds for axis {axis} with size {shape[axis]} "
                f"(normalize_indices={wrap})"
            )
        if entry is not None and type(entry) not in (str, bool):
            axis += 1


def basic_getitem(x: Array, entries: list, wrap: bool) -> Array:
    """Integers, moved into bounds, slices and new axes."""
    for name, params in _basic_steps(x.shape, entries, wrap):
        x = bind(name, (x,), params)
    return x


def _basic_steps(shape: tuple[int, ...], entries: list, wrap: bool) -> list[tuple[str, dict]]:
    """Integers, slices and new axes as ops: slice, rev, squeeze, broadcast_in_dim, as needed."""
    starts: list[int] = []
    limits: list[int] = []
    strides: list[int] = []
    reverse: list[int] = []
    dropped: list[int] = []
    new_axes: list[int] = []
    out_shape: list[int] = []
    whole = True
    for entry in entries:
        kind = type(entry)
        if kind is Range:
            axis = len(starts)
            start, size, step, is_whole = entry
            if step < 0:
                reverse.append(axis)
                starts.append(start + (size - 1) * step)
                limits.append(start + 1)
                strides.append(-step)
            else:
                starts.append(start)
                limits.append(start + (size - 1) * step + 1 if size else start)
                strides.append(step)
            whole = whole and (is_whole or (size == shape[axis] and step == -1))
            out_shape.append(size)
        elif kind is int:
            axis = len(starts)
            value = clamped(entry, shape[axis], wrap)
            starts.append(value)
            limits.append(value + 1)
            strides.append(1)
            dropped.append(axis)
            whole = whole and shape[axis] == 1
        elif entry is None:
            new_axes.append(len(out_shape))
            out_shape.append(1)
    steps: list[tuple[str, dict]] = []
    if not whole:
        steps.append(
            (
                "slice",
                {
                    "start_indices": tuple(starts),
                    "limit_indices": tuple(limits),
                    "strides": None if max(strides) == 1 else tuple(strides),
                },
            )
        )
    if reverse:
        steps.append(("rev", {"dimensions": tuple(reverse)}))
    if dropped:
        steps.append(("squeeze", {"dimensions": tuple(dropped)}))
    if new_axes:
        kept = tuple([axis for axis in range(len(out_shape)) if axis not in new_axes])
        params = {"shape": tuple(out_shape), "broadcast_dimensions": kept}
        steps.append(("broadcast_in_dim", params))
    return steps
