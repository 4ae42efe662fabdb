"""Values of the user's on which jitted functions depend: `make_user_context`.

In: a default value. Out: a flag that is part of the trace context (see `flags`), so that functions are
traced for each of its values. Reading it costs what reading another flag does.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from ferrax._src.base import flags


def _parse_any(name: str, value: Any) -> Any:
    hash(value)  # TypeError for what cannot be part of a key
    return value


class UserContext(flags.State):
    """What `make_user_context` returns: a context manager of a value that jitted functions see.

    >>> units = ferrax.make_user_context("metres")
    >>> with units("feet"):
    ...     print(units.value)
    feet
    """

    def set_global(self, value: Hashable) -> None:
        """Sets the value for all threads that are not inside a block of their own."""
        self._set(value)

    def set_local(self, value: Hashable) -> None:
        """Sets the value for this thread."""
        self._set_local(self._checked(value))


def make_user_context(default_value: Hashable = None) -> UserContext:
    """A value that a program sets for a block, and for each of whose values functions are traced anew.

    Args: default_value: what it is outside of all blocks; hashable, as all of its values.
    Errors: TypeError for a value that is not hashable. To be called when no other thread traces.

    >>> scale = ferrax.make_user_context(1.0)
    >>> f = ferrax.jit(lambda x: x * scale.value)
    >>> with scale(3.0):
    ...     y = f(2.0)
    >>> float(y), float(f(2.0))
    (6.0, 2.0)
    """
    name = f"user_context_{flags.count_added()}"
    state = UserContext(name, _parse_any(name, default_value), _parse_any, "A value of the user's.")
    flags.add_to_context(state)
    return state
