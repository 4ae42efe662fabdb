"""Compiled functions as bytes, which are safe to load."""

from ferrax._src.base import public as _public
from ferrax._src.interop.executables import (
    deserialize_and_load as deserialize_and_load,
    serialize as serialize,
)

_public.export(__name__)
