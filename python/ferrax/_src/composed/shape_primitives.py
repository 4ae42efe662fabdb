"""Primitives for operations that are composed here, for programs that bind or look for them.

The functions of `lax` are recorded as what they are made of; only `bind` makes these equations.
"""

from __future__ import annotations

from typing import Any

from ferrax._core import bind
from ferrax._src import core
from ferrax._src.base import effects
from ferrax._src.core import Array
from ferrax._src.core.lowering import lower_fun, register_lowering
from ferrax._src.core.primitives import (
    Primitive,
    axis_primitive_batchers,
    primitive_jvps,
)
from ferrax._src.core.typing import ArrayLike
from ferrax._src.lax import shape
from ferrax._src.transforms.composites import composite
from ferrax._src.tree import tree_util

__all__ = [
    "NoDCEEffect",
    "dce_sink",
    "dce_sink_p",
    "split_p",
    "stack_p",
    "stage",
    "stage_p",
    "tile_p",
    "unstack_p",
]

split_p = composite(
    "split", lambda x, *, sizes, axis: shape.split(x, sizes, axis), multiple_results=True
)
stack_p = composite("stack", lambda *xs, axis: shape.stack(xs, axis))
unstack_p = composite("unstack", lambda x, *, axis: shape.unstack(x, axis), multiple_results=True)
tile_p = composite("tile", lambda x, *, reps: shape.tile(x, reps))
stage_p = composite("stage", lambda x: x)


def stage(x: ArrayLike, /) -> Array:
    """The value as one of what is being traced; outside of that, as an array.

    Args: x: array or scalar.

    Example:
        >>> ferrax.jit(lambda: print(isinstance(lax.stage(1.0), ferrax.core.Tracer)))()
        True
    """
    if isinstance(x, core.Tracer):
        return x

    return bind("copy", (core.as_array(x, "stage"),), {})


class NoDCEEffect(effects.Effect):
    """A value is used by a `dce_sink`."""

    def __eq__(self, other):
        return type(self) is type(other)

    def __hash__(self):
        return hash(NoDCEEffect)

    def __str__(self):
        return "NoDCE"


_no_dce = NoDCEEffect()

# Marks a value as used, so that the equations which compute it stay.
dce_sink_p = Primitive("dce_sink")
dce_sink_p.multiple_results = True
dce_sink_p.def_impl(lambda x, **params: [])
dce_sink_p.def_effectful_abstract_eval(lambda x, **params: ([], {_no_dce}))
register_lowering(dce_sink_p, lower_fun(lambda x, **params: [], multiple_results=True))
primitive_jvps[dce_sink_p] = lambda primals, tangents, **params: (
    dce_sink_p.bind(*primals, **params),
    [],
)
axis_primitive_batchers[dce_sink_p] = lambda size, name, kind, args, dims, **params: (
    dce_sink_p.bind(*args, **params),
    [],
)


def dce_sink(val: Any, *, prevent_mlir_dce: bool = False) -> None:
    """Marks the arrays of a tree as used: what computes them stays in the jaxpr.

    Args: val: a pytree of arrays; prevent_mlir_dce: accepted, without effect.

    Example:
        >>> jaxpr = ferrax.make_jaxpr(lambda x: lax.dce_sink(jnp.sin(x)))(1.0)
        >>> [str(eqn.primitive) for eqn in jaxpr.eqns]
        ['sin', 'dce_sink']
    """
    for leaf in tree_util.tree_leaves(val):
        dce_sink_p.bind(leaf, prevent_mlir_dce=prevent_mlir_dce)
