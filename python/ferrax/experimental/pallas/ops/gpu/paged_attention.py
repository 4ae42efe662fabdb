"""``ferrax.experimental.pallas.ops.gpu.paged_attention``: attention of one new position to pages of keys."""

from ferrax._src.base import public as _public
from ferrax._src.pallas.ops.gpu_decode import (
    paged_attention as paged_attention,
    paged_attention_reference as paged_attention_reference,
)

_public.export(__name__)
