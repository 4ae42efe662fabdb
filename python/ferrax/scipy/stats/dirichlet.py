"""The Dirichlet distribution, of positive numbers whose sum is one."""

from ferrax._src.scipy.stats.dirichlet import (
    logpdf as logpdf,
    pdf as pdf,
)
