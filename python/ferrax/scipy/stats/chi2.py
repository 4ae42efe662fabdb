"""The chi-squared distribution: of the sum of the squares of `df` normal numbers."""

from ferrax._src.scipy.stats.chi2 import (
    cdf as cdf,
    logcdf as logcdf,
    logpdf as logpdf,
    logsf as logsf,
    pdf as pdf,
    sf as sf,
)
