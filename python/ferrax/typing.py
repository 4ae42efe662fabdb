"""Type hints for functions of arrays."""

from ferrax._src.base import public as _public
from ferrax._src.core.typing import ArrayLike, DTypeLike, SupportsDType  # noqa: F401

__all__ = ["ArrayLike", "DTypeLike"]

_public.export(__name__)
