"""The format BCOO, batched coordinates, and functions that change how an array is stored.

Operators and indexing are written by a higher module (`methods`), for they are sparsified functions.
"""

from __future__ import annotations

import math
import operator
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ferrax._src.base.errors import user_stacklevel
from ferrax._src.core import Array, concrete_or_error
from ferrax._src.core.op_types import precision_name
from ferrax._src.core.typing import ArrayLike, DTypeLike
from ferrax._src.lax import api as lax
from ferrax._src.lax.arguments import check_out_sharding
from ferrax._src.numpy import api as jnp
from ferrax._src.sparse.base import (
    Batched,
    SparseEfficiencyError,
    SparseEfficiencyWarning,
    count_stored,
    in_bounds,
    is_sparse,
    masked,
    out_of_bounds,
    over_batches,
)
from ferrax._src.sparse.bcoo_elements import (
    Layout,
    bcoo_extract_p,
    bcoo_fromdense_p,
    bcoo_sort_indices_p,
    bcoo_sum_duplicates_p,
    bcoo_todense_p,
    bcoo_transpose_p,
    checked_permutation,
    count_distinct,
    layout_of,
)
from ferrax._src.sparse.bcoo_products import (
    bcoo_dot_general_p,
    bcoo_dot_general_sampled_p,
    bcoo_spdot_general_p,
    dimensions,
)
from ferrax._src.tree import tree_util


