"""``ferrax.experimental.pallas.ops.gpu.rms_norm``: normalisation by the root of the mean of squares."""

from ferrax._src.base import public as _public
from ferrax._src.pallas.ops.gpu_normalisation import (
    rms_norm as rms_norm,
    rms_norm_reference as rms_norm_reference,
)

_public.export(__name__)
