"""The formats COO, CSR and CSC: matrices, for programs that were written for them.

Each is a view of BCOO: products and conversions are those of BCOO, as primitives of the formats' names.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from ferrax._src.core import Array, concrete_or_error
from ferrax._src.core.typing import ArrayLike, DTypeLike
from ferrax._src.numpy import api as jnp
from ferrax._src.numpy.util import promote_dtypes
from ferrax._src.sparse.base import JAXSparse, SparseInfo, count_stored, sparse_primitive
from ferrax._src.sparse.bcoo import BCOO, bcoo_fromdense, bcoo_todense
from ferrax._src.sparse.bcoo_products import bcoo_dot_general_p
from ferrax._src.sparse.bcsr import _rows
from ferrax._src.tree import tree_util


def _diagonal(rows: int, columns: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns of the elements of a diagonal, above the main one if k is positive."""
    size = max(0, min(rows + min(k, 0), columns - max(k, 0)))
    places = np.arange(size)
    return places - min(k, 0), places + max(k, 0)


class _Matrix(JAXSparse):
    """What the three formats share. Buffers are `data` and two vectors of integers."""

    _buffers: tuple[str, str]

    @property
    def nse(self) -> int:
        """How many elements are stored."""
        return self.data.size

    @property
    def _bufs(self) -> tuple[Array, Array, Array]:
        return self.data, *(getattr(self, name) for name in self._buffers)

    def _refuse_axes(self, axes):
        if axes is not None:
            raise NotImplementedError(f"{type(self).__name__}.transpose: axes must be None")

    @classmethod
    def fromdense(
        cls, mat: ArrayLike, *, nse: int | None = None, index_dtype: DTypeLike = np.int32
    ) -> Any:
        """Of a dense matrix; `nse` is how many elements are stored, by default those that are not 0."""
        raise NotImplementedError

    @classmethod
    def _empty(cls, shape, *, dtype=None, index_dtype="int32"):
        shape = tuple(shape)
        if len(shape) != 2:
            raise ValueError(f"{cls.__name__} must be of two axes, got shape {shape}")
        return cls.fromdense(jnp.zeros(shape, dtype), nse=0, index_dtype=index_dtype)

    @classmethod
    def _eye(cls, N, M, k, *, dtype=None, index_dtype="int32"):
        raise NotImplementedError

    def tree_flatten(self) -> tuple[Any, Any]:
        """The buffers, and the shape."""
        return self._bufs, self._info._asdict()

    @property
    def _info(self) -> SparseInfo:
        return SparseInfo(self.shape)

    @classmethod
    def tree_unflatten(cls, aux_data: Any, children: Any) -> Any:
        """The matrix of what `tree_flatten` gives; its buffers may be anything."""
        mat = object.__new__(cls)
        mat.data = children[0]
        for name, child in zip(cls._buffers, children[1:]):
            setattr(mat, name, child)
        mat.shape = aux_data["shape"]
        return mat

    def _product(self, other: Any) -> Any:
        raise NotImplementedError

    def __matmul__(self, other: Any) -> Any:
        if isinstance(other, JAXSparse):
            raise NotImplementedError(
                f"matmul between two sparse arrays: {type(self).__name__} has products with dense arrays; use "
                "BCOO"
            )
        return self._product(jnp.asarray(other))


