"""Mutable values that are no arrays (`experimental.hijax`): a `Ref` for each array that a value is made of.

In go values of opaque classes (`tree.opaque`); out comes what reads and writes all of one. Cost: that of the refs.
"""

from __future__ import annotations

from typing import Any

from ferrax._src import core
from ferrax._src.state.ref import AbstractRef, Ref, freeze, new_ref, read
from ferrax._src.tree import opaque, tree_util


class ValueRef:
    """A mutable value of a `HiType`, made by `ferrax.new_ref`: `ref[...]` reads it, `ref[...] = value` writes it.

    Attributes: `inner_aval`, the type of the value.

    Errors: TypeError for a value of another type; NotImplementedError for a part of one.
    """

    def __init__(self, data: Any, unflatten: Any, refs: Any, /) -> None:
        self._data = data
        self._unflatten = unflatten
        self._arrays = tuple(refs)

    @property
    def inner_aval(self) -> Any:
        return core.typeof(self._unflatten(self._data, [read(ref) for ref in self._arrays]))

    @property
    def aval(self) -> AbstractRef:
        return AbstractRef(self.inner_aval)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.inner_aval.shape

    @property
    def _refs(self) -> Any:
        """The value with refs in the places of its arrays."""
        return self._unflatten(self._data, self._arrays)

    def _whole(self, idx: Any) -> bool:
        if idx is Ellipsis or (isinstance(idx, tuple) and not idx):
            return True
        entries = idx if isinstance(idx, tuple) else (idx,)
        shape = getattr(self.inner_aval, "shape", None)
        if shape is None or len(entries) > len(shape) or not all(isinstance(x, slice) for x in entries):
            return False
        return all(entry.indices(extent) == (0, extent, 1) for entry, extent in zip(entries, shape))

    def _check_whole(self, idx):
        if not self._whole(idx):
            raise NotImplementedError(
                f"a mutable value of type {self.inner_aval} is read and written as a whole, by ref[...]; got the index "
                f"{idx!r}"
            )

    def get(self, idx: Any = ()) -> Any:
        """The value."""
        self._check_whole(idx)
        return self._unflatten(self._data, [read(ref) for ref in self._arrays])

    def swap(self, value: Any, idx: Any = ()) -> Any:
        """Writes a value, and returns the one before."""
        self._check_whole(idx)
        before = self.get()
        found, wanted = core.typeof(value), core.typeof(before)
        if found != wanted:
            raise TypeError(f"a value of type {found} was given to a mutable value of type {wanted}")
        children, _ = tree_util.flatten_one_level(value)
        for ref, x in zip(self._arrays, children):
            ref[...] = x
        return before

    def set(self, value: Any, idx: Any = ()) -> None:
        """Writes a value."""
        self.swap(value, idx)

    def __getitem__(self, idx: Any) -> Any:
        return self.get(idx)

    def __setitem__(self, idx: Any, value: Any) -> None:
        self.swap(value, idx)

    def freeze(self) -> Any:
        """The last value."""
        return self._unflatten(self._data, [freeze(ref) for ref in self._arrays])

    def __repr__(self) -> str:
        return f"Ref({self.get()!r})"


def new_value_ref(value: Any, **options: Any) -> ValueRef:
    """A mutable value."""
    opaque.register_opaque(ValueRef, lambda ref: (ref._arrays, (ref._data, ref._unflatten)), _rebuilt)
    children, data = tree_util.flatten_one_level(value)
    return ValueRef(data, opaque.unflatten_of(value), [new_ref(x, **options) for x in children])


def _rebuilt(data, refs):
    refs = tuple(refs)
    if not all(type(x) is Ref for x in refs):
        return opaque.Placeholder(_rebuilt, data, refs)
    own, unflatten = data
    return ValueRef(own, unflatten, refs)


core.register_type(ValueRef, lambda ref: ref.aval)
