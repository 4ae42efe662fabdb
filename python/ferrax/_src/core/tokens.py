"""Tokens: values without data that order effects. Programs here order them by themselves.

But for those of sends between the lanes of a named axis, which hold what is sent until it is received.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple

from ferrax._src.core import AbstractValue


class AbstractToken(AbstractValue):
    """The type of tokens.

    >>> ferrax.extend.core.AbstractToken() == ferrax.extend.core.AbstractToken()
    True
    """

    def str_short(self, short_dtypes: bool = False, mesh_axis_types: bool = False) -> str:
        """The type as a short text."""
        return "Tok"

    def to_tangent_aval(self) -> AbstractToken:
        """The type itself."""
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AbstractToken)

    def __hash__(self) -> int:
        return hash(AbstractToken)


class Token:
    """A token, which may hold an array, for programs that hand one on.

    >>> token = ferrax.extend.core.Token(jnp.zeros(1))
    >>> token.block_until_ready() is token
    True
    """

    def __init__(self, buf: Any) -> None:
        self._buf = buf

    def block_until_ready(self) -> Token:
        """Waits for the array, if there is one."""
        if self._buf is not None:
            self._buf.block_until_ready()
        return self


class Sent(NamedTuple):
    """Along which named axes something was sent, and the lanes: pairs of source and destination, sorted."""

    axes: tuple[Hashable, ...]
    pairs: tuple[tuple[int, int], ...]


class SentToken(Token):
    """A token of sends: for each the values that lanes get, and how they were sent."""

    def __init__(self, values: tuple[Any, ...], sends: tuple[Sent, ...]) -> None:
        super().__init__(None)
        self.values = values
        self.sends = sends

    def block_until_ready(self) -> SentToken:
        """Waits for the values."""
        for x in self.values:
            x.block_until_ready()
        return self
