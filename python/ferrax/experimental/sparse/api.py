"""Sparse arrays of all formats."""

from ferrax._src.sparse.creation import (
    empty as empty,
    eye as eye,
    todense as todense,
    todense_p as todense_p,
)
