"""Memory of arrays: its kinds (`Space`), and giving it back (`trim`)."""

from ferrax._src.base import public as _public
from ferrax._src.core.devices import Space as Space, trim as trim

__all__ = ["Space", "trim"]

_public.export(__name__)
