"""Convolution and correlation of arrays: what `ferrax.scipy.signal` has of these.

`sum(x[j] * y[k - j])` over all axes, either directly or as a product of Fourier transforms. Correlation is
the convolution with the conjugated array in reverse.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from ferrax._src.base import dtypes
from ferrax._src.core import Array
from ferrax._src.core.typing import ArrayLike
from ferrax._src.lax import api as lax
from ferrax._src.lax.arguments import canonical_axis
from ferrax._src.numpy import api as jnp, fft
from ferrax._src.numpy.util import ensure_array, ensure_arrays, promote_dtypes_inexact

_MODES = ("full", "same", "valid")


def _check_mode(name: str, mode: str) -> None:
    if mode not in _MODES:
        raise ValueError(f"{name}: mode must be one of {list(_MODES)}, got {mode!r}")


def fftconvolve(
    in1: ArrayLike, in2: ArrayLike, mode: str = "full", axes: int | Sequence[int] | None = None
) -> Array:
    """The convolution of two arrays by Fourier transforms.

    Args:
      in1, in2: arrays of one rank; integers become floats.
      mode: "full", all sums; "same", the middle ones, in the shape of `in1`; "valid", those in which
        no product is missing: one array is then at least as large as the other along each axis.
      axes: the axes, by default all; the arrays have equal sizes along the others.

    Returns an array of the common dtype. Errors are relative to the largest sum; an infinity or NaN
    makes all sums NaN.

    Errors: ValueError for other ranks, modes and sizes.

    >>> ferrax.scipy.signal.fftconvolve(jnp.array([1.0, 2.0]), jnp.array([1.0, 1.0])).round(3)
    Array([1., 3., 2.], dtype=float32)
    """
    x, y = promote_dtypes_inexact(*ensure_arrays("fftconvolve", in1, in2))
    if x.ndim != y.ndim:
        raise ValueError(
            "fftconvolve: in1 and in2 need as many axes as each other, got shapes"
            f" {tuple(x.shape)} and {tuple(y.shape)}"
        )
    _check_mode("fftconvolve", mode)
    if axes is None:
        axes = range(x.ndim)
    listed = [operator.index(axes)] if np.ndim(axes) == 0 else list(axes)  # type: ignore[arg-type]  # told apart by rank
    chosen = [canonical_axis(axis, x.ndim) for axis in listed]
    others = [axis for axis in range(x.ndim) if axis not in chosen]
    if any(x.shape[axis] != y.shape[axis] for axis in others):
        raise ValueError(
            f"fftconvolve: mapped axes must have same shape; got {tuple(x.shape)} and"
            f" {tuple(y.shape)} with axes={axes}"
        )
    chosen = [axis for axis in range(x.ndim) if axis in chosen]
    pairs = [(x.shape[axis], y.shape[axis]) for axis in chosen]
    if mode == "valid":
        if not (all(a >= b for a, b in pairs) or all(a <= b for a, b in pairs)):
            raise ValueError(
                "fftconvolve: mode='valid' needs one array that the other fits into along each axis,"
                f" got shapes {tuple(x.shape)} and {tuple(y.shape)}"
            )
    full = [max(a + b - 1, 0) for a, b in pairs]
    if all(1 in pair for pair in pairs):
        sums = x * y
    elif 0 in full or x.size == 0 or y.size == 0:
        shape = list(
            jnp.broadcast_shapes(
                *([1 if i in chosen else s.shape[i] for i in range(x.ndim)] for s in (x, y))
            )
        )
        for axis, size in zip(chosen, full):
            shape[axis] = size
        sums = jnp.zeros(shape, x.dtype)
    elif dtypes.issubdtype(x.dtype, np.complexfloating):
        sums = fft.ifftn(fft.fftn(x, full, chosen) * fft.fftn(y, full, chosen), full, chosen)
    else:
        product = fft.rfftn(x, full, chosen) * fft.rfftn(y, full, chosen)
        sums = fft.irfftn(product, full, chosen)
    starts, limits = [0] * x.ndim, list(sums.shape)
    for axis, size, (a, b) in zip(chosen, full, pairs):
        out = size if mode == "full" else a if mode == "same" else abs(a - b) + 1
        starts[axis] = (size - out) // 2
        limits[axis] = starts[axis] + out
    return lax.slice(sums, starts, limits)


def _direct(name: str, x: Array, y: Array, mode: str, precision: Any) -> Array:
    """The convolution of arrays of one rank, which are not empty."""
    _check_mode(name, mode)
    large, small = _by_size(name, *promote_dtypes_inexact(x, y))
    padding = []
    for a, b, most, least in zip(x.shape, y.shape, large.shape, small.shape):
        # Where the sums that are wanted start among all of them, and how many they are.
        start, count = {
            "full": (0, a + b - 1),
            "same": ((b - 1) // 2, a),
            "valid": (least - 1, most - least + 1),
        }[mode]
        padding.append((least - 1 - start, start + count - most))
    out = lax.conv_general_dilated(
        large[None, None], jnp.flip(small)[None, None], (1,) * x.ndim, padding, precision=precision
    )
    return out[0, 0]


def _by_size(name, x, y) -> tuple[Array, Array]:
    """The two arrays, the larger one first."""
    if x.ndim != y.ndim:
        raise ValueError(
            f"{name}: in1 and in2 need as many axes as each other, got shapes"
            f" {tuple(x.shape)} and {tuple(y.shape)}"
        )
    if x.size == 0 or y.size == 0:
        raise ValueError(
            f"{name}: expected arrays with elements, got shapes {tuple(x.shape)} and"
            f" {tuple(y.shape)}"
        )
    excess = [a - b for a, b in zip(x.shape, y.shape)]
    if max(excess, default=0) <= 0:
        return y, x
    if min(excess) < 0:
        raise ValueError(
            f"{name}: one array has to fit into the other along each axis, got shapes"
            f" {tuple(x.shape)} and {tuple(y.shape)}"
        )
    return x, y


def convolve(
    in1: Array, in2: Array, mode: str = "full", method: str = "auto", precision: Any = None
) -> Array:
    """The convolution of two arrays, over all axes.

    Args:
      in1, in2: arrays of one rank, of which one is at least as large as the other along each axis;
        integers become floats.
      mode: "full", "same" or "valid", as for `fftconvolve`.
      method: "direct", by products ("auto" too), or "fft", by `fftconvolve`.
      precision: of lax.

    Returns an array of the common dtype.

    Errors: ValueError for another mode or method, ranks and sizes that do not fit, no elements.

    >>> ferrax.scipy.signal.convolve(jnp.array([1.0, 2.0]), jnp.array([1.0, 1.0]))
    Array([1., 3., 2.], dtype=float32)
    """
    if method == "fft":
        return fftconvolve(in1, in2, mode)
    if method not in ("direct", "auto"):
        raise ValueError(f"convolve: method is 'auto', 'fft' or 'direct', got {method!r}")
    x, y = ensure_arrays("convolve", in1, in2)
    return _direct("convolve", x, y, mode, precision)


def correlate(
    in1: Array, in2: Array, mode: str = "full", method: str = "auto", precision: Any = None
) -> Array:
    """The correlation of two arrays: the convolution with `in2` in reverse, conjugated.

    Args: in1, in2, mode, method, precision: as for `convolve`, with its errors.

    >>> ferrax.scipy.signal.correlate(jnp.array([1.0, 2.0]), jnp.array([0.0, 1.0]))
    Array([1., 2., 0.], dtype=float32)
    """
    y = jnp.flip(jnp.conj(ensure_array(in2, "correlate", 1)))
    return convolve(in1, y, mode, method, precision)


def _matrices(
    name: str, in1: ArrayLike, in2: ArrayLike, boundary: str, fillvalue: float
) -> tuple[Array, Array]:
    if boundary != "fill" or fillvalue != 0:
        raise NotImplementedError(
            f"{name} only supports boundary='fill' and fillvalue=0, got {boundary!r} and {fillvalue}"
        )
    x, y = ensure_arrays(name, in1, in2)
    if x.ndim != 2 or y.ndim != 2:
        raise ValueError(
            f"{name} only supports 2-dimensional inputs, got shapes {tuple(x.shape)} and"
            f" {tuple(y.shape)}"
        )
    return x, y


def convolve2d(
    in1: Array,
    in2: Array,
    mode: str = "full",
    boundary: str = "fill",
    fillvalue: float = 0,
    precision: Any = None,
) -> Array:
    """`convolve` of matrices, which are surrounded by zeros.

    Args: in1, in2, mode, precision: as for `convolve`, with its errors. boundary: "fill".
    fillvalue: 0; others are a NotImplementedError.

    >>> ferrax.scipy.signal.convolve2d(jnp.eye(2), jnp.ones((1, 2)))
    Array([[1., 1., 0.],
           [0., 1., 1.]], dtype=float32)
    """
    x, y = _matrices("convolve2d", in1, in2, boundary, fillvalue)
    return _direct("convolve2d", x, y, mode, precision)


def correlate2d(
    in1: Array,
    in2: Array,
    mode: str = "full",
    boundary: str = "fill",
    fillvalue: float = 0,
    precision: Any = None,
) -> Array:
    """`correlate` of matrices, which are surrounded by zeros.

    Args: in1, in2, mode, precision: as for `convolve`, with its errors; of an even size "same" sums
    begin as SciPy's do. boundary: "fill". fillvalue: 0; others are a NotImplementedError.

    >>> ferrax.scipy.signal.correlate2d(jnp.eye(2), jnp.eye(2))
    Array([[1., 0., 0.],
           [0., 2., 0.],
           [0., 0., 1.]], dtype=float32)
    """
    x, y = _matrices("correlate2d", in1, in2, boundary, fillvalue)
    if mode == "same":
        # Centred for the reverse: the reverse of the convolution with the reverse of `in1`.
        return jnp.flip(_direct("correlate2d", jnp.flip(x), jnp.conj(y), mode, precision))
    sums = _direct("correlate2d", x, jnp.flip(jnp.conj(y)), mode, precision)
    # As in SciPy, the smaller array is the conjugated one of "valid" sums.
    smaller = x.shape != y.shape and all(a <= b for a, b in zip(x.shape, y.shape))
    return jnp.conj(sums) if mode == "valid" and smaller else sums
