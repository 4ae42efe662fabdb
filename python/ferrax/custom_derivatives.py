"""Functions with derivatives of their own."""

# ruff: noqa: F401

from ferrax._src.closures import closure_convert
from ferrax._src.custom_jvp import custom_jvp
from ferrax._src.custom_rules import SymbolicZero, zero_from_primal
from ferrax._src.custom_vjp import (
    CustomVJPPrimal,
    custom_gradient,
    custom_vjp,
    custom_vjp_primal_tree_values,
)
from ferrax._src.linear_call import linear_call
from ferrax._src.primitives import Primitive as _Primitive, builtin as _builtin

custom_jvp_call_p = _builtin("custom_jvp_call")
custom_vjp_call_p = _builtin("custom_vjp_call")
# For code that compares equations with it: here unused residuals are dead code, and programs have
# no equation for `optimize_remat`.
remat_opt_p = _Primitive("remat_opt")
