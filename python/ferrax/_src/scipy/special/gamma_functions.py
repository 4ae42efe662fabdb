"""The gamma function, its logarithm and derivatives, and what is made of quotients of them.

In: arrays and numbers; integers become floats, half precision is computed in float32. Relative errors of
gamma and of its quotients are a few units in the last place times the logarithm of the result.
"""

from __future__ import annotations

import functools
import math
import operator
from fractions import Fraction

import numpy as np

from ferrax._src.base import dtypes
from ferrax._src.composed.special.elementwise import choose, is_double
from ferrax._src.composed.special.gamma_parts import stirling_remainder
from ferrax._src.composed.special.incomplete_beta import betainc as _betainc
from ferrax._src.composed.special.incomplete_gamma import igamma, igammac
from ferrax._src.composed.special.zeta import polygamma as _polygamma, zeta as _zeta
from ferrax._src.core import Array, as_array, concrete_or_error
from ferrax._src.core.typing import ArrayLike
from ferrax._src.lax import api as lax
from ferrax._src.numpy import api as jnp
from ferrax._src.numpy.util import promote_args_inexact
from ferrax._src.scipy.special.arguments import apply, is_complex, real_arguments
from ferrax._src.scipy.special.chebyshev_tables import RECIPROCAL_GAMMA, series
from ferrax._src.scipy.special.complex_gamma import complex_gamma, complex_loggamma
from ferrax._src.transforms.custom_jvp import custom_jvp


def gammaln(x: ArrayLike) -> Array:
    """`log(|gamma(x)|)`, elementwise.

    Args: x: array of real numbers; integers become floats. Raises TypeError for complex ones.

    >>> ferrax.scipy.special.gammaln(jnp.array([0.5, 5.0]))
    Array([0.57236494, 3.1780539 ], dtype=float32)
    """
    (x,) = promote_args_inexact("gammaln", x)
    return lax.lgamma(x)


def _sign(x):
    below = lax.floor(x)
    odd = (below - 2.0 * lax.floor(0.5 * below)) != 0.0
    negative_zero = (x == 0.0) & (1.0 / x < 0.0)
    result = choose(((x < 0.0) & odd) | negative_zero, -1.0, lax.full_like(x, 1.0))
    return choose(((x < 0.0) & (x == below)) | lax.ne(x, x), np.nan, result)


def gammasgn(x: ArrayLike) -> Array:
    """The sign of the gamma function, elementwise: 1 or -1, and NaN at its poles but for zeros.

    Args: x: array of real numbers; integers become floats. Errors: ValueError for complex ones.

    >>> ferrax.scipy.special.gammasgn(jnp.array([2.5, -0.5, -1.5]))
    Array([ 1., -1.,  1.], dtype=float32)
    """
    return apply(_sign, real_arguments("gammasgn", x))


def _gamma_positive(x):
    """Gamma for x >= 1/2, by Stirling's series from 8 on, below from its values between 1 and 2."""
    large = x >= 8.0
    # x^(x - 1/2) as a square, which overflows before e^-x takes it back; from `most` on all do.
    most = 180.0 if is_double(x) else 36.0
    some = choose(large, lax.min(x, lax.full_like(x, most)), 8.0)
    power = lax.pow(some, 0.5 * some - 0.25)
    stirling = power * lax.exp(-some) * power * math.sqrt(2 * math.pi)
    stirling = stirling * lax.exp(stirling_remainder(some))
    few = choose(large, 1.0, x)
    product = lax.full_like(x, 1.0)
    for _ in range(6):
        # Down to between 1 and 2 in steps of 1, which are exact.
        above = few >= 2.0
        few = choose(above, few - 1.0, few)
        product = choose(above, product * few, product)
    below = few < 1.0
    part = choose(below, few, few - 1.0)
    reciprocal = 1.0 + part * series(RECIPROCAL_GAMMA, 2.0 * part - 1.0)
    small = product / choose(below, part * reciprocal, reciprocal)
    return choose(large, stirling, small)


