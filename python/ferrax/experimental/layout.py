"""How arrays lie in memory: `Layout` and `Format`."""

from ferrax._src.base import public as _public
from ferrax._src.core.layout import Format, Layout
from ferrax._src.parallel.constraints import with_layout_constraint

__all__ = ["Format", "Layout", "with_layout_constraint"]

_public.export(__name__)
