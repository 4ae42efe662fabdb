"""Special functions that distributions are written with: of floating arrays, elementwise.

`x log y` is 0 for x = 0 whatever y is, with derivatives that say so too; tails of the normal distribution are
computed as such, without cancellation.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ferrax._src.composed.special.gamma_parts import stirling_remainder
from ferrax._src.core import Array
from ferrax._src.lax import api as lax
from ferrax._src.numpy import api as jnp
from ferrax._src.transforms.custom_jvp import custom_jvp

gammaln = lax.lgamma
expit = lax.logistic


def logit(p: Array) -> Array:
    """`log(p / (1 - p))`."""
    return lax.log(p / (1 - p))


@custom_jvp
def xlogy(x: Any, y: Any) -> Array:
    """`x log(y)`, 0 for x = 0 unless y is NaN."""
    return jnp.where((x != 0) | (y != y), x * lax.log(y), 0)


@xlogy.defjvp
def _(primals, tangents):
    (x, y), (dx, dy) = primals, tangents
    return xlogy(x, y), dx * lax.log(y) + dy * x / y


@custom_jvp
def xlog1py(x: Any, y: Any) -> Array:
    """`x log(1 + y)`, 0 for x = 0 unless y is NaN."""
    return jnp.where((x != 0) | (y != y), x * lax.log1p(y), 0)


@xlog1py.defjvp
def _(primals, tangents):
    (x, y), (dx, dy) = primals, tangents
    return xlog1py(x, y), dx * lax.log1p(y) + dy * x / (1 + y)


def entr(p: Array) -> Array:
    """`-p log(p)` of a probability, 0 of 0."""
    return -xlogy(p, p)


def betaln(a: Array, b: Array) -> Array:
    """The logarithm of the beta function; where large terms cancel, by the remainders of Stirling's formula
    (DiDonato and Morris, ACM TOMS 18, 1992)."""
    a, b = jnp.minimum(a, b), jnp.maximum(a, b)
    much = b >= 8
    many = jnp.where(much, b, 8)
    few = jnp.where(much, a, 1)
    total = few + many
    rest = stirling_remainder(many) - stirling_remainder(total)
    grown = (total - 0.5) * lax.log1p(few / many)
    both = few >= 8
    some = jnp.where(both, few, 8)
    large = (
        stirling_remainder(some) + rest + 0.5 * math.log(2 * math.pi) - 0.5 * lax.log(many)
        + (some - 0.5) * lax.log(some / many) - grown
    )  # fmt: skip
    mixed = lax.lgamma(jnp.where(both, 1, few)) + rest + few * (1 - lax.log(many)) - grown
    small_a, small_b = jnp.where(much, 1, a), jnp.where(much, 1, b)
    small = lax.lgamma(small_a) + (lax.lgamma(small_b) - lax.lgamma(small_a + small_b))
    return jnp.where(much, jnp.where(both, large, mixed), small)


def _supported(name, x):
    """The argument as a strong array; half precision is refused, as in JAX: tails need more range."""
    if x.dtype not in (np.float32, np.float64):
        raise TypeError(f"{name} takes float32 and float64, got {x.dtype}: convert the arguments")
    return lax.convert_element_type(x, x.dtype)


def ndtr(x: Array) -> Array:
    """The distribution function of the standard normal distribution."""
    x = _supported("ndtr", x)
    y = x * math.sqrt(0.5)
    size = lax.abs(y)
    tail = lax.erfc(size)
    return 0.5 * jnp.where(size < 0.5 * math.sqrt(2), 1 + lax.erf(y), jnp.where(y > 0, 2 - tail, tail))


@custom_jvp
def log_ndtr(x: Array) -> Array:
    """The logarithm of `ndtr`: below, by its asymptotic series (Abramowitz and Stegun, 26.2.12)."""
    x = _supported("log_ndtr", x)
    double = x.dtype == np.float64
    lowest, highest = (-20.0, 8.0) if double else (-10.0, 5.0)
    far = jnp.minimum(x, lowest)
    square = far * far
    # 1 - 1 / x**2 + 3 / x**4 - 15 / x**6 ...
    term = total = jnp.ones_like(x)
    for k in range(1, 8, 2):
        term = -term * k / square
        total = total + term
    below = -0.5 * square - lax.log(-far) - 0.5 * math.log(2 * math.pi) + lax.log(total)
    middle = lax.log(ndtr(jnp.clip(x, lowest, highest)))
    above = -ndtr(-jnp.maximum(x, highest))
    return jnp.where(x > highest, above, jnp.where(x > lowest, middle, below))


@log_ndtr.defjvp
def _(primals, tangents):
    (x,), (dx,) = primals, tangents
    value = log_ndtr(x)
    return value, dx * lax.exp(-0.5 * x * x - value - 0.5 * math.log(2 * math.pi))


# Numerators and denominators of Wichura, "Algorithm AS 241" (1988), PPND16: of the middle, and of two parts
# of the tails.
_MIDDLE = (
    (3.3871328727963666080e0, 1.3314166789178437745e2, 1.9715909503065514427e3, 1.3731693765509461125e4,
     4.5921953931549871457e4, 6.7265770927008700853e4, 3.3430575583588128105e4, 2.5090809287301226727e3),
    (1.0, 4.2313330701600911252e1, 6.8718700749205790830e2, 5.3941960214247511077e3,
     2.1213794301586595867e4, 3.9307895800092710610e4, 2.8729085735721942674e4, 5.2264952788528545610e3),
)  # fmt: skip
_NEAR = (
    (1.42343711074968357734e0, 4.63033784615654529590e0, 5.76949722146069140550e0, 3.64784832476320460504e0,
     1.27045825245236838258e0, 2.41780725177450611770e-1, 2.27238449892691845833e-2, 7.74545014278341407640e-4),
    (1.0, 2.05319162663775882187e0, 1.67638483018380384940e0, 6.89767334985100004550e-1,
     1.48103976427480074590e-1, 1.51986665636164571966e-2, 5.47593808499534494600e-4, 1.05075007164441684324e-9),
)  # fmt: skip
_FAR = (
    (6.65790464350110377720e0, 5.46378491116411436990e0, 1.78482653991729133580e0, 2.96560571828504891230e-1,
     2.65321895265761230930e-2, 1.24266094738807843860e-3, 2.71155556874348757815e-5, 2.01033439929228813265e-7),
    (1.0, 5.99832206555887937690e-1, 1.36929880922735805310e-1, 1.48753612908506148525e-2,
     7.86869131145613259100e-4, 1.84631831751005468180e-5, 1.42151175831644588870e-7, 2.04426310338993978564e-15),
)  # fmt: skip


def _quotient(coefficients, x):
    """A quotient of polynomials, constants first."""
    above, below = (jnp.full_like(x, row[-1]) for row in coefficients)
    for a, b in zip(reversed(coefficients[0][:-1]), reversed(coefficients[1][:-1])):
        above, below = above * x + a, below * x + b
    return above / below


@custom_jvp
def ndtri(p: Any) -> Array:
    """The inverse of `ndtr`: infinite for 0 and 1, NaN outside."""
    p = jnp.asarray(p)
    p = _supported("ndtri", p if p.dtype.kind == "f" else p.astype(float))
    q = p - 0.5
    central = lax.abs(q) <= 0.425
    inner = jnp.where(central, q, 0)
    middle = inner * _quotient(_MIDDLE, 0.180625 - inner * inner)
    tail = jnp.where(central, 0.05, jnp.where(q < 0, p, 1 - p))
    root = lax.sqrt(-lax.log(jnp.where(tail > 0, tail, 0.05)))
    near = _quotient(_NEAR, jnp.minimum(root, 5) - 1.6)
    far = _quotient(_FAR, jnp.maximum(root, 5) - 5)
    outer = jnp.where(tail == 0, np.inf, jnp.where(root <= 5, near, far))
    value = jnp.where(central, middle, lax.sign(q) * outer)
    return jnp.where((p >= 0) & (p <= 1), value, np.nan)


@ndtri.defjvp
def _(primals, tangents):
    (p,), (dp,) = primals, tangents
    value = ndtri(p)
    return value, dp * (math.sqrt(2 * math.pi) * lax.exp(0.5 * value * value))
