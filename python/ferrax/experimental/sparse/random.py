"""Random sparse arrays."""

from ferrax._src.base import public as _public
from ferrax._src.sparse.creation import random_bcoo as random_bcoo

_public.export(__name__)