@tree_util.register_pytree_node_class
class BCOO(Batched):
    """A sparse array by the coordinates of its elements, with batches; a pytree of its buffers.

    Args:
        args: `(data, indices)`: arrays of the shapes `(*batch, nse, *dense)` and
            `(*batch, nse, n_sparse)`. Elements at one place are added; those out of bounds are padding.
            Batch axes may have size 1 for any size.
        shape: `(*batch, *sparse, *dense)`.
        indices_sorted, unique_indices: whether the indices are known to be so.

    Errors: ValueError for buffers that do not fit the shape.

    Example:
        >>> from ferrax.experimental import sparse
        >>> m = sparse.BCOO.fromdense(jnp.array([[0.0, 2.0, 0.0], [1.0, 0.0, 4.0]]))
        >>> m, m @ jnp.ones(3)
        (BCOO(float32[2, 3], nse=3), Array([2., 5.], dtype=float32))
    """

    data: Array
    indices: Array
    _buffers = ("data", "indices")

    if TYPE_CHECKING:
        # Written by `methods`.
        def reshape(self, *args: Any, **kwargs: Any) -> BCOO: ...
        def astype(self, *args: Any, **kwargs: Any) -> BCOO: ...

    def __init__(
        self, args: Sequence[ArrayLike], *, shape: Sequence[int],
        indices_sorted: bool = False, unique_indices: bool = False,
    ) -> None:  # fmt: skip
        self.data, self.indices = map(jnp.asarray, args)
        self.indices_sorted, self.unique_indices = indices_sorted, unique_indices
        super().__init__(args, shape=shape)
        layout_of(self.data, self.indices, self.shape)

    @property
    def _layout(self) -> Layout:
        return Layout(self.n_batch, self.n_sparse, self.n_dense, self.nse)

    @property
    def nse(self) -> int:
        """How many elements are stored, of each batch."""
        return self.indices.shape[-2]

    @property
    def n_batch(self) -> int:
        """The number of batch axes, which are first."""
        return self.indices.ndim - 2

    @property
    def n_sparse(self) -> int:
        """The number of sparse axes."""
        return self.indices.shape[-1]

    @property
    def n_dense(self) -> int:
        """The number of dense axes, which are last."""
        return self.data.ndim - 1 - self.n_batch

    @classmethod
    def fromdense(
        cls, mat: ArrayLike, *, nse: int | None = None, index_dtype: DTypeLike = np.int32,
        n_dense: int = 0, n_batch: int = 0,
    ) -> BCOO:  # fmt: skip
        """Of a dense array; arguments as for `bcoo_fromdense`."""
        return bcoo_fromdense(
            mat, nse=nse, index_dtype=index_dtype, n_dense=n_dense, n_batch=n_batch
        )

    @classmethod
    def from_scipy_sparse(
        cls, mat: Any, *, index_dtype: DTypeLike | None = None, n_dense: int = 0, n_batch: int = 0
    ) -> BCOO:
        """Of a matrix of `scipy.sparse`. NotImplementedError for batch and dense axes."""
        if n_dense or n_batch:
            raise NotImplementedError(
                f"BCOO.from_scipy_sparse: n_dense and n_batch must be 0, got {n_dense} and {n_batch}; use "
                "update_layout afterwards"
            )
        mat = mat.tocoo()
        indices = jnp.stack([jnp.asarray(mat.row), jnp.asarray(mat.col)], axis=-1)
        indices = indices.astype(np.int32 if index_dtype is None else index_dtype)
        return cls((jnp.asarray(mat.data), indices), shape=mat.shape)

    @classmethod
    def _empty(cls, shape, *, dtype=None, index_dtype="int32", n_dense=0, n_batch=0, nse=0) -> BCOO:
        layout = Layout(n_batch, len(shape) - n_dense - n_batch, n_dense, nse)
        if min(layout) < 0:
            raise ValueError(
                f"an empty BCOO array of shape {tuple(shape)} cannot have n_dense={n_dense}, "
                f"n_batch={n_batch}, nse={nse}"
            )
        batch, sparse, dense = layout.parts(tuple(shape))
        # Indices that are the sizes stand for no element.
        beyond = jnp.broadcast_to(jnp.array(sparse, index_dtype), (*batch, nse, len(sparse)))
        buffers = jnp.zeros((*batch, nse, *dense), dtype), beyond
        return cls(buffers, shape=tuple(shape), indices_sorted=True, unique_indices=True)

    @classmethod
    def _eye(cls, N, M, k, *, dtype=None, index_dtype="int32", n_batch=0, n_dense=0) -> BCOO:
        if min(2 - n_batch - n_dense, n_batch, n_dense) < 0:
            raise ValueError(
                f"a matrix cannot have n_batch={n_batch} and n_dense={n_dense}: they are 2 at most"
            )
        size = min(N, M - k) if k > 0 else min(N + k, M)
        if size <= 0:
            return cls._empty(
                (N, M), dtype=dtype, index_dtype=index_dtype, n_batch=n_batch, n_dense=n_dense
            )
        if n_dense or n_batch > 1:
            dense = jnp.eye(N, M, k, dtype=dtype)
            return cls.fromdense(dense, n_batch=n_batch, n_dense=n_dense, index_dtype=index_dtype)
        if n_batch:
            rows = np.arange(N) + k
            inside = (rows >= 0) & (rows < M)
            data = jnp.asarray(inside[:, None]).astype(jnp.ones((), dtype).dtype)
            indices = jnp.asarray(np.where(inside, rows, M)[:, None, None], dtype=index_dtype)
        else:
            data = jnp.ones(size, dtype)
            places = np.arange(size)
            indices = jnp.asarray(
                np.stack([places - min(k, 0), places + max(k, 0)], axis=-1), dtype=index_dtype
            )
        return cls((data, indices), shape=(N, M), indices_sorted=True, unique_indices=True)

    def update_layout(
        self, *, n_batch: int | None = None, n_dense: int | None = None,
        on_inefficient: str | None = "error",
    ) -> BCOO:  # fmt: skip
        """With other numbers of batch and dense axes; as `bcoo_update_layout`."""
        return bcoo_update_layout(
            self, n_batch=n_batch, n_dense=n_dense, on_inefficient=on_inefficient
        )

    def sum_duplicates(self, nse: int | None = None, remove_zeros: bool = True) -> BCOO:
        """With at most one element at each place, sorted.

        `nse` is how many are stored, by default as many as are needed; those beyond are dropped.
        `remove_zeros` drops elements that are 0.
        """
        return (
            bcoo_eliminate_zeros(self, nse=nse)
            if remove_zeros
            else bcoo_sum_duplicates(self, nse=nse)
        )

    def sort_indices(self) -> BCOO:
        """With sorted indices."""
        return bcoo_sort_indices(self)

    def todense(self) -> Array:
        """The dense array."""
        return bcoo_todense(self)

    def transpose(self, axes: Sequence[int] | None = None) -> BCOO:
        """With permuted axes, by default reversed; as `bcoo_transpose`."""
        permutation = range(self.ndim)[::-1] if axes is None else axes
        return bcoo_transpose(self, permutation=tuple(permutation))


