"""Programs of several processes."""

from ferrax._src.parallel.distributed import initialize, is_initialized, shutdown

__all__ = ["initialize", "is_initialized", "shutdown"]
