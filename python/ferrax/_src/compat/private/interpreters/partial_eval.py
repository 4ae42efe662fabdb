"""Answers for `jax._src.interpreters.partial_eval`."""

# ruff: noqa: F401

from ferrax._src.core.dead_code import convert_constvars_jaxpr as convert_constvars_jaxpr
from ferrax._src.interop.partial_eval import trace_to_jaxpr_dynamic as trace_to_jaxpr_dynamic
