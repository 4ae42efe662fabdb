"""Logarithms beside products and powers: logit, entropies, Box-Cox transforms, softmax.

In: arrays and numbers; integers become floats. Values and derivatives at 0 are limits where there are some.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ferrax._src.composed.special.elementwise import choose, polynomial
from ferrax._src.composed.special.gamma_parts import deviance
from ferrax._src.core import Array
from ferrax._src.core.typing import ArrayLike
from ferrax._src.lax import api as lax
from ferrax._src.nn.functions import log_softmax as _log_softmax, softmax as _softmax
from ferrax._src.numpy.util import promote_args_inexact
from ferrax._src.scipy.special.arguments import apply, real_arguments
from ferrax._src.transforms.custom_jvp import custom_jvp


def _lost(quotient, difference, below):
    """What `quotient`, near 1, has lost of `x / y` by rounding, if `difference` is `x - y` and `below` is y: as much
    as its logarithm has lost, to first order."""
    return difference / below - (quotient - 1.0)


@custom_jvp
def _logit(x):
    rest = 1.0 - x
    quotient = x / rest
    near = lax.abs(x - 0.5) < 0.2
    return lax.log(quotient) + choose(near, _lost(quotient, 2.0 * x - 1.0, rest), 0.0)


@_logit.defjvp
def _(primals, tangents):
    ((x,), (t,)) = primals, tangents
    return _logit(x), t / (x * (1.0 - x))


def logit(x: ArrayLike) -> Array:
    """`log(x / (1 - x))`, elementwise.

    Args: x: array of numbers; integers become floats.

    >>> ferrax.scipy.special.logit(jnp.array([0.5, 0.75]))
    Array([0.       , 1.0986123], dtype=float32)
    """
    return apply(_logit, promote_args_inexact("logit", x), weak=True)


def expit(x: ArrayLike) -> Array:
    """The logistic function `1 / (1 + e^-x)`, elementwise.

    Args: x: array of numbers; integers become floats.

    >>> ferrax.scipy.special.expit(jnp.array([0.0, 1.0]))
    Array([0.5      , 0.7310586], dtype=float32)
    """
    (x,) = promote_args_inexact("expit", x)
    return lax.logistic(x)


def _times(logarithm, x, y):
    """`x * logarithm(y)`, 0 for x = 0 unless y is NaN."""
    counts = (x != 0.0) | lax.ne(y, y)
    return choose(counts, x * logarithm(y), 0.0)


@custom_jvp
def _xlogy(x, y):
    return _times(lax.log, x, y)


@_xlogy.defjvp
def _(primals, tangents):
    (x, y), (dx, dy) = primals, tangents
    return _xlogy(x, y), dx * lax.log(y) + dy * x / y


def xlogy(x: ArrayLike, y: ArrayLike) -> Array:
    """`x * log(y)`, 0 for `x == 0` unless y is NaN, elementwise.

    Args: x, y: arrays of numbers that broadcast together; integers become floats.

    >>> ferrax.scipy.special.xlogy(jnp.array([0.0, 2.0]), jnp.array([0.0, 3.0]))
    Array([0.       , 2.1972246], dtype=float32)
    """
    return apply(_xlogy, promote_args_inexact("xlogy", x, y), weak=True)


@custom_jvp
def _xlog1py(x, y):
    return _times(lax.log1p, x, y)


@_xlog1py.defjvp
def _(primals, tangents):
    (x, y), (dx, dy) = primals, tangents
    return _xlog1py(x, y), dx * lax.log1p(y) + dy * x / (1.0 + y)


def xlog1py(x: ArrayLike, y: ArrayLike) -> Array:
    """`x * log1p(y)`, 0 for `x == 0` unless y is NaN, elementwise.

    Args: x, y: arrays of numbers that broadcast together; integers become floats.

    >>> ferrax.scipy.special.xlog1py(jnp.array([0.0, 2.0]), jnp.array([-1.0, 2.0]))
    Array([0.       , 2.1972246], dtype=float32)
    """
    return apply(_xlog1py, promote_args_inexact("xlog1py", x, y), weak=True)


@custom_jvp
def _xlogx(x):
    return _times(lax.log, x, x)


@_xlogx.defjvp
def _(primals, tangents):
    ((x,), (t,)) = primals, tangents
    return _xlogx(x), t * (lax.log(x) + 1.0)


def _entr(x):
    return choose(x < 0.0, -np.inf, -_xlogx(x))


def entr(x: ArrayLike) -> Array:
    """The entropy `-x log(x)`, elementwise: 0 at 0, where its slope is infinite, -inf below.

    Args: x: array of real numbers; integers become floats. Errors: ValueError for complex ones.

    >>> ferrax.scipy.special.entr(jnp.array([0.0, 0.5]))
    Array([-0.       ,  0.3465736], dtype=float32)
    """
    return apply(_entr, real_arguments("entr", x), weak=True)


def _rel_entr(p, q):
    both = (p > 0.0) & (q > 0.0)
    x, y = choose(both, p, 1.0), choose(both, q, 1.0)
    near = (x < 2.0 * y) & (y < 2.0 * x)
    over, below = choose(near, x, 1.0), choose(near, y, 1.0)
    quotient = over / below
    rest = choose(near, _lost(quotient, over - below, below), -lax.log(y))
    found = x * (lax.log(choose(near, quotient, x)) + rest)
    return choose(both, found, choose((p == 0.0) & (q >= 0.0), 0.0, lax.full_like(p, np.inf)))


def rel_entr(p: ArrayLike, q: ArrayLike) -> Array:
    """The relative entropy `p log(p / q)`, elementwise: 0 for `p == 0 <= q`, infinite for other numbers that
    are not positive.

    Args: p, q: arrays of real numbers that broadcast together; integers become floats. Errors: ValueError
    for complex ones.

    >>> ferrax.scipy.special.rel_entr(jnp.array([0.0, 0.5]), 0.25)
    Array([0.       , 0.3465736], dtype=float32)
    """
    return apply(_rel_entr, real_arguments("rel_entr", p, q), weak=True)


def kl_div(p: ArrayLike, q: ArrayLike) -> Array:
    """`rel_entr(p, q) - p + q`, the Kullback-Leibler divergence of numbers that need not add up to 1,
    elementwise.

    Args: p, q: arrays of real numbers that broadcast together; integers become floats. Errors: ValueError
    for complex ones.

    >>> ferrax.scipy.special.kl_div(jnp.array([0.0, 0.5]), 0.25)
    Array([0.25      , 0.09657359], dtype=float32)
    """
    return apply(_kl_div, real_arguments("kl_div", p, q), weak=True)


def _kl_div(p, q):
    # Of numbers near each other the difference is the deviance, whose terms would cancel.
    near = (p < 2.0 * q) & (q < 2.0 * p) & (p < np.inf)
    x, y = choose(near, p, 1.0), choose(near, q, 1.0)
    apart = (p > 0.0) & (q > 0.0) & ~near
    above, below = choose(apart, p, 1.0), choose(apart, q, 1.0)
    # One logarithm, of their quotient or of the first.
    logarithm = lax.log(choose(near, y / x, above))
    far = above * (logarithm - lax.log(below)) - p + q
    found = choose(near, x * deviance((y - x) / x, logarithm), far)
    limit = choose((p == 0.0) & (q >= 0.0), q, np.inf - p + q)
    return choose(near | apart, found, limit)


@custom_jvp
def _power_of_log(logarithm, power):
    """`(e^(power logarithm) - 1) / power`, the logarithm for a power of 0."""
    flat = power == 0.0
    some = choose(flat, 1.0, power)
    return choose(flat, logarithm, lax.expm1(some * logarithm) / some)


def _slope_in_power(u):
    """`(u e^u - e^u + 1) / u^2`, by its series `sum((k + 1) u^k / (k + 2)!)` near 0."""
    near = lax.abs(u) < 1.0
    small, large = choose(near, u, 0.0), choose(near, 1.0, u)
    terms = [(k + 1.0) / math.factorial(k + 2) for k in range(10 if u.dtype == np.float32 else 18)]
    beyond = (large * lax.exp(large) - lax.expm1(large)) / large / large
    return choose(near, polynomial(terms, small), beyond)


@_power_of_log.defjvp
def _(primals, tangents):
    (logarithm, power), (dl, dp) = primals, tangents
    u = power * logarithm
    slope = choose(logarithm == 0.0, 0.0, logarithm * logarithm * _slope_in_power(u))
    return _power_of_log(logarithm, power), dl * lax.exp(u) + dp * slope


def _boxcox(x, power):
    return _power_of_log(lax.log(x), power)


def _boxcox1p(x, power):
    return _power_of_log(lax.log1p(x), power)


def boxcox(x: ArrayLike, lmbda: ArrayLike) -> Array:
    """The Box-Cox transform `(x^lmbda - 1) / lmbda`, `log(x)` for `lmbda == 0`, elementwise.

    Args: x, lmbda: arrays of numbers that broadcast together; integers become floats.

    Box and Cox, An analysis of transformations, J. Royal Statistical Society B 26 (1964).

    >>> ferrax.scipy.special.boxcox(2.0, jnp.array([0.0, 2.0]))
    Array([0.6931472, 1.5      ], dtype=float32)
    """
    return apply(_boxcox, promote_args_inexact("boxcox", x, lmbda), weak=True)


def boxcox1p(x: ArrayLike, lmbda: ArrayLike) -> Array:
    """The Box-Cox transform of `1 + x`, accurate for small x, elementwise.

    Args: x, lmbda: arrays of numbers that broadcast together; integers become floats.

    Box and Cox, An analysis of transformations, J. Royal Statistical Society B 26 (1964).

    >>> ferrax.scipy.special.boxcox1p(1.0, jnp.array([0.0, 2.0]))
    Array([0.6931472, 1.5      ], dtype=float32)
    """
    return apply(_boxcox1p, promote_args_inexact("boxcox1p", x, lmbda), weak=True)


def softmax(x: ArrayLike, /, *, axis: Any = None) -> Array:
    """`exp(x)` over its sum along one axis, several or all.

    Args: x: array of numbers; integers become floats. axis: which; default: all.

    As `ferrax.nn.softmax`, with another default.

    >>> ferrax.scipy.special.softmax(jnp.array([0.0, 1.0]))
    Array([0.26894143, 0.7310586 ], dtype=float32)
    """
    return _softmax(x, axis=axis)


def log_softmax(x: ArrayLike, /, *, axis: Any = None) -> Array:
    """The logarithm of `softmax(x, axis=axis)`.

    Args: x: array of numbers; integers become floats. axis: which; default: all.

    As `ferrax.nn.log_softmax`, with another default.

    >>> ferrax.scipy.special.log_softmax(jnp.array([0.0, 1.0]))
    Array([-1.3132616 , -0.31326166], dtype=float32)
    """
    return _log_softmax(x, axis=axis)
