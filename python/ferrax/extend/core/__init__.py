"""Jaxprs and primitives."""

from ferrax._src.core import concrete_or_error as concrete_or_error
from ferrax._src.effects import Effect as Effect, no_effects as no_effects
from ferrax._src.errors import (
    InconclusiveDimensionOperation as InconclusiveDimensionOperation,
    JaxprTypeError as JaxprTypeError,
)
from ferrax._src.jaxpr import (
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
from ferrax._src.primitives import Primitive as Primitive
from ferrax.extend.core import primitives as primitives

Effects = set[Effect]


def mapped_aval(size, axis, aval):
    """The type without its axis `axis`, which has this size; None changes nothing."""
    return aval.dec_rank(size, axis)


def unmapped_aval(size, axis, aval, explicit_mesh_axis=None):
    """The type with a new axis of this size at `axis`; None changes nothing."""
    return aval.inc_rank(size, axis)
