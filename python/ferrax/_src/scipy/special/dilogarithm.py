"""Spence's function.

In: arrays of float32 or float64. Relative errors are a few units in the last place.
"""

from __future__ import annotations

import math

import numpy as np

from ferrax._src.composed.special.elementwise import choose, is_double, polynomial
from ferrax._src.core import Array
from ferrax._src.core.typing import ArrayLike
from ferrax._src.lax import api as lax
from ferrax._src.scipy.special.arguments import apply, standard_type
from ferrax._src.transforms.custom_jvp import custom_jvp

# B_2k / (2k + 1)!
_DEBYE = (
    0.027777777777777776,
    -0.0002777777777777778,
    4.72411186696901e-06,
    -9.185773074661964e-08,
    1.8978869988970999e-09,
    -4.0647616451442256e-11,
    8.921691020456452e-13,
    -1.9939295860721074e-14,
    4.518980029619919e-16,
    -1.0356517612181247e-17,
)


def _near_one(u):
    """The dilogarithm of `1 - e^-u`, for u from -log(2) to log(2), by DLMF 25.12.2 in u."""
    square = u * u
    terms = _DEBYE if is_double(u) else _DEBYE[:5]
    return u * (1.0 + square * polynomial(terms, square)) - 0.25 * square


@custom_jvp
def _spence(x):
    inside = (x > 0.0) & (x < np.inf)
    z = choose(inside, x, 1.0)
    # Li2(1 - x), whose argument is taken to between -1 and 1/2.
    small, large = z < 0.5, z > 2.0
    log = lax.log(z)
    # By u with e^-u = x about 1, and with 1 - e^-u = x, or 1 / x, away from it.
    part = choose(small, z, choose(large, 1.0 / z, 0.0 * z))
    u = -lax.log1p(choose(small | large, -part, z - 1.0))
    value = _near_one(u)
    above = value + u * log - 0.5 * log * log - math.pi**2 / 6
    found = choose(small, math.pi**2 / 6 + u * log - value, choose(large, above, value))
    found = choose(x == 0.0, math.pi**2 / 6, choose(x == np.inf, -np.inf, found))
    return choose(x >= 0.0, found, np.nan)


@_spence.defjvp
def _(primals, tangents):
    ((x,), (t,)) = primals, tangents
    # log(x) / (1 - x), -1 at 1.
    flat = x == 1.0
    slope = choose(flat, -1.0, lax.log(x) / choose(flat, 1.0, 1.0 - x))
    return _spence(x), t * slope


def spence(x: ArrayLike) -> Array:
    """Spence's function, elementwise: the integral of `log(t) / (1 - t)` from 1 to x; NaN for negative x.

    It is the dilogarithm of `1 - x`.

    Args: x: array of float32 or float64. Errors: TypeError for other dtypes.

    The Debye function's series after the reflections of DLMF 25.12.

    >>> ferrax.scipy.special.spence(jnp.array([0.0, 1.0, 2.0]))
    Array([ 1.644934 ,  0.       , -0.8224671], dtype=float32)
    """
    return apply(_spence, [standard_type("spence", x)])
