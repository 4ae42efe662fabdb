"""Rules of `custom_jvp` and `custom_vjp` functions as walkers of jaxprs see them.

In a program such a rule is one handle, which is asked for programs. JAX's equations have functions
in its place: `jvp_jaxpr_fun`, or `fwd_jaxpr_thunk` and `bwd`. The views here are such functions and
remember the handle, so that an equation can be bound again as it is. `bind` with `subfuns`, as
interpreters call it that put functions of their own in their places, makes a new call.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ferrax._src import core
from ferrax._src.base import dtypes
from ferrax._src.core import primitive_params
from ferrax._src.core.jaxpr import ClosedJaxpr, DebugInfo, jaxpr_as_fun
from ferrax._src.core.primitives import BuiltinPrimitive, apply_program, builtin_classes
from ferrax._src.tracing import linear_util as lu
from ferrax._src.tracing.staging import eval_shape
from ferrax._src.transforms.ad import Zero, instantiate_zeros
from ferrax._src.transforms.custom_jvp import custom_jvp
from ferrax._src.transforms.custom_rules import SymbolicZero
from ferrax._src.transforms.custom_vjp import custom_vjp
from ferrax._src.tree import tree_util


class RuleView(lu.WrappedFun):
    """A function that a rule is, and the rule as the native core has it."""

    __slots__ = ("rule", "part")

    def __init__(self, function, rule, part):
        super().__init__(function, function, debug_info=DebugInfo(part, repr(rule)))
        self.rule = rule
        self.part = part

    @property
    def __name__(self):
        return repr(self.rule)

    def __call__(self, *args):
        return self.call_wrapped(*args)

    def _key(self):
        return self.rule, self.part


def shown(op, params, operands, num_outputs):
    """The parameters of a call with the functions in place of the handle."""
    if op == "custom_jvp_call":
        rule = params["jvp_jaxpr_fun"]
        if not hasattr(rule, "jvp"):
            return params
        return {
            "call_jaxpr": params["call_jaxpr"],
            "jvp_jaxpr_fun": _jvp_view(rule, params),
            "num_consts": params["num_consts"],
            "symbolic_zeros": params["symbolic_zeros"],
        }
    rule = params["rule"]
    if not hasattr(rule, "backward"):
        return params
    call, known = params["call_jaxpr"], params["num_consts"]
    return {
        "call_jaxpr": call,
        "fwd_jaxpr_thunk": _forward_view(rule, params),
        "num_consts": known,
        "bwd": _backward_view(rule, params),
        "out_trees": functools.partial(_out_trees, rule, params),
        "symbolic_zeros": params["symbolic_zeros"],
    }


def native(params):
    """The parameters with the handle in place of the functions."""
    params = dict(params)
    forward = params.pop("fwd_jaxpr_thunk", None)
    params.pop("bwd", None)
    if forward is not None:
        params["rule"] = forward.rule
    rule = params.get("jvp_jaxpr_fun")
    if isinstance(rule, RuleView):
        params["jvp_jaxpr_fun"] = rule.rule
    return params


def _flags(given, params):
    """Flags for all inputs, of flags for those that are not captured; others than those of inexact
    dtype have no derivatives."""
    known, count = params["num_consts"], len(params["call_jaxpr"].in_avals)
    if len(given) != count - known:
        raise TypeError(
            f"a rule is asked with a flag for each of {count - known} arguments, got {len(given)}"
        )
    avals = params["call_jaxpr"].in_avals[known:]
    return [False] * known + [bool(f) and dtypes.has_tangent(a.dtype) for f, a in zip(given, avals)]


def _all_flags(params):
    return _flags([True] * (len(params["call_jaxpr"].in_avals) - params["num_consts"]), params)


def _jvp_view(rule, params):
    def jvp_jaxpr(*zeros):
        """`(jaxpr, consts, which tangents of outputs are zero)`, for flags of the arguments whose
        tangents are symbolic zeros. The jaxpr takes the call's operands, and the other tangents."""
        program, flags = rule.jvp(_flags([not zero for zero in zeros], params))
        closed = ClosedJaxpr(program)
        return closed.open, closed.consts, [not flag for flag in flags]

    return RuleView(jvp_jaxpr, rule, "jvp")


