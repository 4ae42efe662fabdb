"""``lax.ragged_all_to_all``: slices of different lengths that the lanes of a named axis exchange.

It is made of collectives and one gather of rows, which have all rules of derivatives, batching and devices. Each row
of the result knows which slice it is of, if any: the last one that covers it. So a row that is overwritten has a
derivative of zero, and offsets and sizes that do not fit the arrays touch no memory but theirs.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np

from ferrax._src import core
from ferrax._src.base import dtypes
from ferrax._src.core import Array, Tracer, as_array, named_axes
from ferrax._src.core.op_types import GatherDimensionNumbers, GatherScatterMode
from ferrax._src.core.primitives import Primitive
from ferrax._src.lax.arguments import describe, operand as _operand
from ferrax._src.lax.creation import broadcasted_iota, full_like, iota
from ferrax._src.lax.elementwise import (
    add,
    bitwise_and,
    convert_element_type,
    div,
    ge,
    lt,
    max as maximum,
    select,
    sub,
)
from ferrax._src.lax.gather_scatter import gather
from ferrax._src.lax.parallel import (
    _bound_names,
    _differing,
    _group_size,
    _groups,
    all_gather,
    all_to_all,
)
from ferrax._src.lax.reduce import reduce_max
from ferrax._src.lax.shape import broadcast_in_dim, concatenate, expand_dims
from ferrax._src.lax.slicing import index_in_dim, slice_in_dim

__all__ = ["ragged_all_to_all", "ragged_all_to_all_p"]

_NAME = "ragged_all_to_all"
_VECTORS = ("input_offsets", "send_sizes", "output_offsets", "recv_sizes")


def ragged_all_to_all(
    operand: Array, output: Array, input_offsets: Array, send_sizes: Array, output_offsets: Array,
    recv_sizes: Array, *, axis_name: Hashable, axis_index_groups: Any = None,
) -> Array:
    """Sends slices of an array to the lanes of a named axis, and receives theirs.

    Of n slices each of d lanes gets n / d, in order: slice i, ``operand[input_offsets[i] :
    input_offsets[i] + send_sizes[i]]``, goes to lane ``i // (n / d)``, and lies in its result
    from ``output_offsets[i]`` on.

    Args:
      operand: array (m, ...): the slices to send.
      output: array (k, ...) of the same dtype and further sizes: the result where nothing is received.
      input_offsets, send_sizes, output_offsets: integers (n,), along the first axis.
      recv_sizes: integers (n,): the sizes of the slices received, n / d from each lane in order. They are
        the sizes that the senders name, by which it goes.
      axis_name: the named axis, or a tuple of axes, the first being the major one.
      axis_index_groups: lists of as many lanes each, to exchange in each group; lanes are then those of the
        group, in its order. Not over an axis of vmap.

    Returns an array in the shape of ``output``. Where slices overlap, that of the last lane counts, and of one
    lane's the last; what would lie outside of the result is left out. It is linear in ``operand`` and ``output``.

    Errors: NameError for an axis that is not mapped over, RuntimeError where that is so outside of traced functions;
    ValueError for offsets and sizes that are no vectors of integers or whose number does not fit the lanes,
    for arrays that do not fit each other, and for groups that do not have each lane once;
    NotImplementedError for groups over an axis of vmap.

    Each lane sends as many rows as its operand has to every other one, whatever the sizes.

    >>> exchange = ferrax.vmap(
    ...     lambda x, sizes: lax.ragged_all_to_all(
    ...         x, jnp.zeros(3), jnp.array([0, 1]), sizes, jnp.array([0, 0]) + lax.axis_index("i"),
    ...         sizes, axis_name="i"),
    ...     axis_name="i")
    >>> exchange(jnp.array([[1.0, 2.0], [3.0, 4.0]]), jnp.array([[1, 1], [1, 1]]))
    Array([[1., 3., 0.],
           [2., 4., 0.]], dtype=float32)
    """
    given = (operand, output, input_offsets, send_sizes, output_offsets, recv_sizes)
    arrays = tuple(_operand(x, _NAME, i) for i, x in enumerate(given))
    names = tuple(axis_name) if isinstance(axis_name, (tuple, list)) else (axis_name,)
    return ragged_all_to_all_p.bind(
        *arrays, axis_name=names, axis_index_groups=axis_index_groups
    )


def _run(
    operand: Array, output: Array, input_offsets: Array, send_sizes: Array, output_offsets: Array,
    recv_sizes: Array, *, axis_name: tuple[Hashable, ...], axis_index_groups: Any,
) -> Array:
    names = _mapped(axis_name, (operand, output, input_offsets, send_sizes, output_offsets, recv_sizes))
    groups = _groups(axis_index_groups, names, _NAME, several=True)
    lanes = _group_size(groups, names, _NAME)
    _check_vectors((input_offsets, send_sizes, output_offsets, recv_sizes), lanes)
    if operand.dtype != output.dtype or not operand.ndim or operand.shape[1:] != output.shape[1:] or not output.ndim:
        raise ValueError(
            f"{_NAME}: operand and output need equal dtypes, and shapes that differ in the first axis"
            f" alone, got {describe(operand)} and {describe(output)}; convert or reshape one of them"
        )
    if not operand.shape[0] or not output.shape[0]:
        return _differing(output, names)
    # Of each slice that is received, in the order of their senders: offset there, size, offset here.
    table = concatenate([_column(x) for x in (input_offsets, send_sizes, output_offsets)], 1)
    table = all_to_all(table, names, 0, 0, axis_index_groups=groups, tiled=True)
    of_row = _slices_of_rows(table, output.shape[0])
    received = ge(of_row, _zero(of_row))
    of_row = maximum(of_row, _zero(of_row))
    of_slice = _rows(table, expand_dims(of_row, (1,)))
    place = sub(iota(np.int32, output.shape[0]), index_in_dim(of_slice, 2, 1, keepdims=False))
    source = add(index_in_dim(of_slice, 0, 1, keepdims=False), place)
    sender = div(of_row, as_array(np.int32(table.shape[0] // lanes)))
    sent = all_gather(operand, names, axis_index_groups=groups)
    rows = _rows(sent, concatenate([expand_dims(x, (1,)) for x in (sender, source)], 1))
    return select(broadcast_in_dim(received, tuple(output.shape), (0,)), rows, output)


def _mapped(axis_name: tuple[Hashable, ...], arrays: tuple[Array, ...]) -> tuple:
    """The names, checked. Outside of all traces JAX has another error than within."""
    try:
        return _bound_names(axis_name, _NAME)
    except NameError as error:
        if named_axes.names() or any(isinstance(x, Tracer) for x in arrays) or not core.trace_state_clean():
            raise
        raise RuntimeError(str(error)) from None


def _check_vectors(vectors: tuple[Array, ...], lanes: int) -> None:
    for name, x in zip(_VECTORS, vectors, strict=True):
        if not dtypes.issubdtype(x.dtype, np.integer):
            raise ValueError(
                f"{_NAME}: {name} has to have integers, got {describe(x)}; convert it with astype('int32')"
            )
        if x.ndim != 1 or not x.shape[0]:
            raise ValueError(
                f"{_NAME}: {name} has to be a vector with an element for each slice, of {lanes} lanes at least "
                f"{lanes}, got {describe(x)}"
            )
    if len({x.shape for x in vectors}) > 1:
        given = ", ".join(f"{name} of {x.shape[0]}" for name, x in zip(_VECTORS, vectors, strict=True))
        raise ValueError(f"{_NAME}: offsets and sizes have to be of as many slices, got {given}")
    if vectors[0].shape[0] % lanes:
        raise ValueError(
            f"{_NAME}: the number of slices has to be a multiple of the {lanes} lanes that they go to, got "
            f"{vectors[0].shape[0]}; give lanes that get less slices of size zero"
        )


def _column(x: Array) -> Array:
    return expand_dims(convert_element_type(x, np.int32), (1,))


def _zero(x: Array) -> Array:
    return full_like(x, 0)


def _slices_of_rows(table: Array, rows: int) -> Array:
    """For each row of the result the number of the last slice that covers it, or -1."""
    shape = (table.shape[0], rows)
    size, to = (
        broadcast_in_dim(slice_in_dim(table, i, i + 1, axis=1), shape, (0, 1)) for i in (1, 2)
    )
    place = sub(broadcasted_iota(np.int32, shape, 1), to)
    covers = bitwise_and(ge(place, _zero(place)), lt(place, size))
    number = broadcasted_iota(np.int32, shape, 0)
    return reduce_max(select(covers, number, full_like(number, -1)), (0,))


def _rows(x: Array, indices: Array) -> Array:
    """The elements of the first axes at these indices, one row of them for each; those outside at the edge."""
    axes = tuple(range(indices.shape[1]))
    rest = tuple(x.shape[len(axes):])
    numbers = GatherDimensionNumbers(tuple(range(1, 1 + len(rest))), axes, axes)
    return gather(x, indices, numbers, (*(1 for _ in axes), *rest), mode=GatherScatterMode.CLIP)


class _Inlined(Primitive):
    """Recorded as what it is made of, whose collectives name the axis.

    >>> lax.ragged_all_to_all_p
    ragged_all_to_all
    """

    def bind(self, *args: Any, **params: Any) -> Any:
        return self.impl(*args, **params)


ragged_all_to_all_p = _Inlined(_NAME)
ragged_all_to_all_p.def_impl(_run)
