"""Arithmetic of sizes, which are ints or symbolic dimensions: what code over shapes calls.

Every function gives for ints what Python gives, and for symbolic dimensions what holds for all their
sizes. Where the code needs a decision that is not known for all of them, it raises
InconclusiveDimensionOperation, or takes a default (`known_ge`).
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any

from ferrax._src.base.errors import InconclusiveDimensionOperation
from ferrax._src.dims.decisions import known_ge
from ferrax._src.dims.expressions import _DimExpr, as_operand, extreme


def as_dim(size: Any) -> Any:
    """An int or a symbolic dimension: anything else by its `__index__`.

    Errors: what `operator.index` raises.
    """
    if type(size) is int or isinstance(size, _DimExpr):
        return size
    return int(operator.index(size))


def is_constant_dim(d: Any) -> bool:
    """Whether a size is an integer, not symbolic and not traced."""
    return not isinstance(d, _DimExpr) and as_operand(d) is not None


def is_dim(d: Any) -> bool:
    """Whether a value is a size: an integer or a symbolic dimension."""
    return isinstance(d, _DimExpr) or as_operand(d) is not None


def is_constant_shape(s: Iterable[Any]) -> bool:
    """Whether all sizes are integers."""
    return all(map(is_constant_dim, s))


def definitely_equal(a: Any, b: Any) -> bool:
    """Whether two sizes are equal for all values of the variables. False for what is no size."""
    if a is b:
        return True
    x, y = as_operand(a), as_operand(b)
    return x is not None and y is not None and bool(x == y)


def definitely_equal_one_of_dim(d: Any, others: Iterable[Any]) -> bool:
    """Whether a size is equal to one of the others, the same for all values of the variables."""
    return any(definitely_equal(d, other) for other in others)


def definitely_equal_shape(a: Sequence[Any], b: Sequence[Any]) -> bool:
    """Whether two shapes are equal for all values of the variables."""
    return len(a) == len(b) and all(map(definitely_equal, a, b))


def product(sizes: Iterable[Any]) -> Any:
    """The number of elements of a shape."""
    total: Any = 1
    for size in sizes:
        total = total * size
    return total


def surely_below(a: Any, b: Any) -> bool:
    """Whether `a < b` for all values of the variables."""
    return known_ge(a, b) is False


def surely_negative(sizes: Iterable[Any]) -> bool:
    """Whether one of some sizes is negative for all values of the variables."""
    return any(surely_below(size, 0) for size in sizes)


def max_dim(d1: Any, d2: Any) -> Any:
    """The larger of two sizes: one of them where it is known which, else the dimension `max(d1, d2)`.

    Args: d1, d2: ints or symbolic dimensions.

    >>> ferrax.core.max_dim(2, 3)
    3
    """
    return extreme("max", d1, d2)


def min_dim(d1: Any, d2: Any) -> Any:
    """The smaller of two sizes: one of them where it is known which, else the dimension `min(d1, d2)`.

    Args: d1, d2: ints or symbolic dimensions.

    >>> (batch,) = ferrax.export.symbolic_shape("batch")
    >>> ferrax.core.min_dim(batch, 8), ferrax.core.min_dim(batch, 1)
    (min(batch, 8), 1)
    """
    return extreme("min", d1, d2)


def non_negative_dim(d: Any) -> Any:
    """The size, or 0 where it is negative."""
    return extreme("max", d, 0)


def divide_shape_sizes(a: Sequence[Any], b: Sequence[Any]) -> Any:
    """The size that times the number of elements of shape `b` is that of `a`; 1 if both are equal.

    Errors: InconclusiveDimensionOperation if there is none for all values of the variables.
    """
    whole, part = product(a), product(b)
    if definitely_equal(whole, part):
        return 1
    quotient, rest = divmod(whole, part) if not definitely_equal(part, 0) else (0, whole)
    if not definitely_equal(rest, 0):
        raise InconclusiveDimensionOperation(
            f"Cannot divide evenly the sizes of shapes {tuple(a)} and {tuple(b)}: {whole} elements over {part} "
            f"leave {rest}, which should be 0."
        )
    return quotient


def cancel_divide(a: Sequence[Any], b: Sequence[Any]) -> Any:
    """`divide_shape_sizes`, or None where there is no such size."""
    try:
        return divide_shape_sizes(a, b)
    except InconclusiveDimensionOperation:
        return None


def is_empty_shape(s: Iterable[Any]) -> bool:
    """Whether a shape has no elements whatever the variables are."""
    return any(definitely_equal(size, 0) for size in s)


def dilate_dim(d: Any, dilation: Any) -> Any:
    """The size of `d` elements with `dilation - 1` holes between them: 0 of none."""
    if definitely_equal(dilation, 1):
        return d
    return max_dim(1 + dilation * (d - 1), 0)


def stride_dim(d: Any, window_size: Any, window_stride: Any) -> Any:
    """How many windows of a size (>= 1) and a stride (>= 1) there are in `d` elements."""
    return max_dim((d - window_size) // window_stride + 1, 0)


def canonicalize_slice(s: slice, axis_size: Any) -> tuple[Any, Any, Any]:
    """The start, the step and the number of elements of `x[s]`, for an axis of a size.

    Errors: ValueError for a step of 0; InconclusiveDimensionOperation if the sign of the step, the start
        or the stop is not the same for all values of the variables.
    """
    step = 1 if s.step is None else as_dim(s.step)
    if definitely_equal(step, 0):
        raise ValueError("slice step cannot be zero")
    forward = _sign(step > 0 if isinstance(step, int) else None, step, "step", "> 0 or < 0")
    # Positions from `low` to `high` are what ends are clamped to.
    low, high = (0, axis_size) if forward else (-1, axis_size - 1)

    def clamp(index: Any, default: Any, which: str) -> Any:
        if index is None:
            return default
        index = as_dim(index)
        if _sign(None, index, which, ">= 0"):
            return min_dim(high, index)
        return max_dim(low, axis_size + index)

    start = clamp(s.start, low if forward else high, "start")
    stop = clamp(s.stop, high if forward else low, "stop")
    gap, distance = (step, stop - start) if forward else (-step, start - stop)
    return start, step, max_dim(0, distance + gap - 1) // gap


def _sign(known: bool | None, size: Any, which: str, how: str) -> bool:
    """Whether `size >= 0`, which must be the same for all sizes."""
    if known is not None:
        return known
    try:
        return bool(size >= 0)
    except InconclusiveDimensionOperation as error:
        raise InconclusiveDimensionOperation(
            f"In slice with non-constant elements the {which} ({size}) must be resolved statically if it is {how}. "
            f"{error}"
        ) from None
