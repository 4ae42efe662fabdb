"""Products of matrices in a format with vectors (`spmv`) and matrices (`spmm`), as primitives."""

import numpy as _np

from ferrax._src.sparse.coo import (
    coo_spmm_p as coo_spmm_p,
    coo_spmv_p as coo_spmv_p,
    csr_spmm_p as csr_spmm_p,
    csr_spmv_p as csr_spmv_p,
)

SUPPORTED_DATA_DTYPES = [_np.float32, _np.float64, _np.complex64, _np.complex128]
SUPPORTED_INDEX_DTYPES = [_np.int32]
