"""Random sparse arrays."""

from ferrax._src.sparse.creation import random_bcoo as random_bcoo
