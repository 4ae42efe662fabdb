"""The gamma function and its logarithm at complex numbers.

In the right half-plane `log Gamma(z)` is Stirling's series at `z + n` less the logarithms of the factors
that take it there (DLMF 5.11.1, 5.5.1), which keeps to the principal branch; in the left one it is
reflected, with `log sin(pi z)` continued without a jump in each half-plane (Hare, Computing the principal
branch of log-Gamma, J. Algorithms 25, 1997). Errors are a few units of the largest of these terms.
"""

from __future__ import annotations

import math
from typing import Any

from ferrax._src.composed.special.elementwise import choose, polynomial
from ferrax._src.composed.special.gamma_parts import STIRLING
from ferrax._src.lax import api as lax
from ferrax._src.transforms.custom_jvp import custom_jvp

_SHIFT = 8


def _right(z):
    """`log Gamma(z)` for a real part of 1/2 or more."""
    total = lax.full_like(z, 0.0)
    for k in range(_SHIFT):
        total = total + lax.log(z + float(k))
    shifted = z + float(_SHIFT)
    inverse = 1.0 / shifted
    stirling = inverse * polynomial(STIRLING, inverse * inverse)
    stirling = stirling + (shifted - 0.5) * lax.log(shifted) - shifted + 0.5 * math.log(2 * math.pi)
    return stirling - total


def _log_gamma(z):
    real, imag = lax.real(z), lax.imag(z)
    # Below the real axis, from where the sign of a zero says so, as the conjugate of above.
    lower = (imag < 0.0) | ((imag == 0.0) & (1.0 / imag < 0.0))
    above = lax.complex(real, lax.abs(imag))
    reflected = real < 0.5
    right = _right(choose(reflected, 1.0 - above, above))
    # log sin(pi z) = -i pi (z - 1/2) - log 2 + log(1 - exp(2 i pi z)), by the distance to an integer.
    part = lax.real(above) - lax.round(lax.real(above))
    decay = lax.exp(-2.0 * math.pi * lax.imag(above))
    angle = 2.0 * math.pi * part
    sine = lax.sin(math.pi * part)
    # 1 - e^(i t) d = (1 - d) + d (1 - cos t) - i d sin t
    remainder = lax.complex(
        -lax.expm1(-2.0 * math.pi * lax.imag(above)) + 2.0 * decay * sine * sine,
        -decay * lax.sin(angle),
    )
    remainder = choose(reflected, remainder, 1.0)
    turned = lax.complex(-math.pi * lax.imag(above), math.pi * (lax.real(above) - 0.5))
    left = turned + math.log(2 * math.pi) - lax.log(remainder) - right
    found = choose(reflected, left, right)
    return choose(lower, lax.conj(found), found)


def _is_pole(z):
    real = lax.real(z)
    return (lax.imag(z) == 0.0) & (real <= 0.0) & (real == lax.floor(real))


def _digamma(z):
    """The derivative of `_log_gamma`, by reflection and recurrence as there."""
    reflected = lax.real(z) < 0.5
    w = choose(reflected, 1.0 - z, z)
    total = lax.full_like(w, 0.0)
    for k in range(_SHIFT):
        total = total + 1.0 / (w + float(k))
    w = w + float(_SHIFT)
    inverse = 1.0 / w
    square = inverse * inverse
    terms = [(2 * k + 1) * c for k, c in enumerate(STIRLING)]
    right = lax.log(w) - 0.5 * inverse - square * polynomial(terms, square) - total
    part = lax.complex(lax.real(z) - lax.round(lax.real(z)), lax.imag(z))
    safe = choose(reflected, part, 0.5)
    # Beyond an imaginary part of 20 the cotangent is -i or i, to the last digit.
    high = lax.abs(lax.imag(safe)) > 20.0
    cotangent = 1.0 / lax.tan(math.pi * choose(high, 0.5, safe))
    limit = lax.complex(lax.full_like(lax.real(z), 0.0), -lax.sign(lax.imag(z)))
    return choose(reflected, right - math.pi * choose(high, limit, cotangent), right)


@custom_jvp
def complex_loggamma(z: Any) -> Any:
    """The principal branch of `log Gamma(z)`; NaN at poles."""
    nan = complex(math.nan, math.nan)
    wrong = _is_pole(z) | lax.ne(z, z)
    return choose(wrong, nan, _log_gamma(choose(wrong, 1.0, z)))


@complex_loggamma.defjvp
def _(primals, tangents):
    ((z,), (t,)) = primals, tangents
    return complex_loggamma(z), t * _digamma(z)


@custom_jvp
def complex_gamma(z: Any) -> Any:
    """`Gamma(z)`; NaN at poles."""
    nan = complex(math.nan, math.nan)
    wrong = _is_pole(z) | lax.ne(z, z)
    return choose(wrong, nan, lax.exp(_log_gamma(choose(wrong, 1.0, z))))


@complex_gamma.defjvp
def _(primals, tangents):
    ((z,), (t,)) = primals, tangents
    y = complex_gamma(z)
    return y, t * y * _digamma(z)
