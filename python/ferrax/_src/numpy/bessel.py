"""The modified Bessel function I0, and the window that is made of it.

The series are those of `composed/special/bessel.py`, of the functions scaled by `exp(-|x|)`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ferrax._core import ufuncs
from ferrax._src.base import dtypes
from ferrax._src.composed.special.bessel import i0_scaled, i1_scaled_over_x
from ferrax._src.core import Array, as_array, concrete_or_error
from ferrax._src.core.typing import ArrayLike
from ferrax._src.lax import api as lax
from ferrax._src.numpy.util import (
    convert,
    ensure_array,
    is_subdtype,
    promote_args_inexact,
)
from ferrax._src.transforms.custom_jvp import custom_jvp
from ferrax._src.transforms.jit import jit


@custom_jvp
def _i0(x):
    return lax.mul(lax.exp(lax.abs(x)), i0_scaled(x))


@_i0.defjvp
def _(primals, tangents):
    (x,), (t,) = primals, tangents
    return _i0(x), lax.mul(t, _i1(x))


@custom_jvp
def _i1(x):
    return lax.mul(x, _i1_over_x(x))


@_i1.defjvp
def _(primals, tangents):
    (x,), (t,) = primals, tangents
    return _i1(x), lax.mul(t, lax.sub(_i0(x), _i1_over_x(x)))


def _i1_over_x(x):
    return lax.mul(lax.exp(lax.mul(x, lax.sign(x))), i1_scaled_over_x(x))


@jit
def i0(x: ArrayLike) -> Array:
    """Modified Bessel function I0: `sum((x/2)**(2k) / k!**2)`.

    Args: x: real array or number; integers become floats. Raises ValueError for complex numbers.

    Chebyshev series: Clenshaw, Chebyshev Series for Mathematical Functions (1962).

    >>> jnp.i0(jnp.array([1.0, -2.0]))
    Array([1.266066 , 2.2795854], dtype=float32)
    """
    (x,) = promote_args_inexact("i0", x)
    if is_subdtype(x, np.complexfloating):
        raise ValueError(f"Unsupported input type to ferrax.numpy.i0: {x.dtype}")
    wide = convert(x, np.float32, x.weak_type) if x.dtype.itemsize < 4 else x
    return convert(_i0(wide), x.dtype, x.weak_type)


def kaiser(M: Any, beta: ArrayLike) -> Array:
    """Kaiser's window of M points, `i0(beta * sqrt(1 - u**2)) / i0(beta)` for u from -1 to 1.

    Args: M: a constant. beta: how narrow, a number or an array that broadcasts with (M,).
    Raises: ConcretizationTypeError for a traced M; ValueError for a complex `beta`.

    (Kaiser, Nonrecursive digital filter design using the I0-sinh window function, 1974.)

    >>> jnp.kaiser(3, 0.0)
    Array([1., 1., 1.], dtype=float32)
    """
    M = concrete_or_error(int, M, "M argument of jnp.kaiser")
    dtype = dtypes.default_float_dtype()
    if M <= 1:
        return lax.full((M,), 1, dtype)
    beta = ensure_array(beta, "kaiser")
    beta = lax.convert_element_type(beta, dtypes.result_type(beta, dtype))
    half = as_array(np.asarray(0.5 * (M - 1), dtype))
    u = lax.div(lax.sub(lax.iota(dtype, M), half), half)
    root = lax.sqrt(lax.sub(as_array(np.ones((), dtype)), lax.mul(u, u)))
    return ufuncs.true_divide(i0(ufuncs.multiply(beta, root)), i0(beta))
