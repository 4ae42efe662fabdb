"""Functions of dense arrays, made functions of sparse ones."""

from ferrax._src.base import public as _public
from ferrax._src.sparse.environment import (
    SparsifyEnv as SparsifyEnv,
    SparsifyValue as SparsifyValue,
    arrays_to_spvalues as arrays_to_spvalues,
    sparsify_raw as sparsify_raw,
    spvalues_to_arrays as spvalues_to_arrays,
    spvalues_to_avals as spvalues_to_avals,
)
from ferrax._src.sparse.transform import SparseTracer as SparseTracer, sparsify as sparsify

_public.export(__name__)