@tree_util.register_pytree_node_class
class COO(_Matrix):
    """A sparse matrix by the coordinates of its elements; a pytree of its buffers.

    Args: args: `(data, row, col)`, vectors of one size; shape: rows and columns; rows_sorted, cols_sorted:
    whether rows are known to be sorted, and columns.

    >>> from ferrax.experimental import sparse
    >>> sparse.COO.fromdense(jnp.eye(2)) @ jnp.arange(2.0)
    Array([0., 1.], dtype=float32)
    """

    row: Array
    col: Array
    _buffers = ("row", "col")

    def __init__(
        self, args: Sequence[ArrayLike], *, shape: Sequence[int],
        rows_sorted: bool = False, cols_sorted: bool = False,
    ) -> None:  # fmt: skip
        self.data, self.row, self.col = map(jnp.asarray, args)
        super().__init__(args, shape=tuple(shape))
        self._rows_sorted, self._cols_sorted = rows_sorted, cols_sorted

    @classmethod
    def fromdense(
        cls, mat: ArrayLike, *, nse: int | None = None, index_dtype: DTypeLike = np.int32
    ) -> COO:
        """Of a dense matrix; as `coo_fromdense`."""
        return coo_fromdense(mat, nse=nse, index_dtype=index_dtype)

    @classmethod
    def _eye(cls, N, M, k, *, dtype=None, index_dtype="int32"):
        row, col = _diagonal(N, M, k)
        buffers = (jnp.ones(row.size, dtype), *(jnp.asarray(x, index_dtype) for x in (row, col)))
        return cls(buffers, shape=(N, M), rows_sorted=True, cols_sorted=True)

    def todense(self) -> Array:
        """The dense matrix."""
        return coo_todense(self)

    def transpose(self, axes: Sequence[int] | None = None) -> COO:
        """The transpose. NotImplementedError for `axes`."""
        self._refuse_axes(axes)
        return COO((self.data, self.col, self.row), shape=self.shape[::-1])

    def _sort_indices(self) -> COO:
        """With sorted rows."""
        order = jnp.lexsort((self.col, self.row))
        return COO(
            (self.data[order], self.row[order], self.col[order]), shape=self.shape, rows_sorted=True
        )

    def tree_flatten(self) -> tuple[Any, Any]:
        """The buffers, and the shape and what is known of the order."""
        aux = {
            "shape": self.shape,
            "rows_sorted": self._rows_sorted,
            "cols_sorted": self._cols_sorted,
        }
        return self._bufs, aux

    @classmethod
    def tree_unflatten(cls, aux_data: Any, children: Any) -> COO:
        """The matrix of what `tree_flatten` gives."""
        mat = super().tree_unflatten(aux_data, children)
        mat._rows_sorted, mat._cols_sorted = aux_data["rows_sorted"], aux_data["cols_sorted"]
        return mat

    def _product(self, other):
        return _times("coo", self, other)


@tree_util.register_pytree_node_class
class CSR(_Matrix):
    """A sparse matrix by compressed rows; a pytree of its buffers.

    Args: args: `(data, indices, indptr)`: elements, their columns, and where rows begin; shape: rows and
    columns.

    >>> from ferrax.experimental import sparse
    >>> sparse.CSR.fromdense(jnp.eye(2)).indptr
    Array([0, 1, 2], dtype=int32)
    """

    indices: Array
    indptr: Array
    _buffers = ("indices", "indptr")

    def __init__(self, args: Sequence[ArrayLike], *, shape: Sequence[int]) -> None:
        self.data, self.indices, self.indptr = map(jnp.asarray, args)
        super().__init__(args, shape=tuple(shape))

    @classmethod
    def fromdense(
        cls, mat: ArrayLike, *, nse: int | None = None, index_dtype: DTypeLike = np.int32
    ) -> CSR:
        """Of a dense matrix; as `csr_fromdense`."""
        return csr_fromdense(mat, nse=nse, index_dtype=index_dtype)

    @classmethod
    def _eye(cls, N, M, k, *, dtype=None, index_dtype="int32"):
        row, col = _diagonal(N, M, k)
        starts = np.searchsorted(row, np.arange(N + 1))
        buffers = (jnp.ones(row.size, dtype), *(jnp.asarray(x, index_dtype) for x in (col, starts)))
        return cls(buffers, shape=(N, M))

    def todense(self) -> Array:
        """The dense matrix."""
        return csr_todense(self)

    def transpose(self, axes: Sequence[int] | None = None) -> CSC:
        """The transpose, by compressed columns. NotImplementedError for `axes`."""
        self._refuse_axes(axes)
        return CSC((self.data, self.indices, self.indptr), shape=self.shape[::-1])

    def _product(self, other):
        return _times("csr", self, other)


@tree_util.register_pytree_node_class
class CSC(_Matrix):
    """A sparse matrix by compressed columns; a pytree of its buffers.

    Args: args: `(data, indices, indptr)`: elements, their rows, and where columns begin; shape: rows and
    columns.

    >>> from ferrax.experimental import sparse
    >>> sparse.CSC.fromdense(jnp.eye(2)).todense()
    Array([[1., 0.],
           [0., 1.]], dtype=float32)
    """

    indices: Array
    indptr: Array
    _buffers = ("indices", "indptr")

    def __init__(self, args: Sequence[ArrayLike], *, shape: Sequence[int]) -> None:
        self.data, self.indices, self.indptr = map(jnp.asarray, args)
        super().__init__(args, shape=tuple(shape))

    @classmethod
    def fromdense(
        cls, mat: ArrayLike, *, nse: int | None = None, index_dtype: DTypeLike = np.int32
    ) -> CSC:
        """Of a dense matrix; as `csr_fromdense`."""
        return csr_fromdense(jnp.asarray(mat).T, nse=nse, index_dtype=index_dtype).T

    @classmethod
    def _eye(cls, N, M, k, *, dtype=None, index_dtype="int32"):
        return CSR._eye(M, N, -k, dtype=dtype, index_dtype=index_dtype).T

    def todense(self) -> Array:
        """The dense matrix."""
        return csr_todense(self.T).T

    def transpose(self, axes: Sequence[int] | None = None) -> CSR:
        """The transpose, by compressed rows. NotImplementedError for `axes`."""
        self._refuse_axes(axes)
        return CSR((self.data, self.indices, self.indptr), shape=self.shape[::-1])

    def _product(self, other):
        return _times("csr", self.T, other, transpose=True)


