"""``ferrax.lax.linalg``: decompositions of matrices, as primitives and as functions."""

from ferrax._src.base.absent import absent as _absent, group as _group
from ferrax._src.core.primitives import builtin as _builtin
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
eigh_p = _builtin("eigh")
householder_product_p = _builtin("householder_product")
lu_p = _builtin("lu")
ormqr_p = _builtin("ormqr")
qr_p = _builtin("qr")
svd_p = _builtin("svd")
triangular_solve_p = _builtin("triangular_solve")

__getattr__ = _absent(
    __name__,
    _group(
        "EigImplementation cholesky_update cholesky_update_p eig eig_p "
        "hessenberg hessenberg_p "
        "lu_pivots_to_permutation lu_pivots_to_permutation_p qdwh schur "
        "schur_p symmetric_product symmetric_product_p "
        "tridiagonal tridiagonal_p tridiagonal_solve tridiagonal_solve_p",
        "the decompositions that are implemented are cholesky, eigh, lu, qr and svd. For values that "
        "are not traced there is numpy.linalg; in traced functions ferrax.pure_callback calls it",
    ),
)
