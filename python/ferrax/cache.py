"""The cache of compiled programs on disk: what it holds and did (`stats`), and emptying it (`clear`).

The flags `jax_compilation_cache_dir` and its like say where it is and what it keeps.
"""

from ferrax._src.base import public as _public
from ferrax._src.core.program_cache import CacheStats as CacheStats, clear as clear, stats as stats

__all__ = ["CacheStats", "clear", "stats"]

_public.export(__name__)
