"""The wrapped Cauchy distribution on the circle, for angles from 0 to 2 pi."""

from ferrax._src.scipy.stats.wrapcauchy import (
    logpdf as logpdf,
    pdf as pdf,
)
