"""Primitives that call a function: `call_p`, `closed_call_p`, and those of users.

The function is traced where the call is recorded, and the equation holds its jaxpr. Derivatives
and batches are calls of the primitive again, over the jaxpr's.
"""

from __future__ import annotations

from typing import Any

from ferrax import _core
from ferrax._src import core
from ferrax._src.core import named_axes
from ferrax._src.core.dead_code import (
    convert_constvars_jaxpr,
    dce_jaxpr_call_rule,
    dce_jaxpr_closed_call_rule,
    dce_rules,
)
from ferrax._src.core.jaxpr import ClosedJaxpr, eval_jaxpr
from ferrax._src.core.lowering import lower_fun, register_lowering
from ferrax._src.core.primitives import (
    Primitive,
    axis_primitive_batchers,
    primitive_jvps,
    primitive_transposes,
)
from ferrax._src.interop.partial_eval import trace_to_jaxpr_dynamic
from ferrax._src.tracing import linear_util as lu
from ferrax._src.transforms.ad import Zero, is_undefined_primal

__all__ = ["CallPrimitive", "ClosedCallPrimitive", "call_impl", "call_p", "closed_call_p"]


def call_impl(fun: lu.WrappedFun, *args: Any, **params: Any) -> list[Any]:
    """The outputs of the function; the parameters are the primitive's.

    Args: fun: a `WrappedFun`; args: its arguments; params: ignored.

    >>> ferrax.extend.core.call_impl(ferrax.extend.linear_util.wrap_init(lambda x: [x + 1]), 2)
    [3]
    """
    return fun.call_wrapped(*args)


class CallPrimitive(Primitive):
    """A primitive over a function: `bind(*args, subfuns=(fun,), **params)`, where `fun` is a
    `linear_util.WrappedFun` of flat arguments to a list of outputs.

    Its equations have the parameter `call_jaxpr`. Outside of traces the function given to
    `def_impl` runs, `call_impl` as a rule.

    Args: name: what jaxprs show.

    Example:
        >>> marked_p = ferrax.extend.core.CallPrimitive("marked")
        >>> _ = marked_p.def_impl(ferrax.extend.core.call_impl)
        >>> fun = ferrax.extend.linear_util.wrap_init(lambda x: [x + 1])
        >>> marked_p.bind(jnp.ones(2), subfuns=(fun,))
        [Array([2., 2.], dtype=float32)]
    """

    multiple_results = True
    call_primitive = True
    skip_canonicalization = True
    # Whether the equation's jaxpr is a ClosedJaxpr.
    _closed = False

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.def_effectful_abstract_eval(
            lambda *avals, call_jaxpr, **params: (_closed(call_jaxpr).out_avals, call_jaxpr.effects)
        )
        primitive_jvps[self] = self._jvp
        primitive_transposes[self] = self._transpose
        axis_primitive_batchers[self] = self._batch
        run = lambda *args, call_jaxpr, **params: _closed(call_jaxpr)._run(args)  # noqa: E731
        register_lowering(self, lower_fun(run, multiple_results=True))

    def bind(self, *args: Any, subfuns: Any = None, **params: Any) -> Any:
        """Applies the primitive to a function: a list of its outputs. Errors: TypeError for other `subfuns`."""
        if subfuns is None:
            if _core.recording_frame(_arrays(args, self.name)) is None:
                return _closed(params["call_jaxpr"])._run(args)
            return super().bind(*args, **params)
        (fun,) = subfuns
        if not isinstance(fun, lu.WrappedFun):
            fun = lu.wrap_init(fun)
        if _core.recording_frame(_arrays(args, self.name)) is None:
            return list(self.impl(fun, *args, **params))

        jaxpr, _, consts = trace_to_jaxpr_dynamic(fun, [core.typeof(x) for x in args])
        called = self._param(ClosedJaxpr(convert_constvars_jaxpr(jaxpr)))
        return super().bind(*consts, *args, call_jaxpr=called, **params)

    def get_bind_params(self, params: Any) -> dict[str, Any]:
        """The parameters with which `bind` makes an equation with these params again."""
        params = dict(params)
        jaxpr = params.pop("call_jaxpr")
        if isinstance(jaxpr, ClosedJaxpr):
            consts = jaxpr.consts
            jaxpr = jaxpr.open
        else:
            consts = []
        fun = lu.wrap_init(
            lambda *args: eval_jaxpr(jaxpr, consts, *args), debug_info=jaxpr.debug_info
        )
        return {"subfuns": (fun,), **params}

    def _param(self, closed):
        """What an equation has as its `call_jaxpr`."""
        if self._closed or closed.consts:
            return closed
        return closed.open

    def _jvp(self, primals, tangents, *, call_jaxpr, **params):
        # Two calls, so that reverse mode finds the outputs without tangents.
        given = [t for t in tangents if type(t) is not Zero]
        primal, linear, flags = _closed(call_jaxpr)._to_program().linearize(
            [type(t) is not Zero for t in tangents]
        )
        results = self.bind(*primals, call_jaxpr=self._param(ClosedJaxpr(primal)), **params)
        outs, residuals = results[: len(flags)], results[len(flags) :]
        jaxpr = self._param(ClosedJaxpr(linear))
        moved = iter(self.bind(*residuals, *given, call_jaxpr=jaxpr, **params))
        return outs, [
            next(moved) if flag else Zero.from_primal_value(out) for out, flag in zip(outs, flags)
        ]

    def _transpose(self, cotangents, *args, call_jaxpr, **params):
        program = _closed(call_jaxpr)._to_program()
        linear = [is_undefined_primal(x) for x in args]
        given = [type(ct) is not Zero for ct in cotangents]
        transposed, flags = program.transpose(linear, given)
        operands = [x for x in args if not is_undefined_primal(x)]
        operands += [ct for ct in cotangents if type(ct) is not Zero]
        jaxpr = self._param(ClosedJaxpr(transposed))
        found = iter(self.bind(*operands, call_jaxpr=jaxpr, **params))
        return [next(found) if flag else None for flag in flags]

    def _batch(self, size, axis_name, trace_type, args, dims, *, call_jaxpr, **params):
        program = _closed(call_jaxpr)._to_program()
        axis = None if axis_name is None else named_axes.text(axis_name)
        batched, out_dims = program.batch(size, list(dims), None, axis)
        jaxpr = self._param(ClosedJaxpr(batched))
        return self.bind(*args, call_jaxpr=jaxpr, **params), out_dims


class ClosedCallPrimitive(CallPrimitive):
    """As `CallPrimitive`; the jaxprs of its equations are closed.

    >>> from ferrax.extend.core.primitives import closed_call_p
    >>> closed = ferrax.make_jaxpr(lambda x: x + 1)(jnp.ones(2))
    >>> closed_call_p.bind(jnp.ones(2), call_jaxpr=closed)
    [Array([2., 2.], dtype=float32)]
    """

    _closed = True


def _closed(jaxpr):
    return jaxpr if isinstance(jaxpr, ClosedJaxpr) else ClosedJaxpr(jaxpr)


def _arrays(args, name):
    return [core.as_array(x, name) for x in args]


call_p = CallPrimitive("call")
call_p.def_impl(call_impl)
dce_rules[call_p] = dce_jaxpr_call_rule

closed_call_p = ClosedCallPrimitive("closed_call")
closed_call_p.def_impl(call_impl)
dce_rules[closed_call_p] = dce_jaxpr_closed_call_rule
