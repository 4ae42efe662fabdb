"""``ferrax.experimental.pallas.ops.tpu.flash_attention``: multi-head attention, the heads before the sequence."""

from ferrax._src.base import public as _public
from ferrax._src.pallas.ops.tpu_flash import (
    BlockSizes as BlockSizes,
    SegmentIds as SegmentIds,
    flash_attention as flash_attention,
    mha_reference as mha_reference,
    mha_reference_no_custom_vjp as mha_reference_no_custom_vjp,
)

_public.export(__name__)
