"""What all formats of sparse arrays share: their base class, errors, and functions over batches."""

from __future__ import annotations

import abc
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ferrax._src import core
from ferrax._src.core import Array
from ferrax._src.core.typing import ArrayLike
from ferrax._src.lax import api as lax
from ferrax._src.numpy import api as jnp
from ferrax._src.numpy.util import canonical_shape
from ferrax._src.transforms.batching import vmap
from ferrax._src.transforms.composites import composite
from ferrax._src.transforms.jit import jit


class SparseEfficiencyError(ValueError):
    """A sparse array would be stored with many zeros.

    >>> issubclass(ferrax.experimental.sparse.SparseEfficiencyError, ValueError)
    True
    """


class SparseEfficiencyWarning(UserWarning):
    """A sparse array is stored with many zeros.

    >>> issubclass(ferrax.experimental.sparse.SparseEfficiencyWarning, UserWarning)
    True
    """


class CuSparseEfficiencyWarning(SparseEfficiencyWarning):
    """The warning of this name that JAX gives on GPUs, for programs that filter it; never given here.

    >>> issubclass(ferrax.experimental.sparse.CuSparseEfficiencyWarning, UserWarning)
    True
    """


class SparseInfo(NamedTuple):
    """What is known of a sparse array beside its buffers; a parameter of equations.

    >>> from ferrax.experimental.sparse.util import SparseInfo
    >>> SparseInfo((2, 3)).indices_sorted
    False
    """

    shape: tuple[int, ...]
    indices_sorted: bool = False
    unique_indices: bool = False


