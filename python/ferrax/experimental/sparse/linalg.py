"""Systems of equations with sparse matrices."""

from ferrax._src.sparse.linalg import spsolve as spsolve
