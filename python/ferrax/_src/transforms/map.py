"""``map``: a function over the elements of arrays, one after the other."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from ferrax._src import core
from ferrax._src.core import float0
from ferrax._src.lax.control_flow import common
from ferrax._src.lax.control_flow.scan import scan
from ferrax._src.lax.shape import concatenate, reshape
from ferrax._src.lax.slicing import slice_in_dim
from ferrax._src.transforms.batching import vmap
from ferrax._src.tree import tree_util


class _Step:
    """The body of a scan without carry. `func` is the user's function."""

    __slots__ = ("func", "run")

    def __init__(self, func, run):
        self.func = func
        self.run = run

    def __call__(self, _, element):
        return (), self.run(element)

    def leaf_names(self, trees):
        return common.leaf_names(self.func, trees[1:])


def map(f: Callable, xs: Any, *, batch_size: int | None = None) -> Any:
    """The results of ``f`` for each element along axis 0 of ``xs``, stacked.

    One element is computed after the other, in less memory than ``vmap`` needs.

    Args:
      f: a function of one element.
      xs: a pytree of arrays with equal leading axes.
      batch_size: how many elements one step treats with ``vmap``; what is left over is treated
        by itself. 0: all at once.

    Errors: TypeError if ``f`` is not callable; ValueError for leading axes that do not
    fit, and for a negative ``batch_size``.

    >>> lax.map(lambda x: x * x, jnp.arange(4))
    Array([0, 1, 4, 9], dtype=int32)
    """
    if not callable(f):
        raise TypeError(f"lax.map: f argument should be callable, got {type(f).__name__}.")
    if batch_size is None:
        return scan(_Step(f, f), (), xs)[1]

    batch_size = operator.index(batch_size)
    if batch_size < 0:
        raise ValueError(f"lax.map: batch_size must not be negative, got {batch_size}")
    leaves, tree = tree_util.tree_flatten(xs)
    leaves = [core.as_array(leaf, "lax.map") for leaf in leaves]
    sizes = {leaf.shape[:1] for leaf in leaves}
    if len(sizes) != 1 or () in sizes or batch_size == 0:
        # One batch of everything; vmap says what is wrong with the sizes.
        return vmap(f)(xs)
    ((size,),) = sizes
    batches = size // batch_size
    whole = batches * batch_size
    if batches == 0:
        return vmap(f)(xs)
    batched = [
        reshape(slice_in_dim(x, 0, whole), (batches, batch_size, *x.shape[1:])) for x in leaves
    ]
    ys = scan(_Step(f, vmap(f)), (), tree.unflatten(batched))[1]
    ys, out_tree = float0.flatten(float0.reshaped(ys, lambda shape: (size, *shape[2:])))
    ys = [reshape(y, (whole, *y.shape[2:])) for y in ys]
    if whole < size:
        rest = vmap(f)(tree.unflatten([slice_in_dim(x, whole, size) for x in leaves]))
        ys = [concatenate([y, z], 0) for y, z in zip(ys, float0.flatten(rest)[0])]
    return out_tree.unflatten(ys)
