"""Small helpers without dependencies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def safe_zip(*sequences: Any) -> list[tuple[Any, ...]]:
    """A list of tuples. Errors: ValueError if the lengths differ."""
    return list(zip(*sequences, strict=True))


def safe_map(function: Callable[..., Any], *sequences: Any) -> list[Any]:
    """A list of results. Errors: ValueError if the lengths differ."""
    return [function(*items) for items in zip(*sequences, strict=True)]