# ---------------------------------------------------------------------------- primitives


def _coordinates(format_, first, second, nse):
    """Rows and columns of the elements of a matrix in this format."""
    return (first, second) if format_ == "coo" else (_rows(second, nse).astype(first.dtype), first)


def _bcoo(format_, data, first, second, shape) -> BCOO:
    row, col = _coordinates(format_, first, second, data.shape[0])
    return BCOO((data, jnp.stack([row, col.astype(row.dtype)], axis=-1)), shape=shape)


def _make(format_):
    """The primitives of a format: to and from dense matrices, products with vectors and matrices, and these
    again as primitives that are told the shape alone."""

    def todense(data, first, second, *, spinfo):
        return bcoo_todense(_bcoo(format_, data, first, second, spinfo.shape))

    def fromdense(mat, *, nse, index_dtype):
        made = bcoo_fromdense(mat, nse=nse, index_dtype=index_dtype)
        row, col = made.indices[:, 0], made.indices[:, 1]
        if format_ == "coo":
            return [made.data, row, col]
        starts = jnp.searchsorted(row, jnp.arange(mat.shape[0] + 1, dtype=row.dtype), side="left")
        return [made.data, col, starts.astype(row.dtype)]

    def product(data, first, second, other, *, spinfo, transpose):
        mat = _bcoo(format_, data, first, second, spinfo.shape)
        axis = 0 if transpose else 1
        return bcoo_dot_general_p.bind(
            *mat._bufs, other, dimension_numbers=(((axis,), (0,)), ((), ())), lhs_spinfo=mat._info,
            preferred_element_type=None,
        )  # fmt: skip

    def product_by_shape(data, first, second, other, *, transpose, shape):
        return product(data, first, second, other, spinfo=SparseInfo(shape), transpose=transpose)

    static = ["spinfo", "transpose"]
    by_shape = ["transpose", "shape"]
    return (
        sparse_primitive(f"{format_}_todense", todense, ["spinfo"]),
        sparse_primitive(f"{format_}_fromdense", fromdense, ["nse", "index_dtype"], True),
        sparse_primitive(f"{format_}_matvec", product, static),
        sparse_primitive(f"{format_}_matmat", product, static),
        sparse_primitive(f"{format_}_spmv", product_by_shape, by_shape),
        sparse_primitive(f"{format_}_spmm", product_by_shape, by_shape),
    )


coo_todense_p, coo_fromdense_p, coo_matvec_p, coo_matmat_p, coo_spmv_p, coo_spmm_p = _make("coo")
csr_todense_p, csr_fromdense_p, csr_matvec_p, csr_matmat_p, csr_spmv_p, csr_spmm_p = _make("csr")
_PRODUCTS = {"coo": (coo_matvec_p, coo_matmat_p), "csr": (csr_matvec_p, csr_matmat_p)}


def _times(format_, mat, other, transpose=False):
    """The product of a matrix, or of its transpose, with a vector or a matrix."""
    data, other = promote_dtypes(mat.data, other)
    if other.ndim not in (1, 2):
        raise NotImplementedError(
            f"products of {type(mat).__name__} with arrays of shape {tuple(other.shape)}: vectors and matrices "
            "are supported"
        )
    primitive = _PRODUCTS[format_][other.ndim - 1]
    return primitive.bind(
        data, *mat._bufs[1:], other, spinfo=SparseInfo(mat.shape), transpose=bool(transpose)
    )


def _count(name, mat, nse):
    wanted = count_stored(mat) if nse is None else nse
    return concrete_or_error(
        operator.index, wanted, f"nse of {name} has to be known: pass it where arrays are traced"
    )


def _checked(name, mat, rank, other) -> Array:
    array = jnp.asarray(other)
    if array.ndim != rank:
        raise ValueError(
            f"{name}: an array of {rank} axes is expected, got shape {tuple(array.shape)}"
        )
    return array


