"""Answers for `jax._src.state.types`."""

from ferrax._src.state import AbstractRef as AbstractRef
