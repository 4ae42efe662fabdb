"""`linear_call`: a linear function whose transpose the user gives."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ferrax._src import core
from ferrax._src.base import errors
from ferrax._src.core import api_util, named_axes
from ferrax._src.core.jaxpr import ClosedJaxpr
from ferrax._src.core.lowering import lower_fun, register_lowering
from ferrax._src.core.primitives import (
    Primitive,
    axis_primitive_batchers,
    data_forms,
    primitive_jvps,
    primitive_transposes,
)
from ferrax._src.lax.shape import broadcast
from ferrax._src.tracing import staging
from ferrax._src.transforms.ad import Zero, instantiate_zeros, is_undefined_primal
from ferrax._src.transforms.batching_rules import moveaxis
from ferrax._src.transforms.custom_rules import show
from ferrax._src.tree import tree_util

__all__ = ["linear_call"]


def linear_call(
    fun: Callable[..., Any], fun_transpose: Callable[..., Any], residual_args: Any,
    linear_args: Any,
) -> Any:
    """Calls a linear function whose transpose is another function.

    Args:
      fun: takes `(residuals, x)`; linear in `x`.
      fun_transpose: takes `(residuals, y)`, where `y` is of the type of the output of `fun`, and
        returns what has the type of `x`; the transpose of `fun` for the same residuals. It is
        traced when the transpose is first asked for.
      residual_args: the residuals, a tree of arrays. They are not differentiated in.
      linear_args: `x`, a tree of arrays.

    Returns: `fun(residual_args, linear_args)`. Its transpose is a `linear_call` of the two
    functions in exchanged places.

    Errors: TypeError where the transpose has another structure or other types than `linear_args`,
    and for derivatives with respect to residuals.

    Example:
        >>> from ferrax.custom_derivatives import linear_call
        >>> def half(x):
        ...     return linear_call(lambda r, x: x / r, lambda r, y: 100 * y / r, 2.0, x)
        >>> ferrax.grad(half)(8.0)
        Array(50., dtype=float32, weak_type=True)
    """
    residuals, res_tree = tree_util.tree_flatten(residual_args)
    linear, lin_tree = tree_util.tree_flatten(linear_args)
    program, captured, flat = staging.stage(fun, (residual_args, linear_args), {})
    out_tree = flat.out_tree
    lin_types = program.in_types[len(residuals) :][: len(linear)]
    out_types = program.out_types

    @functools.cache
    def transpose():
        """The program of the transpose over residuals and outputs, and what it captures."""
        dummies = [core.ShapedArray(*ty) for ty in out_types]
        res = [core.ShapedArray(*ty) for ty in program.in_types[: len(residuals)]]
        args = (res_tree.unflatten(res), out_tree.unflatten(dummies))
        transposed, captured, flat = staging.stage(fun_transpose, args, {})
        place = f"linear_call: the output of {api_util.fun_place(fun_transpose)}"
        if flat.out_tree != lin_tree:
            raise TypeError(
                f"{place} has the pytree structure {flat.out_tree}, expected that of the linear "
                f"arguments, {lin_tree}."
            )
        for got, expected in zip(transposed.out_types, lin_types):
            if tuple(got[:2]) != tuple(expected[:2]):
                raise TypeError(
                    f"{place} must have the types of the linear arguments: expected "
                    f"{show(expected)}, got {show(got)}."
                )
        return ClosedJaxpr(transposed), captured

    # Captured values are the programs' last inputs, the primitive's first.
    callee = ClosedJaxpr(constants_first(program, len(captured)))
    results = linear_call_p.bind(
        *captured,
        *residuals,
        *linear,
        callee=callee,
        transpose_thunk=named_axes.kept(lambda: _first(*transpose())),
        num_callee_consts=len(captured),
        num_res=len(residuals),
    )
    return out_tree.unflatten(results)


def constants_first(program, count):
    """The program with its last `count` inputs in front."""
    own = len(program.in_types) - count
    return program.rewire([*range(own, own + count), *range(own)]) if count else program


def _first(jaxpr, captured):
    return ClosedJaxpr(constants_first(jaxpr._to_program(), len(captured))), captured


def _run(*args, callee, **params):
    return callee._run(args)


def _jvp(primals, tangents, *, num_callee_consts, num_res, **params):
    known = num_callee_consts + num_res
    if any(type(tangent) is not Zero for tangent in tangents[:known]):
        raise TypeError(
            "linear_call: the residuals, and what the function closes over, are not "
            "differentiated in. Use stop_gradient on them, or custom_jvp or custom_vjp in place of "
            "linear_call."
        )
    params = dict(params, num_callee_consts=num_callee_consts, num_res=num_res)
    out = linear_call_p.bind(*primals, **params)
    tangents = [instantiate_zeros(tangent) for tangent in tangents[known:]]
    return out, linear_call_p.bind(*primals[:known], *tangents, **params)


def _transpose(cotangents, *args, callee, transpose_thunk, num_callee_consts, num_res):
    transposed, captured = transpose_thunk()
    known = num_callee_consts + num_res
    constants, residuals = args[:num_callee_consts], args[num_callee_consts:known]
    if not all(map(is_undefined_primal, args[known:])):
        raise TypeError(
            "linear_call: the function is linear in all its linear arguments together, but some of "
            "them are known here. Make the known ones residuals."
        )
    # What the function captures is known here, but no longer when the transpose is transposed: it
    # is a residual of both.
    count = len(captured)
    unused = [ty[:2] + (False,) for ty in callee._to_program().in_types[:num_callee_consts]]
    own = len(transposed.in_avals)
    program = transposed._to_program().rewire([*range(count), *unused, *range(count, own)])
    results = linear_call_p.bind(
        *captured,
        *constants,
        *residuals,
        *map(instantiate_zeros, cotangents),
        callee=ClosedJaxpr(program) if unused else transposed,
        transpose_thunk=lambda: (callee, ()),
        num_callee_consts=count,
        num_res=num_callee_consts + num_res,
    )
    return [None] * known + results


def _batched(jaxpr, size, axis_name, dims, out_dims):
    axis = None if axis_name is None else named_axes.text(axis_name)
    return ClosedJaxpr(jaxpr._to_program().batch(size, dims, out_dims, axis)[0])


def _batch(
    size, axis_name, trace_type, args, dims, *, callee, transpose_thunk, num_callee_consts, num_res
):
    known = num_callee_consts + num_res
    linear = [
        _at_axis0(x, dim, size) for x, dim in zip(args[known:], dims[known:])
    ]
    outs = [0] * len(callee.out_avals)

    def batched_transpose():
        jaxpr, captured = transpose_thunk()
        inner = [None] * len(captured) + list(dims[num_callee_consts:known]) + outs
        return _batched(jaxpr, size, axis_name, inner, [0] * len(linear)), captured

    results = linear_call_p.bind(
        *args[:known],
        *linear,
        callee=_batched(callee, size, axis_name, [*dims[:known], *[0] * len(linear)], outs),
        transpose_thunk=functools.cache(batched_transpose),
        num_callee_consts=num_callee_consts,
        num_res=num_res,
    )
    return results, outs


def _at_axis0(value, dim, size):
    return broadcast(value, (size,)) if dim is None else moveaxis(value, dim, 0)


def _as_data(rules, *, callee, transpose_thunk, num_callee_consts, num_res):
    """As `linear_call` of the native core, whose residuals are all that is not linear."""
    transpose = None
    if rules:
        jaxpr, captured = transpose_thunk()
        program = jaxpr._to_program()
        count, own = len(captured), len(program.in_types)
        if any(isinstance(value, core.Tracer) for value in captured):
            raise errors.UnexpectedTracerError(
                f"linear_call: the transpose of '{callee._to_program().name}' closes over a value "
                "that was being traced, so it cannot be saved. Pass the value as a residual."
            )
        program = program.rewire([*range(count, own), *range(count)]).bind_constants(list(captured))
        unused = list(callee._to_program().in_types[:num_callee_consts])
        transpose = program.rewire([*unused, *range(own - count)])
    program = callee._to_program()
    params = {
        "callee": program,
        "name": program.name,
        "num_res": num_callee_consts + num_res,
        "transpose": transpose,
    }
    return "linear_call", params


linear_call_p = Primitive("linear_call")
linear_call_p.multiple_results = True
linear_call_p.def_impl(_run)
linear_call_p.def_effectful_abstract_eval(
    lambda *avals, callee, **params: (callee.out_avals, callee.effects)
)
primitive_jvps[linear_call_p] = _jvp
primitive_transposes[linear_call_p] = _transpose
axis_primitive_batchers[linear_call_p] = _batch
data_forms[linear_call_p] = _as_data
register_lowering(linear_call_p, lower_fun(_run, multiple_results=True))
