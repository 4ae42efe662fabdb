"""Lowerings of primitives, as functions of existing operations."""

from ferrax._src.lowering import lower_fun as lower_fun, register_lowering as register_lowering
