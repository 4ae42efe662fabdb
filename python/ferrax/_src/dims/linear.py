"""Linear inequalities between integers: bounds of one form that follow from others.

A form is a sum of terms with integer coefficients, a dict; the coefficient of the term 1 is its
constant. A fact is a form that is known to be at least 0. Terms are opaque here: any integers.

`tighten` moves the ends of terms' intervals to what single facts allow, rounded to integers.
`lower_bound` finds the best bound that a sum of multiples of facts gives, which is that of the linear
program over real numbers, by duality: the simplex method, exact, in integers with one denominator.
Facts are tens at most. A sweep of `tighten` is linear in their size, a pivot of the simplex method
in terms times facts.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from math import gcd

from ferrax._src.dims.intervals import ALL, INF, Interval
from ferrax._src.dims.terms import ONE, Term

Form = dict[Term, int]

# How often `tighten` goes over all facts: bounds can creep up without end.
SWEEPS = 4

# Steps of the simplex method after which it takes no shortest way, which may have no end.
FAST = 40


class Contradiction(Exception):
    """No integers satisfy the facts."""


def combine(x: Form, a: int, y: Form, b: int) -> Form:
    """`a * x + b * y`."""
    total = {term: a * count for term, count in x.items()}
    for term, count in y.items():
        total[term] = total.get(term, 0) + b * count
    return {term: count for term, count in total.items() if count}


def multiply(x: Form, term: Term) -> Form:
    """`x * term`."""
    return {part.times(term): count for part, count in x.items()}


def rounded(form: Form) -> Form | None:
    """The fact `form >= 0` for integers: without common factors. None if it says nothing.

    Errors: Contradiction if no integers satisfy it.
    """
    divisor = gcd(*(count for term, count in form.items() if term != ONE))
    if divisor == 0:
        if form.get(ONE, 0) < 0:
            raise Contradiction
        return None
    if divisor == 1:
        return form
    return {term: count // divisor for term, count in form.items()}


def tighten(facts: Iterable[Form], spans: dict[Term, Interval]) -> None:
    """Narrows `spans`, the intervals of terms, in place.

    Errors: Contradiction if one of them becomes empty.
    """
    facts = list(facts)
    for _ in range(SWEEPS):
        changed = False
        for fact in facts:
            highest = {
                term: count if term == ONE else _highest(spans.get(term, ALL), count)
                for term, count in fact.items()
            }
            finite = sum(int(high) for high in highest.values() if high != INF)
            infinite = sum(high == INF for high in highest.values())
            if infinite == 0 and finite < 0:
                raise Contradiction
            for term, count in fact.items():
                own = highest[term]
                if term == ONE or infinite > (own == INF):
                    continue
                # count * term >= -(the largest value of all other terms together)
                others = finite if own == INF else finite - int(own)
                low, high = spans.get(term, ALL)
                narrower = (max(low, -(others // count)), high) if count > 0 else (low, min(high, others // -count))
                if narrower[0] > narrower[1]:
                    raise Contradiction
                if narrower != (low, high):
                    spans[term] = narrower
                    changed = True
        if not changed:
            return


def _highest(span: Interval, count: int) -> int | float:
    """The largest value of `count` times a term with that interval."""
    end = span[1] if count > 0 else span[0]
    return end * count if end in (INF, -INF) else int(end) * count


def lower_bound(form: Form, facts: list[Form]) -> int | float:
    """The largest integer that `form` is known not to fall below, -inf if there is none.

    It is `max(c - k . m)` over multiples `m >= 0` of the facts whose terms add up to those of `form`,
    with `c` the constant of `form` and `k` those of the facts.
    Errors: Contradiction if no real numbers satisfy the facts.
    """
    terms = [term for term in form if term != ONE]
    if not terms:
        return form.get(ONE, 0)
    terms, facts = _connected(terms, facts)
    columns = len(facts)
    index = {term: row for row, term in enumerate(terms)}
    table = [[0] * (columns + 1) for _ in terms]
    for column, fact in enumerate(facts):
        for term, count in fact.items():
            if term != ONE:
                table[index[term]][column] = count
    for row, term in zip(table, terms):
        row[-1] = form.get(term, 0)
    table = [[-x for x in row] if row[-1] < 0 else row for row in table]
    # Two rows of costs: of leaving the equations unsolved, and of the solution.
    unsolved = [-sum(row[column] for row in table) for column in range(columns + 1)]
    costs = [fact.get(ONE, 0) for fact in facts] + [0]
    solver = _Simplex(table, [unsolved, costs])
    solver.minimise(-2)
    if solver.rows[-2][-1] != 0:
        return -INF
    solver.drop_unsolved()
    solver.minimise(-1)
    return form.get(ONE, 0) - (-solver.rows[-1][-1] // solver.denominator)


def _connected(terms: list[Term], facts: list[Form]) -> tuple[list[Term], list[Form]]:
    """The terms that facts connect with these, and the facts about them."""
    known = dict.fromkeys(terms)
    left = facts
    used: list[Form] = []
    while True:
        near = [fact for fact in left if any(term in known for term in fact)]
        if not near:
            return list(known), used
        left = [fact for fact in left if not any(term in known for term in fact)]
        used += near
        for fact in near:
            known.update(dict.fromkeys(term for term in fact if term != ONE))


class _Simplex:
    """Equations in nonnegative unknowns, the right sides last and nonnegative, and rows of costs below.

    All numbers are integers over `denominator`, which is the pivot of the last step: so every division
    is exact. `basis[row]` is the unknown that the row is solved for, -1 of those not solved yet.
    """

    def __init__(self, table: list[list[int]], costs: list[list[int]]) -> None:
        self.rows = table + costs
        self.basis = [-1] * len(table)
        self.denominator = 1

    def pivot(self, at: int, column: int) -> None:
        """Solves the row `at` for the unknown `column`."""
        chosen = self.rows[at]
        by, before = chosen[column], self.denominator
        for index, row in enumerate(self.rows):
            if index == at:
                continue
            factor = row[column]
            if factor:
                self.rows[index] = [(x * by - factor * y) // before for x, y in zip(row, chosen)]
            elif by != before:
                self.rows[index] = [x * by // before for x in row]
        self.basis[at] = column
        self.denominator = by

    def minimise(self, cost: int) -> None:
        """Lowers the costs in that row.

        The unknown that lowers them fastest enters, after `FAST` steps the first that does, so that it ends.
        Errors: Contradiction if they have no minimum.
        """
        for step_number in itertools.count():
            costs = self.rows[cost][:-1]
            least = min(costs, default=0)
            if least >= 0:
                return
            column = costs.index(least) if step_number < FAST else next(j for j, x in enumerate(costs) if x < 0)
            best = None
            for at, unknown in enumerate(self.basis):
                step = self.rows[at][column]
                if step > 0:
                    size = self.rows[at][-1]
                    # size / step against that of the best row.
                    if best is not None:
                        order = size * self.rows[best][column] - self.rows[best][-1] * step
                        if order > 0 or (order == 0 and unknown > self.basis[best]):
                            continue
                    best = at
            if best is None:
                raise Contradiction
            self.pivot(best, column)

    def drop_unsolved(self) -> None:
        """Solves the rows that are not solved, whose right sides are 0, or drops those that say 0 = 0."""
        for at in range(len(self.basis) - 1, -1, -1):
            if self.basis[at] >= 0:
                continue
            column = next((j for j, x in enumerate(self.rows[at][:-1]) if x), None)
            if column is None:
                del self.rows[at], self.basis[at]
                continue
            if self.rows[at][column] < 0:
                self.rows[at] = [-x for x in self.rows[at]]
            self.pivot(at, column)
