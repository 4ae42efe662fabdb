"""Kinds of memory: `Space`."""

from ferrax._src.core.devices import Space as Space

__all__ = ["Space"]
