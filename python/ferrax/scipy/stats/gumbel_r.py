"""The right-skewed Gumbel distribution: of the largest of many values."""

from ferrax._src.scipy.stats.gumbel_r import (
    cdf as cdf,
    logcdf as logcdf,
    logpdf as logpdf,
    logsf as logsf,
    pdf as pdf,
    ppf as ppf,
    sf as sf,
)