def _gamma_real(x):
    reflected = x < 0.5
    size = _gamma_positive(choose(reflected, 1.0 - x, x))
    # pi / (sin(pi x) Gamma(1 - x)), with the sine of the distance to the next integer.
    part = x - lax.round(x)
    sine = lax.abs(lax.sin(math.pi * choose(reflected, part, 0.5)))
    near = lax.abs(x) < 0.5
    low = choose(near, math.pi * x / lax.sin(math.pi * choose(near & (x != 0.0), x, 0.5)), 1.0)
    low = low / choose(near, x * size, lax.full_like(x, 1.0))
    low = choose(near, low, math.pi / sine / size * _sign(x))
    result = choose(reflected, low, size)
    result = choose(x == 0.0, 1.0 / x, result)
    return choose((x == -np.inf) | ((x < 0.0) & (x == lax.floor(x))), np.nan, result)


@custom_jvp
def gamma_of_wide(x):
    """The gamma function of an array of 32 or 64 bits."""
    return _gamma_real(x)


@gamma_of_wide.defjvp
def _(primals, tangents):
    ((x,), (t,)) = primals, tangents
    y = gamma_of_wide(x)
    return y, t * y * lax.digamma(x)


def gamma(x: ArrayLike) -> Array:
    """The gamma function, elementwise.

    NaN at negative integers, infinite at zeros, with their sign.

    Args: x: array of numbers, complex ones too; integers become floats.

    Relative errors are a few units in the last place for real numbers. Stirling's series (DLMF 5.11.3),
    reflection (5.5.3); for complex numbers as `loggamma`.

    >>> ferrax.scipy.special.gamma(jnp.array([0.5, 5.0, -1.5]))
    Array([ 1.7724539, 24.       ,  2.3632717], dtype=float32)
    """
    (x,) = promote_args_inexact("gamma", x)
    return apply(complex_gamma if is_complex(x) else gamma_of_wide, [x])


def _loggamma_real(x):
    return choose(x > 0.0, lax.lgamma(choose(x > 0.0, x, 1.0)), np.nan)


def loggamma(x: ArrayLike) -> Array:
    """The logarithm of the gamma function that is real on the positive axis and analytic but for the negative one,
    elementwise.

    For real arrays NaN unless positive. For complex ones the branch that is real on the positive axis, with
    its cut along the negative one.

    Args: x: array of numbers; integers become floats.

    Stirling's series after a shift: Hare, Computing the principal branch of log-Gamma, J. Algorithms 25
    (1997).

    >>> ferrax.scipy.special.loggamma(1j)
    Array(-0.6509237-1.8724369j, dtype=complex64)
    """
    (x,) = promote_args_inexact("loggamma", x)
    if is_complex(x):
        return apply(complex_loggamma, [x])
    return apply(_loggamma_real, [x], weak=True)


def factorial(n: ArrayLike, exact: bool = False) -> Array:
    """`n! = gamma(n + 1)`, elementwise; 0 for negative `n`.

    Args: n: array of real numbers; integers become floats. exact: must be False.
    Errors: NotImplementedError for `exact`; TypeError for complex numbers.

    >>> ferrax.scipy.special.factorial(jnp.array([0, 3, 5]))
    Array([  1.,   6., 120.], dtype=float32)
    """
    if exact:
        raise NotImplementedError("factorial: arrays have no integers of any size, so exact=False")
    return apply(_factorial, real_arguments("factorial", n, error=TypeError), weak=True)


def _factorial(n):
    return choose(n < 0.0, 0.0, gamma_of_wide(choose(n < 0.0, 0.0, n) + 1.0))


def _is_pole(x):
    return (x <= 0.0) & (x == lax.floor(x))


