"""``ferrax.experimental.pallas.fuser``: what is computed around a kernel as functions that the kernel calls."""

from ferrax._src.base import public as _public
from ferrax._src.pallas.fuser import Fusion as Fusion, fuse as fuse, fusible as fusible

_public.export(__name__)
