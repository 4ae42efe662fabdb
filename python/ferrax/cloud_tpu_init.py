"""JAX's module for TPUs in Google's cloud, which there are none of: it has no names in JAX 0.10.2 either."""

from ferrax._src.base.absent import absent as _absent, group as _group

__getattr__ = _absent(__name__, _group("cloud_tpu_init", "it need not be called"))
