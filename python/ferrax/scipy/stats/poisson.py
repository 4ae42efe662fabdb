"""The Poisson distribution: how many events happen that are independent and have a mean number."""

from ferrax._src.scipy.stats.poisson import (
    cdf as cdf,
    entropy as entropy,
    logpmf as logpmf,
    pmf as pmf,
)
