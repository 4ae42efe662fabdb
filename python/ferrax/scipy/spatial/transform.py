"""``ferrax.scipy.spatial.transform``: rotations of space."""

from ferrax._src.base import public as _public
from ferrax._src.scipy.spatial.rotation import (
    Rotation as Rotation,
    Slerp as Slerp,
)

_public.export(__name__)
