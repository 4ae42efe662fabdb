"""Trees of arrays in files, written and read by the processes that hold them."""

from ferrax._src.base import public as _public
from ferrax._src.experimental.checkpoints import load, save

__all__ = ["load", "save"]

_public.export(__name__)
