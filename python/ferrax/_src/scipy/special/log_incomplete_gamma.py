"""Logarithms of the incomplete gamma functions `P(a, x)` and `Q(a, x) = 1 - P`, also where these underflow.

In: arrays of 32 or 64 bits, of one shape. The regions and formulas are those of
`composed/special/incomplete_gamma.py`, with the density and the bell of Temme's expansion taken out of
the logarithm; what is left of 1 is `log1p(-exp(.))`. Derivatives in x have a closed form, those in `a` are
those of the formulas, forwards.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ferrax._src.composed.special.elementwise import choose
from ferrax._src.composed.special.gamma_parts import log_gamma_density, log_poisson_density
from ferrax._src.composed.special.incomplete_gamma import (
    inside,
    lower_series,
    regions,
    temme,
    upper_fraction,
    upper_near_zero,
)
from ferrax._src.lax import api as lax
from ferrax._src.scipy.special.error_functions import scaled_erfc
from ferrax._src.transforms.autodiff import jvp
from ferrax._src.transforms.custom_jvp import custom_jvp


def _both(a, x):
    """`log P` and `log Q` of positive finite numbers."""
    uniform, lower = regions(a, x)
    z, s = temme(choose(uniform, a, 12.0), choose(uniform, x, 12.0))
    below = z < 0.0
    size = lax.abs(z)
    bell = lax.log(0.5 * scaled_erfc(size) + choose(below, -s, s)) - z * z
    density = log_poisson_density(a, x)
    series_a, series_x = choose(lower, a, 1.0), choose(lower, x, 1.0)
    series = density + lax.log(lower_series(series_a, series_x))
    near = lower & (x <= 2.0) & (series > -math.log(2.0))
    # Of what is less than a half there.
    q_near = upper_near_zero(choose(near, a, 1.0), choose(near, x, 1.0))
    upper = ~(uniform | lower)
    fraction = upper_fraction(choose(upper, a, 1.0), choose(upper, x, 2.0))
    found = choose(lower, choose(near, lax.log(q_near), series), density + lax.log(a * fraction))
    small = choose(uniform, bell, found)
    is_lower = choose(uniform, below, lower & ~near)
    left = lax.log1p(-lax.exp(small))
    return choose(is_lower, small, left), choose(is_lower, left, small)


def _limits(a, x, found, at_zero, at_infinity):
    found = choose((x == 0.0) | (a == np.inf), at_zero, found)
    found = choose((a == 0.0) | (x == np.inf), at_infinity, found)
    valid = (a >= 0.0) & (x >= 0.0) & ~((a == 0.0) & (x == 0.0))
    return choose(valid, found, np.nan)


def _tangent(index, sign, y, primals, tangents):
    (a, x), (da, dx) = primals, tangents
    some_a, some_x = inside(a, x)
    slope = jvp(lambda a: _both(a, some_x)[index], (some_a,), (lax.full_like(a, 1.0),))[1]
    return da * slope + dx * (sign * lax.exp(log_gamma_density(a, x) - y))


@custom_jvp
def log_gammainc(a: Any, x: Any) -> Any:
    """`log(P(a, x))`."""
    return _limits(a, x, _both(*inside(a, x))[0], -np.inf, 0.0)


@custom_jvp
def log_gammaincc(a: Any, x: Any) -> Any:
    """`log(Q(a, x))`."""
    return _limits(a, x, _both(*inside(a, x))[1], 0.0, -np.inf)


@log_gammainc.defjvp
def _(primals, tangents):
    y = log_gammainc(*primals)
    return y, _tangent(0, 1.0, y, primals, tangents)


@log_gammaincc.defjvp
def _(primals, tangents):
    y = log_gammaincc(*primals)
    return y, _tangent(1, -1.0, y, primals, tangents)
