"""Jaxprs made of others: with other inputs and outputs, cut in two by what is known, and derivatives of them.

In: closed jaxprs. Out: closed jaxprs, and what is said of their outputs. Cost: linear in the equations; a
derivative is traced.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ferrax._src.core.dead_code import unknown_outputs
from ferrax._src.core.jaxpr import ClosedJaxpr, Jaxpr, Literal, jaxpr_as_fun
from ferrax._src.interop.ad_functions import jvp
from ferrax._src.interop.partial_eval import trace_to_jaxpr_dynamic
from ferrax._src.transforms.ad import Zero

__all__ = [
    "abstract_eval_fun",
    "jvp_jaxpr",
    "move_binders_to_back",
    "partial_eval_jaxpr_nounits",
    "prune_closed_jaxpr_outputs",
]


def abstract_eval_fun(fun: Callable[..., Any], *avals: Any, debug_info: Any = None, **params: Any) -> list[Any]:
    """The types of what a function returns, a list, for arguments of these types.

    Args: fun: of arrays, with `params` as keywords; avals: types; debug_info: accepted, without effect.

    >>> aval = ferrax.typeof(jnp.ones(3))
    >>> ferrax.interpreters.partial_eval.abstract_eval_fun(lambda x, *, n: [x[:n]], aval, n=2)
    [ShapedArray(float32[2])]
    """
    return trace_to_jaxpr_dynamic(lambda *args: list(fun(*args, **params)), avals)[1]


def _flags(given, count, name):
    flags = [bool(given)] * count if isinstance(given, bool) else list(map(bool, given))
    if len(flags) != count:
        raise ValueError(f"{name}: expected {count} flags, got {len(flags)}")
    return flags


def move_binders_to_back(closed_jaxpr: ClosedJaxpr, to_move: Sequence[bool]) -> ClosedJaxpr:
    """The jaxpr with some of its inputs behind the others, each kind in its order.

    Args: closed_jaxpr: the jaxpr; to_move: flags of its first inputs. Errors: ValueError for more flags than inputs.

    >>> jaxpr = ferrax.make_jaxpr(lambda x, y: x - y)(1.0, 2.0)
    >>> moved = ferrax.interpreters.partial_eval.move_binders_to_back(jaxpr, [True])
    >>> ferrax.core.jaxpr_as_fun(moved)(1.0, 5.0)
    [Array(4., dtype=float32, weak_type=True)]
    """
    opened = closed_jaxpr.jaxpr
    invars = opened.invars
    if len(to_move) > len(invars):
        raise ValueError(f"move_binders_to_back: {len(to_move)} flags for {len(invars)} inputs")
    flags = [*to_move, *[False] * (len(invars) - len(to_move))]
    stay = [var for var, flag in zip(invars, flags) if not flag]
    moved = [var for var, flag in zip(invars, flags) if flag]
    return ClosedJaxpr(_open(closed_jaxpr).replace(invars=stay + moved), closed_jaxpr.consts)


def prune_closed_jaxpr_outputs(jaxpr: ClosedJaxpr, prune: Sequence[bool]) -> ClosedJaxpr:
    """The jaxpr with some of its outputs alone.

    Args: jaxpr: the jaxpr; prune: flags, of the outputs that stay. Errors: ValueError for another number of flags.

    >>> jaxpr = ferrax.make_jaxpr(lambda x: (x, x + 1))(1.0)
    >>> len(ferrax.interpreters.partial_eval.prune_closed_jaxpr_outputs(jaxpr, [False, True]).out_avals)
    1
    """
    opened = _open(jaxpr)
    flags = _flags(prune, len(opened.outvars), "prune_closed_jaxpr_outputs")
    kept = [atom for atom, flag in zip(opened.outvars, flags) if flag]
    return ClosedJaxpr(opened.replace(outvars=kept), jaxpr.consts)


def _open(closed: Any) -> Jaxpr:
    return closed.open if isinstance(closed, ClosedJaxpr) else closed


def partial_eval_jaxpr_nounits(
    jaxpr: ClosedJaxpr, unknowns: Sequence[bool], instantiate: bool | Sequence[bool]
) -> tuple[ClosedJaxpr, ClosedJaxpr, list[bool], list[Any]]:
    """`(known, unknown, which outputs are unknown, types of residuals)`: the jaxpr cut in two.

    The first jaxpr takes the known inputs to the known outputs and residuals; the second residuals and the unknown
    inputs to the unknown outputs.

    Args: jaxpr: the jaxpr; unknowns: flags of its inputs; instantiate: which outputs count as unknown in any case, a
    bool or one for each. Errors: ValueError for another number of flags.

    >>> jaxpr = ferrax.make_jaxpr(lambda x, y: (x + 1, x * y))(1.0, 2.0)
    >>> ferrax.interpreters.partial_eval.partial_eval_jaxpr_nounits(jaxpr, [False, True], False)[2]
    [False, True]
    """
    name = "partial_eval_jaxpr_nounits"
    opened = _open(jaxpr)
    flags = _flags(unknowns, len(opened.invars), name)
    forced = _flags(instantiate, len(opened.outvars), name)
    depends = unknown_outputs(opened, flags)
    later = [a or b for a, b in zip(depends, forced)]
    unknown = {var for var, flag in zip(opened.invars, flags) if flag}
    first: list[Any] = []
    second: list[Any] = []
    for eqn in opened.eqns:
        moves = any(atom in unknown for atom in eqn.invars if not isinstance(atom, Literal))
        unknown.update(eqn.outvars if moves else ())
        (second if moves else first).append(eqn)
    made = {out for eqn in second for out in eqn.outvars}
    asked = [atom for eqn in second for atom in eqn.invars]
    asked += [atom for atom, flag in zip(opened.outvars, later) if flag]
    needed = dict.fromkeys(x for x in asked if not isinstance(x, Literal) and x not in made and x not in unknown)
    constants = dict(zip(opened.constvars, jaxpr.consts))
    residuals = [var for var in needed if var not in constants]
    known_in = [var for var, flag in zip(opened.invars, flags) if not flag]
    unknown_in = [var for var, flag in zip(opened.invars, flags) if flag]
    known_out = [atom for atom, flag in zip(opened.outvars, later) if not flag]
    unknown_out = [atom for atom, flag in zip(opened.outvars, later) if flag]
    own = [var for var in opened.constvars if var in needed]
    known = opened.replace(invars=known_in, outvars=known_out + residuals, eqns=first)
    rest = opened.replace(constvars=own, invars=residuals + unknown_in, outvars=unknown_out, eqns=second)
    return (
        ClosedJaxpr(known, jaxpr.consts), ClosedJaxpr(rest, [constants[var] for var in own]), later,
        [var.aval for var in residuals],
    )  # fmt: skip


def jvp_jaxpr(
    jaxpr: ClosedJaxpr, nonzeros: Sequence[bool], instantiate: bool | Sequence[bool]
) -> tuple[ClosedJaxpr, list[bool]]:
    """`(derivative, which tangents of outputs are there)`: a jaxpr of inputs and their tangents to outputs and theirs.

    Args: jaxpr: the jaxpr; nonzeros: flags, of the inputs that have tangents; instantiate: which outputs have a tangent
    even if it is zero, a bool or one for each. Errors: ValueError for another number of flags.

    >>> jaxpr = ferrax.make_jaxpr(lambda x, y: (x * y, y))(1.0, 2.0)
    >>> ferrax.interpreters.ad.jvp_jaxpr(jaxpr, [True, False], False)[1]
    [True, False]
    """
    avals = _open(jaxpr).in_avals
    flags = _flags(nonzeros, len(avals), "jvp_jaxpr")
    wanted = _flags(instantiate, len(_open(jaxpr).outvars), "jvp_jaxpr")
    found: list[bool] = []

    def pushed(*args):
        given = iter(args[len(avals) :])
        tangents = [next(given) if flag else Zero(aval.to_tangent_aval()) for flag, aval in zip(flags, avals)]
        outs, made = jvp(jaxpr_as_fun(jaxpr), args[: len(avals)], tangents, instantiate=wanted)
        found[:] = [type(t) is not Zero for t in made]
        return [*outs, *(t for t, flag in zip(made, found) if flag)]

    tangent_avals = [aval.to_tangent_aval() for aval, flag in zip(avals, flags) if flag]
    derivative, _, consts = trace_to_jaxpr_dynamic(pushed, [*avals, *tangent_avals])
    return ClosedJaxpr(derivative, consts), found
