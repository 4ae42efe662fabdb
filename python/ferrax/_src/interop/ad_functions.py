"""Derivatives in JAX's internal form: of functions of flat arguments, with symbolic zeros."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ferrax._src import core
from ferrax._src.base import dtypes
from ferrax._src.core.dead_code import convert_invars_to_constvars
from ferrax._src.core.jaxpr import ClosedJaxpr, Var
from ferrax._src.core.primitives import apply_program
from ferrax._src.transforms import linearized
from ferrax._src.transforms.ad import Zero, instantiate_zeros

__all__ = ["jvp", "linearize"]


def _flat_function(fun, has_aux):
    function = getattr(fun, "call_wrapped", fun)

    def flat(*args):
        if has_aux:
            outs, aux = function(*args)
            return list(outs), aux
        return list(function(*args))

    flat.__name__ = getattr(fun, "__name__", "function")
    return flat


def jvp(
    fun: Callable[..., Any], primals: Any, tangents: Any, has_aux: bool = False,
    instantiate: Any = True,
) -> tuple[Any, ...]:
    """`(outputs, their tangents)` of a function of flat arguments to a list of outputs, as lists;
    with `has_aux` also what the function returns beside them.

    Args:
        fun: a function, or a `linear_util.WrappedFun`.
        primals: the arguments.
        tangents: one for each argument, of its type; a `Zero` where it is zero.
        instantiate: which outputs have arrays of zeros for tangents that are zero, in place of
            `Zero`: a bool, or one for each.

    Example:
        >>> ad.jvp(lambda x, y: [x * y], [2.0, 3.0], [1.0, 0.0])[1]
        [Array(3., dtype=float32, weak_type=True)]
    """
    arrays, program, captured, flat = linearized.trace(
        _flat_function(fun, has_aux), tuple(primals), None, has_aux
    )
    if len(tangents) != len(arrays):
        raise TypeError(f"jvp: expected {len(arrays)} tangents, got {len(tangents)}")
    nonzero = [
        dtypes.has_tangent(x.dtype) and type(t) is not Zero for x, t in zip(arrays, tangents)
    ]
    with linearized.orders.pushing():
        pushed, flags = program.jvp(nonzero + [False] * len(captured))
    given = [core.as_array(t, "jvp") for t, flag in zip(tangents, nonzero) if flag]
    results = apply_program(pushed, arrays + captured + given)
    results, flags, _ = linearized.write_refs(flat, results, flags)
    count, outputs = len(flags), flat.num_out
    outs, made = results[:outputs], iter(results[count:])
    found = [next(made) if flag else None for flag in flags][:outputs]
    if isinstance(instantiate, bool):
        instantiate = [instantiate] * outputs
    found = [Zero.from_primal_value(x) if t is None else t for x, t in zip(outs, found)]
    found = [instantiate_zeros(t) if flag else t for t, flag in zip(found, instantiate)]
    aux = (flat.aux(results[outputs:count]),) if has_aux else ()
    return (outs, found, *aux)


def linearize(fun: Callable[..., Any], primals: Any, has_aux: bool = False, is_vjp: bool = False) -> tuple[Any, ...]:
    """`(outputs, which tangents of outputs are zero, jaxpr, values of its constvars)` of a function
    of flat arguments to a list of outputs; with `has_aux` also what it returns beside them.

    The jaxpr takes a tangent for each argument, to the tangents of outputs that are not zero.

    Args: fun: a function, or a `linear_util.WrappedFun`; primals: the arguments; is_vjp: accepted,
    without effect.

    Example:
        >>> outs, zeros, jaxpr, consts = ad.linearize(lambda x: [x**2, 1.0], [3.0])
        >>> zeros
        [False, True]
    """
    if is_vjp:
        raise NotImplementedError("ad.linearize: is_vjp is not supported; use ferrax.vjp")
    point = linearized.Linearized(_flat_function(fun, has_aux), tuple(primals), has_aux, pushes=True)
    if point.ordered or point.reverses:
        raise NotImplementedError(
            "ad.linearize: the function has reverse rules that use mutable arrays; use "
            "ferrax.linearize or ferrax.vjp"
        )
    outs, aux, residuals = point.take()
    closed = ClosedJaxpr(point.linear)
    jaxpr = convert_invars_to_constvars(closed.open, len(residuals))
    tangents = iter(jaxpr.invars)
    invars = [
        next(tangents) if flag else Var(core.ShapedArray(*ty).to_tangent_aval())
        for flag, ty in zip(point.nonzero_in, point.in_types)
    ]
    constvars = [*jaxpr.constvars[len(closed.consts) :], *jaxpr.constvars[: len(closed.consts)]]
    flags = point.flags[: point.flat.num_out]
    outvars = jaxpr.outvars[: sum(flags)]
    jaxpr = jaxpr.replace(constvars=constvars, invars=invars, outvars=outvars)
    return (outs, [not flag for flag in flags], jaxpr, [*residuals, *closed.consts],
            *((aux,) if has_aux else ()))  # fmt: skip
