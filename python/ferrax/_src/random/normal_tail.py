"""Numbers of a normal distribution that lie in one of its tails, from uniform ones.

A tail is where the distribution function is so close to 0 or 1 that its inverse has lost half of its digits. There
the probability of more than x is the density over a continued fraction, all in logarithms.
"""

from __future__ import annotations

import statistics
from typing import Any

import numpy as np

from ferrax._src import core
from ferrax._src.base import dtypes
from ferrax._src.lax import api as lax
from ferrax._src.numpy import api as jnp

# Both are more than enough for what is left of float64 from where its tail begins, 5.7.
_TERMS = 12
_STEPS = 4


def threshold(dtype) -> float:
    """Where the tail begins."""
    return -statistics.NormalDist().inv_cdf(0.5 * float(dtypes.finfo(dtype).eps) ** 0.5)


def may_be_tail(lower: Any, upper: Any, dtype) -> bool:
    """Whether some interval lies in a tail, as far as the bounds are known."""
    if any(isinstance(bound, core.Tracer) for bound in (lower, upper)):
        return True
    low, high = (np.asarray(bound).astype(np.float64) for bound in (lower, upper))
    return bool(np.any(np.maximum(low, -high) > threshold(dtype)))


def _log_fraction(x):
    """Logarithm of `x + 1 / (x + 2 / (x + 3 / ...))`, the density over the tail's probability (DLMF 7.9.1)."""
    fraction = x
    for numerator in range(_TERMS, 0, -1):
        fraction = x + numerator / fraction
    return lax.log(fraction)


def _log_fall(near, far):
    """How much smaller, in logarithms, the probability beyond `far` is than that beyond `near`."""
    return 0.5 * (far - near) * (far + near) + _log_fraction(far) - _log_fraction(near)


def tail_sample(lower, upper, u, samples):
    """`samples`, but of intervals in a tail the number of which a share `u` of the interval is below."""
    dtype = u.dtype
    work = dtype if dtypes.finfo(dtype).bits >= 32 else np.dtype(np.float32)
    begin = threshold(dtype)
    lower, upper, u = (lax.convert_element_type(x, work) for x in (lower, upper, u))
    right = lower > 0
    near = jnp.where(right, lower, -upper)
    in_tail = near > begin
    near = jnp.where(in_tail, near, begin)
    far = jnp.where(in_tail, jnp.where(right, upper, -lower), np.inf)

    # How far the logarithm of the probability falls from the nearer bound to the number; Newton's method.
    within = -lax.expm1(-_log_fall(near, far))
    fall = -lax.log1p(-jnp.where(right, u, 1 - u) * within)
    x = lax.sqrt(near * near + 2 * fall)
    for _ in range(_STEPS):
        x = x - (_log_fall(near, x) - fall) * lax.exp(-_log_fraction(x))
    found = lax.convert_element_type(jnp.where(right, x, -x), dtype)
    return jnp.where(in_tail, found, samples)
