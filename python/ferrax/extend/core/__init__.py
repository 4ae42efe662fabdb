"""Jaxprs and primitives."""

from ferrax._src.base import public as _public
from ferrax._src.base.effects import Effect as Effect, no_effects as no_effects
from ferrax._src.base.errors import (
    InconclusiveDimensionOperation as InconclusiveDimensionOperation,
    JaxprTypeError as JaxprTypeError,
)
from ferrax._src.core import (
    array_types as array_types,
    concrete_or_error as concrete_or_error,
    primal_dtype_to_tangent_dtype as primal_dtype_to_tangent_dtype,
    valid_jaxtype as valid_jaxtype,
)
from ferrax._src.core.avals import mapped_aval as mapped_aval, unmapped_aval as unmapped_aval
from ferrax._src.core.jaxpr import (
    ClosedJaxpr as ClosedJaxpr,
    DebugInfo as DebugInfo,
    DropVar as DropVar,
    Jaxpr as Jaxpr,
    JaxprEqn as JaxprEqn,
    Literal as Literal,
    Var as Var,
    check_jaxpr as check_jaxpr,
    gensym as gensym,
    jaxpr_as_fun as jaxpr_as_fun,
    jaxprs_in_params as jaxprs_in_params,
    new_jaxpr_eqn as new_jaxpr_eqn,
    subjaxprs as subjaxprs,
)
from ferrax._src.core.primitives import Primitive as Primitive
from ferrax._src.core.tokens import AbstractToken as AbstractToken, Token as Token
from ferrax._src.interop.call_primitives import (
    CallPrimitive as CallPrimitive,
    call_impl as call_impl,
)
from ferrax._src.tracing import traces as _traces
from ferrax._src.tracing.traces import (
    TraceTag as TraceTag,
    find_top_trace as find_top_trace,
    get_opaque_trace_state as get_opaque_trace_state,
    set_current_trace as set_current_trace,
    take_current_trace as take_current_trace,
)
from ferrax.extend.core import primitives as primitives

Effects = set[Effect]
nonempty_axis_env_DO_NOT_USE = _traces.nonempty_axis_env
unsafe_am_i_under_a_jit_DO_NOT_USE = _traces.unsafe_am_i_under_a_jit
unsafe_am_i_under_a_vmap_DO_NOT_USE = _traces.unsafe_am_i_under_a_vmap
unsafe_get_axis_names_DO_NOT_USE = _traces.unsafe_get_axis_names

_public.export(__name__)
