"""Cosine transforms of ferrax arrays."""

from ferrax._src.base import public as _public
from ferrax._src.scipy.fft import (
    dct as dct,
    dctn as dctn,
    idct as idct,
    idctn as idctn,
)

_public.export(__name__)
