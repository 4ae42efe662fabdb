"""``ferrax.experimental.pallas.ops.tpu.splash_attention.splash_attention_mask``: masks of attention, block by block."""

from ferrax._src.base import public as _public
from ferrax._src.pallas.ops.splash_masks import (
    CausalMask as CausalMask,
    ChunkedCausalMask as ChunkedCausalMask,
    FullMask as FullMask,
    LocalMask as LocalMask,
    LogicalAnd as LogicalAnd,
    LogicalOr as LogicalOr,
    Mask as Mask,
    MultiHeadMask as MultiHeadMask,
    NumpyMask as NumpyMask,
    make_causal_mask as make_causal_mask,
    make_chunk_attention_mask as make_chunk_attention_mask,
    make_local_attention_mask as make_local_attention_mask,
    make_random_mask as make_random_mask,
)

_public.export(__name__)
