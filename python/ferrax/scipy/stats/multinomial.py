"""The multinomial distribution: how many of n trials have each of several outcomes."""

from ferrax._src.scipy.stats.multinomial import (
    logpmf as logpmf,
    pmf as pmf,
)
