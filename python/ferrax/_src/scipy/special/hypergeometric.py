"""Hypergeometric functions 1F1 and 2F1 of real numbers.

In: arrays and numbers that broadcast together; integers become floats, half precision is computed in
float32. Series are summed until no element's terms count; where terms cancel, errors are those of the
largest of them. Derivatives in parameters are those of the series, term by term.
"""

from __future__ import annotations

import math

import numpy as np

from ferrax._src.base import dtypes
from ferrax._src.composed.special.elementwise import choose, is_double
from ferrax._src.core import Array
from ferrax._src.core.typing import ArrayLike
from ferrax._src.lax import api as lax
from ferrax._src.numpy import api as jnp
from ferrax._src.scipy.special.arguments import apply, real_arguments
from ferrax._src.scipy.special.gamma_functions import gamma_of_wide, gamma_quotient
from ferrax._src.transforms.autodiff import jvp
from ferrax._src.transforms.custom_jvp import custom_jvp

_MOST_TERMS = 20_000


def _sum(ratio, like, most=_MOST_TERMS):
    """`1 + r(0) + r(0) r(1) + ...` for `r = ratio(k)`, until all terms are below a hundredth of a unit in the
    last place. The first ratio is taken out of the sum, and what the others add is measured without it: its
    derivative in a parameter near 0 is large beside it."""
    least = 0.01 * float(dtypes.finfo(like.dtype).eps)
    one = lax.full_like(like, 1.0)

    def body(carry):
        k, term, total, _ = carry
        for step in range(4):
            term = term * ratio(k + float(step))
            total = total + term
        busy = lax.abs(term) > least * lax.abs(total)
        return k + 4.0, term, total, lax.reduce_or(busy, tuple(range(busy.ndim)))

    begin = lax.full((), 1.0, like.dtype), one, one, lax.full((), True, np.bool_)
    found = lax.while_loop(lambda carry: carry[3] & (carry[0] < most), body, begin)[2]
    return one + ratio(lax.full((), 0.0, like.dtype)) * found


# What a sum is scaled by when it has grown, `e^-32`: the exponent is exact.
_SCALED_BY = 32.0


def _kummer_series(a, b, x):
    """The series, as a number of moderate size and the exponent of the power of e that it is to be multiplied
    by. The first ratio is taken out of the sum, as in `_sum`."""
    least = 0.01 * float(dtypes.finfo(x.dtype).eps)
    most, factor = math.exp(_SCALED_BY), math.exp(-_SCALED_BY)
    one = lax.full_like(x, 1.0)

    def body(carry):
        k, term, total, exponent, _ = carry
        for step in range(4):
            at = k + float(step)
            term = term * ((a + at) / (b + at) * (x / (at + 1.0)))
            total = total + term
        busy = lax.abs(term) > least * lax.abs(total)
        large = lax.abs(total) > most
        scale = choose(large, factor, one)
        exponent = exponent + choose(large, _SCALED_BY, 0.0 * one)
        any_busy = lax.reduce_or(busy, tuple(range(busy.ndim)))
        return k + 4.0, term * scale, total * scale, exponent, any_busy

    begin = (
        lax.full((), 1.0, x.dtype), one, one, lax.full_like(x, 0.0), lax.full((), True, np.bool_),
    )  # fmt: skip
    found = lax.while_loop(lambda carry: carry[4] & (carry[0] < _MOST_TERMS), body, begin)
    return lax.exp(-found[3]) + a / b * x * found[2], found[3]


def _kummer_far(b, p, size):
    """The sum of the asymptotic expansion in 1 / size (DLMF 13.7.2), up to its smallest term, and whether that
    is below rounding."""
    eps = float(dtypes.finfo(size.dtype).eps)
    term, total = lax.full_like(size, 1.0), lax.full_like(size, 1.0)
    falling = size > 0.0
    converged = ~falling
    for k in range(24):
        following = term * ((b - p + float(k)) * (1.0 - p + float(k)) / (size * (k + 1.0)))
        falling = falling & (lax.abs(following) < lax.abs(term))
        term = choose(falling, following, 0.0)
        total = total + term
        converged = converged | (falling & (lax.abs(term) < eps * lax.abs(total)))
    return total, converged


