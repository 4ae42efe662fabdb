"""Sparse arrays as references to buffers that they may share: the inner form of `sparsify`.

In: an environment, a list of buffers that only grows; values that name buffers of it by number. Out: the
same. Arrays of one environment that name one buffer of indices share it, which operations see: their sum
has no more elements than each of them (`rules`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ferrax._src.core import Array
from ferrax._src.core.avals import ShapedArray
from ferrax._src.core.typing import ArrayLike
from ferrax._src.numpy import api as jnp
from ferrax._src.sparse.base import JAXSparse, is_sparse
from ferrax._src.sparse.bcoo import BCOO
from ferrax._src.sparse.bcsr import BCSR
from ferrax._src.sparse.transform import evaluate, traced
from ferrax._src.tree import tree_util

__all__ = [
    "SparsifyEnv", "SparsifyValue", "arrays_to_spvalues", "sparsify_raw", "spvalues_to_arrays",
    "spvalues_to_avals",
]  # fmt: skip


class SparsifyValue(NamedTuple):
    """An array by the numbers of its buffers in an environment.

    Attributes: shape: of the array; data_ref: its elements; indices_ref: for sparse arrays; indptr_ref: for
    BCSR arrays; indices_sorted, unique_indices: whether the indices are known to be so.

    >>> from ferrax.experimental.sparse.transform import SparsifyValue
    >>> SparsifyValue((3,), 0, 1).is_bcoo()
    True
    """

    shape: tuple[int, ...]
    data_ref: int
    indices_ref: int | None = None
    indptr_ref: int | None = None
    indices_sorted: bool = False
    unique_indices: bool = False

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    def is_sparse(self) -> bool:
        """Whether there are indices."""
        return self.indices_ref is not None

    def is_dense(self) -> bool:
        """Whether all elements are stored."""
        return self.indices_ref is None

    def is_bcoo(self) -> bool:
        """Whether it is a BCOO array."""
        return self.is_sparse() and self.indptr_ref is None

    def is_bcsr(self) -> bool:
        """Whether it is a BCSR array."""
        return self.is_sparse() and self.indptr_ref is not None


class SparsifyEnv:
    """Buffers of arrays, which `SparsifyValue`s name by their numbers.

    Args: bufs: the first buffers.

    >>> from ferrax.experimental.sparse.transform import SparsifyEnv
    >>> env = SparsifyEnv()
    >>> env.data(env.dense(jnp.arange(3)))
    Array([0, 1, 2], dtype=int32)
    """

    _buffers: list[Array]

    def __init__(self, bufs: Sequence[ArrayLike] = ()) -> None:
        self._buffers = list(map(jnp.asarray, bufs))

    def _push(self, array: ArrayLike) -> int:
        self._buffers.append(jnp.asarray(array))
        return len(self._buffers) - 1

    def _number(self, name: str, array: ArrayLike | None, number: int | None) -> int | None:
        if array is not None and number is not None:
            raise ValueError(f"SparsifyEnv: {name} is given as an array and as the number of a buffer")
        return number if array is None else self._push(array)

    def data(self, spvalue: SparsifyValue) -> Array:
        """The elements of a value."""
        return self._buffers[spvalue.data_ref]

    def indices(self, spvalue: SparsifyValue) -> Array:
        """The indices of a sparse value; ValueError for a dense one."""
        return self._of("indices", spvalue.indices_ref)

    def indptr(self, spvalue: SparsifyValue) -> Array:
        """Where rows of a BCSR value begin; ValueError for others."""
        return self._of("indptr", spvalue.indptr_ref)

    def _of(self, name, number):
        if number is None:
            raise ValueError(f"SparsifyEnv.{name}: the value has no {name}")
        return self._buffers[number]

    def dense(self, data: ArrayLike) -> SparsifyValue:
        """A dense array as a value."""
        number = self._push(data)
        return SparsifyValue(tuple(self._buffers[number].shape), number)

    def sparse(
        self, shape: Sequence[int], data: ArrayLike | None = None, indices: ArrayLike | None = None,
        indptr: ArrayLike | None = None, *, data_ref: int | None = None, indices_ref: int | None = None,
        indptr_ref: int | None = None, indices_sorted: bool = False, unique_indices: bool = False,
    ) -> SparsifyValue:  # fmt: skip
        """A sparse array as a value: of each buffer either the array or, if it is there already, the number.

        ValueError where data or indices are missing, or a buffer is given twice.
        """
        data_ref = self._number("data", data, data_ref)
        indices_ref = self._number("indices", indices, indices_ref)
        indptr_ref = self._number("indptr", indptr, indptr_ref)
        if data_ref is None or indices_ref is None:
            raise ValueError("SparsifyEnv.sparse: data and indices have to be given, as arrays or as numbers")
        return SparsifyValue(tuple(shape), data_ref, indices_ref, indptr_ref, indices_sorted, unique_indices)


    def _known(self, array: Any) -> SparsifyValue:
        """An array as a value; buffers that are here already keep their numbers."""
        numbers: dict[int, int] = {}
        for number, buffer in enumerate(self._buffers):
            numbers.setdefault(id(buffer), number)
        buffers = array._bufs if is_sparse(array) else (jnp.asarray(array),)
        refs = [numbers[id(x)] if id(x) in numbers else self._push(x) for x in buffers]
        if not is_sparse(array):
            return SparsifyValue(tuple(array.shape), refs[0])
        return self.sparse(
            array.shape, **dict(zip(("data_ref", "indices_ref", "indptr_ref"), refs)),
            indices_sorted=array.indices_sorted, unique_indices=array.unique_indices,
        )  # fmt: skip


def _is_value(x) -> bool:
    return isinstance(x, SparsifyValue)


def arrays_to_spvalues(spenv: SparsifyEnv, args: Any) -> Any:
    """A tree of arrays and sparse arrays as values of an environment, which gets their buffers.

    Args: spenv: the environment; args: the tree. TypeError for sparse arrays other than BCOO and BCSR.

    >>> from ferrax.experimental.sparse.transform import SparsifyEnv, arrays_to_spvalues
    >>> arrays_to_spvalues(SparsifyEnv(), [jnp.zeros(3)])[0].data_ref
    0
    """

    def value(array):
        if not is_sparse(array):
            return spenv.dense(array)
        if not isinstance(array, (BCOO, BCSR)):
            raise TypeError(f"expected arrays, BCOO or BCSR arrays, got {type(array).__name__}")
        return spenv.sparse(
            array.shape, *array._bufs, indices_sorted=array.indices_sorted, unique_indices=array.unique_indices
        )

    return tree_util.tree_map(value, args, is_leaf=is_sparse)


def spvalues_to_arrays(spenv: SparsifyEnv, spvalues: Any) -> Any:
    """The arrays of a tree of values.

    Args: spenv: the environment; spvalues: the tree.

    >>> from ferrax.experimental.sparse.transform import SparsifyEnv, SparsifyValue, spvalues_to_arrays
    >>> env = SparsifyEnv([jnp.ones(1), jnp.array([[2]])])
    >>> spvalues_to_arrays(env, [SparsifyValue((3,), 0, 1)])[0].todense()
    Array([0., 0., 1.], dtype=float32)
    """

    def array(value: SparsifyValue) -> Array | JAXSparse:
        if value.is_dense():
            return spenv.data(value)
        buffers = [spenv.data(value), spenv.indices(value)]
        if value.is_bcsr():
            buffers.append(spenv.indptr(value))
        kind: Any = BCSR if value.is_bcsr() else BCOO
        return kind(
            buffers, shape=value.shape, indices_sorted=value.indices_sorted, unique_indices=value.unique_indices
        )

    return tree_util.tree_map(array, spvalues, is_leaf=_is_value)


def spvalues_to_avals(spenv: SparsifyEnv, spvalues: Any) -> Any:
    """The types that a tree of values would have as dense arrays.

    Args: spenv: the environment; spvalues: the tree.

    >>> from ferrax.experimental.sparse.transform import SparsifyEnv, SparsifyValue, spvalues_to_avals
    >>> spvalues_to_avals(SparsifyEnv([jnp.ones(1), jnp.array([[2]])]), [SparsifyValue((3,), 0, 1)])
    [ShapedArray(float32[3])]
    """
    values, tree = tree_util.tree_flatten(spvalues, is_leaf=_is_value)
    stored = map(spenv.data, values)
    return tree.unflatten(
        ShapedArray(value.shape, elements.dtype, weak_type=elements.weak_type)
        for value, elements in zip(values, stored)
    )


def sparsify_raw(f: Callable[..., Any]) -> Callable[..., Any]:
    """A function of dense arrays, as one of values of an environment.

    Args: f: a function of trees of arrays.
    Returns: a function of an environment and of trees of its values, which gives a list of values of the same
        environment, and the structure of `f`'s result. Keywords are passed on to `f` as they are.

    Errors: as for `sparsify`.

    >>> from ferrax.experimental.sparse.transform import SparsifyEnv, sparsify_raw, spvalues_to_arrays
    >>> env = SparsifyEnv([jnp.array([[2]]), jnp.ones(1), jnp.ones(1)])
    >>> x, y = (env.sparse((3,), data_ref=n, indices_ref=0) for n in (1, 2))
    >>> values, tree = sparsify_raw(jnp.add)(env, x, y)
    >>> spvalues_to_arrays(env, values)
    [BCOO(float32[3], nse=1)]
    """

    def wrapped(spenv: SparsifyEnv, *spvalues: Any, **params: Any) -> tuple[list[SparsifyValue], Any]:
        given, tree = tree_util.tree_flatten(spvalues, is_leaf=_is_value)
        if not all(map(_is_value, given)):
            raise TypeError(f"sparsify_raw: expected trees of SparsifyValue, got {spvalues}")
        arrays = spvalues_to_arrays(spenv, given)
        jaxpr, out_tree = traced(lambda *args: f(*args, **params), tree, arrays)
        return [spenv._known(array) for array in evaluate(jaxpr, arrays)], out_tree

    return wrapped
