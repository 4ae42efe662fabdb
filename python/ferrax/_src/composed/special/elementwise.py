"""Elementwise functions as primitives, and what their bodies are written with.

In: a function of floating arrays of one shape and one dtype of 32 or 64 bits. Out: a primitive that is
one equation in jaxprs, takes arrays of one floating dtype and of one shape (scalars and sizes of 1 are
repeated), computes half precision in float32, and is batched by axes in front.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ferrax._src.base import dtypes
from ferrax._src.core import Array, ShapedArray, as_array
from ferrax._src.core.primitives import Primitive, axis_primitive_batchers
from ferrax._src.lax import api as lax
from ferrax._src.lax.control_flow.conditionals import cond
from ferrax._src.lax.elementwise import _convert_element_type
from ferrax._src.transforms.batching_rules import defbroadcasting
from ferrax._src.transforms.composites import composite
from ferrax._src.transforms.jit import jit


def elementwise(name: str, body: Callable[..., Array]) -> Primitive:
    """The primitive of a function of arrays of one shape. Parameters go to the function as keywords.

    Errors, when it is applied: TypeError for dtypes that are not floating or differ, and for shapes of
    different ranks.
    """

    def run(*args, **params):
        dtype, shape = _common_type(name, args)
        weak = all(x.weak_type for x in args)
        wide = np.dtype(np.float32) if dtype.itemsize < 4 else dtype
        arrays = [_convert_element_type(broadcast(x, shape), wide, False) for x in args]
        return _convert_element_type(body(*arrays, **params), dtype, weak)

    def abstract_eval(*avals, **params):
        dtype, shape = _common_type(name, avals)
        return ShapedArray(shape, dtype, all(x.weak_type for x in avals))

    primitive = composite(name, run)
    # As `run` has it, which is traced when the program is compiled.
    primitive.def_abstract_eval(abstract_eval)
    # At once, too, it is one program and not one for each operation.
    compiled: dict[tuple, Callable[..., Array]] = {}

    def impl(*args, **params):
        key = tuple(params.items())
        if key not in compiled:
            compiled[key] = jit(lambda *args: run(*args, **params))
        return compiled[key](*(as_array(x) for x in args))

    primitive.def_impl(impl)
    del axis_primitive_batchers[primitive]
    defbroadcasting(primitive)
    return primitive


def _common_type(name, args) -> tuple[np.dtype, tuple[int, ...]]:
    for position, x in enumerate(args):
        if not dtypes.issubdtype(x.dtype, np.floating):
            raise TypeError(
                f"{name} does not accept dtype {x.dtype} for operand {position}: give it an array of"
                " floats, by convert_element_type"
            )
    if len({x.dtype for x in args}) > 1:
        raise TypeError(
            f"{name}: the arguments need the same dtypes, got "
            f"{', '.join(str(x.dtype) for x in args)}; convert them with convert_element_type"
        )
    ranks = {x.ndim for x in args if x.ndim}
    if len(ranks) > 1:
        raise TypeError(
            f"{name}: got arrays of ranks {sorted(ranks)}, expected the same number of dimensions of"
            " all that are no scalars; reshape or broadcast them"
        )
    return args[0].dtype, lax.broadcast_shapes(*(x.shape for x in args))


def of_one_shape(*args: Any) -> list[Array]:
    """Arrays of one rank, and scalars, repeated to their common shape."""
    arrays = [as_array(x) for x in args]
    shape = lax.broadcast_shapes(*(x.shape for x in arrays))
    return [broadcast(x, shape) for x in arrays]


def broadcast(x: Array, shape: tuple[int, ...]) -> Array:
    """`x` with its axes of size 1 repeated to this shape, of the same rank; scalars everywhere."""
    if x.shape == shape:
        return x
    if x.ndim:
        kept = tuple(i for i in range(x.ndim) if x.shape[i] == shape[i])
        squeezed = lax.squeeze(x, tuple(i for i in range(x.ndim) if i not in kept))
        return lax.broadcast_in_dim(squeezed, shape, kept)
    return lax.broadcast_in_dim(x, shape, ())


def is_double(x: Array) -> bool:
    """Whether to compute to 53 bits rather than to 24."""
    return x.dtype == np.float64


def choose(condition: Any, x: Any, y: Any) -> Any:
    """`x` where the condition holds, else `y`: arrays of the condition's shape, one may be a number."""
    if not isinstance(x, Array):
        x = lax.full_like(y, x)
    elif not isinstance(y, Array):
        y = lax.full_like(x, y)
    return lax.select(condition, x, y)


def where(condition: Any, x: Callable[[], Any], y: Callable[[], Any]) -> Any:
    """`x()` where the condition holds, else `y()`: arrays of one shape. A condition that is a scalar, as parameters of
    distributions mostly are, chooses which is computed at all; both are sound where they are not chosen."""
    if condition.ndim == 0:
        return cond(condition, x, y)
    return choose(*of_one_shape(condition, x(), y()))


def polynomial(coefficients: Sequence[float], x: Any) -> Any:
    """The polynomial with these coefficients, the constant one first, by Estrin's rule (Organization of computer
    systems, 1960): pairs of neighbours, pairs of pairs and so on, few of which wait for one another."""
    terms, power = list(coefficients), x
    while len(terms) > 1:
        pairs = [low + high * power for low, high in zip(terms[::2], terms[1::2])]
        terms = pairs + terms[2 * len(pairs) :]
        power = power * power if len(terms) > 1 else power
    return terms[0] if isinstance(terms[0], Array) else lax.full_like(x, terms[0])


def chebyshev(coefficients: Sequence[float], x: Any) -> Any:
    """The sum of `coefficients[k] * T_k(x)` for x from -1 to 1: in powers of x where that is as accurate, else from
    sums of four terms, by `T_(m + k) = 2 T_m T_k - T_(m - k)`."""
    of_order = {1: x}

    def order(m):
        if m not in of_order:
            half = order(m // 2)
            of_order[m] = 2.0 * half * half - 1.0
        return of_order[m]

    def total(sum_):
        if sum_.powers is not None:
            return polynomial(sum_.powers, x)
        return total(sum_.low) + order(sum_.order) * total(sum_.high)

    return total(_in_parts(tuple(coefficients)))


class _Sum(NamedTuple):
    """`low + T_order * high`, or a polynomial in powers."""

    powers: tuple[float, ...] | None
    order: int = 0
    low: _Sum | None = None
    high: _Sum | None = None


@functools.cache
def _in_parts(coefficients: tuple[float, ...]) -> _Sum:
    count = len(coefficients)
    powers = np.polynomial.chebyshev.cheb2poly(coefficients)
    if count <= 4 or _sound(coefficients, powers):
        return _Sum(tuple(powers.tolist()))
    order = 4
    while 2 * order < count:
        order *= 2
    low, high = list(coefficients[:order]), [0.0] * (count - order)
    high[0] = coefficients[order]
    for k in range(1, count - order):
        high[k] += 2.0 * coefficients[order + k]
        low[order - k] -= coefficients[order + k]
    return _Sum(None, order, _in_parts(tuple(low)), _in_parts(tuple(high)))


def _sound(coefficients, powers) -> bool:
    """Whether a sum in powers does not cancel on [-1, 1]: the terms are at most four times the value, and the small
    ones have small errors."""
    t = np.linspace(-1, 1, 201)
    terms = np.polynomial.polynomial.polyval(np.abs(t), np.abs(powers))
    value = np.abs(np.polynomial.chebyshev.chebval(t, coefficients))
    return bool(np.all(terms <= 4 * value))
