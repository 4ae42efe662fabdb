"""Sparse arrays of all formats."""

from ferrax._src.base import public as _public
from ferrax._src.sparse.creation import (
    empty as empty,
    eye as eye,
    todense as todense,
    todense_p as todense_p,
)

_public.export(__name__)
