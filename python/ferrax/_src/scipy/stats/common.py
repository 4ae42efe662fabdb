"""Functions that distributions are written with."""

from __future__ import annotations

import math

from ferrax._src.base import dtypes
from ferrax._src.core import Array
from ferrax._src.core.typing import ArrayLike
from ferrax._src.lax import api as lax
from ferrax._src.numpy import api as jnp
from ferrax._src.scipy.special import normal_distribution
from ferrax._src.scipy.special.entropy import entr, expit, logit, xlog1py, xlogy
from ferrax._src.scipy.special.gamma_functions import betaln, gammaln
from ferrax._src.scipy.special.normal_distribution import log_ndtr, ndtr

__all__ = [
    "betaln", "entr", "expit", "gammaln", "log1p_square", "log_ndtr", "logit", "ndtr", "ndtri", "xlog1py", "xlogy",
]  # fmt: skip


def ndtri(p: ArrayLike) -> Array:
    """`scipy.special.ndtri`, of whole numbers too."""
    p = jnp.asarray(p)
    return normal_distribution.ndtri(p if p.dtype.kind == "f" else p.astype(float))


def log1p_square(x: Array) -> Array:
    """`log(1 + x^2)`, also where the square overflows: `2 log(|x|)` where 1 is nothing beside the square."""
    size = lax.abs(x)
    far = size > 4 / math.sqrt(dtypes.finfo(x.dtype).eps)
    logarithm = lax.log1p(jnp.where(far, size - 1, lax.square(jnp.where(far, 0, x))))
    return jnp.where(far, 2, 1) * logarithm
