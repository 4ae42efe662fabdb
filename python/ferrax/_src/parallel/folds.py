"""Sums and extrema of what devices hold: elementwise, in an order that neither processes nor sizes change.

Values are folded in *adjacent pairs* of their group: `((x0 + x1) + (x2 + x3)) + x4`; of more than a power of two the
largest power of two that is less comes first. So a run of a power of two of them, from a multiple of it on, is a
subtree, whose fold may be made wherever its values are, and the bits are the same. Floats of fewer than 32 bits are
summed in 32 and rounded once at the end, as on one device.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from ferrax._src.base import dtypes
from ferrax._src.parallel.algorithms import Fold

T = TypeVar("T")
# Places in a group: from the first up to before the second.
Node = tuple[int, int]


def _half(count: int) -> int:
    """How many of so many values are in the first subtree: the largest power of two that is less."""
    return 1 << (count - 1).bit_length() - 1


def nodes(owners: Sequence[T]) -> list[tuple[T, Node]]:
    """The largest subtrees each of which one owner has, with the owner, in order.

    >>> nodes([0, 0, 0, 0, 1, 1])
    [(0, (0, 4)), (1, (4, 6))]
    """

    def cut(low, high):
        if all(owner == owners[low] for owner in owners[low + 1 : high]):
            return [(owners[low], (low, high))]
        middle = low + _half(high - low)
        return cut(low, middle) + cut(middle, high)

    return cut(0, len(owners))


def folded(fold: Fold, low: int, high: int, known: dict[Node, np.ndarray]) -> np.ndarray:
    """The fold of values from place `low` up to `high`, of those of the subtrees that are known."""
    found = known.get((low, high))
    if found is None:
        middle = low + _half(high - low)
        first, second = folded(fold, low, middle, known), folded(fold, middle, high, known)
        found = fold(first, second, np.empty(first.shape, first.dtype))
    return found


def _sum(first, second, out):
    with np.errstate(all="ignore"):
        return np.add(first, second, out=out)


def _extremum(ufunc, above) -> Fold:
    def fold(first, second, out):
        with np.errstate(all="ignore"):
            found = ufunc(first, second)
        # Of zeros of both signs vector and scalar instructions choose differently: 0.0 is above -0.0 everywhere.
        if dtypes.issubdtype(first.dtype, np.floating) and not found.all():
            sign = first.dtype.type(above)
            zeros = (first == 0) & (second == 0)
            found = np.where(zeros, sign * (sign * first + sign * second), found)
        out[...] = found
        return out

    return fold


FOLDS: dict[str, Fold] = {
    "psum": _sum,
    "pmax": _extremum(np.maximum, 1),
    "pmin": _extremum(np.minimum, -1),
}


def wide(kind: str, dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype that values of a dtype are folded in."""
    narrow = dtypes.issubdtype(dtype, np.floating) and dtype.itemsize < 4
    return np.dtype(np.float32) if kind == "psum" and narrow else dtype
