"""Specs: over which axes of a mesh each axis of an array is divided.

A `PartitionSpec` is immutable, and there is one object for each value, so that equality and hashes
are those of identity.
"""

from __future__ import annotations

import enum
import threading
import weakref
from collections.abc import Hashable, Iterable, Iterator
from typing import Any, NoReturn

from ferrax._src.base.jax_version import follows
from ferrax._src.core.immutable import Immutable

_lock = threading.Lock()


class Unconstrained:
    """The entry of a spec that says nothing of its axis; `PartitionSpec.UNCONSTRAINED`."""

    def __repr__(self) -> str:
        return "UNCONSTRAINED"

    def __reduce__(self) -> tuple[Any, ...]:
        return _unconstrained, ()


_UNCONSTRAINED = Unconstrained()


def _unconstrained():
    return _UNCONSTRAINED


def _canonical(entry):
    """One entry: lists are tuples, a tuple of one name is the name, of none None."""
    if isinstance(entry, (tuple, list)):
        entry = tuple(entry)
        if any(isinstance(name, tuple) for name in entry):
            raise ValueError(
                f"PartitionSpec: an entry is a name or a tuple of names, got tuples in a tuple: {entry}"
            )
        return None if not entry else entry[0] if len(entry) == 1 else entry
    return entry


def _names(what, names) -> frozenset:
    if not isinstance(names, (set, frozenset)):
        raise TypeError(f"PartitionSpec: {what} must be a set of names of mesh axes, got {names!r}")
    if None in names:
        raise ValueError(
            f"PartitionSpec: {what} must be names of mesh axes, got None among {names}"
        )
    return frozenset(names)


class UnreducedKind(enum.Enum):
    """What is left to be done with an array's parts over the axes that a `PartitionSpec` has as unreduced.

    Sums are what there is: `PartitionSpec(unreduced=…)` is of that kind, and others are refused there.

    >>> ferrax.sharding.UnreducedKind.sum.value
    1
    """

    sum = 1
    max = 2
    min = 3


class PartitionSpec(Immutable):
    """Over which axes of a mesh each axis of an array is divided.

    Args:
        partitions: for each axis of the array None (not divided), the name of an axis of the mesh, a
            tuple of names (the first is the major one), or `PartitionSpec.UNCONSTRAINED`. Axes
            beyond are not divided.
        unreduced: names of axes over which the array is the sum of what the devices hold.
        reduced: names of axes over which the array is whole, and its derivative unreduced.
        unreduced_kind: `UnreducedKind.sum`, or None, which is that where there are such axes.

    Errors: TypeError unless `unreduced` and `reduced` are sets, and for another kind; ValueError where a name is in two
    places, for tuples in tuples, and for a kind without unreduced axes; NotImplementedError for `UnreducedKind.max` and
    `min`.

    Example:
        >>> ferrax.P("x", None, ("y", "z"))
        P('x', None, ('y', 'z'))
    """

    __slots__ = ("_partitions", "unreduced", "reduced", "__weakref__")
    _partitions: tuple[Any, ...]
    unreduced: frozenset[Hashable]
    reduced: frozenset[Hashable]
    UNCONSTRAINED = _UNCONSTRAINED

    def __new__(
        cls,
        *partitions: Any,
        unreduced: Iterable[Hashable] = frozenset(),
        reduced: Iterable[Hashable] = frozenset(),
        unreduced_kind: UnreducedKind | None = None,
    ) -> PartitionSpec:
        if unreduced_kind is not None:
            _check_kind(unreduced_kind, unreduced)
        key = (
            tuple(map(_canonical, partitions)),
            _names("unreduced", unreduced),
            _names("reduced", reduced),
        )
        with _lock:
            known = _specs.get(key)
            if known is not None:
                return known
            _check(*key)
            spec = object.__new__(cls)
            for name, value in zip(("_partitions", "unreduced", "reduced"), key):
                object.__setattr__(spec, name, value)
            _specs[key] = spec
            return spec

    def __init_subclass__(cls, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError("PartitionSpec has no subclasses: make specs, or a class that holds one.")

    @property
    def partitions(self) -> tuple[Any, ...]:
        """The entries, one for each axis of the array."""
        return self._partitions

    @property
    def unreduced_kind(self) -> UnreducedKind | None:
        """What is left to be done over the unreduced axes; None without such."""
        return UnreducedKind.sum if self.unreduced else None

    def _without_sums(self, what) -> tuple:
        if self.unreduced or self.reduced:
            raise ValueError(
                f"{what} of a PartitionSpec with unreduced or reduced axes would lose these: use "
                f"spec.partitions; got {self}"
            )
        return self._partitions

    def __getitem__(self, index: Any) -> Any:
        return self._without_sums("an item")[index]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._without_sums("iteration"))

    def __len__(self) -> int:
        return len(self._partitions)

    def __add__(self, other: Any) -> PartitionSpec:
        if isinstance(other, PartitionSpec):
            if follows(0, 12) and self.unreduced_kind is not other.unreduced_kind:
                raise TypeError(f"PartitionSpecs are added of one unreduced_kind, got {self} and {other}")
            return PartitionSpec(
                *self._partitions,
                *other._partitions,
                unreduced=self.unreduced | other.unreduced,
                reduced=self.reduced | other.reduced,
            )
        return PartitionSpec(*self._added(other), *other)

    def __radd__(self, other: Any) -> PartitionSpec:
        return PartitionSpec(*other, *self._added(other))

    def _added(self, other) -> tuple:
        if not isinstance(other, tuple):
            raise NotImplementedError(
                f"a PartitionSpec plus {other!r}: it must be a PartitionSpec or a tuple"
            )
        if self.unreduced or self.reduced:
            raise TypeError(f"{self} has unreduced or reduced axes, and cannot be added to {other}")
        return self._partitions

    def index(self, value: Any) -> int:
        """The place of an entry. Errors: ValueError if it is not there."""
        return self._partitions.index(_canonical(value))

    def count(self, value: Any) -> int:
        """How often there is an entry."""
        return self._partitions.count(_canonical(value))

    def update(
        self,
        partitions: Iterable[Any] | None = None,
        unreduced: Iterable[Hashable] | None = None,
        reduced: Iterable[Hashable] | None = None,
        **kind: UnreducedKind | None,
    ) -> PartitionSpec:
        """The spec with other `partitions`, `unreduced`, `reduced` or `unreduced_kind`."""
        return PartitionSpec(
            *(self._partitions if partitions is None else partitions),
            unreduced=self.unreduced if unreduced is None else unreduced,
            reduced=self.reduced if reduced is None else reduced,
            **kind,
        )

    def __getnewargs_ex__(self) -> tuple[Any, ...]:
        return self._partitions, {"unreduced": self.unreduced, "reduced": self.reduced}

    def __repr__(self) -> str:
        entries = repr(self._partitions)[1:-1]
        named = [
            f"{name}={set(names)!r}"
            for name, names in (("unreduced", self.unreduced), ("reduced", self.reduced))
            if names
        ]
        if not named:
            return f"P({entries})"
        if self.unreduced and follows(0, 12):
            named.append("unreduced_kind=sum")
        gap = "" if not entries else " " if entries.endswith(",") else ", "
        return f"P({entries}{gap}{', '.join(named)})"


