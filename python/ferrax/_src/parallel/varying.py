"""Over which named axes of a mesh the values of a program may differ from device to device.

What goes in is a jaxpr and, for each input, the set of axes over which it differs; what comes out is
that of each output. A value differs where an operand does; reductions over an axis make it equal along
that, and `axis_index` and `pvary` make it differ. Carries of loops are followed until nothing is added; if
the analysis is `strict`, that they differ along more axes after a step than before, or results of one
branch along other axes than those of another, is an error: it says that the program should state it.
Cost: linear in the size of the program, times the number of axes for each loop around an equation.

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
_EXCHANGES = frozenset(
    {"all_gather", "all_to_all", "ppermute", "reduce_scatter", "axis_index", "pvary"}
)
_NONE: Axes = frozenset()


def varying(jaxpr: Any, inputs: Sequence[Axes], strict: bool = False) -> list[Axes]:
    """The axes over which the outputs may differ. Errors: TypeError, if it is `strict`."""
    if isinstance(jaxpr, ClosedJaxpr):
        jaxpr = jaxpr.jaxpr
    known = dict(zip(jaxpr.invars, inputs, strict=True))

    def of(atom):
        return _NONE if isinstance(atom, Literal) else known.get(atom, _NONE)

    for eqn in jaxpr.eqns:
        found = _of_equation(eqn, [of(atom) for atom in eqn.invars], strict)
        known.update(zip(eqn.outvars, found))
    return [of(atom) for atom in jaxpr.outvars]


def _of_equation(eqn, inputs, strict) -> list[Axes]:
    name, params = eqn.primitive.name, eqn.params
    everywhere = _NONE.union(*inputs)
    if name in _REDUCTIONS:
        axes = params["axes"] if "axes" in params else params["axis_name"]
        return [everywhere.difference(as_names(axes))] * len(eqn.outvars)
    if name in _EXCHANGES:
        return [everywhere.union(as_names(params["axis_name"]))] * len(eqn.outvars)
    rule = _RULES.get(name)
    if rule is not None:
        return rule(params, inputs, strict)
    for inner in ("jaxpr", "call_jaxpr"):
        if inner in params and len(_invars(params[inner])) == len(inputs):
            return varying(params[inner], inputs, strict)
    return [everywhere] * len(eqn.outvars)


def _invars(jaxpr):
    return (jaxpr.jaxpr if isinstance(jaxpr, ClosedJaxpr) else jaxpr).invars


def _settled(step, carry, strict, loop) -> list[Axes]:
    """The carry of a loop, whose step only adds to it."""
    while True:
        after = [old | new for old, new in zip(carry, step(carry))]
        if after == carry:
            return carry
        if strict:
            number = next(n for n, (old, new) in enumerate(zip(carry, after)) if old != new)
            more = tuple(after[number] - carry[number])
            raise TypeError(
                f"{loop}: value {number} of the carry is the same along {more} before a step, and may differ there "
                f"after it. This might be fixed by applying `lax.pcast(..., {more}, to='varying')` to the initial "
                "value, or by check_vma=False in shard_map."
            )
        carry = after


def _scan(params, inputs, strict):
    consts, count = params["num_consts"], params["num_carry"]
    fixed, carry, rest = inputs[:consts], inputs[consts : consts + count], inputs[consts + count :]

    def outputs(carry):
        return varying(params["jaxpr"], [*fixed, *carry, *rest], strict)

    carry = _settled(lambda carry: outputs(carry)[:count], list(carry), strict, "scan")
    return [*carry, *outputs(carry)[count:]]


def _while(params, inputs, strict):
    held, consts = params["cond_nconsts"], params["body_nconsts"]
    fixed = inputs[held : held + consts]
    carry = list(inputs[held + consts :])

    def step(carry):
        return varying(params["body_jaxpr"], [*fixed, *carry], strict)

    return _settled(step, carry, strict, "while_loop")


def _cond(params, inputs, strict):
    index, rest = inputs[0], inputs[1:]
    branches = [varying(branch, rest, strict) for branch in params["branches"]]
    for number, outputs in enumerate(zip(*branches)):
        everywhere = _NONE.union(*outputs)
        for branch, axes in enumerate(outputs):
            if strict and axes != everywhere:
                more = tuple(everywhere - axes)
                raise TypeError(
                    f"cond: output {number} may differ along {more} in one branch, and is the same there in branch "
                    f"{branch}. This might be fixed by applying `lax.pcast(..., {more}, to='varying')` to the "
                    "output of that one, or by check_vma=False in shard_map."
                )
    return [index.union(*outputs) for outputs in zip(*branches)]


def _shard_map(params, inputs, strict):
    own = params["newly_manual_axes"]
    found = varying(params["jaxpr"], inputs, strict and params["check_vma"])
    return [axes - own for axes in found]


_RULES = {"scan": _scan, "while": _while, "cond": _cond, "shard_map": _shard_map}
