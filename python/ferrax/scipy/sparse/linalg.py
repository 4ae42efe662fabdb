"""``ferrax.scipy.sparse.linalg``: solvers of linear systems that are given as products."""

from ferrax._src.base import public as _public
from ferrax._src.scipy.sparse.solvers import (
    bicgstab as bicgstab,
    cg as cg,
    gmres as gmres,
)

_public.export(__name__)
