"""The normal distribution, conditioned to lie between two bounds."""

from ferrax._src.base import public as _public
from ferrax._src.scipy.stats.truncnorm import (
    cdf as cdf,
    logcdf as logcdf,
    logpdf as logpdf,
    logsf as logsf,
    pdf as pdf,
    sf as sf,
)

_public.export(__name__)