def _kummer(a, b, x):
    """1F1 by its series, after Kummer's transformation (DLMF 13.2.39) for negative x, and by its asymptotic
    expansion where it converges."""
    negative = x < 0.0
    p = choose(negative, b - a, a)
    size = lax.abs(x)
    large = choose(size > (100.0 if is_double(x) else 50.0), size, 1e30)
    total, far = _kummer_far(b, p, large)
    far = far & (large == size)
    one = choose(far, size, 1e3)
    pole = (p <= 0.0) & (p == lax.floor(p))
    # e^x x^(p - b) as a square and the power, which overflow only if the product does; where the exponential
    # is out of all proportion, as a square alone.
    beyond = ~negative & (one > (1400.0 if is_double(x) else 170.0))
    half = lax.exp(0.5 * choose(beyond, one + (p - b) * lax.log(one), one))
    half, power = choose(negative, 1.0, half), choose(beyond, 1.0, lax.pow(one, p - b))
    quotient = gamma_quotient(choose(far & ~pole, p, 1.0), choose(far & ~pole, b - p, 1.0))
    distant = half * power * quotient * total * half
    # 1 / Gamma is 0 at poles.
    distant = choose(pole, 0.0, distant)
    value, exponent = _kummer_series(p, b, choose(far, 1.0, size))
    near = value * lax.exp(choose(negative, exponent - size, exponent))
    return choose(far, distant, near)


def _hyp1f1_value(a, b, x):
    found = choose(a == b, lax.exp(x), _kummer(a, choose(b == 0.0, 1.0, b), x))
    return choose(a == 0.0, 1.0, choose(b == 0.0, np.inf, found))


@custom_jvp
def _hyp1f1(a, b, x):
    return _hyp1f1_value(a, b, x)


@_hyp1f1.defjvp
def _(primals, tangents):
    (a, b, x), (da, db, dx) = primals, tangents
    one = lax.full_like(a, 1.0)
    slope_a = jvp(lambda a: _kummer(a, b, x), (a,), (one,))[1]
    slope_b = jvp(lambda b: _kummer(a, b, x), (b,), (one,))[1]
    slope_x = a / b * _hyp1f1(a + 1.0, b + 1.0, x)
    return _hyp1f1(a, b, x), da * slope_a + db * slope_b + dx * slope_x


def hyp1f1(a: ArrayLike, b: ArrayLike, x: ArrayLike) -> Array:
    """Kummer's confluent hypergeometric function 1F1, elementwise: `sum((a)_k / (b)_k x^k / k!)`.

    Args: a, b, x: arrays of real numbers that broadcast together; integers become floats. Infinite for
    `b == 0 != a`. Errors: ValueError for complex numbers.

    The series, transformed for negative x, and the asymptotic expansion: Pearson, Olver and Porter,
    Numerical methods for the computation of the confluent and Gauss hypergeometric functions, Numerical
    Algorithms 74 (2017).

    >>> ferrax.scipy.special.hyp1f1(1.0, 2.0, jnp.array([0.0, 1.0]))
    Array([1.       , 1.7182817], dtype=float32)
    """
    return apply(_hyp1f1, real_arguments("hyp1f1", *map(jnp.asarray, (a, b, x))))


def _gauss_series(a, b, c, x):
    return _sum(lambda k: (a + k) * (b + k) / ((c + k) * (k + 1.0)) * x, x)


def _is_whole(x):
    return lax.abs(x - lax.round(x)) < 50.0 * float(dtypes.finfo(x.dtype).eps)


