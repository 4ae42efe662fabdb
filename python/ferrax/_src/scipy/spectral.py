"""Spectra of signals and trends in them: what `ferrax.scipy.signal` has of these.

A signal is cut into segments that may overlap; each is multiplied by a window and transformed.
Welch's estimate of the power (IEEE Transactions on Audio and Electroacoustics 15, 1967) is the average of
the squared magnitudes; the inverse transform adds the segments up again, divided by the sum of squared
windows (Griffin and Lim, IEEE Transactions on Acoustics, Speech, and Signal Processing 32, 1984).
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ferrax._src.base import dtypes
from ferrax._src.base.errors import user_stacklevel
from ferrax._src.core import Array, as_array, concrete_or_error
from ferrax._src.core.typing import ArrayLike
from ferrax._src.lax import api as lax
from ferrax._src.lax.arguments import canonical_axis
from ferrax._src.numpy import api as jnp, fft
from ferrax._src.numpy.util import ensure_array, ensure_arrays, promote_dtypes_inexact

_BOUNDARIES = ("even", "odd", "constant", "zeros", None)


def _is_complex(x: Array) -> bool:
    return dtypes.issubdtype(x.dtype, np.complexfloating)


def detrend(
    data: ArrayLike,
    axis: int = -1,
    type: str = "linear",
    bp: int | Sequence[int] | np.ndarray = 0,
    overwrite_data: None = None,
) -> Array:
    """Subtracts the mean, or the straight lines that fit best, along an axis.

    Args:
      data: array of any rank; integers become floats.
      axis: the axis of the signal.
      type: "constant" or "linear".
      bp: where further lines begin, for "linear": static positions.
      overwrite_data: None.

    Returns floats or complex numbers in the shape of `data`.

    Errors: ValueError for another type and positions outside of the axis; NotImplementedError for
    another `overwrite_data`.

    Source: lines are those of least squares, in closed form.

    >>> ferrax.scipy.signal.detrend(jnp.array([1.0, 2.0, 4.0]), type="constant").round(3)
    Array([-1.333, -0.333,  1.667], dtype=float32)
    """
    if overwrite_data is not None:
        raise NotImplementedError("detrend: arrays are immutable: overwrite_data has to be None")
    if type not in ("constant", "linear"):
        raise ValueError(f"detrend: type must be 'linear' or 'constant', got {type!r}")
    (x,) = promote_dtypes_inexact(jnp.asarray(data))
    if type == "constant":
        return x - x.mean(axis, keepdims=True)
    size = x.shape[axis]
    bounds = np.unique(np.concatenate([[0, size], np.ravel(bp)])).astype(int)
    if bounds[0] < 0 or bounds[-1] > size:
        raise ValueError(
            f"detrend: breakpoints must be within 0 and {size}, the size of the axis, got {bp}"
        )
    x = jnp.moveaxis(x, axis, -1)
    parts = [_without_line(x[..., a:b]) for a, b in zip(bounds, bounds[1:])]
    return jnp.moveaxis(jnp.concatenate(parts, -1), -1, axis) if parts else x


def _along_last(values: Array, x: Array) -> Array:
    """A vector of the dtype of `x`, with as many axes: nothing is promoted where settings forbid it."""
    return values.reshape((1,) * (x.ndim - 1) + (-1,)).astype(x.dtype)


def _without_line(x: Array) -> Array:
    """`x` less the line of least squares along its last axis."""
    n = x.shape[-1]
    x = x - x.mean(-1, keepdims=True)
    if n < 2:
        return x
    # In times around 0 the line has no constant part.
    times = np.arange(n) - (n - 1) / 2
    unit = _along_last(as_array((times / np.sqrt(np.sum(times * times))).astype(x.dtype)), x)
    return x - jnp.sum(x * unit, -1, keepdims=True) * unit


def _window(window: ArrayLike | str | tuple[Any, ...], size: int, dtype: Any, name: str) -> Array:
    """The window of this size. That named "hann" is `sin(pi j / n) ** 2`; others are SciPy's."""
    if isinstance(window, str) and window == "hann":
        hann = np.ones(1) if size == 1 else np.sin(np.pi * np.arange(size) / size) ** 2
        return jnp.array(hann, dtype=dtype)
    if isinstance(window, (str, tuple)):
        try:
            # SciPy is needed here alone, and is no dependency.
            from scipy.signal import get_window  # type: ignore[import-untyped]  # SciPy has no stubs
        except ImportError as error:
            raise ImportError(
                f"{name}: scipy must be installed for window={window!r}; or pass an array"
            ) from error
        return jnp.array(get_window(window, size), dtype=dtype)
    values = jnp.asarray(window, dtype=dtype)
    if values.ndim != 1:
        raise ValueError(f"{name}: window must be 1-D, got shape {tuple(values.shape)}")
    return values


