"""Types of values and jaxprs: `Tracer`, `ShapedArray`, `eval_jaxpr`."""

import importlib
import warnings
from typing import Any

from ferrax._src.base import public as _public
from ferrax._src.base.absent import absent as _make_absent
from ferrax._src.core import (
    AbstractValue,
    ShapedArray,
    Tracer,
    ensure_compile_time_eval,
    trace_state_clean,
)
from ferrax._src.core.jaxpr import (
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
from ferrax._src.core.primitives import Primitive
from ferrax._src.dims.sizes import max_dim, min_dim
from ferrax._src.interop import core_functions as _core_functions
from ferrax._src.interop.value_classes import pytype_aval_mappings as _pytype_aval_mappings
from ferrax._src.tracing.traces import Trace, eval_context

Atom = Var | Literal
ParamDict = dict[str, Any]
Value = Any


# Names that JAX keeps here for the time being, and where they are.
_MOVED = dict.fromkeys(
    (
        "CallPrimitive", "DebugInfo", "Effect", "Effects", "InconclusiveDimensionOperation",
        "JaxprTypeError", "concrete_or_error", "find_top_trace", "gensym",
        "get_opaque_trace_state", "no_effects", "nonempty_axis_env_DO_NOT_USE",
        "primal_dtype_to_tangent_dtype", "unsafe_am_i_under_a_jit_DO_NOT_USE",
        "unsafe_am_i_under_a_vmap_DO_NOT_USE", "unsafe_get_axis_names_DO_NOT_USE", "valid_jaxtype",
    ),
    "ferrax.extend.core",
)  # fmt: skip
_absent = _make_absent(
    __name__,
    {"get_aval": "use ferrax.typeof", "call_impl": "use ferrax.extend.core.call_impl"}
    | dict.fromkeys(
        ("mapped_aval", "unmapped_aval", "set_current_trace", "take_current_trace", "TraceTag",
         "AbstractToken"),
        "use ferrax.extend.core",
    ),
)  # fmt: skip


# Names that JAX keeps for the time being, and that have no other place.
_DEPRECATED = (
    "OutputType", "abstract_token", "call", "concretization_function_error", "is_concrete",
    "is_constant_dim", "is_constant_shape", "literalable_types", "no_axis_name",
)  # fmt: skip


def __getattr__(name):
    if name == "pytype_aval_mappings":
        warnings.warn(f"ferrax.core.{name} is deprecated.", DeprecationWarning, stacklevel=2)
        return _pytype_aval_mappings
    if name in _DEPRECATED:
        warnings.warn(f"ferrax.core.{name} is deprecated.", DeprecationWarning, stacklevel=2)
        return getattr(_core_functions, name)
    if name not in _MOVED:
        return _absent(name)
    warnings.warn(
        f"ferrax.core.{name} is deprecated. Use {_MOVED[name]}.{name}.",
        DeprecationWarning,
        stacklevel=2,
    )
    return getattr(importlib.import_module(_MOVED[name]), name)


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

_public.export(__name__)
