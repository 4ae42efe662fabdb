"""The uniform distribution on the interval from `loc` to `loc + scale`."""

from ferrax._src.scipy.stats.uniform import (
    cdf as cdf,
    logpdf as logpdf,
    pdf as pdf,
    ppf as ppf,
)
