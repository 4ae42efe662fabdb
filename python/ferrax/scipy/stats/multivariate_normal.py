"""The multivariate normal distribution."""

from ferrax._src.scipy.stats.multivariate_normal import (
    logpdf as logpdf,
    pdf as pdf,
)
