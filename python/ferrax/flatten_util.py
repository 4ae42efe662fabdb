"""Trees of arrays as single vectors."""

from ferrax._src.base import public as _public
from ferrax._src.numpy.flatten_util import ravel_pytree

__all__ = ["ravel_pytree"]

_public.export(__name__)
