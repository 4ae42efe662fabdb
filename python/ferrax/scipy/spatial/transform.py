"""``ferrax.scipy.spatial.transform``: rotations of space."""

from ferrax._src.scipy.spatial.rotation import (
    Rotation as Rotation,
    Slerp as Slerp,
)
