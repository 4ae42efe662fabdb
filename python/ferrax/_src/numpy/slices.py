"""`Slice`: an index of static size whose start may be traced, made by `ferrax.ds`."""

from __future__ import annotations

import dataclasses
from typing import Any

from ferrax._core import Array
from ferrax._src.tree import tree_util

__all__ = ["Slice", "ds"]


@dataclasses.dataclass
class Slice:
    """The elements `start`, `start + stride`, ...: `size` of them, along one axis.

    `start` is an integer or a scalar array, traced or not; `size` and `stride` are integers.

    >>> jnp.arange(6)[ferrax.ds(1, 2)]
    Array([1, 2], dtype=int32)
    >>> ferrax.ds(1, 2)
    Slice(start=1, size=2, stride=1)
    """

    start: Any
    size: int
    stride: int = 1

    def __post_init__(self) -> None:
        if isinstance(self.stride, int) and self.stride < 0:
            raise ValueError(f"a Slice has a stride >= 0, got {self.stride}")
        if isinstance(self.size, int) and self.size < 0:
            raise ValueError(f"a Slice has a size >= 0, got {self.size}")

    @property
    def is_dynamic_start(self) -> bool:
        """Whether the start is an array."""
        return not isinstance(self.start, int)

    @property
    def is_dynamic_size(self) -> bool:
        """Whether the size is an array; no operation takes such a slice."""
        return not isinstance(self.size, int)

    @classmethod
    def from_slice(cls, slc: slice, size: int) -> Slice:
        """The elements that a slice with a positive step picks of an axis of this size.

        Errors: ValueError for another step.

        >>> Slice.from_slice(slice(1, None), 4)
        Slice(start=1, size=3, stride=1)
        """
        start, stop, step = slc.indices(size)
        if step < 1:
            raise ValueError(f"slice must have a step >= 1 (found: {step})")
        return cls(start, len(range(start, stop, step)), step)


def _flatten(item: Slice):
    dynamic = [isinstance(value, Array) for value in (item.start, item.size)]
    children = [value for value, flag in zip((item.start, item.size), dynamic) if flag]
    static = tuple(None if flag else value for value, flag in zip((item.start, item.size), dynamic))
    return children, (*static, item.stride)


def _unflatten(static, children):
    children = iter(children)
    start, size, stride = static
    item = Slice.__new__(Slice)
    item.start = next(children) if start is None else start
    item.size = next(children) if size is None else size
    item.stride = stride
    return item


tree_util.register_pytree_node(Slice, _flatten, _unflatten)


def ds(start: Any, size: Any = None, stride: int | None = None) -> Any:
    """A slice of static size at a start that may be traced, as an index of an array or a ref.

    Args:
      start: an integer or an integer scalar array; without `size`, the size, from 0 on.
      size: how many elements, an integer.
      stride: the distance between them, at least 0; None is 1.

    Returns: a `Slice`. Along an axis, `x[ds(start, size)]` is `x[start:start + size]`, moved into
    bounds if it lies outside, as by `lax.dynamic_slice`; a negative start counts from the end.

    Errors: ValueError for a negative stride or size.

    Example:
        >>> x = jnp.arange(10)
        >>> ferrax.jit(lambda i: x[ferrax.ds(i, 3)])(4)
        Array([4, 5, 6], dtype=int32)
    """
    if size is None:
        start, size = 0, start
    return Slice(start, size, 1 if stride is None else stride)
