"""The Bernoulli distribution: 1 with probability p, else 0."""

from ferrax._src.scipy.stats.bernoulli import (
    cdf as cdf,
    logpmf as logpmf,
    pmf as pmf,
    ppf as ppf,
)
