"""Types of values as Python objects: `ShapedArray`, and `ShapeDtypeStruct` for users.

Both are immutable and compare and hash by shape, dtype and weak type. A `ShapedArray` is what
`ferrax.typeof` returns and programs print; a `ShapeDtypeStruct` stands for an array where only its
type matters, as in `ferrax.eval_shape`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from ferrax import _core
from ferrax._src.base import dtypes
from ferrax._src.core.devices import Space
from ferrax._src.core.layout import Format, Layout, check_concrete, order_of
from ferrax._src.core.manual_axes import ManualAxisType, of_texts, stated as stated_manual, texts_of
from ferrax._src.core.mesh import mesh_of_specs
from ferrax._src.core.partition import PartitionSpec
from ferrax._src.core.placements import placement, type_number
from ferrax._src.core.sharding import (
    IndivisibleError,
    NamedSharding,
    Sharding,
    of_type,
    unplaced,
)


def _dtype(dtype):
    return dtype if isinstance(dtype, (np.dtype, dtypes.ExtendedDType)) else np.dtype(dtype)


def _extent(value):
    # Symbolic dimensions are kept as they are.
    return operator.index(value) if hasattr(value, "__index__") else value


def _shape(shape):
    if type(shape) is not tuple:
        shape = tuple(shape) if np.iterable(shape) else (shape,)
    return shape if all(type(x) is int for x in shape) else tuple(map(_extent, shape))


def _shape_text(shape):
    return ",".join(str(extent) for extent in shape)


class AbstractValue:
    """Base of the types of values.

    >>> isinstance(ferrax.typeof(1.0), ferrax.core.AbstractValue)
    True
    """

    __slots__ = ()
    # Whether values are no arrays, and whether what they hold changes.
    is_high = False
    has_qdd = False

    def to_tangent_aval(self) -> AbstractValue:
        """The type of tangents. Errors: NotImplementedError where there are none."""
        raise NotImplementedError(f"values of type {type(self).__name__} have no tangents")

    def str_short(self, short_dtypes: bool = False) -> str:
        """The type as a short text."""
        return str(self)


class Extents:
    """What follows from a shape and a dtype."""

    __slots__ = ()
    shape: tuple[int, ...]
    dtype: Any

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        return self.size * self.itemsize


class ShapedArray(Extents, AbstractValue):
    """The type of an array.

    Attributes:
        shape: tuple of ints.
        dtype: NumPy dtype or extended dtype.
        weak_type: whether the array's dtype gives way in promotion, as a Python scalar's does.
        sharding: over which axes of a mesh the array is divided; given as a `NamedSharding`, and shown
            by the explicit axes of the mesh alone.
        manual_axis_type: over which axes of a mesh values of the type vary, within `shard_map`.
        memory_space: that of the device unless given; said in texts where it is another.

    Example:
        >>> ferrax.typeof(jnp.ones(3))
        ShapedArray(float32[3])
    """

    __slots__ = ("shape", "dtype", "weak_type", "_sharding", "_manual", "memory_space")
    shape: tuple[int, ...]
    dtype: Any
    weak_type: bool
    _sharding: Any
    _manual: ManualAxisType | None
    memory_space: Space
    array_abstraction_level = 2

    def __init__(
        self,
        shape: Any,
        dtype: Any,
        weak_type: bool = False,
        varying: Sequence[str] = (),
        *,
        sharding: Any = None,
        manual_axis_type: ManualAxisType | None = None,
        memory_space: Space | None = None,
    ) -> None:
        if varying:
            manual_axis_type = of_texts(varying)
        put = object.__setattr__
        put(self, "_manual", stated_manual(manual_axis_type))
        put(self, "shape", _shape(shape))
        put(self, "dtype", _dtype(dtype))
        put(self, "weak_type", bool(weak_type))
        put(self, "_sharding", _stated(sharding, self.shape))
        put(self, "memory_space", Space.Device if memory_space is None else memory_space)

    @property
    def sharding(self) -> Any:
        """How arrays of the type are laid out, where nothing was said: over no mesh."""
        return unplaced(self.ndim) if self._sharding is None else self._sharding

    @property
    def manual_axis_type(self) -> ManualAxisType:
        """Over which axes of a mesh values of the type vary."""
        return ManualAxisType() if self._manual is None else self._manual

    mat = manual_axis_type

    @property
    def _varying(self) -> tuple[str, ...]:
        return texts_of(self._manual)

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError(f"ShapedArray is immutable: use update({name}=...) to make another.")

    def update(self, **changes: Any) -> ShapedArray:
        """A copy with other `shape`, `dtype`, `weak_type`, `sharding`, `manual_axis_type` or `memory_space`."""
        fields = {name.lstrip("_"): getattr(self, name) for name in ShapedArray.__slots__}
        fields["manual_axis_type"] = fields.pop("manual")
        unknown = changes.keys() - fields.keys()
        if unknown:
            raise TypeError(f"ShapedArray has no fields {sorted(unknown)}.")
        return ShapedArray(**(fields | changes))

    def update_weak_type(self, weak_type: bool) -> ShapedArray:
        """The type, with this weak type."""
        return self if weak_type == self.weak_type else self.update(weak_type=weak_type)

    def strip_weak_type(self) -> ShapedArray:
        """The type, not weak."""
        return self.update_weak_type(False)

    def normalize(self) -> ShapedArray:
        """The type itself."""
        return self

    def inc_rank(self, size: int, axis: int | None) -> ShapedArray:
        """The type with a new axis of this size at this place; `axis=None` changes nothing."""
        if axis is None:
            return self
        return self.update(shape=(*self.shape[:axis], size, *self.shape[axis:]))

    def dec_rank(self, size: int, axis: int | None) -> ShapedArray:
        """The type without the axis at this place; `axis=None` changes nothing."""
        if axis is None:
            return self
        if self.shape[axis] != size:
            raise ValueError(f"axis {axis} of {self.str_short()} has not the size {size}.")
        axis %= self.ndim
        return self.update(shape=self.shape[:axis] + self.shape[axis + 1 :])

    def to_tangent_aval(self) -> ShapedArray:
        """The type of tangents: float0 for integers, booleans and keys, else the same."""
        if dtypes.issubdtype(self.dtype, np.inexact):
            return self
        return self.update(dtype=dtypes.float0, weak_type=False)

    to_ct_aval = to_cotangent_aval = at_least_vspace = to_tangent_aval

    # What types of values that are no arrays say of theirs (`experimental.hijax`).

    def lo_ty(self) -> list[ShapedArray]:
        """The types of the arrays that a value is made of: the type itself."""
        return [self]

    def lower_val(self, hi_val: Any) -> list[Any]:
        """The arrays that a value is made of: itself."""
        return [hi_val]

    def raise_val(self, *lo_vals: Any) -> Any:
        """The value that is made of an array: itself."""
        (value,) = lo_vals
        return value

    def leading_axis_spec(self) -> int:
        """Which axis is the first."""
        return 0

    def vspace_zero(self) -> Any:
        """An array of zeros."""
        return _core.array_from_numpy(np.zeros(self.shape, self.dtype), self.weak_type)

    def vspace_add(self, x: Any, y: Any) -> Any:
        """The sum of two arrays of the type."""
        return x + y

    def shard(self, mesh: Any, manual_axes: Any, check_vma: bool, spec: Any) -> ShapedArray:
        """The type of the part of each device: the axes that `spec` divides over the mesh are shorter."""
        return self._over(mesh, spec, lambda extent, parts: extent // parts)

    def unshard(self, mesh: Any, check_vma: bool, spec: Any) -> ShapedArray:
        """The type of an array of which each device has a part of this type."""
        return self._over(mesh, spec, lambda extent, parts: extent * parts)

    def _over(self, mesh, spec, change):
        entries = (*spec, *[None] * (self.ndim - len(spec)))
        names = [() if e is None else e if isinstance(e, tuple) else (e,) for e in entries]
        parts = [math.prod(mesh.shape[name] for name in own) for own in names]
        return ShapedArray(tuple(map(change, self.shape, parts)), self.dtype, self.weak_type)

    def str_short(self, short_dtypes: bool = False, mesh_axis_types: bool = False) -> str:
        """'float32[2,3]', or 'f32[2,3]' with short dtype names; 'float32[4@x]' where an axis is divided
        over an explicit axis of a mesh. With `mesh_axis_types` also the axes of the mesh by their types,
        'float32[4]({Auto: ('x',)})'."""
        if short_dtypes:
            name = dtypes.short_dtype_name(self.dtype)
        else:
            name = _dtype_name(self.dtype)
        extents, sums = self._extents_text()
        memory = "" if self.memory_space is Space.Device else f"<{self.memory_space.name.lower()}>"
        axes = f"({_axes_text(self.sharding.mesh)})" if mesh_axis_types else ""
        return f"{name}{memory}[{extents}]{sums}{axes}"

    def _extents_text(self):
        if self._manual is not None:
            fields = zip("VUR", (self._manual.varying, self._manual.unreduced, self._manual.reduced))
            kinds = [f"{letter}:{_names_text(names)}" for letter, names in fields if names]
            return self._divided_text()[0], "{" + ", ".join(kinds) + "}"
        return self._divided_text()

    def _divided_text(self):
        if self._sharding is None:
            return _shape_text(self.shape), ""
        spec = self._sharding.spec
        extents = [
            f"{extent}@{_entry_text(entry)}" if entry else str(extent)
            for extent, entry in zip(self.shape, spec.partitions)
        ]
        sums = [
            f"{letter}:{','.join(sorted(map(str, names)))}"
            for letter, names in (("U", spec.unreduced), ("R", spec.reduced))
            if names
        ]
        return ",".join(extents), "{" + ", ".join(sums) + "}" if sums else ""

    def _key(self):
        # Most types have the usual memory, and None has the cheaper hash.
        memory = None if self.memory_space is Space.Device else self.memory_space
        return self.shape, self.dtype, self.weak_type, self._sharding, self._manual, memory

    def __eq__(self, other: object) -> bool:
        return type(other) is ShapedArray and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    def __repr__(self) -> str:
        weak = ", weak_type=True" if self.weak_type else ""
        return f"ShapedArray({self.str_short()}{weak})"

    def __str__(self) -> str:
        return ("~" if self.weak_type else "") + self.str_short()

    def __reduce__(self) -> tuple[Any, ...]:
        return _make_shaped_array, self._key()


def _axes_text(mesh):
    """The axes of a mesh by their types, in the order in which types come."""
    by_type: dict[Any, list[Any]] = {}
    for name, kind in zip(mesh.axis_names, mesh.axis_types):
        by_type.setdefault(kind, []).append(name)
    return "{" + ", ".join(f"{kind.name}: {tuple(names)}" for kind, names in by_type.items()) + "}"


def _names_text(names):
    shown = sorted(map(str, names))
    return shown[0] if len(shown) == 1 else f"({','.join(shown)})"


def _entry_text(entry):
    return f"({','.join(map(str, entry))})" if isinstance(entry, tuple) else str(entry)


def _stated(sharding, shape):
    """The sharding as types have it, or None where it says nothing. Errors: ValueError where the shape
    does not fit, symbolic sizes aside."""
    if sharding is None:
        return None
    if isinstance(sharding, PartitionSpec):
        sharding = NamedSharding(_mesh_in_use("ShapedArray", sharding), sharding)
    if not isinstance(sharding, NamedSharding):
        raise TypeError(f"ShapedArray: sharding must be a NamedSharding or None, got {sharding!r}")
    sharding.check_compatible_aval(shape)
    if sharding.mesh.empty:
        return None
    sharding = of_type(sharding, len(shape))
    if all(type(extent) is int for extent in shape):
        try:
            sharding.shard_shape(shape)
        except IndivisibleError as error:
            raise ValueError(f"ShapedArray: {error}") from None
    return sharding


def _mesh_in_use(function, spec):
    mesh = mesh_of_specs()
    if mesh.empty:
        raise TypeError(
            f"{function}: a PartitionSpec refers to the mesh of ferrax.set_mesh, and none is set; got {spec}"
        )
    return mesh


def _make_shaped_array(shape, dtype, weak_type, sharding, manual_axis_type, memory_space):
    return ShapedArray(
        shape, dtype, weak_type, sharding=sharding, manual_axis_type=manual_axis_type, memory_space=memory_space
    )


def _dtype_name(dtype):
    return "float0" if dtype == dtypes.float0 else dtype.name


class ShapeDtypeStruct:
    """Shape, dtype and, if need be, sharding of an array, without its elements.

    Args:
        shape: sequence of ints.
        dtype: a dtype; 64-bit dtypes are kept as they are.
        sharding: how the array is laid out over devices: a sharding, a `PartitionSpec` of the mesh in
            use, a `Format`, or None.
        weak_type: whether the array's type is weak.
        manual_axis_type: over which axes of a mesh values vary, within `shard_map`: a `ManualAxisType`.
        is_ref: whether it stands for a mutable array, where functions are traced or lowered for types.
    Raises:
        ValueError: if `dtype` is None, or arrays of this shape cannot have this sharding.
        TypeError: for a `PartitionSpec` where no mesh is in use.

    Example:
        >>> ferrax.eval_shape(jnp.sin, ferrax.ShapeDtypeStruct((3,), jnp.float32))
        ShapeDtypeStruct(shape=(3,), dtype=float32)
    """

    __slots__ = ("shape", "dtype", "sharding", "weak_type", "manual_axis_type", "is_ref", "_layout")
    shape: tuple[int, ...]
    dtype: Any
    sharding: Any
    _layout: Layout | None
    weak_type: bool
    manual_axis_type: ManualAxisType | None
    is_ref: bool

    def __init__(
        self,
        shape: Any,
        dtype: Any,
        *,
        sharding: Any = None,
        weak_type: bool = False,
        manual_axis_type: ManualAxisType | None = None,
        is_ref: bool = False,
    ) -> None:
        if dtype is None:
            raise ValueError("ShapeDtypeStruct: dtype must be specified, got None")
        put = object.__setattr__
        put(self, "is_ref", bool(is_ref))
        put(self, "manual_axis_type", stated_manual(manual_axis_type))
        put(self, "shape", tuple(_extent(x) for x in shape))
        put(self, "dtype", _dtype(dtype))
        layout = None
        if isinstance(sharding, Format):
            check_concrete(sharding, "ShapeDtypeStruct")
            order_of(sharding.layout, self.shape, "ShapeDtypeStruct")
            layout, sharding = sharding.layout, sharding.sharding
        put(self, "_layout", layout)
        put(self, "sharding", _struct_sharding(sharding, self.shape))
        put(self, "weak_type", bool(weak_type))

    @property
    def _varying(self) -> tuple[str, ...]:
        return texts_of(self.manual_axis_type)

    @classmethod
    def like(cls, x: Any) -> ShapeDtypeStruct:
        """The struct that describes an array, a tracer or a type. It has a sharding if that is a type
        which has one, or an array that was put where it is."""
        put = placement(x)
        sharding = put.sharding if put.committed else None
        if isinstance(x, (ShapedArray, ShapeDtypeStruct)):
            sharding = x.sharding
        return cls(x.shape, x.dtype, sharding=sharding, weak_type=getattr(x, "weak_type", False))

    @property
    def _place(self) -> int:
        """The number by which programs are known of arrays that are so divided."""
        return type_number(self.sharding)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def format(self) -> Format:
        """The sharding with the layout, if one was given."""
        return Format(self._layout, self.sharding)

    def _said(self):
        return self.sharding if self._layout is None else self.format

    def update(self, **changes: Any) -> ShapeDtypeStruct:
        """A copy with other `shape`, `dtype`, `sharding`, `weak_type` or `is_ref`."""
        names = ("shape", "dtype", "weak_type", "manual_axis_type", "is_ref")
        fields = {name: getattr(self, name) for name in names} | {"sharding": self._said()}
        return ShapeDtypeStruct(**(fields | changes))

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise RuntimeError(
            f"ShapeDtypeStruct objects are immutable: use update({name}=...) to make another."
        )

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    def _key(self):
        return self.shape, self.dtype, self._said(), self.weak_type, self.is_ref

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ShapeDtypeStruct) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        fields = [f"shape={self.shape}", f"dtype={_dtype_name(self.dtype)}"]
        flags = ("weak_type", self.weak_type or None), ("is_ref", self.is_ref or None)
        for name, value in (("sharding", self.sharding), ("format", self._layout), *flags):
            if value is not None:
                fields.append(f"{name}={value}")
        return f"ShapeDtypeStruct({', '.join(fields)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _make_struct, self._key()


def _struct_sharding(sharding, shape):
    if isinstance(sharding, PartitionSpec):
        if len(sharding) > len(shape):
            raise ValueError(f"ShapeDtypeStruct: {sharding} has more entries than the shape {shape} has axes")
        sharding = NamedSharding(_mesh_in_use("ShapeDtypeStruct", sharding), sharding)
    if sharding is not None and not isinstance(sharding, Sharding):
        raise ValueError(
            f"ShapeDtypeStruct: sharding must be a sharding, a PartitionSpec, a Format or None, got "
            f"{sharding!r} of type {type(sharding).__name__}"
        )
    if isinstance(sharding, NamedSharding) and len(sharding.spec) > len(shape):
        sharding.check_compatible_aval(shape)
    return sharding


def _make_struct(shape, dtype, sharding, weak_type, is_ref):
    return ShapeDtypeStruct(shape, dtype, sharding=sharding, weak_type=weak_type, is_ref=is_ref)


def mapped_aval(size: int, axis: Any, aval: Any) -> Any:
    """The type without its axis `axis`, which has this size; None changes nothing.

    Args: size: of the axis; axis: where it is, or None; aval: the type.

    >>> ferrax.extend.core.mapped_aval(2, 0, ferrax.core.ShapedArray((2, 3), jnp.float32))
    ShapedArray(float32[3])
    """
    return aval.dec_rank(size, axis)


def unmapped_aval(size: int, axis: Any, aval: Any, explicit_mesh_axis: Any = None) -> Any:
    """The type with a new axis of this size at `axis`; None changes nothing.

    Args: size: of the axis; axis: where it goes, or None; aval: the type; explicit_mesh_axis: must
    be None.

    >>> ferrax.extend.core.unmapped_aval(2, 0, ferrax.core.ShapedArray((3,), jnp.float32))
    ShapedArray(float32[2,3])
    """
    if explicit_mesh_axis is not None:
        raise NotImplementedError(
            f"unmapped_aval: axes of batches are over no mesh, got {explicit_mesh_axis=!r}"
        )
    return aval.inc_rank(size, axis)