def _near_one_apart(a, b, c, y):
    """2F1 at `1 - y` where `c - a - b` is no integer: DLMF 15.8.4."""
    d = c - a - b
    g = gamma_of_wide
    first = g(d) / (_or_infinite(c - a) * _or_infinite(c - b)) * _gauss_series(a, b, 1.0 - d, y)
    second = g(-d) / (_or_infinite(a) * _or_infinite(b)) * _gauss_series(c - a, c - b, 1.0 + d, y)
    return g(c) * (first + lax.pow(y, d) * second)


def _or_infinite(x):
    """Gamma, infinite at its poles, where 1 / Gamma is 0."""
    pole = (x <= 0.0) & (x == lax.floor(x))
    return choose(pole, np.inf, gamma_of_wide(choose(pole, 1.0, x)))


def _near_one_whole(a, b, m, y):
    """2F1 at `1 - y` where `c - a - b` is the integer m from 0: DLMF 15.8.10."""
    g = gamma_of_wide
    m = lax.round(m)
    # The finite sum, whose terms end at m.
    most = lax.reduce_max(m, tuple(range(m.ndim)))

    def finite(carry):
        k, term, total = carry
        active = k < m
        total = total + choose(active, term, 0.0)
        gap = choose(active & (m - k - 1.0 > 0.0), m - k - 1.0, 1.0)
        term = -term * (a + k) * (b + k) / ((k + 1.0) * gap) * y
        return k + 1.0, term, total

    first = g(choose(m > 0.0, m, 1.0))
    zero = lax.full((), 0.0, a.dtype)
    _, _, head = lax.while_loop(lambda carry: carry[0] < most, finite, (zero, first, 0.0 * a))
    log, eps = lax.log(y), float(dtypes.finfo(a.dtype).eps)

    def tail(carry):
        k, term, total, _ = carry
        psi = lax.digamma(k + 1.0) + lax.digamma(k + m + 1.0)
        part = term * (log - psi + lax.digamma(a + k + m) + lax.digamma(b + k + m))
        total = total + part
        term = term * ((a + m + k) * (b + m + k) / ((k + 1.0) * (k + m + 1.0)) * y)
        busy = lax.abs(part) > eps * lax.abs(total)
        return k + 1.0, term, total, lax.reduce_or(busy, tuple(range(busy.ndim))) | (k < 2.0)

    begin = zero, 1.0 / g(m + 1.0), 0.0 * a, lax.full((), True, np.bool_)
    rest = lax.while_loop(lambda carry: carry[3] & (carry[0] < 500.0), tail, begin)[2]
    sign = 1.0 - 2.0 * (m - 2.0 * lax.floor(0.5 * m))
    head = head / (_or_infinite(a + m) * _or_infinite(b + m))
    rest = sign * lax.pow(y, m) * rest / (_or_infinite(a) * _or_infinite(b))
    return g(a + b + m) * (head - rest)


def _reduced(a, b, c, x):
    """Parameters, argument from 0 to 1 and a factor with the same value, by Pfaff's transformation for
    negative x and Euler's where `c < a + b` (DLMF 15.8.1)."""
    negative = x < 0.0
    factor = choose(negative, lax.pow(1.0 - choose(negative, x, 0.0), -a), lax.full_like(x, 1.0))
    b = choose(negative, c - b, b)
    x = choose(negative, x / (x - 1.0), x)
    gap = c - a - b
    flip = (gap < 0.0) & (x < 1.0) & ~_terminates(a, b)
    factor = choose(flip, factor * lax.pow(1.0 - choose(flip, x, 0.0), gap), factor)
    return choose(flip, c - a, a), choose(flip, c - b, b), c, x, factor


def _terminates(a, b):
    return ((a <= 0.0) & (a == lax.round(a))) | ((b <= 0.0) & (b == lax.round(b)))


