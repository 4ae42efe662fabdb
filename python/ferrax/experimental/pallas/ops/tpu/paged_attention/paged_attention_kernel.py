"""``ferrax.experimental.pallas.ops.tpu.paged_attention.paged_attention_kernel``: attention to pages of keys."""

from ferrax._src.base import public as _public
from ferrax._src.pallas.ops.tpu_paged import paged_attention as paged_attention

_public.export(__name__)
