"""The type of boxes (`ferrax._src.state.boxes`), and functions of them."""

from __future__ import annotations

from typing import Any

from ferrax._src.base import effects
from ferrax._src.core.values import register_type
from ferrax._src.experimental.hi.types import MutableHiType, aval_method
from ferrax._src.state.boxes import Box, BoxTypeState
from ferrax._src.tree import opaque


class BoxEffect(effects.Effect):
    """What a primitive has that reads or writes a `Box`.

    >>> hijax.box_effect in {hijax.box_effect}
    True
    """

    def __eq__(self, other: object) -> bool:
        return type(other) is BoxEffect

    def __hash__(self) -> int:
        return hash(BoxEffect)


box_effect = BoxEffect()
effects.control_flow_allowed_effects.add_type(BoxEffect)
effects.custom_derivatives_allowed_effects.add_type(BoxEffect)


def new_box() -> Box:
    """A `Box` that holds None.

    >>> hijax.new_box().get()
    """
    return Box()


def box_get(box: Box) -> Any:
    """What a `Box` holds.

    Args: box: the box.

    >>> hijax.box_get(hijax.Box([1]))
    [Array(1, dtype=int32, weak_type=True)]
    """
    return box.get()


def box_set(box: Box, val: Any) -> None:
    """Makes a `Box` hold a tree of arrays.

    Args: box: the box; val: the tree. Errors: those of `Box.set`.

    >>> box = hijax.Box()
    >>> hijax.box_set(box, 2)
    >>> box.get()
    Array(2, dtype=int32, weak_type=True)
    """
    box.set(val)


class BoxTy(MutableHiType):
    """The type of a `Box`.

    >>> ferrax.typeof(hijax.Box())
    BoxTy
    """

    get = aval_method(box_get)
    set = aval_method(box_set)

    def __hash__(self) -> int:
        return hash(BoxTy)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BoxTy)

    def str_short(self, short_dtypes: bool = False) -> str:
        """'BoxTy'."""
        return "BoxTy"

    __repr__ = __str__ = str_short

    def lo_ty_qdd(self, state: BoxTypeState, /) -> list[Any]:
        """The types of the arrays of a box that holds values of these types."""
        return [lo for aval in state.leaf_avals for lo in aval.lo_ty()]

    def read_loval(self, state: BoxTypeState, val: Box, /) -> list[Any]:
        """The arrays of a box."""
        leaves, _ = opaque.flatten(val.get())
        return [lo for aval, leaf in zip(state.leaf_avals, leaves) for lo in aval.lower_val(leaf)]

    def new_from_loval(self, state: BoxTypeState, /, *vals: Any) -> Box:
        """The box of these arrays."""
        return Box(_tree(state, vals))

    def update_from_loval(self, state: BoxTypeState, val: Box, /, *lo_vals: Any) -> None:
        """Makes a box hold these arrays."""
        val.set(_tree(state, lo_vals))

    def to_tangent_aval(self) -> BoxTy:
        """The type itself."""
        return self


def _tree(state, arrays):
    arrays, leaves = list(arrays), []
    for aval in state.leaf_avals:
        count = len(aval.lo_ty())
        leaves.append(aval.raise_val(*arrays[:count]))
        arrays = arrays[count:]
    return state.treedef.unflatten(leaves)


register_type(Box, lambda box: BoxTy())