class JAXSparse(abc.ABC):
    """The base class of sparse arrays. They are pytrees of their buffers, and have no hash.

    Attributes: data: the stored elements; shape: of the array; dtype, ndim, size, nse: as for arrays, and
    the number of stored elements; T: the transpose.

    >>> from ferrax.experimental import sparse
    >>> isinstance(sparse.eye(3), sparse.JAXSparse)
    True
    """

    data: Any
    shape: tuple[int, ...]
    __hash__ = None  # type: ignore[assignment]  # as said above
    # NumPy leaves operators to this class.
    __array_priority__ = 100

    def __init__(self, args: Sequence[Any], *, shape: Sequence[int]) -> None:
        self.shape = canonical_shape(shape)

    @property
    @abc.abstractmethod
    def nse(self) -> int:
        """How many elements are stored (of each batch)."""

    @property
    def dtype(self) -> np.dtype:
        """The dtype of the elements."""
        return self.data.dtype

    @abc.abstractmethod
    def tree_flatten(self) -> tuple[Any, Any]:
        """The buffers, and what else there is."""

    @classmethod
    @abc.abstractmethod
    def tree_unflatten(cls, aux_data: Any, children: Any) -> Any:
        """The array of what `tree_flatten` gives."""

    @abc.abstractmethod
    def todense(self) -> Array:
        """The dense array."""

    @abc.abstractmethod
    def transpose(self, axes: Sequence[int] | None = None) -> Any:
        """With permuted axes."""

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements, stored or not."""
        return math.prod(self.shape)

    @property
    def T(self) -> Any:
        """The transpose."""
        return self.transpose()

    def __len__(self) -> int:
        return self.shape[0]

    def _described(self) -> str:
        return f"nse={self.nse}"

    def __repr__(self) -> str:
        name = type(self).__name__
        try:
            text = f"{name}({self.dtype}{list(self.shape)}, {self._described()})"
        except Exception:  # noqa: BLE001 - transformations put anything in the place of buffers
            return f"{name}(<invalid>)"
        if isinstance(self.data, core.Tracer):
            return f"{type(self.data).__name__}[{text}]"
        return text

    def block_until_ready(self) -> Any:
        """Waits for the buffers; returns the array."""
        for buffer in self.tree_flatten()[0]:
            buffer.block_until_ready()
        return self

    def _missing(self, operation: str) -> Any:
        raise NotImplementedError(
            f"{type(self).__name__}.{operation} is not implemented: convert with todense() or to BCOO"
        )

    def sum(self, *args: Any, **kwargs: Any) -> Any:
        """The sum, where the format has it."""
        return self._missing("sum")

    def __neg__(self) -> Any:
        return self._missing("__neg__")

    def __pos__(self) -> Any:
        return self._missing("__pos__")

    def __matmul__(self, other: Any) -> Any:
        return self._missing("__matmul__")

    def __rmatmul__(self, other: Any) -> Any:
        return self._missing("__rmatmul__")

    def __mul__(self, other: Any) -> Any:
        return self._missing("__mul__")

    def __rmul__(self, other: Any) -> Any:
        return self._missing("__rmul__")

    def __add__(self, other: Any) -> Any:
        return self._missing("__add__")

    def __radd__(self, other: Any) -> Any:
        return self._missing("__radd__")

    def __sub__(self, other: Any) -> Any:
        return self._missing("__sub__")

    def __rsub__(self, other: Any) -> Any:
        return self._missing("__rsub__")

    def __getitem__(self, item: Any) -> Any:
        return self._missing("__getitem__")


class Batched(JAXSparse):
    """What BCOO and BCSR share: pytrees of the buffers named by `_buffers`, which have batch axes first."""

    indices: Any
    indices_sorted: bool
    unique_indices: bool
    _buffers: tuple[str, ...]

    @property
    def _bufs(self) -> tuple[Any, ...]:
        return tuple([getattr(self, name) for name in self._buffers])

    @property
    def _info(self) -> SparseInfo:
        return SparseInfo(self.shape, self.indices_sorted, self.unique_indices)

    def _described(self) -> str:
        more = [
            f"{name}={value}" for name in ("n_batch", "n_dense") if (value := getattr(self, name))
        ]
        return ", ".join([f"nse={self.nse}", *more])

    def tree_flatten(self) -> tuple[Any, Any]:
        """The buffers, and the shape and what is known of the indices."""
        return self._bufs, self._info._asdict()

    @classmethod
    def tree_unflatten(cls, aux_data: Any, children: Any) -> Any:
        """The array of what `tree_flatten` gives; its buffers may be anything."""
        mat = object.__new__(cls)
        for name, value in (*zip(cls._buffers, children, strict=True), *aux_data.items()):
            setattr(mat, name, value)
        return mat


def is_sparse(x: Any) -> bool:
    """Whether this is a sparse array."""
    return isinstance(x, JAXSparse)


def sparse_primitive(
    name: str, run: Callable[..., Any], static: Sequence[str], several: bool = False
):
    """The primitive that does what `run` does, which is compiled where it is called outside of others."""
    return composite(name, jit(run, static_argnames=tuple(static), inline=True), several)


def over_batches(function: Callable[..., Any], count: int) -> Callable[..., Any]:
    """`function` over so many leading axes of its arrays, where axes of size 1 go with any size."""
    for _ in range(count):
        function = _over_one(function)
    return function


def _over_one(function):
    def mapped(*args):
        sizes = {x.shape[0] for x in args}
        size = next(iter(sizes - {1}), 1)
        if not sizes <= {1, size}:
            raise ValueError(f"batches of sparse arrays have different sizes: {sorted(sizes)}")
        axes = tuple(0 if x.shape[0] == size else None for x in args)
        own = [lax.squeeze(x, (0,)) if axis is None else x for x, axis in zip(args, axes)]
        return vmap(function, in_axes=axes)(*own)

    return mapped


def columns(indices: Array) -> tuple[Array, ...]:
    """The columns of a matrix of indices."""
    return tuple(indices[:, k] for k in range(indices.shape[1]))


def in_bounds(indices: Array, shape: Sequence[int]) -> Array:
    """Which of the stored elements are in the array, `(..., nse)`; others are padding."""
    if not shape:
        return jnp.ones(indices.shape[:-1], bool)
    limits = jnp.array(shape, indices.dtype).reshape((1,) * (indices.ndim - 1) + (-1,))
    return jnp.all((indices >= 0) & (indices < limits), axis=-1)


def masked(data: Array, keep: Array) -> Array:
    """`data`, and 0 where `keep`, of its leading axes, is not set."""
    shape = tuple(keep.shape) + (1,) * (data.ndim - keep.ndim)
    return jnp.where(keep.reshape(shape), data, jnp.zeros((), data.dtype))


def out_of_bounds(indices: Array, keep: Array, shape: Sequence[int]) -> Array:
    """`indices`, and those just outside of the shape where `keep` is not set."""
    limits = jnp.array(shape, indices.dtype).reshape((1,) * (indices.ndim - 1) + (-1,))
    return jnp.where(keep[..., None], indices, limits)


def count_in_batches(mat: ArrayLike, n_batch: int = 0, n_dense: int = 0) -> Array:
    """The number of nonzero elements in each batch."""
    mask = jnp.asarray(mat) != 0
    if n_dense:
        mask = mask.any(tuple(range(mask.ndim - n_dense, mask.ndim)))
    return mask.sum(tuple(range(n_batch, mask.ndim)))


def count_stored(mat: ArrayLike, n_batch: int = 0, n_dense: int = 0) -> Array:
    """The largest number of nonzero elements in a batch."""
    return count_in_batches(mat, n_batch, n_dense).max(initial=0)
