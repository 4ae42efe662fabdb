"""``ferrax.experimental.pallas.ops.gpu.decode_attention``: attention of one new position."""

from ferrax._src.base import public as _public
from ferrax._src.pallas.ops.gpu_decode import (
    gqa as gqa,
    gqa_reference as gqa_reference,
    mha_reference as mha_reference,
    mqa as mqa,
    mqa_reference as mqa_reference,
)

_public.export(__name__)
