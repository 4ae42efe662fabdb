"""The Laplace distribution."""

from __future__ import annotations

from ferrax._src.core import Array
from ferrax._src.core.typing import ArrayLike
from ferrax._src.lax import api as lax
from ferrax._src.numpy import api as jnp
from ferrax._src.numpy.util import promote_args_inexact
from ferrax._src.transforms.jit import jit


@jit(inline=True)
def logpdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Logarithm of the density `exp(-abs(x - loc) / scale) / (2 * scale)`.

    Args: x: array. loc, scale: mean, and mean distance from it.
    They broadcast, and integers become floats. Raises: TypeError for what is no array or number.

    >>> stats.laplace.logpdf(1.0)
    Array(-1.6931472, dtype=float32, weak_type=True)
    """
    x, loc, scale = promote_args_inexact("laplace.logpdf", x, loc, scale)
    return -(lax.abs(x - loc) / scale + lax.log(2 * scale))


@jit(inline=True)
def pdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Density; see `logpdf`.

    >>> stats.laplace.pdf(1.0)
    Array(0.18393973, dtype=float32, weak_type=True)
    """
    return lax.exp(logpdf(x, loc, scale))


@jit(inline=True)
def cdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Probability of at most x. As for `logpdf`.

    >>> stats.laplace.cdf(1.0)
    Array(0.8160603, dtype=float32, weak_type=True)
    """
    x, loc, scale = promote_args_inexact("laplace.cdf", x, loc, scale)
    y = (x - loc) / scale
    return jnp.where(y <= 0, 0.5 * lax.exp(y), 1 - 0.5 * lax.exp(-y))
