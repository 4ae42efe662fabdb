"""Taylor series through jaxprs: the interpreter, and what rules are made with.

A value is a series as in `taylor`: `[u0, ..., uK]`, with None for coefficients that are zero. An
operation without a rule of its own has one all the same, by its derivative: `v = f(u)` has `v' =
J(u, u')`, the forward derivative, whose series to order `K - 1` gives that of `v` to order `K`.
"""

from __future__ import annotations

import functools

import numpy as np

from ferrax import _core
from ferrax._src import core
from ferrax._src.base import dtypes
from ferrax._src.core.jaxpr import ClosedJaxpr, Literal, bind_equation, interpret, literal_value
from ferrax._src.core.primitives import aval_type
from ferrax._src.experimental.jet import taylor
from ferrax._src.lax import api as lax
from ferrax._src.lax.elementwise import _convert_element_type
from ferrax._src.transforms.autodiff import jvp
from ferrax._src.tree import tree_util


class ZeroTerm:
    """A coefficient that is zero.

    >>> from ferrax.experimental import jet
    >>> isinstance(jet.zero_term, jet.ZeroTerm)
    True
    """


class ZeroSeries:
    """Coefficients that are all zero, but the first.

    >>> from ferrax.experimental import jet
    >>> isinstance(jet.zero_series, jet.ZeroSeries)
    True
    """


zero_term = ZeroTerm()
zero_series = ZeroSeries()
tree_util.register_pytree_node(ZeroTerm, lambda _: ((), None), lambda _, __: zero_term)
tree_util.register_pytree_node(ZeroSeries, lambda _: ((), None), lambda _, __: zero_series)


class SeriesRule:
    """A rule of this package: `function(inputs, params)` on series gives a series, or a list of
    them for primitives with several results. Called as `rule(primals, series, **params)` it is a
    rule by the protocol of `jet_rules`."""

    def __init__(self, function, several=False):
        self.function = function
        self.several = several

    def __call__(self, primals_in, series_in, **params):
        order = max(len(terms) for terms in series_in)
        inputs = [joined(x, terms, order) for x, terms in zip(primals_in, series_in)]
        results = self.function(inputs, params)
        results = results if self.several else [results]
        primals = [u[0] for u in results]
        series = [[instantiated(a, u[0]) for a in u[1:]] for u in results]
        return (primals, series) if self.several else (primals[0], series[0])


# Rules by primitive, `rule(primals_in, series_in, **params) -> (primal_out, series_out)`, with lists
# of coefficients for series; `series_out` may be `zero_series`.
jet_rules: dict = {}


def joined(primal, terms, order):
    """A series of a primal and its further coefficients."""
    if isinstance(terms, ZeroSeries):
        return taylor.constant(primal, order)
    return [primal, *(None if isinstance(a, ZeroTerm) else a for a in terms)]


def instantiated(coefficient, like):
    """A coefficient as an array."""
    return lax.full_like(like, 0) if coefficient is None else coefficient


def is_inexact(dtype) -> bool:
    return not dtypes.issubdtype(dtype, dtypes.extended) and dtypes.issubdtype(dtype, np.inexact)


def varies(u) -> bool:
    """Whether a series has more than a constant."""
    return any(a is not None for a in u[1:])


def propagate(closed: ClosedJaxpr, inputs, order):
    """The series of a closed jaxpr's outputs, all to this order."""

    def apply(eqn, values):
        return equation(eqn, values, order)

    return interpret(
        closed.open,
        [taylor.constant(value, order) for value in closed.consts],
        inputs,
        apply,
        lambda atom: taylor.constant(literal_value(atom), order),
    )


def equation(eqn, inputs, order):
    """The series of an equation's outputs."""
    moving = any(map(varies, inputs)) and any(is_inexact(v.aval.dtype) for v in eqn.outvars)
    if not moving:
        values = bind_equation(eqn, [u[0] for u in inputs])
        return [taylor.constant(value, order) for value in values]
    rule = jet_rules.get(eqn.primitive)
    if rule is None:
        return by_derivative(eqn, inputs)
    if isinstance(rule, SeriesRule):
        results = rule.function(inputs, eqn.params)
        return results if rule.several else [results]
    primals = [u[0] for u in inputs]
    series = [[instantiated(a, u[0]) for a in u[1:]] for u in inputs]
    primal, terms = rule(primals, series, **eqn.primitive.get_bind_params(eqn.params))
    if not eqn.primitive.multiple_results:
        return [joined(primal, terms, order)]
    if isinstance(terms, ZeroSeries):
        terms = [zero_series] * len(primal)
    return [joined(p, t, order) for p, t in zip(primal, terms)]


