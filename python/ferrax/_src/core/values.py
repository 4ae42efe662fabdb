"""Types of values and what the Python layer asks of the native core.

`Array` is the class of all arrays, `Tracer` the subclass of those that stand for values of a
function being traced. `ShapedArray` is the type of either.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ferrax import _core
from ferrax._core import Array, ArrayImpl, Tracer
from ferrax._src.base import dtypes, errors
from ferrax._src.base.dtypes import short_dtype_name as short_dtype_name
from ferrax._src.core import placements
from ferrax._src.core.avals import AbstractValue, ShapedArray, ShapeDtypeStruct
from ferrax._src.core.sharding import NamedSharding
from ferrax._src.core.typing import DTypeLike
from ferrax._src.dims.expressions import DimExpr

__all__ = [
    "AbstractValue",
    "Array",
    "ArrayImpl",
    "ShapedArray",
    "Tracer",
    "abstract_type",
    "as_array",
    "concrete_or_error",
    "ensure_compile_time_eval",
    "get_aval",
    "is_concrete",
    "typeof",
]


_types: dict[type, Callable] = {
    ShapeDtypeStruct: lambda x: ShapedArray(
        x.shape, x.dtype, x.weak_type, sharding=_explicit(x.sharding), manual_axis_type=x.manual_axis_type
    )
}


def _explicit(sharding):
    return sharding if isinstance(sharding, NamedSharding) else None


def register_type(cls, rule) -> None:
    """Says what `typeof` gives for values of a class: `rule(value)`."""
    _types[cls] = rule


def type_rule(cls: type) -> Callable | None:
    """What `register_type` was given for the class."""
    return _types.get(cls)


def typeof(x: Any) -> ShapedArray:
    """The type of an array, a tracer, a number or a NumPy array.

    For a mutable array this is its `AbstractRef`. Errors: TypeError for anything else.

    Args: x: the value.

    Example:
        >>> ferrax.typeof(1.0)
        ShapedArray(float32[], weak_type=True)
    """
    rule = _types.get(type(x))
    if rule is not None:
        return rule(x)
    if isinstance(x, np.ndarray) and x.dtype == dtypes.float0:
        return ShapedArray(x.shape, x.dtype)
    return ShapedArray(*_core.type_of(x), sharding=placements.explicit_spec(x))


get_aval = typeof
shaped_abstractify = typeof


def abstract_type(x) -> tuple:
    """`(shape, dtype, weak)` of an array-like or of anything with shape and dtype; a fourth are the names of axes of a
    mesh along which values vary, where there are any."""
    if not isinstance(x, (Array, np.ndarray, np.generic)) and hasattr(x, "shape"):
        if hasattr(x, "dtype"):
            dtype = x.dtype
            if not dtypes.issubdtype(dtype, dtypes.extended):
                dtype = dtypes.canonicalize_dtype(dtype)
            ty = tuple(x.shape), dtype, bool(getattr(x, "weak_type", False))
            varying = getattr(x, "_varying", ())
            return (*ty, varying) if varying else ty
    return _core.type_of(x)


def as_array(x, name="this function") -> Array:
    """`x` as an array; numbers become weakly typed. Errors: TypeError for lists and others."""
    return _core.as_array(x, name)


def is_concrete(x) -> bool:
    """Whether the value of `x` is known now (also under an eager `grad`)."""
    return _core.concrete_value(x) is not None if isinstance(x, Array) else True


def to_concrete_value(x):
    """The concrete array that `x` is or stands for, else None."""
    return _core.concrete_value(x) if isinstance(x, Array) else x


def concrete_or_error(force: Any, value: Any, context: str = "") -> Any:
    """`force(value)` for a value that is known, else ConcretizationTypeError with `context`.

    `force` None returns the concrete array.

    Args: force: a function or None; value: any; context: what to say in the error.

    >>> ferrax.extend.core.concrete_or_error(int, jnp.array(3), "the size")
    3
    """
    if isinstance(value, Tracer):
        known = _core.concrete_value(value)
        if known is None:
            try:
                # A number may be known to whoever began the trace (`set_frame_answer`).
                if force in (int, float, operator.index):
                    return force(value)
            except errors.JAXTypeError:
                pass
            raise errors.ConcretizationTypeError(
                value,
                context,
                origin=_core.describe_tracer(value),
                location=_core.user_location(),
            )
        value = known
    if force is None or (force is operator.index and isinstance(value, DimExpr)):
        return value
    return force(value)


def traced_values(values) -> str:
    """Where the traced ones among `values` come from, back to an argument, and the user's line."""
    lines = [
        f"\nIt got a value that is {_core.describe_tracer(value)}.\n{errors.chain(value)}".rstrip()
        for value in values
        if isinstance(value, Tracer)
    ]
    return "".join(dict.fromkeys(lines)) + f"\nAt {_core.user_location()}." if lines else ""


# Types of concrete values that functions take beside arrays.
array_types: set[type] = {np.ndarray, *(np.dtype(code).type for code in "?bhilqBHILQefdFD")}


def valid_jaxtype(x: Any) -> bool:
    """Whether functions take this value: an array, a tracer, a number or a mutable array.

    Args: x: any value.

    >>> ferrax.extend.core.valid_jaxtype(1.0), ferrax.extend.core.valid_jaxtype("text")
    (True, False)
    """
    try:
        typeof(x)
    except TypeError:
        return False
    return True


def primal_dtype_to_tangent_dtype(primal_dtype: DTypeLike) -> np.dtype:
    """The dtype of tangents of values of this dtype: float0 unless it is inexact.

    Args: primal_dtype: a dtype.

    >>> ferrax.extend.core.primal_dtype_to_tangent_dtype(jnp.bfloat16)
    dtype(bfloat16)
    """
    return ShapedArray((), primal_dtype).to_tangent_aval().dtype


def trace_state_clean() -> bool:
    """Whether no transformation is tracing on this thread.

    >>> ferrax.core.trace_state_clean(), ferrax.jit(lambda: ferrax.core.trace_state_clean())()
    (True, Array(False, dtype=bool))
    """
    return _core.trace_state_clean()


@contextlib.contextmanager
def ensure_compile_time_eval() -> Iterator[None]:
    """A context, or a decorator, in which operations on concrete arrays run while tracing.

    Inside `jit` all array operations are recorded, those on known values too. In this context
    those whose operands are all known run at once, so that their results can decide shapes and
    branches. What depends on traced arguments is recorded as ever.

    Example:
        >>> @ferrax.jit
        ... def padded(x):
        ...     with ferrax.ensure_compile_time_eval():
        ...         width = int(jnp.max(jnp.array([1, 3])))
        ...     return jnp.pad(x, width)
        >>> padded(jnp.ones(2)).shape
        (8,)
    """
    _core.concrete_ops_run(True)
    try:
        yield
    finally:
        _core.concrete_ops_run(False)


dtypes.register_array_type(Array)
