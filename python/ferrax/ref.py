"""Mutable arrays: made by `new_ref`, read and written by index."""

# ruff: noqa: F401
from ferrax._src.base import public as _public
from ferrax._src.numpy.ref_ops import addupdate, empty_ref, get, set, swap
from ferrax._src.state import AbstractRef, Ref, free_ref, freeze, new_ref

__all__ = [
    "AbstractRef",
    "Ref",
    "addupdate",
    "empty_ref",
    "free_ref",
    "freeze",
    "get",
    "new_ref",
    "set",
    "swap",
]

_public.export(__name__)