def by_derivative(eqn, inputs):
    """The rule of what has none: from the series of its forward derivative."""
    order = len(inputs[0]) - 1
    primals = [u[0] for u in inputs]
    values = bind_equation(eqn, primals)
    active = [i for i, u in enumerate(inputs) if varies(u) and is_inexact(u[0].dtype)]
    moving = [i for i, value in enumerate(values) if is_inexact(value.dtype)]
    results = [taylor.constant(value, order) for value in values]
    if not active or not moving:
        return results
    count = len(primals)

    def derivative(leaves):
        fixed = list(leaves[:count])

        def call(*given):
            for place, value in zip(active, given):
                fixed[place] = value
            return bind_equation(eqn, fixed)

        given = tuple(fixed[i] for i in active)
        _, tangents = jvp(call, given, tuple(leaves[count:]))
        return [tangents[i] for i in moving]

    types = [_type(x) for x in primals]
    closed = trace(derivative, types + [(*types[i][:2], False) for i in active])
    slopes = [taylor.derivative_of(inputs[i]) for i in active]
    for place, slope in zip(active, slopes):
        slope[0] = instantiated(slope[0], primals[place])
    given = [u[:-1] for u in inputs] + slopes
    for i, slope in zip(moving, propagate(closed, given, order - 1)):
        results[i] = taylor.integral(values[i], slope)
    return results


def composition(function, several=False):
    """The rule of an operation that is what `function(*inputs, **params)` does."""

    def rule(inputs, params):
        order = len(inputs[0]) - 1
        call = functools.partial(function, **params)

        def flat(leaves):
            return list(call(*leaves)) if several else [call(*leaves)]

        closed = trace(flat, [_type(u[0]) for u in inputs])
        results = propagate(closed, inputs, order)
        return results if several else results[0]

    return SeriesRule(rule, several)


def trace(flat, types) -> ClosedJaxpr:
    """The closed jaxpr of a function of a list of arrays of these types. Errors: ValueError for a
    function that writes to a mutable array from outside."""
    program, captured, refs = _core.trace_program(flat, "stage", "jet", types)
    if refs is not None and refs.count:
        raise ValueError(
            "jet: the function writes to a mutable array from outside, whose series would be lost. "
            "Return the value and write it afterwards."
        )
    return ClosedJaxpr(program, captured)


def _type(x):
    return x.shape, x.dtype, x.weak_type


# Series at the edge of programs: each value is followed by its coefficients where it varies.


def pack(series, flags):
    """The arrays of series: with `order` further coefficients for those that are flagged."""
    arrays = []
    for u, flag in zip(series, flags):
        arrays.append(u[0])
        if flag:
            arrays += [_term(instantiated(a, u[0]), u[0]) for a in u[1:]]
    return arrays


def _term(coefficient, like):
    return _convert_element_type(coefficient, like.dtype, weak_type=False)


def unpack(arrays, flags, order):
    """The series of arrays that `pack` gave."""
    arrays = iter(arrays)
    return [
        [next(arrays), *([next(arrays) for _ in range(order)] if flag else [None] * order)]
        for flag in flags
    ]


def packed_size(flags, order) -> int:
    return len(flags) + order * sum(flags)


def packed(closed, flags, wanted, order) -> ClosedJaxpr:
    """A jaxpr from arrays of series to arrays of series; `wanted` flags outputs."""

    def flat(leaves):
        outs = propagate(closed, unpack(leaves, flags, order), order)
        for u, aval in zip(outs, closed.out_avals):
            u[0] = _convert_element_type(u[0], aval.dtype, weak_type=aval.weak_type)
        return pack(outs, wanted)

    types = []
    for aval, flag in zip(closed.in_avals, flags):
        types.append(aval_type(aval))
        types += [(aval.shape, aval.dtype, False)] * (order if flag else 0)
    return trace(flat, types)


def reached(closed, flags) -> list[bool]:
    """Which outputs of a jaxpr may vary where these inputs do."""
    jaxpr = closed.open
    varying = {var for var, flag in zip(jaxpr.invars, flags) if flag}

    def moves(atom):
        return not isinstance(atom, Literal) and atom in varying

    for eqn in jaxpr.eqns:
        given = [moves(atom) for atom in eqn.invars]
        if not any(given):
            continue
        outs = [True] * len(eqn.outvars)
        if eqn.primitive.name == "jit" and eqn.primitive._builtin:
            outs = reached(eqn.params["jaxpr"], given)
        varying.update(
            var for var, flag in zip(eqn.outvars, outs) if flag and is_inexact(var.aval.dtype)
        )
    return [moves(atom) for atom in jaxpr.outvars]


def as_series(value, terms, order):
    """A series of an argument and its coefficients, which are arrays of its type."""
    value = core.as_array(value, "jet")
    return [value, *(_convert_element_type(a, value.dtype, weak_type=value.weak_type) for a in terms)]
