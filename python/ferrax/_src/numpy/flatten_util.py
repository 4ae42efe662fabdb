"""`ravel_pytree`: a tree of arrays as one vector, and back.

Invariant: unravel functions of trees with equal structure, shapes and dtypes are equal and hash
alike, so passing a fresh one to `jit` as static data does not trace again.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from ferrax._src.base import dtypes
from ferrax._src.lax import api as lax
from ferrax._src.numpy.array_creation import array, asarray
from ferrax._src.numpy.joining import concatenate
from ferrax._src.numpy.shape import ravel, reshape
from ferrax._src.tree.tree_util import PyTreeDef, tree_flatten


def ravel_pytree(pytree: Any) -> tuple[Any, Callable[[Any], Any]]:
    """Concatenates the arrays of a tree into a vector.

    Args:
      pytree: a tree of arrays and scalars.

    Returns `(vector, unravel)`: the vector of all elements, leaf after leaf in C order, with the
    dtype that the leaves promote to; and the function from such a vector to a tree with the
    original shapes and dtypes. `unravel` raises ValueError for a wrong length, and TypeError for a
    wrong dtype if the leaves' dtypes differ from each other.

    >>> from ferrax.flatten_util import ravel_pytree
    >>> vector, unravel = ravel_pytree({"a": jnp.ones(2), "b": 3.0})
    >>> vector
    Array([1., 1., 3.], dtype=float32)
    >>> unravel(2 * vector)
    {'a': Array([2., 2.], dtype=float32), 'b': Array(6., dtype=float32)}
    """
    leaves, treedef = tree_flatten(pytree)
    if not leaves:
        return array([], np.float32), _Unravel(treedef, (), (), None)
    leaf_dtypes = tuple(dtypes.dtype(leaf) for leaf in leaves)
    shapes = tuple(tuple(np.shape(leaf)) for leaf in leaves)
    vector_dtype = dtypes.dtype(leaves[0]) if len(leaves) == 1 else dtypes.result_type(*leaf_dtypes)
    if all(dtype == vector_dtype for dtype in leaf_dtypes):
        vector = concatenate([ravel(leaf) for leaf in leaves])
        return vector, _Unravel(treedef, shapes, leaf_dtypes, None)
    vector = concatenate(
        [ravel(lax.convert_element_type(leaf, vector_dtype)) for leaf in leaves]
    )
    return vector, _Unravel(treedef, shapes, leaf_dtypes, vector_dtype)


class _Unravel:
    """The inverse of one `ravel_pytree`; `vector_dtype` is None if no dtype needs conversion."""

    __slots__ = ("treedef", "shapes", "dtypes", "vector_dtype")

    def __init__(self, treedef: PyTreeDef, shapes, leaf_dtypes, vector_dtype):
        self.treedef = treedef
        self.shapes = shapes
        self.dtypes = leaf_dtypes
        self.vector_dtype = vector_dtype

    def _key(self):
        return self.treedef, self.shapes, self.dtypes, self.vector_dtype

    def __eq__(self, other: object) -> bool:
        if isinstance(other, _Unravel):
            return self._key() == other._key()
        return NotImplemented

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        return f"<unravel function of {self.treedef}>"

    def __call__(self, vector: Any) -> Any:
        if not self.shapes:
            return self.treedef.unflatten(())
        if self.vector_dtype is not None and dtypes.dtype(vector) != self.vector_dtype:
            raise TypeError(
                f"unravel was given array of dtype {dtypes.dtype(vector)}, but expected "
                f"dtype {self.vector_dtype}"
            )
        vector = asarray(vector)
        sizes = [math.prod(shape) for shape in self.shapes]
        if not vector.shape or vector.shape[0] != sum(sizes):
            raise ValueError(
                f"unravel function given array of shape {tuple(vector.shape)}, but expected shape "
                f"({sum(sizes)},)"
            )
        chunks = lax.split(vector, sizes) if len(sizes) > 1 else [vector]
        leaves = [reshape(chunk, shape) for chunk, shape in zip(chunks, self.shapes)]
        if self.vector_dtype is not None:
            with warnings.catch_warnings():
                # The imaginary part is zero where a real leaf was promoted to complex.
                warnings.simplefilter("ignore")
                leaves = [
                    lax.convert_element_type(leaf, dtype)
                    for leaf, dtype in zip(leaves, self.dtypes)
                ]
        return self.treedef.unflatten(leaves)
