"""Primitives over values of any type with JAX's older protocol: `HiPrimitive`.

In go values and parameters; `abstract_eval` says of which types the outputs are, `to_lojax` what they are, `jvp` and
`transpose` how they are differentiated. Applied to traced values it is one equation (`rules`); what has effects, and
what takes or gives values that change, is written out.
"""

from __future__ import annotations

from typing import Any

from ferrax import _core
from ferrax._src import core
from ferrax._src.base.effects import Effect
from ferrax._src.core.primitives import Primitive, primitive_jvps, primitive_transposes
from ferrax._src.experimental.hi import types
from ferrax._src.experimental.hi.prims import PrimRules
from ferrax._src.experimental.hi.rules import Rules, call_p
from ferrax._src.tracing.values_as_arrays import is_hi
from ferrax._src.transforms.ad import UndefinedPrimal, is_undefined_primal


class HiPrimitive(Primitive):
    """A primitive over values of any type, which a class derived from it defines.

    Args:
        name: what messages call it.

    Errors: NotImplementedError where `to_lojax`, or what a transformation asks for, is not defined.

    Example:
        >>> class First(hijax.HiPrimitive):
        ...     def to_lojax(self, pair):
        ...         return pair[0]
        >>> First("first").bind((jnp.ones(2), 3.0))
        Array([1., 1.], dtype=float32)
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        primitive_jvps[self] = self.jvp
        primitive_transposes[self] = self.transpose

    def is_high(self, *avals: Any, **params: Any) -> bool:
        """Whether the primitive is defined by `to_lojax` for values of these types."""
        return True

    def is_effectful(self, params: dict[str, Any]) -> bool:
        """Whether applying it with these parameters does more than computing."""
        return False

    def abstract_eval(self, *avals: Any, **params: Any) -> tuple[Any, set[Effect]]:
        """The types of the outputs, from those of the inputs, and the effects."""
        raise types._missing(self, "abstract_eval")

    def to_lojax(self, *args: Any, **params: Any) -> Any:
        """The outputs, computed by functions of arrays."""
        raise types._missing(self, "to_lojax")

    def jvp(self, primals: Any, tangents: Any, **params: Any) -> tuple[Any, Any]:
        """The outputs, and their tangents."""
        raise types._missing(self, "jvp")

    def transpose(self, *args: Any, **params: Any) -> Any:
        """The cotangents of the inputs in which it is linear."""
        raise types._missing(self, "transpose")

    def impl(self, *args: Any, **params: Any) -> Any:
        """What `bind` calls at once."""
        return self.to_lojax(*args, **params)

    def bind(self, *args: Any, **params: Any) -> Any:
        """Applies it to values."""
        if _core.trace_state_clean() or not all(map(_becomes_arrays, args)) or self.is_effectful(params):
            return self.impl(*args, **params)
        avals = tuple(map(core.typeof, args))
        outs, effects = self.abstract_eval(*avals, **params)
        outs = list(outs) if self.multiple_results else [outs]
        if effects or not all(isinstance(x, core.ShapedArray) or is_hi(x) for x in outs):
            return self.impl(*args, **params)
        rules = _Applied(self, params, avals, outs)._rules
        results = rules.outs.raise_(call_p.bind(*rules.ins.lower(args), _prim=rules))
        return results if self.multiple_results else results[0]


def _becomes_arrays(x) -> bool:
    try:
        aval = core.typeof(x)
    except TypeError:
        return False
    return isinstance(aval, core.ShapedArray) or is_hi(aval)


class _Applied:
    """The primitive with its parameters, for inputs and outputs of these types."""

    effects: frozenset[Any] = frozenset()

    def __init__(self, primitive, params, in_avals, out_avals):
        self.primitive = primitive
        self.params = params
        self.in_avals, self.out_aval = in_avals, out_avals

    def __repr__(self) -> str:
        return f"{self.primitive}[{self.params}]"

    @property
    def _rules(self):
        return _AppliedRules(self)

    def expand(self, *args):
        return self._listed(self.primitive.to_lojax(*args, **self.params))

    def jvp(self, primals, tangents):
        out, tangent = self.primitive.jvp(primals, tangents, **self.params)
        return self._listed(out), self._listed(tangent)

    def _listed(self, outs):
        return list(outs) if self.primitive.multiple_results else [outs]


class _AppliedRules(PrimRules):
    def __init__(self, applied):
        primitive = applied.primitive
        self.prim = applied
        self.has_vjp = self.has_lin = False
        self.has_jvp = type(primitive).jvp is not HiPrimitive.jvp
        self.name = f"'{primitive}'"
        self.set_slots(applied.in_avals, applied.out_aval)

    def transpose(self, cotangents, args):
        primitive = self.prim.primitive
        if type(primitive).transpose is HiPrimitive.transpose:
            return Rules.transpose(self, cotangents, args)
        cts = self.outs.raise_tangents(cotangents, cotangent=True)
        given = []
        for slot, own in zip(self.ins.slots, self.ins.split(args)):
            linear = any(map(is_undefined_primal, own))
            given.append(UndefinedPrimal(slot.aval) if linear else slot.raise_(own))
        found = primitive.transpose(cts if primitive.multiple_results else cts[0], *given, **self.prim.params)
        found = [None] * len(given) if found is None else list(found)
        if len(found) != len(given):
            raise TypeError(f"the transpose rule of {self.name} gave {len(found)} cotangents for {len(given)} inputs")
        return self.ins.lower_tangents(found, cotangent=True)

    def batch(self, data, args, dims):
        return Rules.batch(self, data, args, dims)

