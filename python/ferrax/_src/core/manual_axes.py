"""How values lie over the axes of a mesh that a program sees one device's part of."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Set as AbstractSet
from typing import Any

from ferrax._src.core.immutable import Immutable
from ferrax._src.core.named_axes import MARKS, REDUCED, UNREDUCED, from_text, text


class ManualAxisType(Immutable):
    """Over which manual axes a value varies, or is a part of a sum.

    Args:
        varying: names of axes along which devices may have different values.
        unreduced: names of axes over which the value is the sum of what devices have.
        reduced: names of axes over which it is whole, and its derivative unreduced.

    Errors: ValueError where an axis is both varying and one of the others.

    Example:
        >>> ferrax.sharding.ManualAxisType(varying={"x"}).vur
        frozenset({'x'})
    """

    __slots__ = ("varying", "unreduced", "reduced")
    varying: frozenset[Hashable]
    unreduced: frozenset[Hashable]
    reduced: frozenset[Hashable]

    def __init__(
        self, *, varying: AbstractSet[Hashable] = frozenset(),
        unreduced: AbstractSet[Hashable] = frozenset(), reduced: AbstractSet[Hashable] = frozenset(),
    ) -> None:
        for what, names in (("unreduced", unreduced), ("reduced", reduced)):
            if both := set(varying) & set(names):
                raise ValueError(f"ManualAxisType: axes are varying or {what}, not both; got {both} in both")
        for name, names in (("varying", varying), ("unreduced", unreduced), ("reduced", reduced)):
            object.__setattr__(self, name, frozenset(names))

    def _fields(self) -> dict[str, frozenset[Hashable]]:
        return {name: getattr(self, name) for name in ManualAxisType.__slots__}

    def update(self, **changes: Any) -> ManualAxisType:
        """The same with other fields."""
        return ManualAxisType(**(self._fields() | changes))

    def to_ct_mat(self) -> ManualAxisType:
        """That of cotangents: reduced and unreduced change places."""
        return self.update(unreduced=self.reduced, reduced=self.unreduced)

    @property
    def vur(self) -> frozenset[Hashable]:
        """All axes that are named."""
        return self.varying | self.unreduced | self.reduced

    @property
    def empty(self) -> bool:
        """Whether no axis is named."""
        return not self.vur

    def invarying(self, mesh: Any) -> frozenset[Hashable]:
        """The manual axes of a mesh along which all devices have the same value."""
        return frozenset(mesh.manual_axes) - self.vur

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ManualAxisType) and self._fields() == other._fields()

    def __hash__(self) -> int:
        return hash(tuple(self._fields().values()))

    def __reduce__(self) -> tuple[Any, ...]:
        return _of_fields, (self._fields(),)

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={names}" for name, names in self._fields().items())
        return f"ManualAxisType({fields})"


def _of_fields(fields):
    return ManualAxisType(**fields)


def stated(manual: ManualAxisType | None) -> ManualAxisType | None:
    """The same, None where it names no axis. Errors: TypeError for anything else."""
    if manual is not None and not isinstance(manual, ManualAxisType):
        raise TypeError(f"manual_axis_type must be a ManualAxisType or None, got {manual!r}")
    return None if manual is None or manual.empty else manual


def texts_of(manual: ManualAxisType | None) -> tuple[str, ...]:
    """The strings that types of programs have for how values lie over axes."""
    if manual is None:
        return ()
    groups = ("", manual.varying), (UNREDUCED, manual.unreduced), (REDUCED, manual.reduced)
    return tuple(sorted(mark + text(name) for mark, names in groups for name in names))


def of_texts(texts: Iterable[str]) -> ManualAxisType:
    """What such strings say."""
    groups: dict[str, set[Hashable]] = {"": set(), UNREDUCED: set(), REDUCED: set()}
    for string in texts:
        mark = string[0] if string.startswith(MARKS) else ""
        groups[mark].add(from_text(string[len(mark) :]))
    return ManualAxisType(varying=groups[""], unreduced=groups[UNREDUCED], reduced=groups[REDUCED])


def dual_texts(texts: Iterable[str]) -> tuple[str, ...]:
    """Those of the cotangents of such values."""
    return texts_of(of_texts(texts).to_ct_mat())
