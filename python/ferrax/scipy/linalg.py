"""``ferrax.scipy.linalg``: matrices, their decompositions and functions."""

from ferrax._src.base import public as _public
from ferrax._src.scipy.linalg.decompositions import (
    cho_factor as cho_factor,
    cholesky as cholesky,
    lu as lu,
    qr as qr,
    qr_multiply as qr_multiply,
    svd as svd,
)
from ferrax._src.scipy.linalg.eigenvalues import (
    eigh as eigh,
    eigh_tridiagonal as eigh_tridiagonal,
    hessenberg as hessenberg,
    rsf2csf as rsf2csf,
    schur as schur,
)
from ferrax._src.scipy.linalg.functions import (
    expm as expm,
    expm_frechet as expm_frechet,
    funm as funm,
    polar as polar,
    sqrtm as sqrtm,
)
from ferrax._src.scipy.linalg.special_matrices import (
    block_diag as block_diag,
    circulant as circulant,
    companion as companion,
    convolution_matrix as convolution_matrix,
    dft as dft,
    fiedler as fiedler,
    fiedler_companion as fiedler_companion,
    hadamard as hadamard,
    hankel as hankel,
    helmert as helmert,
    hilbert as hilbert,
    invhilbert as invhilbert,
    invpascal as invpascal,
    leslie as leslie,
    pascal as pascal,
    toeplitz as toeplitz,
)
from ferrax._src.scipy.linalg.systems import (
    cho_solve as cho_solve,
    det as det,
    inv as inv,
    lu_factor as lu_factor,
    lu_solve as lu_solve,
    solve as solve,
    solve_sylvester as solve_sylvester,
    solve_triangular as solve_triangular,
)

_public.export(__name__)
