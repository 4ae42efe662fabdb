"""Types of values and what the Python layer asks of the native core.

`Array` is the class of all arrays, `Tracer` the subclass of those that stand for values of a
function being traced. `ShapedArray` is the type of either.
"""

from __future__ import annotations

import numpy as np

from ferrax import _core
from ferrax._core import Array, ArrayImpl, Tracer
from ferrax._src import dtypes

__all__ = [
    "AbstractValue",
    "Array",
    "ArrayImpl",
    "ShapedArray",
    "Tracer",
    "as_array",
    "concrete_or_error",
    "get_aval",
    "is_concrete",
    "typeof",
]


class AbstractValue:
    """The type of a value; see `ShapedArray`."""

    __slots__ = ()


_SHORT_NAMES = {
    "bool": "bool",
    "float": "f",
    "bfloat": "bf",
    "int": "i",
    "uint": "u",
    "complex": "c",
}


def short_dtype_name(dtype) -> str:
    """The name that jaxprs use: `f32`, `i8`, `bool`, `key<fry>`."""
    name = dtype.name
    letters = name.rstrip("0123456789")
    short = _SHORT_NAMES.get(letters)
    if short is None:
        return name.replace("float", "f") if name.startswith("float") and name != "float0" else name
    return short + name[len(letters):]


class ShapedArray(AbstractValue):
    """The type of an array: shape, dtype and weak type.

    Example:
        >>> ferrax.core.ShapedArray((2, 3), numpy.float32)
        ShapedArray(float32[2,3])
    """

    __slots__ = ["shape", "dtype", "weak_type", "sharding", "memory_space"]
    array_abstraction_level = 1

    def __init__(self, shape, dtype, weak_type=False, *, sharding=None, memory_space=None):
        self.shape = tuple(shape)
        self.dtype = dtypes.dtype(dtype) if not dtypes.issubdtype(dtype, dtypes.extended) else dtype
        self.weak_type = weak_type
        self.sharding = sharding
        self.memory_space = memory_space

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    def update(self, shape=None, dtype=None, weak_type=None, **kwargs):
        """A copy with these fields replaced."""
        return ShapedArray(
            self.shape if shape is None else shape,
            self.dtype if dtype is None else dtype,
            self.weak_type if weak_type is None else weak_type,
            sharding=kwargs.get("sharding", self.sharding),
            memory_space=kwargs.get("memory_space", self.memory_space),
        )

    def str_short(self, short_dtypes=False, mesh_axis_types=False) -> str:
        """Shape and dtype as text, such as `float32[2,3]` or `f32[2,3]`."""
        name = short_dtype_name(self.dtype) if short_dtypes else self.dtype.name
        return f"{name}[{','.join(map(str, self.shape))}]"

    def strip_weak_type(self):
        return self.update(weak_type=False) if self.weak_type else self

    def to_tangent_aval(self):
        """The type of tangents: float0 for values without derivatives."""
        inexact = not dtypes.issubdtype(self.dtype, dtypes.extended) and dtypes.issubdtype(
            self.dtype, np.inexact
        )
        return self if inexact else self.update(dtype=dtypes.float0, weak_type=False)

    to_cotangent_aval = to_tangent_aval

    def _key(self):
        return self.shape, self.dtype, self.weak_type

    def __eq__(self, other):
        return type(self) is type(other) and self._key() == other._key()

    def __hash__(self):
        return hash(self._key())

    def __repr__(self):
        weak = ", weak_type=True" if self.weak_type else ""
        return f"ShapedArray({self.str_short()}{weak})"


def typeof(x) -> ShapedArray:
    """The type of an array, a tracer, a number or a NumPy array.

    Errors: TypeError for anything else.

    Example:
        >>> ferrax.typeof(1.0)
        ShapedArray(float32[], weak_type=True)
    """
    if isinstance(x, np.ndarray) and x.dtype == dtypes.float0:
        return ShapedArray(x.shape, x.dtype)
    return ShapedArray(*_core.type_of(x))


get_aval = typeof
shaped_abstractify = typeof


def as_array(x, name="this function") -> Array:
    """`x` as an array; numbers become weakly typed. Errors: TypeError for lists and others."""
    return _core.as_array(x, name)


def is_concrete(x) -> bool:
    """Whether the value of `x` is known now (also under an eager `grad`)."""
    return _core.concrete_value(x) is not None if isinstance(x, Array) else True


def to_concrete_value(x):
    """The concrete array that `x` is or stands for, else None."""
    return _core.concrete_value(x) if isinstance(x, Array) else x


def concrete_or_error(force, value, context=""):
    """`force(value)` for a value that is known, else ConcretizationTypeError with `context`.

    `force` None returns the concrete array.
    """
    if isinstance(value, Tracer):
        known = _core.concrete_value(value)
        if known is None:
            from ferrax._src import errors

            raise errors.ConcretizationTypeError(
                value,
                context,
                origin=_core.describe_tracer(value),
                location=_core.user_location(),
            )
        value = known
    if force is None:
        return value
    return force(value)


def trace_state_clean() -> bool:
    """Whether no transformation is tracing on this thread."""
    return _core.trace_state_clean()
