"""``ferrax.experimental.colocated_python.serialization``: what libraries name when they send functions."""

from ferrax._src.base import public as _public
from ferrax._src.callbacks.colocated import DeviceList as DeviceList

_public.export(__name__)
