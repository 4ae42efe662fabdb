"""The primitives of `reduce_window` and `reduce`, and of the derivatives of maxima over windows.

A sum over windows is linear. The tangent of a maximum is that of the element which it is:
`select_and_gather_add` takes it there, and its transpose `select_and_scatter_add` adds to it. All
are compiled as the functions of `windows` and `folds` that they are made of.
"""

from __future__ import annotations

import functools

import numpy as np

from ferrax._src import core
from ferrax._src.base import dtypes
from ferrax._src.composed import windows as _windows
from ferrax._src.composed.folds import reduced, vectorized
from ferrax._src.core.jaxpr import ClosedJaxpr
from ferrax._src.core.primitives import (
    axis_primitive_batchers,
    builtin,
    coupled_axes,
    primitive_jvps,
    primitive_transposes,
)
from ferrax._src.transforms.ad import Zero, instantiate_zeros, is_undefined_primal
from ferrax._src.transforms.autodiff import linear_transpose
from ferrax._src.transforms.batching_rules import bdim_at_front
from ferrax._src.transforms.composites import composite, composite_transpose
from ferrax._src.tree import tree_util

_FIELDS = ("window_dimensions", "window_strides", "padding", "base_dilation", "window_dilation")


def window_params(windows) -> dict:
    """Windows as the parameters of an equation."""
    values = windows.sizes, windows.strides, windows.pads, windows.base, windows.steps
    return dict(zip(_FIELDS, values))


def windows_of(x, params):
    """The windows over an array that an equation has these parameters for."""
    return _known(x.shape, *(_static(params.get(name)) for name in _FIELDS))


def _static(value):
    return tuple(map(_static, value)) if isinstance(value, (list, tuple)) else value


_known = functools.lru_cache(maxsize=256)(_windows.Windows)


def spanned_axes(**params) -> list[tuple[int, int]]:
    """The axes along which windows have more than the element at their place, each with the size of windows that lie
    one behind the other, else 0."""
    names = [name for name in _FIELDS if name in params]
    found = []
    for axis, values in enumerate(zip(*(params[name] for name in names))):
        of_axis = dict(zip(names, map(_static, values)))
        size, stride = of_axis["window_dimensions"], of_axis["window_strides"]
        dense = of_axis.get("base_dilation", 1) == of_axis.get("window_dilation", 1) == 1
        apart = dense and size == stride and of_axis["padding"] == (0, 0)
        if not apart or size > 1:
            found.append((axis, size if apart else 0))
    return found


def _batched_params(params, dim):
    """The parameters with an axis more, at `dim`, which windows do not span."""
    new = dict(params)
    for name in _FIELDS:
        if name in params:
            values = list(params[name])
            values.insert(dim, (0, 0) if name == "padding" else 1)
            new[name] = tuple(values)
    return new


def _sum(operand, **params):
    return _windows.window_sum(windows_of(operand, params), operand)


def _extreme(name, operand, **params):
    return _windows.window_extreme(name, windows_of(operand, params), operand)


def _linear_jvp(primitive, primals, tangents, **params):
    return primitive.bind(*primals, **params), primitive.bind(*tangents, **params)


def _window_batch(primitive, size, axis_name, trace_type, args, dims, **params):
    ((x,), (dim,)) = args, dims
    return primitive.bind(x, **_batched_params(params, dim)), dim


def _extreme_jvp(primitive, primals, tangents, **params):
    (operand,), (tangent,) = primals, tangents
    out = primitive.bind(operand, **params)
    if type(tangent) is Zero:
        return out, Zero.from_primal_value(out)
    select = builtin("ge" if primitive is reduce_window_max_p else "le")
    return out, select_and_gather_add_p.bind(tangent, operand, select_prim=select, **params)


def _register_window(primitive):
    axis_primitive_batchers[primitive] = functools.partial(_window_batch, primitive)
    traced = primitive.abstract_eval

    def abstract_eval(x, **params):
        if x.weak_type or not dtypes.issubdtype(x.dtype, np.floating):
            return traced(x, **params)[0]
        return core.ShapedArray(windows_of(x, params).out, x.dtype)

    primitive.def_abstract_eval(abstract_eval)


def _sum_transpose(cotangent, operand, **params):
    if type(cotangent) is Zero:
        return [Zero(operand.aval.to_tangent_aval())]
    windows = windows_of(operand.aval, params)
    if _windows.are_apart(windows):
        return [_windows.window_sum_transposed(windows, cotangent)]
    return composite_transpose(lambda x, **p: [_sum(x, **p)], [cotangent], [operand], params)


reduce_window_sum_p = composite("reduce_window_sum", _sum)
primitive_transposes[reduce_window_sum_p] = _sum_transpose
primitive_jvps[reduce_window_sum_p] = functools.partial(_linear_jvp, reduce_window_sum_p)
_register_window(reduce_window_sum_p)

