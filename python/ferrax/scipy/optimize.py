"""``ferrax.scipy.optimize``: minimization."""

from ferrax._src.base import public as _public
from ferrax._src.scipy.optimize.minimize import (
    OptimizeResults as OptimizeResults,
    minimize as minimize,
)

_public.export(__name__)
