"""The von Mises distribution on the circle."""

from __future__ import annotations

import numpy as np

from ferrax._src.composed.special.bessel import bessel_i0e
from ferrax._src.core import Array
from ferrax._src.core.typing import ArrayLike
from ferrax._src.lax import api as lax
from ferrax._src.numpy import api as jnp
from ferrax._src.numpy.util import promote_args_inexact
from ferrax._src.transforms.jit import jit


@jit(inline=True)
def logpdf(x: ArrayLike, kappa: ArrayLike) -> Array:
    """Logarithm of the density `exp(kappa * cos(x)) / (2 * pi * I0(kappa))`.

    Args: x: array: angles. kappa: concentration; NaN where it is not positive.
    They broadcast, and integers become floats. Raises: TypeError for what is no array or number.

    >>> stats.vonmises.logpdf(1.0, 2.0)
    Array(-1.5812662, dtype=float32, weak_type=True)
    """
    x, kappa = promote_args_inexact("vonmises.logpdf", x, kappa)
    log_probs = -2 * kappa * lax.square(lax.sin(x / 2)) - lax.log(2 * np.pi * bessel_i0e(kappa))
    return jnp.where(kappa > 0, log_probs, np.nan)


@jit(inline=True)
def pdf(x: ArrayLike, kappa: ArrayLike) -> Array:
    """Density; see `logpdf`.

    >>> stats.vonmises.pdf(1.0, 2.0)
    Array(0.20571446, dtype=float32, weak_type=True)
    """
    return lax.exp(logpdf(x, kappa))