def _beta_at_poles(a, b):
    """The parameters, of the same absolute value, where they are at poles, and whether that is infinite.

    At a negative integer a the poles of `gamma(a)` and `gamma(a + b)` cancel if b is a positive integer and
    their sum is not positive: the value is `(-1)^b B(1 - a - b, b)`.
    """
    low, high = lax.min(a, b), lax.max(a, b)
    cancel = _is_pole(low) & (high > 0.0) & (high == lax.floor(high)) & (low + high <= 0.0)
    infinite = (_is_pole(low) | _is_pole(high)) & ~cancel
    low = choose(cancel, 1.0 - low - high, low)
    return choose(infinite, 1.0, low), choose(infinite, 1.0, high), cancel, infinite


def _beta_log(a, b):
    a, b, _, infinite = _beta_at_poles(a, b)
    return choose(infinite, np.inf, _beta_log_regular(a, b))


def _beta_log_regular(a, b):
    a, b = lax.min(a, b), lax.max(a, b)
    total = a + b
    large = (b >= 8.0) & (total >= 8.0) & (b < np.inf)
    q = choose(large, b, 8.0)
    both = large & (a >= 8.0)
    # Both large.
    p = choose(both, a, 8.0)
    n = p + q
    rest = stirling_remainder(p) + stirling_remainder(q) - stirling_remainder(n)
    far = rest - (p - 0.5) * lax.log1p(q / p) - q * lax.log1p(p / q) - 0.5 * lax.log(q)
    far = far + 0.5 * math.log(2 * math.pi)
    # One large: the quotient Gamma(a + b) / Gamma(b) by Stirling's formula.
    p = choose(both, 1.0, a)
    n = p + q
    ratio = (n - 0.5) * lax.log1p(choose(large, p, 1.0) / q) + p * (lax.log(q) - 1.0)
    rest = stirling_remainder(choose(large, n, 8.0)) - stirling_remainder(q)
    mixed = lax.lgamma(p) - (ratio + rest)
    one, other = choose(large, 1.0, a), choose(large, 1.0, b)
    near = lax.lgamma(one) + (lax.lgamma(other) - lax.lgamma(one + other))
    return choose(both, far, choose(large, mixed, near))


def betaln(a: ArrayLike, b: ArrayLike) -> Array:
    """`log(|beta(a, b)|)`, elementwise.

    Args: a, b: arrays of real numbers that broadcast together; integers become floats. Errors: TypeError
    for complex ones.

    Large arguments by Stirling's formula, in which nothing cancels: DiDonato and Morris, ACM TOMS 18
    (1992).

    >>> ferrax.scipy.special.betaln(2.0, jnp.array([3.0, 1e8]))
    Array([ -2.4849067, -36.841362 ], dtype=float32)
    """
    return apply(_beta_log, real_arguments("betaln", a, b, error=TypeError), weak=True)


def beta(a: ArrayLike, b: ArrayLike) -> Array:
    """The beta function `gamma(a) gamma(b) / gamma(a + b)`, elementwise.

    Args: a, b: arrays of real numbers that broadcast together; integers become floats. Errors: ValueError
    for complex ones.

    The exponential of `betaln`, with the sign of the gamma functions. Infinite at poles, but for integers a
    and b where those of `gamma(a)` and `gamma(a + b)` cancel.

    >>> ferrax.scipy.special.beta(2.0, jnp.array([3.0, -0.5]))
    Array([ 0.08333333, -4.0000005 ], dtype=float32)
    """
    return apply(_beta, real_arguments("beta", a, b))


def _beta(a, b):
    low, high, cancel, infinite = _beta_at_poles(a, b)
    odd = high - 2.0 * lax.floor(0.5 * high)
    sign = choose(cancel, 1.0 - 2.0 * odd, _sign(low) * _sign(high) * _sign(low + high))
    # Zero where only gamma(a + b) has a pole.
    sign = choose(_is_pole(low + high), 1.0, sign)
    return choose(infinite, np.inf, sign * lax.exp(_beta_log_regular(low, high)))


