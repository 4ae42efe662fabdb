"""Indices out of bounds as errors, under `jax_debug_index`.

In: the indices of an operation, with the axes and sizes that they are for. Known ones are looked at
at once. For traced ones the program gets a test of all of them and, where it fails, a callback that
raises: one pass over the indices, and nothing where they are in bounds. Operations that were told what
to do out of bounds (`mode=`) have no checks.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ferrax import _core
from ferrax._core import Tracer
from ferrax._src.base import config, errors
from ferrax._src.core import as_array
from ferrax._src.lax import api as lax
from ferrax._src.lax.control_flow.conditionals import cond
from ferrax._src.numpy.index_parse import Range, Window

# `debug.callback`, which a layer above gives.
callback: Callable[..., Any] | None = None

_flag = config.debug_index


def wanted(mode: Any = None) -> bool:
    """Whether an operation with this `mode` has its indices checked."""
    return _flag.value and mode is None


def check_entries(operation: str, shape: tuple[int, ...], entries: Iterable[Any], wrap: bool) -> None:
    """Checks the integers and index arrays among parsed entries."""
    axis = 0
    for entry in entries:
        if entry is None or entry is True or entry is False or type(entry) is str:
            continue
        if type(entry) not in (Range, Window):
            check(operation, entry, shape[axis], axis, wrap)
        axis += 1


def check(operation: str, index: Any, size: int, axis: int, wrap: bool) -> None:
    """IndexError, now or when the program runs, for an index outside of `[-size, size)`, or of `[0, size)`
    if negative ones are not `wrap`ped."""
    line = _core.user_location()
    if not isinstance(index, Tracer):
        values = np.asarray(index)
        missing = values[(values >= size) | (values < (-size if wrap else 0))]
        if missing.size:
            _report(operation, size, axis, line, True, missing.ravel()[0])
        return
    flat = lax.reshape(index, (index.size,))
    if not index.size:
        return
    bad = _core.ufuncs.greater_equal(flat, as_array(np.int32(size)))
    if index.dtype.kind == "i":
        low = as_array(np.int32(-size if wrap else 0))
        bad = lax.bitwise_or(bad, _core.ufuncs.less(flat, low))
    report = functools.partial(_report, operation, size, axis, line)

    def fail(any_bad, bad, flat):
        assert callback is not None
        place = lax.argmax(bad, 0, np.int32)
        callback(report, any_bad, lax.squeeze(lax.dynamic_slice(flat, (place,), (1,)), (0,)))

    any_bad = lax.reduce_or(bad, (0,))
    cond(any_bad, fail, lambda *_: None, any_bad, bad, flat)


def _report(operation, size, axis, line, bad, index):
    if bad:
        raise errors.IndexCheckError(
            f"{operation}: index {int(index)} is out of bounds for axis {axis} with size {size}. "
            f"At {line}.\n"
            "jax_debug_index makes this an error. Say with mode= what is meant to happen, as in "
            'x.at[i].get(mode="clip") or x.at[i].set(v, mode="drop").'
        )
