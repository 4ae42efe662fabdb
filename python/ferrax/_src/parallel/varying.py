"""Over which named axes of a mesh the values of a program may differ from device to device.

What goes in is a jaxpr and, for each input, the set of axes over which it differs; what comes out is
that of each output. A value differs where an operand does; reductions over an axis make it equal along
that, and `axis_index` makes it differ. Carries of loops are followed until nothing is added. Cost:
linear in the size of the program, times the number of axes for each loop around an equation.

The rules are those that any dataflow analysis of this kind has (Kildall, "A unified approach to global
program optimization", 1973), on the lattice of sets of axes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ferrax._src.core.jaxpr import ClosedJaxpr, Literal
from ferrax._src.core.named_axes import as_names

Axes = frozenset

# What makes values equal along the axes that it names.
_REDUCTIONS = frozenset({"psum", "pmax", "pmin", "psum_invariant", "pbroadcast"})
# What sends values along an axis: they may differ along it afterwards.
_EXCHANGES = frozenset({"all_gather", "all_to_all", "ppermute", "reduce_scatter", "axis_index"})
_NONE: Axes = frozenset()


def varying(jaxpr: Any, inputs: Sequence[Axes]) -> list[Axes]:
    """The axes over which the outputs may differ."""
    if isinstance(jaxpr, ClosedJaxpr):
        jaxpr = jaxpr.jaxpr
    known = dict(zip(jaxpr.invars, inputs, strict=True))

    def of(atom):
        return _NONE if isinstance(atom, Literal) else known.get(atom, _NONE)

    for eqn in jaxpr.eqns:
        found = _of_equation(eqn, [of(atom) for atom in eqn.invars])
        known.update(zip(eqn.outvars, found))
    return [of(atom) for atom in jaxpr.outvars]


def _of_equation(eqn, inputs) -> list[Axes]:
    name, params = eqn.primitive.name, eqn.params
    everywhere = _NONE.union(*inputs)
    if name in _REDUCTIONS:
        axes = params["axes"] if "axes" in params else params["axis_name"]
        return [everywhere.difference(as_names(axes))] * len(eqn.outvars)
    if name in _EXCHANGES:
        return [everywhere.union(as_names(params["axis_name"]))] * len(eqn.outvars)
    rule = _RULES.get(name)
    if rule is not None:
        return rule(params, inputs)
    for inner in ("jaxpr", "call_jaxpr"):
        if inner in params and len(_invars(params[inner])) == len(inputs):
            return varying(params[inner], inputs)
    return [everywhere] * len(eqn.outvars)


def _invars(jaxpr):
    return (jaxpr.jaxpr if isinstance(jaxpr, ClosedJaxpr) else jaxpr).invars


def _settled(step, carry) -> list[Axes]:
    """The carry of a loop, whose step only adds to it."""
    while True:
        after = [old | new for old, new in zip(carry, step(carry))]
        if after == carry:
            return carry
        carry = after


def _scan(params, inputs):
    consts, count = params["num_consts"], params["num_carry"]
    fixed, carry, rest = inputs[:consts], inputs[consts : consts + count], inputs[consts + count :]

    def outputs(carry):
        return varying(params["jaxpr"], [*fixed, *carry, *rest])

    carry = _settled(lambda carry: outputs(carry)[:count], list(carry))
    return [*carry, *outputs(carry)[count:]]


def _while(params, inputs):
    held, consts = params["cond_nconsts"], params["body_nconsts"]
    fixed = inputs[held : held + consts]
    carry = list(inputs[held + consts :])
    return _settled(lambda carry: varying(params["body_jaxpr"], [*fixed, *carry]), carry)


def _cond(params, inputs):
    index, rest = inputs[0], inputs[1:]
    branches = [varying(branch, rest) for branch in params["branches"]]
    return [index.union(*outputs) for outputs in zip(*branches)]


def _shard_map(params, inputs):
    own = params["newly_manual_axes"]
    found = varying(params["jaxpr"], inputs)
    return [axes - own for axes in found]


_RULES = {"scan": _scan, "while": _while, "cond": _cond, "shard_map": _shard_map}
