"""Types of values that are no arrays.

A class derives its types from `HiType` and says by `register_hitype` which type a value has. Programs hold arrays:
where ferrax takes arguments and results apart, a value becomes the arrays that its type says (`lowering`), and in
traced functions values are what the type makes of traced ones.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

from ferrax._src.core.avals import AbstractValue
from ferrax._src.core.partition import PartitionSpec
from ferrax._src.core.values import register_type
from ferrax._src.tracing import values_as_arrays as lowering
from ferrax._src.tree import opaque, tree_util


def _missing(owner: object, method: str) -> NotImplementedError:
    return NotImplementedError(f"{type(owner).__name__} must define {method}")


class _Type(AbstractValue):
    """What types of values that are no arrays answer."""

    is_high = True
    has_qdd = False

    def __hash__(self) -> int:
        raise _missing(self, "__hash__")

    def __eq__(self, other: object) -> bool:
        raise _missing(self, "__eq__")

    def lo_ty(self) -> list[AbstractValue]:
        """The types of the arrays that a value is made of."""
        raise _missing(self, "lo_ty")

    def to_tangent_aval(self) -> AbstractValue:
        """The type of tangents."""
        raise _missing(self, "to_tangent_aval")

    def to_ct_aval(self) -> AbstractValue:
        """The type of cotangents."""
        return self.to_tangent_aval()

    def normalize(self) -> AbstractValue:
        """The type itself."""
        return self


class HiType(_Type):
    """Base of the types of values that are no arrays and do not change.

    A type whose values are to go through `jit`, `vmap` and loops has `lo_ty`, `lower_val` and `raise_val`; one
    whose values are to be differentiated `to_tangent_aval`; and it is hashable and compares with `==`. Values go
    through derivatives in one of two ways. If the tangent type is made of the tangents of the arrays that a value
    is made of, tangents are those. Else a value has besides its arrays a hidden one of each type of the tangent's,
    which carries tangents from one `HiPrim` to the next: the types of a quantized array may so have tangents of floats.

    Example:
        >>> class Pair(tuple):
        ...     pass
        >>> class PairType(hijax.HiType):
        ...     def __repr__(self):
        ...         return "Pair"
        >>> hijax.register_hitype(Pair, lambda pair: PairType())
        >>> ferrax.typeof(Pair())
        Pair
    """

    def lower_val(self, hi_val: Any) -> list[Any]:
        """The arrays that a value is made of."""
        raise _missing(self, "lower_val")

    def raise_val(self, *lo_vals: Any) -> Any:
        """The value that is made of these arrays."""
        raise _missing(self, "raise_val")

    def vspace_zero(self) -> Any:
        """The zero of the type, where it is a type of tangents."""
        raise _missing(self, "vspace_zero")

    def vspace_add(self, x: Any, y: Any) -> Any:
        """The sum of two values, where it is a type of tangents."""
        raise _missing(self, "vspace_add")

    def dec_rank(self, size: int | None, spec: Any) -> Any:
        """The type of an element of a batch of this size, whose axes `spec` says."""
        raise _missing(self, "dec_rank")

    def inc_rank(self, size: int | None, spec: Any) -> Any:
        """The type of a batch of this size, whose axes `spec` says."""
        raise _missing(self, "inc_rank")

    def leading_axis_spec(self) -> Any:
        """What says that the first axes of a value are those of a batch."""
        raise _missing(self, "leading_axis_spec")

    def shard(self, mesh: Any, manual_axes: Any, check_vma: bool, spec: Any) -> Any:
        """The type of a device's part of a value over a mesh."""
        raise _missing(self, "shard")

    def unshard(self, mesh: Any, check_vma: bool, spec: Any) -> Any:
        """The type of a value of which a device has a part of this type."""
        raise _missing(self, "unshard")

    def nospec(self, mesh: Any, check_vma: bool, all_names: Any) -> Any:
        """How a value is divided of which every device has a part of its own."""
        raise _missing(self, "nospec")


class MutableHiType(_Type):
    """Base of the types of values that are no arrays and change, as what they hold does
    (`ferrax.experimental.cur_qdd`).

    Example:
        >>> class Box:
        ...     pass
        >>> class BoxType(hijax.MutableHiType):
        ...     def __repr__(self):
        ...         return "Box"
        >>> hijax.register_hitype(Box, lambda box: BoxType())
        >>> ferrax.typeof(Box()), BoxType().has_qdd
        (Box, True)
    """

    has_qdd = True
    is_writer = False

    def lo_ty_qdd(self, state: Any, /) -> list[AbstractValue]:
        """The types of the arrays that a value is made of whose content is of this type."""
        raise _missing(self, "lo_ty_qdd")

    def new_from_loval(self, state: Any, /, *vals: Any) -> Any:
        """The value that is made of these arrays."""
        raise _missing(self, "new_from_loval")

    def read_loval(self, state: Any, val: Any, /) -> list[Any]:
        """The arrays that a value is made of."""
        raise _missing(self, "read_loval")

    def update_from_loval(self, state: Any, val: Any, /, *lo_vals: Any) -> None:
        """Gives a value this content."""
        raise _missing(self, "update_from_loval")


@dataclasses.dataclass(frozen=True)
class AvalQDD:
    """The type of a value that changes, and that of what it holds.

    Args:
        aval: the type of the value.
        qdd: the type of its content.

    Example:
        >>> hijax.AvalQDD(ferrax.typeof(1.0), None).aval
        ShapedArray(float32[], weak_type=True)
    """

    aval: Any
    qdd: Any
    is_high = True
    has_qdd = True

    def to_tangent_aval(self) -> AvalQDD:
        """The same of the tangent."""
        return AvalQDD(self.aval.to_tangent_aval(), self.qdd and self.qdd.to_tangent_qdd())


