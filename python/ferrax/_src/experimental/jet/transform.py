"""`jet`: derivatives of a function along a curve, to any order at once."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ferrax._src import core
from ferrax._src.core import Array, api_util
from ferrax._src.core.jaxpr import ClosedJaxpr
from ferrax._src.core.typing import ArrayLike
from ferrax._src.experimental.jet import control, rules
from ferrax._src.experimental.jet.propagate import as_series, instantiated, is_inexact, propagate
from ferrax._src.experimental.jet.taylor import constant
from ferrax._src.lax import api as lax
from ferrax._src.tracing import staging
from ferrax._src.tree import tree_util


def jet(
    fun: Callable[..., Any], primals: Any, series: Any, factorial_scaled: bool = True,
    **unknown: Any,
) -> tuple[Any, Any]:
    """The derivatives of `fun` along a curve, by propagating a truncated Taylor series.

    Args:
      fun: a function of arrays and numbers, which returns a pytree of arrays.
      primals: a tuple or list of its arguments, at which to expand.
      series: for each argument a list of the derivatives of the curve `h`, of orders 1 to K:
        arrays of the argument's shape. Series of integer arguments must be zero.
      factorial_scaled: whether coefficients are derivatives; if False they are those of the
        polynomial, which are derivatives over factorials.

    Returns `(fun(*primals), out)`, where `out` is like the output with a list of K arrays, the
    derivatives of `fun(h(t))`, for each array.

    Functions with a `custom_jvp` rule are propagated by that rule, those with a `custom_vjp` rule by
    what they compute.

    Errors: ValueError for series of unequal lengths, for arguments that are pytrees, and for
    coefficients of another shape than their argument; TypeError for an integer argument that
    varies, for another number of series than of arguments, and for unknown keywords.

    The method: Griewank and Walther, Evaluating Derivatives (2nd ed., 2008), chapter 13.

    Example:
        >>> from ferrax.experimental.jet import jet
        >>> value, derivatives = jet(jnp.exp, (0.0,), ((1.0, 0.0, 0.0),))
        >>> [float(d) for d in derivatives]
        [1.0, 1.0, 1.0]
    """
    if unknown:
        raise TypeError(f"jet() got unexpected keyword arguments {sorted(unknown)}")
    api_util.check_callable(fun)
    primals, series = tuple(primals), [tuple(terms) for terms in series]
    lengths = set(map(len, series))
    if len(lengths) != 1:
        raise ValueError(
            f"jet: got {[len(terms) for terms in series]}, expected one number of terms for all "
            "arguments; fill up with zeros"
        )
    (order,) = lengths
    if len(primals) != len(series):
        raise TypeError(f"jet: got {len(primals)} primals and {len(series)} series for them")
    inputs = [_input(i, *given, order, factorial_scaled) for i, given in enumerate(zip(primals, series))]
    program, captured, flat = staging.stage(fun, primals, {})
    closed = ClosedJaxpr(program, captured)
    outs = propagate(closed, inputs, order)
    out_terms = []
    for u in outs:
        terms = [instantiated(a, u[0]) for a in u[1:]]
        if factorial_scaled:
            terms = [a * float(math.factorial(k)) for k, a in enumerate(terms, 1)]
        out_terms.append(terms)
    tree = flat.out_tree
    return tree.unflatten([u[0] for u in outs]), tree.unflatten(out_terms)


def _input(place, primal, terms, order, factorial_scaled):
    """An argument's series, without factorials."""
    if not _is_leaf(primal):
        raise ValueError(
            f"primal value at position {place} is not an array, got {type(primal).__name__}: give "
            "a function of the leaves of pytrees"
        )
    for number, term in enumerate(terms):
        if not _is_leaf(term):
            raise ValueError(f"term {number} for argument {place} is not an array, got {term!r}")
    value = core.as_array(primal, "jet")
    terms = [core.as_array(term, "jet") for term in terms]
    for number, term in enumerate(terms):
        if term.shape != value.shape:
            raise ValueError(
                f"jet: term {number} for argument {place} has shape {term.shape}, expected the "
                f"argument's, {value.shape}"
            )
    if not is_inexact(value.dtype):
        for number, term in enumerate(terms):
            if isinstance(term, core.Tracer) or np.any(np.asarray(term)):
                raise TypeError(
                    f"jet: argument {place} has dtype {value.dtype}, which has no derivatives, but "
                    f"term {number} of its series is not known to be zero: expected zeros, or an "
                    "argument of inexact dtype"
                )
        return constant(value, order)
    if factorial_scaled:
        terms = [term / float(math.factorial(k)) for k, term in enumerate(terms, 1)]
    return as_series(value, terms, order)


def _is_leaf(x) -> bool:
    return tree_util.treedef_is_leaf(tree_util.tree_structure(x))


jet2 = functools.partial(jet, factorial_scaled=False)
jet2.__doc__ = """As `jet`, where coefficients are those of the polynomial, without factorials.

    Args: fun, primals, series, factorial_scaled: as for `jet`, with its errors.

    >>> from ferrax.experimental.jet import jet2
    >>> value, coefficients = jet2(jnp.exp, (0.0,), ((1.0, 0.0),))
    >>> [float(c) for c in coefficients]
    [1.0, 0.5]
    """


def fact(n: ArrayLike) -> Array:
    """`n` factorial, as an array: exact for Python integers, of `n` elementwise else.

    Example:
        >>> from ferrax.experimental.jet import fact
        >>> fact(3)
        Array(6., dtype=float32, weak_type=True)
    """
    if isinstance(n, int):
        return core.as_array(float(math.factorial(n)))
    return lax.exp(lax.lgamma(n + 1.0))


__all__ = ["control", "fact", "jet", "jet2", "rules"]
