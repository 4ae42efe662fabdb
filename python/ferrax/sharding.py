"""Where arrays live: `SingleDeviceSharding`."""

from ferrax._src.sharding import Sharding, SingleDeviceSharding

__all__ = ["Sharding", "SingleDeviceSharding"]
