"""Linear algebra on ferrax arrays: norms, products, systems, eigenvalues, singular values."""

from ferrax._src.base import public as _public
from ferrax._src.numpy.decompositions import (
    eig as eig,
    eigh as eigh,
    eigvals as eigvals,
    eigvalsh as eigvalsh,
    matrix_rank as matrix_rank,
    pinv as pinv,
    svd as svd,
    svdvals as svdvals,
)
from ferrax._src.numpy.linalg import (
    cond as cond,
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
from ferrax._src.numpy.systems import (
    cholesky as cholesky,
    det as det,
    inv as inv,
    lstsq as lstsq,
    qr as qr,
    slogdet as slogdet,
    solve as solve,
    tensorinv as tensorinv,
    tensorsolve as tensorsolve,
)

_public.export(__name__)
