"""Values of `HiType`s taken apart into arrays, and put back.

In go a value, or a type and arrays; out come arrays, or a value. A value is a node of the trees that transformations
see: its children are the arrays of `lower_val` and, where tangents are no tangents of these, the *carriers*: one
array for each that the tangent is made of, all zero, whose tangents are the value's. A value keeps the carriers that
a trace gave it; others are made anew.

Invariant: a type is the data of its node, and what lies below it has the types of `lo_ty` or, in batches and their
elements, those with other axes. Cost: that of the type's own functions.
"""

from __future__ import annotations

import copy
import functools
from typing import Any

import numpy as np

from ferrax import _core
from ferrax._src import core
from ferrax._src.base import dtypes
from ferrax._src.core.avals import ShapedArray
from ferrax._src.state import Ref
from ferrax._src.tree import opaque, tree_util

_CARRIERS = "_ferrax_carriers"


def is_hi(aval: Any) -> bool:
    """Whether values of the type are made of arrays, and do not change."""
    return getattr(aval, "is_high", False) and not getattr(aval, "has_qdd", False)


def is_lowerable(ty: Any) -> bool:
    """Whether the type says how its values become arrays."""
    return all(str(getattr(type(ty), name).__module__)[:7] != "ferrax." for name in ("lo_ty", "lower_val", "raise_val"))


@functools.lru_cache(maxsize=4096)
def _carriers(ty):
    try:
        lo = tuple(ty.lo_ty()) if is_lowerable(ty) else None
        tangent = ty.to_tangent_aval()
        wanted = tuple(tangent.lo_ty())
    except NotImplementedError:
        return ()
    if lo is not None and _plain(wanted) == _plain(x.to_tangent_aval() for x in lo):
        return ()
    return tuple(ShapedArray(x.shape, _carried(x.dtype, ty)) for x in wanted)


def _plain(types):
    return [(x.shape, x.dtype) for x in types]


def _carried(dtype, ty):
    """The dtype in which a tangent of this dtype goes through derivatives."""
    if dtypes.has_tangent(dtype):
        return dtype
    if dtypes.issubdtype(dtype, np.integer) or dtype == np.bool_:
        return np.dtype(np.float32 if dtype.itemsize <= 2 else np.float64)
    raise NotImplementedError(f"the tangent type of {ty} has arrays of dtype {dtype}, which have no derivatives")


def carriers(ty: Any) -> tuple[ShapedArray, ...]:
    """The types of the carriers of values of a type. Errors: TypeError for a type without a hash."""
    try:
        return _carriers(ty)
    except TypeError as error:
        try:
            hash(ty)
        except (TypeError, NotImplementedError):
            raise _unhashable(ty) from error
        raise
    except NotImplementedError as error:
        if "__hash__" in str(error):
            raise _unhashable(ty) from error
        raise


def _unhashable(ty):
    return TypeError(
        f"{type(ty).__name__}, a type of values that are no arrays, must be hashable and compare by ==: programs are "
        "known by their types. Define __hash__ and __eq__, or make it a frozen dataclass"
    )


def keep_carriers(value: Any, arrays: Any) -> Any:
    """The value with these carriers. Errors: TypeError for objects that take no attributes."""
    try:
        object.__setattr__(value, _CARRIERS, tuple(arrays))
    except AttributeError:
        raise TypeError(
            f"values of {type(value).__name__} take no attributes, and their tangents are kept in one: give the class "
            "a __dict__ (no __slots__)"
        ) from None
    return value


def _zero(ty):
    return _core.array_from_numpy(np.zeros(ty.shape, ty.dtype), False)


def flatten(value: Any) -> tuple[tuple, Any]:
    """The children of a value, and its type."""
    ty = core.typeof(value)
    if not is_hi(ty):
        raise TypeError(
            f"a value of {type(value).__name__}, of type {ty}, cannot be an argument or a result of a transformed "
            "function: its type is no HiType. Close over it, or use hijax.Box for what changes"
        )
    own = carriers(ty)
    if is_lowerable(ty):
        lo, data = _lowered(ty, value), ty
    else:
        data = _Attributes.of(value, ty)
        lo = data.arrays(value)
    if own:
        kept = getattr(value, _CARRIERS, None)
        lo = (*lo, *(map(_zero, own) if kept is None else kept))
    return tuple(lo), data


def is_array(x: Any) -> bool:
    return isinstance(x, (core.Array, np.ndarray, np.generic))


