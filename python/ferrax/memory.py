"""Memory of arrays: its kinds (`Space`), and giving it back (`trim`)."""

from ferrax._src.core.devices import Space as Space, trim as trim

__all__ = ["Space", "trim"]
