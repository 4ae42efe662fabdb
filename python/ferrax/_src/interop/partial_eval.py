"""Functions traced to jaxprs in JAX's internal form, and partial evaluation.

Partial evaluation runs what is known and records what depends on unknown values. Operations of
known values run while the function is traced; of a call with known and unknown arguments, those
outputs that depend on known ones alone are computed afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ferrax import _core
from ferrax._src import core
from ferrax._src.core import api_util
from ferrax._src.core.dead_code import dce_jaxpr_consts, unknown_outputs
from ferrax._src.core.jaxpr import ClosedJaxpr, Jaxpr
from ferrax._src.core.primitives import Rules, aval_type
from ferrax._src.tracing import traces
from ferrax._src.tracing.linear_util import WrappedFun

__all__ = ["PartialVal", "trace_to_jaxpr_dynamic", "trace_to_jaxpr_nounits"]

# For libraries that add to them. Linearization acts on whole programs and asks no such rules.
partial_eval_jaxpr_custom_rules = Rules("partial evaluation rule")
custom_partial_eval_rules = Rules("partial evaluation rule")


class PartialVal(tuple):
    """A value that is known, `(None, value)`, or known by its type, `(aval, None)`.

    Args: pair: the two.

    Example:
        >>> from ferrax.interpreters.partial_eval import PartialVal
        >>> PartialVal.known(3.0).is_known()
        True
    """

    __slots__ = ()

    def __new__(cls, pair: Any) -> PartialVal:
        return tuple.__new__(cls, pair)

    @classmethod
    def known(cls, const: Any) -> PartialVal:
        return cls((None, const))

    @classmethod
    def unknown(cls, aval: Any) -> PartialVal:
        return cls((aval, None))

    def is_known(self) -> bool:
        """Whether it is known."""
        return self[0] is None

    def get_known(self) -> Any:
        """The value, or None."""
        return self[1] if self[0] is None else None

    def get_aval(self) -> Any:
        """The type, of the value where that is known."""
        return core.typeof(self[1]) if self[0] is None else self[0]


def _function(fun):
    return fun.call_wrapped if isinstance(fun, WrappedFun) else fun


def _name(fun) -> str:
    info = getattr(fun, "debug_info", None)
    return api_util.fun_name(fun.f) if info is not None else api_util.fun_name(fun)


def _traced(function, name, avals):
    """`(jaxpr, consts)`: the constvars are what the function captures and its constants."""
    program, captured, refs = _core.trace_program(
        function, "stage", name, [aval_type(aval) for aval in avals]
    )
    if refs is not None:
        raise ValueError(
            f"{name} uses a mutable array from outside, which a jaxpr has no place for: pass its "
            "value, ref[...], as an argument"
        )
    closed = ClosedJaxpr(program, captured)
    return closed.open, closed.consts


def trace_to_jaxpr_dynamic(
    fun: Callable[..., Any] | WrappedFun, in_avals: Any, *, keep_inputs: Any = None,
    lower: Any = False, auto_dce: bool = False,
) -> tuple[Jaxpr, list[Any], list[Any]]:
    """`(jaxpr, types of its outputs, values of its constvars)` of a function of flat arguments
    to a list of outputs.

    Args:
        fun: a `linear_util.WrappedFun`, or a function.
        in_avals: the types of the arguments.
        keep_inputs: for each of them, whether the function is called with it.
        lower, auto_dce: must be False.

    Example:
        >>> from ferrax.interpreters.partial_eval import trace_to_jaxpr_dynamic
        >>> aval = ferrax.core.ShapedArray((), np.dtype("float32"))
        >>> jaxpr, _, consts = trace_to_jaxpr_dynamic(lambda x: [x + 1], [aval])
    """
    if lower:
        raise NotImplementedError("trace_to_jaxpr_dynamic: lower=True is not supported; use jit(f).lower")
    keep = [True] * len(in_avals) if keep_inputs is None else list(keep_inputs)
    function = _function(fun)

    def flat(leaves):
        return list(function(*(leaf for leaf, flag in zip(leaves, keep) if flag)))

    jaxpr, consts = _traced(flat, _name(fun), in_avals)
    if auto_dce:
        jaxpr, used, _ = dce_jaxpr_consts(
            jaxpr, True, [False] * len(consts) + [True] * len(in_avals)
        )
        consts = [const for const, flag in zip(consts, used) if flag]
    return jaxpr, [atom.aval for atom in jaxpr.outvars], consts


def trace_to_jaxpr_nounits(
    fun: Callable[..., Any] | WrappedFun, pvals: Any, instantiate: Any = False
) -> tuple[Jaxpr, list[Any], list[Any]]:
    """`(jaxpr, values of the outputs, values of the jaxpr's constvars)`: a partial evaluation.

    Args:
        fun: a `linear_util.WrappedFun`, or a function, of flat arguments to a list of outputs.
        pvals: a `PartialVal` for each argument.
        instantiate: which outputs count as unknown in any case; a bool, or one for each.

    The jaxpr takes the unknown arguments and gives the unknown outputs; the values of outputs are
    `PartialVal`s.

    Example:
        >>> from ferrax.interpreters.partial_eval import PartialVal, trace_to_jaxpr_nounits
        >>> pvals = [PartialVal.known(2.0), PartialVal.unknown(ferrax.typeof(1.0))]
        >>> _, outs, _ = trace_to_jaxpr_nounits(lambda x, y: [x + 1, x * y], pvals)
        >>> outs[0].is_known(), outs[1].is_known()
        (True, False)
    """
    for pval in pvals:
        if not isinstance(pval, PartialVal):
            raise TypeError(f"trace_to_jaxpr_nounits: expected PartialVals, got {pval!r}")
    function = _function(fun)
    unknown = [pval.get_aval() for pval in pvals if not pval.is_known()]
    results: list[Any] = []
    recorded: list[bool] = []
    forced: list[bool] = []

    def flat(leaves):
        leaves = iter(leaves)
        args = [pval.get_known() if pval.is_known() else next(leaves) for pval in pvals]
        with traces.partial_frame(), traces.eval_context():
            frame = traces.current_trace()._frame
            results.extend(function(*args))
        # Asked before the frame ends: afterwards its values mean nothing.
        own = [isinstance(x, core.Tracer) and x._trace._frame == frame for x in results]
        forced.extend([instantiate] * len(own) if isinstance(instantiate, bool) else instantiate)
        recorded.extend(mine or stays for mine, stays in zip(own, forced))
        return [x for x, flag in zip(results, recorded) if flag]

    jaxpr, consts = _traced(flat, _name(fun), unknown)
    depends = unknown_outputs(jaxpr, [True] * len(jaxpr.invars))
    stays = [flag for flag, mine in zip(forced, recorded) if mine]
    later = [a or b for a, b in zip(depends, stays)]
    known = _evaluated(jaxpr, consts, [not flag for flag in later])
    jaxpr, used, _ = dce_jaxpr_consts(
        jaxpr, later, [False] * len(consts) + [True] * len(unknown)
    )
    consts = [const for const, flag in zip(consts, used) if flag]
    out_avals, flags, known = iter(jaxpr.outvars), iter(later), iter(known)
    out_pvals = []
    for value, mine in zip(results, recorded):
        if not mine:
            out_pvals.append(PartialVal.known(value))
        elif next(flags):
            out_pvals.append(PartialVal.unknown(next(out_avals).aval))
        else:
            out_pvals.append(PartialVal.known(next(known)))
    return jaxpr, out_pvals, consts


def _evaluated(jaxpr, consts, which):
    """The values of these outputs, which depend on no input."""
    if not any(which):
        return []
    jaxpr, used, _ = dce_jaxpr_consts(jaxpr, which)
    consts = [const for const, flag in zip(consts, used) if flag]
    return ClosedJaxpr(jaxpr, consts)._run([])