def _lowered(ty, value):
    """The arrays of a value. Errors: TypeError where they are not what `lo_ty` says."""
    wanted, found = ty.lo_ty(), ty.lower_val(value)
    if not isinstance(found, (list, tuple)) or len(found) != len(wanted):
        got = f"{len(found)} arrays" if isinstance(found, (list, tuple)) else repr(found)
        raise TypeError(
            f"{type(ty).__name__}.lower_val must give a list of {len(wanted)} arrays, as lo_ty does, got {got}"
        )
    return [_conformed(ty, number, x, aval) for number, (x, aval) in enumerate(zip(found, wanted))]


def _conformed(ty, number, x, aval):
    if isinstance(x, (bool, int, float, complex)):
        x = core.as_array(x, "lower_val")
    if not is_array(x):
        return x  # what stands for an array: of a type alone, a ref, a hidden value
    if x.shape != aval.shape or x.dtype != aval.dtype:
        raise TypeError(
            f"{type(ty).__name__}.lower_val gave an array of type {core.typeof(x).str_short()} at place {number}, "
            f"where lo_ty says {aval.str_short()}"
        )
    weak = bool(getattr(x, "weak_type", False))
    if isinstance(x, core.Array) and weak != aval.weak_type:
        return _core.bind("convert_element_type", (x,), {"new_dtype": aval.dtype, "weak_type": aval.weak_type})
    return x


def unflatten(data: Any, children: Any) -> Any:
    """The value of a type that is made of these; of other things than arrays, an `opaque.Placeholder`."""
    children = tuple(children)
    if children and not all(is_array(x) or type(x) is Ref for x in children):
        return opaque.Placeholder(unflatten, data, children)
    ty = data.ty if type(data) is _Attributes else data
    own = len(carriers(ty))
    lo = children[: len(children) - own]
    value = data.value(lo) if type(data) is _Attributes else _raised(ty, lo)
    if own and any(isinstance(x, core.Tracer) for x in children[len(lo) :]):
        keep_carriers(value, children[len(lo) :])
    return value


def types_in(tree: Any) -> Any:
    """A tree with the types of values in the places of those that are made of types of arrays."""

    def shown(x):
        if type(x) is not opaque.Placeholder or x.unflatten is not unflatten:
            return x
        return x.ty.ty if type(x.ty) is _Attributes else x.ty

    return tree_util.tree_map(shown, tree, is_leaf=lambda x: type(x) is opaque.Placeholder)


def _raised(ty, lo):
    value = ty.raise_val(*lo)
    wanted = ty.lo_ty()
    if any(getattr(x, "_varying", ()) for x in (*lo, *wanted)):
        return value  # over a mesh: primitives do not say along which axes their results vary
    if [(x.shape, x.dtype, getattr(x, "weak_type", False)) for x in lo] == [
        (x.shape, x.dtype, x.weak_type) for x in wanted
    ] and type(lo[0] if lo else None) is not Ref:
        found = core.typeof(value)
        if found != ty:
            raise TypeError(
                f"{type(ty).__name__}.raise_val gave a value of type {found} for arrays of the types that lo_ty of "
                f"{ty} says: it must give one of that type"
            )
    return value


class _Attributes:
    """How values become arrays whose type does not say: the attributes of a copy are replaced."""

    def __init__(self, template, names, ty):
        self.template = template
        self.names = names
        self.ty = ty

    @staticmethod
    def of(value, ty):
        named = vars(value) if hasattr(value, "__dict__") else {}
        names = [name for name, x in named.items() if is_array(x) and name != _CARRIERS]
        template = copy.copy(value)
        for name in names:
            object.__setattr__(template, name, None)
        if _CARRIERS in named:
            object.__delattr__(template, _CARRIERS)
        return _Attributes(template, tuple(names), ty)

    def arrays(self, value):
        return [getattr(value, name) for name in self.names]

    def value(self, arrays):
        value = copy.copy(self.template)
        for name, x in zip(self.names, arrays):
            object.__setattr__(value, name, x)
        return value

    def _rest(self):
        return {name: x for name, x in vars(self.template).items() if name not in self.names}

    def __eq__(self, other):
        if type(other) is not _Attributes or self.names != other.names or self.ty != other.ty:
            return False
        return type(self.template) is type(other.template) and self._rest() == other._rest()

    def __hash__(self):
        return hash((self.names, self.ty, type(self.template)))
