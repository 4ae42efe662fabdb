"""Arithmetic on truncated Taylor series.

A series is a list `[u0, u1, ..., uK]` of arrays of one shape, the coefficients of `u(t) = u0 + u1 t
+ ... + uK t^K`, without factorials; a coefficient behind the first that is zero and is not computed
is None. Each function gives the series of an operation on such curves. The recurrences are those of
A. Griewank and A. Walther, Evaluating Derivatives (2nd ed., SIAM 2008), chapter 13, tables 13.1 and
13.2: for `v = f(u)` they come from `v' = f'(u) u'`, with `k v_k = sum over j = 1..k of j u_j c_{k-j}`
for the series `c` of `f'(u)`. They give what Faa di Bruno's formula does, in `O(K^2)` operations.
"""

from __future__ import annotations

import math

import numpy as np

from ferrax._src.lax import api as lax


def plus(a, b):
    """The sum of two coefficients."""
    if a is None:
        return b
    return a if b is None else a + b


def times(a, b):
    """The product of two coefficients, or of a number and a coefficient."""
    return None if a is None or b is None else a * b


def minus(a, b):
    """The difference of two coefficients."""
    if a is None or b is None:
        return a if b is None else lax.neg(b)
    return a - b


def over(a, b):
    """A coefficient by a first coefficient or a number."""
    return None if a is None else a / b


def total(parts):
    """The sum of coefficients."""
    result = None
    for part in parts:
        result = plus(result, part)
    return result


def derivative_of(u):
    """The series of `u'`, one shorter."""
    return [times(j, u[j]) if j > 1 else u[j] for j in range(1, len(u))]


def constant(value, order):
    """The series of a constant."""
    return [value, *[None] * order]


def integral(value, slope):
    """The series that begins with `value` and whose derivative has the series `slope`."""
    return [value, *(over(c, k) if k > 1 else c for k, c in enumerate(slope, 1))]


def add(u, w):
    return [plus(a, b) for a, b in zip(u, w)]


def sub(u, w):
    return [u[0] - w[0], *(minus(a, b) for a, b in zip(u[1:], w[1:]))]


def neg(u):
    return [None if a is None else lax.neg(a) for a in u]


def scale(number, u):
    return [times(number, a) for a in u]


def shift(u, number):
    """The series of `u + number`."""
    return [u[0] + number, *u[1:]]


def product(u, w, op=times):
    """The series of a bilinear operation. `op(a, b)` is called for coefficients that are there."""

    def term(a, b):
        return None if a is None or b is None else op(a, b)

    return [total(term(u[j], w[k - j]) for j in range(k + 1)) for k in range(len(u))]


