"""What is known of the values of symbolic dimensions: bounds and signs, from a scope's constraints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ferrax._src.base.errors import InconclusiveDimensionOperation
from ferrax._src.dims import intervals
from ferrax._src.dims.expressions import _DimExpr
from ferrax._src.dims.intervals import Interval
from ferrax._src.dims.terms import Term


class Decider:
    """Answers for one set of constraints."""

    def __init__(self, constraints: Sequence[tuple[_DimExpr, bool, str]]) -> None:
        self.constraints = constraints

    def check(self) -> None:
        pass

    def _term(self, term: Term) -> Interval:
        return intervals.product(intervals.power(self._factor(f), n) for f, n in term.factors)

    def _factor(self, factor: Any) -> Interval:
        if not factor.operands:
            return 1, intervals.INF
        return intervals.OPERATIONS[factor.name](*map(self.bounds, factor.operands))

    def bounds(self, dim: Any) -> Interval:
        """The least and largest value."""
        if isinstance(dim, int):
            return dim, dim
        total: Interval = (0, 0)
        for term, count in dim.terms:
            total = intervals.plus(total, intervals.scale(self._term(term), count))
        return total

    def at_least_zero(self, dim: _DimExpr) -> bool | None:
        low, high = self.bounds(dim)
        return True if low >= 0 else False if high < 0 else None

    def order(self, dim: _DimExpr) -> int | None:
        low, high = self.bounds(dim)
        return 1 if low >= 0 else -1 if high <= 0 else None


def known_ge(a: Any, b: Any) -> bool | None:
    """Whether `a >= b` for all sizes (True), for none (False), or None: not known."""
    difference = a - b
    if isinstance(difference, _DimExpr):
        try:
            return difference.scope.at_least_zero(difference)
        except InconclusiveDimensionOperation:
            return None
    return bool(difference >= 0)
