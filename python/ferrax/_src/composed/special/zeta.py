"""Hurwitz's zeta function and the polygamma functions.

In: floating arrays of 32 or 64 bits, of one shape. The sum `(q + k)^-s` is taken over a fixed number of
terms, and the rest is the Euler-Maclaurin formula (DLMF 25.11.28), whose error is below that of rounding
for all `s > 1`: where `s` is so large that its terms grow, the first terms of the sum are all that counts.

Negative `q` with an integer `s` is taken back to positive arguments: the sum over all integers has period
1 in `q`, and the part of it that is too much is `(-1)^s zeta(s, 1 - q)`. That is computed only where there
is one.

Relative errors are about `s log(q)` units in the last place, as of powers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ferrax._src.base import dtypes
from ferrax._src.composed.special.elementwise import choose, elementwise, is_double
from ferrax._src.composed.special.gamma_parts import lgamma1p
from ferrax._src.core import Array
from ferrax._src.core.typing import ArrayLike
from ferrax._src.lax import api as lax
from ferrax._src.transforms.ad import defjvp
from ferrax._src.transforms.autodiff import jvp

# B_2j / (2j)!
_EULER_MACLAURIN = (
    0.08333333333333333,
    -0.001388888888888889,
    3.306878306878307e-05,
    -8.267195767195768e-07,
    2.08767569878681e-08,
    -5.284190138687493e-10,
    1.3382536530684679e-11,
    -3.3896802963225827e-13,
    8.586062056277845e-15,
    -2.174868698558062e-16,
    5.5090028283602295e-18,
    -1.3954465684812522e-19,
)


def _over_first(s, q):
    """`zeta(s, q) q^s`, the sum of `(q / (q + k))^s`, for s > 1 and q > 0."""
    terms, corrections = (9, _EULER_MACLAURIN) if is_double(s) else (5, _EULER_MACLAURIN[:6])
    step = 1.0 / q
    powers = [lax.pow(1.0 + float(k) * step, -s) for k in range(1, terms)]
    end = q + float(terms)
    last = lax.pow(1.0 + float(terms) * step, -s)
    inverse = 1.0 / end
    # The rest, over `last`: end / (s - 1) + 1/2 + sum(B_2j / (2j)! s (s + 1) ... (s + 2j - 2) end^(1-2j)).
    product = s * inverse
    rest = 0.5 + corrections[0] * product
    for j, coefficient in enumerate(corrections[1:], 1):
        product = product * ((s + (2.0 * j - 1)) * inverse) * ((s + 2.0 * j) * inverse)
        rest = rest + coefficient * product
    tail = last * rest + last * (end / (s - 1.0))
    # From the smallest term on.
    total = choose(last == 0.0, 0.0, tail)
    for power in reversed(powers):
        total = total + power
    return total + 1.0


def _positive(s, q):
    """`zeta(s, q)` for s > 1 and q > 0."""
    return lax.pow(q, -s) * _over_first(s, q)


def _negative(s, q):
    """`zeta(s, q)` for q < 0 that is no integer and an integer s > 1."""
    sign = 1.0 - 2.0 * _remainder(s, 2.0)
    part = q - lax.floor(q)
    whole = _positive(s, part) + sign * _positive(s, 1.0 - part)
    return whole - sign * _positive(s, 1.0 - q)


def _remainder(x, divisor):
    return x - divisor * lax.floor(x * (1.0 / divisor))


def _zeta(s, q):
    regular = (s > 1.0) & (q > 0.0)
    whole = (s == lax.floor(s)) & (s > 1.0) & (s < np.inf)
    pole = q == lax.floor(q)
    below = (q < 0.0) & whole & ~pole
    found = _positive(choose(regular, s, 2.0), choose(regular, q, 1.0))
    other = lax.cond(
        lax.reduce_or(below, tuple(range(below.ndim))),
        lambda: _negative(choose(below, s, 2.0), choose(below, q, -0.5)),
        lambda: lax.full_like(q, np.nan),
    )
    found = choose(regular, found, choose(below, other, np.nan))
    found = choose((q <= 0.0) & pole & whole & (_remainder(s, 2.0) == 0.0), np.inf, found)
    found = choose(s == 1.0, np.inf, found)
    return choose((q == np.inf) & (s > 1.0), 0.0, found)


def _of_order(q, s):
    return _positive(s, q)


def _zeta_slope(s, q, *, order):
    """The derivative of this order in s, for q > 0; NaN elsewhere."""
    regular = (s > 1.0) & (q > 0.0) & (q < np.inf)
    s, q = choose(regular, s, 2.0), choose(regular, q, 1.0)
    function: Callable[..., Any] = functools.partial(_of_order, q)
    for _ in range(order):
        function = functools.partial(_slope, function)
    return choose(regular, function(s), np.nan)


def _slope(function, s):
    return jvp(function, (s,), (lax.full_like(s, 1.0),))[1]


def _polygamma(n, x):
    whole = (n == lax.floor(n)) & (n >= 0.0) & (n < np.inf)
    order = choose(whole & (n > 0.0), n, 1.0)
    value = _zeta(order + 1.0, x)
    # Factorials up to 20 as such. Above by their logarithm, together with those of zeta and of its first
    # term, which overflow and underflow before the product does.
    few = lax.min(order, lax.full_like(order, 20.0))
    factorial = lax.full_like(order, 1.0)
    for k in range(2, 21):
        factorial = factorial * choose(few >= float(k), float(k), lax.full_like(few, 1.0))
    positive = (x > 0.0) & (x < np.inf)
    base = choose(positive, x, 1.0)
    scaled = choose(positive, _over_first(order + 1.0, base), value)
    exponent = lgamma1p(order) - (order + 1.0) * lax.log(base)
    many = lax.sign(scaled) * lax.exp(exponent + lax.log(lax.abs(scaled)))
    exact = (order <= 20.0) & (lax.abs(value) > 1e4 * float(dtypes.finfo(x.dtype).tiny))
    sign = 2.0 * _remainder(order, 2.0) - 1.0
    found = sign * choose(exact, factorial * value, many)
    found = choose(n == 0.0, lax.digamma(x), found)
    return choose(whole, found, np.nan)


zeta_p = elementwise("zeta", _zeta)
polygamma_p = elementwise("polygamma", _polygamma)
zeta_slope_p = elementwise("zeta_slope", _zeta_slope)


def _no_derivative_in_order(t, n, x):
    raise ValueError(
        "polygamma has no derivative in its order, which is an integer; stop_gradient(m) makes it a"
        " constant"
    )


def _zeta_slope_in_q(t, s, q, *, order):
    # d/dq zeta(s, q) = -s zeta(s + 1, q), `order` times in s.
    above = zeta_slope_p.bind(s + 1.0, q, order=order)
    below = zeta_slope_p.bind(s + 1.0, q, order=order - 1) if order > 1 else zeta(s + 1.0, q)
    return -(t * (s * above + float(order) * below))


defjvp(
    zeta_p,
    lambda t, s, q: t * zeta_slope_p.bind(s, q, order=1),
    lambda t, s, q: -(t * s * zeta(s + 1.0, q)),
)
defjvp(
    zeta_slope_p,
    lambda t, s, q, order: t * zeta_slope_p.bind(s, q, order=order + 1),
    _zeta_slope_in_q,
)
defjvp(
    polygamma_p,
    _no_derivative_in_order,
    lambda t, n, x: t * polygamma(n + 1.0, x),
)


def zeta(x: ArrayLike, q: ArrayLike) -> Array:
    """Hurwitz's zeta function `sum((q + k)^-x for k = 0, 1, ...)`, elementwise.

    NaN for `x < 1`, infinite for `x == 1`; for negative `q` it is defined for integers `x`, with poles at
    the integers `q`.

    Args:
        x: array of floats.
        q: array of the same dtype and shape; scalars broadcast.

    Errors: TypeError for other dtypes, and for dtypes or shapes that differ.

    Euler-Maclaurin summation: DLMF 25.11; Johansson, Numerical Algorithms 69 (2015). Derivatives in both
    arguments, in `x` for positive `q`.

    Example:
        >>> lax.zeta(jnp.array([2.0, 3.0]), 1.0)
        Array([1.6449341, 1.2020569], dtype=float32)
    """
    return zeta_p.bind(x, q)


def polygamma(m: ArrayLike, x: ArrayLike) -> Array:
    """The derivative of order `m` of the digamma function, elementwise.

    It is `(-1)^(m+1) m! zeta(m + 1, x)` (DLMF 5.15), and `digamma(x)` for `m == 0`; NaN for an `m` that is
    negative or no integer.

    Args:
        m: array of floats whose values are integers.
        x: array of the same dtype and shape; scalars broadcast.

    Errors: TypeError for other dtypes, and for dtypes or shapes that differ; ValueError for a derivative
    in `m`.

    Example:
        >>> lax.polygamma(jnp.array([1.0, 2.0]), 1.0)
        Array([ 1.6449341, -2.4041138], dtype=float32)
    """
    return polygamma_p.bind(m, x)
