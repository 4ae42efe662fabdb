"""``ferrax.scipy.ndimage``: values between the elements of arrays."""

from ferrax._src.base import public as _public
from ferrax._src.scipy.ndimage import map_coordinates as map_coordinates

_public.export(__name__)
