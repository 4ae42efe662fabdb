"""The regularized incomplete beta function `I_x(a, b)`.

In: floating arrays of 32 or 64 bits, of one shape. By the symmetry `I_x(a, b) = 1 - I_(1-x)(b, a)` x is
below the mean `a / (a + b)`; there `I_x(a, b)` is a density times the even part of the continued fraction
of DLMF 8.17.22 (DiDonato and Morris, ACM TOMS 18, 1992, whose loop "bfrac" it is). It converges in about
`max(a, b)^(1/3)` steps, 5 for parameters of 10 and 60 for 1000, and ends when all elements have
converged.

Relative errors of `I` and of `1 - I` are below 1e-13 in float64 (1e-5 in float32) for parameters up to
1000 where both are above 1e-30; they grow with the logarithm of the result, and with the square root of
the parameters, as the function's own sensitivity to x does.
"""

from __future__ import annotations

import functools

import numpy as np

from ferrax._src.base import dtypes
from ferrax._src.composed.special.elementwise import choose, elementwise, is_double, of_one_shape
from ferrax._src.composed.special.gamma_parts import binomial_density, times_log
from ferrax._src.core import Array
from ferrax._src.core.typing import ArrayLike
from ferrax._src.lax import api as lax
from ferrax._src.transforms.ad import defjvp

# After `30 + 12 max(a, b)^(1/3)` steps, twice what the slowest arguments take, what changes is rounding.
_LEAST_STEPS, _STEPS_BY_SIZE = 30.0, 12.0


def _fraction(a, b, x, y):
    """`I_x(a, b) B(a, b) / (x^a y^b)` for x up to the mean."""
    steps = 8 if is_double(a) else 4
    tolerance = 4.0 * float(dtypes.finfo(a.dtype).eps)
    one = lax.full_like(a, 1.0)
    gap = a * y - b * x
    total = a + b
    # Numerators and denominators of all convergents are scaled by powers of the first denominator.
    first = a * (gap + 1.0) / (a + 1.0)
    scale = 1.0 / first
    most = _LEAST_STEPS + _STEPS_BY_SIZE * lax.cbrt(lax.max(a, b))

    def step(n, state):
        below, top, bottom, reciprocal = state
        (top_before, bottom_before) = below
        # 1 / (a + 2n - 1), from the step before, and 1 / (a + 2n + 1).
        following = 1.0 / (a + (2.0 * n + 1.0))
        moved = n * (b - n) * x * reciprocal
        alpha = (a + (n - 1.0)) * (total + (n - 1.0)) * x * reciprocal * moved
        beta = n + moved + (a + n) * (gap + 1.0 + n * (1.0 + y)) * following
        alpha, beta = alpha * (scale * scale), beta * scale
        return (
            (top, bottom),
            beta * top + alpha * top_before,
            beta * bottom + alpha * bottom_before,
            following,
        )

    def body(carry):
        n, top_before, bottom_before, top, _, _ = carry
        state = (top_before, bottom_before), top, one, 1.0 / (a + (2.0 * n - 1.0))
        for k in range(steps):
            last = state
            state = step(n + float(k), state)
        (top_before, bottom_before), top, bottom, _ = state
        inverse = 1.0 / bottom
        found = top * inverse
        change = found - last[1] / last[2]
        busy = (lax.abs(change) > tolerance * lax.abs(found)) & (n < most)
        any_busy = lax.reduce_or(busy, tuple(range(busy.ndim)))
        return (
            n + float(steps),
            top_before * inverse,
            bottom_before * inverse,
            found,
            found,
            any_busy,
        )

    zero = lax.full_like(a, 0.0)
    begin = lax.full((), 1.0, a.dtype), zero, one, one, zero, lax.full((), True, np.bool_)
    found = lax.while_loop(lambda carry: carry[5], body, begin)[4]
    return found * scale


def _betainc(a, b, x):
    regular = (a > 0.0) & (b > 0.0) & (a < np.inf) & (b < np.inf) & (x > 0.0) & (x < 1.0)
    p, q = choose(regular, a, 1.0), choose(regular, b, 1.0)
    u = choose(regular, x, 0.5)
    v = 1.0 - u
    above = p * v < q * u
    p, q = choose(above, q, p), choose(above, p, q)
    u, v = choose(above, v, u), choose(above, u, v)
    found = binomial_density(p, q, u, v) * (p * (q / (p + q))) * _fraction(p, q, u, v)
    found = choose(above, 1.0 - found, found)
    # All mass is at 0 for a = 0 and for b infinite, at 1 the other way round.
    at_zero = ((a == 0.0) & (b > 0.0)) | ((b == np.inf) & (a < np.inf))
    at_one = ((b == 0.0) & (a > 0.0)) | ((a == np.inf) & (b < np.inf))
    found = choose(regular, found, np.nan)
    found = choose(at_zero | (x == 1.0), 1.0, choose(at_one | (x == 0.0), 0.0, found))
    found = choose((x == 0.0), 0.0, found)
    neither = ((a == 0.0) & (b == 0.0)) | ((a == np.inf) & (b == np.inf))
    valid = (a >= 0.0) & (b >= 0.0) & (x >= 0.0) & (x <= 1.0) & ~neither
    return choose(valid, found, np.nan)


regularized_incomplete_beta_p = elementwise("regularized_incomplete_beta", _betainc)


def _no_derivative(name, t, a, b, x):
    raise ValueError(
        f"betainc has no derivative in {name}; stop_gradient({name}) makes it a constant"
    )


def _density(t, a, b, x):
    a, b, x = of_one_shape(a, b, x)
    log_beta = lax.lgamma(a) + lax.lgamma(b) - lax.lgamma(a + b)
    return t * lax.exp(
        times_log(b - 1.0, lax.log1p(-x)) + times_log(a - 1.0, lax.log(x)) - log_beta
    )


defjvp(
    regularized_incomplete_beta_p,
    functools.partial(_no_derivative, "a"),
    functools.partial(_no_derivative, "b"),
    _density,
)


def betainc(a: ArrayLike, b: ArrayLike, x: ArrayLike) -> Array:
    """The regularized incomplete beta function `I_x(a, b)`, elementwise.

    The integral of `t^(a-1) (1-t)^(b-1)` from 0 to x over that to 1, for a and b that are not negative and
    x from 0 to 1; NaN elsewhere.

    Args:
        a: array of floats.
        b: array of the same dtype and shape.
        x: array of the same dtype and shape; scalars broadcast.

    Errors: TypeError for other dtypes, and for dtypes or shapes that differ; ValueError for a derivative
    in `a` or `b`.

    Relative error below 1e-13 in float64 for parameters up to 1000 where the result is above 1e-30.
    Source: DiDonato and Morris, ACM TOMS 18 (1992); DLMF 8.17.

    Example:
        >>> lax.betainc(2.0, 3.0, jnp.array([0.25, 0.5]))
        Array([0.26171875, 0.6875    ], dtype=float32)
    """
    return regularized_incomplete_beta_p.bind(a, b, x)
