"""``lax.ragged_all_to_all``: slices of different lengths that the instances of a mapped function exchange;
and sends between devices, of which there is one.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, NoReturn

import numpy as np

from ferrax._src.base import dtypes
from ferrax._src.core import Array, as_array
from ferrax._src.core.primitives import Primitive
from ferrax._src.lax import api as lax
from ferrax._src.lax.arguments import operand as _operand


def ragged_all_to_all(
    operand: Array, output: Array, input_offsets: Array, send_sizes: Array, output_offsets: Array,
    recv_sizes: Array, *, axis_name: Hashable, axis_index_groups: Any = None,
) -> Array:
    """Sends slices of an array to the instances of a mapped function, and receives theirs.

    Of n slices each of d instances gets n / d, in order: slice i, ``operand[input_offsets[i] :
    input_offsets[i] + send_sizes[i]]``, goes to instance ``i // (n / d)``, and lies in its result
    from ``output_offsets[i]`` on.

    Args:
      operand: array (m, ...): the slices to send.
      output: array (k, ...) of the same dtype and further sizes: the result where nothing is received.
      input_offsets, send_sizes, output_offsets: integers (n,), along the first axis.
      recv_sizes: integers (n,): the sizes of the slices received, which the senders know, too.
      axis_name: the mapped axis.
      axis_index_groups: None.

    Returns an array in the shape of ``output``.

    Errors: NameError for an axis that is not mapped; ValueError for shapes that do not fit;
    NotImplementedError for groups.

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
    arrays = tuple(_operand(x, "ragged_all_to_all", i) for i, x in enumerate(given))
    names = tuple(axis_name) if isinstance(axis_name, (tuple, list)) else (axis_name,)
    return ragged_all_to_all_p.bind(
        *arrays, axis_name=names, axis_index_groups=axis_index_groups
    )


def _run(
    operand: Array, output: Array, input_offsets: Array, send_sizes: Array, output_offsets: Array,
    recv_sizes: Array, *, axis_name: tuple[Hashable, ...], axis_index_groups: Any,
) -> Array:
    name = "ragged_all_to_all"
    if axis_index_groups is not None:
        raise NotImplementedError(f"{name}: axis_index_groups has to be None")
    if operand.dtype != output.dtype or operand.shape[1:] != output.shape[1:] or not operand.ndim:
        raise ValueError(
            f"{name}: operand and output need equal dtypes, and shapes that differ in the first axis"
            f" alone, got {operand.dtype}{operand.shape} and {output.dtype}{output.shape}"
        )
    numbers = (input_offsets, send_sizes, output_offsets, recv_sizes)
    for x in numbers:
        if not dtypes.issubdtype(x.dtype, np.integer) or x.ndim != 1 or x.shape != numbers[0].shape:
            raise ValueError(
                f"{name}: offsets and sizes have to be vectors of integers, all of one size, got"
                f" {[f'{x.dtype}{tuple(x.shape)}' for x in numbers]}"
            )
    instances = lax.axis_size(axis_name)
    each, rest = divmod(input_offsets.shape[0], instances)
    if rest or not each:
        raise ValueError(
            f"{name}: the number of slices has to be a multiple of {instances}, the size of the axis,"
            f" got {input_offsets.shape[0]}"
        )
    if operand.shape[0] == 0:
        return output
    gathered = lax.all_gather(operand, axis_name)
    # For each sender, its slices for this instance: (offset there, size, offset here).
    first = lax.mul(lax.axis_index(axis_name), as_array(np.int32(each)))
    table = lax.all_gather(
        lax.concatenate([_column(x) for x in numbers[:3]], 1), axis_name
    )
    table = lax.dynamic_slice_in_dim(table, first, each, 1)
    table = lax.reshape(table, (instances * each, 3))
    senders = lax.reshape(
        lax.broadcasted_iota(np.int32, (instances, each), 0), (instances * each,)
    )
    places = lax.iota(np.int32, output.shape[0])
    last = as_array(np.int32(operand.shape[0] - 1))

    def receive(result, slice_of):
        sender, row = slice_of
        start, size, to = (lax.index_in_dim(row, i, keepdims=False) for i in range(3))
        inside = lax.bitwise_and(lax.ge(places, to), lax.lt(places, lax.add(to, size)))
        source = lax.clamp(as_array(np.int32(0)), lax.add(lax.sub(places, to), start), last)
        sent = lax.dynamic_index_in_dim(gathered, sender, 0, keepdims=False)
        rows = lax.gather(
            sent,
            lax.expand_dims(source, (1,)),
            lax.GatherDimensionNumbers(tuple(range(1, sent.ndim)), (0,), (0,)),
            (1, *sent.shape[1:]),
            mode=lax.GatherScatterMode.PROMISE_IN_BOUNDS,
        )
        inside = lax.broadcast_in_dim(inside, tuple(result.shape), (0,))
        return lax.select(inside, rows, result), None

    return lax.scan(receive, output, (senders, table))[0]


def _column(x: Array) -> Array:
    return lax.expand_dims(lax.convert_element_type(x, np.int32), (1,))


class _Inlined(Primitive):
    """Recorded as what it is made of, whose collectives name the axis.

    >>> lax.ragged_all_to_all_p
    ragged_all_to_all
    """

    def bind(self, *args: Any, **params: Any) -> Any:
        return self.impl(*args, **params)


ragged_all_to_all_p = _Inlined("ragged_all_to_all")
ragged_all_to_all_p.def_impl(_run)


def psend(x: Any, axis_name: Hashable, perm: Sequence[tuple[int, int]]) -> NoReturn:
    """Sends between devices, of which there is one here: always a NotImplementedError.

    Args: x: a tree of arrays; axis_name: a mapped axis; perm: pairs of sender and receiver.

    >>> lax.psend(1.0, "i", [(0, 1)])
    Traceback (most recent call last):
    NotImplementedError: ...
    """
    raise NotImplementedError(_ONE_DEVICE.format("psend"))


def precv(
    token: Any, out_shape: Any, axis_name: Hashable, perm: Sequence[tuple[int, int]]
) -> NoReturn:
    """Receives from devices, of which there is one here: always a NotImplementedError.

    Args: token: what comes before; out_shape: the type of the result; axis_name: a mapped axis;
    perm: pairs of sender and receiver.

    >>> lax.precv(lax.create_token(), ferrax.ShapeDtypeStruct((), jnp.float32), "i", [(0, 1)])
    Traceback (most recent call last):
    NotImplementedError: ...
    """
    raise NotImplementedError(_ONE_DEVICE.format("precv"))


_ONE_DEVICE = (
    "lax.{}: there is one device, and nothing to send to or receive from. Instances of a mapped function"
    " exchange values by lax.ppermute"
)