def _static(value: Any, name: str, what: str) -> int:
    return concrete_or_error(int, value, f"{what} of {name} has to be known while tracing.")


def _extended(x: Array, boundary: str | None, n: int) -> Array:
    """`x` with n more elements at both ends of its last axis."""
    if boundary is None or n < 1:
        return x
    if boundary == "odd":
        if n > x.shape[-1] - 1:
            raise ValueError(
                f"boundary='odd' continues x by {n} reflected elements, of which {x.shape[-1]} give"
                f" {x.shape[-1] - 1} at most; pass a longer x or another boundary."
            )
        left = 2 * x[..., :1] - jnp.flip(x[..., 1 : n + 1], -1)
        right = 2 * x[..., -1:] - jnp.flip(x[..., -(n + 1) : -1], -1)
        return jnp.concatenate([left, x, right], -1)
    mode = {"even": "reflect", "constant": "edge", "zeros": "constant"}[boundary]
    return jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(n, n)], mode)


def _segments(x: Array, size: int, step: int) -> Array:
    """Windows of the last axis, as rows: (..., segments, size)."""
    count = (x.shape[-1] - size) // step + 1
    if size % step == 0:
        # Segments are made of blocks of `step` elements.
        blocks = count - 1 + size // step
        x = lax.reshape(x[..., : blocks * step], (*x.shape[:-1], blocks, step))
        parts = [x[..., start : start + count, :] for start in range(size // step)]
        return jnp.concatenate(parts, -1)
    places = np.arange(count)[:, None] * step + np.arange(size)
    return x[..., places]


def _detrending(detrend_type: Any, axis: int) -> Callable[[Array], Array]:
    if isinstance(detrend_type, str):
        return lambda rows: detrend(rows, type=detrend_type, axis=-1)
    if callable(detrend_type):
        if axis == -1:
            return detrend_type
        return lambda rows: jnp.moveaxis(detrend_type(jnp.moveaxis(rows, axis, -1)), -1, axis)
    if not detrend_type:
        return lambda rows: rows
    raise ValueError(f"Unsupported detrend type: {detrend_type!r}")


def _spectra(
    name: str,
    x: Array,
    y: ArrayLike | None,
    fs: ArrayLike,
    window: Any,
    nperseg: int | None,
    noverlap: int | None,
    nfft: int | None,
    detrend_type: Any,
    return_onesided: bool,
    scaling: str,
    axis: int,
    boundary: str | None = None,
    padded: bool = False,
    power: bool = True,
) -> tuple[Array, Array, Array]:
    """Frequencies, times, and the spectra of all segments: power, or transforms."""
    if boundary not in _BOUNDARIES:
        raise ValueError(
            f"Unknown boundary option {boundary!r}, must be one of: {list(_BOUNDARIES)}"
        )
    axis = concrete_or_error(operator.index, axis, f"The axis of {name}.")
    signals = ensure_arrays(name, x) if y is None else ensure_arrays(name, x, y)
    axis = canonical_axis(axis, signals[0].ndim)
    signals = tuple(promote_dtypes_inexact(*signals))
    x = signals[0]
    if signals[-1].ndim != x.ndim:
        raise ValueError(
            f"{name}: both signals need the same rank, got shapes {tuple(x.shape)} and"
            f" {tuple(signals[-1].shape)}"
        )
    outer = [[size for i, size in enumerate(s.shape) if i != axis] for s in signals]
    try:
        outer_shape = jnp.broadcast_shapes(*map(tuple, outer))
    except ValueError as error:
        raise ValueError(
            f"{name}: the axes beside axis {axis} do not broadcast: x has shape {tuple(x.shape)}, y"
            f" {tuple(signals[-1].shape)}"
        ) from error
    complex_dtype = dtypes.to_complex_dtype(x.dtype)
    real_dtype = dtypes.finfo(complex_dtype).dtype

    length = x.shape[axis]
    size, win = _segment_size(name, window, nperseg, length, x.dtype)
    overlap = size // 2 if noverlap is None else _static(noverlap, name, "noverlap")
    count = size if nfft is None else _static(nfft, name, "nfft")
    if any(s.size == 0 for s in signals):
        shape = list(outer_shape)
        shape.insert(axis, min(s.shape[axis] for s in signals))
        real = jnp.zeros(shape, real_dtype)
        return real, real, jnp.zeros(shape, complex_dtype)
    if count < size:
        raise ValueError(f"{name}: nfft must be at least nperseg, got {count} and {size}")
    if overlap >= size:
        raise ValueError(f"{name}: noverlap must be less than nperseg, got {overlap} and {size}")
    step = size - overlap
    longest = max(s.shape[axis] for s in signals)
    onesided = return_onesided
    if return_onesided and any(map(_is_complex, signals)):
        warnings.warn(
            "spectra of complex signals have two sides: return_onesided=True is ignored",
            stacklevel=user_stacklevel(),
        )
        onesided = False
    remove_trend = _detrending(detrend_type, axis)

    def transformed(signal):
        signal = jnp.moveaxis(signal, axis, -1)
        ends = [(0, 0)] * (signal.ndim - 1)
        signal = jnp.pad(signal, [*ends, (0, longest - signal.shape[-1])])
        signal = _extended(signal, boundary, size // 2)
        if padded:
            signal = jnp.pad(signal, [*ends, (0, -(signal.shape[-1] - size) % step % size)])
        rows = remove_trend(_segments(signal, size, step))
        rows = _along_last(win, rows) * rows
        turned = fft.rfft(rows.real, count) if onesided else fft.fft(rows, count)
        return turned, signal.shape[-1]

    result, total = transformed(x)
    if power:
        other = result if y is None else transformed(signals[1])[0]
        result = jnp.conjugate(result) * other
    if scaling == "density":
        scale = 1.0 / (fs * jnp.sum(win * win))
    elif scaling == "spectrum":
        scale = 1.0 / jnp.sum(win) ** 2
    else:
        raise ValueError(f"Unknown scaling: {scaling!r}; expected 'density' or 'spectrum'")
    result = result * (scale if power else jnp.sqrt(scale)).astype(result.dtype)
    if onesided and power:
        # Each frequency stands for its negative, too; 0 and the last of an even number have none.
        twice = np.full(result.shape[-1], 2)
        twice[0] = 1
        if count % 2 == 0:
            twice[-1] = 1
        result = result * _along_last(as_array(twice.astype(real_dtype)), result)

    frequencies = (fft.rfftfreq if onesided else fft.fftfreq)(count, 1 / fs, dtype=real_dtype)
    times = jnp.arange(size / 2, total - size / 2 + 1, step, dtype=real_dtype) / fs
    if boundary is not None:
        times = times - (size / 2) / fs
    result = result.astype(complex_dtype)
    if y is None and power:
        result = result.real
    return frequencies, times, jnp.moveaxis(result, -1, axis)


def _segment_size(
    name: str, window: Any, nperseg: int | None, length: int, dtype: Any
) -> tuple[int, Array]:
    """The size of segments and the window."""
    size = None if nperseg is None else _static(nperseg, name, "nperseg")
    if size is not None and size < 1:
        raise ValueError(f"{name}: nperseg must be a positive integer, got {size}")
    if isinstance(window, (str, tuple)):
        if size is None:
            size = length
        if size > length:
            warnings.warn(
                f"nperseg={size} is greater than input_length={length}, using nperseg={length}",
                stacklevel=user_stacklevel(),
            )
            size = length
        return size, _window(window, size, dtype, name)
    win = _window(window, 0, dtype, name)
    if length < win.size:
        raise ValueError(f"{name}: window is longer than input signal: {win.size} and {length}")
    if size is not None and size != win.size:
        raise ValueError(
            f"{name}: value specified for nperseg, {size}, is different from length of window,"
            f" {win.size}"
        )
    return win.size, win


def stft(
    x: Array,
    fs: ArrayLike = 1.0,
    window: str | tuple[Any, ...] | ArrayLike = "hann",
    nperseg: int = 256,
    noverlap: int | None = None,
    nfft: int | None = None,
    detrend: bool | str | Callable[[Array], Array] = False,
    return_onesided: bool = True,
    boundary: str | None = "zeros",
    padded: bool = True,
    axis: int = -1,
) -> tuple[Array, Array, Array]:
    """The short-time Fourier transform: spectra of overlapping segments of a signal.

    Args:
      x: array of any rank.
      fs: the sampling frequency.
      window: the name of a window, "hann" or one that `scipy.signal.get_window` knows, with its
        parameters as a tuple; or an array.
      nperseg, noverlap, nfft: the size of segments, by default that of a window that is an array;
        how much they overlap, by default half; the length that is transformed, by default `nperseg`.
      detrend: a type for `detrend`, a function of segments (..., nperseg), or False.
      return_onesided: whether only frequencies that are not negative are given, for real signals.
      boundary: how both ends are extended by half a segment: "even", "odd", "constant", "zeros",
        or None for not at all.
      padded: whether zeros are added for the last segment.
      axis: the axis of time.

    Returns frequencies (f,), times of the middles of segments (t,), and the transforms: frequencies
    along `axis`, times last.

    Errors: ValueError for sizes and names that do not fit; ImportError for other windows without
    SciPy. Warns for segments longer than the signal and for complex signals with one side.

    >>> f, t, z = ferrax.scipy.signal.stft(jnp.ones(16), nperseg=8)
    >>> z.shape
    (5, 5)
    """
    return _spectra(
        "stft",
        x,
        None,
        fs,
        window,
        nperseg,
        noverlap,
        nfft,
        detrend,
        return_onesided,
        "spectrum",
        axis,
        boundary,
        padded,
        power=False,
    )


def csd(
    x: Array,
    y: ArrayLike | None,
    fs: ArrayLike = 1.0,
    window: str | tuple[Any, ...] | ArrayLike = "hann",
    nperseg: int | None = None,
    noverlap: int | None = None,
    nfft: int | None = None,
    detrend: bool | str | Callable[[Array], Array] = "constant",
    return_onesided: bool = True,
    scaling: str = "density",
    axis: int = -1,
    average: str = "mean",
) -> tuple[Array, Array]:
    """The cross spectrum of two signals, as a density of power, by Welch's method.

    Args:
      x, y: arrays whose other axes broadcast; the shorter one is filled with zeros. For None as `y`
        the power of `x` is given.
      fs, window, nperseg, noverlap, nfft, detrend, return_onesided, axis: as for `stft`; segments are
        by default as long as the signal.
      scaling: "density", power per frequency, or "spectrum", power.
      average: "mean" of segments, or "median", divided by its bias (B. Allen et al., Physical Review
        D 85, 122006, 2012, appendix B).

    Returns frequencies (f,) and the estimates, frequencies along `axis`; complex for two signals.

    Errors: those of `stft`, and ValueError for another scaling or average.

    >>> f, p = ferrax.scipy.signal.csd(jnp.arange(8.0), jnp.ones(8), nperseg=4)
    >>> p.shape
    (3,)
    """
    frequencies, _, power = _spectra(
        "csd", x, y, fs, window, nperseg, noverlap, nfft, detrend, return_onesided, scaling, axis
    )
    if power.ndim < 2 or power.size == 0:
        return frequencies, power
    segments = power.shape[-1]
    if segments == 1:
        return frequencies, jnp.squeeze(power, -1)
    if average == "mean":
        return frequencies, power.mean(-1)
    if average != "median":
        raise ValueError(f'csd: average must be "median" or "mean", got {average!r}')
    evens = np.arange(2.0, segments, 2)
    bias = float(1 + np.sum(1 / (evens + 1) - 1 / evens))
    if _is_complex(power):
        middle = lax.complex(jnp.median(power.real, -1), jnp.median(power.imag, -1))
    else:
        middle = jnp.median(power, -1)
    return frequencies, middle / bias


def welch(
    x: Array,
    fs: ArrayLike = 1.0,
    window: str | tuple[Any, ...] | ArrayLike = "hann",
    nperseg: int | None = None,
    noverlap: int | None = None,
    nfft: int | None = None,
    detrend: bool | str | Callable[[Array], Array] = "constant",
    return_onesided: bool = True,
    scaling: str = "density",
    axis: int = -1,
    average: str = "mean",
) -> tuple[Array, Array]:
    """The power spectral density of a signal, by Welch's method: `csd` of `x` with itself.

    Args: x, fs, window, nperseg, noverlap, nfft, detrend, return_onesided, scaling, axis, average: as
    for `csd`, with its errors.

    Source: P. Welch, IEEE Transactions on Audio and Electroacoustics 15, 1967.

    >>> f, p = ferrax.scipy.signal.welch(jnp.arange(8.0), nperseg=4)
    >>> p.shape
    (3,)
    """
    frequencies, power = csd(
        x,
        None,
        fs,
        window,
        nperseg,
        noverlap,
        nfft,
        detrend,
        return_onesided,
        scaling,
        axis,
        average,
    )
    return frequencies, power.real


def _overlapped(rows: Array, step: int) -> Array:
    """The sum of rows (..., segments, size), each `step` elements after the one before."""
    *batch, count, size = rows.shape
    blocks = -(-size // step)
    ends = [(0, 0)] * len(batch)
    rows = jnp.pad(rows, [*ends, (0, 0), (0, blocks * step - size)])
    rows = jnp.moveaxis(rows.reshape(*batch, count, blocks, step), -2, -3)
    # Block b of a segment comes b places later: in rows that are one shorter than they are long,
    # each begins one place after the one before.
    rows = jnp.pad(rows, [*ends, (0, 0), (0, blocks), (0, 0)])
    rows = rows.reshape(*batch, blocks * (count + blocks), step)
    places = count + blocks - 1
    rows = rows[..., : blocks * places, :].reshape(*batch, blocks, places, step)
    total = jnp.sum(rows, axis=-3).reshape(*batch, places * step)
    return total[..., : step * (count - 1) + size]


def istft(
    Zxx: Array,
    fs: ArrayLike = 1.0,
    window: str | tuple[Any, ...] | ArrayLike = "hann",
    nperseg: int | None = None,
    noverlap: int | None = None,
    nfft: int | None = None,
    input_onesided: bool = True,
    boundary: bool = True,
    time_axis: int = -1,
    freq_axis: int = -2,
) -> tuple[Array, Array]:
    """The inverse of `stft`: the signal whose segments' transforms are closest to these.

    Args:
      Zxx: array of rank 2 or more.
      fs, window, noverlap: as for `stft`.
      nperseg: the size of segments, by default what the number of frequencies says.
      nfft: the length that was transformed.
      input_onesided: whether there are only frequencies that are not negative.
      boundary: whether the ends had been extended by half a segment, which is cut off.
      time_axis, freq_axis: the axes of segments and of frequencies.

    Returns times and the signal, the time along `time_axis`.

    Errors: ValueError for another rank, one axis for both, and sizes that do not fit.

    Source: D. Griffin and J. Lim, IEEE Transactions on Acoustics, Speech, and Signal Processing 32,
    1984.

    >>> x = jnp.arange(16.0)
    >>> _, _, z = ferrax.scipy.signal.stft(x, nperseg=8)
    >>> bool(jnp.allclose(ferrax.scipy.signal.istft(z, nperseg=8)[1], x, atol=1e-4))
    True
    """
    z = ensure_array(Zxx, "istft")
    if z.ndim < 2:
        raise ValueError(f"istft: expected axes of frequencies and times, got shape {tuple(z.shape)}")
    freq_axis, time_axis = canonical_axis(freq_axis, z.ndim), canonical_axis(time_axis, z.ndim)
    if freq_axis == time_axis:
        raise ValueError(f"istft: time_axis and freq_axis are both {freq_axis}")
    z = lax.convert_element_type(z, dtypes.to_complex_dtype(z.dtype))
    frequencies = z.shape[freq_axis]
    natural = 2 * (frequencies - 1) if input_onesided else frequencies
    size = _static(nperseg or natural, "istft", "nperseg")
    if size < 1:
        raise ValueError(f"istft: nperseg must be a positive integer, got {size}")
    if nfft is None:
        count = natural + (1 if input_onesided and size == natural + 1 else 0)
    else:
        count = _static(nfft, "istft", "nfft")
    if count < size:
        raise ValueError(f"istft: FFT length ({count}) must be longer than nperseg ({size})")
    overlap = _static(noverlap or size // 2, "istft", "noverlap")
    if overlap >= size:
        raise ValueError(f"istft: noverlap must be less than nperseg, got {overlap} and {size}")

    z = jnp.moveaxis(z, (time_axis, freq_axis), (-2, -1))
    rows = (fft.irfft if input_onesided else fft.ifft)(z, count)[..., :size]
    win = _window(window, size, rows.dtype, "istft")
    if win.size != size:
        raise ValueError(f"istft: window must have length of {size}, got {win.size}")
    step = size - overlap
    x = _overlapped(rows * jnp.sum(win) * _along_last(win, rows), step)
    norm = _overlapped(jnp.broadcast_to(win * win, (z.shape[-2], size)), step)
    if boundary:
        x, norm = x[..., size // 2 : -(size // 2)], norm[..., size // 2 : -(size // 2)]
    x = x / _along_last(jnp.where(norm.real > 1e-10, norm, 1.0), x)
    if x.ndim > 1:
        x = jnp.moveaxis(x, -1, time_axis - (1 if freq_axis < time_axis else 0))
    return jnp.arange(x.shape[0], dtype=dtypes.finfo(x.dtype).dtype) / fs, x
