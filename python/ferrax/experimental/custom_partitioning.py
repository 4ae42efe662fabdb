"""Functions that say how they are divided over devices."""

from ferrax._src.base import public as _public
from ferrax._src.parallel.custom_partitioning import (
    BATCHING,
    ArrayMapping,
    CompoundFactor,
    SdyShardingRule,
    custom_partitioning,
)

__all__ = ["BATCHING", "ArrayMapping", "CompoundFactor", "SdyShardingRule", "custom_partitioning"]

_public.export(__name__)
