"""The format COO."""

from ferrax._src.base import public as _public
from ferrax._src.sparse.buffers import (
    COOInfo as COOInfo,
    _coo_fromdense as _coo_fromdense,
    _coo_matmat as _coo_matmat,
    _coo_matvec as _coo_matvec,
    _coo_todense as _coo_todense,
)
from ferrax._src.sparse.coo import (
    COO as COO,
    coo_fromdense as coo_fromdense,
    coo_fromdense_p as coo_fromdense_p,
    coo_matmat as coo_matmat,
    coo_matmat_p as coo_matmat_p,
    coo_matvec as coo_matvec,
    coo_matvec_p as coo_matvec_p,
    coo_todense as coo_todense,
    coo_todense_p as coo_todense_p,
)

_public.export(__name__)