def _checked(mat: BCOO) -> Layout:
    return layout_of(mat.data, mat.indices, mat.shape)


def bcoo_todense(mat: BCOO) -> Array:
    """The dense array of a sparse one.

    Args: mat: BCOO array.

    >>> from ferrax.experimental import sparse
    >>> sparse.bcoo_todense(sparse.eye(2))
    Array([[1., 0.],
           [0., 1.]], dtype=float32)
    """
    return bcoo_todense_p.bind(mat.data, mat.indices, spinfo=mat._info)


def bcoo_fromdense(
    mat: ArrayLike, *, nse: int | None = None, n_batch: int = 0, n_dense: int = 0,
    index_dtype: DTypeLike = np.int32,
) -> BCOO:  # fmt: skip
    """A sparse array of a dense one.

    Args:
        mat: array.
        nse: how many elements are stored, of each batch; by default the most that a batch has, which has
            to be known: not in functions being traced. Those beyond are dropped.
        n_batch, n_dense: how many axes are of the batch, and how many are dense.
        index_dtype: of the indices.

    >>> from ferrax.experimental import sparse
    >>> sparse.bcoo_fromdense(jnp.array([0.0, 3.0])).indices
    Array([[1]], dtype=int32)
    """
    array = jnp.asarray(mat)
    if min(n_batch, n_dense, array.ndim - n_batch - n_dense) < 0:
        raise ValueError(
            f"bcoo_fromdense: an array of shape {tuple(array.shape)} cannot have n_batch={n_batch} and "
            f"n_dense={n_dense}"
        )
    wanted = count_stored(array, n_batch, n_dense) if nse is None else nse
    count = concrete_or_error(
        operator.index,
        wanted,
        "nse of bcoo_fromdense has to be known: pass it where arrays are traced",
    )
    data, indices = bcoo_fromdense_p.bind(
        array, nse=count, n_batch=n_batch, n_dense=n_dense, index_dtype=np.dtype(index_dtype)
    )
    return BCOO((data, indices), shape=array.shape, indices_sorted=True, unique_indices=True)


def bcoo_extract(sparr: BCOO, arr: ArrayLike, *, assume_unique: bool | None = None) -> BCOO:
    """The elements of a dense array at the places where a sparse one has some.

    Args:
        sparr: BCOO array, for its indices.
        arr: dense array of the same shape.
        assume_unique: whether no place is there twice; by default what is known of `sparr`. If it may
            be, the element is stored once and zeros further on.

    Errors: ValueError for another shape.

    >>> from ferrax.experimental import sparse
    >>> sparse.bcoo_extract(sparse.eye(2), jnp.array([[1.0, 2.0], [3.0, 4.0]])).data
    Array([1., 4.], dtype=float32)
    """
    if not isinstance(sparr, BCOO):
        raise TypeError(f"bcoo_extract: a BCOO array is expected, got {type(sparr).__name__}")
    dense = jnp.asarray(arr)
    if dense.shape != sparr.shape:
        raise ValueError(
            f"bcoo_extract: both must have one shape, got {sparr.shape} and {tuple(dense.shape)}"
        )
    _, places = sparr._bufs
    known = sparr.unique_indices if assume_unique is None else assume_unique
    found = bcoo_extract_p.bind(places, dense, assume_unique=bool(known))
    return BCOO((found, places), **sparr._info._asdict())


