"""Small helpers without dependencies."""

from __future__ import annotations

import operator


def safe_zip(*sequences):
    """A list of tuples. Errors: ValueError if the lengths differ."""
    return list(zip(*sequences, strict=True))


def safe_map(function, *sequences):
    """A list of results. Errors: ValueError if the lengths differ."""
    return [function(*items) for items in zip(*sequences, strict=True)]


def canonicalize_axis(axis, rank) -> int:
    """The axis as a number in `range(rank)`. Errors: ValueError if it is out of bounds."""
    axis = operator.index(axis)
    if not -rank <= axis < rank:
        raise ValueError(f"axis {axis} is out of bounds for array of dimension {rank}")
    return axis + rank if axis < 0 else axis
