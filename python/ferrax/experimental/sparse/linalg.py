"""Systems of equations with sparse matrices."""

from ferrax._src.base import public as _public
from ferrax._src.sparse.linalg import spsolve as spsolve

_public.export(__name__)
