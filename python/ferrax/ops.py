"""``ferrax.ops``: reductions by segment."""

from ferrax._src.base import public as _public
from ferrax._src.numpy.segments import (
    segment_max as segment_max,
    segment_min as segment_min,
    segment_prod as segment_prod,
    segment_sum as segment_sum,
)

_public.export(__name__)
