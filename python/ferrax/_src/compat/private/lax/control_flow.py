"""Answers for `jax._src.lax.control_flow`."""

from ferrax._src.core.primitives import named_primitives

_primitives = named_primitives()
cond_p = _primitives["cond_p"]
scan_p = _primitives["scan_p"]
while_p = _primitives["while_p"]
