"""``ferrax.experimental.pallas.ops.tpu.splash_attention.splash_attention_kernel``: attention under masks."""

from ferrax._src.base import public as _public
from ferrax._src.pallas.ops.splash import (
    BlockSizes as BlockSizes,
    QKVLayout as QKVLayout,
    SegmentIds as SegmentIds,
    SplashAttentionKernel as SplashAttentionKernel,
    attention_reference as attention_reference,
    make_masked_mha_reference as make_masked_mha_reference,
    make_masked_mqa_reference as make_masked_mqa_reference,
    make_splash_mha as make_splash_mha,
    make_splash_mha_single_device as make_splash_mha_single_device,
    make_splash_mqa as make_splash_mqa,
    make_splash_mqa_single_device as make_splash_mqa_single_device,
)

_public.export(__name__)
