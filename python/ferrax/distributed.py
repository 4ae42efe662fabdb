"""Programs of several processes."""

from ferrax._src.base import public as _public
from ferrax._src.parallel.distributed import initialize, is_initialized, shutdown

__all__ = ["initialize", "is_initialized", "shutdown"]

_public.export(__name__)
