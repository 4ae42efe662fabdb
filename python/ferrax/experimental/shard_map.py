"""`shard_map` as it was called before it was `ferrax.shard_map`, which a warning says."""

import warnings
from typing import Any

from ferrax._src.base import public as _public
from ferrax._src.parallel.shard_map import shard_map_of_old as _shard_map


def __getattr__(name: str) -> Any:
    if name != "shard_map":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warnings.warn(
        "ferrax.experimental.shard_map is deprecated. Use ferrax.shard_map.",
        DeprecationWarning,
        stacklevel=2,
    )
    return _public.shown(_shard_map)
