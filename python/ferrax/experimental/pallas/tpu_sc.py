"""``ferrax.experimental.pallas.tpu_sc``: names that can be imported; calling one says what to do instead."""

from ferrax._src.base import public as _public
from ferrax._src.pallas.hardware import names as _names

globals().update(_names("tpu_sc"))

_public.export(__name__)
