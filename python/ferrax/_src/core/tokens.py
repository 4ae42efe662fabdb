"""Tokens: values without data that order effects. Programs here order them by themselves."""

from __future__ import annotations

from typing import Any

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
