"""Dead code of calls of `custom_jvp` and `custom_vjp` functions, for `partial_eval.dce_jaxpr`.

Of outputs that nobody uses, the call loses what computes them, and its rules lose what they give for
them. The inputs stay: rules are of all of them. What is left is a new call, whose rules ask those of
the old one when they are asked themselves.
"""

from __future__ import annotations

from ferrax import _core
from ferrax._src.base import dtypes
from ferrax._src.core import dead_code
from ferrax._src.core.jaxpr import ClosedJaxpr
from ferrax._src.core.primitives import apply_program, builtin
from ferrax._src.transforms.custom_rules import zeros
from ferrax._src.transforms.custom_views import RuleView


def _call_rule(view, bind):
    """The rule for calls whose parameter `view` knows the handle; `bind(program, rule, numbers of the
    used outputs, params, operands)` applies the smaller call."""

    def rule(used, eqn):
        if not any(used) and not eqn.effects:
            return [False] * len(eqn.invars), None
        everything = [True] * len(eqn.invars)
        handle = eqn.params[view]
        # Rules that a file holds are data.
        if all(used) or not isinstance(handle, RuleView):
            return everything, eqn
        params, kept = eqn.params, [number for number, flag in enumerate(used) if flag]
        program = params["call_jaxpr"]._to_program().select_outputs(kept).trimmed()[0]
        traced, _, _ = _core.trace_program(
            lambda operands: bind(program, handle.rule, kept, params, operands),
            "stage",
            repr(handle.rule),
            program.in_types,
        )
        (call,) = ClosedJaxpr(traced).eqns
        outvars = [eqn.outvars[number] for number in kept]
        return everything, eqn.replace(outvars=outvars, params=call.params)

    return rule


def _bind_jvp(program, rule, kept, params, operands):
    def jvp(nonzero):
        whole, flags = rule.jvp(nonzero)
        # Outputs, then the tangents that are there.
        places, count = {}, len(flags)
        for number, flag in enumerate(flags):
            if flag:
                places[number] = count
                count += 1
        chosen = [*kept, *(places[number] for number in kept if number in places)]
        return whole.select_outputs(chosen).trimmed()[0], [flags[number] for number in kept]

    return _core.custom_jvp_call(
        program, jvp, repr(rule), params["num_consts"], params["symbolic_zeros"], operands
    )


def _bind_vjp(program, rule, kept, params, operands):
    avals = params["call_jaxpr"].out_avals
    # The old outputs with cotangents, and which of them are left, in the order of `given`.
    inexact = [number for number, aval in enumerate(avals) if dtypes.has_tangent(aval.dtype)]
    left = [number in kept for number in inexact]

    def forward(perturbed):
        whole = rule.forward(perturbed)
        residuals = range(len(avals), len(whole.out_types))
        return whole.select_outputs([*kept, *residuals]).trimmed()[0], []

    def backward(perturbed, given):
        flags = iter(given)
        there = [flag and next(flags) for flag in left]
        if params["symbolic_zeros"]:
            return rule.backward(perturbed, there)
        # The rule takes arrays of zeros for the outputs that are gone.
        whole, flags = rule.backward(perturbed, [True] * len(inexact))
        count = len(whole.in_types) - len(inexact)

        def fill(leaves):
            found = iter(leaves[count:])
            cotangents = [
                next(found) if flag else zeros(ty) for flag, ty in zip(there, whole.in_types[count:])
            ]
            return apply_program(whole, [*leaves[:count], *cotangents])

        own = [ty for ty, flag in zip(whole.in_types[count:], there) if flag]
        program, _, _ = _core.trace_program(fill, "stage", repr(rule), [*whole.in_types[:count], *own])
        return program, flags

    # `optimize_remat` is about what checkpoints keep of a call, and is not asked for here.
    return _core.custom_vjp_call(
        program, forward, backward, repr(rule), params["num_consts"], params["symbolic_zeros"], False, operands
    )


dead_code.dce_rules[builtin("custom_jvp_call")] = _call_rule("jvp_jaxpr_fun", _bind_jvp)
dead_code.dce_rules[builtin("custom_vjp_call")] = _call_rule("fwd_jaxpr_thunk", _bind_vjp)
