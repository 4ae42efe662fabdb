"""``ferrax.experimental.hijax``: types of values that are no arrays, and primitives over them."""

from ferrax._src.base import public as _public
from ferrax._src.base.effects import control_flow_allowed_effects as control_flow_allowed_effects
from ferrax._src.core.avals import AbstractValue as AbstractValue, ShapedArray as ShapedArray
from ferrax._src.experimental.hi.accums import (
    GradAccum as GradAccum,
    NullAccum as NullAccum,
    RefAccum as RefAccum,
    ValAccum as ValAccum,
)
from ferrax._src.experimental.hi.boxes import (
    BoxEffect as BoxEffect,
    BoxTy as BoxTy,
    box_effect as box_effect,
    box_get as box_get,
    box_set as box_set,
    new_box as new_box,
)
from ferrax._src.experimental.hi.derived import (
    bdims_at_front as bdims_at_front,
    jvp_from_lin as jvp_from_lin,
    linearize_from_jvp as linearize_from_jvp,
    unmap_avals as unmap_avals,
    vjp_from_jvp as vjp_from_jvp,
    vjp_from_lin as vjp_from_lin,
    vmap_rule as vmap_rule,
)
from ferrax._src.experimental.hi.old_prims import HiPrimitive as HiPrimitive
from ferrax._src.experimental.hi.prims import HiPrim as HiPrim, VJPHiPrimitive as VJPHiPrimitive
from ferrax._src.experimental.hi.types import (
    AvalMutableQDD as AvalMutableQDD,
    AvalQDD as AvalQDD,
    HiPspec as HiPspec,
    HiType as HiType,
    MappingSpec as MappingSpec,
    MutableHiType as MutableHiType,
    aval_method as aval_method,
    aval_property as aval_property,
    register_hitype as register_hitype,
)
from ferrax._src.state import AbstractRef as AbstractRef, TransformedRef as TransformedRef
from ferrax._src.state.boxes import Box as Box, BoxTypeState as BoxTypeState
from ferrax._src.transforms.ad import (
    Zero as Zero,
    instantiate_zeros as instantiate_zeros,
    is_undefined_primal as is_undefined_primal,
)

_public.export(__name__)
