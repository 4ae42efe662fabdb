"""Cosine transforms: `ferrax.scipy.fft`.

`X[k] = 2 * sum(x[j] * cos(pi * k * (2j + 1) / 2n))`, type 2, is computed by one Fourier transform of n
real numbers (J. Makhoul, "A fast cosine transform in one and two dimensions", IEEE Transactions on
Acoustics, Speech, and Signal Processing 28, 1980): with the elements of even index in front and those of
odd index behind them in reverse, and V the transform of that, `exp(-i pi k / 2n) V[k]` has the real part
X[k] / 2 and the imaginary part -X[n - k] / 2.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence

import numpy as np

from ferrax._src.base import dtypes
from ferrax._src.core import Array, as_array
from ferrax._src.core.op_types import FftType
from ferrax._src.lax import api as lax
from ferrax._src.lax.arguments import canonical_axis
from ferrax._src.numpy.util import ensure_array, strong_constant


def _checked(name: str, x: Array, type: int, norm: str | None) -> Array:
    x = ensure_array(x, f"scipy.fft.{name}")
    if type != 2:
        raise NotImplementedError(
            f"{name}: only transforms of type 2 are available, got type={type!r}"
        )
    if norm not in (None, "backward", "ortho"):
        raise ValueError(f"{name}: norm has to be None, 'backward' or 'ortho', got {norm!r}")
    return x


def _real(x: Array) -> Array:
    """`x` in the dtype that its transform has."""
    return lax.convert_element_type(x, dtypes.finfo(dtypes.to_complex_dtype(x.dtype)).dtype)


def _by_parts(x: Array, of_reals) -> Array:
    """A linear function of real arrays, of both parts where there are two."""
    if dtypes.issubdtype(x.dtype, np.complexfloating):
        return lax.complex(of_reals(lax.real(x)), of_reals(lax.imag(x)))
    return of_reals(_real(x))


def _resized(x: Array, sizes: dict[int, int]) -> Array:
    """`x` cut or padded with zeros at the end of these axes."""
    missing = [sizes.get(axis, size) - size for axis, size in enumerate(x.shape)]
    if not any(missing):
        return x
    return lax.pad(x, strong_constant(0, x), [(0, count, 0) for count in missing])


def _turns(n: int, count: int, sign: int, dtype) -> Array:
    """`exp(sign * i pi k / 2n)` for so many k."""
    real = dtypes.finfo(dtype).dtype
    angles = lax.mul(lax.iota(real, count), as_array(np.asarray(np.pi / (2 * n), real)))
    sine = lax.sin(angles)
    return lax.complex(lax.cos(angles), sine if sign > 0 else lax.neg(sine))


def _weights(n: int, dtype) -> Array:
    """What orthogonal transforms divide by."""
    first = lax.eq(lax.iota(np.int32, n), as_array(np.int32(0)))
    one, two = (as_array(np.asarray(np.sqrt(f * n), dtype)) for f in (4.0, 2.0))
    return lax.select(first, lax.broadcast(one, (n,)), lax.broadcast(two, (n,)))


def _along(vector: Array, x: Array) -> Array:
    """A vector over the last axis of `x`, in its shape."""
    return lax.broadcast_in_dim(vector, tuple(x.shape), (x.ndim - 1,))


def _to_end(x: Array, axis: int) -> Array:
    return lax.transpose(x, [*(i for i in range(x.ndim) if i != axis), axis])


def _from_end(x: Array, axis: int) -> Array:
    order = list(range(x.ndim - 1))
    order.insert(axis, x.ndim - 1)
    return lax.transpose(x, order)


def _forward(x: Array, axis: int, norm: str | None) -> Array:
    n = x.shape[axis]
    if n == 0:
        raise ValueError(f"a cosine transform needs an element, got shape {tuple(x.shape)}")
    x = _to_end(x, axis)
    even = lax.slice_in_dim(x, 0, n, 2, axis=-1)
    odd = lax.rev(lax.slice_in_dim(x, 1, n, 2, axis=-1), (x.ndim - 1,))
    v = lax.fft(lax.concatenate([even, odd], x.ndim - 1), FftType.RFFT, (n,))
    turned = lax.mul(v, _along(_turns(n, v.shape[-1], -1, v.dtype), v))
    # The imaginary parts of k = 1, 2, ... are what real parts of n - 1, n - 2, ... would be.
    mirrored = lax.neg(lax.imag(lax.slice_in_dim(turned, 1, (n - 1) // 2 + 1, axis=-1)))
    parts = [lax.real(turned), lax.rev(mirrored, (x.ndim - 1,))]
    y = lax.mul(lax.concatenate(parts, x.ndim - 1), strong_constant(2, x))
    if norm == "ortho":
        y = lax.div(y, _along(_weights(n, y.dtype), y))
    return _from_end(y, axis)


def _inverse(x: Array, axis: int, norm: str | None) -> Array:
    n = x.shape[axis]
    if n == 0:
        raise ValueError(f"a cosine transform needs an element, got shape {tuple(x.shape)}")
    x = _to_end(x, axis)
    last = x.ndim - 1
    if norm == "ortho":
        x = lax.mul(x, _along(_weights(n, x.dtype), x))
    half = n // 2 + 1
    # X[n - k] for k = 0, 1, ..., where X[n] is 0.
    zero = [(0, 0, 0)] * last + [(1, 0, 0)]
    mirrored = lax.slice_in_dim(x, n - half + 1, n, axis=-1)
    mirrored = lax.pad(lax.rev(mirrored, (last,)), strong_constant(0, x), zero)
    front = lax.slice_in_dim(x, 0, half, axis=-1)
    turned = lax.complex(front, lax.neg(mirrored))
    turned = lax.mul(turned, strong_constant(0.5, turned))
    v = lax.mul(turned, _along(_turns(n, half, 1, turned.dtype), turned))
    v = lax.fft(v, FftType.IRFFT, (n,))
    # Even elements in front, odd ones behind in reverse: each to its place among zeros.
    evens = (n + 1) // 2
    spread = [(0, 0, 0)] * last
    even = lax.slice_in_dim(v, 0, evens, axis=-1)
    odd = lax.rev(lax.slice_in_dim(v, evens, n, axis=-1), (last,))
    nothing = strong_constant(0, v)
    y = lax.pad(even, nothing, [*spread, (0, n - (2 * evens - 1), 1)])
    if n > 1:
        odds = n - evens
        y = lax.add(y, lax.pad(odd, nothing, [*spread, (1, n - 2 * odds, 1)]))
    return _from_end(y, axis)


def _axes(
    name: str, x: Array, s: Sequence[int] | int | None, axes: Sequence[int] | int | None
) -> tuple[dict[int, int], tuple[int, ...]]:
    """The sizes asked for by axis, and the axes."""
    if s is not None:
        s = [operator.index(s)] if np.ndim(s) == 0 else [operator.index(size) for size in s]  # type: ignore[arg-type, union-attr]  # told apart by rank
        if len(s) > x.ndim:
            raise ValueError(
                f"{name}: s has {len(s)} sizes, more than x has axes ({x.ndim})"
            )
    if axes is None:
        chosen = tuple(range(x.ndim - (x.ndim if s is None else len(s)), x.ndim))
    else:
        listed = np.ravel(axes).tolist()
        chosen = tuple(canonical_axis(axis, x.ndim) for axis in listed)
    return dict(zip(chosen, s or ())), chosen


def dct(
    x: Array, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None
) -> Array:
    """The discrete cosine transform along an axis, `2 * sum(x[j] * cos(pi * k * (2j + 1) / 2n))`.

    Args:
      x: array of any rank; of complex numbers both parts are transformed.
      type: 2.
      n: the number of elements, by default all; `x` is cut or padded with zeros at the end.
      axis: the axis that is transformed.
      norm: None or "backward"; or "ortho", which makes the matrix of the transform orthogonal.

    Returns floats (or complex numbers) of at least 32 bits, with n elements along the axis.

    Errors: NotImplementedError for another type; ValueError for another norm, an axis out of bounds
    and no elements; TypeError for what is no array.

    Source: J. Makhoul, IEEE Transactions on Acoustics, Speech, and Signal Processing 28, 1980.

    >>> ferrax.scipy.fft.dct(jnp.array([1.0, 2.0, 3.0])).round(3)
    Array([12.   , -3.464,  0.   ], dtype=float32)
    """
    x = _checked("dct", x, type, norm)
    axis = canonical_axis(axis, x.ndim)
    x = _resized(x, {} if n is None else {axis: operator.index(n)})
    return _by_parts(x, lambda part: _forward(part, axis, norm))


def idct(
    x: Array, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None
) -> Array:
    """The inverse of `dct`.

    Args: x, type, n, axis, norm: as for `dct`, with its errors.

    Source: J. Makhoul, IEEE Transactions on Acoustics, Speech, and Signal Processing 28, 1980.

    >>> x = jnp.array([1.0, 2.0, 3.0])
    >>> ferrax.scipy.fft.idct(ferrax.scipy.fft.dct(x)).round(3)
    Array([1., 2., 3.], dtype=float32)
    """
    x = _checked("idct", x, type, norm)
    axis = canonical_axis(axis, x.ndim)
    x = _resized(x, {} if n is None else {axis: operator.index(n)})
    return _by_parts(x, lambda part: _inverse(part, axis, norm))


def dctn(
    x: Array,
    type: int = 2,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str | None = None,
) -> Array:
    """`dct` along several axes, one after the other.

    Args:
      x: array of any rank.
      type: 2.
      s: the numbers of elements along the axes, by default all; cut or padded with zeros.
      axes: the axes; by default the last `len(s)` ones, or all.
      norm: as for `dct`.

    Returns floats (or complex numbers) of at least 32 bits.

    Errors: those of `dct`, and ValueError for more sizes than axes of `x`.

    >>> ferrax.scipy.fft.dctn(jnp.eye(2)).round(3)
    Array([[8., 0.],
           [0., 4.]], dtype=float32)
    """
    x = _checked("dctn", x, type, norm)
    sizes, chosen = _axes("dctn", x, s, axes)
    return _along_each(_resized(x, sizes), chosen, _forward, norm)


def idctn(
    x: Array,
    type: int = 2,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str | None = None,
) -> Array:
    """The inverse of `dctn`.

    Args: x, type, s, axes, norm: as for `dctn`, with its errors.

    >>> x = jnp.array([[1.0, 2.0], [3.0, 5.0]])
    >>> ferrax.scipy.fft.idctn(ferrax.scipy.fft.dctn(x)).round(3)
    Array([[1., 2.],
           [3., 5.]], dtype=float32)
    """
    x = _checked("idctn", x, type, norm)
    sizes, chosen = _axes("idctn", x, s, axes)
    return _along_each(_resized(x, sizes), chosen, _inverse, norm)


def _along_each(x: Array, axes: tuple[int, ...], one, norm: str | None) -> Array:
    def each(part):
        for axis in axes:
            part = one(part, axis, norm)
        return part

    return _by_parts(x, each)
