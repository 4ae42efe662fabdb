"""Scopes: which variables belong together, and what is known of their sizes.

Constraints are texts `left >= right`, `left <= right` or `left == right`. All are used for decisions
(`decisions.py`); an equality, whose left side is a multiple of one term, also replaces that term
wherever it comes up: with `"b == 2*a"` there is no `b`. What is known of a scope never changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ferrax._src.base.errors import user_location
from ferrax._src.dims import decisions
from ferrax._src.dims.expressions import _DimExpr
from ferrax._src.dims.facts import form_of
from ferrax._src.dims.parsing import Parser, from_text
from ferrax._src.dims.terms import ONE, Term

# Replacements in one sum, after which rules that undo each other are left alone.
MAX_REWRITES = 64


class Constraint(NamedTuple):
    """`difference >= 0`, or `difference == 0` if `equal`. `text`: as the user wrote it."""

    difference: _DimExpr
    equal: bool
    text: str


class Rule(NamedTuple):
    """`multiple * term` is replaced by `value`, terms with coefficients."""

    term: Term
    multiple: int
    value: dict[Term, int]


def _within(term: Term, size: Any) -> bool:
    """Whether a size has a multiple of a term, or an operation on one."""
    if isinstance(size, int):
        return False
    return any(
        part.over(term) is not None
        or any(_within(term, operand) for factor, _ in part.factors for operand in factor.operands)
        for part, _ in size.terms
    )


class SymbolicScope:
    """Variables of dimensions that may be used together, with what is known of them.

    Dimensions of different scopes do not mix: arithmetic with both raises ValueError, and they are
    never equal.

    Args:
        constraints_str: texts `left >= right`, `left <= right` or `left == right`. The left side of an
            equality is one term with a coefficient or without, which is replaced by the right side.

    Errors: ValueError for other texts, and for constraints that no sizes satisfy.

    Example:
        >>> scope = ferrax.export.SymbolicScope(["a >= 4", "b == 2*a"])
        >>> a, b = ferrax.export.symbolic_shape("a, b", scope=scope)
        >>> b, b >= 8
        (2*a, True)
    """

    def __init__(self, constraints_str: Sequence[str] = ()) -> None:
        if isinstance(constraints_str, str):
            raise ValueError(
                f"The symbolic constraints should be several strings in a sequence, not one: {constraints_str!r}"
            )
        self.location = user_location()
        self.constraints: tuple[Constraint, ...] = ()
        self.rules: dict[Term, Rule] = {}
        self._of_texts: dict[str, Any] = {}
        self._decider = decisions.Decider()
        for text in constraints_str:
            self._add(text)

    # What the constraints say.

    def _add(self, text: Any) -> None:
        """Reads a constraint; it holds for what is read and built after it."""
        if not isinstance(text, str):
            raise ValueError(f"A constraint of a SymbolicScope is a string: got {text!r}")
        sign = next((sign for sign in ("==", ">=", "<=") if sign in text), None)
        if sign is None:
            raise ValueError(
                f"Constraint parsing error: '{text}' has none of the signs '==', '>=' and '<='."
            )
        sides = [Parser(side, self).shape() for side in text.split(sign, 1)]
        if any(len(side) != 1 for side in sides):
            raise ValueError(f"Constraint parsing error: '{text}' does not compare one dimension with one.")
        (left,), (right,) = sides
        if sign == "<=":
            left, right = right, left
        self._assume(left, right, sign == "==", text)

    def _assume(self, left: Any, right: Any, equal: bool, text: str) -> None:
        difference = left - right
        if isinstance(difference, int):
            if difference < 0 or (equal and difference):
                raise ValueError(f"Unsatisfiable explicit constraint: {text}")
            return
        if equal:
            self._add_rule(left, right, text)
        self.constraints += (Constraint(difference, equal, text),)
        self._decider = decisions.Decider(self._decider, difference, equal, text)

    def _add_rule(self, left: Any, right: Any, text: str) -> None:
        if not isinstance(left, _DimExpr) or len(left.terms) != 1:
            raise ValueError(
                f"Invalid equality constraint: {text}. Its left side is to be one term, with a coefficient "
                "or without, which the right side replaces."
            )
        ((term, count),) = left.terms
        if term in self.rules:
            raise NotImplementedError(
                f"Two equality constraints are for {term}: '{text}' and one before. Write this one with its "
                "sides exchanged."
            )
        # What is in its own replacement is not replaced, but may replace that.
        if not _within(term, right):
            self.rules[term] = Rule(term, count, form_of(right))
        elif len(right.terms) == 1 and right.terms[0][0] not in self.rules:
            (whole, times) = right.terms[0]
            if not _within(whole, left):
                self.rules[whole] = Rule(whole, times, form_of(left))
        factor = term.factor
        if right == 0 and abs(count) == 1 and factor is not None and factor.operation == "mod":
            # Then the floor division by it is exact.
            dividend, divisor = factor.operands
            quotient = _DimExpr.from_operation("floordiv", dividend, divisor, self)
            if isinstance(divisor, int) and isinstance(quotient, _DimExpr):
                self._assume(quotient * divisor, dividend, True, f"{quotient * divisor} == {dividend}")

    def rewrite(self, coefficients: dict[Term, int]) -> dict[Term, int]:
        """The sum of terms with these coefficients (none 0) in which rules have replaced what they can."""
        for _ in range(MAX_REWRITES):
            step = next(filter(None, (self._match(term, count) for term, count in coefficients.items())), None)
            if step is None:
                return coefficients
            term, rest, times, rule = step
            coefficients = dict(coefficients)
            del coefficients[term]
            for part, count in rule.value.items():
                product = part.times(rest)
                coefficients[product] = coefficients.get(product, 0) + count * times
                if coefficients[product] == 0:
                    del coefficients[product]
        return coefficients

    def _match(self, term: Term, count: int) -> tuple[Term, Term, int, Rule] | None:
        """The rule for a term or for a part of it: the term, what is left of it, how often, the rule."""
        rule = self.rules.get(term)
        if rule is not None and count % rule.multiple == 0:
            return term, ONE, count // rule.multiple, rule
        if len(term.factors) > 1 or (term.factors and term.factors[0][1] > 1):
            for rule in self.rules.values():
                rest = None if count % rule.multiple else term.over(rule.term)
                if rest is not None:
                    return term, rest, count // rule.multiple, rule
        return None

    def _of_native(self, text: str) -> Any:
        """The dimension that the native core has this text for."""
        known = self._of_texts.get(text)
        if known is None:
            known = self._of_texts[text] = from_text(text, self)
        return known

    # Decisions, which `_DimExpr` asks for.

    def bounds(self, dim: Any) -> tuple[int | float, int | float]:
        """The least and the largest value of a dimension that are known; infinite where none is."""
        return (dim, dim) if isinstance(dim, int) else self._decider.bounds(dim)

    def at_least_zero(self, dim: _DimExpr) -> bool | None:
        """Whether `dim >= 0`, None if it is not known."""
        return self._decider.at_least_zero(dim)

    def order(self, dim: _DimExpr) -> int | None:
        """1 if `dim >= 0`, -1 if `dim <= 0`, None if neither is known."""
        return self._decider.order(dim)

    # Texts.

    @property
    def constraints_text(self) -> tuple[str, ...]:
        """The constraints, as texts that a scope like this one can be made of."""
        return tuple(constraint.text for constraint in self.constraints)

    @property
    def _explicit_constraints(self) -> tuple[Constraint, ...]:
        return self.constraints

    def describe_constraints(self) -> str:
        """A sentence with the constraints, "" if there are none."""
        if not self.constraints:
            return ""
        return f" It is of a scope with constraints: {', '.join(self.constraints_text)}."

    def __str__(self) -> str:
        lines = [f"{id(self):#x} made at {self.location or 'an unknown place'}"]
        if self.constraints:
            lines[0] += " with constraints:"
        return "\n".join([*lines, *(f"  {text}" for text in self.constraints_text)])

    def __repr__(self) -> str:
        return str(self)

    def __deepcopy__(self, memo: Any) -> SymbolicScope:
        return self

    def __reduce__(self) -> Any:  # A scope of its own where it is read, which all that is read with it shares.
        return SymbolicScope, (self.constraints_text,)


def symbolic_shape(
    shape_spec: str | None,
    *,
    constraints: Sequence[str] = (),
    scope: SymbolicScope | None = None,
    like: Sequence[int | None] | None = None,
) -> tuple[Any, ...]:
    """A shape whose dimensions are integers and expressions of variables.

    Each variable stands for all sizes from 1 on.

    Args:
        shape_spec: dimensions between commas, in parentheses or not: sums and products of integers and
            names, powers `a^2`, `floordiv(a, b)`, `mod(a, b)`, `max(a, b)`, `min(a, b)`. `_` is the
            dimension of `like` at that place, `...` its remaining ones. None is `"..."`.
        constraints: what is known of the sizes, for a scope of their own; see `SymbolicScope`.
        scope: the scope of the variables. A new one unless it is given.
        like: a shape, of ints, and of None for dimensions that no placeholder stands for. Integers in
            `shape_spec` have to equal those of `like`.

    Errors: ValueError for other texts, for placeholders without `like`, for constraints beside a scope.

    Example:
        >>> batch, size = ferrax.export.symbolic_shape("batch, 2*n")
        >>> batch * (size + 1)
        2*batch*n + batch
        >>> ferrax.export.symbolic_shape("batch, ...", like=(8, 3, 4))
        (batch, 3, 4)
    """
    if shape_spec is not None and not isinstance(shape_spec, str):
        raise ValueError(f"polymorphic shape spec should be None or a string, not {shape_spec!r}")
    if scope is None:
        scope = SymbolicScope(constraints)
    elif constraints:
        raise ValueError("Cannot specify both a `scope` and `constraints`: a scope has its own.")
    return Parser("..." if shape_spec is None else shape_spec, scope, like, repr(shape_spec)).shape()
