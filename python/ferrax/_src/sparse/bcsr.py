"""The format BCSR, batched compressed rows: a view of BCOO with sorted rows.

Row r of a batch has the elements from `indptr[r]` to `indptr[r + 1]`; those from the last on are padding.
Everything but the storage is done by BCOO: `to_bcoo` is one search, `from_bcoo` one sort where the rows are
not known to be sorted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ferrax._src.core import Array
from ferrax._src.core.op_types import precision_name
from ferrax._src.core.typing import ArrayLike, DTypeLike
from ferrax._src.lax.arguments import check_out_sharding
from ferrax._src.numpy import api as jnp
from ferrax._src.sparse.base import Batched, JAXSparse, over_batches, sparse_primitive
from ferrax._src.sparse.bcoo import (
    BCOO,
    bcoo_dot_general,
    bcoo_eliminate_zeros,
    bcoo_extract,
    bcoo_fromdense,
    bcoo_sum_duplicates,
    bcoo_todense,
)
from ferrax._src.sparse.bcoo_structure import bcoo_broadcast_in_dim, bcoo_concatenate
from ferrax._src.tree import tree_util


def _rows(indptr: Array, nse: int) -> Array:
    """The row of each stored element; the number of rows for padding."""

    def one(indptr):
        return jnp.searchsorted(
            indptr[1:], jnp.arange(nse, dtype=indptr.dtype), side="right"
        ).astype(indptr.dtype)

    return over_batches(one, indptr.ndim - 1)(indptr)


def _coordinates(indices: Array, indptr: Array) -> Array:
    """The indices of BCOO."""
    rows = _rows(indptr, indices.shape[-1])
    batch = np.broadcast_shapes(rows.shape[:-1], indices.shape[:-1])
    rows, columns = (jnp.broadcast_to(x, (*batch, x.shape[-1])) for x in (rows, indices))
    return jnp.stack([rows.astype(indices.dtype), columns], axis=-1)


@tree_util.register_pytree_node_class
class BCSR(Batched):
    """A sparse array by compressed rows, with batches; a pytree of its buffers.

    Args:
        args: `(data, indices, indptr)`: elements `(*batch, nse, *dense)`, columns `(*batch, nse)`, and
            where rows begin `(*batch, rows + 1)`.
        shape: `(*batch, rows, columns, *dense)`.
        indices_sorted, unique_indices: whether the columns of each row are known to be so.

    Errors: ValueError for buffers that do not fit the shape.

    Example:
        >>> from ferrax.experimental import sparse
        >>> m = sparse.BCSR.fromdense(jnp.array([[0.0, 2.0, 0.0], [1.0, 0.0, 4.0]]))
        >>> m.indptr, m @ jnp.ones(3)
        (Array([0, 1, 3], dtype=int32), Array([2., 5.], dtype=float32))
    """

    data: Array
    indices: Array
    indptr: Array
    _buffers = ("data", "indices", "indptr")

    def __init__(
        self, args: Sequence[ArrayLike], *, shape: Sequence[int],
        indices_sorted: bool = False, unique_indices: bool = False,
    ) -> None:  # fmt: skip
        self.data, self.indices, self.indptr = map(jnp.asarray, args)
        self.indices_sorted, self.unique_indices = indices_sorted, unique_indices
        super().__init__(args, shape=shape)
        n_batch = self.n_batch
        shapes = [tuple(x.shape) for x in (self.data, self.indices, self.indptr)]
        if len(self.shape) < n_batch + 2 or self.n_dense != len(self.shape) - n_batch - 2:
            raise ValueError(
                f"BCSR buffers of shapes {shapes} are not of an array of shape {self.shape}"
            )
        tail = (self.nse, *self.shape[n_batch + 2 :])
        fits = self.data.shape[n_batch:] == tail and self.indptr.shape[n_batch:] == (
            self.shape[n_batch] + 1,
        )
        fits = fits and all(
            size in (1, whole) for x in shapes for size, whole in zip(x[:n_batch], self.shape)
        )
        if not fits:
            raise ValueError(
                f"BCSR buffers of shapes {shapes} are not of an array of shape {self.shape}"
            )

    @property
    def nse(self) -> int:
        """How many elements are stored, of each batch."""
        return self.indices.shape[-1]

    @property
    def n_batch(self) -> int:
        """The number of batch axes."""
        return self.indices.ndim - 1

    @property
    def n_sparse(self) -> int:
        """2: rows and columns."""
        return 2

    @property
    def n_dense(self) -> int:
        """The number of dense axes."""
        return self.data.ndim - self.n_batch - 1

    @classmethod
    def fromdense(
        cls, mat: ArrayLike, *, nse: int | None = None, index_dtype: DTypeLike = np.int32,
        n_dense: int = 0, n_batch: int = 0,
    ) -> BCSR:  # fmt: skip
        """Of a dense array; arguments as for `bcoo_fromdense`."""
        return bcsr_fromdense(
            mat, nse=nse, index_dtype=index_dtype, n_dense=n_dense, n_batch=n_batch
        )

    @classmethod
    def from_bcoo(cls, arr: BCOO) -> BCSR:
        """Of a BCOO array with two sparse axes. NotImplementedError for others."""
        if arr.n_sparse != 2:
            raise NotImplementedError(
                f"BCSR.from_bcoo requires n_sparse=2, got n_sparse={arr.n_sparse}; use update_layout"
            )
        arr = arr if arr.indices_sorted else arr.sort_indices()
        rows = arr.shape[arr.n_batch]

        def starts(indices):
            return jnp.searchsorted(
                indices[:, 0], jnp.arange(rows + 1, dtype=indices.dtype), side="left"
            )

        indptr = over_batches(starts, arr.n_batch)(arr.indices).astype(arr.indices.dtype)
        return cls(
            (arr.data, arr.indices[..., 1], indptr), shape=arr.shape,
            indices_sorted=arr.indices_sorted, unique_indices=arr.unique_indices,
        )  # fmt: skip

    @classmethod
    def from_scipy_sparse(
        cls, mat: Any, *, index_dtype: DTypeLike | None = None, n_dense: int = 0, n_batch: int = 0
    ) -> BCSR:
        """Of a matrix of `scipy.sparse`. NotImplementedError for batch and dense axes."""
        if n_dense or n_batch:
            raise NotImplementedError(
                f"BCSR.from_scipy_sparse: n_dense and n_batch must be 0, got {n_dense} and {n_batch}"
            )
        mat = mat.tocsr()
        dtype = np.int32 if index_dtype is None else index_dtype
        buffers = (
            jnp.asarray(mat.data),
            *(jnp.asarray(x).astype(dtype) for x in (mat.indices, mat.indptr)),
        )
        return cls(buffers, shape=mat.shape)

    @classmethod
    def _empty(cls, shape, *, dtype=None, index_dtype="int32", n_dense=0, n_batch=0, nse=0) -> BCSR:
        if n_dense < 0 or n_batch < 0 or nse < 0 or len(shape) - n_dense - n_batch != 2:
            raise ValueError(
                f"an empty BCSR array of shape {tuple(shape)} cannot have n_dense={n_dense}, "
                f"n_batch={n_batch}, nse={nse}: two axes are sparse"
            )
        return cls.from_bcoo(
            BCOO._empty(
                shape,
                dtype=dtype,
                index_dtype=index_dtype,
                n_dense=n_dense,
                n_batch=n_batch,
                nse=nse,
            )
        )

    def to_bcoo(self) -> BCOO:
        """The same array as BCOO."""
        return BCOO(
            (self.data, _coordinates(self.indices, self.indptr)), shape=self.shape,
            indices_sorted=self.indices_sorted, unique_indices=self.unique_indices,
        )  # fmt: skip

    def sum_duplicates(self, nse: int | None = None, remove_zeros: bool = True) -> BCSR:
        """With at most one element at each place; as `BCOO.sum_duplicates`."""
        return BCSR.from_bcoo(self.to_bcoo().sum_duplicates(nse=nse, remove_zeros=remove_zeros))

    def todense(self) -> Array:
        """The dense array."""
        return bcsr_todense(self)

    def transpose(self, axes: Sequence[int] | None = None) -> Any:
        """NotImplementedError: rows cannot become columns; use `to_bcoo().transpose()`."""
        raise NotImplementedError(
            "Transpose is not implemented for BCSR arrays: use to_bcoo().transpose()"
        )


def _view(data, indices, indptr, spinfo) -> BCOO:
    return BCSR((data, indices, indptr), **spinfo._asdict()).to_bcoo()


def _dot_general(
    lhs_data, lhs_indices, lhs_indptr, rhs, *, dimension_numbers, preferred_element_type, lhs_spinfo
):
    return bcoo_dot_general(
        _view(lhs_data, lhs_indices, lhs_indptr, lhs_spinfo), rhs,
        dimension_numbers=dimension_numbers, preferred_element_type=preferred_element_type,
    )  # fmt: skip


def _fromdense(mat, *, nse, n_batch, n_dense, index_dtype):
    made = bcoo_fromdense(mat, nse=nse, n_batch=n_batch, n_dense=n_dense, index_dtype=index_dtype)
    return list(BCSR.from_bcoo(made)._bufs)


def _extract(indices, indptr, arr):
    n_batch = indices.ndim - 1
    places = _coordinates(indices, indptr)
    nse = indices.shape[-1]
    data = jnp.zeros((*places.shape[:n_batch], nse, *arr.shape[n_batch + 2 :]), arr.dtype)
    return bcoo_extract(BCOO((data, places), shape=arr.shape), arr, assume_unique=True).data


def _sum_duplicates(data, indices, indptr, *, spinfo, nse):
    mat = bcoo_sum_duplicates(_view(data, indices, indptr, spinfo), nse=nse)
    return list(BCSR.from_bcoo(mat)._bufs)


bcsr_todense_p = sparse_primitive(
    "bcsr_todense",
    lambda data, indices, indptr, *, spinfo: bcoo_todense(_view(data, indices, indptr, spinfo)),
    ["spinfo"],
)
bcsr_fromdense_p = sparse_primitive(
    "bcsr_fromdense", _fromdense, ["nse", "n_batch", "n_dense", "index_dtype"], True
)
bcsr_extract_p = sparse_primitive("bcsr_extract", _extract, [])
bcsr_dot_general_p = sparse_primitive(
    "bcsr_dot_general", _dot_general, ["dimension_numbers", "preferred_element_type", "lhs_spinfo"]
)
bcsr_sum_duplicates_p = sparse_primitive(
    "bcsr_sum_duplicates", _sum_duplicates, ["spinfo", "nse"], True
)


def bcsr_todense(mat: BCSR) -> Array:
    """The dense array of a sparse one.

    Args: mat: BCSR array.

    >>> from ferrax.experimental import sparse
    >>> sparse.bcsr_todense(sparse.BCSR.fromdense(jnp.eye(2)))
    Array([[1., 0.],
           [0., 1.]], dtype=float32)
    """
    return bcsr_todense_p.bind(*mat._bufs, spinfo=mat._info)


def bcsr_fromdense(
    mat: ArrayLike, *, nse: int | None = None, n_batch: int = 0, n_dense: int = 0,
    index_dtype: DTypeLike = np.int32,
) -> BCSR:  # fmt: skip
    """A BCSR array of a dense one.

    Args: mat, nse, n_batch, n_dense, index_dtype: as for `bcoo_fromdense`; two axes are left sparse.

    >>> from ferrax.experimental import sparse
    >>> sparse.bcsr_fromdense(jnp.eye(2)).indptr
    Array([0, 1, 2], dtype=int32)
    """
    array = jnp.asarray(mat)
    if array.ndim - n_batch - n_dense != 2:
        raise ValueError(
            f"bcsr_fromdense: two axes must be sparse, got shape {tuple(array.shape)} with n_batch={n_batch} "
            f"and n_dense={n_dense}"
        )
    made = bcoo_fromdense(array, nse=nse, n_batch=n_batch, n_dense=n_dense, index_dtype=index_dtype)
    buffers = bcsr_fromdense_p.bind(
        array, nse=made.nse, n_batch=n_batch, n_dense=n_dense, index_dtype=np.dtype(index_dtype)
    )
    return BCSR(tuple(buffers), shape=array.shape, indices_sorted=True, unique_indices=True)


def bcsr_extract(indices: ArrayLike, indptr: ArrayLike, mat: ArrayLike) -> Array:
    """The elements of a dense array at the places of a BCSR array.

    Args: indices, indptr: the buffers of that array; mat: dense array of its shape.

    >>> from ferrax.experimental import sparse
    >>> sparse.bcsr_extract(jnp.array([1, 0]), jnp.array([0, 1, 2]), jnp.array([[1.0, 2.0], [3.0, 4.0]]))
    Array([2., 3.], dtype=float32)
    """
    return bcsr_extract_p.bind(*(jnp.asarray(x) for x in (indices, indptr, mat)))


def bcsr_eliminate_zeros(mat: BCSR, nse: int | None = None) -> BCSR:
    """The sparse array without elements that are zero, and with at most one at each place.

    Args: mat: BCSR array; nse: as for `bcoo_sum_duplicates`.

    >>> from ferrax.experimental.sparse import BCSR, bcsr
    >>> m = BCSR((jnp.array([0.0, 2.0]), jnp.array([0, 1]), jnp.array([0, 1, 2])), shape=(2, 2))
    >>> bcsr.bcsr_eliminate_zeros(m).indptr
    Array([0, 0, 1], dtype=int32)
    """
    return BCSR.from_bcoo(bcoo_eliminate_zeros(mat.to_bcoo(), nse=nse))


def bcsr_sum_duplicates(mat: BCSR, nse: int | None = None) -> BCSR:
    """A BCSR array with at most one element at each place, sorted.

    Args: mat, nse: as for `bcoo_sum_duplicates`.

    >>> from ferrax.experimental import sparse
    >>> m = sparse.BCSR((jnp.ones(2), jnp.array([1, 1]), jnp.array([0, 2])), shape=(1, 2))
    >>> sparse.bcsr_sum_duplicates(m).data
    Array([2.], dtype=float32)
    """
    count = bcoo_sum_duplicates(mat.to_bcoo()).nse if nse is None else int(nse)
    buffers = bcsr_sum_duplicates_p.bind(*mat._bufs, spinfo=mat._info, nse=count)
    return BCSR(tuple(buffers), shape=mat.shape, indices_sorted=True, unique_indices=True)


def bcsr_dot_general(
    lhs: BCSR | Array, rhs: Array, *, dimension_numbers: Any, precision: Any = None,
    preferred_element_type: Any = None, out_sharding: Any = None,
) -> BCSR | BCOO | Array:  # fmt: skip
    """`lax.dot_general` of a BCSR and a dense array.

    Args: lhs, rhs, dimension_numbers, precision, preferred_element_type, out_sharding: as for
    `bcoo_dot_general`.

    >>> from ferrax.experimental import sparse
    >>> m = sparse.BCSR.fromdense(jnp.eye(2))
    >>> sparse.bcsr_dot_general(m, jnp.arange(2.0), dimension_numbers=(((1,), (0,)), ((), ())))
    Array([0., 1.], dtype=float32)
    """
    precision_name(precision)
    check_out_sharding("bcsr_dot_general", out_sharding)
    if not isinstance(lhs, BCSR) or isinstance(rhs, JAXSparse):
        # What is on the right is viewed as coordinates; two sparse arrays have a sparse product.
        parts = [x.to_bcoo() if isinstance(x, BCSR) else x for x in (lhs, rhs)]
        result = bcoo_dot_general(
            *parts,
            dimension_numbers=dimension_numbers,
            preferred_element_type=preferred_element_type,
        )
        if isinstance(result, BCOO) and result.n_sparse == 2:
            return BCSR.from_bcoo(result)
        return result
    (lc, rc), (lb, rb) = dimension_numbers
    numbers = (
        (tuple(map(int, lc)), tuple(map(int, rc))),
        (tuple(map(int, lb)), tuple(map(int, rb))),
    )
    return bcsr_dot_general_p.bind(
        *lhs._bufs, jnp.asarray(rhs), dimension_numbers=numbers, lhs_spinfo=lhs._info,
        preferred_element_type=None if preferred_element_type is None else np.dtype(preferred_element_type),
    )  # fmt: skip


def bcsr_broadcast_in_dim(
    mat: BCSR, *, shape: Sequence[int], broadcast_dimensions: Sequence[int], sharding: Any = None
) -> BCSR:
    """`lax.broadcast_in_dim` of a BCSR array.

    Args: mat, shape, broadcast_dimensions, sharding: as for `bcoo_broadcast_in_dim`. New axes are batch and dense ones:
    NotImplementedError for others.

    >>> from ferrax.experimental import sparse
    >>> m = sparse.BCSR.fromdense(jnp.eye(2))
    >>> sparse.bcsr_broadcast_in_dim(m, shape=(3, 2, 2), broadcast_dimensions=(1, 2))
    BCSR(float32[3, 2, 2], nse=2, n_batch=1)
    """
    result = bcoo_broadcast_in_dim(
        mat.to_bcoo(), shape=shape, broadcast_dimensions=broadcast_dimensions, sharding=sharding
    )
    if result.n_sparse != 2:
        raise NotImplementedError(
            "bcsr_broadcast_in_dim: new axes between rows, columns and dense axes are not supported, got "
            f"{tuple(broadcast_dimensions)}"
        )
    return BCSR.from_bcoo(result)


def bcsr_concatenate(operands: Sequence[BCSR], *, dimension: int) -> BCSR:
    """`lax.concatenate` of BCSR arrays.

    Args: operands, dimension: as for `bcoo_concatenate`.

    >>> from ferrax.experimental import sparse
    >>> m = sparse.BCSR.fromdense(jnp.eye(2))
    >>> sparse.bcsr_concatenate([m, m], dimension=0)
    BCSR(float32[4, 2], nse=4)
    """
    return BCSR.from_bcoo(
        bcoo_concatenate([mat.to_bcoo() for mat in operands], dimension=dimension)
    )