def betainc(a: ArrayLike, b: ArrayLike, x: ArrayLike) -> Array:
    """The regularized incomplete beta function `I_x(a, b)`, elementwise.

    Args: a, b, x: arrays of real numbers that broadcast together; integers become floats.
    Errors: ValueError for complex numbers, and for derivatives in `a` and `b`.

    As `ferrax.lax.betainc`: DiDonato and Morris, ACM TOMS 18 (1992).

    >>> ferrax.scipy.special.betainc(2, 3, 0.5)
    Array(0.6875, dtype=float32, weak_type=True)
    """
    return _betainc(*real_arguments("betainc", a, b, x))


def gammainc(a: ArrayLike, x: ArrayLike) -> Array:
    """The regularized lower incomplete gamma function `P(a, x)`, elementwise.

    Args: a, x: arrays of real numbers that broadcast together; integers become floats.
    Errors: TypeError for complex numbers.

    As `ferrax.lax.igamma`: Temme 1979; DiDonato and Morris, ACM TOMS 12 (1986).

    >>> ferrax.scipy.special.gammainc(jnp.array([1.0, 20.0]), 1.0)
    Array([6.3212061e-01, 1.5875276e-19], dtype=float32)
    """
    return igamma(*promote_args_inexact("gammainc", a, x))


def gammaincc(a: ArrayLike, x: ArrayLike) -> Array:
    """The regularized upper incomplete gamma function `Q(a, x) = 1 - P(a, x)`, elementwise.

    Args: a, x: arrays of real numbers that broadcast together; integers become floats.
    Errors: TypeError for complex numbers.

    As `ferrax.lax.igammac`: Temme 1979; DiDonato and Morris, ACM TOMS 12 (1986).

    >>> ferrax.scipy.special.gammaincc(2.0, jnp.array([1.0, 50.0]))
    Array([7.357589e-01, 9.836624e-21], dtype=float32)
    """
    return igammac(*promote_args_inexact("gammaincc", a, x))


def digamma(x: ArrayLike) -> Array:
    """The derivative of the logarithm of the gamma function, elementwise; NaN at its poles.

    Args: x: array of real numbers; integers become floats. Raises TypeError for complex ones.

    >>> ferrax.scipy.special.digamma(jnp.array([1.0, 0.5]))
    Array([-0.5772157, -1.9635101], dtype=float32)
    """
    (x,) = promote_args_inexact("digamma", x)
    return lax.digamma(x)


def polygamma(n: ArrayLike, x: ArrayLike) -> Array:
    """The derivative of order `n` of `digamma`, elementwise; NaN for negative `n`.

    Args: n: array of integers, in which there is no derivative. x: array of real numbers that broadcasts
    with it; integers become floats.
    Errors: ValueError for an `n` of another dtype, for complex `x`, and for a derivative in `n`.

    As `ferrax.lax.polygamma`, by Hurwitz's zeta function (DLMF 5.15).

    >>> ferrax.scipy.special.polygamma(1, jnp.array([1.0, 2.0]))
    Array([1.644934 , 0.6449341], dtype=float32)
    """
    if not dtypes.issubdtype(dtypes.dtype(n), np.integer):
        raise ValueError(
            f"polygamma: n must be of integer type, got {dtypes.dtype(n)}; orders are integers"
        )
    return _polygamma(*real_arguments("polygamma", n, x))


def zeta(x: ArrayLike, q: ArrayLike | None = None) -> Array:
    """Hurwitz's zeta function `sum((q + k)^-x for k = 0, 1, ...)`, elementwise.

    Args: x, q: arrays of real numbers that broadcast together; integers become floats.
    Errors: NotImplementedError without `q` (1 gives Riemann's); TypeError for complex numbers.

    As `ferrax.lax.zeta`, by Euler-Maclaurin summation (DLMF 25.11), with derivatives in both arguments.

    >>> ferrax.scipy.special.zeta(2.0, jnp.array([1.0, 2.0]))
    Array([1.644934 , 0.6449341], dtype=float32)
    """
    if q is None:
        raise NotImplementedError("zeta: Riemann's function is Hurwitz's at q=1; give q")
    return _zeta(*promote_args_inexact("zeta", x, q))


