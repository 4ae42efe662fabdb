"""Types of values and jaxprs: `Tracer`, `ShapedArray`, `eval_jaxpr`."""

from ferrax._src.core import (
    AbstractValue,
    ShapedArray,
    Tracer,
    ensure_compile_time_eval,
    trace_state_clean,
)
from ferrax._src.jaxpr import (
    ClosedJaxpr,
    DropVar,
    Jaxpr,
    JaxprEqn,
    Literal,
    Var,
    check_jaxpr,
    eval_jaxpr,
    jaxpr_as_fun,
    jaxprs_in_params,
    new_jaxpr_eqn,
    subjaxprs,
)
from ferrax._src.primitives import Primitive

Atom = Var | Literal

__all__ = [
    "AbstractValue",
    "Atom",
    "ClosedJaxpr",
    "DropVar",
    "Jaxpr",
    "JaxprEqn",
    "Literal",
    "Primitive",
    "ShapedArray",
    "Tracer",
    "Var",
    "check_jaxpr",
    "ensure_compile_time_eval",
    "eval_jaxpr",
    "jaxpr_as_fun",
    "jaxprs_in_params",
    "new_jaxpr_eqn",
    "subjaxprs",
    "trace_state_clean",
]
