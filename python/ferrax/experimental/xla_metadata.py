"""Attributes of operations and of values."""

from ferrax._src.base import public as _public
from ferrax._src.parallel.hints import set_xla_metadata as set_xla_metadata

_public.export(__name__)