def bcoo_transpose(mat: BCOO, *, permutation: Sequence[int]) -> BCOO:
    """A sparse array with permuted axes.

    Args: mat: BCOO array; permutation: axis k of the result is `permutation[k]` of the array. Batch, sparse
    and dense axes stay what they are: NotImplementedError otherwise.

    >>> from ferrax.experimental import sparse
    >>> sparse.bcoo_transpose(sparse.eye(2, 3), permutation=(1, 0))
    BCOO(float32[3, 2], nse=2)
    """
    axes = checked_permutation(_checked(mat), permutation)
    if axes == tuple(range(mat.ndim)):
        return mat
    data, indices = bcoo_transpose_p.bind(mat.data, mat.indices, permutation=axes, spinfo=mat._info)
    shape = tuple(mat.shape[axis] for axis in axes)
    sparse = mat._layout.parts(axes)[1]
    return BCOO(
        (data, indices), shape=shape, unique_indices=mat.unique_indices,
        indices_sorted=mat.indices_sorted and list(sparse) == sorted(sparse),
    )  # fmt: skip


def bcoo_sort_indices(mat: BCOO) -> BCOO:
    """The same sparse array, its indices in ascending order.

    Args: mat: BCOO array.

    >>> from ferrax.experimental import sparse
    >>> m = sparse.BCOO((jnp.array([1.0, 2.0]), jnp.array([[1], [0]])), shape=(2,))
    >>> sparse.bcoo_sort_indices(m).data
    Array([2., 1.], dtype=float32)
    """
    info = mat._info
    buffers = bcoo_sort_indices_p.bind(mat.data, mat.indices, spinfo=info)
    return BCOO(buffers, **info._replace(indices_sorted=True)._asdict())


def bcoo_sum_duplicates(mat: BCOO, nse: int | None = None) -> BCOO:
    """A sparse array with at most one element at each place, sorted.

    Args: mat: BCOO array; nse: how many elements are stored, by default as many as are needed, which has to
    be known: not in functions being traced. Those beyond are dropped.

    >>> from ferrax.experimental import sparse
    >>> m = sparse.BCOO((jnp.array([1.0, 2.0]), jnp.array([[1], [1]])), shape=(2,))
    >>> sparse.bcoo_sum_duplicates(m).data
    Array([3.], dtype=float32)
    """
    wanted = count_distinct(mat.indices, mat.shape) if nse is None else nse
    count = concrete_or_error(
        operator.index,
        wanted,
        "nse of bcoo_sum_duplicates has to be known: pass it where arrays are traced",
    )
    data, indices = bcoo_sum_duplicates_p.bind(mat.data, mat.indices, spinfo=mat._info, nse=count)
    return BCOO((data, indices), shape=mat.shape, indices_sorted=True, unique_indices=True)


def bcoo_eliminate_zeros(mat: BCOO, nse: int | None = None) -> BCOO:
    """The sparse array without elements that are zero: `bcoo_sum_duplicates` of the others.

    Args: mat: BCOO array; nse: as for `bcoo_sum_duplicates`.

    >>> from ferrax.experimental.sparse import bcoo
    >>> m = bcoo.BCOO((jnp.array([0.0, 2.0]), jnp.array([[0], [1]])), shape=(2,))
    >>> bcoo.bcoo_eliminate_zeros(m).data
    Array([2.], dtype=float32)
    """
    layout = _checked(mat)
    sparse = layout.parts(mat.shape)[1]
    keep = jnp.any(mat.data != 0, axis=tuple(range(layout.n_batch + 1, mat.data.ndim)))
    # Indices that several batches share stay if one of them needs them.
    shared = tuple(k for k in range(layout.n_batch) if mat.indices.shape[k] == 1)
    keep = jnp.any(keep, axis=shared, keepdims=True)
    indices = over_batches(lambda i, m: out_of_bounds(i, m, sparse), layout.n_batch)(
        mat.indices, keep
    )
    return bcoo_sum_duplicates(BCOO((mat.data, indices), shape=mat.shape), nse=nse)


