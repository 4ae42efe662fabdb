"""The beta-binomial distribution: a binomial one whose probability is beta distributed."""

from ferrax._src.scipy.stats.betabinom import (
    logpmf as logpmf,
    pmf as pmf,
)
