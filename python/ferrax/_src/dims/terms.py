"""Factors and terms: what symbolic dimensions are sums of.

A factor is a variable or an operation on two dimensions (floordiv, mod, max, min), a term a product of
powers of factors. Both are values: immutable, equal by what they are, and ordered.

The order is that of the text: the larger comes first in a sum. Larger is what has more parts, and of as
many parts what has the later name; so variables come before operations, and a sum ends in its constant.
It is held as `key`, nested tuples that Python compares; `size` is the number of parts.
"""

from __future__ import annotations

from typing import Any

OPERATIONS = ("floordiv", "mod", "max", "min")


class Ordered:
    """What is compared and hashed by its `key`, with others of its class alone."""

    __slots__ = ("_hash", "key")

    key: tuple[Any, ...]
    _hash: int

    @property
    def size(self) -> int:
        """The number of parts."""
        return self.key[0]

    _size = size

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return type(self) is type(other) and self._hash == other._hash and self.key == other.key

    def __hash__(self) -> int:
        return self._hash

    def __lt__(self, other: Any) -> bool:
        return self.key < other.key

    def __le__(self, other: Any) -> bool:
        return self.key <= other.key

    def __gt__(self, other: Any) -> bool:
        return self.key > other.key

    def __ge__(self, other: Any) -> bool:
        return self.key >= other.key

    def __repr__(self) -> str:
        return str(self)

    def __deepcopy__(self, memo: Any) -> Any:
        return self


def key_of_size(size: Any) -> tuple[Any, ...]:
    """The key of an operand: a constant is a sum of one term that has no factors."""
    return (1, (((0, ()), size),)) if isinstance(size, int) else size.key


class Factor(Ordered):
    """The variable `name`, or the operation `name` on `operands`: ints and expressions."""

    __slots__ = ("name", "operands")

    def __init__(self, name: str, operands: tuple[Any, ...] = ()) -> None:
        self.name = name
        self.operands = operands
        keys = tuple(map(key_of_size, operands))
        self.key = (1 + sum(key[0] for key in keys), name, keys)
        self._hash = hash(self.key) if not operands else hash((name, operands))

    def __reduce__(self) -> Any:  # Hashes of names are another process's.
        return Factor, (self.name, self.operands)

    @property
    def operation(self) -> str | None:
        """The name of the operation, None of a variable."""
        return self.name if self.operands else None

    @property
    def variable(self) -> str | None:
        """The name of the variable, None of an operation."""
        return None if self.operands else self.name

    def variables(self) -> set[str]:
        """The names of all variables in it."""
        if not self.operands:
            return {self.name}
        return set().union(*(operand.variables() for operand in self.operands if not isinstance(operand, int)))

    def __str__(self) -> str:
        if not self.operands:
            return self.name
        # Constants as the sums that they are elsewhere.
        texts = (f"- {-x}" if isinstance(x, int) and x < 0 else str(x) for x in self.operands)
        return f"{self.name}({', '.join(texts)})"


class Term(Ordered):
    """The product of `factors`: pairs of a factor and its power >= 1, larger factors first."""

    __slots__ = ("factors",)

    def __init__(self, factors: tuple[tuple[Factor, int], ...]) -> None:
        self.factors = factors
        size = sum(1 + power * factor.size for factor, power in factors)
        self.key = (size, tuple((factor.key, power) for factor, power in factors))
        self._hash = hash(factors)

    def __reduce__(self) -> Any:
        return Term, (self.factors,)

    @staticmethod
    def of(factor: Factor) -> Term:
        """The term that is this factor alone."""
        return Term(((factor, 1),))

    @staticmethod
    def from_powers(powers: dict[Factor, int]) -> Term:
        """The product of factors with these powers, of which some may be 0."""
        return Term(tuple(sorted(((f, n) for f, n in powers.items() if n), reverse=True, key=lambda p: p[0].key)))

    @property
    def factor(self) -> Factor | None:
        """The factor that this term is, None if it is a product, a power or 1."""
        if len(self.factors) == 1 and self.factors[0][1] == 1:
            return self.factors[0][0]
        return None

    @property
    def is_constant(self) -> bool:
        """Whether it is the term 1."""
        return not self.factors

    def variables(self) -> set[str]:
        """The names of all variables in it."""
        return set().union(*(factor.variables() for factor, _ in self.factors))

    def times(self, other: Term) -> Term:
        """The product of both."""
        if not other.factors:
            return self
        if not self.factors:
            return other
        powers = dict(self.factors)
        for factor, power in other.factors:
            powers[factor] = powers.get(factor, 0) + power
        return Term.from_powers(powers)

    def over(self, divisor: Term) -> Term | None:
        """What times `divisor` is this term, None if no term is."""
        powers = dict(self.factors)
        for factor, power in divisor.factors:
            left = powers.get(factor, 0) - power
            if left < 0:
                return None
            powers[factor] = left
        return Term.from_powers(powers)

    def __str__(self) -> str:
        return "*".join(
            str(factor) if power == 1 else f"{factor}^{power}" for factor, power in reversed(self.factors)
        )

    # The names that JAX has for these.
    def to_factor(self) -> Factor | None:
        """See `factor`."""
        return self.factor

    def to_var(self) -> str | None:
        """The name of the variable that this term is, or None."""
        return self.factor.variable if self.factor else None

    get_vars = variables


ONE = Term(())
