"""The formats CSR and CSC."""

from ferrax._src.base import public as _public
from ferrax._src.sparse.buffers import (
    _csr_fromdense as _csr_fromdense,
    _csr_matmat as _csr_matmat,
    _csr_matvec as _csr_matvec,
    _csr_todense as _csr_todense,
)
from ferrax._src.sparse.coo import (
    CSC as CSC,
    CSR as CSR,
    csr_fromdense as csr_fromdense,
    csr_fromdense_p as csr_fromdense_p,
    csr_matmat as csr_matmat,
    csr_matmat_p as csr_matmat_p,
    csr_matvec as csr_matvec,
    csr_matvec_p as csr_matvec_p,
    csr_todense as csr_todense,
    csr_todense_p as csr_todense_p,
)

_public.export(__name__)
