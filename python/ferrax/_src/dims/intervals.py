"""Arithmetic of intervals of integers, the ends of which may be infinite: pairs `(low, high)`.

Each function gives the least interval that is known to hold the operation's value for all values in
its operands' intervals. Ends are ints, or floats where they are infinite.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

INF = math.inf
Interval = tuple[int | float, int | float]
ALL: Interval = (-INF, INF)


def _product(a: int | float, b: int | float) -> int | float:
    return 0 if a == 0 or b == 0 else a * b


def plus(x: Interval, y: Interval) -> Interval:
    """The sum."""
    return x[0] + y[0], x[1] + y[1]


def scale(x: Interval, by: int) -> Interval:
    """The product with a constant."""
    ends = _product(x[0], by), _product(x[1], by)
    return ends if by >= 0 else (ends[1], ends[0])


def times(x: Interval, y: Interval) -> Interval:
    """The product."""
    ends = [_product(a, b) for a in x for b in y]
    return min(ends), max(ends)


def power(x: Interval, exponent: int) -> Interval:
    """The power with an exponent >= 1."""
    low, high = x[0] ** exponent, x[1] ** exponent
    if exponent % 2:
        return low, high
    return (0 if x[0] <= 0 <= x[1] else min(low, high)), max(low, high)


def product(intervals: Iterable[Interval]) -> Interval:
    """The product of all of them."""
    total: Interval = (1, 1)
    for interval in intervals:
        total = times(total, interval)
    return total


def floordiv(x: Interval, y: Interval) -> Interval:
    """The floor quotient; of divisors that may be 0 nothing is known."""
    if y[0] <= 0 <= y[1]:
        return ALL
    ends = [_quotient(a, b) for a in x for b in y]
    return min(ends), max(ends)


def _quotient(a: int | float, b: int | float) -> int | float:
    """The limit of `a // b` as infinite operands grow; of two infinite ones their sign's infinity."""
    same_sign = (a >= 0) == (b >= 0) or a == 0
    if isinstance(a, int) and isinstance(b, int):
        return a // b
    if isinstance(a, int):
        return 0 if same_sign else -1
    return INF if same_sign else -INF


def modulo(x: Interval, y: Interval) -> Interval:
    """The remainder, which has the divisor's sign."""
    if y[0] > 0:
        return 0, y[1] - 1
    if y[1] < 0:
        return y[0] + 1, 0
    return ALL


def largest(x: Interval, y: Interval) -> Interval:
    """The maximum."""
    return max(x[0], y[0]), max(x[1], y[1])


def smallest(x: Interval, y: Interval) -> Interval:
    """The minimum."""
    return min(x[0], y[0]), min(x[1], y[1])


OPERATIONS = {"floordiv": floordiv, "mod": modulo, "max": largest, "min": smallest}
