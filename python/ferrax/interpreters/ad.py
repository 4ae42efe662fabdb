"""Differentiation rules of primitives: registries and what rules are written with."""

from __future__ import annotations as annotations  # a name of JAX's module

from ferrax._src.base import public as _public
from ferrax._src.interop.ad_functions import jvp as jvp, linearize as linearize
from ferrax._src.interop.jaxpr_parts import jvp_jaxpr as jvp_jaxpr
from ferrax._src.tracing.traces import JVPTrace as JVPTrace, JVPTracer as JVPTracer
from ferrax._src.transforms.ad import (
    UndefinedPrimal as UndefinedPrimal,
    Zero as Zero,
    add_jaxvals as add_jaxvals,
    add_jaxvals_p as add_jaxvals_p,
    add_tangents as add_tangents,
    defbilinear as defbilinear,
    defjvp as defjvp,
    defjvp2 as defjvp2,
    deflinear as deflinear,
    deflinear2 as deflinear2,
    get_primitive_transpose as get_primitive_transpose,
    instantiate_zeros as instantiate_zeros,
    is_undefined_primal as is_undefined_primal,
    primitive_jvps as primitive_jvps,
    primitive_transposes as primitive_transposes,
    zeros_like_aval as zeros_like_aval,
)

_public.export(__name__)
