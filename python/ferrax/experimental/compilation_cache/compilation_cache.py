"""The cache of compiled programs on disk; `ferrax.cache` shows what it holds."""

from ferrax._src.base import public as _public
from ferrax._src.core.program_cache import (
    reset_cache as reset_cache,
    set_cache_dir as set_cache_dir,
)

__all__ = ["reset_cache", "set_cache_dir"]

_public.export(__name__)
