"""What rules of explicit types see of an equation, and what they say of specs.

A spec is a `PartitionSpec` with an entry for each axis of the array, by explicit axes of the mesh alone; None
is that of values that are on no mesh. Rules refuse what cannot be done without talk between devices of which
nobody said how it should go; programs whose equations were checked as they were written, and what transformations
make of them, are gone through with `strict=False`: there a refusal says nothing, and the best guess is taken.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

from ferrax._src.base.errors import ShardingTypeError
from ferrax._src.core.partition import PartitionSpec, entry_names, names_of

Spec = PartitionSpec
Specs = list["Spec | None"]


@dataclasses.dataclass(frozen=True, slots=True)
class Equation:
    """An equation: its primitive's name and parameters, the shapes of operands and results, the specs of operands,
    the sizes of the mesh's axes; whether to refuse (`strict`); the spec that was asked for the result (`wanted`)."""

    name: str
    params: Mapping[str, Any]
    shapes: Sequence[tuple[int, ...]]
    outs: Sequence[tuple[int, ...]]
    specs: Sequence[Spec | None]
    sizes: Mapping[Hashable, int]
    strict: bool = True
    wanted: Spec | None = None

    def refuse(self, message: str, error: type[Exception] = ShardingTypeError) -> None:
        """Raises the error, unless what is done was checked before."""
        if self.strict:
            raise error(f"{self.name}: {message}. Operands: {self.types()}")

    def summed_over(self, entries: Sequence[Any]) -> frozenset:
        """The axes over which the result is left unreduced, as was asked for, after sums over axes with these entries.

        Errors: ShardingTypeError where it is no sum over these.
        """
        asked = frozenset() if self.wanted is None else self.wanted.unreduced
        if asked and not asked <= set(names_of(entries)) | self.unreduced():
            raise ShardingTypeError(
                f"{self.name}: the result was asked to be unreduced over {set(asked)}, and axes that are summed over "
                f"are divided as {tuple(entries)}. Operands: {self.types()}"
            )
        return asked

    def types(self) -> str:
        """The operands as users write them, for messages."""
        return ", ".join(_text(shape, spec) for shape, spec in zip(self.shapes, self.specs))

    def entries(self, number: int) -> tuple[Any, ...]:
        """The entries of an operand's spec; those of one that is on no mesh are None."""
        spec = self.specs[number]
        return (None,) * len(self.shapes[number]) if spec is None else spec.partitions

    def first(self) -> Spec | None:
        """The spec of the first operand that is on the mesh."""
        return next((spec for spec in self.specs if spec is not None), None)

    def parts(self, entry: Any) -> int:
        """Into how many parts an entry cuts an axis."""
        return math.prod(self.sizes.get(name, 1) for name in entry_names(entry))

    def unreduced(self) -> frozenset:
        return frozenset().union(*(spec.unreduced for spec in self.specs if spec is not None))

    def reduced(self) -> frozenset:
        return frozenset().union(*(spec.reduced for spec in self.specs if spec is not None))


def _text(shape, spec) -> str:
    if spec is None:
        return f"[{','.join(map(str, shape))}]"
    extents = [
        f"{size}@{'.'.join(map(str, entry_names(entry)))}" if entry else str(size)
        for size, entry in zip(shape, spec.partitions)
    ]
    kinds = (("U", spec.unreduced), ("R", spec.reduced))
    sums = [f"{mark}:{','.join(map(str, names))}" for mark, names in kinds if names]
    return f"[{','.join(extents)}]" + (f"{{{' '.join(sums)}}}" if sums else "")


def made(equation: Equation, entries: Iterable[Any], unreduced: Any = (), reduced: Any = ()) -> Spec:
    """A spec of these entries. Refused where an axis of the mesh is used twice."""
    entries = list(entries)
    sums = frozenset(unreduced) | frozenset(reduced)
    names = names_of(entries) + list(sums)
    if len(set(names)) < len(names):
        equation.refuse(f"two axes of the result would be divided alike, as {tuple(entries)}; reshard an operand")
        used = set(sums)
        for axis, entry in enumerate(entries):
            entries[axis] = tuple(name for name in entry_names(entry) if name not in used) or None
            used |= set(entry_names(entries[axis]))
    return PartitionSpec(*entries, unreduced=frozenset(unreduced), reduced=frozenset(reduced))


def joined(equation: Equation, specs: Sequence[tuple[Any, ...]]) -> list[Any]:
    """The entries of what has the axes of all. Refused where two of them differ."""
    result = []
    for entries in zip(*specs):
        said = [entry for entry in dict.fromkeys(entries) if entry is not None]
        if len(said) > 1:
            equation.refuse(f"operands are divided differently, as {' and '.join(map(str, specs))}; reshard one")
        result.append(said[0] if said else None)
    return result


def without(spec: Spec | None, axes: Iterable[int]) -> Spec | None:
    """The spec without these axes."""
    if spec is None:
        return None
    axes = set(axes)
    return spec.update(partitions=[entry for axis, entry in enumerate(spec.partitions) if axis not in axes])


def resized(equation: Equation, number: int, shape: tuple[int, ...]) -> Spec | None:
    """The operand's spec, for a result of as many axes of other sizes. Refused where these cannot be divided so."""
    spec = equation.specs[number]
    if spec is None:
        return None
    entries = list(spec.partitions)
    for axis, (before, after) in enumerate(zip(equation.shapes[number], shape)):
        parts = equation.parts(entries[axis])
        if before != after and after % parts:
            equation.refuse(
                f"axis {axis} of the result would have the size {after}, which {parts} parts ({entries[axis]!r}) do "
                "not divide; reshard before, so that the axis is not divided"
            )
            entries[axis] = None
    return spec.update(partitions=entries)


def undivided(equation: Equation, number: int, axes: Iterable[int], what: str) -> None:
    """Refuses operands that are divided over these axes."""
    entries = equation.entries(number)
    for axis in axes:
        if entries[axis] is not None:
            equation.refuse(f"{what} along axis {axis}, which is divided over {entries[axis]!r}; reshard before")


def no_sums(equation: Equation, reduced: bool = True) -> None:
    """Refuses unreduced operands and, by default, reduced ones."""
    if equation.unreduced() or (reduced and equation.reduced()):
        equation.refuse(
            "is not defined for unreduced operands: reshard them before, to a spec without `unreduced` and `reduced`",
            NotImplementedError,
        )


Rule = Callable[[Equation], Specs]
