"""The text of symbolic shapes: `"batch, 2*n + 1, floordiv(n, 2), ..."`.

A shape is dimensions between commas, in parentheses or not; a dimension is a sum of products of
integers, names, powers `a^2` and the functions floordiv, mod, max and min. `_` stands for one
dimension and `...` for all others of a shape that is given beside the text. Errors say how far
the text was read. Linear in the length of the text.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Sequence
from typing import Any, NoReturn

from ferrax._src.dims.expressions import _DimExpr, extreme
from ferrax._src.dims.terms import OPERATIONS

# Functions in functions, deeper than which no text is read.
MAX_DEPTH = 32

_TOKEN = re.compile(r"\s*(?:(?P<number>\d[\w.]*)|(?P<name>[^\W\d]\w*)|(?P<sign>\.\.\.|[-+*^,()]))")


class Parser:
    """Reads one text. `like`: the shape that placeholders stand for; `scope`: of the variables."""

    def __init__(self, text: str, scope: Any, like: Sequence[Any] | None = None, shown: str | None = None) -> None:
        self.text = text
        self.scope = scope
        self.like = like
        self.shown = repr(text) if shown is None else shown
        self.dims: list[Any] = []
        self.depth = 0
        self.at = self.after = 0
        self.kind = self.token = ""
        self.advance()

    # Tokens.

    def advance(self) -> None:
        """Goes to the next token; its kind is "number", "name", the sign itself, or "" at the end."""
        found = _TOKEN.match(self.text, self.after)
        if found is None:
            rest = self.text[self.after :]
            self.at = self.after + len(rest) - len(rest.lstrip())
            self.kind = self.token = ""
            if self.at < len(self.text):
                self.token = self.text[self.at]
                self.fail(f"unexpected character '{self.token}'")
            return
        group = found.lastgroup or ""
        self.at, self.after = found.start(group), found.end()
        self.token = found[group]
        self.kind = self.token if group == "sign" else group

    def fail(self, what: str) -> NoReturn:
        """Raises the error for the place where the parser is."""
        raise ValueError(
            f"syntax error in symbolic shape {self.shown} in dimension {len(self.dims)}: {what}. "
            f"Parsed '{self.text[: self.at]}', remaining '{self.text[self.at :]}'."
        )

    def require(self, *kinds: str) -> None:
        """Goes past a token of one of these kinds."""
        if self.kind not in kinds:
            self.fail(f"expected {' or '.join(map(repr, kinds))}, found {self.token or 'the end'!r}")
        self.advance()

    # Shapes.

    def shape(self) -> tuple[Any, ...]:
        """The dimensions of the whole text."""
        opened = 0
        while self.kind == "(":
            opened += 1
            self.advance()
        while self.kind not in ("", ")"):
            if self.kind == "..." or self.token == "_":
                if self.placeholder():
                    break
            else:
                size = self.sum()
                if self.kind not in ("", ")", ","):
                    self.fail(f"expected a sign or a comma, found {self.token!r}")
                self.add(size)
            if self.kind in ("", ")"):
                break
            self.require(",")
        for _ in range(opened):
            self.require(")")
        if self.kind:
            self.fail(f"nothing expected here, found {self.token!r}")
        return tuple(self.dims)

    def placeholder(self) -> bool:
        """Takes what `_` or `...` stands for from `like`. Returns whether it was `...`."""
        rest = self.kind == "..."
        done = len(self.dims)
        if self.like is None:
            self.fail(f"'{self.token}' stands for dimensions, but no 'like' shape was given")
        if len(self.like) < done + (not rest):
            self.fail(
                f"cannot resolve '{self.token}' because we parsed {done} already and 'like' shape has only "
                f"{len(self.like)} dimensions"
            )
        for size in self.like[done:] if rest else self.like[done : done + 1]:
            if size is None:
                self.fail(f"'{self.token}' stands for an unknown dimension of 'like' shape {tuple(self.like)}")
            self.add(size)
        self.advance()
        return rest

    def add(self, size: Any) -> None:
        """Appends a dimension, which a constant of `like` at that place has to equal."""
        if not isinstance(size, _DimExpr):
            size = operator.index(size)
            if self.like is not None:
                known = self.like[len(self.dims)] if len(self.dims) < len(self.like) else None
                if size != known:
                    self.fail(f"different size {size} than in 'like' shape {tuple(self.like)}")
        self.dims.append(size)

    # Dimensions.

    def sum(self) -> Any:
        """A sum or difference of products, which may begin with a sign."""
        sign = self.kind if self.kind in ("+", "-") else "+"
        if self.kind == sign:
            self.advance()
        total = self.product() if sign == "+" else -self.product()
        while self.kind in ("+", "-"):
            sign = self.kind
            self.advance()
            total = total + self.product() if sign == "+" else total - self.product()
        return total

    def product(self) -> Any:
        """A product of powers."""
        total = self.power()
        while self.kind == "*":
            self.advance()
            total = total * self.power()
        return total

    def power(self) -> Any:
        """A number, a name or a function, with an exponent or without."""
        base = self.factor()
        if self.kind != "^":
            return base
        self.advance()
        return base ** self.number()

    def number(self) -> int:
        """A number without sign."""
        if self.kind != "number":
            self.fail(f"expected an integer, found {self.token or 'the end'!r}")
        if not self.token.isdecimal():
            self.fail(f"expected an integer, found {self.token!r}")
        value = int(self.token)
        self.advance()
        return value

    def factor(self) -> Any:
        """A number, which may have a sign, a name, or a function of two dimensions."""
        if self.kind == "-":
            self.advance()
            return -self.number()
        if self.kind == "number":
            return self.number()
        name = self.token
        if self.kind != "name" or name == "_" or not name.isidentifier():
            self.fail(f"expected a name or a number, found {name or 'the end'!r}")
        self.advance()
        if name not in OPERATIONS:
            return _DimExpr.from_variable(name, self.scope)
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self.fail(f"functions are nested more than {MAX_DEPTH} deep")
        self.require("(")
        left = self.sum()
        self.require(",")
        right = self.sum()
        self.require(")")
        self.depth -= 1
        if name in ("max", "min"):
            return extreme(name, left, right)
        if isinstance(left, int) and isinstance(right, int):
            if right == 0:
                self.fail(f"division by zero in {name}({left}, {right})")
            return left // right if name == "floordiv" else left % right
        return _DimExpr.from_operation(name, left, right, self.scope)


def to_text(size: Any) -> str:
    """The text of a size that the native `Dim::parse` reads, and `from_text`."""
    return str(size)


def from_text(text: str, scope: Any) -> Any:
    """The size that `to_text` wrote: an int, or a dimension of this scope.

    Errors: ValueError for other texts.
    """
    shape = Parser(text, scope).shape()
    if len(shape) != 1:
        raise ValueError(f"the text of one dimension was expected, not {text!r}")
    return shape[0]
