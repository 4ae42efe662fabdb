"""``ferrax.experimental.pallas.ops.tpu.splash_attention.splash_attention_mask_info``: a mask's blocks."""

from ferrax._src.base import public as _public
from ferrax._src.pallas.ops.splash_mask_info import (
    MaskInfo as MaskInfo,
    process_dynamic_mask as process_dynamic_mask,
    process_dynamic_mask_dkv as process_dynamic_mask_dkv,
    process_mask as process_mask,
    process_mask_dkv as process_mask_dkv,
)

_public.export(__name__)
