"""Functions with derivatives of their own."""

# ruff: noqa: F401

from ferrax._src.base import public as _public
from ferrax._src.core.primitives import Primitive as _Primitive, builtin as _builtin
from ferrax._src.transforms.closures import closure_convert as closure_convert
from ferrax._src.transforms.custom_jvp import custom_jvp as custom_jvp
from ferrax._src.transforms.custom_rules import (
    SymbolicZero as SymbolicZero,
    zero_from_primal as zero_from_primal,
)
from ferrax._src.transforms.custom_vjp import (
    CustomVJPPrimal as CustomVJPPrimal,
    custom_gradient as custom_gradient,
    custom_vjp as custom_vjp,
    custom_vjp_primal_tree_values as custom_vjp_primal_tree_values,
)
from ferrax._src.transforms.linear_call import linear_call as linear_call

custom_jvp_call_p = _builtin("custom_jvp_call")
custom_vjp_call_p = _builtin("custom_vjp_call")
# For code that compares equations with it: here unused residuals are dead code, and programs have
# no equation for `optimize_remat`.
remat_opt_p = _Primitive("remat_opt")

_public.export(__name__)
