"""Names for values in checkpointed functions, and what these keep."""

from ferrax._src.base import public as _public
from ferrax._src.core.primitives import builtin as _builtin
from ferrax._src.transforms.ad_checkpoint import (
    checkpoint_name,
    checkpoint_name_fwd,
    print_saved_residuals,
)
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
    "checkpoint_name_fwd",
    "checkpoint_policies",
    "name_p",
    "print_saved_residuals",
]

name_p = _builtin("name")

_public.export(__name__)
