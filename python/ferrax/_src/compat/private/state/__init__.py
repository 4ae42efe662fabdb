"""Answers for `jax._src.state`."""

from ferrax._src.compat.private.state import types  # noqa: F401
from ferrax._src.state import AbstractRef as AbstractRef
