"""Types of values and jaxprs: `Tracer`, `ShapedArray`, `eval_jaxpr`."""

from typing import Any

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
from ferrax._src.traces import Trace, eval_context

Atom = Var | Literal
ParamDict = dict[str, Any]
Value = Any


def max_dim(d1: int, d2: int) -> int:
    """The larger of two sizes."""
    return max(d1, d2)


def min_dim(d1: int, d2: int) -> int:
    """The smaller of two sizes."""
    return min(d1, d2)


__all__ = [
    "AbstractValue",
    "Atom",
    "ClosedJaxpr",
    "DropVar",
    "Jaxpr",
    "JaxprEqn",
    "Literal",
    "ParamDict",
    "Primitive",
    "ShapedArray",
    "Trace",
    "Tracer",
    "Value",
    "Var",
    "check_jaxpr",
    "ensure_compile_time_eval",
    "eval_context",
    "eval_jaxpr",
    "jaxpr_as_fun",
    "jaxprs_in_params",
    "max_dim",
    "min_dim",
    "new_jaxpr_eqn",
    "subjaxprs",
    "trace_state_clean",
]