def _residual_count(rule, params, perturbed):
    program = rule.forward(perturbed)
    return program, len(program.out_types) - len(params["call_jaxpr"].out_avals)


def _forward_view(rule, params):
    def forward_jaxpr(*nonzeros):
        """`(jaxpr, consts)`, for flags of the arguments that are differentiated in. The jaxpr takes
        the call's operands, to residuals and then outputs."""
        program, residuals = _residual_count(rule, params, _flags(nonzeros, params))
        outputs = len(program.out_types) - residuals
        order = [*range(outputs, outputs + residuals), *range(outputs)]
        closed = ClosedJaxpr(program.select_outputs(order))
        return closed.open, closed.consts

    return RuleView(forward_jaxpr, rule, "fwd")


def _backward_view(rule, params):
    call, known = params["call_jaxpr"], params["num_consts"]

    def backward(*args):
        """The cotangents of the arguments, for residuals and the cotangents of the outputs; a
        `Zero` where it is zero."""
        inexact = [dtypes.has_tangent(aval.dtype) for aval in call.out_avals]
        residuals = list(args[: len(args) - len(call.out_avals)])
        cotangents = [
            instantiate_zeros(_symbolic(ct))
            for ct, flag in zip(args[len(residuals) :], inexact)
            if flag
        ]
        program, flags = rule.backward(_all_flags(params), [True] * len(cotangents))
        found = iter(apply_program(program, residuals + cotangents))
        return [
            next(found) if flag else Zero(aval.to_tangent_aval())
            for flag, aval in zip(flags[known:], call.in_avals[known:])
        ]

    return RuleView(backward, rule, "bwd")


def _symbolic(cotangent):
    return Zero(cotangent.aval) if isinstance(cotangent, SymbolicZero) else cotangent


def _out_trees(rule, params):
    _, residuals = _residual_count(rule, params, _all_flags(params))
    outputs = len(params["call_jaxpr"].out_avals)
    structure = tree_util.tree_structure
    return structure([0] * outputs), structure([0] * residuals), [None] * residuals


def _own_call(subfuns, primitive):
    """The parameters that these functions were made of, if they are one call's, unchanged."""
    first = subfuns[0]
    origin = getattr(first, "origin", None)
    if origin is None or origin[0] is not primitive or origin[1] != tuple(subfuns[1:]):
        return None
    return origin[2]


class _Function(lu.WrappedFun):
    """The function of a call that an interpreter may put another one in the place of."""

    __slots__ = ("origin",)
    origin: tuple[Any, ...]


def bind_params(primitive, params):
    """`subfuns`, the function and its rules, in place of the parameters that they come from. Rules
    that a file holds are data, and stay what they are."""
    if not any(isinstance(value, RuleView) for value in params.values()):
        return params
    params = dict(params)
    call = params["call_jaxpr"]
    fun = jaxpr_as_fun(call)
    function = _Function(fun, fun, debug_info=call.debug_info)
    if primitive.name == "custom_jvp_call":
        rules = (_lifted_jvp(params),)
    else:
        rules = _lifted_vjp(params)
    function.origin = primitive, rules, params
    kept = {"symbolic_zeros": params["symbolic_zeros"]}
    if "out_trees" in params:
        kept["out_trees"] = params["out_trees"]
    return {"subfuns": (function, *rules), **kept}


def _lifted_jvp(params):
    """The rule as a function of flat primals and tangents to flat outputs and their tangents."""
    view, call, known = params["jvp_jaxpr_fun"], params["call_jaxpr"], params["num_consts"]

    def jvp(*args):
        count = len(args) // 2
        primals, tangents = list(args[:count]), list(args[count:])
        zero = [isinstance(t, SymbolicZero) or not dtypes.has_tangent(core.typeof(x).dtype)
                for x, t in zip(primals, tangents)]  # fmt: skip
        jaxpr, consts, out_zeros = view(*zero[known:])
        given = [t for t, flag in zip(tangents[known:], zero[known:]) if not flag]
        found = ClosedJaxpr(jaxpr, consts)._run([*primals, *given])
        outs, rest = found[: len(call.out_avals)], iter(found[len(call.out_avals) :])
        return [*outs, *(_zero_of(out) if flag else next(rest) for out, flag in zip(outs, out_zeros))]

    return lu.wrap_init(jvp, debug_info=view.debug_info)


