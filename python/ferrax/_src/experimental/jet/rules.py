"""The rules of the native core's operations, by name. Those without one are propagated by their
derivative (see `propagate.by_derivative`)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ferrax import _core
from ferrax._src import core
from ferrax._src.core.jaxpr import ClosedJaxpr, JaxprEqn, Var
from ferrax._src.core.primitives import builtin
from ferrax._src.experimental.jet import taylor
from ferrax._src.experimental.jet.propagate import (
    SeriesRule,
    by_derivative,
    composition,
    instantiated,
    is_inexact,
    jet_rules,
    propagate,
    varies,
)
from ferrax._src.lax import api as lax

# What users define rules with.


def defzero(primitive: Any) -> None:
    """The rule of an operation whose derivatives are zero.

    Args: primitive: the operation.

    >>> from ferrax.experimental import jet
    >>> jet.defzero(ferrax.core.Primitive("steps"))
    """

    def rule(inputs, params):
        order = len(inputs[0]) - 1
        value = primitive.bind(*(u[0] for u in inputs), **params)
        if primitive.multiple_results:
            return [taylor.constant(x, order) for x in value]
        return taylor.constant(value, order)

    jet_rules[primitive] = SeriesRule(rule, primitive.multiple_results)


def deflinear(primitive: Any) -> None:
    """The rule of an operation that is linear in all its inputs.

    Args: primitive: the operation.

    >>> from ferrax.experimental import jet
    >>> jet.deflinear(ferrax.core.Primitive("thrice"))
    """
    jet_rules[primitive] = SeriesRule(
        functools.partial(_linear, primitive, None), primitive.multiple_results
    )


def def_deriv(primitive: Any, deriv: Callable[..., Any]) -> None:
    """The rule of an elementwise operation whose derivative is the function `deriv`.

    Args: primitive: the operation; deriv: a function of one array.

    >>> from ferrax.experimental import jet
    >>> jet.def_deriv(ferrax.core.Primitive("sine"), jnp.cos)
    """
    slope = composition(deriv)

    def rule(inputs, params):
        (u,) = inputs
        return taylor.chain(primitive.bind(u[0], **params), u, slope.function([u], {}))

    jet_rules[primitive] = SeriesRule(rule)


def def_comp(primitive: Any, comp: Callable[..., Any], **kwargs: Any) -> None:
    """The rule of an operation that equals the function `comp` of other operations.

    Args: primitive: the operation; comp: the function; kwargs: those that it is called with.

    >>> from ferrax.experimental import jet
    >>> jet.def_comp(ferrax.core.Primitive("tangent"), lambda x: jnp.sin(x) / jnp.cos(x))
    """
    jet_rules[primitive] = composition(
        functools.partial(comp, **kwargs), primitive.multiple_results
    )


def _linear(primitive, places, inputs, params):
    """Linear in the inputs at these places (None: in all), for fixed others."""
    primals = [u[0] for u in inputs]
    places = range(len(inputs)) if places is None else places
    results = [primitive.bind(*primals, **params)]
    for k in range(1, len(inputs[0])):
        if all(inputs[place][k] is None for place in places):
            results.append(None)
            continue
        given = list(primals)
        for place in places:
            given[place] = instantiated(inputs[place][k], primals[place])
        results.append(primitive.bind(*given, **params))
    if not primitive.multiple_results:
        return results
    count = len(results[0])
    return [[None if part is None else part[i] for part in results] for i in range(count)]


def _rows(derivative):
    """The elementwise operations whose rows say this of their derivative."""
    return [op for op, row in _core.op_rows().items() if row["derivative"] == derivative]


for _name in ("axis_index", "nextafter", "round", "stop_gradient", *_rows("zero")):
    defzero(builtin(_name))

for _name in (
    "all_gather", "all_gather_invariant", "all_gather_reduced", "all_to_all", "broadcast_in_dim", "concatenate",
    "convert_element_type", "copy", "cumsum", "name", "pad", "pbroadcast", "ppermute", "preduced", "psum",
    "psum_invariant", "pvary", "reduce_precision", "reduce_scatter", "reduce_sum", "reduced_vary_cast", "reshape",
    "rev", "slice", "squeeze", "transpose", "unreduced_psum", "unreduced_reduce_scatter", "vary_unreduced_cast",
    *_rows("linear"),
):  # fmt: skip
    deflinear(builtin(_name))

for _name, _places in {
    "dynamic_slice": (0,),
    "dynamic_update_slice": (0, 1),
    "gather": (0,),
    "scatter": (0, 2),
    "scatter_add": (0, 2),
    "scatter_sub": (0, 2),
    "stand_in": (1,),
}.items():
    jet_rules[builtin(_name)] = SeriesRule(functools.partial(_linear, builtin(_name), _places))


def _select_n(inputs, params):
    return _linear(builtin("select_n"), range(1, len(inputs)), inputs, params)


jet_rules[builtin("select_n")] = SeriesRule(_select_n)


def _elementwise(function):
    return SeriesRule(lambda inputs, params: function(*inputs))


for _name, _function in {
    "abs": taylor.magnitude,
    "acos": taylor.acos,
    "acosh": taylor.acosh,
    "asin": taylor.asin,
    "asinh": taylor.asinh,
    "atan": taylor.atan,
    "atan2": taylor.atan2,
    "atanh": taylor.atanh,
    "cbrt": taylor.cbrt,
    "cos": taylor.cos,
    "cosh": taylor.cosh,
    "div": taylor.quotient,
    "erf": taylor.erf,
    "erf_inv": taylor.erf_inv,
    "erfc": taylor.erfc,
    "exp": taylor.exp,
    "exp2": taylor.exp2,
    "expm1": taylor.expm1,
    "log": taylor.log,
    "log1p": taylor.log1p,
    "logistic": taylor.logistic,
    "rsqrt": taylor.rsqrt,
    "sin": taylor.sin,
    "sinh": taylor.sinh,
    "sqrt": taylor.sqrt,
    "square": taylor.square,
    "tan": taylor.tan,
    "tanh": taylor.tanh,
}.items():
    jet_rules[builtin(_name)] = _elementwise(_function)


def _bilinear(primitive):
    def rule(inputs, params):
        x, y = inputs
        return taylor.product(x, y, op=lambda a, b: primitive.bind(a, b, **params))

    return SeriesRule(rule)


for _name in ("dot_general", "mul"):
    jet_rules[builtin(_name)] = _bilinear(builtin(_name))


def _by_derivative(primitive, inputs, params):
    avals = [core.typeof(u[0]) for u in inputs]
    outs = primitive.bind(*(u[0] for u in inputs), **params)
    outs = outs if primitive.multiple_results else [outs]
    eqn = JaxprEqn(map(Var, avals), [Var(core.typeof(x)) for x in outs], primitive, params)
    return by_derivative(eqn, inputs)


def _integer_pow(inputs, params):
    (u,), exponent = inputs, params["y"]
    return [lax.integer_pow(u[0], exponent), *taylor.integer_power(u, exponent)[1:]]


def _pow(inputs, params):
    base, exponent = inputs
    if not varies(exponent):
        # By the derivative, which is right where the base is zero.
        return _by_derivative(builtin("pow"), inputs, params)[0]
    logs = taylor.product(exponent, taylor.log(base))
    return taylor.exp(logs, lax.pow(base[0], exponent[0]))


def _rem(inputs, params):
    x, y = inputs
    turns = lax.div(x[0], y[0])
    turns = lax.select(lax.lt(turns, lax.full_like(turns, 0)), lax.ceil(turns), lax.floor(turns))
    rest = taylor.sub(x, [taylor.times(turns, a) for a in y])
    return [lax.rem(x[0], y[0]), *rest[1:]]


jet_rules[builtin("integer_pow")] = SeriesRule(_integer_pow)
jet_rules[builtin("pow")] = SeriesRule(_pow)
jet_rules[builtin("rem")] = SeriesRule(_rem)


# Choices by value: of values that are equal, the mean of the series.


def _spread(u, shape):
    """A series with scalars spread to a shape."""
    return [a if a is None or a.shape == shape else lax.broadcast(a, shape) for a in u]


def _chosen(x, y, first):
    """`x` where `first` holds of the primals, else `y`; their mean where these are equal."""
    shape = np.broadcast_shapes(x[0].shape, y[0].shape)
    x, y = _spread(x, shape), _spread(y, shape)
    wins, ties = first(x[0], y[0]), lax.eq(x[0], y[0])
    series: list[Any] = [lax.select(wins, x[0], y[0])]
    for a, b in zip(x[1:], y[1:]):
        if a is None and b is None:
            series.append(None)
            continue
        a, b = instantiated(a, x[0]), instantiated(b, y[0])
        series.append(lax.select(ties, (a + b) / 2, lax.select(wins, a, b)))
    return series


def _max(inputs, params):
    x, y = inputs
    return [lax.max(x[0], y[0]), *_chosen(x, y, lax.gt)[1:]]


def _min(inputs, params):
    x, y = inputs
    return [lax.min(x[0], y[0]), *_chosen(x, y, lax.lt)[1:]]


def _clamp(inputs, params):
    low, x, high = inputs
    inner = _chosen(x, low, lax.gt)
    return [lax.clamp(low[0], x[0], high[0]), *_chosen(inner, high, lax.lt)[1:]]


def _reduce_choice(primitive):
    def rule(inputs, params):
        (u,), axes = inputs, params["axes"]
        value = primitive.bind(u[0], **params)
        kept = [dim for dim in range(u[0].ndim) if dim not in axes]
        same = lax.eq(u[0], lax.broadcast_in_dim(value, u[0].shape, kept))
        weight = lax.convert_element_type(same, u[0].dtype)
        count = lax.reduce_sum(weight, axes=axes)
        return [
            value,
            *(
                None if a is None else lax.div(lax.reduce_sum(a * weight, axes=axes), count)
                for a in u[1:]
            ),
        ]

    return SeriesRule(rule)


jet_rules[builtin("max")] = SeriesRule(_max)
jet_rules[builtin("min")] = SeriesRule(_min)
jet_rules[builtin("clamp")] = SeriesRule(_clamp)
jet_rules[builtin("reduce_max")] = _reduce_choice(builtin("reduce_max"))
jet_rules[builtin("reduce_min")] = _reduce_choice(builtin("reduce_min"))


# Products along axes, as trees of products.


def _prefixes(combine):
    def function(x, *, axis, reverse):
        return lax.associative_scan(combine, x, axis=axis, reverse=reverse)

    return composition(function)


jet_rules[builtin("cumprod")] = _prefixes(lax.mul)
jet_rules[builtin("cummax")] = _prefixes(lax.max)
jet_rules[builtin("cummin")] = _prefixes(lax.min)


# Orders: the coefficients go where the primals go.


def _placed(u, places, axis):
    """The coefficients of a series but the first, at places along an axis."""
    shape = (*places.shape, 1)
    others = tuple(d for d in range(places.ndim) if d != axis)
    numbers = lax.GatherDimensionNumbers((), (axis,), (axis,), others, others)
    indices = lax.reshape(places, shape)
    sizes = (1,) * places.ndim
    return [
        None if a is None else lax.gather(a, indices, numbers, sizes, mode="promise_in_bounds")
        for a in u[1:]
    ]


def _sort(inputs, params):
    axis = params["dimension"]
    places = lax.broadcasted_iota(np.int32, inputs[0][0].shape, axis)
    *primals, places = builtin("sort").bind(*(u[0] for u in inputs), places, **params)
    return [[x, *_placed(u, places, axis)] for x, u in zip(primals, inputs)]


def _top_k(inputs, params):
    (u,) = inputs
    values, places = builtin("top_k").bind(u[0], **params)
    return [[values, *_placed(u, places, params["axis"])], [places, *[None] * (len(u) - 1)]]


jet_rules[builtin("sort")] = SeriesRule(_sort, several=True)
jet_rules[builtin("top_k")] = SeriesRule(_top_k, several=True)


def _product_of_axes(x, *, axes):
    kept = [dim for dim in range(x.ndim) if dim not in axes]
    shape = [x.shape[dim] for dim in kept]
    count = int(np.prod([x.shape[dim] for dim in axes], dtype=int))
    x = lax.reshape(lax.transpose(x, (*axes, *kept)), (count, *shape))
    if not count:
        return lax.full(shape, 1, x.dtype)
    while count > 1:
        half = count // 2
        first = lax.slice_in_dim(x, 0, half)
        second = lax.slice_in_dim(x, half, 2 * half)
        pairs = lax.mul(first, second)
        rest = lax.slice_in_dim(x, 2 * half, count)
        x = lax.concatenate([pairs, rest], 0) if count % 2 else pairs
        count -= half
    return lax.reshape(x, shape)


jet_rules[builtin("reduce_prod")] = composition(_product_of_axes)


def _inlined(inputs, params):
    """A function with a reverse derivative of its own alone: what it computes is what counts."""
    closed = params["call_jaxpr"]
    closed = closed if isinstance(closed, ClosedJaxpr) else ClosedJaxpr(closed)
    return propagate(closed, inputs, len(inputs[0]) - 1)


jet_rules[builtin("custom_vjp_call")] = SeriesRule(_inlined, several=True)
__all__ = ["def_comp", "def_deriv", "deflinear", "defzero", "is_inexact", "jet_rules"]
