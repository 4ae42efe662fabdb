"""What the formats of sparse arrays share."""

from ferrax._src.base import public as _public
from ferrax._src.sparse.base import (
    CuSparseEfficiencyWarning as CuSparseEfficiencyWarning,
    SparseEfficiencyError as SparseEfficiencyError,
    SparseEfficiencyWarning as SparseEfficiencyWarning,
    SparseInfo as SparseInfo,
)
from ferrax._src.sparse.buffers import (
    _count_stored_elements as _count_stored_elements,
    _count_stored_elements_per_batch as _count_stored_elements_per_batch,
    _csr_to_coo as _csr_to_coo,
)

_public.export(__name__)
