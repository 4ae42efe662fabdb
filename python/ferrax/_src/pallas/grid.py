"""Where in its grid a kernel is: `program_id` and `num_programs`, and what else belongs to a kernel that is traced.

Invariant: the stack has a frame for each kernel and index map that is traced on this thread.
"""

from __future__ import annotations

import contextlib
import threading
from typing import Any, NamedTuple

import numpy as np

from ferrax._src.core import ShapeDtypeStruct, named_axes
from ferrax._src.lax.control_flow.common import bodies
from ferrax._src.state import at_user_line


class _Unknown:
    def __repr__(self) -> str:
        return "?"


# The size of an axis that is known when the kernel runs.
UNKNOWN = _Unknown()


class Frame(NamedTuple):
    """A kernel that is traced: the indices of the step, as int32 scalars, and the sizes; the branches and loops that it
    is in itself; and the semaphore that its barriers wait on, if it has one."""

    ids: tuple
    sizes: tuple
    depth: int = 0
    barrier: Any = None


class _State(threading.local):
    def __init__(self) -> None:
        self.frames: list[Frame] = []


_state = _State()


@contextlib.contextmanager
def frame(ids, sizes, barrier=None):
    """A context in which the step has these indices, of a grid of these sizes."""
    _state.frames.append(Frame(tuple(ids), tuple(sizes), len(bodies()), barrier))
    try:
        yield
    finally:
        _state.frames.pop()


def innermost() -> Frame | None:
    """The frame of the kernel that is traced, None outside of kernels."""
    return _state.frames[-1] if _state.frames else None


def _innermost(name: str, axis: int) -> Frame:
    if not _state.frames:
        raise ValueError(
            f"{name}({axis}) is of a kernel's grid, and no kernel is traced here. Call it in a "
            f"function that pallas_call is given.{at_user_line()}"
        )
    found = _state.frames[-1]
    if not 0 <= axis < len(found.sizes):
        raise ValueError(
            f"Axis {axis} is out of bounds for grid {found.sizes}, of {name}.{at_user_line()}"
        )
    return found


def program_id(axis: int) -> Any:
    """The index of this step along an axis of the grid, an int32 scalar.

    Args: axis: from 0 on. The last axis moves fastest.

    Errors: ValueError for an axis that the grid does not have, and outside of kernels.

    >>> def kernel(out):
    ...     out[...] = pl.program_id(0)
    >>> pl.pallas_call(kernel, ferrax.ShapeDtypeStruct((3,), jnp.int32), grid=3,
    ...                out_specs=pl.BlockSpec((None,), lambda i: i))()
    Array([0, 1, 2], dtype=int32)
    """
    return _innermost("program_id", axis).ids[axis]


def num_programs(axis: int) -> Any:
    """The size of an axis of the grid: an integer, or a scalar if it is known when the kernel runs.

    Args and errors as `program_id`.

    >>> def kernel(out):
    ...     out[...] = pl.num_programs(0) - pl.program_id(0)
    >>> pl.pallas_call(kernel, ferrax.ShapeDtypeStruct((3,), jnp.int32), grid=3,
    ...                out_specs=pl.BlockSpec((None,), lambda i: i))()
    Array([3, 2, 1], dtype=int32)
    """
    return _innermost("num_programs", axis).sizes[axis]


_SCALAR = ShapeDtypeStruct((), np.dtype(np.int32))


def types(sizes) -> list[ShapeDtypeStruct]:
    """The types of a step's indices, and of the sizes that are known when the kernel runs."""
    return [_SCALAR] * (len(sizes) + sum(not isinstance(size, int) for size in sizes))


def split(values, sizes):
    """`(indices, sizes, others)` of values whose first have those types."""
    rest = iter(values[len(sizes) :])
    now = [size if isinstance(size, int) else next(rest) for size in sizes]
    return values[: len(sizes)], now, list(rest)


@contextlib.contextmanager
def names(axes, sizes, ids):
    """A context in which `lax.axis_size` and `lax.axis_index` know the named axes of a grid, if there are any."""
    named = [number for number, name in enumerate(axes) if name is not None]
    if not named:
        yield
        return
    pairs = [(axes[number], sizes[number]) for number in named]
    with named_axes.named_axes_of(pairs), named_axes.at({axes[number]: ids[number] for number in named}):
        yield
