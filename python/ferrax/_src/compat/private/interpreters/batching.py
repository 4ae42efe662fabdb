"""Answers for `jax._src.interpreters.batching`."""

# ruff: noqa: F401

from ferrax._src.transforms.batching_rules import (
    fancy_primitive_batchers as fancy_primitive_batchers,
    primitive_batchers as primitive_batchers,
)
