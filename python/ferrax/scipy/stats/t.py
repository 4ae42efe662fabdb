"""Student's t distribution."""

from ferrax._src.scipy.stats.t import (
    logpdf as logpdf,
    pdf as pdf,
)
