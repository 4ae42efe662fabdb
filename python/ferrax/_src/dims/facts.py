"""What holds of terms whatever the sizes are: their intervals, and inequalities between them.

A variable is at least 1. An operation is between what its operands allow, and its definition gives
inequalities: `x == y*floordiv(x, y) + mod(x, y)`, `max(x, y) >= x`. A product is between the products
of its factors' ends. `further` adds what is rarely needed: a product is at least a factor times the
least of the others, a remainder at most its dividend.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ferrax._src.base.errors import InconclusiveDimensionOperation
from ferrax._src.dims import intervals
from ferrax._src.dims.intervals import INF, Interval
from ferrax._src.dims.linear import Form, combine, multiply
from ferrax._src.dims.terms import ONE, Factor, Term

# The bounds of an operand, an int or an expression, or of a factor of a product, as a term.
Bounds = Callable[[Any], Interval]


def form_of(size: Any) -> Form:
    """The terms of an int or an expression, with their coefficients."""
    if isinstance(size, int):
        return {ONE: size} if size else {}
    return dict(size.terms)


def facts_of(term: Term, bounds: Bounds, further: bool, strict: bool) -> tuple[Interval, list[Form]]:
    """The interval of a term, and forms that are at least 0.

    Errors: InconclusiveDimensionOperation for a division that may be by 0, if `strict`.
    """
    factor = term.factor
    if factor is None:
        return _product_facts(term, bounds, further)
    if not factor.operands:
        return (1, INF), []
    own: Form = {term: 1}
    left, right = factor.operands
    x, y = form_of(left), form_of(right)
    span = intervals.OPERATIONS[factor.name](*map(bounds, factor.operands))
    if factor.name == "max":
        return span, [combine(own, 1, x, -1), combine(own, 1, y, -1)]
    if factor.name == "min":
        return span, [combine(x, 1, own, -1), combine(y, 1, own, -1)]
    divisor = bounds(right)
    if divisor[0] <= 0 <= divisor[1]:
        if strict and factor.name == "floordiv":
            raise InconclusiveDimensionOperation(f"Possible division by 0 in division by {right}")
        return span, []
    other = Term.of(Factor("mod" if factor.name == "floordiv" else "floordiv", (left, right)))
    # dividend == divisor * quotient + remainder
    if factor.name == "floordiv":
        rest = combine(combine(x, 1, {other: 1}, -1), 1, multiply(y, term), -1)
        return span, [rest, combine(rest, -1, {}, 0)]
    sign = 1 if divisor[0] > 0 else -1
    below = combine(combine(y, sign, own, -sign), 1, {ONE: 1}, -1)
    facts = [below]
    if further:
        rest = combine(combine(x, 1, own, -1), 1, multiply(y, other), -1)
        facts += [rest, combine(rest, -1, {}, 0)]
        if sign > 0 and bounds(left)[0] >= 0:
            facts.append(combine(x, 1, own, -1))
    return span, facts


def _product_facts(term: Term, bounds: Bounds, further: bool) -> tuple[Interval, list[Form]]:
    spans = {factor: bounds(Term.of(factor)) for factor, _ in term.factors}
    span = intervals.product(intervals.power(spans[factor], power) for factor, power in term.factors)
    facts: list[Form] = []
    for factor in spans if further else ():
        rest = term.over(Term.of(factor))
        assert rest is not None
        rest_span = intervals.product(intervals.power(spans[f], n) for f, n in rest.factors)
        low, high = spans[factor]
        if rest_span[0] >= 0:
            if low > -INF:
                facts.append(combine({term: 1}, 1, {rest: 1}, -int(low)))
            if high < INF:
                facts.append(combine({rest: int(high)}, 1, {term: 1}, -1))
    return span, facts


def meet(x: Interval, y: Interval) -> Interval:
    """The common part of two intervals, which may be empty: then its ends are exchanged."""
    return max(x[0], y[0]), min(x[1], y[1])


def span_facts(spans: dict[Term, Interval]) -> list[Form]:
    """Intervals as forms that are at least 0."""
    facts: list[Form] = []
    for term, (low, high) in spans.items():
        if low > -INF:
            facts.append(combine({term: 1}, 1, {ONE: int(low)}, -1))
        if high < INF:
            facts.append(combine({ONE: int(high)}, 1, {term: 1}, -1))
    return facts
