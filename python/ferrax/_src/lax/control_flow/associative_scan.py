"""``associative_scan``: all prefixes of a sequence combined, in logarithmic depth."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ferrax._src import core
from ferrax._src.core import api_util
from ferrax._src.lax.arguments import canonical_axis
from ferrax._src.lax.control_flow import common
from ferrax._src.lax.elementwise import _convert_element_type
from ferrax._src.lax.shape import concatenate, expand_dims, reshape, rev
from ferrax._src.lax.slicing import slice_in_dim
from ferrax._src.tree import tree_util

__all__ = ["associative_scan"]


def associative_scan(fn: Callable, elems: Any, reverse: bool = False, axis: int = 0) -> Any:
    """Combines each prefix of ``elems`` along ``axis`` with an associative function.

    Pairs of neighbours are combined at once, then pairs of pairs: about ``2 * log2(n)`` calls of
    ``fn`` on slices, ``2 * n`` combinations of elements.

    Args:
      fn: ``(a, b) -> c``, associative, on trees of arrays like ``elems``; it treats all places
        along ``axis`` alike.
      elems: a pytree of arrays of equal size along ``axis``.
      reverse: combine suffixes, from the end: ``a`` of ``fn(a, b)`` comes after ``b``.
      axis: the axis to scan.

    Returns a pytree like ``elems``. Errors: TypeError if ``fn`` is not callable; ValueError for
    sizes that differ, an axis out of range, or an ``fn`` that changes the number of leaves or a
    shape (TypeError: dtype).

    The scheme is that of Blelloch, Prefix Sums and Their Applications (1990).

    >>> lax.associative_scan(jnp.multiply, jnp.array([1, 2, 3, 4]))
    Array([ 1,  2,  6, 24], dtype=int32)
    """
    if not callable(fn):
        raise TypeError(
            f"lax.associative_scan: fn has to be callable, got {type(fn).__name__}."
        )
    leaves, tree = tree_util.tree_flatten(elems)
    if not leaves:
        return elems
    leaves = [core.as_array(leaf, "lax.associative_scan") for leaf in leaves]
    axis = canonical_axis(axis, leaves[0].ndim)
    # Of the first it is there: `canonical_axis` says so.
    sizes: list[Any] = [x.shape[axis] if axis < x.ndim else None for x in leaves]
    if sizes.count(sizes[0]) != len(sizes):
        shapes = "\n".join(
            f"  * elems{path} has type {common.type_text((x.shape, x.dtype, False))}"
            for path, x in zip(common.paths(tree), leaves)
        )
        raise ValueError(
            "associative_scan: the arrays of elems differ in size along the scanned axis "
            f"{axis}:\n{shapes}{common.at_user_line()}"
        )

    def combine(first, second):
        out, out_tree = tree_util.tree_flatten(fn(tree.unflatten(first), tree.unflatten(second)))
        expected = [(x.shape, x.dtype) for x in first]
        out = [core.as_array(x, "lax.associative_scan") for x in out]
        if [(x.shape, x.dtype) for x in out] != expected:
            _raise_mismatch(fn, tree, first, out_tree, out)
        return out

    if reverse:
        leaves = [rev(x, (axis,)) for x in leaves]
    leaves = _prefixes(combine, leaves, axis)
    if sizes[0] > 1:
        leaves = [_convert_element_type(x, x.dtype, weak_type=False) for x in leaves]
    if reverse:
        leaves = [rev(x, (axis,)) for x in leaves]
    return tree.unflatten(leaves)


def _raise_mismatch(fn, tree, elems, out_tree, out):
    def types(arrays):
        return ", ".join(common.type_text((x.shape, x.dtype, False)) for x in arrays)

    error: type[Exception] = ValueError
    if [x.shape for x in elems] == [x.shape for x in out]:
        error = TypeError
    raise error(
        f"associative_scan: {api_util.fun_place(fn)} must return what it takes: expected {tree} "
        f"with leaves ({types(elems)}), got {out_tree} with leaves ({types(out)})."
        f"{common.at_user_line()}"
    )


def _prefixes(combine, elems, axis):
    size = elems[0].shape[axis]
    if size < 2:
        return elems

    def every_second(x, start, stop):
        return slice_in_dim(x, start, stop, stride=2, axis=axis)

    # Pairs (0, 1), (2, 3), ...: their prefixes are the whole's at odd places.
    pairs = combine(
        [every_second(x, 0, size - 1) for x in elems], [every_second(x, 1, size) for x in elems]
    )
    odd = _prefixes(combine, pairs, axis)
    # The prefix at an even place is the odd one before it with one element more.
    before = [slice_in_dim(x, 0, (size - 1) // 2, axis=axis) for x in odd]
    first = [slice_in_dim(x, 0, 1, axis=axis) for x in elems]
    if size == 2:
        even = first
    else:
        even = combine(before, [every_second(x, 2, size) for x in elems])
        even = [concatenate([x, y], axis) for x, y in zip(first, even)]
    return [_interleave(x, y, axis) for x, y in zip(even, odd)]


def _interleave(even, odd, axis):
    """The elements of `even`, which has as many as `odd` or one more, at the even places."""
    count = odd.shape[axis]
    last = None
    if even.shape[axis] > count:
        last = slice_in_dim(even, count, count + 1, axis=axis)
        even = slice_in_dim(even, 0, count, axis=axis)
    both = concatenate([expand_dims(x, (axis + 1,)) for x in (even, odd)], axis + 1)
    shape = even.shape[:axis] + (2 * count,) + even.shape[axis + 1 :]
    both = reshape(both, shape)
    return both if last is None else concatenate([both, last], axis)