def multigammaln(a: ArrayLike, d: ArrayLike) -> Array:
    """The logarithm of the multivariate gamma function of dimension `d`, elementwise.

    `d (d - 1) / 4 log(pi) + sum(gammaln(a - j / 2) for j = 0 ... d - 1)`.

    Args: a: array of real numbers; integers become floats. d: a constant integer.
    Errors: ConcretizationTypeError for a traced `d`.

    (Anderson, An introduction to multivariate statistical analysis, 2003, section 7.2.)

    >>> ferrax.scipy.special.multigammaln(3.0, 2)
    Array(1.550195, dtype=float32)
    """
    d = concrete_or_error(int, d, "d argument of multigammaln")
    a, order = promote_args_inexact("multigammaln", a, d)
    steps = jnp.arange(d, dtype=a.dtype) * 0.5
    terms = lax.lgamma(a[..., None] - lax.expand_dims(steps, tuple(range(a.ndim))))
    constant = order * (order - 1.0) * (0.25 * math.log(math.pi))
    return jnp.sum(terms, axis=-1) + constant


@custom_jvp
def gamma_quotient(z, m):
    """`gamma(z + m) / gamma(z)` of arrays of 32 or 64 bits."""
    total = z + m
    large = (z >= 8.0) & (total >= 8.0) & (total < np.inf)
    # Gamma(z + m) / Gamma(z) by Stirling's formula.
    p, n = choose(large, z, 8.0), choose(large, total, 8.0)
    step = choose(large, m, 0.0)
    exponent = (p - 0.5) * lax.log1p(step / p) + step * (lax.log(n) - 1.0)
    far = lax.exp(exponent + stirling_remainder(n) - stirling_remainder(p))
    near = gamma_of_wide(choose(large, 1.0, total)) / gamma_of_wide(choose(large, 1.0, z))
    return choose(m == 0.0, 1.0, choose(large, far, near))


@gamma_quotient.defjvp
def _(primals, tangents):
    (z, m), (dz, dm) = primals, tangents
    y = gamma_quotient(z, m)
    slope = lax.digamma(z + m)
    positive = (z > 0.0) & (z + m > 0.0) & (z < np.inf) & (z + m < np.inf)
    change = _digamma_step(choose(positive, z, 1.0), choose(positive, m, 0.0))
    change = choose(positive, change, slope - lax.digamma(z))
    return y, dz * y * change + dm * y * slope


def _digamma_step(z, m):
    """`digamma(z + m) - digamma(z)` of positive numbers, in proportion to a small m: by the recurrence up to
    z + 8, then by the asymptotic series (DLMF 5.11.2), each of whose terms is a difference."""
    total = lax.full_like(z, 0.0)
    for k in range(8):
        place = z + float(k)
        total = total + m / place / (place + m)
    far = z + 8.0
    t, u = 1.0 / far, 1.0 / (far + m)
    # t - u = m t u, and the divided difference of the series in the squares.
    value, slope = lax.full_like(z, _DIGAMMA[-1]), lax.full_like(z, 0.0)
    for coefficient in reversed(_DIGAMMA[:-1]):
        slope = slope * (t * t) + value
        value = value * (u * u) + coefficient
    # Of the series without constant term, q(y) y.
    divided = value + t * t * slope
    return total + lax.log1p(m * t) + m * t * u * (0.5 + (t + u) * divided)


def poch(z: ArrayLike, m: ArrayLike) -> Array:
    """Pochhammer's symbol `gamma(z + m) / gamma(z)`, elementwise; 1 for `m == 0`.

    Args: z, m: arrays of real numbers that broadcast together; integers become floats. Errors: ValueError
    for complex ones.

    DLMF 5.2.5; for large arguments by Stirling's formula.

    >>> ferrax.scipy.special.poch(jnp.array([1.0, 2.5]), 3)
    Array([ 6.   , 39.375], dtype=float32)
    """
    return apply(gamma_quotient, real_arguments("poch", z, m))


