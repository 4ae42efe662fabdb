"""Inputs and outputs of primitives over values: each of one type, and of one or more arrays.

In go values, tangents and cotangents of the type; out come those of the arrays, and the other way. An array whose
tangent is part of the value's is *active*: of an array that itself, of other values the arrays of `lo_ty` or the
carriers (`lowering`).
"""

from __future__ import annotations

from typing import Any

from ferrax._src import core
from ferrax._src.base import dtypes
from ferrax._src.core.avals import ShapedArray
from ferrax._src.experimental.hi.accums import is_zero
from ferrax._src.lax.elementwise import _convert_element_type
from ferrax._src.tracing import values_as_arrays as lowering
from ferrax._src.transforms.ad import Zero, zeros_like_aval
from ferrax._src.tree import tree_util


class Slot:
    """An input or output of type `aval`; `types` are those of its arrays, `active` says which have tangents."""

    def __init__(self, aval: Any, what: str) -> None:
        self.aval = aval
        self.what = what
        self.hi = lowering.is_hi(aval)
        if not self.hi and not isinstance(aval, ShapedArray):
            raise TypeError(f"{what}: expected a type such as ShapedArray or a HiType, got {aval!r}")
        # A type that does not say how: known by a value.
        self.known = not self.hi or lowering.is_lowerable(aval)
        self.node: Any = None
        self._types: Any = None
        if self.known:
            lo = [aval] if not self.hi else list(aval.lo_ty())
            self._set_types(lo)

    def _set_types(self, lo):
        own = lowering.carriers(self.aval) if self.hi else ()
        self.count = len(lo)
        self.carried = bool(own)
        self._types = [*lo, *own]
        self.active = [not own and dtypes.has_tangent(x.dtype) for x in lo] + [True] * len(own)

    def learn(self, value: Any) -> None:
        """Notes which arrays values are made of, of a type that does not say so."""
        if self.hi and not self.known:
            children, self.node = lowering.flatten(value)
            own = len(lowering.carriers(self.aval))
            self._set_types([core.typeof(x) for x in children[: len(children) - own]])

    @property
    def types(self) -> list[ShapedArray]:
        if self._types is None:
            raise NotImplementedError(f"{self.what}: {type(self.aval).__name__} must define lo_ty")
        return self._types

    # Values.

    def lower(self, value: Any) -> list[Any]:
        """The arrays of a value. Errors: TypeError for a value of another type."""
        if not self.hi:
            return [core.as_array(value, self.what)]
        arrays, found = list(lowering.flatten(value)[0]), core.typeof(value)
        # Of which axes of a mesh parts vary over types of primitives do not say.
        if found != self.aval and not any(getattr(x, "_varying", ()) for x in (*arrays, *self.types)):
            raise TypeError(f"{self.what}: expected a value of type {self.aval}, got one of type {found}")
        return arrays

    def raise_(self, arrays: Any) -> Any:
        """The value of these arrays."""
        return lowering.unflatten(self.node or self.aval, arrays) if self.hi else arrays[0]

    # Tangents and cotangents.

    def tangent_type(self, cotangent: bool = False) -> Any:
        return self.aval.to_ct_aval() if cotangent else self.aval.to_tangent_aval()

    def raise_tangent(self, arrays: Any, cotangent: bool = False) -> Any:
        """The tangent of a value, whose arrays have these: arrays or `Zero`s."""
        ty = self.tangent_type(cotangent)
        if not self.hi:
            return arrays[0] if type(arrays[0]) is not Zero else Zero(ty)
        own = arrays[self.count :] if self.carried else arrays
        if all(type(x) is Zero for x in own):
            return Zero(ty)
        lo = ty.lo_ty()
        found = [zeros_like_aval(aval) if type(x) is Zero else _as(x, aval.dtype) for x, aval in zip(own, lo)]
        return ty.raise_val(*found)

    def lower_tangent(self, tangent: Any, cotangent: bool = False) -> list[Any]:
        """The tangents of the arrays of a value, arrays or `Zero`s. Errors: TypeError for one of another type."""
        zeros = [Zero(aval.to_tangent_aval()) for aval in self.types]
        if is_zero(tangent):
            return zeros
        ty = self.tangent_type(cotangent)
        if not self.hi:
            return [core.as_array(tangent, self.what)] if self.active[0] else zeros
        found = core.typeof(tangent)
        varies = any(getattr(x, "_varying", ()) for x in (*found.lower_val(tangent), *self.types))
        if found != ty and not varies and not (isinstance(ty, ShapedArray) and _same_arrays(found, ty)):
            kind = "cotangent" if cotangent else "tangent"
            raise TypeError(f"{self.what}: expected a {kind} of type {ty}, got one of type {found}")
        lo = ty.lower_val(tangent)
        first = self.count if self.carried else 0
        own = self.types[first:]
        given = [
            zero if not flag or is_zero(x) else _as(core.as_array(x, self.what), aval.dtype)
            for x, aval, flag, zero in zip(lo, own, self.active[first:], zeros[first:])
        ]
        return zeros[:first] + given


def _same_arrays(found, ty):
    return isinstance(found, ShapedArray) and (found.shape, found.dtype) == (ty.shape, ty.dtype)


def _as(x, dtype):
    return x if dtype in (x.dtype, dtypes.float0) else _convert_element_type(x, dtype, weak_type=False)


class Slots:
    """The inputs, or the outputs, of a primitive: a tree of types."""

    def __init__(self, avals: Any, what: str) -> None:
        leaves, self.tree = tree_util.tree_flatten(avals)
        self.slots = [Slot(aval, what) for aval in leaves]
        self.what = what

    @property
    def types(self) -> list[ShapedArray]:
        return [ty for slot in self.slots for ty in slot.types]

    @property
    def active(self) -> list[bool]:
        return [flag for slot in self.slots for flag in slot.active]

    def split(self, arrays: Any) -> list[list[Any]]:
        """The arrays of each slot."""
        arrays, parts = list(arrays), []
        for slot in self.slots:
            parts.append(arrays[: len(slot.types)])
            arrays = arrays[len(slot.types) :]
        return parts

    def lower(self, values: Any) -> list[Any]:
        return [x for slot, value in zip(self.slots, values) for x in slot.lower(value)]

    def raise_(self, arrays: Any) -> Any:
        """The tree of values."""
        return self.tree.unflatten([slot.raise_(own) for slot, own in zip(self.slots, self.split(arrays))])

    def raise_tangents(self, arrays: Any, cotangent: bool = False) -> list[Any]:
        return [slot.raise_tangent(own, cotangent) for slot, own in zip(self.slots, self.split(arrays))]

    def lower_tangents(self, tangents: Any, cotangent: bool = False) -> list[Any]:
        pairs = zip(self.slots, tangents)
        return [x for slot, tangent in pairs for x in slot.lower_tangent(tangent, cotangent)]
