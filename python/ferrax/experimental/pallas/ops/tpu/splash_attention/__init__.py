"""``ferrax.experimental.pallas.ops.tpu.splash_attention``: attention under masks that are known."""

from ferrax._src.base import public as _public
from ferrax._src.pallas.ops.splash import (
    BlockSizes as BlockSizes,
    QKVLayout as QKVLayout,
    SegmentIds as SegmentIds,
    make_masked_mha_reference as make_masked_mha_reference,
    make_masked_mqa_reference as make_masked_mqa_reference,
    make_splash_mha as make_splash_mha,
    make_splash_mha_single_device as make_splash_mha_single_device,
    make_splash_mqa as make_splash_mqa,
    make_splash_mqa_single_device as make_splash_mqa_single_device,
)
from ferrax._src.pallas.ops.splash_masks import (
    CausalMask as CausalMask,
    FullMask as FullMask,
    LocalMask as LocalMask,
    Mask as Mask,
    MultiHeadMask as MultiHeadMask,
    NumpyMask as NumpyMask,
    make_causal_mask as make_causal_mask,
    make_local_attention_mask as make_local_attention_mask,
    make_random_mask as make_random_mask,
)

_public.export(__name__)
