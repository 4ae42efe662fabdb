"""The checks that `checkify` adds to operations: NaNs, divisions by zero, indices out of bounds.

Each takes the state of a program being checked and an equation with the values of its inputs and
outputs. `kinds` says which errors an equation can add, before any of it is traced.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ferrax import _core
from ferrax._src import core
from ferrax._src.base import dtypes
from ferrax._src.composed import window_primitives
from ferrax._src.composed.custom_solves import linear_solve_p
from ferrax._src.core import avals
from ferrax._src.experimental.checkify.error import (
    DivisionByZeroError,
    ErrorEffect,
    NaNError,
    OOBError,
    failure,
)
from ferrax._src.lax import api as lax
from ferrax._src.lax.creation import full_like
from ferrax._src.lax.elementwise import bitwise_or, eq, ne
from ferrax._src.lax.reduce import reduce_or

_NAN = ErrorEffect(NaNError)
_DIVISION = ErrorEffect(DivisionByZeroError)
_BOUNDS = ErrorEffect(OOBError, (avals.ShapeDtypeStruct((3,), np.dtype(np.int32)),))

# Operations that can give a NaN where no input has one; the rows of elementwise ones say so.
_NAN_PRIMITIVES = frozenset(
    {
        "cumlogsumexp", "cummax", "cummin", "cumprod", "cumsum", "custom_linear_solve",
        "dot_general", "integer_pow", "pad", "reduce", "reduce_prod", "reduce_sum",
        "reduce_window", "reduce_window_sum", "scatter", "scatter_add", "scatter_max",
        "scatter_min", "scatter_mul", "scatter_sub", "select_and_scatter_add",
    }
).union(op for op, row in _core.op_rows().items() if row["makes_nan"])  # fmt: skip


_OWN = {
    primitive: primitive.name
    for primitive in (
        linear_solve_p,
        window_primitives.reduce_p,
        window_primitives.reduce_window_p,
        window_primitives.reduce_window_sum_p,
        window_primitives.select_and_scatter_add_p,
    )
}


def kinds(eqn, categories) -> list[ErrorEffect]:
    """The errors of these categories that this equation itself can add, the first to check first."""
    name = eqn.primitive.op if eqn.primitive._builtin else _OWN.get(eqn.primitive)
    found = []
    if DivisionByZeroError in categories and name == "div":
        found.append(_DIVISION)
    if OOBError in categories and name in _INDEXING:
        found.append(_BOUNDS)
    if NaNError in categories and name in _NAN_PRIMITIVES and _inexact(eqn.outvars[0].aval):
        found.append(_NAN)
    return found


def _inexact(aval):
    return not dtypes.issubdtype(aval.dtype, dtypes.extended) and dtypes.issubdtype(
        aval.dtype, np.inexact
    )


def check_equation(error, eqn, values, outputs, categories):
    """The error after the checks of an equation."""
    for kind in kinds(eqn, categories):
        line = eqn.source_info.line
        if kind is _DIVISION:
            failed = _any_of(_is_zero(values[1]))
            error = error._with_failure(failed, *failure(DivisionByZeroError, line))
        elif kind is _NAN:
            failed = _any_nan(outputs)
            error = error._with_failure(failed, *failure(NaNError, line, (eqn.primitive.name,)))
        else:
            error = _check_bounds(error, eqn, values)
    return error


def _any_of(flags):
    return reduce_or(flags, axes=tuple(range(flags.ndim)))


def _is_zero(x):
    return eq(x, full_like(x, 0))


def _any_nan(outputs):
    flags = [_any_of(ne(x, x)) for x in outputs]
    return functools.reduce(bitwise_or, flags)


def _check_bounds(error, eqn, values):
    found = _INDEXING[eqn.primitive.op](eqn.primitive.native_params(eqn.params), *values)
    if found is None:
        return error
    indices, axes, limits = found
    operand_shape = values[0].shape
    failed, payload = _first_outside(indices, axes, limits, operand_shape)
    fields = (eqn.primitive.name, operand_shape)
    template, payload = failure(OOBError, eqn.source_info.line, fields, (payload,))
    return error._with_failure(failed, template, payload)


def _first_outside(indices, axes, limits, shape):
    """Whether any of the indices, of shape `(..., len(axes))`, is not within `0` and its axis'
    limit, and the first such with its axis and the axis' size."""
    largest = dtypes.iinfo(indices.dtype).max
    limits = np.minimum(np.asarray(limits, np.int64), largest).astype(indices.dtype)
    bounds = lax.broadcast_in_dim(core.as_array(limits), indices.shape, (indices.ndim - 1,))
    outside = lax.bitwise_or(lax.lt(indices, full_like(indices, 0)), lax.gt(indices, bounds))
    flat = lax.reshape(outside, (outside.size,))
    place = lax.argmax(flat, 0, np.int32)
    column = lax.rem(place, core.as_array(np.int32(len(axes))))

    def at(array, index):
        return lax.convert_element_type(
            lax.dynamic_index_in_dim(array, index, 0, keepdims=True), np.int32
        )

    payload = [
        at(lax.reshape(indices, (indices.size,)), place),
        at(core.as_array(np.asarray(axes, np.int32)), column),
        at(core.as_array(np.asarray([shape[axis] for axis in axes], np.int32)), column),
    ]
    return _any_of(outside), lax.concatenate(payload, 0)


# Of each operation that indexes: the indices, the operand's axes in their last dimension, and the
# largest that is in bounds along each; None where there is nothing to check.


def _slice_bounds(sizes, operand, starts):
    if not starts:
        return None
    starts = [lax.reshape(core.as_array(start), (1,)) for start in starts]
    limits = [extent - size for extent, size in zip(operand.shape, sizes)]
    return lax.concatenate(starts, 0), range(operand.ndim), limits


def _dynamic_slice(params, operand, *starts):
    return _slice_bounds(params["slice_sizes"], operand, starts)


def _dynamic_update_slice(params, operand, update, *starts):
    return _slice_bounds(update.shape, operand, starts)


def _gather(params, operand, indices):
    axes = params["start_index_map"]
    if not indices.size:
        return None
    return indices, axes, [operand.shape[a] - params["slice_sizes"][a] for a in axes]


def _scatter(params, operand, indices, updates):
    axes = params["scatter_dims_to_operand_dims"]
    if not indices.size:
        return None
    single = {*params["inserted_window_dims"], *params["operand_batching_dims"]}
    windows = iter(updates.shape[dim] for dim in params["update_window_dims"])
    sizes = [1 if axis in single else next(windows) for axis in range(operand.ndim)]
    return indices, axes, [operand.shape[a] - sizes[a] for a in axes]


_INDEXING: dict[str, Callable[..., Any]] = {
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
    "gather": _gather,
    **dict.fromkeys(
        ("scatter", "scatter_add", "scatter_max", "scatter_min", "scatter_mul", "scatter_sub"),
        _scatter,
    ),
}
