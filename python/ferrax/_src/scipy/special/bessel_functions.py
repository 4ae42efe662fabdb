"""Bessel functions: the modified ones of orders 0 and 1, and J of integer orders.

In: arrays and numbers; integers become floats, half precision is computed in float32.
"""

from __future__ import annotations

import math
import operator

import numpy as np

from ferrax._src.composed.special.bessel import bessel_i0e, bessel_i1e, i1_scaled_over_x
from ferrax._src.composed.special.elementwise import choose, is_double
from ferrax._src.core import Array, concrete_or_error
from ferrax._src.core.typing import ArrayLike
from ferrax._src.lax import api as lax
from ferrax._src.numpy import api as jnp
from ferrax._src.numpy.util import promote_args_inexact
from ferrax._src.scipy.special.arguments import apply, real_arguments
from ferrax._src.transforms.custom_jvp import custom_jvp


def i0e(x: ArrayLike) -> Array:
    """The modified Bessel function of order 0 times `e^-|x|`, elementwise.

    Args: x: array of real numbers; integers become floats. Raises TypeError for complex ones.

    As `ferrax.lax.bessel_i0e`, by Chebyshev series.

    >>> ferrax.scipy.special.i0e(jnp.array([0.0, 100.0]))
    Array([0.99999994, 0.03994437], dtype=float32)
    """
    return bessel_i0e(*promote_args_inexact("i0e", x))


def _unscaled(x, scaled, at_infinity):
    """`e^|x| scaled`, where far out a part of the exponential waits for the small factor."""
    size = lax.abs(x)
    far = size > (700.0 if is_double(x) else 80.0)
    shift, factor = choose(far, 8.0, 0.0 * size), choose(far, math.exp(8.0), lax.full_like(x, 1.0))
    return choose(size < np.inf, lax.exp(size - shift) * scaled * factor, at_infinity)


@custom_jvp
def _i0(x):
    return _unscaled(x, bessel_i0e(x), lax.abs(x))


@custom_jvp
def _i1(x):
    return _unscaled(x, bessel_i1e(x), x)


@_i0.defjvp
def _(primals, tangents):
    ((x,), (t,)) = primals, tangents
    return _i0(x), t * _i1(x)


@_i1.defjvp
def _(primals, tangents):
    # I1' = exp(|x|) (i0e(x) - i1e(x) / x).
    ((x,), (t,)) = primals, tangents
    slope = bessel_i0e(x) - i1_scaled_over_x(x)
    return _i1(x), t * _unscaled(x, slope, lax.abs(x))


def i0(x: ArrayLike) -> Array:
    """The modified Bessel function of order 0, elementwise.

    Args: x: array of real numbers; integers become floats. Raises TypeError for complex ones.

    `e^|x|` times `i0e(x)`.

    >>> ferrax.scipy.special.i0(jnp.array([1.0, -2.0]))
    Array([1.266066 , 2.2795854], dtype=float32)
    """
    return apply(_i0, promote_args_inexact("i0", x), weak=True)


def i1e(x: ArrayLike) -> Array:
    """The modified Bessel function of order 1 times `e^-|x|`, elementwise.

    Args: x: array of real numbers; integers become floats. Raises TypeError for complex ones.

    As `ferrax.lax.bessel_i1e`, by Chebyshev series.

    >>> ferrax.scipy.special.i1e(jnp.array([0.0, 100.0]))
    Array([0.        , 0.03974416], dtype=float32)
    """
    return bessel_i1e(*promote_args_inexact("i1e", x))


def i1(x: ArrayLike) -> Array:
    """The modified Bessel function of order 1, elementwise.

    Args: x: array of real numbers; integers become floats. Raises TypeError for complex ones.

    `e^|x|` times `i1e(x)`.

    >>> ferrax.scipy.special.i1(jnp.array([1.0, -2.0]))
    Array([ 0.56515914, -1.5906369 ], dtype=float32)
    """
    return apply(_i1, promote_args_inexact("i1", x), weak=True)


def _miller(v, n_iter, z):
    """J of the orders 0 to v, stacked in front: f(k-1) = 2k/z f(k) - f(k+1) downwards from n_iter, over
    f(0) + 2 (f(2) + f(4) + ...) = 1."""
    at_zero = z == 0.0
    inverse = 1.0 / choose(at_zero, 1.0, z)
    least = 1e-290 if is_double(z) else 1e-35
    after, this = lax.full_like(z, 0.0), lax.full_like(z, least)
    total = lax.full_like(z, 0.0)
    values = []
    for k in range(n_iter, -1, -1):
        # `this` is f(k + 1), and becomes f(k).
        after, this = this, (2.0 * (k + 1)) * inverse * this - after
        if k % 2 == 0:
            total = total + (this if k == 0 else 2.0 * this)
        if k <= v:
            values.append(this)
        # What has grown large is scaled down, all of it.
        scale = choose(lax.abs(this) > 1.0, least, lax.full_like(z, 1.0))
        after, this, total = after * scale, this * scale, total * scale
        values = [value * scale for value in values]
    quotients = [value / total for value in reversed(values)]
    quotients[0] = choose(at_zero, 1.0, quotients[0])
    return jnp.stack([quotients[0]] + [choose(at_zero, 0.0, q) for q in quotients[1:]])


def bessel_jn(z: ArrayLike, *, v: int, n_iter: int = 50) -> Array:
    """Bessel functions of the first kind of the orders 0 to v.

    Args:
        z: array of real numbers; integers become floats.
        v: the last order, a constant.
        n_iter: the order from which the recurrence goes down, a constant; more than v, and than `|z|` by 15
            or more.

    Returns: array of shape `(v + 1, *z.shape)`.
    Errors: TypeError for complex numbers; ValueError for an order that is negative or above `n_iter`;
    ConcretizationTypeError for traced constants.

    Miller's algorithm: Gautschi, Computational aspects of three-term recurrence relations, SIAM Review 9
    (1967).

    >>> ferrax.scipy.special.bessel_jn(jnp.array([0.0, 2.0]), v=1)
    Array([[1.        , 0.22389077],
           [0.        , 0.57672477]], dtype=float32)
    """
    arrays = real_arguments("bessel_jn", jnp.asarray(z), error=TypeError)
    v = concrete_or_error(operator.index, v, "Argument v of bessel_jn.")
    n_iter = concrete_or_error(int, n_iter, "Argument n_iter of bessel_jn.")
    if not 0 <= v <= n_iter:
        raise ValueError(f"bessel_jn: v must be from 0 to n_iter, got v={v} and n_iter={n_iter}")
    return apply(_Miller(v, n_iter), arrays)


class _Miller:
    """`_miller` of constants, equal where these are: a key of compiled programs."""

    def __init__(self, v, n_iter):
        self.constants = v, n_iter

    def __call__(self, z):
        return _miller(*self.constants, z)

    def __eq__(self, other):
        return type(other) is _Miller and self.constants == other.constants

    def __hash__(self):
        return hash(self.constants)
