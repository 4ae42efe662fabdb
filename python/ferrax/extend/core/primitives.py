"""The primitives of the native core, under JAX's names: `exp_p`, `scan_p`, and so on."""

from ferrax._src.primitives import named_primitives

globals().update(named_primitives())
