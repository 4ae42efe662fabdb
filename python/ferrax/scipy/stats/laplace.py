"""The Laplace distribution."""

from ferrax._src.scipy.stats.laplace import (
    cdf as cdf,
    logpdf as logpdf,
    pdf as pdf,
)
