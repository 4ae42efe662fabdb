"""Operations on the buffers of sparse arrays, under the names that JAX's modules have them by.

They begin with an underscore there, and programs use them all the same: buffers in, buffers out, and what
there is beside them (`SparseInfo`, or a shape) by keyword.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ferrax._src.core import Array, concrete_or_error
from ferrax._src.core.typing import ArrayLike, DTypeLike
from ferrax._src.numpy import api as jnp
from ferrax._src.sparse.base import SparseInfo, count_in_batches, count_stored, over_batches
from ferrax._src.sparse.bcoo import BCOO, bcoo_dot_general, bcoo_fromdense, bcoo_todense
from ferrax._src.sparse.bcoo_elements import bcoo_extract_p
from ferrax._src.sparse.bcsr import BCSR, _coordinates
from ferrax._src.sparse.coo import (
    COO,
    CSR,
    coo_fromdense,
    coo_matmat,
    coo_matvec,
    coo_todense,
    csr_fromdense,
    csr_matmat,
    csr_matvec,
    csr_todense,
)


class COOInfo(NamedTuple):
    """What is known of a COO matrix beside its buffers.

    >>> from ferrax.experimental.sparse.coo import COOInfo
    >>> COOInfo((2, 3)).rows_sorted
    False
    """

    shape: tuple[int, ...]
    rows_sorted: bool = False
    cols_sorted: bool = False


_count_stored_elements_per_batch = count_in_batches
_count_stored_elements = count_stored


def _known(nse) -> int:
    return concrete_or_error(
        operator.index, nse, "nse has to be known: pass it where arrays are traced"
    )


def _bcoo_todense(data: ArrayLike, indices: ArrayLike, *, spinfo: SparseInfo) -> Array:
    return bcoo_todense(BCOO((data, indices), **spinfo._asdict()))


def _bcoo_fromdense(
    mat: ArrayLike, *, nse: int, n_batch: int = 0, n_dense: int = 0, index_dtype: DTypeLike = np.int32
) -> tuple[Array, Array]:  # fmt: skip
    return bcoo_fromdense(
        mat, nse=_known(nse), n_batch=n_batch, n_dense=n_dense, index_dtype=index_dtype
    )._bufs


def _bcoo_extract(indices: ArrayLike, arr: ArrayLike, *, assume_unique: bool = True) -> Array:
    operands = map(jnp.asarray, (indices, arr))
    return bcoo_extract_p.bind(*operands, assume_unique=bool(assume_unique))


def _bcoo_dot_general(
    lhs_data: ArrayLike, lhs_indices: ArrayLike, rhs: ArrayLike, *, dimension_numbers: Any,
    preferred_element_type: Any, lhs_spinfo: SparseInfo,
) -> Array:  # fmt: skip
    lhs = BCOO((lhs_data, lhs_indices), **lhs_spinfo._asdict())
    return bcoo_dot_general(
        lhs, jnp.asarray(rhs), dimension_numbers=dimension_numbers,
        preferred_element_type=preferred_element_type,
    )  # type: ignore[return-value]  # fmt: skip  # one array is dense, and so is the product


def _bcoo_to_bcsr(
    indices: Array, *, shape: Sequence[int], index_dtype: DTypeLike = np.int32
) -> tuple[Array, Array]:
    """Columns, and where rows begin, of indices in the order of rows."""
    n_batch = indices.ndim - 2
    rows = shape[n_batch]

    def starts(indices):
        return jnp.searchsorted(indices[:, 0], jnp.arange(rows + 1, dtype=indices.dtype), side="left")

    indptr = over_batches(starts, n_batch)(indices)
    return indices[..., 1].astype(index_dtype), indptr.astype(index_dtype)


def _bcsr_to_bcoo(indices: Array, indptr: Array, *, shape: Sequence[int]) -> Array:
    if len(shape) < indices.ndim + 1:
        raise ValueError(
            f"_bcsr_to_bcoo: indices of shape {tuple(indices.shape)} are not of an array of shape {shape}"
        )
    return _coordinates(indices, indptr)


def _bcsr_fromdense(
    mat: ArrayLike, *, nse: int, n_batch: int = 0, n_dense: int = 0, index_dtype: DTypeLike = np.int32
) -> tuple[Array, Array, Array]:  # fmt: skip
    return BCSR.fromdense(
        mat, nse=_known(nse), n_batch=n_batch, n_dense=n_dense, index_dtype=index_dtype
    )._bufs


def _bcsr_todense(
    data: ArrayLike, indices: ArrayLike, indptr: ArrayLike, *, spinfo: SparseInfo
) -> Array:
    return BCSR((data, indices, indptr), **spinfo._asdict()).todense()


def _coo_todense(data: ArrayLike, row: ArrayLike, col: ArrayLike, *, spinfo: COOInfo) -> Array:
    return coo_todense(COO((data, row, col), **spinfo._asdict()))


def _coo_fromdense(
    mat: ArrayLike, *, nse: int, index_dtype: DTypeLike = np.int32
) -> tuple[Array, Array, Array]:
    return coo_fromdense(mat, nse=_known(nse), index_dtype=index_dtype)._bufs


def _coo_matvec(
    data: ArrayLike, row: ArrayLike, col: ArrayLike, v: ArrayLike, *, spinfo: COOInfo,
    transpose: bool = False,
) -> Array:  # fmt: skip
    return coo_matvec(COO((data, row, col), **spinfo._asdict()), v, transpose=transpose)


def _coo_matmat(
    data: ArrayLike, row: ArrayLike, col: ArrayLike, B: ArrayLike, *, spinfo: COOInfo,
    transpose: bool = False,
) -> Array:  # fmt: skip
    return coo_matmat(COO((data, row, col), **spinfo._asdict()), B, transpose=transpose)


def _csr_todense(
    data: ArrayLike, indices: ArrayLike, indptr: ArrayLike, *, shape: Sequence[int]
) -> Array:
    return csr_todense(CSR((data, indices, indptr), shape=shape))


def _csr_fromdense(
    mat: ArrayLike, *, nse: int, index_dtype: DTypeLike = np.int32
) -> tuple[Array, Array, Array]:
    return csr_fromdense(mat, nse=_known(nse), index_dtype=index_dtype)._bufs


def _csr_matvec(
    data: ArrayLike, indices: ArrayLike, indptr: ArrayLike, v: ArrayLike, *, shape: Sequence[int],
    transpose: bool = False,
) -> Array:  # fmt: skip
    return csr_matvec(CSR((data, indices, indptr), shape=shape), v, transpose=transpose)


def _csr_matmat(
    data: ArrayLike, indices: ArrayLike, indptr: ArrayLike, B: ArrayLike, *, shape: Sequence[int],
    transpose: bool = False,
) -> Array:  # fmt: skip
    return csr_matmat(CSR((data, indices, indptr), shape=shape), B, transpose=transpose)


def _csr_to_coo(indices: Array, indptr: Array) -> tuple[Array, Array]:
    """Rows and columns of the elements of a CSR matrix."""
    places = _coordinates(indices, indptr)
    return places[..., 0], places[..., 1]
