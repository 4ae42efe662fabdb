"""Functions that are to be one kernel."""

from ferrax._src.base import public as _public
from ferrax._src.parallel.hints import fused as fused

_public.export(__name__)
