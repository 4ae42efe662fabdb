"""``ferrax.scipy.optimize``: minimization."""

from ferrax._src.scipy.optimize.minimize import (
    OptimizeResults as OptimizeResults,
    minimize as minimize,
)