PartitionSpec.__name__ = PartitionSpec.__qualname__ = "P"
PartitionSpec.__module__ = "ferrax"

_specs: weakref.WeakValueDictionary = weakref.WeakValueDictionary()


def _check(partitions, unreduced, reduced) -> None:
    if both := unreduced & reduced:
        raise ValueError(
            f"PartitionSpec: axes are unreduced or reduced, not both; got {set(both)} in both"
        )
    divided = set(names_of(partitions))
    for what, names in (("unreduced", unreduced), ("reduced", reduced)):
        if both := divided & names:
            raise ValueError(
                f"PartitionSpec: an axis that divides the array is not {what}; got {set(both)} in "
                f"{partitions} and {what}={set(names)}"
            )


def _check_kind(kind, unreduced) -> None:
    if not isinstance(kind, UnreducedKind):
        raise TypeError(f"PartitionSpec: unreduced_kind must be a ferrax.sharding.UnreducedKind, got {kind!r}")
    if not unreduced:
        raise ValueError(f"PartitionSpec: unreduced_kind={kind} without unreduced axes")
    if kind is not UnreducedKind.sum:
        raise NotImplementedError(
            f"PartitionSpec: unreduced_kind={kind} is not available, arrays are sums over unreduced axes; use lax.pmax "
            "or lax.pmin in a shard_map"
        )


def entry_names(entry: Any) -> tuple:
    """The names of mesh axes in one entry of a spec, major first."""
    if entry is None or entry is _UNCONSTRAINED:
        return ()
    return entry if isinstance(entry, tuple) else (entry,)


def names_of(partitions: Iterable[Any]) -> list:
    """The names of mesh axes in all entries."""
    return [name for entry in partitions for name in entry_names(entry)]


def filled(spec: PartitionSpec, rank: int) -> PartitionSpec:
    """The spec with an entry for each of `rank` axes, UNCONSTRAINED as None: that of a type. Entries beyond stay if
    they say something."""
    entries = [None if entry is _UNCONSTRAINED else entry for entry in spec.partitions]
    while len(entries) > rank and entries[-1] is None:
        entries.pop()
    return spec.update(partitions=entries + [None] * (rank - len(entries)))
