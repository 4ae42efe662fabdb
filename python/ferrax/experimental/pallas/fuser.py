"""``ferrax.experimental.pallas.fuser``: what is computed around a kernel as functions that the kernel calls."""

from ferrax._src.base import public as _public
from ferrax._src.pallas.fuser import Fusion as Fusion, fuse as fuse, fusible as fusible
from ferrax._src.pallas.fuser_blocks import (
    evaluate as evaluate,
    get_fusion_values as get_fusion_values,
    make_scalar_prefetch_handler as make_scalar_prefetch_handler,
    pull_block_spec as pull_block_spec,
)
from ferrax._src.pallas.fuser_push import (
    custom_fusion as custom_fusion,
    push_block_spec as push_block_spec,
)
from ferrax._src.pallas.fuser_rules import BlockIndexTransform as BlockIndexTransform

_public.export(__name__)
