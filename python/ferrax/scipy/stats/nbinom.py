"""The negative binomial distribution: how many failures until n successes of probability p."""

from ferrax._src.scipy.stats.nbinom import (
    logpmf as logpmf,
    pmf as pmf,
)
