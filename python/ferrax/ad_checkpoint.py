"""Names for values in checkpointed functions, and what these keep."""

from ferrax._src.base import public as _public
from ferrax._src.transforms.ad_checkpoint import checkpoint_name, print_saved_residuals
from ferrax._src.transforms.checkpoint_policies import (
    Offloadable,
    Recompute,
    Saveable,
    checkpoint_policies,
)

__all__ = [
    "Offloadable",
    "Recompute",
    "Saveable",
    "checkpoint_name",
    "checkpoint_policies",
    "print_saved_residuals",
]

_public.export(__name__)
