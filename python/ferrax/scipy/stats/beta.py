"""The beta distribution on the interval from `loc` to `loc + scale`."""

from ferrax._src.scipy.stats.beta import (
    cdf as cdf,
    logcdf as logcdf,
    logpdf as logpdf,
    logsf as logsf,
    pdf as pdf,
    sf as sf,
)
