"""How elements lie in memory: `Layout`, and `Format`, a layout with a sharding.

Most arrays lie row by row (`dense`). What a layout asks for is the order of the axes (`order_of`); an array with
another one is a `PermutedArray`. Memory has no tiles, and no element has less than its dtype's bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ferrax._src.core.immutable import Immutable
from ferrax._src.core.sharding import Sharding


class AutoLayout:
    """Any layout; `Layout.AUTO`."""

    def __repr__(self) -> str:
        return "AUTO"


_AUTO = AutoLayout()


class Layout(Immutable):
    """The order of an array's axes in memory.

    Args:
        major_to_minor: the axes, the one with the largest steps first.
        tiling: sizes of tiles within which elements lie together, or None.
        sub_byte_element_size_in_bits: of elements smaller than a byte, else 0.

    `Layout.AUTO` in its place leaves the choice to the compiler.

    Example:
        >>> ferrax.experimental.layout.Layout((0, 1)).major_to_minor
        (0, 1)
    """

    __slots__ = ("major_to_minor", "tiling", "sub_byte_element_size_in_bits")
    major_to_minor: tuple[int, ...]
    tiling: tuple[tuple[int, ...], ...] | None
    sub_byte_element_size_in_bits: int
    AUTO = _AUTO

    def __init__(
        self,
        major_to_minor: Sequence[int],
        tiling: Sequence[Sequence[int]] | None = None,
        sub_byte_element_size_in_bits: int = 0,
    ) -> None:
        put = object.__setattr__
        put(self, "major_to_minor", tuple(major_to_minor))
        put(self, "tiling", None if tiling is None else tuple(map(tuple, tiling)))
        put(self, "sub_byte_element_size_in_bits", sub_byte_element_size_in_bits)

    def _key(self):
        return self.major_to_minor, self.tiling, self.sub_byte_element_size_in_bits

    def update(self, **changes: Any) -> Layout:
        """The layout with other fields."""
        return Layout(**(dict(zip(Layout.__slots__, self._key())) | changes))

    def check_compatible_aval(self, aval_shape: Sequence[int]) -> None:
        """Errors: ValueError if arrays of this shape have another number of axes."""
        if len(self.major_to_minor) != len(aval_shape):
            raise ValueError(
                f"major_to_minor names each axis of an array once: got {self.major_to_minor} for one "
                f"of shape {tuple(aval_shape)}"
            )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Layout) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __reduce__(self) -> tuple[Any, ...]:
        return Layout, self._key()

    def __repr__(self) -> str:
        return (
            f"Layout(major_to_minor={self.major_to_minor}, tiling={self.tiling}, "
            f"sub_byte_element_size_in_bits={self.sub_byte_element_size_in_bits})"
        )


class Format(Immutable):
    """A layout with a sharding: where an array is, and how it lies there.

    Args:
        layout: a `Layout`, `Layout.AUTO` or None.
        sharding: a sharding, or None.

    Errors: TypeError for others; ValueError for a `Layout` without a sharding.

    Example:
        >>> jnp.zeros((2, 3)).format.layout.major_to_minor
        (0, 1)
    """

    __slots__ = ("layout", "sharding")
    layout: Layout | AutoLayout | None
    sharding: Sharding | None

    def __init__(
        self, layout: Layout | AutoLayout | None = None, sharding: Sharding | None = None
    ) -> None:
        for name, value, kind, wanted in (
            ("layout", layout, (Layout, AutoLayout), "a Layout, Layout.AUTO"),
            ("sharding", sharding, (Sharding,), "a Sharding"),
        ):
            if value is not None and not isinstance(value, kind):
                raise TypeError(f"Format: {name} must be {wanted} or None, got {value!r}")
            object.__setattr__(self, name, value)
        if sharding is None and isinstance(layout, Layout):
            raise ValueError(f"Format: a layout needs a sharding, got {layout} without one")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Format) and self._key() == other._key()

    def _key(self):
        return self.layout, self.sharding

    def __hash__(self) -> int:
        return hash(self._key())

    def __reduce__(self) -> tuple[Any, ...]:
        return Format, self._key()

    def __repr__(self) -> str:
        return f"Format(layout={self.layout}, sharding={self.sharding})"


# The axes of an array by the steps between their elements in memory, the largest first.
Order = tuple[int, ...]


def ordered(order: Order) -> Layout:
    """The layout of arrays whose axes lie in memory in this order."""
    return Layout(order, (), 0)


def dense(rank: int) -> Layout:
    """The layout of arrays whose rows are one after the other."""
    return ordered(tuple(range(rank)))


def check_concrete(format: Format, function: str) -> None:
    """Errors: TypeError for a format that leaves the layout open."""
    if isinstance(format.layout, AutoLayout):
        raise TypeError(
            f"{function}: arrays have a layout, and Layout.AUTO is none: it leaves the choice to a compiler. Pass a "
            f"Layout or a sharding; got {format}"
        )


def order_of(layout: Any, shape: Sequence[int], function: str) -> Order | None:
    """The order of axes that a layout asks for of arrays of this shape; None where that is row by row, and of what is
    no `Layout`.

    Errors: ValueError for layouts that name other axes; NotImplementedError for tiles and for elements of other sizes.
    """
    if not isinstance(layout, Layout):
        return None
    layout.check_compatible_aval(shape)
    rows = tuple(range(len(shape)))
    if tuple(sorted(layout.major_to_minor)) != rows:
        raise ValueError(
            f"{function}: major_to_minor of an array of rank {len(shape)} is a permutation of {rows}, got "
            f"{layout.major_to_minor}"
        )
    if layout.tiling or layout.sub_byte_element_size_in_bits:
        raise NotImplementedError(
            f"{function}: a layout here is an order of axes, and elements have their dtype's bytes; got {layout}. "
            "Leave out tiling and sub_byte_element_size_in_bits"
        )
    return None if layout.major_to_minor == rows else layout.major_to_minor


def refuse_order(layout: Any, shape: Sequence[int], function: str) -> None:
    """Errors: those of `order_of`; NotImplementedError for layouts that are not row by row: of values in a program."""
    if order_of(layout, shape, function) is not None:
        raise NotImplementedError(
            f"{function}: the layout of a value within a traced function is the compiler's; got {layout}. Ask for "
            "those of arguments and results: jit(f, in_shardings=Format(layout, sharding), out_shardings=...)"
        )