def coo_fromdense(
    mat: ArrayLike, *, nse: int | None = None, index_dtype: DTypeLike = np.int32
) -> COO:
    """A COO matrix of a dense one.

    Args: mat: matrix; nse: how many elements are stored, by default those that are not 0, whose number has to
    be known; index_dtype: of rows and columns.

    >>> from ferrax.experimental import sparse
    >>> sparse.coo_fromdense(jnp.eye(2)).row
    Array([0, 1], dtype=int32)
    """
    array = _checked("coo_fromdense", None, 2, mat)
    count = _count("coo_fromdense", array, nse)
    buffers = coo_fromdense_p.bind(array, nse=count, index_dtype=np.dtype(index_dtype))
    return COO(tuple(buffers), shape=array.shape, rows_sorted=True)


def coo_todense(mat: COO) -> Array:
    """The dense matrix of a COO matrix.

    Args: mat: COO matrix.

    >>> from ferrax.experimental import sparse
    >>> sparse.coo_todense(sparse.coo_fromdense(jnp.eye(2)))
    Array([[1., 0.],
           [0., 1.]], dtype=float32)
    """
    return coo_todense_p.bind(*mat._bufs, spinfo=SparseInfo(mat.shape))


def coo_matvec(mat: COO, v: ArrayLike, transpose: bool = False) -> Array:
    """The product of a COO matrix and a vector.

    Args: mat: COO matrix; v: vector; transpose: whether that of the transpose.

    >>> from ferrax.experimental import sparse
    >>> sparse.coo_matvec(sparse.coo_fromdense(jnp.eye(2)), jnp.arange(2.0))
    Array([0., 1.], dtype=float32)
    """
    return _times("coo", mat, _checked("coo_matvec", mat, 1, v), transpose)


def coo_matmat(mat: COO, B: ArrayLike, *, transpose: bool = False) -> Array:
    """The product of a COO matrix and a matrix.

    Args: mat: COO matrix; B: matrix; transpose: whether that of the transpose.

    >>> from ferrax.experimental import sparse
    >>> sparse.coo_matmat(sparse.coo_fromdense(jnp.eye(2)), jnp.ones((2, 1)))
    Array([[1.],
           [1.]], dtype=float32)
    """
    return _times("coo", mat, _checked("coo_matmat", mat, 2, B), transpose)


def csr_fromdense(
    mat: ArrayLike, *, nse: int | None = None, index_dtype: DTypeLike = np.int32
) -> CSR:
    """A CSR matrix of a dense one.

    Args: mat, nse, index_dtype: as for `coo_fromdense`.

    >>> from ferrax.experimental import sparse
    >>> sparse.csr_fromdense(jnp.eye(2)).indices
    Array([0, 1], dtype=int32)
    """
    array = _checked("csr_fromdense", None, 2, mat)
    count = _count("csr_fromdense", array, nse)
    buffers = csr_fromdense_p.bind(array, nse=count, index_dtype=np.dtype(index_dtype))
    return CSR(tuple(buffers), shape=array.shape)


def csr_todense(mat: CSR) -> Array:
    """The dense matrix of a CSR matrix.

    Args: mat: CSR matrix.

    >>> from ferrax.experimental import sparse
    >>> sparse.csr_todense(sparse.csr_fromdense(jnp.eye(2)))
    Array([[1., 0.],
           [0., 1.]], dtype=float32)
    """
    return csr_todense_p.bind(*mat._bufs, spinfo=SparseInfo(mat.shape))


def csr_matvec(mat: CSR, v: ArrayLike, transpose: bool = False) -> Array:
    """The product of a CSR matrix and a vector.

    Args: mat: CSR matrix; v: vector; transpose: whether that of the transpose.

    >>> from ferrax.experimental import sparse
    >>> sparse.csr_matvec(sparse.csr_fromdense(jnp.eye(2)), jnp.arange(2.0))
    Array([0., 1.], dtype=float32)
    """
    return _times("csr", mat, _checked("csr_matvec", mat, 1, v), transpose)


def csr_matmat(mat: CSR, B: ArrayLike, *, transpose: bool = False) -> Array:
    """The product of a CSR matrix and a matrix.

    Args: mat: CSR matrix; B: matrix; transpose: whether that of the transpose.

    >>> from ferrax.experimental import sparse
    >>> sparse.csr_matmat(sparse.csr_fromdense(jnp.eye(2)), jnp.ones((2, 1)))
    Array([[1.],
           [1.]], dtype=float32)
    """
    return _times("csr", mat, _checked("csr_matmat", mat, 2, B), transpose)
