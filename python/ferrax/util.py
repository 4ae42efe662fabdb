"""Small helpers that JAX's `util` offers."""

from ferrax._src.base import public as _public
from ferrax._src.base.util import safe_map, safe_zip

__all__ = ["safe_map", "safe_zip"]

_public.export(__name__)
