"""Exchange of arrays with other libraries without a copy."""

from ferrax._src.base import public as _public
from ferrax._src.core.dlpack import from_dlpack, is_supported_dtype

__all__ = ["from_dlpack", "is_supported_dtype"]

_public.export(__name__)
