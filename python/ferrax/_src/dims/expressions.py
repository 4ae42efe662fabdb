"""Symbolic dimensions: polynomials with integer coefficients over variables, in normal form.

`_DimExpr` is what stands in a shape for a size that is not known yet. Arithmetic with ints and with
other dimensions of its scope gives an int wherever the result is constant, else another `_DimExpr`:
equal ones have one form, so equality and hashes are structural. A floor division that is exact becomes
its quotient; others are factors of their own, `floordiv(a, b)` and `mod(a, b)`.

Comparisons ask the scope for bounds (`decisions.py`): what does not hold for all sizes, nor for none,
raises InconclusiveDimensionOperation. `==` is False where it is not known to hold. Arithmetic with
floats and arrays is that of the array that `as_value` makes of a dimension, which is set by the layers
that have arrays.

Cost: a sum is linear in terms, a product quadratic, of at most `MAX_TERMS`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

from ferrax._src.base.errors import (
    ConcretizationTypeError,
    InconclusiveDimensionOperation,
    JAXTypeError,
)
from ferrax._src.dims.terms import ONE, Factor, Term

MAX_TERMS = 10_000

_make_value: Callable[[_DimExpr], Any] | None = None


class UnexpectedDimVar(Exception):
    """A dimension was evaluated with no value for one of its variables."""


def set_as_value(make: Callable[[_DimExpr], Any] | None) -> Callable[[_DimExpr], Any] | None:
    """Sets what makes an array of a dimension, and returns what did so before."""
    global _make_value
    before, _make_value = _make_value, make
    return before


def as_value(dim: Any) -> Any:
    """The array of a symbolic dimension; other values as they are."""
    if not isinstance(dim, _DimExpr):
        return dim
    if _make_value is None:
        raise NotImplementedError(
            f"the symbolic dimension '{dim}' is used as an array outside of a function that is exported "
            "or traced: only there its value can be computed with."
        )
    return _make_value(dim)


def as_operand(value: Any) -> int | _DimExpr | None:
    """An int or a dimension, None where `value` is neither, such as a float, an array or a tracer."""
    if isinstance(value, _DimExpr):
        return value
    try:
        return int(operator.index(value))
    except Exception:  # Whatever a foreign type raises.
        return None


def needed_operand(value: Any, operation: str) -> int | _DimExpr:
    """`as_operand` of what must be one.

    Errors: ConcretizationTypeError for tracers, TypeError for other values.
    """
    operand = as_operand(value)
    if operand is not None:
        return operand
    try:
        operator.index(value)
    except ConcretizationTypeError:
        raise
    except JAXTypeError:
        context = f"The {operation} of sizes is one of integers and symbolic dimensions."
        raise ConcretizationTypeError(value, context) from None
    except TypeError:
        pass
    raise TypeError(
        f"{operation} of sizes: they are integers, integer arrays without axes, or symbolic dimensions, not "
        f"{type(value).__name__}"
    )


class _DimExpr:
    """A symbolic dimension: `terms` are pairs of a term and its coefficient, larger terms first.

    Not a constant ever: `from_terms`, which all arithmetic ends in, makes ints of those.
    """

    __slots__ = ("_hash", "_scope", "key", "terms")

    # NumPy's arrays and scalars leave operators to this class, as they do to arrays of ferrax.
    __array_priority__ = 1000

    def __init__(self, terms: tuple[tuple[Term, int], ...], scope: Any) -> None:
        self.terms = terms
        self._scope = scope
        size = sum(1 + abs(coefficient) * term.size for term, coefficient in terms)
        self.key = (size, tuple((term.key, coefficient) for term, coefficient in terms))
        self._hash = hash((terms, id(scope)))

    @property
    def scope(self) -> Any:
        """The `SymbolicScope` of its variables."""
        return self._scope

    # Building.

    @staticmethod
    def from_terms(coefficients: Mapping[Term, int], scope: Any) -> Any:
        """The sum of terms with these coefficients: an int if it is one."""
        coefficients = {term: count for term, count in coefficients.items() if count}
        if scope.rules:
            coefficients = scope.rewrite(coefficients)
        if not coefficients:
            return 0
        if len(coefficients) == 1 and ONE in coefficients:
            return coefficients[ONE]
        if len(coefficients) > MAX_TERMS:
            raise ValueError(f"a symbolic dimension has more than {MAX_TERMS} terms")
        ordered = sorted(coefficients.items(), key=lambda pair: pair[0].key, reverse=True)
        return _DimExpr(tuple(ordered), scope)

    @staticmethod
    def from_variable(name: str, scope: Any) -> Any:
        """The variable of that name, or what the scope's constraints say it equals."""
        return _DimExpr.from_terms({Term.of(Factor(name)): 1}, scope)

    @staticmethod
    def from_operation(operation: str, left: Any, right: Any, scope: Any) -> Any:
        """An operation, not simplified, on ints and dimensions."""
        return _DimExpr.from_terms({Term.of(Factor(operation, (left, right))): 1}, scope)

    # Parts.

    def variables(self) -> set[str]:
        """The names of all variables in it."""
        return set().union(*(term.variables() for term, _ in self.terms))

    @property
    def term(self) -> Term | None:
        """The term that this is, None if it is a sum or has a coefficient."""
        return self.terms[0][0] if len(self.terms) == 1 and self.terms[0][1] == 1 else None

    @property
    def variable(self) -> str | None:
        """The name of the variable that this is, or None."""
        return self.term.to_var() if self.term else None

    @property
    def constant(self) -> int:
        """The constant that it ends in."""
        term, count = self.terms[-1]
        return count if term is ONE or term == ONE else 0

    def __str__(self) -> str:
        parts = []
        for term, count in self.terms:
            sign, count = ("- ", -count) if count < 0 else ("+ ", count)
            if term.is_constant:
                parts.append(f"{sign}{count}")
            else:
                parts.append(f"{sign}{term}" if count == 1 else f"{sign}{count}*{term}")
        return " ".join(parts).removeprefix("+ ")

    def __repr__(self) -> str:
        return str(self)

    def __hash__(self) -> int:
        return self._hash

    def __deepcopy__(self, memo: Any) -> _DimExpr:
        return self

    def __reduce__(self) -> Any:
        return _DimExpr, (self.terms, self._scope)

    # Arithmetic.

    def _plus(self, other: int | _DimExpr, sign: int, when: str) -> Any:
        """`self + sign * other`."""
        if isinstance(other, int):
            if other == 0:
                return self
            terms: tuple[tuple[Term, int], ...] = ((ONE, other),)
        else:
            check_same_scope(self, other, when)
            terms = other.terms
        coefficients = dict(self.terms)
        for term, count in terms:
            coefficients[term] = coefficients.get(term, 0) + sign * count
        return _DimExpr.from_terms(coefficients, self._scope)

    def __add__(self, other: Any) -> Any:
        operand = as_operand(other)
        return as_value(self) + other if operand is None else self._plus(operand, 1, "in a sum")

    def __radd__(self, other: Any) -> Any:
        operand = as_operand(other)
        return other + as_value(self) if operand is None else self._plus(operand, 1, "in a sum")

    def __sub__(self, other: Any) -> Any:
        operand = as_operand(other)
        return as_value(self) - other if operand is None else self._plus(operand, -1, "in a difference")

    def __rsub__(self, other: Any) -> Any:
        operand = as_operand(other)
        return other - as_value(self) if operand is None else (-self)._plus(operand, 1, "in a difference")

    def __neg__(self) -> Any:
        return self._times(-1)

    def _times(self, other: int | _DimExpr) -> Any:
        if isinstance(other, int):
            return _DimExpr.from_terms({term: count * other for term, count in self.terms}, self._scope)
        check_same_scope(self, other, "in a product")
        if len(self.terms) * len(other.terms) > MAX_TERMS:
            raise ValueError(f"a product of symbolic dimensions has more than {MAX_TERMS} terms")
        coefficients: dict[Term, int] = {}
        for left, a in self.terms:
            for right, b in other.terms:
                term = left.times(right)
                coefficients[term] = coefficients.get(term, 0) + a * b
        return _DimExpr.from_terms(coefficients, self._scope)

    def __mul__(self, other: Any) -> Any:
        operand = as_operand(other)
        return as_value(self) * other if operand is None else self._times(operand)

    def __rmul__(self, other: Any) -> Any:
        operand = as_operand(other)
        return other * as_value(self) if operand is None else self._times(operand)

    def __pow__(self, power: Any, modulo: Any = None) -> Any:
        if modulo is not None:
            raise NotImplementedError("pow of a symbolic dimension with a modulus: use `%` on the power")
        if isinstance(power, _DimExpr):
            return as_value(self) ** as_value(power)
        whole = as_operand(power)
        if whole is None:
            if power != int(power):
                raise ValueError(
                    f"'{self}' ** {power}: what is symbolic cannot be raised to non-integer powers"
                )
            whole = int(power)
        assert isinstance(whole, int)
        if whole < 0:
            raise ValueError(f"'{self}' ** {power}: what is symbolic cannot be raised to negative powers")
        result: Any = 1
        square: Any = self
        while whole:
            if whole & 1:
                result = square * result
            whole >>= 1
            if whole:
                square = square * square
        return result

    def __rpow__(self, base: Any, modulo: Any = None) -> Any:
        if modulo is not None:
            raise NotImplementedError("pow with a modulus and a symbolic dimension: use `%` on the power")
        return base ** as_value(self)

    def __truediv__(self, divisor: Any) -> Any:
        return as_value(self) / as_value(divisor)

    def __rtruediv__(self, dividend: Any) -> Any:
        return as_value(dividend) / as_value(self)

    def __floordiv__(self, divisor: Any) -> Any:
        operand = as_operand(divisor)
        return as_value(self) // divisor if operand is None else divide(self, operand)[0]

    def __rfloordiv__(self, dividend: Any) -> Any:
        operand = as_operand(dividend)
        return dividend // as_value(self) if operand is None else divide(operand, self)[0]

    def __mod__(self, divisor: Any) -> Any:
        operand = as_operand(divisor)
        return as_value(self) % divisor if operand is None else divide(self, operand)[1]

    def __rmod__(self, dividend: Any) -> Any:
        operand = as_operand(dividend)
        return dividend % as_value(self) if operand is None else divide(operand, self)[1]

    def __divmod__(self, divisor: Any) -> Any:
        operand = as_operand(divisor)
        return divmod(as_value(self), divisor) if operand is None else divide(self, operand)

    def __rdivmod__(self, dividend: Any) -> Any:
        operand = as_operand(dividend)
        return divmod(dividend, as_value(self)) if operand is None else divide(operand, self)

    def max(self, other: Any) -> Any:
        """The larger of `self` and `other`, an int or a dimension."""
        return extreme("max", self, other)

    def min(self, other: Any) -> Any:
        """The smaller of `self` and `other`, an int or a dimension."""
        return extreme("min", self, other)

    def rmax(self, other: Any) -> Any:
        """The larger of `other` and `self`."""
        return extreme("max", other, self)

    def rmin(self, other: Any) -> Any:
        """The smaller of `other` and `self`."""
        return extreme("min", other, self)

    # Values and comparisons.

    def dimension_as_value(self) -> Any:
        """The scalar array of this dimension, where arrays are traced."""
        return as_value(self)

    __jax_array__ = dimension_as_value

    def __int__(self) -> int:
        raise InconclusiveDimensionOperation(
            f"Symbolic dimension '{self}' used in a context that requires a constant: its size is not "
            "known while the function is traced for all sizes."
        )

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, _DimExpr) or self._scope is not other._scope:
            return False
        if self.key == other.key:
            return True
        # Rules for multiples of a term may say so of the difference alone.
        return bool(self._scope.rules) and isinstance(self - other, int) and self - other == 0

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __ge__(self, other: Any) -> bool:
        return compare(self, other, self, other, ">=")

    def __le__(self, other: Any) -> bool:
        return compare(other, self, self, other, "<=")

    def __gt__(self, other: Any) -> bool:
        return not compare(other, self, self, other, ">")

    def __lt__(self, other: Any) -> bool:
        return not compare(self, other, self, other, "<")

    def evaluate(
        self,
        values: Mapping[str, Any],
        maximum: Callable[[Any, Any], Any] | None = None,
        minimum: Callable[[Any, Any], Any] | None = None,
    ) -> Any:
        """The value for sizes of the variables: ints, dimensions of one scope, or arrays.

        Args:
            values: for each variable.
            maximum, minimum: of two values, for arrays; ints and dimensions need none.

        Errors: UnexpectedDimVar if a variable has no value, ZeroDivisionError for a division by 0.
        """
        total: Any = 0
        for term, count in self.terms:
            product: Any = count
            for factor, power in term.factors:
                value = self._evaluate_factor(factor, values, maximum, minimum)
                for _ in range(power):
                    product = value if isinstance(product, int) and product == 1 else product * value
            total = product if isinstance(total, int) and total == 0 else total + product
        return total

    def _evaluate_factor(self, factor: Factor, values: Mapping[str, Any], maximum: Any, minimum: Any) -> Any:
        if not factor.operands:
            if factor.name in values:
                return values[factor.name]
            known = _DimExpr.from_variable(factor.name, self._scope)
            if isinstance(known, int):
                return known
            if known.variable != factor.name:
                return known.evaluate(values, maximum, minimum)
            raise UnexpectedDimVar(
                f"Encountered dimension variable '{factor.name}', which no shape of an argument has. Those "
                f"that have a value are {sorted(values)}."
            )
        left, right = (
            operand if isinstance(operand, int) else operand.evaluate(values, maximum, minimum)
            for operand in factor.operands
        )
        if factor.name == "floordiv":
            return left // right
        if factor.name == "mod":
            return left % right
        of_arrays = maximum if factor.name == "max" else minimum
        if of_arrays is not None and (as_operand(left) is None or as_operand(right) is None):
            return of_arrays(left, right)
        return extreme(factor.name, left, right)

    def _native(self) -> tuple[str, Any]:
        """What the native core is told of it: the text that it reads, and the scope."""
        return str(self), self._scope

    # The names that JAX has for these.

    @property
    def _size(self) -> int:
        return self.key[0]

    @property
    def _sorted_terms(self) -> tuple[tuple[Term, int], ...]:
        return self.terms

    def _evaluate(self, env: Mapping[str, Any]) -> Any:
        return self.evaluate(env)

    def _get_vars(self) -> set[str]:
        return self.variables()

    get_vars = _get_vars

    def _to_term(self) -> Term | None:
        return self.term

    def _to_factor(self) -> Factor | None:
        return self.term.factor if self.term else None

    def _to_var(self) -> str | None:
        return self.variable

    def _eq(self, other: object) -> bool:
        return self == other

    def _to_single_term(self) -> tuple[int, int, Term] | None:
        """`(constant, coefficient, term)` of what is a multiple of one term, plus a constant."""
        terms = [pair for pair in self.terms if not pair[0].is_constant]
        return (self.constant, terms[0][1], terms[0][0]) if len(terms) == 1 else None

    @staticmethod
    def _from_term(term: Term, count: int, scope: Any) -> Any:
        return _DimExpr.from_terms({term: count}, scope)

    @staticmethod
    def _from_var(name: str, scope: Any) -> Any:
        return _DimExpr.from_variable(name, scope)


