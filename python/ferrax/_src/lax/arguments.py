"""Checks and conversions of arguments shared by the functions of ``ferrax.lax``.

Invariant: only static values (shapes, axes) and "is this an array at all" are checked here; what
shapes and dtypes an op accepts is decided by its type rule in the core.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence

from ferrax._core import Array
from ferrax._src import state
from ferrax._src.base import dtypes
from ferrax._src.core import as_array, concrete_or_error, is_concrete, traced_values
from ferrax._src.core.dim_values import size_as
from ferrax._src.core.mesh import Mesh
from ferrax._src.core.placement import check_devices, explicit_sharding
from ferrax._src.dims.sizes import as_dim

index = as_dim


def is_int_tuple(values) -> bool:
    """Whether ``values`` is a tuple of Python integers: nothing in it is left to convert."""
    if type(values) is not tuple:
        return False
    for value in values:  # noqa: SIM110  a generator expression would cost three times this loop
        if type(value) is not int:
            return False
    return True


def operand(x, name: str, position: int = 0) -> Array:
    """``x`` as an array or tracer; scalars keep their weak type; lists raise TypeError, refs ValueError."""
    if isinstance(x, Array):
        return x
    try:
        return as_array(x)
    except TypeError as error:
        if type(x) is state.Ref:
            raise ValueError(f"{name} takes arrays, got {x!r} at position {position}: read it with [...]") from None
        raise TypeError(
            f"Error interpreting argument to {name} as an array value. The problematic value is "
            f"of type {type(x)} and was passed to {name} at position {position}."
        ) from error


def canonical_shape(shape) -> tuple[int, ...]:
    """``shape`` (an integer or a sequence of integers) as a tuple of Python integers."""
    if is_int_tuple(shape):
        return shape
    try:
        return (index(shape),)
    except TypeError:
        pass
    try:
        return int_tuple(shape)
    except TypeError as error:
        raise TypeError(
            "a shape is a sequence of integers that are known while tracing, got "
            f"{shape if isinstance(shape, tuple) else repr(shape)}."
            f"{traced_values(shape if isinstance(shape, (tuple, list)) else (shape,))}"
        ) from error


def int_tuple(values: Sequence[int]) -> tuple[int, ...]:
    """A sequence of integers as a tuple of Python integers."""
    return values if is_int_tuple(values) else tuple(map(index, values))  # type: ignore[return-value]


def canonical_axis(axis: int, ndim: int) -> int:
    """``axis`` counted from the front; ValueError if out of range."""
    axis = operator.index(axis)
    if not -ndim <= axis < ndim:
        raise ValueError(f"axis {axis} is out of bounds for array of dimension {ndim}")
    return axis + ndim if axis < 0 else axis


_STATIC = "An axis must be known while tracing: mark its argument as static, or use a Python int."


def known_axis(name: str, axis) -> int:
    """An axis as a Python integer; ConcretizationTypeError for a traced one."""
    return concrete_or_error(operator.index, axis, f"The axis argument of {name}. {_STATIC}")


def integers_beside(x: Array, *values: int) -> tuple:
    """Static integers as operands beside ``x``, with results of its dtype, strongly typed: as they are where
    that is what they mean, which the core reads faster than NumPy's."""
    if x.dtype == dtypes.default_int_dtype() and not x.weak_type:
        return values
    return tuple([size_as(value, x.dtype) for value in values])


def hashable_axis(name: str, axis):
    """The axis; ValueError for a traced one, which is no key of compiled functions."""
    if not is_concrete(axis):
        raise ValueError(
            f"Non-hashable static arguments are not supported: the axis of {name} is a traced "
            f"array. {_STATIC}{traced_values((axis,))}"
        )
    return axis


def describe(x: Array) -> str:
    """``x``'s dtype and shape as ``float32[3,4]``, for messages."""
    return f"{x.dtype}[{','.join(map(str, x.shape))}]"


def check_out_sharding(name: str, out_sharding) -> None:
    """Checks where a result is asked to be, which on one device is where it is.

    Errors: TypeError for what is no sharding; ValueError for a `PartitionSpec` where no mesh is in use, for
    axes that are not explicit, and for other processes' devices; NotImplementedError for meshes of several.
    """
    if out_sharding is not None:
        sharding = explicit_sharding(out_sharding, f"{name}: out_sharding")
        if sharding is not None and sharding.mesh.size > 1:
            raise NotImplementedError(
                f"{name}: out_sharding={sharding.spec} over a mesh of {sharding.mesh.size} devices is not supported: "
                f"lay the result out, with ferrax.reshard(..., {sharding.spec})"
            )
        if sharding is not None and isinstance(sharding.mesh, Mesh):
            check_devices(sharding, name)
