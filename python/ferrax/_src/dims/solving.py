"""The values of dimension variables, from the sizes of the arguments of a call.

A specification says of places, such as `args[0].shape[1]`, which dimension each one has. `Solver` finds
an order in which each equation `dimension == size` either has one variable left, linear and alone in
its term, and gives its value, or has none left and is a check. Sizes are ints, or dimensions of another
scope: then so are the values, and what is checked has to hold for all of its sizes.

Finding the order is quadratic in the number of equations at most, solving linear in their terms.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ferrax._src.dims.decisions import known_ge
from ferrax._src.dims.expressions import UnexpectedDimVar, _DimExpr, divide


class Equation(NamedTuple):
    """The size at `place` is that of `dim`."""

    place: str
    dim: _DimExpr


class Step(NamedTuple):
    """An equation, and what to do with it: find `variable`, of a coefficient, or check it (None, 0)."""

    equation: Equation
    variable: str | None
    coefficient: int


class Solver:
    """How the variables of a specification follow from sizes.

    Args:
        equations: pairs of a place and a dimension; those that are ints are left out.
        shapes: the specification, as pairs of a place and its shape, for the texts of errors.

    Attributes:
        variables: the names of all variables, in alphabetical order.

    Errors: ValueError if a variable does not follow; UnexpectedDimVar if a constraint has other ones.
    """

    def __init__(self, equations: Iterable[tuple[str, Any]], shapes: Sequence[tuple[str, Any]] = ()) -> None:
        left = [Equation(place, dim) for place, dim in equations if isinstance(dim, _DimExpr)]
        self.scope = left[0].dim.scope if left else None
        self.specification = ", ".join(f"{place}.shape = {_shape_text(shape)}" for place, shape in shapes)
        self.steps: list[Step] = []
        known: set[str] = set()
        while left:
            waiting = []
            for equation in left:
                step = self._step(equation, known)
                if step is None:
                    waiting.append(equation)
                    continue
                self.steps.append(step)
                if step.variable is not None:
                    known.add(step.variable)
            if len(waiting) == len(left):
                self._fail_unsolved(waiting, known)
            left = waiting
        self.variables = tuple(sorted(known))
        for constraint in self.scope.constraints if self.scope else ():
            strange = constraint.difference.variables() - known - self._replaced()
            if strange:
                raise UnexpectedDimVar(
                    f"Encountered dimension variable '{min(strange)}' in the constraint '{constraint.text}', which "
                    f"no shape of an argument has: these have {sorted(known)}."
                )

    def _replaced(self) -> set[str]:
        """Variables that the scope's rules put other dimensions in the place of."""
        assert self.scope is not None
        return {name for term in self.scope.rules for name in [term.to_var()] if name is not None}

    def _step(self, equation: Equation, known: set[str]) -> Step | None:
        unknown = [(term, count) for term, count in equation.dim.terms if not term.variables() <= known]
        if not unknown:
            return Step(equation, None, 0)
        ((term, count), *more) = unknown
        variable = term.to_var()
        return None if more or variable is None else Step(equation, variable, count)

    def _fail_unsolved(self, equations: list[Equation], known: set[str]) -> None:
        unknown = sorted(set().union(*(equation.dim.variables() for equation in equations)) - known)
        rest = ", ".join(f"'{dim}' for dimension size {place}" for place, dim in equations)
        raise ValueError(
            f"Cannot solve for values of dimension variables {{{', '.join(map(repr, unknown))}}}. "
            "They have to be linear in the only variable that no other dimension gives, as '2*a + 1' is."
            f"{self._specified()} Unprocessed specifications: {rest}."
        )

    def _specified(self) -> str:
        if not self.specification:
            return ""
        return f" Using the following polymorphic shapes specifications: {self.specification}."

    def solve(self, sizes: Mapping[str, Any]) -> dict[str, Any]:
        """The value of each variable.

        Args: sizes: an int or a dimension for each place.

        Errors: ValueError if the sizes are none of the specification, or break a constraint of its scope,
            or if that is not known for all sizes.
        """
        values: dict[str, Any] = {}
        found: list[str] = []

        def fail(what: str, kind: str = "polymorphic shapes specification") -> None:
            obtained = f" Obtained dimension variables: {', '.join(found)}." if found else ""
            raise ValueError(f"Input shapes do not match the {kind}. {what}.{self._specified()}{obtained}")

        for (place, dim), variable, count in self.steps:
            size = sizes[place]
            if variable is None:
                expected = dim.evaluate(values)
                if size != expected:
                    fail(
                        f"Found inconsistency between dimension size {place} (= {size}) and the "
                        f"specification '{dim}' (= {expected})"
                    )
                continue
            rest = [(term, factor) for term, factor in dim.terms if term.to_var() != variable]
            value, remainder = divide(size - _DimExpr(tuple(rest), dim.scope).evaluate(values), count)
            if remainder != 0:
                fail(f"Division had remainder {remainder} when computing the value of '{variable}'")
            values[variable] = value
            found.append(f"'{variable}' = {value} from specification '{dim}' for dimension {place} (= {size})")
            if not _at_least(value, 1):
                fail(f"Expected value >= 1 for dimension variable '{variable}'")
        for difference, equal, text in self.scope.constraints if self.scope else ():
            value = difference.evaluate(values)
            if not (value == 0 if equal else _at_least(value, 0)):
                fail(
                    f"Expected '{difference}' to be {'equal' if equal else 'greater or equal'} to 0, but found {value}",
                    f"symbolic shape constraint {text}",
                )
        return values


def _at_least(a: Any, b: int) -> bool:
    return known_ge(a, b) is True


def _shape_text(shape: Any) -> str:
    return str(tuple(shape)) if isinstance(shape, list | tuple) else str(shape)


def variables_of(sizes: Iterable[Any]) -> list[str]:
    """The names of the variables in sizes, in alphabetical order."""
    return sorted(set().union(*(size.variables() for size in sizes if isinstance(size, _DimExpr))))


def substitute(size: Any, values: Mapping[str, Any]) -> Any:
    """A size with values for its variables: ints, or dimensions of one scope."""
    return size.evaluate(values) if isinstance(size, _DimExpr) else size