def bcoo_dot_general(
    lhs: BCOO | Array, rhs: BCOO | Array, *, dimension_numbers: Any, precision: Any = None,
    preferred_element_type: Any = None, out_sharding: Any = None,
) -> BCOO | Array:  # fmt: skip
    """`lax.dot_general` where one or both arrays are sparse.

    Args:
        lhs, rhs: BCOO or dense arrays of one dtype.
        dimension_numbers: `((lhs_contracting, rhs_contracting), (lhs_batch, rhs_batch))`. Batch dimensions
            have to be batch axes of sparse arrays; dense axes are not contracted.
        precision: as for `lax.dot_general`, checked: products are of full precision whatever it says.
        preferred_element_type: the dtype of the result.
        out_sharding: where the result is to be.

    Returns: a dense array where one of them is dense, else a BCOO array.

    Errors: those of `lax.dot_general`; NotImplementedError for other axes.

    >>> from ferrax.experimental import sparse
    >>> numbers = (((1,), (0,)), ((), ()))
    >>> sparse.bcoo_dot_general(2 * sparse.eye(2), jnp.arange(2.0), dimension_numbers=numbers)
    Array([0., 2.], dtype=float32)
    """
    precision_name(precision)
    check_out_sharding("bcoo_dot_general", out_sharding)
    axes = dimensions(dimension_numbers)
    numbers = ((axes.lhs_contract, axes.rhs_contract), (axes.lhs_batch, axes.rhs_batch))
    settings = {
        "preferred_element_type": None
        if preferred_element_type is None
        else np.dtype(preferred_element_type)
    }
    if isinstance(lhs, BCOO) and isinstance(rhs, BCOO):
        data, indices = bcoo_spdot_general_p.bind(
            *lhs._bufs, *rhs._bufs, lhs_spinfo=lhs._info, rhs_spinfo=rhs._info,
            dimension_numbers=numbers, **settings,
        )  # fmt: skip
        left = [k for k in range(lhs.ndim) if k not in (*axes.lhs_batch, *axes.lhs_contract)]
        right = [k for k in range(rhs.ndim) if k not in (*axes.rhs_batch, *axes.rhs_contract)]
        shape = [lhs.shape[k] for k in (*axes.lhs_batch, *left)] + [rhs.shape[k] for k in right]
        return BCOO((data, indices), shape=shape)
    if isinstance(lhs, BCOO):
        return bcoo_dot_general_p.bind(
            *lhs._bufs,
            jnp.asarray(rhs),
            dimension_numbers=numbers,
            lhs_spinfo=lhs._info,
            **settings,
        )
    if isinstance(rhs, BCOO):
        swapped = (numbers[0][::-1], numbers[1][::-1])
        result = bcoo_dot_general_p.bind(
            *rhs._bufs,
            jnp.asarray(lhs),
            dimension_numbers=swapped,
            lhs_spinfo=rhs._info,
            **settings,
        )
        batch, contracted = len(axes.lhs_batch), len(axes.lhs_contract)
        # What is free in the sparse array came first.
        middle = rhs.ndim - contracted
        order = [*range(batch), *range(middle, result.ndim), *range(batch, middle)]
        return jnp.transpose(result, order)
    return lax.dot_general(lhs, rhs, numbers, preferred_element_type=preferred_element_type)


def bcoo_dot_general_sampled(
    A: Array, B: Array, indices: Array, *, dimension_numbers: Any
) -> Array:
    """The elements of a product of dense arrays at some places.

    Args:
        A, B: dense arrays of one dtype.
        indices: array `(*batch, nse, n_sparse)`, as of a BCOO array of the product's shape.
        dimension_numbers: as for `lax.dot_general`.

    Returns: `(*batch, nse, *dense)`, as the data of such an array.

    >>> from ferrax.experimental import sparse
    >>> a = jnp.array([[1.0, 2.0], [3.0, 4.0]])
    >>> sparse.bcoo_dot_general_sampled(a, a, jnp.array([[1, 1]]), dimension_numbers=(((1,), (0,)), ((), ())))
    Array([22.], dtype=float32)
    """
    axes = dimensions(dimension_numbers)
    numbers = ((axes.lhs_contract, axes.rhs_contract), (axes.lhs_batch, axes.rhs_batch))
    operands = [jnp.asarray(x) for x in (A, B, indices)]
    return bcoo_dot_general_sampled_p.bind(*operands, dimension_numbers=numbers)


