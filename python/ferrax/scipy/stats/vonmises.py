"""The von Mises distribution on the circle."""

from ferrax._src.scipy.stats.vonmises import (
    logpdf as logpdf,
    pdf as pdf,
)
