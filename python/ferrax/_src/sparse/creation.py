"""Sparse arrays of all formats: empty ones, identities, random ones, and their dense arrays."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ferrax._src.base import dtypes
from ferrax._src.core import Array, concrete_or_error
from ferrax._src.core.typing import ArrayLike, DTypeLike
from ferrax._src.numpy import api as jnp
from ferrax._src.random import prng, samplers
from ferrax._src.sparse.base import JAXSparse, is_sparse, sparse_primitive
from ferrax._src.sparse.bcoo import BCOO
from ferrax._src.sparse.bcsr import BCSR
from ferrax._src.sparse.coo import COO, CSC, CSR
from ferrax._src.transforms.batching import vmap
from ferrax._src.tree import tree_util

_FORMATS: dict[str, Any] = {"bcsr": BCSR, "bcoo": BCOO, "coo": COO, "csr": CSR, "csc": CSC}


def _format(name: str) -> Any:
    if name not in _FORMATS:
        raise ValueError(
            f"sparse_format={name!r} is not known; it must be one of {', '.join(_FORMATS)}"
        )
    return _FORMATS[name]


def _todense(*buffers, tree):
    array = tree.unflatten(buffers)
    return array.todense() if is_sparse(array) else array


todense_p = sparse_primitive("todense", _todense, ["tree"])


def todense(arr: JAXSparse | ArrayLike) -> Array:
    """The dense array of a sparse or a dense one.

    Args: arr: sparse or dense array. In a function that `sparsify` is given it makes values dense.

    >>> from ferrax.experimental import sparse
    >>> sparse.todense(sparse.eye(2))
    Array([[1., 0.],
           [0., 1.]], dtype=float32)
    """
    buffers, tree = tree_util.tree_flatten(arr)
    return todense_p.bind(*buffers, tree=tree)


def empty(
    shape: Sequence[int], dtype: DTypeLike | None = None, index_dtype: DTypeLike = "int32",
    sparse_format: str = "bcoo", **kwds: Any,
) -> JAXSparse:  # fmt: skip
    """A sparse array without elements.

    Args:
        shape, dtype: of the array; index_dtype: of its indices.
        sparse_format: "bcoo", "bcsr", "coo", "csr" or "csc".
        kwds: of "bcoo" and "bcsr": `n_batch`, `n_dense`, and `nse`, how many elements could be stored.

    Errors: ValueError for other formats.

    >>> from ferrax.experimental import sparse
    >>> sparse.empty((2, 3))
    BCOO(float32[2, 3], nse=0)
    """
    return _format(sparse_format)._empty(tuple(shape), dtype=dtype, index_dtype=index_dtype, **kwds)


def eye(
    N: int, M: int | None = None, k: int = 0, dtype: DTypeLike | None = None,
    index_dtype: DTypeLike = "int32", sparse_format: str = "bcoo", **kwds: Any,
) -> JAXSparse:  # fmt: skip
    """The sparse matrix with ones on a diagonal.

    Args:
        N, M: rows, and columns (as many by default).
        k: the diagonal, above the main one if positive.
        dtype, index_dtype: of the matrix and of its indices.
        sparse_format: as for `empty`, without "bcsr".
        kwds: of "bcoo": `n_batch`, `n_dense`.

    Errors: ValueError for other formats.

    >>> from ferrax.experimental import sparse
    >>> sparse.eye(2, 3, k=1).todense()
    Array([[0., 1., 0.],
           [0., 0., 1.]], dtype=float32)
    """
    if sparse_format == "bcsr":
        raise ValueError("sparse.eye: use BCSR.from_bcoo(sparse.eye(...)) for a BCSR matrix")
    rows, columns, offset = (
        concrete_or_error(operator.index, x, "the sizes of sparse.eye have to be known")
        for x in (N, N if M is None else M, k)
    )
    cls = _format(sparse_format)
    return cls._eye(N=rows, M=columns, k=offset, dtype=dtype, index_dtype=index_dtype, **kwds)


def random_bcoo(
    key: Array, shape: Sequence[int], *, dtype: DTypeLike = float, indices_dtype: DTypeLike | None = None,
    nse: int | float = 0.2, n_batch: int = 0, n_dense: int = 0, unique_indices: bool = True,
    sorted_indices: bool = False, generator: Callable[..., Array] = samplers.uniform, **kwds: Any,
) -> BCOO:  # fmt: skip
    """A BCOO array with random elements at random places.

    Args:
        key: a key.
        shape, dtype: of the array; indices_dtype: of its indices, int32 by default.
        nse: how many elements are stored of each batch, or if it is less than 1 which part of all.
        n_batch, n_dense: how many axes are of the batch, and dense.
        unique_indices: whether places are distinct; sorted_indices: whether they are sorted.
        generator: called as `generator(key, shape, dtype, **kwds)`.

    Errors: ValueError for numbers of axes that do not fit.

    >>> from ferrax.experimental import sparse
    >>> sparse.random_bcoo(ferrax.random.key(0), (4, 5), nse=3)
    BCOO(float32[4, 5], nse=3)
    """
    sizes = tuple(shape)
    n_sparse = len(sizes) - n_batch - n_dense
    if min(n_batch, n_sparse, n_dense) < 0:
        raise ValueError(
            f"random_bcoo: an array of shape {sizes} cannot have n_batch={n_batch} and n_dense={n_dense}"
        )
    batch, sparse, dense = (
        sizes[:n_batch],
        sizes[n_batch : n_batch + n_sparse],
        sizes[n_batch + n_sparse :],
    )
    places = math.prod(sparse)
    if not 0 <= nse < places:
        raise ValueError(f"random_bcoo: nse must be from 0 to less than {places}, got {nse}")
    count = math.ceil(nse * places) if nse < 1 else operator.index(nse)  # type: ignore[arg-type]  # checked there
    index_dtype = dtypes.default_int_dtype() if indices_dtype is None else np.dtype(indices_dtype)
    if places > np.iinfo(index_dtype).max:
        raise ValueError(
            f"random_bcoo: indices of {index_dtype} do not reach the {places} places of {sizes}"
        )

    def indices_of(key):
        if not sparse:
            return jnp.zeros((count, 0), index_dtype)
        flat = samplers.choice(key, places, shape=(count,), replace=not unique_indices).astype(
            index_dtype
        )
        return jnp.stack(jnp.unravel_index(flat, sparse), axis=-1)

    keys = prng.split(key, math.prod(batch) + 1)
    data = generator(keys[0], shape=(*batch, count, *dense), dtype=dtype, **kwds)
    indices = vmap(indices_of)(keys[1:]).reshape(*batch, count, n_sparse)
    mat = BCOO((data, indices), shape=sizes, unique_indices=unique_indices)
    return mat.sort_indices() if sorted_indices else mat
