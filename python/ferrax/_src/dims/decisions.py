"""What is known of the values of symbolic dimensions: bounds and signs.

A `Decider` holds the facts that a scope's constraints give, one constraint after another. For an
expression it adds the facts about its terms (`facts.py`), narrows their intervals and takes the best
bound that linear combinations give (`linear.py`). The largest max or min in it is replaced by either
operand too. Where a sign stays open, a second pass adds the further facts and goes through the cases
of several max and min, each with what holds in it.

Every bound is one that holds for all sizes; none is promised to be the best. Answers are kept for
each expression. A sum of variables without constraints costs no more than its terms.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

from ferrax._src.base.errors import InconclusiveDimensionOperation
from ferrax._src.dims import intervals
from ferrax._src.dims.expressions import _DimExpr
from ferrax._src.dims.facts import facts_of, form_of, meet, span_facts
from ferrax._src.dims.intervals import ALL, INF, Interval
from ferrax._src.dims.linear import Contradiction, Form, combine, lower_bound, rounded, tighten
from ferrax._src.dims.terms import ONE, Term

# How many max and min are replaced by an operand one after another: each doubles the cost. Of more
# facts than that none is: their bounds are those of intervals and of one linear program.
MAX_REPLACED = 4
MAX_CASES = 3
MAX_FACTS = 60


class Decider:
    """Answers for a list of constraints: those of `before`, and one more if it is given.

    Errors: ValueError if no sizes satisfy them.
    """

    def __init__(
        self, before: Decider | None = None, difference: _DimExpr | None = None, equal: bool = False, text: str = ""
    ) -> None:
        self.facts: list[Form] = list(before.facts) if before else []
        # Intervals of terms in constraints, and of no others.
        self.spans: dict[Term, Interval] = dict(before.spans) if before else {}
        self._bounds: dict[Any, Interval] = {}
        self._signs: dict[_DimExpr, tuple[bool | None, int | None]] = {}
        if before is not None and difference is not None:
            form = form_of(difference)
            try:
                self._add([form, combine(form, -1, {}, 0)] if equal else [form], before)
            except Contradiction:
                raise ValueError(f"Unsatisfiable constraint: {text}") from None

    def _add(self, forms: list[Form], before: Decider) -> None:
        facts, spans = before._about((term for form in forms for term in form), False, False)
        facts += filter(None, map(rounded, forms))
        tighten(facts, spans)
        lower_bound(forms[0], facts + span_facts(spans))
        self.facts, self.spans = facts, spans

    # Facts for one question.

    def _operand(self, operand: Any) -> Interval:
        """Bounds of an operand, or of a factor of a product, which is given as a term."""
        if isinstance(operand, int):
            return operand, operand
        if not isinstance(operand, Term):
            return self.bounds(operand)
        factor, span = operand.factor, self.spans.get(operand, ALL)
        assert factor is not None
        if not factor.operands:
            return meet((1, INF), span)
        if factor.name in ("max", "min"):
            scope = next(x.scope for x in factor.operands if isinstance(x, _DimExpr))
            return self.bounds(_DimExpr(((operand, 1),), scope))
        # Not of the expression: the facts about a quotient have products with itself.
        return meet(intervals.OPERATIONS[factor.name](*map(self._operand, factor.operands)), span)

    def _about(
        self, terms: Iterable[Term], further: bool, strict: bool
    ) -> tuple[list[Form], dict[Term, Interval]]:
        """All facts for a question about these terms: forms that are at least 0, and intervals.

        Errors: InconclusiveDimensionOperation for a division that may be by 0, if `strict`.
        """
        facts, spans = list(self.facts), dict(self.spans)
        bounds = self._operand if strict else self._any_operand
        seen: set[Term] = {ONE}
        queue = list(terms)
        while queue:
            term = queue.pop()
            if term in seen:
                continue
            seen.add(term)
            span, forms = facts_of(term, bounds, further, strict)
            spans[term] = meet(spans.get(term, ALL), span)
            facts += filter(None, map(rounded, forms))
            for form in forms:
                queue.extend(form)
        return facts, spans

    def _any_operand(self, operand: Any) -> Interval:
        try:
            return self._operand(operand)
        except InconclusiveDimensionOperation:
            return ALL

    def _is_linear(self, dim: _DimExpr) -> bool:
        """Whether it is a sum of variables of which nothing is known."""
        return not self.facts and all(
            term.is_constant or (term.factor is not None and not term.factor.operands) for term, _ in dim.terms
        )

    # Bounds.

    def bounds(self, dim: _DimExpr) -> Interval:
        """The least and the largest value that are known; infinite where none is.

        Errors: InconclusiveDimensionOperation if it has a division that may be by 0.
        """
        known = self._bounds.get(dim)
        if known is None:
            known = self._bounds[dim] = self._find_bounds(dim)
        return known

    def _find_bounds(self, dim: _DimExpr) -> Interval:
        form = form_of(dim)
        facts, spans = self._about(form, False, True)
        apart = dict(spans)
        if facts:
            try:
                tighten(facts, spans)
                facts += span_facts(spans)
                replaced = MAX_REPLACED if len(facts) <= MAX_FACTS else 0
                return (
                    _lower_replaced(form, facts, replaced),
                    -_lower_replaced(combine(form, -1, {}, 0), facts, replaced),
                )
            except Contradiction:  # Constraints that no sizes satisfy, which was not noticed before.
                pass
        total: Interval = (0, 0)
        for term, count in dim.terms:
            total = intervals.plus(total, intervals.scale(apart.get(term, (1, 1)), count))
        return total

    # Signs.

    def at_least_zero(self, dim: _DimExpr) -> bool | None:
        """Whether `dim >= 0`: for all sizes, for none, or None.

        Errors: InconclusiveDimensionOperation if it has a division that may be by 0.
        """
        return self._sign(dim)[0]

    def order(self, dim: _DimExpr) -> int | None:
        """1 if `dim >= 0` for all sizes, -1 if `dim <= 0`, or None."""
        try:
            return self._sign(dim)[1]
        except InconclusiveDimensionOperation:
            return None

    def _sign(self, dim: _DimExpr) -> tuple[bool | None, int | None]:
        known = self._signs.get(dim)
        if known is None:
            low, high = self.bounds(dim)
            if low < 0 <= high and not self._is_linear(dim):
                low, high = self._further_bounds(dim, low, high)
            at_least = True if low >= 0 else False if high < 0 else None
            known = self._signs[dim] = at_least, 1 if low >= 0 else -1 if high <= 0 else None
        return known

    def _further_bounds(self, dim: _DimExpr, low: int | float, high: int | float) -> Interval:
        form = form_of(dim)
        try:
            facts, spans = self._about(form, True, True)
            tighten(facts, spans)
        except Contradiction:
            return low, high
        facts += span_facts(spans)
        if len(facts) > MAX_FACTS:
            return low, high
        cases = sorted((term for term in spans if _is_extreme(term)), reverse=True)[:MAX_CASES]
        low = max(low, _lower_by_cases(form, facts, cases))
        if low < 0:
            high = min(high, -_lower_by_cases(combine(form, -1, {}, 0), facts, cases))
        return low, high


def _is_extreme(term: Term) -> bool:
    return term.factor is not None and term.factor.operation in ("max", "min")


def _lower_replaced(form: Form, facts: list[Form], replaced: int) -> int | float:
    """A lower bound of a form, also with its largest max and min replaced by their operands."""
    low = lower_bound(form, facts)
    term = max(filter(_is_extreme, form), default=None) if replaced else None
    if term is None:
        return low
    assert term.factor is not None
    count = form[term]
    rest = combine(form, 1, {term: count}, -1)
    # A multiple of a maximum is the maximum of the multiples, or with a negative count their minimum.
    is_largest = (count > 0) == (term.factor.name == "max")
    ends: list[int | float] = []
    for operand in term.factor.operands:
        ends.append(_lower_replaced(combine(rest, 1, form_of(operand), count), facts, replaced - 1))
        if not is_largest and ends[-1] <= low:
            return low
    return max(low, max(ends) if is_largest else min(ends))


def _lower_by_cases(form: Form, facts: list[Form], cases: list[Term]) -> int | float:
    """A lower bound of a form that holds in every case of which operand a max or min is."""
    try:
        low = lower_bound(form, facts)
    except Contradiction:
        return INF
    if low >= 0 or not cases:
        return low
    term, *cases = cases
    assert term.factor is not None
    x, y = map(form_of, term.factor.operands)
    sign = 1 if term.factor.name == "max" else -1
    ends = []
    for chosen, other in ((x, y), (y, x)):
        same = combine({term: 1}, 1, chosen, -1)
        more = [same, combine(same, -1, {}, 0), combine(chosen, sign, other, -sign)]
        try:
            given = facts + list(filter(None, map(rounded, more)))
        except Contradiction:
            continue
        ends.append(_lower_by_cases(form, given, cases))
    return max(low, min(ends, default=INF))


def bounds(dim: Any) -> Interval:
    """The least and the largest value of an int or a dimension that are known; infinite where none is."""
    return dim.scope.bounds(dim) if isinstance(dim, _DimExpr) else (dim, dim)


def symbolic_dim_bounds(dimension: Any) -> Interval:
    """The least and the largest value of a dimension that are known, infinite where none is.

    Args: dimension: a symbolic dimension, or an int. Errors: TypeError for anything else.

    >>> from ferrax import export
    >>> (size,) = export.symbolic_shape("a", constraints=["a <= 5"])
    >>> export.symbolic_dim_bounds(2 * size + 1)
    (3, 11)
    """
    return bounds(dimension if isinstance(dimension, _DimExpr) else operator.index(dimension))


def known_ge(a: Any, b: Any) -> bool | None:
    """Whether `a >= b`: True for all sizes, False for none, None where it is not known."""
    difference = a - b
    if not isinstance(difference, _DimExpr):
        return bool(difference >= 0)
    try:
        return difference.scope.at_least_zero(difference)
    except InconclusiveDimensionOperation:
        return None


def known_equal(a: Any, b: Any) -> bool | None:
    """Whether `a == b`: True for all sizes, False for none, None where it is not known."""
    difference = a - b
    if not isinstance(difference, _DimExpr):
        return bool(difference == 0)
    at_least, at_most = known_ge(a, b), known_ge(b, a)
    if at_least is False or at_most is False:
        return False
    return True if at_least and at_most else None
