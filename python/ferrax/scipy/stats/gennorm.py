"""The generalised normal distribution."""

from ferrax._src.scipy.stats.gennorm import (
    cdf as cdf,
    logpdf as logpdf,
    pdf as pdf,
)
