"""The format BCSR."""

from ferrax._src.base import public as _public
from ferrax._src.sparse.bcsr import (
    BCSR as BCSR,
    bcsr_broadcast_in_dim as bcsr_broadcast_in_dim,
    bcsr_concatenate as bcsr_concatenate,
    bcsr_dot_general as bcsr_dot_general,
    bcsr_dot_general_p as bcsr_dot_general_p,
    bcsr_eliminate_zeros as bcsr_eliminate_zeros,
    bcsr_extract as bcsr_extract,
    bcsr_extract_p as bcsr_extract_p,
    bcsr_fromdense as bcsr_fromdense,
    bcsr_fromdense_p as bcsr_fromdense_p,
    bcsr_sum_duplicates as bcsr_sum_duplicates,
    bcsr_todense as bcsr_todense,
    bcsr_todense_p as bcsr_todense_p,
)
from ferrax._src.sparse.buffers import (
    _bcoo_to_bcsr as _bcoo_to_bcsr,
    _bcsr_fromdense as _bcsr_fromdense,
    _bcsr_to_bcoo as _bcsr_to_bcoo,
    _bcsr_todense as _bcsr_todense,
)

_public.export(__name__)
