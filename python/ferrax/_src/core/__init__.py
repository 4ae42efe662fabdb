"""Types of values, primitives, jaxprs, names of arguments and devices.

The names that all layers use most are here, under `core.`; they are written in `values` and `avals`.
"""

from ferrax._src.core.avals import AbstractValue, ShapedArray, ShapeDtypeStruct
from ferrax._src.core.dim_values import dim_as_value
from ferrax._src.core.values import (
    Array,
    ArrayImpl,
    Tracer,
    abstract_type,
    array_types,
    as_array,
    concrete_or_error,
    ensure_compile_time_eval,
    get_aval,
    is_concrete,
    primal_dtype_to_tangent_dtype,
    register_type,
    shaped_abstractify,
    short_dtype_name,
    to_concrete_value,
    trace_state_clean,
    traced_values,
    typeof,
    valid_jaxtype,
)

__all__ = [
    "AbstractValue",
    "Array",
    "ArrayImpl",
    "ShapeDtypeStruct",
    "ShapedArray",
    "Tracer",
    "abstract_type",
    "array_types",
    "as_array",
    "concrete_or_error",
    "dim_as_value",
    "ensure_compile_time_eval",
    "get_aval",
    "is_concrete",
    "primal_dtype_to_tangent_dtype",
    "register_type",
    "shaped_abstractify",
    "short_dtype_name",
    "to_concrete_value",
    "trace_state_clean",
    "traced_values",
    "typeof",
    "valid_jaxtype",
]
