"""Where parts of a program run."""

from ferrax._src.base import public as _public
from ferrax._src.parallel.compute_on import compute_on as compute_on, compute_on2 as compute_on2

__all__ = ["compute_on", "compute_on2"]

_public.export(__name__)
