"""``ferrax.experimental.pallas.ops.tpu.paged_attention.util``: what attention to pages is compared with."""

from ferrax._src.base import public as _public
from ferrax._src.pallas.ops.flash import MASK_VALUE as MASK_VALUE
from ferrax._src.pallas.ops.tpu_paged import (
    grouped_query_attention_reference as grouped_query_attention_reference,
)

_public.export(__name__)
