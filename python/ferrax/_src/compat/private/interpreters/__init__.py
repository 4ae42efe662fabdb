"""Answers for `jax._src.interpreters`."""

from ferrax._src.compat.private.interpreters import ad, batching, partial_eval, pxla  # noqa: F401
