"""``ferrax.lax.linalg``: decompositions of matrices, as primitives and as functions."""

from ferrax._src.base import public as _public
from ferrax._src.composed.matrix_updates import (
    cholesky_update as cholesky_update,
    cholesky_update_p as cholesky_update_p,
    qdwh as qdwh,
    symmetric_product as symmetric_product,
    symmetric_product_p as symmetric_product_p,
)
from ferrax._src.core.primitives import builtin as _builtin
from ferrax._src.lax.eigen import (
    EigImplementation as EigImplementation,
    eig as eig,
    hessenberg as hessenberg,
    lu_pivots_to_permutation as lu_pivots_to_permutation,
    schur as schur,
    tridiagonal as tridiagonal,
    tridiagonal_solve as tridiagonal_solve,
)
from ferrax._src.lax.factorisations import (
    cholesky as cholesky,
    householder_product as householder_product,
    lu as lu,
    ormqr as ormqr,
    qr as qr,
    triangular_solve as triangular_solve,
)
from ferrax._src.lax.linalg import (
    EighImplementation as EighImplementation,
    SvdAlgorithm as SvdAlgorithm,
    eigh as eigh,
    svd as svd,
)

cholesky_p = _builtin("cholesky")
eig_p = _builtin("eig")
eigh_p = _builtin("eigh")
hessenberg_p = _builtin("hessenberg")
householder_product_p = _builtin("householder_product")
lu_p = _builtin("lu")
lu_pivots_to_permutation_p = _builtin("lu_pivots_to_permutation")
ormqr_p = _builtin("ormqr")
qr_p = _builtin("qr")
schur_p = _builtin("schur")
svd_p = _builtin("svd")
triangular_solve_p = _builtin("triangular_solve")
tridiagonal_p = _builtin("tridiagonal")
tridiagonal_solve_p = _builtin("tridiagonal_solve")

_public.export(__name__)
