"""``ferrax.experimental.pallas.ops.gpu.attention``: multi-head attention, the sequence before the heads."""

from ferrax._src.base import public as _public
from ferrax._src.pallas.ops.gpu_attention import (
    DEFAULT_MASK_VALUE as DEFAULT_MASK_VALUE,
    BlockSizes as BlockSizes,
    mha as mha,
    mha_reference as mha_reference,
    segment_mask as segment_mask,
)

_public.export(__name__)