DimExpr = _DimExpr


def is_symbolic_dim(p: Any) -> bool:
    """Whether a dimension is symbolic, not an integer.

    Args: p: a dimension, or any other value.

    >>> ferrax.export.is_symbolic_dim(3)
    False
    """
    return isinstance(p, _DimExpr)


def check_same_scope(left: _DimExpr, right: _DimExpr, when: str) -> None:
    """Errors: ValueError if two dimensions are of different scopes."""
    if left.scope is not right.scope:
        raise ValueError(
            f"Invalid mixing of symbolic scopes {when}: for '{left}' there is scope {left.scope}\n"
            f"and found for '{right}' is scope {right.scope}\n"
            "Make both with one scope: `symbolic_shape(..., scope=...)`."
        )


def divide(left: Any, right: Any) -> tuple[Any, Any]:
    """Floor quotient and remainder of ints and dimensions.

    A symbolic division that leaves no remainder is carried out, by a constant also one that leaves a
    constant remainder; others are factors `floordiv` and `mod`.
    Errors: ZeroDivisionError for a constant 0.
    """
    if isinstance(left, int) and isinstance(right, int):
        return divmod(left, right)
    if isinstance(left, _DimExpr) and isinstance(right, _DimExpr):
        check_same_scope(left, right, "in a division")
    scope = left.scope if isinstance(left, _DimExpr) else right.scope
    if isinstance(right, int):
        if all(term.is_constant or count % right == 0 for term, count in left.terms):
            quotient = {term: count // right for term, count in left.terms}
            return _DimExpr.from_terms(quotient, scope), left.constant % right
    elif isinstance(left, int):
        if left == 0:
            return 0, 0
    else:
        exact = _divide_exactly(dict(left.terms), right)
        if exact is not None:
            return _DimExpr.from_terms(exact, scope), 0
    return (
        _DimExpr.from_operation("floordiv", left, right, scope),
        _DimExpr.from_operation("mod", left, right, scope),
    )


def _divide_exactly(left: dict[Term, int], right: _DimExpr) -> dict[Term, int] | None:
    """The polynomial that times `right` is `left`, None if there is none: long division.

    The leading term is that of the lexicographic order of powers, which products keep: then the leading
    term of a product is the product of those of its factors.
    """
    names = sorted({factor for terms in (left, dict(right.terms)) for term in terms for factor, _ in term.factors})

    def degree(term: Term) -> list[int]:
        powers = dict(term.factors)
        return [powers.get(factor, 0) for factor in names]

    lead = max((term for term, _ in right.terms), key=degree)
    by = dict(right.terms)[lead]
    quotient: dict[Term, int] = {}
    while left:
        if len(quotient) > MAX_TERMS:
            return None
        largest = max(left, key=degree)
        term = largest.over(lead)
        if term is None or left[largest] % by:
            return None
        count = left[largest] // by
        quotient[term] = count
        for other, coefficient in right.terms:
            product = other.times(term)
            left[product] = left.get(product, 0) - coefficient * count
            if left[product] == 0:
                del left[product]
    return quotient


def extreme(operation: str, left: Any, right: Any) -> Any:
    """`max` or `min` of ints and dimensions: one of them where it is known which, else that factor."""
    if isinstance(left, int) and isinstance(right, int):
        return max(left, right) if operation == "max" else min(left, right)
    left, right = needed_operand(left, operation), needed_operand(right, operation)
    difference = left - right
    if isinstance(difference, int):
        order = difference
    else:
        order = difference.scope.order(difference)
        if order is None:
            return _DimExpr.from_operation(operation, left, right, difference.scope)
    return left if (order >= 0) == (operation == "max") else right


def compare(left: Any, right: Any, first: Any, second: Any, sign: str) -> bool:
    """Whether `left >= right`, which was written `first sign second`.

    Errors: InconclusiveDimensionOperation where that is not known.
    """
    a, b = as_operand(left), as_operand(right)
    if a is None or b is None:
        values = as_value(left), as_value(right)
        at_least = values[0] >= values[1]
        return bool(at_least)
    if isinstance(a, _DimExpr) and isinstance(b, _DimExpr):
        check_same_scope(a, b, f"when comparing '{first}' {sign} '{second}'")
    difference = a - b
    if isinstance(difference, int):
        return difference >= 0
    known = difference.scope.at_least_zero(difference)
    if known is None:
        given = difference.scope.describe_constraints()
        raise InconclusiveDimensionOperation(
            f"Symbolic dimension comparison '{first}' {sign} '{second}' is inconclusive: it may hold for some "
            f"sizes and not for others.{given} A constraint of `symbolic_shape` can say which it is."
        )
    return known
