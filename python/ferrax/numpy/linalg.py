"""Linear algebra on ferrax arrays: norms, products, powers, diagonals."""

from ferrax._src.absent import absent as _absent, group as _group
from ferrax._src.numpy.linalg import (
    cross as cross,
    diagonal as diagonal,
    matmul as matmul,
    matrix_norm as matrix_norm,
    matrix_power as matrix_power,
    matrix_transpose as matrix_transpose,
    multi_dot as multi_dot,
    norm as norm,
    outer as outer,
    tensordot as tensordot,
    trace as trace,
    vecdot as vecdot,
    vector_norm as vector_norm,
)

__getattr__ = _absent(
    __name__,
    _group(
        "cholesky cond det eig eigh eigvals eigvalsh inv lstsq matrix_rank pinv qr slogdet solve "
        "svd svdvals tensorinv tensorsolve",
        "decompositions of matrices are not implemented. For values that are not traced there is "
        "numpy.linalg; in traced functions ferrax.pure_callback calls it",
    ),
)
