"""Functions traced to jaxprs, partial evaluation, and removal of dead equations."""

from typing import Any

from ferrax._src.base import public as _public
from ferrax._src.core.dead_code import (
    dce_jaxpr as dce_jaxpr,
    dce_jaxpr_call_rule as dce_jaxpr_call_rule,
    dce_jaxpr_closed_call_rule as dce_jaxpr_closed_call_rule,
    dce_jaxpr_consts as dce_jaxpr_consts,
    dce_rules as dce_rules,
)
from ferrax._src.interop.jaxpr_parts import (
    abstract_eval_fun as abstract_eval_fun,
    move_binders_to_back as move_binders_to_back,
    partial_eval_jaxpr_nounits as partial_eval_jaxpr_nounits,
    prune_closed_jaxpr_outputs as prune_closed_jaxpr_outputs,
)
from ferrax._src.interop.one_jaxpr import (
    close_jaxpr as close_jaxpr,
    convert_constvars_jaxpr as convert_constvars_jaxpr,
)
from ferrax._src.interop.partial_eval import (
    PartialVal as PartialVal,
    custom_partial_eval_rules as custom_partial_eval_rules,
    partial_eval_jaxpr_custom_rules as partial_eval_jaxpr_custom_rules,
    trace_to_jaxpr_dynamic as trace_to_jaxpr_dynamic,
    trace_to_jaxpr_nounits as trace_to_jaxpr_nounits,
)
from ferrax._src.tracing.traces import (
    DynamicJaxprTracer as DynamicJaxprTracer,
    JaxprTracer as JaxprTracer,
)

Val = Any

_public.export(__name__)
