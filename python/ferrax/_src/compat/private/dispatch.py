"""Answers for `jax._src.dispatch`."""

from ferrax._src.base.effects import effects_barrier as wait_for_tokens  # noqa: F401