# ---------------------------------------------------------------------------- layouts


def _dense_to_sparse(mat: BCOO, count: int) -> BCOO:
    """The first so many dense axes made sparse."""
    layout = mat._layout
    sizes = mat.data.shape[layout.n_batch + 1 : layout.n_batch + 1 + count]
    more = math.prod(sizes)
    head = mat.data.shape[: layout.n_batch]
    data = mat.data.reshape(*head, layout.nse * more, *mat.data.shape[layout.n_batch + 1 + count :])
    places = np.stack(np.meshgrid(*map(np.arange, sizes), indexing="ij"), axis=-1).reshape(
        more, count
    )
    own = jnp.broadcast_to(
        mat.indices[..., None, :], (*mat.indices.shape[:-1], more, layout.n_sparse)
    )
    new = jnp.broadcast_to(
        jnp.asarray(places, mat.indices.dtype).reshape((1,) * (layout.n_batch + 1) + places.shape),
        (*mat.indices.shape[:-1], more, count),
    )
    indices = jnp.concatenate([own, new], axis=-1)
    indices = indices.reshape(
        *indices.shape[: layout.n_batch], layout.nse * more, indices.shape[-1]
    )
    return BCOO((data, indices), shape=mat.shape, unique_indices=mat.unique_indices)


def _batch_to_sparse(mat: BCOO, count: int) -> BCOO:
    """The last so many batch axes made sparse."""
    layout = mat._layout
    left = layout.n_batch - count
    sizes = mat.shape[left : layout.n_batch]

    def full(x):
        batch = x.shape[:left]
        return jnp.broadcast_to(x, (*batch, *sizes, *x.shape[layout.n_batch :]))

    data, indices = full(mat.data), full(mat.indices)
    places = np.stack(np.meshgrid(*map(np.arange, sizes), indexing="ij"), axis=-1)
    places = places.reshape((1,) * left + (*sizes, 1, count))
    new = jnp.broadcast_to(jnp.asarray(places, indices.dtype), (*indices.shape[:-1], count))
    indices = jnp.concatenate([new, indices], axis=-1)
    nse = math.prod(sizes) * layout.nse
    data = data.reshape(*data.shape[:left], nse, *data.shape[layout.n_batch + 1 :])
    indices = indices.reshape(*indices.shape[:left], nse, indices.shape[-1])
    return BCOO((data, indices), shape=mat.shape, unique_indices=mat.unique_indices)


def _sparse_to_dense(mat: BCOO, count: int) -> BCOO:
    """The last so many sparse axes made dense: each element becomes an array with zeros."""
    layout = mat._layout
    kept = layout.n_sparse - count
    sizes = mat.shape[layout.n_batch + kept :]

    def one(data, indices):
        rows = jnp.arange(layout.nse)
        places = tuple(indices[:, kept + k] for k in range(count))
        wide = (
            jnp.zeros((layout.nse, *sizes), data.dtype).at[(rows, *places)].set(data, mode="drop")
        )
        return wide, indices[:, :kept]

    data, indices = over_batches(one, layout.n_batch)(mat.data, mat.indices)
    return BCOO((data, indices), shape=mat.shape)


