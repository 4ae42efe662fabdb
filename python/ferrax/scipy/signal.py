"""Signals: convolution, spectra, trends."""

from ferrax._src.base import public as _public
from ferrax._src.scipy.convolution import (
    convolve as convolve,
    convolve2d as convolve2d,
    correlate as correlate,
    correlate2d as correlate2d,
    fftconvolve as fftconvolve,
)
from ferrax._src.scipy.spectral import (
    csd as csd,
    detrend as detrend,
    istft as istft,
    stft as stft,
    welch as welch,
)

_public.export(__name__)
