"""Values that are divided over devices alike."""

from ferrax._src.base import public as _public
from ferrax._src.parallel.alike import shard_alike as shard_alike

_public.export(__name__)
