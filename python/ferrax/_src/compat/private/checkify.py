"""Answers for `jax._src.checkify`."""

# ruff: noqa: F401

from typing import TypeVar

from ferrax._src.experimental.checkify.error import Error as Error, JaxException as JaxException
from ferrax._src.experimental.checkify.transform import (
    checkify as checkify,
    user_checks as user_checks,
)

Out = TypeVar("Out")
