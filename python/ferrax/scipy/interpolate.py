"""``ferrax.scipy.interpolate``: interpolation on grids."""

from ferrax._src.base import public as _public
from ferrax._src.scipy.interpolate import RegularGridInterpolator as RegularGridInterpolator

_public.export(__name__)
