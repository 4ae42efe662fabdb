"""Answers for `jax._src.effects`."""

# ruff: noqa: F401

from ferrax._src.base.effects import (
    Effect as Effect,
    control_flow_allowed_effects as control_flow_allowed_effects,
    remat_allowed_effects as remat_allowed_effects,
)