def _sparse_to_batch(mat: BCOO, count: int) -> BCOO:
    """The first so many sparse axes made batch axes: each batch stores all elements, those of others 0."""
    layout = mat._layout
    sizes = mat.shape[layout.n_batch : layout.n_batch + count]
    rest = mat.shape[layout.n_batch + count : layout.n_batch + layout.n_sparse]

    def one(data, indices):
        own = tuple(indices[:, k] for k in range(count))
        places = (*own, jnp.arange(layout.nse))
        wide = jnp.zeros((*sizes, layout.nse, *data.shape[1:]), data.dtype)
        shape = (*sizes, layout.nse, layout.n_sparse - count)
        limits = jnp.broadcast_to(jnp.array(rest, indices.dtype), shape)
        return (
            wide.at[places].set(data, mode="drop"),
            limits.at[places].set(indices[:, count:], mode="drop"),
        )

    data, indices = over_batches(one, layout.n_batch)(mat.data, mat.indices)
    return BCOO((data, indices), shape=mat.shape)


def bcoo_update_layout(
    mat: BCOO, *, n_batch: int | None = None, n_dense: int | None = None,
    on_inefficient: str | None = "error",
) -> BCOO:  # fmt: skip
    """A sparse array stored with other numbers of batch and dense axes.

    Args:
        mat: BCOO array.
        n_batch, n_dense: the new numbers, by default what they are.
        on_inefficient: what to do where many zeros will be stored, because an axis of more than one element
            becomes a batch or a dense axis: "error" raises SparseEfficiencyError, "warn" warns with
            SparseEfficiencyWarning, None does it.

    Errors: ValueError for negative numbers, and more axes than there are.

    >>> from ferrax.experimental import sparse
    >>> m = sparse.BCOO.fromdense(jnp.ones((2, 3)), n_batch=1)
    >>> sparse.bcoo_update_layout(m, n_batch=0)
    BCOO(float32[2, 3], nse=6)
    """
    layout = _checked(mat)
    batch = layout.n_batch if n_batch is None else operator.index(n_batch)
    dense = layout.n_dense if n_dense is None else operator.index(n_dense)
    if on_inefficient not in ("error", "warn", None):
        raise ValueError(f"on_inefficient must be 'error', 'warn' or None, got {on_inefficient!r}")
    if min(batch, dense) < 0 or batch + dense > mat.ndim:
        raise ValueError(
            f"n_batch and n_dense must not be negative and at most {mat.ndim}, the number of axes, together; "
            f"got {batch} and {dense}"
        )
    for name, grown, sizes in (
        (
            "n_dense",
            dense - layout.n_dense,
            mat.shape[mat.ndim - dense : mat.ndim - layout.n_dense],
        ),
        ("n_batch", batch - layout.n_batch, mat.shape[layout.n_batch : batch]),
    ):
        if grown > 0 and any(size > 1 for size in sizes):
            text = (
                f"{name} larger by {grown} for an array of shape {mat.shape} stores many zeros; "
                "on_inefficient=None does it all the same"
            )
            if on_inefficient == "error":
                raise SparseEfficiencyError(text)
            if on_inefficient == "warn":
                warnings.warn(text, SparseEfficiencyWarning, stacklevel=user_stacklevel())
    if dense < layout.n_dense:
        mat = _dense_to_sparse(mat, layout.n_dense - dense)
    if batch < layout.n_batch:
        mat = _batch_to_sparse(mat, layout.n_batch - batch)
    if dense > mat.n_dense:
        mat = _sparse_to_dense(mat, dense - mat.n_dense)
    if batch > mat.n_batch:
        mat = _sparse_to_batch(mat, batch - mat.n_batch)
    return mat


def without_padding(mat: BCOO) -> BCOO:
    """With zeros for the elements that are out of bounds, so that indices may be forgotten."""
    sparse = mat._layout.parts(mat.shape)[1]
    keep = in_bounds(mat.indices, sparse)
    batch = np.broadcast_shapes(mat.data.shape[: mat.n_batch], keep.shape[: mat.n_batch])
    data = jnp.broadcast_to(mat.data, (*batch, *mat.data.shape[mat.n_batch :]))
    keep = jnp.broadcast_to(keep, (*batch, mat.nse))
    return BCOO((masked(data, keep), mat.indices), **mat._info._asdict())


__all__ = ["BCOO", "is_sparse"]
