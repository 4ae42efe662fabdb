"""``lax.approx_max_k`` and ``lax.approx_min_k``.

The results are exact here, which any recall target allows. How many there are without aggregation
follows Chern et al., "TPU-KNN: K Nearest Neighbor Search at Peak FLOP/s" (2022): the input is reduced
by a power of two to bins, so many that the chance of two of the k best in one bin meets the target.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ferrax._src.base import dtypes
from ferrax._src.core import Array
from ferrax._src.core.typing import ArrayLike
from ferrax._src.lax import api as lax
from ferrax._src.lax.arguments import canonical_axis, operand as _operand
from ferrax._src.transforms.composites import composite


def approx_max_k(
    operand: ArrayLike, k: int, reduction_dimension: int = -1, recall_target: float = 0.95,
    reduction_input_size_override: int = -1, aggregate_to_topk: bool = True,
) -> tuple[Array, Array]:
    """The ``k`` largest elements along an axis, in descending order, and their places.

    Args:
      operand: array of floats of rank 1 or more.
      k: how many.
      reduction_dimension: the axis.
      recall_target: the share of the largest that have to be found, in (0, 1]; here all are.
      reduction_input_size_override: the size that the number of results follows from where they are
        not aggregated; -1 for that of the axis.
      aggregate_to_topk: whether there are k results, or as many as an approximate search leaves.

    Returns the elements and their int32 indices along the axis.

    Errors: ValueError for a dtype that is not floating, for k below 1 or above the size of the axis,
    and a recall target out of range; TypeError for a scalar.

    Source: Chern et al., "TPU-KNN: K Nearest Neighbor Search at Peak FLOP/s", 2022.

    >>> lax.approx_max_k(jnp.array([1.0, 3.0, 2.0]), 2)
    (Array([3., 2.], dtype=float32), Array([1, 2], dtype=int32))
    """
    return _find(
        operand, k, reduction_dimension, recall_target, True, reduction_input_size_override,
        aggregate_to_topk,
    )


def approx_min_k(
    operand: ArrayLike, k: int, reduction_dimension: int = -1, recall_target: float = 0.95,
    reduction_input_size_override: int = -1, aggregate_to_topk: bool = True,
) -> tuple[Array, Array]:
    """The ``k`` smallest elements along an axis, in ascending order, and their places.

    Args: operand, k, reduction_dimension, recall_target, reduction_input_size_override,
    aggregate_to_topk: as for `approx_max_k`, with its errors.

    Source: Chern et al., "TPU-KNN: K Nearest Neighbor Search at Peak FLOP/s", 2022.

    >>> lax.approx_min_k(jnp.array([1.0, 3.0, 2.0]), 2)
    (Array([1., 2.], dtype=float32), Array([0, 2], dtype=int32))
    """
    return _find(
        operand, k, reduction_dimension, recall_target, False, reduction_input_size_override,
        aggregate_to_topk,
    )


def _find(operand, k, dimension, recall, is_max, override, aggregate) -> tuple[Array, Array]:
    values, places = approx_top_k_p.bind(
        _operand(operand, "approx_top_k"),
        k=k,
        reduction_dimension=dimension,
        recall_target=recall,
        is_max_k=is_max,
        reduction_input_size_override=override,
        aggregate_to_topk=aggregate,
    )
    return values, places


def _reduced_size(size: int, rank: int, k: int, recall: float, override: int) -> int:
    """How many elements an approximate search leaves, in tiles of its vectors."""
    tile = 1024 if rank == 1 else 128
    if size <= tile:
        return size
    if k == 1:
        return tile
    if recall == 1:
        return size
    full = override if override >= 0 else size
    bins = min(max(int((1 - k) / math.log(recall)), tile), full)
    halvings = (full // bins).bit_length() - 1
    if halvings == 0:
        return size
    halvings = min(halvings, (size // tile - 1).bit_length())
    return math.ceil(math.ceil(size / tile) / 2**halvings) * tile


def _run(
    operand: Array, *, k: int, reduction_dimension: int, recall_target: float, is_max_k: bool,
    reduction_input_size_override: int, aggregate_to_topk: bool,
) -> list[Any]:
    if k <= 0:
        raise ValueError(f"approx_top_k: k must be positive, got {k}")
    if operand.ndim == 0:
        raise TypeError("approx_top_k: expected an array with an axis to choose along, got a scalar")
    axis = canonical_axis(reduction_dimension, operand.ndim)
    size = operand.shape[axis]
    if size < k:
        raise ValueError(f"approx_top_k: cannot choose k={k} of {size} elements along axis {axis}")
    if not dtypes.issubdtype(operand.dtype, np.floating):
        raise ValueError(f"approx_top_k: expected floating elements, got {operand.dtype}")
    if not 0 < recall_target <= 1:
        raise ValueError(f"recall_target has to be in (0, 1], got {recall_target}")
    if 0 <= reduction_input_size_override < size:
        raise ValueError(
            f"reduction_input_size_override has to be -1 or at least {size}, the size of the axis,"
            f" got {reduction_input_size_override}"
        )
    if not aggregate_to_topk:
        k = _reduced_size(size, operand.ndim, k, recall_target, reduction_input_size_override)
    if is_max_k:
        return lax.top_k(operand, k, axis=axis)
    values, places = lax.top_k(lax.neg(operand), k, axis=axis)
    return [lax.neg(values), places]


approx_top_k_p = composite("approx_top_k", _run, multiple_results=True)
