"""The binomial distribution: how many of n trials of probability p succeed."""

from ferrax._src.scipy.stats.binom import (
    logpmf as logpmf,
    pmf as pmf,
)
