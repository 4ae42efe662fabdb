"""Polynomials as vectors of coefficients, the highest power first.

Invariant: shapes depend on shapes alone, unless zeros in front are asked to be trimmed.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from ferrax._core import ufuncs
from ferrax._src.base import dtypes
from ferrax._src.core import Array, as_array, concrete_or_error
from ferrax._src.core.typing import ArrayLike
from ferrax._src.lax import api as lax
from ferrax._src.numpy import decompositions
from ferrax._src.numpy.convolution import convolve
from ferrax._src.numpy.joining import concatenate
from ferrax._src.numpy.shape import trim_zeros
from ferrax._src.numpy.util import (
    broadcast_to,
    convert,
    ensure_array,
    ensure_arrays,
    promote_dtypes,
    promote_dtypes_inexact,
    strong_constant,
)
from ferrax._src.transforms.jit import jit


@jit
def polyadd(a1: ArrayLike, a2: ArrayLike) -> Array:
    """The sum of two polynomials; the shorter one is filled with zeros in front.

    Further axes are those of the longer one, to which the other broadcasts. Raises: IndexError for
    scalars, TypeError for bools, ValueError for further axes that do not broadcast.

    Args: a1, a2: arrays of one or more axes, of which the first runs over coefficients.

    >>> jnp.polyadd(jnp.array([1, 2, 3]), jnp.array([4, 5]))
    Array([1, 6, 8], dtype=int32)
    """
    return _add("polyadd", *promote_dtypes(*ensure_arrays("polyadd", a1, a2)))


@jit
def polysub(a1: ArrayLike, a2: ArrayLike) -> Array:
    """The difference of two polynomials; shapes and errors are those of `polyadd`.

    Args: a1, a2: as for `polyadd`.

    >>> jnp.polysub(jnp.array([1, 2, 3]), jnp.array([4, 5]))
    Array([ 1, -2, -2], dtype=int32)
    """
    a1, a2 = promote_dtypes(*ensure_arrays("polysub", a1, a2))
    return _add("polysub", a1, lax.neg(a2))


def _add(name, a1, a2):
    if a1.ndim == 0 or a2.ndim == 0:
        raise IndexError(
            f"jnp.{name}: expected vectors of coefficients, got shapes {tuple(a1.shape)} and"
            f" {tuple(a2.shape)}"
        )
    if a1.shape[0] < a2.shape[0]:
        a1, a2 = a2, a1
    missing = a1.shape[0] - a2.shape[0]
    a2 = broadcast_to(a2, (a2.shape[0], *a1.shape[1:]))
    if missing:
        a2 = lax.pad(a2, strong_constant(0, a2), [(missing, 0, 0)] + [(0, 0, 0)] * (a1.ndim - 1))
    return convert(lax.add(a1, a2), a1.dtype)


def _vector(name, p) -> Array:
    if p.ndim == 0:
        raise TypeError(f"jnp.{name}: expected a vector of coefficients, got a scalar")
    if p.ndim > 1:
        raise ValueError(
            f"jnp.{name}: expected a vector of coefficients, got shape {tuple(p.shape)}"
        )
    return p


def _coefficients(values, like):
    return as_array(np.asarray(values).astype(like.dtype))


def _falling(power, m):
    """power * (power - 1) * … of m factors, those below 1 left out."""
    out = 1.0
    for i in range(m):
        out *= max(1, power - i)
    return out


@jit(static_argnames=("m",))
def polyder(p: ArrayLike, m: int = 1) -> Array:
    """The m-th derivative of a polynomial, in floats.

    Raises: ValueError for a negative `m` and other ranks; TypeError for an `m` that is no integer.
    Args: p: a vector; m: how often.

    >>> jnp.polyder(jnp.array([3.0, 2.0, 1.0]))
    Array([6., 2.], dtype=float32)
    """
    m = concrete_or_error(operator.index, m, "'m' argument of jnp.polyder")
    (p,) = promote_dtypes_inexact(_vector("polyder", ensure_array(p, "polyder")))
    if m < 0:
        raise ValueError(f"Order of derivative must be positive, got {m} (see polyint)")
    if m == 0:
        return p
    kept = max(p.shape[0] - m, 0)
    factors = [_falling(power, m) for power in range(m + kept - 1, m - 1, -1)]
    out = ufuncs.multiply(lax.slice_in_dim(p, 0, kept), _coefficients(factors, p))
    return convert(out, p.dtype)


@jit(static_argnames=("m",))
def polyint(p: ArrayLike, m: int = 1, k: Any = None) -> Array:
    """The m-th integral of a polynomial, in floats.

    Args: p: a vector; m: how often; k: the constants of integration, one for all or a vector of m,
    the first integral's first; 0 by default.
    Raises: ValueError for a negative `m`, other ranks and numbers of constants; TypeError for an
    `m` that is no integer.

    >>> jnp.polyint(jnp.array([6.0, 2.0]), k=1.0)
    Array([3., 2., 1.], dtype=float32)
    """
    m = concrete_or_error(operator.index, m, "'m' argument of jnp.polyint")
    p, k = promote_dtypes_inexact(*ensure_arrays("polyint", p, 0 if k is None else k))
    p = _vector("polyint", p)
    if m < 0:
        raise ValueError(f"Order of integral must be positive, got {m} (see polyder)")
    if k.size == 1 and k.ndim < 2:
        k = broadcast_to(lax.reshape(k, (1,)), (m,))
    if tuple(k.shape) != (m,):
        raise ValueError(
            f"polyint: k is one constant of integration or m={m} of them, got shape {tuple(k.shape)}"
        )
    if m == 0:
        return p
    divisors = [_falling(power, m) for power in range(p.shape[0] + m - 1, -1, -1)]
    out = concatenate([p, k])
    return ufuncs.true_divide(out, _coefficients(divisors, out))


def polymul(a1: ArrayLike, a2: ArrayLike, *, trim_leading_zeros: bool = False) -> Array:
    """The product of two polynomials, in floats.

    Args: a1, a2: vectors; trim_leading_zeros: leave out zeros in front of the factors; of values
    that are known.
    Raises: ValueError for other ranks; ConcretizationTypeError where traced values are trimmed.

    >>> jnp.polymul(jnp.array([1.0, 1.0]), jnp.array([1.0, -1.0]))
    Array([ 1.,  0., -1.], dtype=float32)
    """
    factors = promote_dtypes_inexact(*ensure_arrays("polymul", a1, a2))
    factors = [_vector("polymul", x) for x in factors]
    if trim_leading_zeros and max(x.shape[0] for x in factors) > 1:
        factors = [trim_zeros(x, trim="f") for x in factors]
    factors = [x if x.shape[0] else lax.full((1,), 0, x.dtype) for x in factors]
    first, second = factors
    return convolve(first, second, mode="full")


def polydiv(u: ArrayLike, v: ArrayLike, *, trim_leading_zeros: bool = False) -> tuple[Array, Array]:
    """Quotient and remainder of the division of two polynomials, in floats.

    Args: u, v: dividend of n and divisor of m coefficients, the first of which is not zero.
    trim_leading_zeros: leave out what is nearly zero in front of the remainder; of known values.
    Returns: the quotient, of max(n - m + 1, 1) coefficients, and the remainder, of n.
    Raises: ValueError for other ranks; IndexError for a divisor without coefficients.

    (Knuth, The Art of Computer Programming, vol. 2, section 4.6.1.)

    >>> jnp.polydiv(jnp.array([1.0, 3.0, 5.0]), jnp.array([1.0, 1.0]))
    (Array([1., 2.], dtype=float32), Array([0., 0., 3.], dtype=float32))
    """
    u, v = promote_dtypes_inexact(*ensure_arrays("polydiv", u, v))
    u, v = _vector("polydiv", u), _vector("polydiv", v)
    if v.shape[0] == 0:
        raise IndexError("jnp.polydiv: the divisor has no coefficients")
    quotient, remainder = _divide(u, v)
    if trim_leading_zeros:
        values = concrete_or_error(
            np.asarray, remainder, "the remainder of jnp.polydiv with trim_leading_zeros=True"
        )
        used = np.flatnonzero(abs(values) >= np.sqrt(dtypes.finfo(u.dtype).eps))
        first = int(used[0]) if used.size else values.size
        remainder = lax.slice_in_dim(remainder, first, values.size)
    return quotient, remainder


@jit
def _divide(u, v):
    size = v.shape[0]
    steps = u.shape[0] - size + 1
    if steps <= 0:
        return lax.full((1,), 0, u.dtype), u
    inverse = lax.reciprocal(lax.index_in_dim(v, 0, keepdims=False))

    def step(rest, k):
        part = lax.dynamic_slice(rest, (k,), (size,))
        digit = lax.mul(inverse, lax.index_in_dim(part, 0, keepdims=False))
        part = ufuncs.add(part, ufuncs.multiply(lax.neg(digit), v))
        return lax.dynamic_update_slice(rest, part, (k,)), digit

    remainder, quotient = lax.scan(step, u, lax.iota(np.int32, steps))
    return convert(quotient, u.dtype), convert(remainder, u.dtype, u.weak_type)


@jit
def poly(seq_of_zeros: ArrayLike) -> Array:
    """The polynomial with these roots and the first coefficient 1, in floats.

    Args: seq_of_zeros: a vector of n roots (n + 1 coefficients), one root, or a square matrix, whose
    eigenvalues are taken: the result is its characteristic polynomial. No roots give the scalar 1.
    Raises: ValueError for other shapes; NotImplementedError for a matrix of 16-bit floats.

    >>> jnp.poly(jnp.array([1.0, 2.0]))
    Array([ 1., -3.,  2.], dtype=float32)
    """
    (roots,) = promote_dtypes_inexact(ensure_array(seq_of_zeros, "poly"))
    if roots.ndim == 0:
        roots = lax.reshape(roots, (1,))
    if roots.ndim == 2 and roots.shape[0] == roots.shape[1] != 0:
        roots = decompositions.eigvals(roots)
    if roots.ndim != 1:
        raise ValueError(
            f"poly: expected a vector of roots or a square matrix, got shape {tuple(roots.shape)}"
        )
    if roots.shape[0] == 0:
        return lax.full((), 1, roots.dtype)
    out = lax.full((1,), 1, roots.dtype)
    for k in range(roots.shape[0]):
        root = lax.index_in_dim(roots, k, keepdims=False)
        times_root = convert(ufuncs.multiply(out, root), out.dtype)
        zero = strong_constant(0, out)
        out = lax.sub(lax.pad(out, zero, [(0, 1, 0)]), lax.pad(times_root, zero, [(1, 0, 0)]))
    return out
