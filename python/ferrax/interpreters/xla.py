"""What is left of JAX's module of this name."""

from ferrax._src.base import public as _public
from ferrax._src.core.devices import Device as Backend  # noqa: F401
from ferrax._src.core.primitives import apply_primitive as apply_primitive
from ferrax._src.interop.value_classes import (
    canonicalize_dtype_handlers as canonicalize_dtype_handlers,
)

_public.export(__name__)
