"""``sort``, ``sort_key_val`` and ``top_k`` of ``ferrax.lax``."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, overload

import numpy as np

from ferrax._core import Array, bind
from ferrax._src.core.typing import ArrayLike
from ferrax._src.lax.arguments import canonical_axis as _canonical_axis, operand as _operand

__all__ = ["sort", "sort_key_val", "top_k"]


@overload
def sort(
    operand: Array | np.ndarray, dimension: int = -1, is_stable: bool = True, num_keys: int = 1
) -> Array: ...
@overload
def sort(
    operand: Sequence[ArrayLike], dimension: int = -1, is_stable: bool = True, num_keys: int = 1
) -> tuple[Array, ...]: ...
def sort(
    operand: Array | np.ndarray | Sequence[ArrayLike], dimension: int = -1,
    is_stable: bool = True, num_keys: int = 1,
) -> Array | tuple[Array, ...]:
    """Sorts arrays along an axis, by the first of them.

    Args:
      operand: an array, or a sequence of arrays of one shape, of any dtypes.
      dimension: the axis.
      is_stable: whether equal keys keep their order; here they always do.
      num_keys: how many of the arrays are keys. Later ones decide where earlier ones are equal.

    Returns an array, or a tuple of arrays, of the same shapes and dtypes: the keys in order, the
    other arrays permuted along with them. Numbers ascend, -0.0 and 0.0 are equal, NaN comes last;
    complex numbers go by their real and then by their imaginary part.

    Errors: TypeError without operands, for unequal shapes and for keys of dtypes without an order;
    ValueError for an axis out of bounds and a wrong number of keys.

    >>> lax.sort((jnp.array([2, 1, 2]), jnp.array([7, 8, 9])))
    (Array([1, 2, 2], dtype=int32), Array([8, 7, 9], dtype=int32))
    """
    single = not isinstance(operand, Sequence)
    operands: tuple[Any, ...] = (operand,) if single else tuple(operand)
    if not operands:
        raise TypeError("sort: got no operands; at least one is needed")
    num_keys = operator.index(num_keys)
    if single and num_keys != 1:
        raise ValueError(f"sort: one operand has one key, got num_keys={num_keys}")
    if not 1 <= num_keys <= len(operands):
        raise ValueError(
            f"sort: num_keys has to be 1 to {len(operands)}, the number of operands, got "
            f"{num_keys}"
        )
    arrays = tuple([_operand(x, "sort", i) for i, x in enumerate(operands)])
    shapes = [tuple(x.shape) for x in arrays]
    dimension = _canonical_axis(dimension, len(shapes[0]))
    if any(shape != shapes[0] for shape in shapes):
        raise TypeError(
            f"sort: all operands need one shape, got {', '.join(map(str, shapes))}"
        )
    params = {"dimension": dimension, "is_stable": bool(is_stable), "num_keys": num_keys}
    results = bind("sort", arrays, params)
    if single:
        return results
    return tuple(results) if len(arrays) > 1 else (results,)


def sort_key_val(
    keys: Array, values: ArrayLike, dimension: int = -1, is_stable: bool = True,
) -> tuple[Array, Array]:
    """``keys`` in order along an axis, and ``values`` of the same shape permuted along; see `sort`.

    >>> lax.sort_key_val(jnp.array([2, 1]), jnp.array([7, 8]))
    (Array([1, 2], dtype=int32), Array([8, 7], dtype=int32))
    """
    keys = _operand(keys, "sort_key_val")
    ordered, moved = sort((keys, values), _canonical_axis(dimension, keys.ndim), is_stable)
    return ordered, moved


def top_k(operand: ArrayLike, k: int, *, axis: int = -1, is_stable: bool = True) -> list[Array]:
    """The ``k`` largest elements along an axis, in descending order, and their places.

    Args:
      operand: an array, not complex.
      k: how many.
      axis: the axis.
      is_stable: whether of equal elements the first has to go first, as it always does.

    Returns a list of the elements and int32 indices, both with size ``k`` along the axis. NaN counts as the
    largest number, 0.0 as larger than -0.0; of equal elements the first goes first.

    Errors: ValueError for complex operands, an axis out of bounds, and ``k`` that is negative or
    larger than the axis.

    >>> lax.top_k(jnp.array([1.0, 3.0, 2.0]), 2)
    [Array([3., 2.], dtype=float32), Array([1, 2], dtype=int32)]
    """
    k = operator.index(k)
    if k < 0:
        raise ValueError(f"top_k: k has to be 0 or more, got {k}")
    operand = _operand(operand, "top_k")
    params = {"axis": _canonical_axis(axis, operand.ndim), "k": k}
    return bind("top_k", (operand,), params)
