"""Small helpers without dependencies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def safe_zip(*sequences: Any) -> list[tuple[Any, ...]]:
    """A list of tuples. Errors: ValueError if the lengths differ.

    Args: sequences: of one length.

    >>> ferrax.util.safe_zip([1, 2], "ab")
    [(1, 'a'), (2, 'b')]
    """
    return list(zip(*sequences, strict=True))


def safe_map(function: Callable[..., Any], *sequences: Any) -> list[Any]:
    """A list of results. Errors: ValueError if the lengths differ.

    Args: function: of as many arguments as there are sequences; sequences: of one length.

    >>> ferrax.api_util.safe_map(lambda x, y: x + y, [1, 2], [3, 4])
    [4, 6]
    """
    return [function(*items) for items in zip(*sequences, strict=True)]
