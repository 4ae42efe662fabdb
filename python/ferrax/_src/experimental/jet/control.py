"""Series through programs inside of equations: calls, branches and loops.

The program is traced again on series: each input and output that varies is followed by its
coefficients. A loop's carry varies where its start does, or what the body makes of it.
"""

from __future__ import annotations

from ferrax._src.core import call_borders, scan_params
from ferrax._src.core.jaxpr import ClosedJaxpr, Jaxpr
from ferrax._src.core.primitives import aval_type, builtin
from ferrax._src.experimental.jet.propagate import (
    SeriesRule,
    jet_rules,
    pack,
    packed,
    packed_size,
    propagate,
    reached,
    trace,
    unpack,
    varies,
)


def _closed(jaxpr) -> ClosedJaxpr:
    return ClosedJaxpr(jaxpr) if isinstance(jaxpr, Jaxpr) else jaxpr


def _call(name, param):
    primitive = builtin(name)

    def rule(inputs, params):
        order = len(inputs[0]) - 1
        params = call_borders.whole(params)
        closed = _closed(params[param])
        flags = [varies(u) for u in inputs]
        wanted = reached(closed, flags)
        inner = packed(closed, flags, wanted, order)
        results = primitive.bind(*pack(inputs, flags), **(params | {param: inner}))
        return unpack(results, wanted, order)

    jet_rules[primitive] = SeriesRule(rule, several=True)


_call("jit", "jaxpr")
_call("remat2", "jaxpr")


def _cond(inputs, params):
    index, *operands = inputs
    order = len(index) - 1
    flags = [varies(u) for u in operands]
    branches = params["branches"]
    wanted = [any(column) for column in zip(*(reached(branch, flags) for branch in branches))]
    inner = tuple(packed(branch, flags, wanted, order) for branch in branches)
    results = builtin("cond").bind(
        index[0], *pack(operands, flags), **(params | {"branches": inner})
    )
    return unpack(results, wanted, order)


def _carried(body, before, carry, after):
    """Which of the carry vary, for flags of the body's other inputs, and of its outputs."""
    while True:
        outs = reached(body, [*before, *carry, *after])
        grown = [old or new for old, new in zip(carry, outs)]
        if grown == carry:
            return carry, outs
        carry = grown


def _scan(inputs, params):
    order = len(inputs[0]) - 1
    params = scan_params.counted(params)
    body = params["jaxpr"]
    flags = [varies(u) for u in inputs]
    num_consts, num_carry = params["num_consts"], params["num_carry"]
    first = num_consts + num_carry
    consts, xs = flags[:num_consts], flags[first:]
    carry, outs = _carried(body, consts, flags[num_consts:first], xs)
    flags = [*consts, *carry, *xs]
    wanted = [*carry, *outs[num_carry:]]
    results = builtin("scan").bind(
        *pack(inputs, flags),
        **params
        | {
            "jaxpr": packed(body, flags, wanted, order),
            "num_consts": packed_size(consts, order),
            "num_carry": packed_size(carry, order),
        },
    )
    return unpack(results, wanted, order)


def _while(inputs, params):
    order = len(inputs[0]) - 1
    cond, body = params["cond_jaxpr"], params["body_jaxpr"]
    num_cond, num_body = params["cond_nconsts"], params["body_nconsts"]
    of_cond, of_body = inputs[:num_cond], inputs[num_cond : num_cond + num_body]
    start = inputs[num_cond + num_body :]
    consts = [varies(u) for u in of_body]
    carry, _ = _carried(body, consts, [varies(u) for u in start], [])

    def go_on(leaves):
        values = unpack(leaves[num_cond:], carry, order)
        given = [[x] for x in leaves[:num_cond]] + [u[:1] for u in values]
        return [u[0] for u in propagate(cond, given, 0)]

    types = [aval_type(aval) for aval in cond.in_avals[:num_cond]]
    for aval, flag in zip(cond.in_avals[num_cond:], carry):
        types.append(aval_type(aval))
        types += [(aval.shape, aval.dtype, False)] * (order if flag else 0)
    results = builtin("while").bind(
        *(u[0] for u in of_cond),
        *pack(of_body, consts),
        *pack(start, carry),
        **params
        | {
            "cond_jaxpr": trace(go_on, types),
            "body_jaxpr": packed(body, [*consts, *carry], carry, order),
            "body_nconsts": packed_size(consts, order),
        },
    )
    return unpack(results, carry, order)


for _name, _rule in {"cond": _cond, "scan": _scan, "while": _while}.items():
    jet_rules[builtin(_name)] = SeriesRule(_rule, several=True)
