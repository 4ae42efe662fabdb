"""``ferrax.scipy.sparse.linalg``: solvers of linear systems that are given as products."""

from ferrax._src.scipy.sparse.solvers import (
    bicgstab as bicgstab,
    cg as cg,
    gmres as gmres,
)
