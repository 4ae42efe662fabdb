"""Where arrays live: `SingleDeviceSharding`."""

from ferrax._src.core.sharding import Sharding, SingleDeviceSharding

__all__ = ["Sharding", "SingleDeviceSharding"]
