"""``ferrax.experimental.pallas.ops.gpu.softmax``: the softmax along the last axis."""

from ferrax._src.base import public as _public
from ferrax._src.pallas.ops.gpu_normalisation import softmax as softmax

_public.export(__name__)
