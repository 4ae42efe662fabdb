"""Fourier transforms: `ferrax.numpy.fft`.

Each function brings the axes that it transforms to the end, cuts or pads them to the sizes asked for,
and is one or a few `lax.fft`. The conventions of signs, halves and norms are NumPy's.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from ferrax._core import ufuncs
from ferrax._src.base import dtypes
from ferrax._src.core import Array, as_array
from ferrax._src.core.op_types import FftType
from ferrax._src.core.typing import ArrayLike, DTypeLike
from ferrax._src.lax import api as lax
from ferrax._src.lax.arguments import canonical_axis
from ferrax._src.numpy.array_creation import arange, array
from ferrax._src.numpy.rearrangement import roll
from ferrax._src.numpy.shape import moveaxis
from ferrax._src.numpy.util import ensure_array, strong_constant

_NORMS = ("backward", "ortho", "forward")


def _scaled(x: Array, lengths: Sequence[int], inverse: bool, norm: str | None) -> Array:
    """`x`, which is divided by the number of terms where the transform is inverse, in this norm."""
    if norm is None or norm == "backward":
        return x
    if norm not in _NORMS:
        raise ValueError(
            f'Invalid norm value {norm!r}; should be "backward", "ortho" or "forward".'
        )
    count = float(math.prod(lengths))
    factor = math.sqrt(count) if norm == "ortho" else count
    if not inverse:
        factor = 1 / factor if factor else math.inf
    return lax.mul(x, strong_constant(factor, x))


def _resized(x: Array, sizes: Sequence[int]) -> Array:
    """`x` with its last axes cut, or padded with zeros, to these sizes."""
    first = x.ndim - len(sizes)
    if tuple(x.shape[first:]) == tuple(sizes):
        return x
    limits = (*x.shape[:first], *map(min, x.shape[first:], sizes))
    x = lax.slice(x, [0] * x.ndim, limits)
    missing = [0] * first + [size - limit for size, limit in zip(sizes, limits[first:])]
    return lax.pad(x, strong_constant(0, x), [(0, count, 0) for count in missing])


def _transform(
    name: str,
    kind: FftType,
    a: ArrayLike,
    s: Sequence[int] | None,
    axes: Sequence[int] | None,
    norm: str | None,
) -> Array:
    x = ensure_array(a, f"jnp.fft.{name}")
    if s is not None:
        s = tuple(map(operator.index, s))
        if any(size <= 0 for size in s):
            raise ValueError(f"jnp.fft.{name}: sizes have to be positive, got s={s}")
        if axes is not None and len(s) != len(axes):
            raise ValueError(
                f"jnp.fft.{name}: Shape and axes have different lengths: s={s}, axes={axes}"
            )
    if axes is not None:
        axes = [canonical_axis(axis, x.ndim) for axis in axes]
    count = len(axes) if axes is not None else x.ndim if s is None else len(s)
    if axes is not None and len(axes) != len(set(axes)):
        raise ValueError(f"jnp.fft.{name} does not support repeated axes. Got axes {axes}.")
    if count > x.ndim:
        raise ValueError(f"jnp.fft.{name}: {count} axes of an array of shape {tuple(x.shape)}")
    last = tuple(range(x.ndim - count, x.ndim))
    if axes is not None:
        x = moveaxis(x, axes, last)
    to_real = kind is FftType.IRFFT
    if s is None:
        s = tuple(x.shape[x.ndim - count :])
        if to_real and s:
            s = (*s[:-1], max(0, 2 * (s[-1] - 1)))
    elif s:
        x = _resized(x, (*s[:-1], s[-1] // 2 + 1) if to_real else s)
    if norm is not None and norm not in _NORMS:
        raise ValueError(
            f'Invalid norm value {norm!r}; should be "backward", "ortho" or "forward".'
        )
    y = _scaled(_by_threes(x, kind, s), s, name.startswith("i"), norm)
    return y if axes is None else moveaxis(y, last, axes)


def _by_threes(x: Array, kind: FftType, lengths: tuple[int, ...]) -> Array:
    """The transform of the last axes, by some of at most three."""
    if len(lengths) <= 3:
        return lax.fft(x, kind, lengths)
    outer, inner = lengths[:-3], lengths[-3:]
    first = x.ndim - len(lengths)
    here, end = range(first, first + len(outer)), range(x.ndim - len(outer), x.ndim)
    if kind in (FftType.FFT, FftType.RFFT):
        x = moveaxis(lax.fft(x, kind, inner), here, end)
        return moveaxis(_by_threes(x, FftType.FFT, outer), end, here)
    x = _by_threes(moveaxis(x, here, end), FftType.IFFT, outer)
    return lax.fft(moveaxis(x, end, here), kind, inner)


def _transform_1d(
    name: str, kind: FftType, a: ArrayLike, n: int | None, axis: int | None, norm: str | None
) -> Array:
    _check_axis(name, axis)
    return _transform(
        name, kind, a, None if n is None else [n], None if axis is None else [axis], norm
    )


def _check_axis(name: str, axis: Any) -> None:
    if isinstance(axis, (list, tuple)):
        raise ValueError(
            f"jnp.fft.{name} does not support multiple axes. Please use jnp.fft.{name}n. Got axis ="
            f" {axis!r}."
        )


def _transform_2d(
    name: str,
    kind: FftType,
    a: ArrayLike,
    s: Sequence[int] | None,
    axes: Sequence[int],
    norm: str | None,
) -> Array:
    if len(axes) != 2:
        raise ValueError(f"jnp.fft.{name} only supports 2 axes. Got axes = {axes!r}.")
    return _transform(name, kind, a, s, axes, norm)


def fft(a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """The discrete Fourier transform along an axis: `sum(a[j] * exp(-2j * pi * j * k / n))`.

    Args:
      a: array, of any rank.
      n: the number of elements that are transformed; by default that of `a`,
        which is cut or padded with zeros at the end.
      axis: the axis that is transformed.
      norm: "backward" (None): inverse transforms are divided by n. "ortho": all are divided by
        sqrt(n). "forward": forward ones are divided by n.

    Returns complex64 or complex128, with n elements along the axis.

    Errors: TypeError for what is no array; ValueError for n below 1, several axes, an axis out of
    bounds, an unknown norm.

    >>> jnp.fft.fft(jnp.array([1.0, 2.0, 1.0, 0.0]))
    Array([4.+0.j, 0.-2.j, 0.+0.j, 0.+2.j], dtype=complex64)
    """
    return _transform_1d("fft", FftType.FFT, a, n, axis, norm)


def ifft(a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """The inverse of `fft`: `sum(a[k] * exp(2j * pi * j * k / n)) / n`.

    Args:
      a: array, of any rank.
      n: the number of elements that are transformed; by default that of `a`,
        which is cut or padded with zeros at the end.
      axis: the axis that is transformed.
      norm: "backward" (None): inverse transforms are divided by n. "ortho": all are divided by
        sqrt(n). "forward": forward ones are divided by n.

    Returns complex64 or complex128, with n elements along the axis.

    Errors: TypeError for what is no array; ValueError for n below 1, several axes, an axis out of
    bounds, an unknown norm.

    >>> jnp.fft.ifft(jnp.array([4.0, 0.0, 0.0, 0.0]))
    Array([1.+0.j, 1.+0.j, 1.+0.j, 1.+0.j], dtype=complex64)
    """
    return _transform_1d("ifft", FftType.IFFT, a, n, axis, norm)


def rfft(a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """The first n // 2 + 1 elements of `fft` of real numbers; the others mirror them, conjugated.

    Args:
      a: array of real numbers, of any rank.
      n: the number of elements that are transformed; by default that of `a`,
        which is cut or padded with zeros at the end.
      axis: the axis that is transformed.
      norm: "backward" (None): inverse transforms are divided by n. "ortho": all are divided by
        sqrt(n). "forward": forward ones are divided by n.

    Returns complex64 or complex128, with n // 2 + 1 elements along the axis.

    Errors: TypeError for what is no array; ValueError for n below 1, several axes, an axis out of
    bounds, an unknown norm and complex or 16-bit `a`.

    >>> jnp.fft.rfft(jnp.array([1.0, 2.0, 1.0, 0.0]))
    Array([4.+0.j, 0.-2.j, 0.+0.j], dtype=complex64)
    """
    return _transform_1d("rfft", FftType.RFFT, a, n, axis, norm)


def irfft(a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """The inverse of `rfft`: n real numbers from the first n // 2 + 1 elements of their transform.

    Args:
      a: array, of any rank.
      n: the number of elements of the result; by default 2 * (m - 1) for size m.
        `a` is cut or padded with zeros at the end.
      axis: the axis that is transformed.
      norm: "backward" (None): inverse transforms are divided by n. "ortho": all are divided by
        sqrt(n). "forward": forward ones are divided by n.

    Returns float32 or float64, with n elements along the axis.

    Errors: TypeError for what is no array; ValueError for n below 1, several axes, an axis out of
    bounds, an unknown norm.

    >>> jnp.fft.irfft(jnp.array([4.0, -2.0j, 0.0]))
    Array([1., 2., 1., 0.], dtype=float32)
    """
    return _transform_1d("irfft", FftType.IRFFT, a, n, axis, norm)


def hfft(a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """The transform of a signal that mirrors itself, conjugated, from its first half: n real numbers.

    Args:
      a: array, of any rank.
      n: the number of elements of the result; by default 2 * (m - 1) for size m.
        `a` is cut or padded with zeros at the end.
      axis: the axis that is transformed.
      norm: "backward" (None): inverse transforms are divided by n. "ortho": all are divided by
        sqrt(n). "forward": forward ones are divided by n.

    Returns float32 or float64, with n elements along the axis.

    Errors: TypeError for what is no array; ValueError for n below 1, several axes, an axis out of
    bounds, an unknown norm.

    >>> jnp.fft.hfft(jnp.array([1.0, 2.0, 3.0]))
    Array([ 8., -2.,  0., -2.], dtype=float32)
    """
    _check_axis("hfft", axis)
    x = ufuncs.conj(ensure_array(a, "jnp.fft.hfft"))
    y = _transform_1d("hfft", FftType.IRFFT, x, n, axis, norm)
    return lax.mul(y, strong_constant(2 * (x.shape[axis] - 1) if n is None else n, y))


def ihfft(a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """The inverse of `hfft`: the first n // 2 + 1 elements of the inverse transform of real numbers.

    Args:
      a: array of real numbers, of any rank.
      n: the number of elements that are transformed; by default that of `a`,
        which is cut or padded with zeros at the end.
      axis: the axis that is transformed.
      norm: "backward" (None): inverse transforms are divided by n. "ortho": all are divided by
        sqrt(n). "forward": forward ones are divided by n.

    Returns complex64 or complex128, with n // 2 + 1 elements along the axis.

    Errors: TypeError for what is no array; ValueError for n below 1, several axes, an axis out of
    bounds, an unknown norm and complex or 16-bit `a`.

    >>> jnp.fft.ihfft(jnp.array([8.0, -2.0, 0.0, -2.0]))
    Array([1.+0.j, 2.+0.j, 3.+0.j], dtype=complex64)
    """
    _check_axis("ihfft", axis)
    x = ensure_array(a, "jnp.fft.ihfft")
    y = ufuncs.conj(_transform_1d("ihfft", FftType.RFFT, x, n, axis, norm))
    return lax.mul(y, strong_constant(1 / (x.shape[axis] if n is None else n), y))


def fft2(
    a: ArrayLike,
    s: Sequence[int] | None = None,
    axes: Sequence[int] = (-2, -1),
    norm: str | None = None,
) -> Array:
    """The discrete Fourier transform over two axes.

    Args:
      a: array, of rank 2 or more.
      s: the sizes that are transformed; by default those of `a`. `a` is cut or padded with zeros.
      axes: two axes.
      norm: "backward" (None), "ortho" or "forward", as for `fft`, with the product of the sizes.

    Returns complex64 or complex128, with the sizes `s` along the axes.

    Errors: TypeError for what is no array; ValueError for sizes below 1, another number of sizes than of axes,
    repeated axes or axes out of bounds, an unknown norm, other than two axes.

    >>> jnp.fft.fft2(jnp.eye(2))
    Array([[2.+0.j, 0.+0.j],
           [0.+0.j, 2.+0.j]], dtype=complex64)
    """
    return _transform_2d("fft2", FftType.FFT, a, s, axes, norm)


def fftn(
    a: ArrayLike,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str | None = None,
) -> Array:
    """The discrete Fourier transform over axes.

    Args:
      a: array, of any rank.
      s: the sizes that are transformed; by default those of `a`. `a` is cut or padded with zeros.
      axes: the axes; by default the last `len(s)` ones, or all.
      norm: "backward" (None), "ortho" or "forward", as for `fft`, with the product of the sizes.

    Returns complex64 or complex128, with the sizes `s` along the axes.

    Errors: TypeError for what is no array; ValueError for sizes below 1, another number of sizes than of axes,
    repeated axes or axes out of bounds, an unknown norm.

    >>> jnp.fft.fftn(jnp.eye(2))
    Array([[2.+0.j, 0.+0.j],
           [0.+0.j, 2.+0.j]], dtype=complex64)
    """
    return _transform("fftn", FftType.FFT, a, s, axes, norm)


def ifft2(
    a: ArrayLike,
    s: Sequence[int] | None = None,
    axes: Sequence[int] = (-2, -1),
    norm: str | None = None,
) -> Array:
    """The inverse discrete Fourier transform over two axes.

    Args:
      a: array, of rank 2 or more.
      s: the sizes that are transformed; by default those of `a`. `a` is cut or padded with zeros.
      axes: two axes.
      norm: "backward" (None), "ortho" or "forward", as for `fft`, with the product of the sizes.

    Returns complex64 or complex128, with the sizes `s` along the axes.

    Errors: TypeError for what is no array; ValueError for sizes below 1, another number of sizes than of axes,
    repeated axes or axes out of bounds, an unknown norm, other than two axes.

    >>> jnp.fft.ifft2(4 * jnp.eye(2))
    Array([[2.+0.j, 0.+0.j],
           [0.+0.j, 2.+0.j]], dtype=complex64)
    """
    return _transform_2d("ifft2", FftType.IFFT, a, s, axes, norm)


def ifftn(
    a: ArrayLike,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str | None = None,
) -> Array:
    """The inverse discrete Fourier transform over axes.

    Args:
      a: array, of any rank.
      s: the sizes that are transformed; by default those of `a`. `a` is cut or padded with zeros.
      axes: the axes; by default the last `len(s)` ones, or all.
      norm: "backward" (None), "ortho" or "forward", as for `fft`, with the product of the sizes.

    Returns complex64 or complex128, with the sizes `s` along the axes.

    Errors: TypeError for what is no array; ValueError for sizes below 1, another number of sizes than of axes,
    repeated axes or axes out of bounds, an unknown norm.

    >>> jnp.fft.ifftn(4 * jnp.eye(2))
    Array([[2.+0.j, 0.+0.j],
           [0.+0.j, 2.+0.j]], dtype=complex64)
    """
    return _transform("ifftn", FftType.IFFT, a, s, axes, norm)


def rfft2(
    a: ArrayLike,
    s: Sequence[int] | None = None,
    axes: Sequence[int] = (-2, -1),
    norm: str | None = None,
) -> Array:
    """`rfft` along the last of two axes, then `fft` along the other: half of the transform of real numbers.

    Args:
      a: array of real numbers, of rank 2 or more.
      s: the sizes that are transformed; by default those of `a`. `a` is cut or padded with zeros.
      axes: two axes.
      norm: "backward" (None), "ortho" or "forward", as for `fft`, with the product of the sizes.

    Returns complex64 or complex128, with the sizes `s` along the axes, but m // 2 + 1 along the last one.

    Errors: TypeError for what is no array; ValueError for sizes below 1, another number of sizes than of axes,
    repeated axes or axes out of bounds, an unknown norm, other than two axes and complex or 16-bit `a`.

    >>> jnp.fft.rfft2(jnp.eye(2))
    Array([[2.+0.j, 0.+0.j],
           [0.+0.j, 2.+0.j]], dtype=complex64)
    """
    return _transform_2d("rfft2", FftType.RFFT, a, s, axes, norm)


def rfftn(
    a: ArrayLike,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str | None = None,
) -> Array:
    """`rfft` along the last of axes, then `fft` along the others: half of the transform of real numbers.

    Args:
      a: array of real numbers, of any rank.
      s: the sizes that are transformed; by default those of `a`. `a` is cut or padded with zeros.
      axes: the axes; by default the last `len(s)` ones, or all.
      norm: "backward" (None), "ortho" or "forward", as for `fft`, with the product of the sizes.

    Returns complex64 or complex128, with the sizes `s` along the axes, but m // 2 + 1 along the last one.

    Errors: TypeError for what is no array; ValueError for sizes below 1, another number of sizes than of axes,
    repeated axes or axes out of bounds, an unknown norm and complex or 16-bit `a`.

    >>> jnp.fft.rfftn(jnp.eye(2))
    Array([[2.+0.j, 0.+0.j],
           [0.+0.j, 2.+0.j]], dtype=complex64)
    """
    return _transform("rfftn", FftType.RFFT, a, s, axes, norm)


def irfft2(
    a: ArrayLike,
    s: Sequence[int] | None = None,
    axes: Sequence[int] = (-2, -1),
    norm: str | None = None,
) -> Array:
    """The real numbers whose `rfft2` over two axes this is.

    Args:
      a: array, of rank 2 or more.
      s: the sizes of the result along the axes; by default those of `a`, the last one
        2 * (m - 1) for size m. `a` is cut or padded with zeros.
      axes: two axes.
      norm: "backward" (None), "ortho" or "forward", as for `fft`, with the product of the sizes.

    Returns float32 or float64, with the sizes `s` along the axes.

    Errors: TypeError for what is no array; ValueError for sizes below 1, another number of sizes than of axes,
    repeated axes or axes out of bounds, an unknown norm, other than two axes.

    >>> jnp.fft.irfft2(4 * jnp.eye(2))
    Array([[2., 0.],
           [0., 2.]], dtype=float32)
    """
    return _transform_2d("irfft2", FftType.IRFFT, a, s, axes, norm)


def irfftn(
    a: ArrayLike,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str | None = None,
) -> Array:
    """The real numbers whose `rfftn` over axes this is.

    Args:
      a: array, of any rank.
      s: the sizes of the result along the axes; by default those of `a`, the last one
        2 * (m - 1) for size m. `a` is cut or padded with zeros.
      axes: the axes; by default the last `len(s)` ones, or all.
      norm: "backward" (None), "ortho" or "forward", as for `fft`, with the product of the sizes.

    Returns float32 or float64, with the sizes `s` along the axes.

    Errors: TypeError for what is no array; ValueError for sizes below 1, another number of sizes than of axes,
    repeated axes or axes out of bounds, an unknown norm.

    >>> jnp.fft.irfftn(4 * jnp.eye(2))
    Array([[2., 0.],
           [0., 2.]], dtype=float32)
    """
    return _transform("irfftn", FftType.IRFFT, a, s, axes, norm)


def fftfreq(
    n: int, d: ArrayLike = 1.0, *, dtype: DTypeLike | None = None, device: Any = None
) -> Array:
    """The frequencies of the elements of `fft`: 0, 1, ..., -2, -1, divided by n * d.

    Args: n: the length that is transformed; d: the distance of samples, a scalar; dtype: of the
    result, by default float32 (float64 with 64-bit types); device: where to put it.
    Returns: n numbers, of which the upper n // 2 are the negative frequencies.
    Errors: ValueError for a list or tuple as n or d.

    >>> jnp.fft.fftfreq(4)
    Array([ 0.  ,  0.25, -0.5 , -0.25], dtype=float32)
    """
    _check_scalars("fftfreq", n, d)
    out = np.dtype(dtypes.default_float_dtype() if dtype is None else dtype)
    real = dtypes.to_floating_dtype(out)
    places = arange(n, dtype=real, device=device)
    upper = lax.ge(places, as_array(np.asarray((n + 1) // 2, real)))
    signed = lax.select(upper, lax.sub(places, as_array(np.asarray(n, real))), places)
    return lax.convert_element_type(lax.div(signed, _period(n, d, signed)), out)


def rfftfreq(
    n: int, d: ArrayLike = 1.0, *, dtype: DTypeLike | None = None, device: Any = None
) -> Array:
    """The frequencies of the elements of `rfft`: 0, 1, ..., n // 2, divided by n * d.

    Args: n: the length that is transformed; d: the distance of samples, a scalar; dtype: of the
    result, by default float32 (float64 with 64-bit types); device: where to put it.
    Returns: n // 2 + 1 numbers.
    Errors: ValueError for a list or tuple as n or d.

    >>> jnp.fft.rfftfreq(4)
    Array([0.  , 0.25, 0.5 ], dtype=float32)
    """
    _check_scalars("rfftfreq", n, d)
    places = arange(
        n // 2 + 1, dtype=dtypes.default_float_dtype() if dtype is None else dtype, device=device
    )
    return ufuncs.true_divide(places, _period(n, d, places))


def _check_scalars(name: str, n: Any, d: Any) -> None:
    for argument, value in (("n", n), ("d", d)):
        if isinstance(value, (list, tuple)):
            kind = "an int" if argument == "n" else "a single value"
            raise ValueError(
                f"The {argument} argument of jnp.fft.{name} only takes {kind}. Got {argument} ="
                f" {list(value)}."
            )


def _period(n: int, d: ArrayLike, like: Array) -> Array:
    return lax.broadcast(array(d * n, dtype=like.dtype), tuple(like.shape))


def fftshift(x: ArrayLike, axes: int | Sequence[int] | None = None) -> Array:
    """Moves the element of frequency 0 to the middle of axes: `roll` by half of their sizes.

    Args: x: array; axes: an axis or several, by default all.
    Errors: TypeError for what is no array; an axis out of bounds is an IndexError.

    >>> jnp.fft.fftshift(jnp.array([0, 1, 2, -2, -1]))
    Array([-2, -1,  0,  1,  2], dtype=int32)
    """
    return _shifted("fftshift", x, axes, 1)


def ifftshift(x: ArrayLike, axes: int | Sequence[int] | None = None) -> Array:
    """Undoes `fftshift`, which it differs from along axes of odd sizes.

    Args: x: array; axes: an axis or several, by default all.
    Errors: TypeError for what is no array; an axis out of bounds is an IndexError.

    >>> jnp.fft.ifftshift(jnp.array([-2, -1, 0, 1, 2]))
    Array([ 0,  1,  2, -2, -1], dtype=int32)
    """
    return _shifted("ifftshift", x, axes, -1)


def _shifted(name: str, x: ArrayLike, axes: int | Sequence[int] | None, sign: int) -> Array:
    x = ensure_array(x, f"jnp.fft.{name}")
    if axes is None:
        axes = tuple(range(x.ndim))
    elif isinstance(axes, int):
        axes = (axes,)
    return roll(x, np.array([sign * (x.shape[axis] // 2) for axis in axes], int), tuple(axes))
