"""``ferrax.experimental.pallas.ops.gpu.layer_norm``: layer normalisation."""

from ferrax._src.base import public as _public
from ferrax._src.pallas.ops.gpu_normalisation import (
    layer_norm as layer_norm,
    layer_norm_reference as layer_norm_reference,
)

_public.export(__name__)
