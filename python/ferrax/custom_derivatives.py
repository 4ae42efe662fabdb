"""Functions with derivatives of their own."""

# ruff: noqa: F401

from ferrax._src.closures import closure_convert
from ferrax._src.custom_jvp import custom_jvp
from ferrax._src.custom_rules import SymbolicZero, zero_from_primal
from ferrax._src.custom_vjp import CustomVJPPrimal, custom_gradient, custom_vjp