@dataclasses.dataclass(frozen=True)
class AvalMutableQDD:
    """The type of a value that changes, with a cell for the type of what it holds.

    Args:
        aval: the type of the value.
        mutable_qdd: has a method `update` that notes the type of new content.

    Example:
        >>> hijax.AvalMutableQDD(ferrax.typeof(1.0), None).mutable_qdd is None
        True
    """

    aval: Any
    mutable_qdd: Any


class aval_property(NamedTuple):
    """In a type: a property of the values that have it.

    Args: fget: from the value.

    >>> hijax.aval_property(len).fget([1, 2])
    2
    """

    fget: Callable[..., Any]


class aval_method(NamedTuple):
    """In a type: a method of the values that have it.

    Args: fun: from the value and arguments.

    >>> hijax.aval_method(pow).fun(2, 3)
    8
    """

    fun: Callable[..., Any]


class MappingSpec(opaque.ValueSpec):
    """Base of what says along which axes `vmap` maps over a value of a `HiType`, in `in_axes` and `out_axes`.

    What it says of each array that the value is made of is its attribute `val`: a number, None, another spec, or a
    tree of these with one for each array. One alone stands for each.

    >>> class PairSpec(hijax.MappingSpec):
    ...     def __init__(self, *axes):
    ...         self.val = axes
    >>> PairSpec(0, None).val
    (0, None)
    """

    def _spread(self, ty: Any, count: int) -> list[Any]:
        own = lowering.carriers(ty)
        axes = _axes_of(self)
        if len(axes) == 1 and count - len(own) != 1:
            axes = axes * (count - len(own))
        if len(axes) != count - len(own):
            raise ValueError(f"{self!r} has {len(axes)} axes, for a value of type {ty} of {count - len(own)} arrays")
        # What carries tangents is mapped over as the arrays are.
        mapped = [axis for axis in axes if axis is not None]
        return axes + [mapped[0] if mapped else None] * len(own)


def _axes_of(spec):
    if not isinstance(spec, MappingSpec):
        return [spec]
    if not hasattr(spec, "val"):
        raise NotImplementedError(
            f"vmap: {type(spec).__name__} does not say along which axis each array is mapped over: give it an "
            "attribute `val`, a tuple of the axes"
        )
    leaves = tree_util.tree_leaves(spec.val, is_leaf=lambda x: x is None or isinstance(x, MappingSpec))
    return [axis for leaf in leaves for axis in _axes_of(leaf)]


class HiPspec(opaque.ValueSpec):
    """Base of what says how a value of a `HiType` is divided over a mesh, in specs of `shard_map`.

    >>> class PairSpec(hijax.HiPspec):
    ...     def to_lo(self):
    ...         return ferrax.P("x"), ferrax.P()
    >>> PairSpec().to_lo()
    (P('x',), P())
    """

    def to_lo(self) -> tuple[PartitionSpec, ...]:
        """The specs of the arrays that the value is made of."""
        raise _missing(self, "to_lo")

    def _spread(self, ty: Any, count: int) -> list[Any]:
        own = lowering.carriers(ty)
        specs = [lo for spec in self.to_lo() for lo in _specs_of(spec)]
        if len(specs) != count - len(own):
            raise ValueError(f"{self!r} has {len(specs)} specs, for a value of type {ty} of {count - len(own)} arrays")
        if own:
            specs += [lo for spec in self.to_tangent_spec().to_lo() for lo in _specs_of(spec)]
        return specs

    def to_tangent_spec(self) -> HiPspec:
        """That of the tangent."""
        raise _missing(self, "to_tangent_spec")

    def to_ct_spec(self) -> HiPspec:
        """That of the cotangent."""
        raise _missing(self, "to_ct_spec")


def _specs_of(spec):
    return [lo for part in spec.to_lo() for lo in _specs_of(part)] if isinstance(spec, HiPspec) else [spec]


def register_hitype(val_cls: type, typeof_fn: Callable[[Any], AbstractValue]) -> None:
    """Says which type the values of a class have: what `ferrax.typeof` gives.

    Values whose type is a `HiType` may be arguments and results of transformed functions; `ferrax.tree` sees
    them as leaves.

    Args:
        val_cls: the class, its derived classes not included.
        typeof_fn: from a value to its type.

    Errors: where a value is an argument or a result, TypeError for one whose type has no hash, and for one that
    `lower_val` does not make into arrays of the types that `lo_ty` says, or that `raise_val` gives another type.

    Example:
        >>> class Text(str):
        ...     pass
        >>> hijax.register_hitype(Text, lambda text: ferrax.core.ShapedArray((len(text),), jnp.uint8))
        >>> ferrax.typeof(Text("four"))
        ShapedArray(uint8[4])
    """
    register_type(val_cls, typeof_fn)
    opaque.register_opaque(val_cls, lowering.flatten, lowering.unflatten, values=True)


def cur_qdd(x: Any) -> Any:
    """The type of what a value that changes holds now: what its method `cur_qdd` says.

    Args:
        x: a value of a class that `register_hitype` knows, of a type with `has_qdd`.
    Raises:
        TypeError: for a value of another type.

    Example:
        >>> class Cell:
        ...     content = 1.0
        ...     def cur_qdd(self):
        ...         return ferrax.typeof(self.content)
        >>> ferrax.experimental.cur_qdd(Cell())
        ShapedArray(float32[], weak_type=True)
    """
    current = getattr(x, "cur_qdd", None)
    if current is None:
        raise TypeError(
            f"cur_qdd: values of {type(x).__name__} do not change; a class of values that do has a method cur_qdd"
        )
    return current()
