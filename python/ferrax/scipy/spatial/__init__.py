"""``ferrax.scipy.spatial``: rotations."""

from ferrax.scipy.spatial import transform as transform
