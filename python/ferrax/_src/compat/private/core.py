"""Answers for `jax._src.core`."""

# ruff: noqa: F401

from __future__ import annotations

from typing import Any

import numpy as np

from ferrax._src.base.extended_dtypes import ExtendedDType, KeyTy
from ferrax._src.base.util import safe_map as safe_map, safe_zip as safe_zip
from ferrax._src.core import (
    AbstractValue as AbstractValue,
    ShapedArray as ShapedArray,
    Tracer as Tracer,
    trace_state_clean as trace_state_clean,
)
from ferrax._src.core.jaxpr import (
    ClosedJaxpr as ClosedJaxpr,
    DebugInfo as DebugInfo,
    DropVar as DropVar,
    eval_jaxpr as eval_jaxpr,
)
from ferrax._src.interop.call_primitives import CallPrimitive as CallPrimitive
from ferrax._src.tracing.traces import (
    Trace as Trace,
    TraceTag as TraceTag,
    eval_context as eval_context,
    get_opaque_trace_state as get_opaque_trace_state,
    set_current_trace as set_current_trace,
    take_current_trace as take_current_trace,
)


def physical_aval(aval: AbstractValue) -> AbstractValue:
    """The type of the array that a value is stored as: of keys that of their words, else its own."""
    if not isinstance(aval, ShapedArray) or not isinstance(aval.dtype, ExtendedDType):
        return aval
    if isinstance(aval.dtype, KeyTy):
        return ShapedArray((*aval.shape, *aval.dtype._impl.key_shape), np.dtype(np.uint32))
    rules: Any = aval.dtype._rules
    element = rules.physical_element_aval(aval.dtype)
    return ShapedArray((*aval.shape, *element.shape), element.dtype)
