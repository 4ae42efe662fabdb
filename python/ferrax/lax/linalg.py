"""``ferrax.lax.linalg``: decompositions of matrices, as primitives and as functions."""

from ferrax._src.base.absent import absent as _absent, group as _group
from ferrax._src.core.primitives import builtin as _builtin
from ferrax._src.lax.linalg import (
    EighImplementation as EighImplementation,
    SvdAlgorithm as SvdAlgorithm,
    eigh as eigh,
    svd as svd,
)

eigh_p = _builtin("eigh")
svd_p = _builtin("svd")

__getattr__ = _absent(
    __name__,
    _group(
        "EigImplementation cholesky cholesky_p cholesky_update cholesky_update_p eig eig_p "
        "hessenberg hessenberg_p householder_product householder_product_p lu lu_p "
        "lu_pivots_to_permutation lu_pivots_to_permutation_p ormqr ormqr_p qdwh qr qr_p schur "
        "schur_p symmetric_product symmetric_product_p triangular_solve triangular_solve_p "
        "tridiagonal tridiagonal_p tridiagonal_solve tridiagonal_solve_p",
        "the decompositions that are implemented are eigh and svd. For values that are not traced "
        "there is numpy.linalg; in traced functions ferrax.pure_callback calls it",
    ),
)
