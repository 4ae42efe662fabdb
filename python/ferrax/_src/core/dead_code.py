"""Removal of dead equations from jaxprs, into the jaxprs in their parameters.

A rule in `dce_rules` takes `(which outputs are used, eqn)` and returns `(which inputs it then
needs, the equation with less, or None if it is not needed at all)`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ferrax._src.base.effects import NamedAxisEffect
from ferrax._src.core import scan_params
from ferrax._src.core.jaxpr import (
    ClosedJaxpr,
    DropVar,
    Jaxpr,
    JaxprEqn,
    Literal,
    Var,
    _equation_effects,
)
from ferrax._src.core.primitives import builtin

__all__ = [
    "convert_constvars_jaxpr",
    "convert_invars_to_constvars",
    "dce_jaxpr",
    "dce_jaxpr_call_rule",
    "dce_jaxpr_closed_call_rule",
    "dce_jaxpr_consts",
    "dce_rules",
]

dce_rules: dict = {}
# Parameters of calls that have an entry for each input, or each output.
_OF_INPUTS = "in_shardings", "in_layouts", "donated_invars", "in_specs"
_OF_OUTPUTS = "out_shardings", "out_layouts", "out_specs"


def _flags(flags, count) -> list[bool]:
    return [flags] * count if isinstance(flags, bool) else list(flags)


def _kept(items, flags):
    return [item for item, flag in zip(items, flags) if flag]


def dce_jaxpr(jaxpr: Any, used_outputs: Any, instantiate: Any = False) -> tuple[Jaxpr, list[bool]]:
    """`(jaxpr with the used outputs alone, which inputs it still needs)`.

    Equations with effects stay. `used_outputs` is a bool, or one for each output; `instantiate`
    says which inputs stay in any case.

    Example:
        >>> closed = ferrax.make_jaxpr(lambda x, y: (x + 1, y * 2))(1.0, 2.0)
        >>> partial_eval.dce_jaxpr(closed.jaxpr, [False, True])[1]
        [False, True]
    """
    outvars = _kept(jaxpr.outvars, _flags(used_outputs, len(jaxpr.outvars)))
    needed = {atom for atom in outvars if isinstance(atom, Var)}
    eqns = []
    for eqn in reversed(jaxpr.eqns):
        used = [var in needed for var in eqn.outvars]
        used_inputs, reduced = dce_rules.get(eqn.primitive, _whole)(used, eqn)
        if reduced is not None:
            eqns.append(reduced)
        needed.update(
            atom for atom in _kept(eqn.invars, used_inputs) if not isinstance(atom, Literal)
        )
    stays = _flags(instantiate, len(jaxpr.invars))
    used = [var in needed or flag for var, flag in zip(jaxpr.invars, stays)]
    changes = {"invars": _kept(jaxpr.invars, used), "outvars": outvars, "eqns": eqns[::-1]}
    effects = frozenset().union(*(eqn.effects for eqn in eqns))
    return jaxpr.replace(**changes, effects=effects), used


def dce_jaxpr_consts(jaxpr: Any, used_outputs: Any, instantiate: Any = False) -> tuple[Jaxpr, list[bool], list[bool]]:
    """As `dce_jaxpr`, for constvars too: `(jaxpr, which constvars it needs, which inputs)`.
    `instantiate` has flags for constvars first.

    Args: jaxpr, used_outputs, instantiate: as for `dce_jaxpr`.

    >>> jaxpr = ferrax.make_jaxpr(lambda x, y: (x + 1, y * 2))(1.0, 1.0).jaxpr
    >>> ferrax.interpreters.partial_eval.dce_jaxpr_consts(jaxpr, [True, False])
    ({ lambda ; a:f32[]. let b:f32[] = add a 1.0:f32[] in (b,) }, [], [True, False])
    """
    count = len(jaxpr.constvars)
    if isinstance(instantiate, bool):
        instantiate = [instantiate] * (count + len(jaxpr.invars))
    reduced, used = dce_jaxpr(convert_constvars_jaxpr(jaxpr), used_outputs, instantiate)
    reduced = convert_invars_to_constvars(reduced, sum(used[:count]))
    return reduced, used[:count], used[count:]


def convert_constvars_jaxpr(jaxpr):
    """The jaxpr with its constvars as its first inputs."""
    return jaxpr.replace(constvars=(), invars=[*jaxpr.constvars, *jaxpr.invars])


def convert_invars_to_constvars(jaxpr, count):
    """The jaxpr with its first inputs, `count` of them, as constvars."""
    constvars, invars = jaxpr.invars[:count], jaxpr.invars[count:]
    return jaxpr.replace(constvars=[*jaxpr.constvars, *constvars], invars=invars)


def _happens(eqn):
    """Whether an equation does more than to give values. That it is over a named axis is nothing of that kind."""
    return any(not isinstance(effect, NamedAxisEffect) for effect in eqn.effects)


def _whole(used, eqn):
    needed = _happens(eqn) or any(used)
    return [needed for _ in eqn.invars], eqn if needed else None


def _reduced(eqn, used_inputs, outvars, params):
    invars = _kept(eqn.invars, used_inputs)
    effects = _equation_effects(eqn.primitive, invars, params)
    return JaxprEqn(invars, outvars, eqn.primitive, params, effects, eqn.source_info, eqn.ctx)


def _dce(jaxpr, used, instantiate=False):
    """`dce_jaxpr` of an open or closed jaxpr, as the same kind."""
    if isinstance(jaxpr, ClosedJaxpr):
        inner, used_inputs = dce_jaxpr(jaxpr.open, used, instantiate)
        return ClosedJaxpr(inner, jaxpr.consts), used_inputs
    return dce_jaxpr(jaxpr, used, instantiate)


def call_rule(param: str) -> Callable[[list[bool], JaxprEqn], tuple[list[bool], JaxprEqn | None]]:
    def rule(used: list[bool], eqn: JaxprEqn) -> tuple[list[bool], JaxprEqn | None]:
        """Dead code of a call: `(which inputs are used, the equation that is left, or None)`.

        Args: used: which outputs are used; eqn: the equation.

        >>> from ferrax.interpreters import partial_eval
        >>> eqn = ferrax.make_jaxpr(ferrax.jit(lambda x, y: (x, y + 1)))(1.0, 2.0).eqns[0]
        >>> call = eqn.replace(params={"call_jaxpr": eqn.params["jaxpr"]})
        >>> partial_eval.dce_jaxpr_call_rule([False, False], call)
        ([False, False], None)
        """
        if not any(used) and not _happens(eqn):
            return [False] * len(eqn.invars), None
        inner, used_inputs = _dce(eqn.params[param], used)
        params = dict(eqn.params, **{param: inner})
        for names, flags in ((_OF_INPUTS, used_inputs), (_OF_OUTPUTS, used)):
            params |= {name: tuple(_kept(params[name], flags)) for name in names if name in params}
        return used_inputs, _reduced(eqn, used_inputs, _kept(eqn.outvars, used), params)

    return rule


dce_jaxpr_call_rule = call_rule("call_jaxpr")
dce_jaxpr_closed_call_rule = call_rule("call_jaxpr")


def _cond(used, eqn):
    if not any(used) and not _happens(eqn):
        return [False] * len(eqn.invars), None
    branches = eqn.params["branches"]
    wanted = [any(flags) for flags in zip(*(_dce(branch, used)[1] for branch in branches))]
    inner = tuple(_dce(branch, used, wanted)[0] for branch in branches)
    used_inputs = [True, *wanted]
    params = dict(eqn.params, branches=inner)
    return used_inputs, _reduced(eqn, used_inputs, _kept(eqn.outvars, used), params)


def _scan(used, eqn):
    if not any(used) and not _happens(eqn):
        return [False] * len(eqn.invars), None
    params = scan_params.counted(eqn.params)
    consts, carries = params["num_consts"], params["num_carry"]
    elements = used[carries:]
    carried = list(used[:carries])
    # A carry is needed if it is used behind the loop, or by a later step.
    while True:
        jaxpr, inputs = _dce(params["jaxpr"], [*carried, *elements])
        needed = [a or b for a, b in zip(carried, inputs[consts : consts + carries])]
        if needed == carried:
            break
        carried = needed
    stays = [False] * consts + carried + [False] * (len(inputs) - consts - carries)
    jaxpr, inputs = _dce(params["jaxpr"], [*carried, *elements], stays)
    changed = dict(params, jaxpr=jaxpr, num_consts=sum(inputs[:consts]), num_carry=sum(carried))
    if "linear" in params:
        changed["linear"] = tuple(_kept(params["linear"], inputs))
    outvars = [
        var if flag else DropVar(var.aval)
        for var, flag, stays in zip(eqn.outvars, used, [*carried, *elements])
        if stays
    ]
    changed = scan_params.followed(changed, sum(inputs), len(outvars))
    return inputs, _reduced(eqn, inputs, outvars, changed)


dce_rules[builtin("jit")] = call_rule("jaxpr")
dce_rules[builtin("remat2")] = call_rule("jaxpr")
dce_rules[builtin("cond")] = _cond
dce_rules[builtin("scan")] = _scan


def unknown_outputs(jaxpr, unknown):
    """Which outputs of a jaxpr depend on these of its inputs."""
    jaxpr = jaxpr.open if isinstance(jaxpr, ClosedJaxpr) else jaxpr
    depends = {var for var, flag in zip(jaxpr.invars, unknown) if flag}
    for eqn in jaxpr.eqns:
        given = [isinstance(atom, Var) and atom in depends for atom in eqn.invars]
        if not any(given) and not eqn.effects:
            continue
        outs = [True] * len(eqn.outvars)
        if eqn.primitive._builtin and eqn.primitive.op in ("jit", "remat2"):
            outs = unknown_outputs(eqn.params["jaxpr"], given)
        depends.update(_kept(eqn.outvars, outs))
    return [isinstance(atom, Var) and atom in depends for atom in jaxpr.outvars]

