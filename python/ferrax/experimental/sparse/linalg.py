"""Systems of equations with sparse matrices, and eigenvalues."""

from ferrax._src.base import public as _public
from ferrax._src.sparse.linalg import spsolve as spsolve, spsolve_p as spsolve_p
from ferrax._src.sparse.lobpcg import (
    _lobpcg_standard_callable as _lobpcg_standard_callable,
    _lobpcg_standard_matrix as _lobpcg_standard_matrix,
    lobpcg_standard as lobpcg_standard,
)

_public.export(__name__)
