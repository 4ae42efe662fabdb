"""Polynomials that fit data best, and roots of polynomials."""

from __future__ import annotations

from typing import Any

import numpy as np

from ferrax._core import ufuncs
from ferrax._src.base import dtypes
from ferrax._src.core import Array, as_array, concrete_or_error
from ferrax._src.core.typing import ArrayLike
from ferrax._src.lax import api as lax
from ferrax._src.numpy import (
    array_creation,
    decompositions,
    matrices,
    products,
    rearrangement,
    reductions,
    systems,
)
from ferrax._src.numpy.util import (
    ensure_array,
    ensure_arrays,
    promote_dtypes_inexact,
    strong_constant,
    where,
)
from ferrax._src.transforms.jit import jit


@jit(static_argnames=("deg", "rcond", "full", "cov"))
def polyfit(
    x: ArrayLike,
    y: ArrayLike,
    deg: int,
    rcond: float | None = None,
    full: bool = False,
    w: ArrayLike | None = None,
    cov: bool | str = False,
) -> Array | tuple[Array, ...]:
    """The polynomial of a degree for which the sum of squares of `w * (p(x) - y)` is least.

    Args: x: vector of m places; integers become floats. y: values (m,) or (m, k). deg: the degree, a
    constant. rcond: singular values below `rcond` times the largest count as 0; by default m times the
    epsilon of the dtype. full: return `(p, residuals, rank, s, rcond)`, as `linalg.lstsq` of Vandermonde's
    matrix with columns of length 1. w: weights (m,). cov: return `(p, covariance)` too, scaled by the
    residuals over m - deg - 1; "unscaled": not scaled.
    Returns coefficients (deg + 1,) or (deg + 1, k), the highest power first.
    Raises: ValueError for a negative degree, and for a scaled covariance of too few places; TypeError for
    other shapes.

    (Golub and Van Loan, Matrix Computations, 4th ed., section 5.3.)

    >>> jnp.polyfit(jnp.arange(3.0), jnp.array([1.0, 3.0, 5.0]), 1).shape
    (2,)
    """
    x, y = ensure_arrays("polyfit", x, y)
    deg = concrete_or_error(int, deg, "deg must be int")
    if deg < 0:
        raise ValueError(f"polyfit: expected deg >= 0, got {deg}")
    if x.ndim != 1 or x.size == 0:
        raise TypeError(f"polyfit: expected a vector of places, got shape {tuple(x.shape)}")
    if y.ndim not in (1, 2) or y.shape[0] != x.shape[0]:
        raise TypeError(
            "polyfit: expected as many values as places, as a vector or a matrix, got shapes"
            f" {tuple(x.shape)} and {tuple(y.shape)}"
        )
    (x,) = promote_dtypes_inexact(x)
    if rcond is None:
        rcond = x.shape[0] * float(dtypes.finfo(x.dtype).eps)
    rcond = concrete_or_error(float, rcond, "rcond must be float")
    powers = matrices.vander(x, deg + 1)
    if w is not None:
        (w,) = promote_dtypes_inexact(ensure_array(w, "polyfit"))
        if w.shape != x.shape:
            raise TypeError(
                f"polyfit: expected as many weights as places, got shapes {tuple(w.shape)} and"
                f" {tuple(x.shape)}"
            )
        column = lax.expand_dims(w, (1,))
        powers, y = powers * column, y * (column if y.ndim == 2 else w)
    lengths = ufuncs.sqrt(reductions.sum(powers * powers, axis=0))
    powers = powers / lax.expand_dims(lengths, (0,))
    p, residuals, rank, s = systems.lstsq(powers, y, rcond)
    p = p / (lengths if p.ndim == 1 else lax.expand_dims(lengths, (1,)))
    if full:
        return p, residuals, rank, s, as_array(rcond)
    if not cov:
        return p
    inverse = systems.inv(products.matmul(powers.T, powers)) / products.outer(lengths, lengths)
    factor: Any = 1.0
    if not (isinstance(cov, str) and cov == "unscaled"):
        freedom = x.shape[0] - deg - 1
        if freedom <= 0:
            raise ValueError(
                "polyfit: a covariance that is scaled by residuals needs more places than"
                f" coefficients, got {x.shape[0]} and {deg + 1}; pass cov='unscaled'"
            )
        # A number for each column of values, of which a vector is one.
        factor = lax.expand_dims(residuals / freedom, (0,) if y.ndim == 1 else (0, 1))
    return p, (inverse if y.ndim == 1 else lax.expand_dims(inverse, (2,))) * factor


def _roots(p):
    """Eigenvalues of the companion matrix."""
    if p.shape[0] < 2:
        return array_creation.array([], dtype=dtypes.to_complex_dtype(p.dtype))
    companion = matrices.eye(p.shape[0] - 1, k=-1, dtype=p.dtype)
    return decompositions.eigvals(companion.at[0].set(-p[1:] / p[0]))


@jit
def _roots_after(p, zeros):
    """All roots that there may be: those of zeros in front are NaN and come last."""
    size = p.shape[0]
    p = where(lax.eq(zeros, size), strong_constant(1, p), p)
    found = _roots(rearrangement.roll(p, -zeros))
    is_zero = lax.convert_element_type(lax.eq(found, lax.full_like(found, 0)), np.int32)
    _, order = lax.sort((is_zero, lax.iota(np.int32, size - 1)), num_keys=1)
    found = found[order]
    known = lax.lt(lax.iota(zeros.dtype, size - 1), size - 1 - zeros)
    return where(known, found, complex(np.nan, np.nan))


def roots(p: ArrayLike, *, strip_zeros: bool = True) -> Array:
    """The roots of a polynomial, as eigenvalues of its companion matrix.

    Args: p: vector of n + 1 coefficients, the highest power first; integers become floats. strip_zeros:
    cut zeros in front, of which the values must be known; else roots that they leave undefined are NaN
    and come last.
    Returns a complex vector of n roots, in no order, fewer where zeros are cut.
    Raises: ValueError for other ranks.

    (Golub and Van Loan, Matrix Computations, 4th ed., section 7.4.6.)

    >>> jnp.roots(jnp.array([1.0, 0.0, 4.0]))
    Array([0.+2.j, 0.-2.j], dtype=complex64)
    """
    (p,) = promote_dtypes_inexact(ensure_array(p, "roots"))
    if p.ndim == 0:
        p = lax.reshape(p, (1,))
    if p.ndim != 1:
        raise ValueError(f"roots: expected a vector of coefficients, got shape {tuple(p.shape)}")
    if p.size < 2:
        return array_creation.array([], dtype=dtypes.to_complex_dtype(p.dtype))
    is_zero = lax.eq(p, strong_constant(0, p))
    zeros = where(reductions.all(is_zero), p.shape[0], reductions.argmin(is_zero))
    if not strip_zeros:
        return _roots_after(p, zeros)
    zeros = concrete_or_error(
        int,
        zeros,
        "The number of zeros in front, in jnp.roots(): in traced functions pass strip_zeros=False.",
    )
    return _roots(p[zeros:])
