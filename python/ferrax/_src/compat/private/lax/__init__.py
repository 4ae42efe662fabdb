"""Answers for `jax._src.lax`."""

from ferrax._src.compat.private.lax import control_flow  # noqa: F401
