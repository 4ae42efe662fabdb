"""Registries of partial evaluation, and removal of dead equations from jaxprs."""

from ferrax._src.jaxpr import dce_jaxpr as dce_jaxpr
from ferrax._src.primitives import Rules

partial_eval_jaxpr_custom_rules = Rules("partial evaluation rule")
custom_partial_eval_rules = Rules("partial evaluation rule")
dce_rules = Rules("rule of dead code elimination")