reduce_window_max_p = composite("reduce_window_max", functools.partial(_extreme, "max"))
reduce_window_min_p = composite("reduce_window_min", functools.partial(_extreme, "min"))
for _primitive in (reduce_window_max_p, reduce_window_min_p):
    primitive_jvps[_primitive] = functools.partial(_extreme_jvp, _primitive)
    _register_window(_primitive)


def _gather_add(tangents, operand, *, select_prim, **params):
    name = "max" if select_prim.name == "ge" else "min"
    return _windows.window_picked(name, windows_of(operand, params), tangents, operand)


def _scatter_add(source, operand, *, select_prim, **params):
    """Adds each window's element of `source` to the element of the operand that it picks."""

    def picked(tangents):
        return [_gather_add(tangents, operand, select_prim=select_prim, **params)]

    (found,) = linear_transpose(picked, core.ShapedArray(operand.shape, source.dtype))([source])
    return found


def _by_first_jvp(primitive, primals, tangents, **params):
    """Of a primitive that is linear in its first input and picks places by its second."""
    out = primitive.bind(*primals, **params)
    if type(tangents[0]) is Zero:
        return out, Zero.from_primal_value(out)
    return out, primitive.bind(instantiate_zeros(tangents[0]), primals[1], **params)


def _gather_add_transpose(cotangent, tangents, operand, **params):
    if not is_undefined_primal(tangents) or is_undefined_primal(operand):
        raise TypeError("select_and_gather_add is linear in its tangents alone")
    if type(cotangent) is Zero:
        return [Zero(tangents.aval.to_tangent_aval()), None]
    dilations = params["base_dilation"], params["window_dilation"]
    if any(d != 1 for values in dilations for d in values):
        # `select_and_scatter_add` knows no dilations.
        run = lambda *args: [_gather_add(*args, **params)]  # noqa: E731
        return composite_transpose(run, [cotangent], [tangents, operand], {})
    kept = {k: v for k, v in params.items() if k not in ("base_dilation", "window_dilation")}
    return [select_and_scatter_add_p.bind(cotangent, operand, **kept), None]


def _scatter_add_transpose(cotangent, source, operand, **params):
    if not is_undefined_primal(source) or is_undefined_primal(operand):
        raise TypeError("select_and_scatter_add is linear in its source alone")
    if type(cotangent) is Zero:
        return [Zero(source.aval.to_tangent_aval()), None]
    ones = (1,) * operand.ndim
    params = dict(params, base_dilation=ones, window_dilation=ones)
    return [select_and_gather_add_p.bind(cotangent, operand, **params), None]


def _pair_batch(primitive, size, axis_name, trace_type, args, dims, **params):
    first, second = (bdim_at_front(x, dim, size) for x, dim in zip(args, dims))
    return primitive.bind(first, second, **_batched_params(params, 0)), 0


select_and_gather_add_p = composite("select_and_gather_add", _gather_add)
primitive_transposes[select_and_gather_add_p] = _gather_add_transpose
select_and_scatter_add_p = composite("select_and_scatter_add", _scatter_add)
primitive_transposes[select_and_scatter_add_p] = _scatter_add_transpose
for _primitive in (select_and_gather_add_p, select_and_scatter_add_p):
    primitive_jvps[_primitive] = functools.partial(_by_first_jvp, _primitive)
    axis_primitive_batchers[_primitive] = functools.partial(_pair_batch, _primitive)


def _combiner(name, jaxpr, consts, like):
    """The function that a jaxpr of scalars is, on two lists of vectors."""
    closed = jaxpr if isinstance(jaxpr, ClosedJaxpr) else ClosedJaxpr(jaxpr, consts)
    tree = tree_util.tree_structure([0] * len(like))
    return vectorized(name, lambda a, b: closed._run([*a, *b]), tree, like)


def _reduce_window(*args, jaxpr, consts, **params):
    flat, init = args[: len(args) // 2], args[len(args) // 2 :]
    combine = _combiner("reduce_window", jaxpr, consts, flat)
    return _windows.windows_reduced(jaxpr, combine, windows_of(flat[0], params), list(flat), list(init))


def _reduce(*args, computation, jaxpr, dimensions):
    flat, init = list(args[: len(args) // 2]), list(args[len(args) // 2 :])
    combine = _combiner("reduce", jaxpr, (), flat)
    return reduced(jaxpr.open, combine, flat, init, dimensions)


reduce_window_p = composite("reduce_window", _reduce_window, multiple_results=True)
reduce_p = composite("reduce", _reduce, multiple_results=True)
for _primitive in (
    reduce_window_p, reduce_window_sum_p, reduce_window_max_p, reduce_window_min_p,
    select_and_gather_add_p, select_and_scatter_add_p,
):  # fmt: skip
    coupled_axes[_primitive] = spanned_axes