def _zero_of(value):
    return SymbolicZero(core.typeof(value).to_tangent_aval())


def _lifted_vjp(params):
    """The rules as functions: of each operand followed by whether it is differentiated in, to
    residuals and outputs; and of residuals and cotangents."""
    view, back, known = params["fwd_jaxpr_thunk"], params["bwd"], params["num_consts"]

    def forward(*args):
        values, nonzero = args[::2], args[1::2]
        jaxpr, consts = view(*nonzero[known:])
        return ClosedJaxpr(jaxpr, consts)._run(list(values))

    def backward(*args):
        return [None] * known + back(*args)

    return (
        lu.wrap_init(forward, debug_info=view.debug_info),
        lu.wrap_init(backward, debug_info=back.debug_info),
    )


def bind_functions(primitive, args, subfuns, symbolic_zeros=False, out_trees=None):
    """Binds a call given by functions: the call that they come from, or a new one."""
    params = _own_call(subfuns, primitive)
    if params is not None:
        return primitive.bind(*args, **params)
    if primitive.name == "custom_jvp_call":
        fun, jvp = subfuns
        return _new_jvp_call(args, fun, jvp, symbolic_zeros)
    fun, fwd, bwd = subfuns
    return _new_vjp_call(args, fun, fwd, bwd, symbolic_zeros)


def _new_jvp_call(args, fun, jvp, symbolic_zeros):
    @custom_jvp
    def call(*args):
        return list(fun.call_wrapped(*args))

    def rule(primals, tangents):
        outs = list(jvp.call_wrapped(*primals, *tangents))
        count = len(outs) // 2
        given = [
            t if symbolic_zeros or not isinstance(t, SymbolicZero) else _dense(t)
            for t in outs[count:]
        ]
        return outs[:count], given

    call.defjvp(rule, symbolic_zeros=symbolic_zeros)
    return call(*args)


def _dense(zero):
    if dtypes.has_tangent(zero.dtype):
        return instantiate_zeros(Zero(zero.aval))
    return np.zeros(zero.shape, zero.dtype)


def _new_vjp_call(args, fun, fwd, bwd, symbolic_zeros):
    outputs = len(eval_shape(lambda *args: list(fun.call_wrapped(*args)), *args))

    @custom_vjp
    def call(*args):
        return list(fun.call_wrapped(*args))

    def forward(*args):
        if symbolic_zeros:
            flags = [arg.perturbed for arg in args]
            args = tuple(arg.value for arg in args)
        else:
            flags = [True] * len(args)
        found = list(fwd.call_wrapped(*(x for pair in zip(args, flags) for x in pair)))
        return found[len(found) - outputs :], tuple(found[: len(found) - outputs])

    def backward(residuals, cotangents):
        found = bwd.call_wrapped(*residuals, *cotangents)
        return tuple(None if ct is None or type(ct) is Zero else ct for ct in found)

    call.defvjp(forward, backward, symbolic_zeros=symbolic_zeros)
    return call(*args)


class CustomCallPrimitive(BuiltinPrimitive):
    """A call of a function with rules of its own. It is bound with the parameters of an equation,
    or with the functions `subfuns` that `get_bind_params` makes of them.

    >>> double = ferrax.custom_jvp(lambda x: 2 * x)
    >>> double.defjvps(lambda t, out, x: 2 * t)
    >>> ferrax.make_jaxpr(double)(1.0).eqns[0].primitive
    custom_jvp_call
    """

    def get_bind_params(self, params):
        return bind_params(self, params)

    def bind(self, *args, **params):
        if "subfuns" not in params:
            return super().bind(*args, **params)
        return bind_functions(self, args, **params)

    impl = bind


for _op in ("custom_jvp_call", "custom_vjp_call"):
    primitive_params.SHOWN[_op] = shown
    primitive_params.NATIVE[_op] = native
    builtin_classes[_op] = CustomCallPrimitive
