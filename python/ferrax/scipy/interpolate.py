"""``ferrax.scipy.interpolate``: interpolation on grids."""

from ferrax._src.scipy.interpolate import RegularGridInterpolator as RegularGridInterpolator
