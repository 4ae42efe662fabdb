"""Types of values: `Tracer`, `ShapedArray`."""

from ferrax._src.core import AbstractValue, ShapedArray, Tracer, trace_state_clean
from ferrax._src.jaxpr import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var, eval_jaxpr, jaxpr_as_fun

__all__ = [
    "AbstractValue",
    "ClosedJaxpr",
    "Jaxpr",
    "JaxprEqn",
    "Literal",
    "ShapedArray",
    "Tracer",
    "Var",
    "eval_jaxpr",
    "jaxpr_as_fun",
    "trace_state_clean",
]