def _gauss(a, b, c, x):
    """2F1 for x below 1."""
    a, b, c, x, factor = _reduced(a, b, c, x)
    close = (x > 0.9) & ~_terminates(a, b)
    near = _gauss_series(a, b, c, choose(close, 0.5, x))
    d = c - a - b
    whole = close & _is_whole(d)
    apart = close & ~whole

    def beyond():
        y = choose(close, 1.0 - x, 0.05)
        p, q = choose(apart, a, 0.5), choose(apart, b, 0.25)
        first = _near_one_apart(p, q, choose(apart, c, 1.25), y)
        p, q = choose(whole, a, 0.5), choose(whole, b, 0.25)
        return choose(whole, _near_one_whole(p, q, choose(whole, d, 0.0), y), first)

    some = lax.reduce_or(close, tuple(range(close.ndim)))
    other = lax.cond(some, beyond, lambda: lax.full_like(x, 0.0))
    return factor * choose(close, other, near)


def _gauss_by_series(a, b, c, x):
    a, b, c, x, factor = _reduced(a, b, c, x)
    return factor * _gauss_series(a, b, c, x)


@custom_jvp
def _hyp2f1(a, b, c, x):
    constant = (x == 0.0) | (((a == 0.0) | (b == 0.0)) & (c != 0.0))
    pole = (c <= 0.0) & (c == lax.round(c))
    regular = (x < 1.0) & ~pole & ~constant & (x > -np.inf)
    p, q, r = (choose(regular, value, 1.0) for value in (a, b, c))
    found = _gauss(p, q, r, choose(regular, x, 0.5))
    # At 1 by Gauss's theorem, DLMF 15.4.20.
    d = c - a - b
    one = (x == 1.0) & (d > 0.0) & ~pole
    g = gamma_of_wide
    at_one = g(choose(one, c, 1.0)) * g(choose(one, d, 1.0))
    at_one = at_one / (
        _or_infinite(choose(one, c - a, 1.0)) * _or_infinite(choose(one, c - b, 1.0))
    )
    found = choose(regular, found, choose(one, at_one, np.inf))
    bad = lax.ne(a + b + c + x, a + b + c + x)
    return choose(bad, np.nan, choose(constant, 1.0, found))


@_hyp2f1.defjvp
def _(primals, tangents):
    (a, b, c, x), (da, db, dc, dx) = primals, tangents
    one = lax.full_like(a, 1.0)
    slope_a = jvp(lambda a: _gauss_by_series(a, b, c, x), (a,), (one,))[1]
    slope_b = jvp(lambda b: _gauss_by_series(a, b, c, x), (b,), (one,))[1]
    slope_c = jvp(lambda c: _gauss_by_series(a, b, c, x), (c,), (one,))[1]
    slope_x = a * b / c * _hyp2f1(a + 1.0, b + 1.0, c + 1.0, x)
    return _hyp2f1(a, b, c, x), da * slope_a + db * slope_b + dc * slope_c + dx * slope_x


def hyp2f1(a: ArrayLike, b: ArrayLike, c: ArrayLike, x: ArrayLike) -> Array:
    """Gauss's hypergeometric function 2F1, elementwise: `sum((a)_k (b)_k / (c)_k x^k / k!)`.

    Args: a, b, c, x: arrays of real numbers that broadcast together; integers become floats. Infinite for
    `x > 1`, and where c is 0 or a negative integer. Errors: TypeError for complex numbers.

    The series, with the transformations of DLMF 15.8 for negative x and for x above 0.9: Pearson, Olver and
    Porter, Numerical Algorithms 74 (2017). Near integers `c - a - b` the latter loses as many digits as it
    is near.

    >>> ferrax.scipy.special.hyp2f1(1.0, 1.0, 2.0, jnp.array([0.0, 0.5]))
    Array([1.       , 1.3862944], dtype=float32)
    """
    return apply(
        _hyp2f1, real_arguments("hyp2f1", *map(jnp.asarray, (a, b, c, x)), error=TypeError)
    )
