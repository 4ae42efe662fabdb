"""What is left of JAX's module of this name."""

from ferrax._src.base import public as _public
from ferrax._src.core.devices import Device as Backend  # noqa: F401
from ferrax._src.core.primitives import apply_primitive as apply_primitive

# Functions by type that make arguments of it canonical; kept for libraries that add to it.
canonicalize_dtype_handlers: dict = {}

_public.export(__name__)