# B_2k / (2k), DLMF 5.11.2.
_DIGAMMA = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12, -3617 / 8160)


def _comb(n, k):
    valid = (k <= n) & (n >= 0.0) & (k >= 0.0)
    n, k = choose(valid, n, 0.0), choose(valid, k, 0.0)
    least = 30.0
    few = n <= least
    small, part = choose(few, n, 0.0), choose(few, k, 0.0)
    near = gamma_of_wide(small + 1.0) / (
        gamma_of_wide(part + 1.0) * gamma_of_wide(small - part + 1.0)
    )
    far = lax.exp(-_beta_log(n - k + 1.0, k + 1.0) - lax.log1p(n))
    return choose(valid, choose(few, near, far), 0.0)


def _comb_repeated(n, k):
    return choose((k == 0.0) & (n >= 0.0), 1.0, _comb(n + k - 1.0, k))


def comb(N: ArrayLike, k: ArrayLike, *, repetition: bool = False) -> Array:
    """The number of choices of `k` out of `N` things, elementwise; 0 unless `0 <= k <= N`.

    Args:
        N: array of real numbers; integers become floats.
        k: array of real numbers that broadcasts with it.
        repetition: whether a thing may be chosen more than once.

    Errors: TypeError for complex numbers.

    `gamma(N + 1) / (gamma(k + 1) gamma(N - k + 1))`; for large N by the beta function.

    >>> ferrax.scipy.special.comb(5, jnp.array([0, 2, 6]))
    Array([ 1., 10.,  0.], dtype=float32)
    """
    arrays = real_arguments("comb", N, k, error=TypeError)
    return apply(_comb_repeated if repetition else _comb, arrays, weak=True)


def bernoulli(n: int) -> Array:
    """Bernoulli's numbers `B_0, ..., B_n`, with `B_1 = -1/2`.

    Args: n: a constant integer.
    Returns: array of floats of shape `(n + 1,)`.
    Errors: ValueError for negative `n`; ConcretizationTypeError for a traced one.

    The first as fractions, by their recurrence, the others by Riemann's zeta function: DLMF 24.5.3, 25.6.2.

    >>> ferrax.scipy.special.bernoulli(2)
    Array([ 1.        , -0.5       ,  0.16666667], dtype=float32)
    """
    n = concrete_or_error(operator.index, n, "Argument n of bernoulli")
    if n < 0:
        raise ValueError(f"bernoulli: n must be a non-negative integer, got {n}")
    dtype = dtypes.default_float_dtype()
    with np.errstate(over="ignore"):
        return as_array(_bernoulli_numbers(n).astype(dtype))


_EXACT = 30


@functools.lru_cache(maxsize=16)
def _bernoulli_numbers(n):
    # The first ones as fractions, by sum(binomial(k + 1, j) B_j for j = 0 ... k) = 0.
    exact = [Fraction(1)]
    for k in range(1, _EXACT + 1):
        total = sum((math.comb(k + 1, j) * exact[j] for j in range(k)), Fraction(0))
        exact.append(-total / (k + 1))
    numbers = np.zeros(max(n, _EXACT) + 1)
    numbers[: _EXACT + 1] = [float(x) for x in exact]
    # 2 (2k)! / (2 pi)^(2k), with its sign, and the zeta function as 1 + 2^-2k + 3^-2k.
    factor = -numbers[_EXACT] / (1.0 + 2.0**-_EXACT + 3.0**-_EXACT)
    with np.errstate(over="ignore"):
        for k in range(_EXACT + 2, n + 1, 2):
            factor *= -(k * (k - 1) / (4 * math.pi**2))
            numbers[k] = -factor * (1.0 + 2.0**-k + 3.0**-k)
    return numbers[: n + 1]
