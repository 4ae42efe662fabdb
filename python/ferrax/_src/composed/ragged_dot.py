"""``lax.ragged_dot_general``: products of arrays of which one axis is divided into groups.

The groups lie one after the other along the ragged axis, and what lies behind them all belongs to none.
Large products go by tiles of that axis (`ragged_tiles`), for about the cost of one product. For small ones the ragged
operand is spread along a new axis of groups, with zeros where an element is of another group; the product over that
is a `dot_general`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ferrax._src.base import dtypes
from ferrax._src.composed import ragged_tiles
from ferrax._src.core import Array
from ferrax._src.core.typing import DTypeLike
from ferrax._src.lax import api as lax
from ferrax._src.lax.arguments import operand as _operand
from ferrax._src.lax.out_sharding import with_out_sharding
from ferrax._src.transforms.batching import vmap
from ferrax._src.transforms.composites import composite


@dataclasses.dataclass(frozen=True, init=False)
class RaggedDotDimensionNumbers:
    """The axes of ``lax.ragged_dot_general``.

    Args:
      dot_dimension_numbers: those of `dot_general`: ((lhs contracting, rhs contracting),
        (lhs batch, rhs batch)).
      lhs_ragged_dimensions: the one axis of the left operand that is divided into groups.
      rhs_group_dimensions: the axis of the right operand that has an entry for each group, where the
        ragged axis is not contracted and no batch; else none.

    >>> lax.RaggedDotDimensionNumbers((([1], [1]), ([], [])), [0], [0]).lhs_ragged_dimensions
    (0,)
    """

    dot_dimension_numbers: Any
    lhs_ragged_dimensions: tuple[int, ...]
    rhs_group_dimensions: tuple[int, ...]

    def __init__(
        self, dot_dimension_numbers: Any, lhs_ragged_dimensions: Sequence[int],
        rhs_group_dimensions: Sequence[int],
    ) -> None:
        fields = {
            "dot_dimension_numbers": tuple(tuple(map(tuple, pair)) for pair in dot_dimension_numbers),
            "lhs_ragged_dimensions": tuple(lhs_ragged_dimensions),
            "rhs_group_dimensions": tuple(rhs_group_dimensions),
        }
        for name, value in fields.items():
            object.__setattr__(self, name, value)


_SHORT = (np.dtype(np.float16), np.dtype(dtypes.bfloat16))
_ROWS = RaggedDotDimensionNumbers((((1,), (1,)), ((), ())), (0,), (0,))


def ragged_dot(
    lhs: Array, rhs: Array, group_sizes: Array, precision: Any = None,
    preferred_element_type: DTypeLike | None = None, group_offset: Array | None = None,
    out_sharding: Any = None,
) -> Array:
    """Products of groups of rows with a matrix for each group.

    Args:
      lhs: array (m, k): the rows.
      rhs: array (g, k, n): the matrices.
      group_sizes: integers (g,): how many rows are in each group, one after the other.
      precision, preferred_element_type: as for `dot_general`.
      group_offset: None; out_sharding: as for `dot_general`.

    Returns an array (m, n). Rows behind the last group give zeros.

    Errors: TypeError for shapes and dtypes that do not fit; NotImplementedError for a group_offset.

    >>> rows, matrices = jnp.ones((3, 2)), jnp.stack([jnp.eye(2), 2 * jnp.eye(2)])
    >>> lax.ragged_dot(rows, matrices, jnp.array([1, 1]))
    Array([[1., 1.],
           [2., 2.],
           [0., 0.]], dtype=float32)
    """
    return ragged_dot_general(
        lhs, rhs, group_sizes, _ROWS, precision, preferred_element_type, group_offset, out_sharding
    )


def ragged_dot_general(
    lhs: Array, rhs: Array, group_sizes: Array,
    ragged_dot_dimension_numbers: RaggedDotDimensionNumbers, precision: Any = None,
    preferred_element_type: DTypeLike | None = None, group_offset: Array | None = None,
    out_sharding: Any = None,
) -> Array:
    """`dot_general` with an axis that is divided into groups.

    Args:
      lhs, rhs: arrays.
      group_sizes: integers (g,), how many elements are in each group, one after the other; or such
        numbers for each index of the axes before the ragged one, (..., g).
      ragged_dot_dimension_numbers: which axes are contracted, batches, ragged and of groups. Of a
        ragged axis that is free, each group meets an entry of the right operand's axis of groups. One
        that is contracted gives a product for each group, in front of the result's axes. Of one that
        is a batch, groups make no difference.
      precision, preferred_element_type: as for `dot_general`.
      group_offset: None; out_sharding: as for `dot_general`.

    Errors: TypeError for axes, shapes and dtypes that do not fit; NotImplementedError for a
    group_offset.

    >>> numbers = lax.RaggedDotDimensionNumbers((([0], [0]), ([], [])), [0], [])
    >>> lax.ragged_dot_general(jnp.ones((3, 1)), jnp.ones((3, 1)), jnp.array([1, 2]), numbers).ravel()
    Array([1., 2.], dtype=float32)
    """
    if out_sharding is not None:
        return with_out_sharding(
            "ragged_dot_general", out_sharding, ragged_dot_general, lhs, rhs, group_sizes,
            ragged_dot_dimension_numbers, precision, preferred_element_type, group_offset,
        )  # fmt: skip
    if preferred_element_type is not None:
        preferred_element_type = dtypes.check_and_canonicalize_user_dtype(
            preferred_element_type, "ragged_dot_general"
        )
    return ragged_dot_general_p.bind(
        _operand(lhs, "ragged_dot_general"),
        _operand(rhs, "ragged_dot_general", 1),
        _operand(group_sizes, "ragged_dot_general", 2),
        ragged_dot_dimension_numbers=ragged_dot_dimension_numbers,
        precision=precision,
        preferred_element_type=preferred_element_type,
        group_offset=group_offset,
        out_sharding=None,
    )


def _outer(x: Array, axis: int, contract: Sequence[int], batch: Sequence[int]) -> list[int]:
    """The axes that group sizes may differ along: batches, and those of its kind before this one."""
    free = [i for i in range(x.ndim) if i not in contract and i not in batch]
    kind = next(list(axes) for axes in (contract, batch, free) if axis in axes)
    before = kind[: kind.index(axis)]
    return before if axis in batch else [*batch, *before]


def _checked(lhs: Array, rhs: Array, sizes: Array, numbers: RaggedDotDimensionNumbers) -> int:
    """The ragged axis, checked with the others."""
    name = "ragged_dot_general"
    if len(numbers.lhs_ragged_dimensions) != 1:
        raise TypeError(
            f"{name} expects exactly one lhs ragged dimension, got {numbers.lhs_ragged_dimensions}"
        )
    (ragged,) = numbers.lhs_ragged_dimensions
    if not 0 <= ragged < lhs.ndim:
        raise TypeError(
            f"{name}: lhs_ragged_dimensions names axis {ragged} of lhs of rank {lhs.ndim}; expected 0"
            f" to {lhs.ndim - 1}."
        )
    if not dtypes.issubdtype(sizes.dtype, np.integer):
        raise TypeError(f"{name}: group_sizes are integers, got {sizes.dtype}")
    if sizes.ndim == 0:
        raise TypeError(f"{name} requires group_sizes to have an axis, got a scalar")
    (l_contract, r_contract), (l_batch, r_batch) = numbers.dot_dimension_numbers
    if sizes.ndim > 1:
        expected = (*(lhs.shape[i] for i in _outer(lhs, ragged, l_contract, l_batch)), sizes.shape[-1])
        if tuple(sizes.shape) != expected:
            raise TypeError(
                f"expected group_sizes to have shape {expected}, got {tuple(sizes.shape)}."
            )
    groups = numbers.rhs_group_dimensions
    if ragged in l_contract or ragged in l_batch:
        if groups:
            raise TypeError(
                f"{name}: groups along a contracting or batch axis of lhs leave rhs without an axis of"
                f" groups, got rhs_group_dimensions={groups}"
            )
        return ragged
    if len(groups) != 1:
        raise TypeError(
            f"{name}: groups along a free axis of lhs need one axis of rhs that counts them, got"
            f" rhs_group_dimensions={groups}"
        )
    (group,) = groups
    if not 0 <= group < rhs.ndim:
        raise TypeError(
            f"{name}: rhs_group_dimensions names axis {group} of rhs of rank {rhs.ndim}; expected 0"
            f" to {rhs.ndim - 1}."
        )
    if group in r_batch or group in r_contract:
        raise TypeError(
            f"{name}: axis {group} of rhs counts the groups, and cannot be contracted or a batch axis"
            " too"
        )
    if rhs.shape[group] != sizes.shape[-1]:
        raise TypeError(
            f"{name}: group_sizes has {sizes.shape[-1]} groups, but axis {group} of rhs has size"
            f" {rhs.shape[group]}."
        )
    return ragged


def _spread(x: Array, axis: int, sizes: Array, outer: Sequence[int]) -> Array:
    """`x` with an axis of groups in front, zero where an element along `axis` is of another group.

    `sizes` is (g,), or has an axis for each of `outer` before that.
    """
    if sizes.ndim == 1:
        outer = []
    shape = (sizes.shape[-1], *x.shape)
    ends = lax.cumsum(sizes, axis=sizes.ndim - 1)
    bounds = [lax.sub(ends, sizes), ends]
    places = lax.broadcasted_iota(sizes.dtype, shape, axis + 1)
    starts, ends = (_in_order(b, shape, outer) for b in bounds)
    inside = lax.bitwise_and(lax.le(starts, places), lax.lt(places, ends))
    x = lax.broadcast_in_dim(x, shape, range(1, len(shape)))
    return lax.select(inside, x, lax.full_like(x, 0))


def _in_order(bounds: Array, shape: tuple[int, ...], outer: Sequence[int]) -> Array:
    """`bounds`, of axes `outer` and groups, in the shape of groups and all axes."""
    order = sorted(range(len(outer)), key=lambda i: outer[i])
    bounds = lax.transpose(bounds, (bounds.ndim - 1, *order))
    return lax.broadcast_in_dim(bounds, shape, (0, *(outer[i] + 1 for i in order)))


def _run(
    lhs: Array, rhs: Array, sizes: Array, *,
    ragged_dot_dimension_numbers: RaggedDotDimensionNumbers, precision: Any,
    preferred_element_type: Any, group_offset: Any, out_sharding: Any,
) -> Array:
    if group_offset is not None:
        raise NotImplementedError(
            "ragged_dot_general: group_offset is not available; slice rhs and group_sizes instead"
        )
    numbers = ragged_dot_dimension_numbers
    params = {
        "ragged_dot_dimension_numbers": numbers, "precision": precision,
        "preferred_element_type": preferred_element_type, "group_offset": None, "out_sharding": None,
    }  # fmt: skip
    ragged = _checked(lhs, rhs, sizes, numbers)
    (l_contract, r_contract), (l_batch, r_batch) = map(tuple, numbers.dot_dimension_numbers)

    def product(x, y, contracting, batch, dtype=preferred_element_type):
        return lax.dot_general(
            x, y, (contracting, batch), precision=precision, preferred_element_type=dtype
        )

    def after(axes):
        return [axis + 1 for axis in axes]

    if ragged in l_batch:
        return product(lhs, rhs, (l_contract, r_contract), (l_batch, r_batch))
    if sizes.ndim > 1 and _outer(lhs, ragged, l_contract, l_batch) == list(l_batch):
        return _each(lhs, rhs, sizes, numbers, params)
    if _by_tiles(lhs, rhs, sizes, ragged, numbers):
        dot_numbers = numbers.dot_dimension_numbers
        if ragged in l_contract:
            axes = ragged, r_contract[l_contract.index(ragged)]
            found = preferred_element_type or dtypes.result_type(lhs, rhs)
            # Of few bits only the sum of all tiles is rounded.
            kept = np.float32 if found in _SHORT else preferred_element_type
            return ragged_tiles.contracted_rows(
                lhs, rhs, sizes, axes, dot_numbers, lambda x, y, n: product(x, y, n[0], n[1], kept), found
            )
        group = numbers.rhs_group_dimensions[0]
        without = [tuple(axis - (axis > group) for axis in axes) for axes in (r_contract, r_batch)]
        return ragged_tiles.free_rows(
            lhs, rhs, sizes, ragged, group, ((l_contract, without[0]), (l_batch, without[1])),
            lambda x, y, n: product(x, y, n[0], n[1]),
        )  # fmt: skip
    if ragged in l_contract:
        other = r_contract[l_contract.index(ragged)]
        x = _spread(lhs, ragged, sizes, _outer(lhs, ragged, l_contract, l_batch))
        y = _spread(rhs, other, sizes, _outer(rhs, other, r_contract, r_batch))
        batch = ([0, *after(l_batch)], [0, *after(r_batch)])
        return product(x, y, (after(l_contract), after(r_contract)), batch)
    x = _spread(lhs, ragged, sizes, _outer(lhs, ragged, l_contract, l_batch))
    group = numbers.rhs_group_dimensions[0]
    contracting = ([*after(l_contract), 0], [*r_contract, group])
    return product(x, rhs, contracting, (after(l_batch), r_batch))


def _by_tiles(lhs: Array, rhs: Array, sizes: Array, ragged: int, numbers: RaggedDotDimensionNumbers) -> bool:
    if sizes.ndim > 1:
        return False
    shared = [*numbers.dot_dimension_numbers[0][1], *numbers.dot_dimension_numbers[1][1], *numbers.rhs_group_dimensions]
    work = math.prod(lhs.shape) * math.prod(size for axis, size in enumerate(rhs.shape) if axis not in shared)
    return ragged_tiles.pays(lhs.shape[ragged], sizes.shape[0], work)


def _each(lhs: Array, rhs: Array, sizes: Array, numbers: RaggedDotDimensionNumbers, params: Any) -> Array:
    """The products of batches, each of which has sizes of its own, by the first batch axis."""
    contract, (l_batch, r_batch) = numbers.dot_dimension_numbers
    gone = l_batch[0], r_batch[0]

    def without(axes, side):
        return tuple(axis - (axis > gone[side]) for axis in axes if axis != gone[side])

    inner = RaggedDotDimensionNumbers(
        (
            (without(contract[0], 0), without(contract[1], 1)),
            (without(l_batch, 0), without(r_batch, 1)),
        ),
        without(numbers.lhs_ragged_dimensions, 0),
        without(numbers.rhs_group_dimensions, 1),
    )

    def one(x, y, counts):
        return _run(x, y, counts, **(params | {"ragged_dot_dimension_numbers": inner}))

    out = 1 if numbers.lhs_ragged_dimensions[0] in contract[0] else 0
    return vmap(one, (*gone, 0), out)(lhs, rhs, sizes)


ragged_dot_general_p = composite("ragged_dot_general", _run)
