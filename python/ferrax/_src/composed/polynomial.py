"""`log2`, `one_minus_square` and `polynomial`: functions of JAX 0.12 that are one equation each in jaxprs.

In: arrays. Compiled, they are what they are made of: a logarithm and a product, `(1 + x) (1 - x)`, and Horner's
rule, which takes a product and a sum for each coefficient.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ferrax._src.base import dtypes
from ferrax._src.composed.shape_primitives import unstack_p
from ferrax._src.composed.special.elementwise import broadcast, of_one_shape
from ferrax._src.core import Array, as_array
from ferrax._src.core.primitives import Primitive, axis_primitive_batchers, primitive_jvps
from ferrax._src.core.typing import ArrayLike
from ferrax._src.lax import api as lax
from ferrax._src.lax.arguments import operand
from ferrax._src.lax.elementwise import _convert_element_type
from ferrax._src.transforms.ad import Zero, defjvp
from ferrax._src.transforms.batching_rules import defbroadcasting
from ferrax._src.transforms.composites import composite

__all__ = ["log2", "log2_p", "one_minus_square", "one_minus_square_p", "polynomial", "polynomial_p"]


def _elementwise(name: str, run: Any) -> Primitive:
    """The primitive of a function that maps each element by itself."""
    primitive = composite(name, run)
    del axis_primitive_batchers[primitive]
    defbroadcasting(primitive)
    return primitive


def _number(name: str, given: ArrayLike, integers: bool = True) -> Array:
    """An array of floats or complex numbers or, unless it says otherwise, of integers. Errors: TypeError for others."""
    array = operand(given, name)
    if dtypes.issubdtype(array.dtype, np.inexact) or integers and dtypes.issubdtype(array.dtype, np.integer):
        return array
    more = ", or of integers" if integers else ""
    raise TypeError(f"{name}: {array.dtype} is not taken: give it an array of floats or complex numbers{more}")


def _constant(x: Array, value: float) -> Array:
    """A scalar of the dtype of `x`."""
    return as_array(np.asarray(value, x.dtype))


def _log2(x):
    log = lax.log(x)
    if dtypes.issubdtype(x.dtype, np.complexfloating):  # part by part, so that no infinity meets a zero
        real, imag = lax.real(log), lax.imag(log)
        return lax.complex(*(lax.mul(part, lax.full_like(part, 1 / math.log(2))) for part in (real, imag)))
    return lax.mul(log, lax.full_like(log, 1 / math.log(2)))


log2_p = _elementwise("log2", _log2)
defjvp(log2_p, lambda t, x: lax.div(t, lax.mul(x, lax.full_like(x, lax.log(_constant(x, 2.0))))))
one_minus_square_p = _elementwise(
    "one_minus_square", lambda x: lax.mul(lax.add(lax.full_like(x, 1), x), lax.sub(lax.full_like(x, 1), x))
)
defjvp(one_minus_square_p, lambda t, x: lax.mul(t, lax.mul(lax.full_like(x, -2), x)))


def _of_type(given: Any, array: Array, x: Array) -> Array:
    """A coefficient in the dtype of `x`, and weak where that is. Of a number no equation is made."""
    if isinstance(given, (bool, int, float, complex)):
        value = np.asarray(given).astype(x.dtype)
        array = as_array(value.item() if x.weak_type else value)
    weak = x.weak_type and array.ndim <= x.ndim
    return array if (array.dtype, array.weak_type) == (x.dtype, weak) else _convert_element_type(array, x.dtype, weak)


def _horner(*args, unroll=None):
    x, *coefficients = of_one_shape(*args)
    value = lax.full_like(x, 0) if not coefficients else coefficients[-1]
    for coefficient in reversed(coefficients[:-1]):
        value = lax.add(lax.mul(value, x), coefficient)
    return value


polynomial_p = _elementwise("polynomial", _horner)


def _polynomial_jvp(primals, tangents, **params):
    """In the direction of x it is the polynomial of the derivative, in that of coefficients that of theirs."""
    x, *coefficients = primals
    dx, *directions = tangents
    out = polynomial_p.bind(*primals, **params)
    parts = []
    if type(dx) is not Zero:
        slopes = [lax.mul(lax.full_like(c, k), c) for k, c in enumerate(coefficients[1:], 1)]
        slope = polynomial_p.bind(x, *slopes, **params) if slopes else lax.full_like(x, 0)
        parts.append(lax.mul(*of_one_shape(dx, slope)))
    if any(type(d) is not Zero for d in directions):
        given = [lax.full_like(c, 0) if type(d) is Zero else d for d, c in zip(directions, coefficients)]
        parts.append(polynomial_p.bind(x, *given, **params))
    if not parts:
        return out, Zero.from_primal_value(out)
    whole = [broadcast(part, out.shape) for part in parts]
    return out, whole[0] if len(whole) == 1 else lax.add(*whole)


primitive_jvps[polynomial_p] = _polynomial_jvp


def log2(x: ArrayLike, *, accuracy: Any = None) -> Array:
    """The logarithm to the base 2, elementwise.

    Args: x: array of floats or complex numbers; accuracy: None, or what `ferrax.lax.log` takes. Errors:
    TypeError for other dtypes.

    >>> lax.log2(jnp.array([1.0, 8.0]))
    Array([0., 3.], dtype=float32)
    """
    x = _number("log2", x, integers=False)
    if accuracy is not None:
        lax.log(_constant(x, 1.0), accuracy=accuracy)  # which refuses what is no accuracy
    return log2_p.bind(x)


def one_minus_square(x: ArrayLike) -> Array:
    """`1 - x**2`, elementwise, accurate where x is near 1 or -1.

    Args: x: array of numbers, not booleans. Errors: TypeError for other dtypes.

    >>> lax.one_minus_square(jnp.array([0.5, 3.0]))
    Array([ 0.75, -8.  ], dtype=float32)
    """
    return one_minus_square_p.bind(_number("one_minus_square", x))


def polynomial(x: ArrayLike, coeffs: Sequence[ArrayLike] | Array, *, unroll: int | None = None) -> Array:
    """The sum of `coeffs[k] * x**k`, by Horner's rule.

    Args: x: array of numbers, not booleans; coeffs: arrays or numbers of its shape, or scalars, or an array of
    them along the first axis, which are converted to the dtype of `x`; unroll: None or a number that is not
    negative, which says how many steps JAX writes out at once: all are written out here. Errors: TypeError for
    other dtypes and for shapes that do not broadcast; ValueError for a negative `unroll`.

    >>> lax.polynomial(2.0, [1.0, 2.0, 3.0])
    Array(17., dtype=float32, weak_type=True)
    """
    x = _number("polynomial", x)
    if unroll is not None and (not isinstance(unroll, int) or unroll < 0):
        raise ValueError(f"polynomial: unroll must be None or a number that is not negative, got {unroll!r}")
    given: Any = coeffs
    if isinstance(coeffs, (Array, np.ndarray)):
        given = unstack_p.bind(as_array(coeffs), axis=0) if len(coeffs) else []
    arrays = [operand(c, "polynomial", position) for position, c in enumerate(given, 1)]
    if not dtypes.issubdtype(x.dtype, np.complexfloating):
        for position, c in enumerate(arrays, 1):
            if dtypes.issubdtype(c.dtype, np.complexfloating):
                raise TypeError(f"polynomial: coefficient {position - 1} is complex, and x is of {x.dtype}")
    if not arrays:
        return lax.full_like(x, 0)
    ranks = {c.ndim for c in (x, *arrays) if c.ndim}
    if len(ranks) > 1:
        raise TypeError(f"polynomial: x and the coefficients have ranks {sorted(ranks)}; reshape them")
    try:
        lax.broadcast_shapes(*(c.shape for c in (x, *arrays)))
    except ValueError as error:
        raise TypeError(f"polynomial: {error}") from None
    of_dtype = [_of_type(c, array, x) for c, array in zip(given, arrays)]
    params = {} if unroll is None else {"unroll": unroll}
    return polynomial_p.bind(x, *of_dtype, **params)
