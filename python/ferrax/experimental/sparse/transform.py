"""Functions of dense arrays, made functions of sparse ones."""

from ferrax._src.sparse.transform import SparseTracer as SparseTracer, sparsify as sparsify
