"""The base of classes of immutable values."""

from __future__ import annotations

from typing import Any, NoReturn, TypeVar

_T = TypeVar("_T", bound="Immutable")


class Immutable:
    """A value: its fields are set when it is made, by `object.__setattr__`, and by nobody later.

    It is its own copy. Pickles have the constructor's arguments alone.
    """

    __slots__ = ()

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} is immutable: {name!r} cannot be set")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} is immutable: {name!r} cannot be deleted")

    def __getstate__(self) -> None:
        return None

    def __copy__(self: _T) -> _T:
        return self

    def __deepcopy__(self: _T, memo: Any) -> _T:
        return self
