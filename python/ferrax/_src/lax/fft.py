"""``lax.fft``: discrete Fourier transforms of the last axes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ferrax._core import Array, bind
from ferrax._src.base import dtypes
from ferrax._src.core.op_types import FftType
from ferrax._src.core.typing import ArrayLike
from ferrax._src.lax.arguments import operand as _operand
from ferrax._src.lax.elementwise import convert_element_type

__all__ = ["fft"]


def fft(x: ArrayLike, fft_type: FftType | str, fft_lengths: Sequence[int]) -> Array:
    """Discrete Fourier transforms over the last axes, as many as there are lengths: 1, 2 or 3.

    Forward transforms are the sums ``X[k] = sum(x[j] * exp(-2j * pi * j * k / n))``, inverse ones have
    the other sign and are divided by n; several axes are transformed one after the other. For real
    numbers ``X[n - k]`` is the conjugate of ``X[k]``: `RFFT` gives, and `IRFFT` takes, only the first
    ``n // 2 + 1`` along the last axis. Computed in O(n log n) for any n (Cooley and Tukey, 1965;
    Bluestein, 1970).

    Args:
      x: array (..., n1, n2); converted to complex64 or complex128, for `RFFT` to floats.
      fft_type: an `FftType`, or its name.
      fft_lengths: n1, n2 and so on. For `IRFFT` the last one is that of the result, and that axis of
        ``x`` has size ``n // 2 + 1``. Without lengths the result is ``x``, converted.

    Returns a complex array, for `IRFFT` a real one.

    Errors: ValueError for an unknown name, complex ``x`` with `RFFT`, more than 3 lengths and lengths
    that are not those of ``x``; TypeError for another type of ``fft_type``.

    >>> lax.fft(jnp.array([1.0, 0.0, 0.0, 0.0]), "rfft", (4,)).real
    Array([1., 1., 1.], dtype=float32)
    """
    kind = _fft_type(fft_type)
    x = _operand(x, "fft")
    if kind is FftType.RFFT:
        if dtypes.issubdtype(x.dtype, np.complexfloating):
            raise ValueError(
                f"rfft: expected real numbers, got dtype {x.dtype}; use fft, or pass the real part"
            )
        x = convert_element_type(x, dtypes.to_inexact_dtype(x.dtype))
    else:
        x = convert_element_type(x, dtypes.to_complex_dtype(x.dtype))
    if len(fft_lengths) == 0:
        return x
    return bind("fft", (x,), {"fft_lengths": tuple(fft_lengths), "fft_type": int(kind)})


def _fft_type(fft_type: FftType | str) -> FftType:
    if isinstance(fft_type, FftType):
        return fft_type
    if not isinstance(fft_type, str):
        raise TypeError(f"Unknown FFT type value {fft_type!r}; expected a lax.FftType or its name")
    # "fft" and "FFT", not "Fft".
    if fft_type.upper() in FftType.__members__ and fft_type in (fft_type.upper(), fft_type.lower()):
        return FftType[fft_type.upper()]
    raise ValueError(
        f"Unknown FFT type '{fft_type}'; expected one of {', '.join(FftType.__members__)}"
    )
