"""What the formats of sparse arrays share."""

from ferrax._src.sparse.base import (
    CuSparseEfficiencyWarning as CuSparseEfficiencyWarning,
    SparseEfficiencyError as SparseEfficiencyError,
    SparseEfficiencyWarning as SparseEfficiencyWarning,
    SparseInfo as SparseInfo,
)
