"""Associated Legendre functions and spherical harmonics.

In: arrays of degrees, orders and angles. The functions are found by the recurrence in the degree, which
starts at the order and is stable; normalized ones are those whose squares integrate to 1 over the sphere.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ferrax._src.composed.special.elementwise import choose
from ferrax._src.core import Array, concrete_or_error
from ferrax._src.core.typing import ArrayLike
from ferrax._src.lax import api as lax
from ferrax._src.numpy import api as jnp
from ferrax._src.numpy.util import ensure_array, promote_args_inexact
from ferrax._src.transforms.jit import jit


def _legendre(degree, order, x, sine, most):
    """The normalized function of each element's degree and order, with Condon and Shortley's phase."""
    value = lax.full_like(x, 0.5 / math.sqrt(math.pi))
    # Of degree and order k: -sqrt((2k + 1) / 2k) sin(theta) times that before.
    for k in range(1, most + 1):
        step = -math.sqrt((2 * k + 1) / (2 * k)) * sine
        value = choose(order >= k, value * step, value)
    before, found = lax.full_like(x, 0.0), choose(degree == order, value, 0.0)
    square = lax.square(order.astype(x.dtype))
    for k in range(1, most + 1):
        active = order < k
        gap = choose(active, float(k * k) - square, 1.0)
        first = lax.sqrt(float(4 * k * k - 1) / gap)
        rest = choose(active, float((k - 1) ** 2) - square, 0.0)
        second = lax.sqrt(float(2 * k + 1) * rest / gap / float(max(2 * k - 3, 1)))
        following = first * x * value - second * before
        before, value = choose(active, value, before), choose(active, following, value)
        found = choose(active & (degree == k), value, found)
    return found


@jit(static_argnums=(4,))
def _harmonics(n, m, theta, phi, most):
    shape = lax.broadcast_shapes(n.shape, m.shape, theta.shape, phi.shape)
    n, m, theta, phi = (jnp.broadcast_to(x, shape) for x in (n, m, theta, phi))
    order = lax.abs(m)
    value = _legendre(n, order, lax.cos(theta), lax.abs(lax.sin(theta)), most)
    angle = order.astype(phi.dtype) * phi
    odd = lax.rem(order, lax.full_like(order, 2)) == 1
    negative = m < 0
    # Of a negative order the conjugate, with the sign of (-1)^m.
    real = choose(negative & odd, -value, value)
    imag = choose(negative & ~odd, -value, value)
    return lax.complex(real * lax.cos(angle), imag * lax.sin(angle))


def sph_harm_y(
    n: ArrayLike,
    m: ArrayLike,
    theta: ArrayLike,
    phi: ArrayLike,
    diff_n: int | None = None,
    n_max: int | None = None,
) -> Array:
    """Spherical harmonics, elementwise.

    Args:
        n: array of degrees, integers that are not negative.
        m: array of orders, integers from `-n` to `n`; the result for others is 0.
        theta: array of polar angles, from 0 to pi.
        phi: array of azimuthal angles.
        diff_n: must be None: derivatives are those of `ferrax.grad`.
        n_max: a constant bound for the degrees; default: the largest, which then have to be known.

    Returns: complex array.
    Errors: NotImplementedError for `diff_n`; ConcretizationTypeError for traced degrees without `n_max`.

    The recurrence in the degree, DLMF 14.10.3 and 14.30.1, with Condon and Shortley's phase.

    >>> n, m = jnp.array([1]), jnp.array([0])
    >>> ferrax.scipy.special.sph_harm_y(n, m, jnp.array([0.0]), jnp.array([0.0]))
    Array([0.48860252+0.j], dtype=complex64)
    """
    if diff_n is not None:
        raise NotImplementedError(
            f"sph_harm_y: diff_n must be None, got {diff_n!r}; take derivatives by ferrax.grad"
        )
    context = "sph_harm_y needs the largest degree while tracing: give n_max."
    if n_max is None:
        n_max = int(np.max(np.asarray(concrete_or_error(np.asarray, n, context))))
    n_max = concrete_or_error(int, n_max, context)
    n, m = ensure_array(n, "sph_harm_y"), ensure_array(m, "sph_harm_y", 1)
    theta, phi = promote_args_inexact("sph_harm_y", theta, phi)
    return _harmonics(n, m, jnp.atleast_1d(theta), jnp.atleast_1d(phi), n_max)


def _table(degree, z, normalized):
    """The functions of all orders and degrees up to `degree` at z, stacked as [order][degree]."""
    sine = lax.sqrt(1.0 - z * z)
    zero = lax.full_like(z, 0.0)
    rows = []
    diagonal = lax.full_like(z, 0.5 / math.sqrt(math.pi) if normalized else 1.0)
    for m in range(degree + 1):
        if m:
            factor = math.sqrt((2 * m + 1) / (2 * m)) if normalized else 2 * m - 1
            diagonal = -factor * sine * diagonal
        row = [zero] * m + [diagonal]
        for l in range(m + 1, degree + 1):
            if normalized:
                gap = l * l - m * m
                first = math.sqrt((4 * l * l - 1) / gap)
                second = math.sqrt(
                    (2 * l + 1) * max((l - 1) ** 2 - m * m, 0) / (gap * max(2 * l - 3, 1))
                )
            else:
                first, second = (2 * l - 1) / (l - m), (l + m - 1) / (l - m)
            row.append(first * z * row[-1] - second * (row[-2] if l > 1 else zero))
        rows.append(row)
    return rows


def _degree(name, m, n, z):
    array = ensure_array(z, name)
    if array.dtype not in (np.float32, np.float64):
        raise TypeError(
            f"{name}: z.dtype={array.dtype} is not supported, give it float32 or float64"
        )
    if array.ndim != 1:
        raise ValueError(f"{name}: z must be a 1D array, got {array.ndim} dimensions")
    order, degree = (
        concrete_or_error(int, value, f"Argument {letter} of {name}.")
        for letter, value in (("m", m), ("n", n))
    )
    if order != degree:
        raise NotImplementedError(f"{name}: m and n must be equal, got {order} and {degree}")
    return degree, array


def lpmn(m: int, n: int, z: Any) -> tuple[Array, Array]:
    """Associated Legendre functions of all orders up to m and degrees up to n, and their derivatives in z.

    Deprecated, as in SciPy.

    Args: m, n: equal constants. z: vector of float32 or float64, between -1 and 1.
    Returns: two arrays of shape `(m + 1, n + 1, len(z))`.
    Errors: TypeError for other dtypes; ValueError for other ranks; NotImplementedError for `m != n`.

    The recurrences of DLMF 14.10.

    >>> from ferrax._src.scipy.special.spherical_harmonics import lpmn
    >>> lpmn(1, 1, jnp.array([0.5]))[0].ravel()
    Array([ 1.       ,  0.5      ,  0.       , -0.8660254], dtype=float32)
    """
    degree, z = _degree("lpmn", m, n, z)
    rows = _table(degree, z, False)
    slope = []
    for m, row in enumerate(rows):
        # (z^2 - 1) dP/dz = l z P_l - (l + m) P_(l - 1)
        pairs = [
            (l * z * row[l] - (l + m) * (row[l - 1] if l else 0.0 * z)) for l in range(degree + 1)
        ]
        slope.append(jnp.stack([pair / (z * z - 1.0) for pair in pairs]))
    return jnp.stack([jnp.stack(row) for row in rows]), jnp.stack(slope)


def lpmn_values(m: int, n: int, z: Any, is_normalized: bool) -> Array:
    """Associated Legendre functions of all orders up to m and degrees up to n.

    Deprecated, as in SciPy.

    Args: m, n: equal constants. z: vector of float32 or float64, between -1 and 1. is_normalized: whether
    their spherical harmonics are.
    Returns: array of shape `(m + 1, n + 1, len(z))`.
    Errors: TypeError for other dtypes; ValueError for other ranks; NotImplementedError for `m != n`.

    The recurrences of DLMF 14.10.

    >>> from ferrax._src.scipy.special.spherical_harmonics import lpmn_values
    >>> lpmn_values(1, 1, jnp.array([0.5]), True).ravel()
    Array([ 0.28209478,  0.24430126,  0.        , -0.29920673], dtype=float32)
    """
    degree, z = _degree("lpmn_values", m, n, z)
    return jnp.stack([jnp.stack(row) for row in _table(degree, z, bool(is_normalized))])
