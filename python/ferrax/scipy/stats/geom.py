"""The geometric distribution: how many trials of probability p until the first success."""

from ferrax._src.scipy.stats.geom import (
    logpmf as logpmf,
    pmf as pmf,
)