def square_at(u, k):
    """The coefficient `k` of the square of a series, each mixed term once."""
    mixed = total(times(u[j], u[k - j]) for j in range((k + 1) // 2))
    middle = times(u[k // 2], u[k // 2]) if k % 2 == 0 else None
    return plus(times(2, mixed), middle)


def square(u):
    return [square_at(u, k) for k in range(len(u))]


def quotient(u, w, first=None):
    """`v w = u`: `v_k = (u_k - sum over j < k of v_j w_{k-j}) / w_0`."""
    v = [over(u[0], w[0]) if first is None else first]
    for k in range(1, len(u)):
        known = total(times(v[j], w[k - j]) for j in range(k))
        v.append(over(minus(u[k], known), w[0]))
    return v


def reciprocal(w):
    return quotient(constant(lax.full_like(w[0], 1), len(w) - 1), w)


def chain(value, u, slope):
    """`v = f(u)` with `v_0 = value`, where `slope` is the series of `f'(u)`."""
    turned = product(derivative_of(u), slope[: len(u) - 1])
    return integral(value, turned)


def chain_of_output(value, u, slope_at):
    """`v = f(u)` where `f'(u) = g(v)`: `slope_at(v, k)` gives the coefficient `k` of `g(v)`, for
    which it has those of `v` up to `k`; it is called for `k = 0, 1, ...`.
    """
    v, slope, du = [value], [], derivative_of(u)
    for k in range(1, len(u)):
        slope.append(slope_at(v, k - 1))
        v.append(over(total(times(du[j], slope[k - 1 - j]) for j in range(k)), k))
    return v


def exp(u, value=None):
    """`v' = v u'`."""
    value = lax.exp(u[0]) if value is None else value
    return chain_of_output(value, u, lambda v, k: v[k])


def expm1(u):
    v = exp(u)
    return [lax.expm1(u[0]), *v[1:]]


def log(u, value=None):
    """`u v' = u'`."""
    slope = quotient(derivative_of(u), u[:-1]) if len(u) > 1 else []
    return integral(lax.log(u[0]) if value is None else value, slope)


def power(u, exponent, value):
    """`v = u^r` for a constant `r`: `u v' = r v u'`. `u_0` must not be zero, but for order 0.

    `k u_0 v_k = sum over j = 1..k of (r j - (k - j)) u_j v_{k-j}`.
    """
    v = [value]
    for k in range(1, len(u)):
        parts = total(
            times(exponent * j - (k - j), times(u[j], v[k - j])) for j in range(1, k + 1)
        )
        v.append(over(parts, k * u[0]) if parts is not None else None)
    return v


def integer_power(u, exponent: int):
    """By repeated squaring, so that `u_0` may be zero."""
    if exponent < 0:
        return reciprocal(integer_power(u, -exponent))
    result = None
    while exponent:
        if exponent % 2:
            result = u if result is None else product(result, u)
        exponent //= 2
        u = square(u) if exponent else u
    return result if result is not None else constant(lax.full_like(u[0], 1), len(u) - 1)


def sqrt(u):
    """`v v = u`: `2 v_0 v_k = u_k - sum over 0 < j < k of v_j v_{k-j}`."""
    v = [lax.sqrt(u[0])]
    for k in range(1, len(u)):
        known = total(times(v[j], v[k - j]) for j in range(1, k))
        v.append(over(minus(u[k], known), 2 * v[0]))
    return v


def rsqrt(u):
    return power(u, -0.5, lax.rsqrt(u[0]))


def cbrt(u):
    return power(u, 1 / 3, lax.cbrt(u[0]))


def pair(u, first, second, sign):
    """`s' = c u'` and `c' = sign s u'`: sine and cosine, or the hyperbolic ones."""
    s, c, du = [first(u[0])], [second(u[0])], derivative_of(u)
    for k in range(1, len(u)):
        next_s = total(times(du[j], c[k - 1 - j]) for j in range(k))
        next_c = total(times(du[j], s[k - 1 - j]) for j in range(k))
        s.append(over(next_s, k))
        c.append(over(times(sign, next_c), k))
    return s, c


def sin(u):
    return pair(u, lax.sin, lax.cos, -1)[0]


def cos(u):
    return pair(u, lax.sin, lax.cos, -1)[1]


def sinh(u):
    return pair(u, lax.sinh, lax.cosh, 1)[0]


def cosh(u):
    return pair(u, lax.sinh, lax.cosh, 1)[1]


def tan(u):
    def slope(v, k):
        return plus(square_at(v, k), 1) if k == 0 else square_at(v, k)

    return chain_of_output(lax.tan(u[0]), u, slope)


def tanh(u):
    def slope(v, k):
        return minus(1 if k == 0 else None, square_at(v, k))

    return chain_of_output(lax.tanh(u[0]), u, slope)


def logistic(u):
    def slope(v, k):
        return minus(v[k], square_at(v, k))

    return chain_of_output(lax.logistic(u[0]), u, slope)


def erf_inv(u):
    """`v' = sqrt(pi) / 2 exp(v^2) u'`."""
    squares, slopes = [], []

    def slope(v, k):
        squares.append(square_at(v, k))
        if k == 0:
            slopes.append(math.sqrt(math.pi) / 2 * lax.exp(squares[0]))
        else:
            parts = total(
                times(j, times(squares[j], slopes[k - j])) for j in range(1, k + 1)
            )
            slopes.append(over(parts, k))
        return slopes[k]

    return chain_of_output(lax.erf_inv(u[0]), u, slope)


def erf(u):
    slope = scale(2 / math.sqrt(math.pi), exp(neg(square(u))))
    return chain(lax.erf(u[0]), u, slope)


def erfc(u):
    return [lax.erfc(u[0]), *neg(erf(u)[1:])]


def log1p(u):
    return log(shift(u, 1), lax.log1p(u[0]))


def exp2(u):
    return exp(scale(math.log(2), u), lax.exp2(u[0]))


def asin(u):
    return chain(lax.asin(u[0]), u, rsqrt(shift(neg(square(u)), 1)))


def acos(u):
    return [lax.acos(u[0]), *neg(asin(u)[1:])]


def atan(u):
    return chain(lax.atan(u[0]), u, reciprocal(shift(square(u), 1)))


def asinh(u):
    return chain(lax.asinh(u[0]), u, rsqrt(shift(square(u), 1)))


def acosh(u):
    slope = product(rsqrt(shift(u, -1)), rsqrt(shift(u, 1)))
    return chain(lax.acosh(u[0]), u, slope)


def atanh(u):
    return chain(lax.atanh(u[0]), u, reciprocal(shift(neg(square(u)), 1)))


def atan2(y, x):
    """`(x^2 + y^2) v' = x y' - y x'`."""
    value = lax.atan2(y[0], x[0])
    if len(x) == 1:
        return [value]
    across = [
        minus(a, b)
        for a, b in zip(
            product(x[:-1], derivative_of(y)), product(y[:-1], derivative_of(x))
        )
    ]
    return integral(value, quotient(across, add(square(x), square(y))[:-1]))


def magnitude(u):
    """`abs`, of a real series: that of `u` or of `-u`, of `u` where `u_0` is 0."""
    if np.issubdtype(u[0].dtype, np.complexfloating):
        real, imag = (
            [None if a is None else part(a) for a in u] for part in (lax.real, lax.imag)
        )
        v = sqrt(add(square(real), square(imag)))
        return [lax.abs(u[0]), *v[1:]]
    sign = lax.select(lax.lt(u[0], lax.full_like(u[0], 0)), *map_like(u[0], -1, 1))
    return [lax.abs(u[0]), *(times(sign, a) for a in u[1:])]


def map_like(x, *numbers):
    return [lax.full_like(x, number) for number in numbers]
