"""Programs with the operations on values that are no arrays written out as operations on arrays.

In goes a jaxpr, out comes one without such equations, in which functions with rules of their own are what they do.
Cost: every equation is recorded again.
"""

from __future__ import annotations

from typing import Any

from ferrax._src.core.jaxpr import ClosedJaxpr, Jaxpr, bind_equation, interpret, jaxprs_in_params
from ferrax._src.core.primitives import lowerings
from ferrax._src.tracing.staging import stage

_WITH_RULES = ("custom_jvp_call", "custom_vjp_call", "custom_vmap_call")


def written_out(closed: ClosedJaxpr) -> tuple[Any, list[Any]]:
    """`(program, captured)` of the same function without high equations."""
    avals = [var.aval for var in closed.open.invars]
    program, captured, _ = stage(lambda *args: _results(closed.open, closed.consts, args), avals, {})
    return program, captured


def _results(jaxpr, consts, args):
    return interpret(jaxpr, consts, args, _apply)


def _apply(eqn, values):
    if eqn.primitive._high:
        return list(lowerings[eqn.primitive](*values, **eqn.params))
    inner = next(jaxprs_in_params(eqn.params), None)
    if inner is None:
        return bind_equation(eqn, values)
    if eqn.primitive.name in _WITH_RULES:
        inner, consts = _of_call(eqn.params)
        return _results(inner, consts, values)
    if not any(jaxpr.is_high for jaxpr in jaxprs_in_params(eqn.params)):
        return bind_equation(eqn, values)
    if eqn.primitive.name == "jit":
        inner, consts = _of_call(eqn.params)
        return _results(inner, consts, values)
    return bind_equation(eqn.replace(params={name: _lowered(x) for name, x in eqn.params.items()}), values)


def _of_call(params):
    for name in ("call_jaxpr", "jaxpr", "call"):
        found = params.get(name)
        if isinstance(found, ClosedJaxpr):
            return found.open, found.consts
        if isinstance(found, Jaxpr):
            return found, []
    raise NotImplementedError(f"an equation with the parameters {sorted(params)} cannot be written out")


def _lowered(value):
    if isinstance(value, tuple):
        return tuple(map(_lowered, value))
    if isinstance(value, ClosedJaxpr) and value.open.is_high:
        program, captured = written_out(value)
        return ClosedJaxpr(program.bind_constants(captured) if captured else program)
    return value
