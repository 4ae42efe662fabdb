"""``ferrax.experimental.pallas.mosaic_gpu``: names that can be imported; calling one says what to do instead."""

from ferrax._src.base import public as _public
from ferrax._src.pallas.hardware import names as _names

globals().update(_names("mosaic_gpu"))

_public.export(__name__)
