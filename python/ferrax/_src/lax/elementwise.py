"""Elementwise functions of ``ferrax.lax``, dtype conversion and ``stop_gradient``.

Invariant: functions that are one op are the core's native ones, made from the op rows, with no
Python in between. They check that dtypes are equal and shapes match (scalars excepted) and never
promote.
"""

from __future__ import annotations

import builtins
import operator
import warnings
from typing import Any, TypeVar

import numpy as np

from ferrax._core import Array, bind
from ferrax._core.lax import *  # noqa: F403
from ferrax._core.lax import (
    erfc as _native_erfc,
    mul as _mul,
    real,
    select_n,
    stop_gradient as _stop_gradient,
)
from ferrax._src.base import dtypes
from ferrax._src.base.errors import user_stacklevel
from ferrax._src.core import as_array
from ferrax._src.core.op_types import AccuracyMode, RoundingMethod
from ferrax._src.core.typing import ArrayLike, DTypeLike
from ferrax._src.lax.arguments import operand as _operand
from ferrax._src.tree.tree_util import tree_map

__all__ = [
    "bitcast_convert_type",
    "convert_element_type",
    "dtype",
    "erfc",
    "integer_pow",
    "mul",
    "reciprocal",
    "reduce_precision",
    "round",
    "select",
    "stop_gradient",
]

T = TypeVar("T")

_NUMBER_TYPES = (bool, int, float)


def mul(  # type: ignore[no-redef]  # in the place of the native one, which it calls
    x: ArrayLike, y: ArrayLike, *, out_dtype: Any = None
) -> Array:
    """Elementwise product of arrays of one dtype and shape; scalars broadcast.

    With `out_dtype` the factors, which may then have different dtypes, are converted to it first.
    Errors: TypeError for dtypes and shapes that do not fit.
    Args: x, y: the factors; out_dtype: the result's dtype, default theirs.

    Example:
        >>> lax.mul(jnp.int8(100), jnp.int8(100), out_dtype=jnp.int32)
        Array(10000, dtype=int32)
    """
    if out_dtype is not None:
        x, y = as_array(x), as_array(y)
        weak = bool(x.weak_type and y.weak_type)
        x, y = (_convert_element_type(factor, out_dtype, weak) for factor in (x, y))
    return _mul(x, y)


def reciprocal(x: ArrayLike) -> Array:
    """Elementwise ``1 / x`` of a floating or complex array.

    >>> from ferrax.lax import reciprocal
    >>> reciprocal(jnp.array([2.0, 4.0]))
    Array([0.5 , 0.25], dtype=float32)
    """
    return integer_pow(x, -1)


def integer_pow(x: ArrayLike, y: int) -> Array:
    """Elementwise ``x ** y`` for a static integer ``y`` of any size.

    Raises TypeError for integer ``x`` and negative ``y``.

    >>> from ferrax.lax import integer_pow
    >>> integer_pow(jnp.array([2.0, 3.0]), 2)
    Array([4., 9.], dtype=float32)
    """
    if not isinstance(y, int):
        whole = int(y)
        if whole != y:
            raise TypeError(f"integer_pow requires an integer exponent, got {y!r}")
        y = whole
    if not -(1 << 63) < y < 1 << 63:
        # The op and its derivative hold 64 bits. Negative powers are inside, where they are reciprocals.
        step = 1 << 62 if y > 0 else -(1 << 62)
        quotient, rest = divmod(y if y > 0 else -y, 1 << 62)
        high = integer_pow(integer_pow(x, step), quotient)
        return _mul(high, integer_pow(x, rest if y > 0 else -rest)) if rest else high
    return bind("integer_pow", (_operand(x, "integer_pow"),), {"y": y})


def round(x: ArrayLike, rounding_method: RoundingMethod = RoundingMethod.AWAY_FROM_ZERO) -> Array:
    """Rounds a floating array to whole numbers; halves go as ``rounding_method`` says.

    Args: x: array of floats; rounding_method: of `RoundingMethod`, default away from zero. Errors:
    TypeError for other dtypes.

    >>> lax.round(jnp.array([0.5, 1.5]))
    Array([1., 2.], dtype=float32)
    """
    method = RoundingMethod(rounding_method)
    return bind("round", (_operand(x, "round"),), {"rounding_method": int(method)})


def reduce_precision(operand: ArrayLike, exponent_bits: int, mantissa_bits: int) -> Array:
    """Rounds a floating array to the values that a narrower float format could hold.

    Raises ValueError unless ``exponent_bits >= 1`` and ``mantissa_bits >= 0``.
    Args: operand: array of floats; exponent_bits, mantissa_bits: the format.

    >>> lax.reduce_precision(jnp.array([1.0 + 2**-10, 3.0]), exponent_bits=5, mantissa_bits=8)
    Array([1., 3.], dtype=float32)
    """
    widths = {"exponent_bits": exponent_bits, "mantissa_bits": mantissa_bits}
    for (name, bits), least in zip(widths.items(), (1, 0)):
        widths[name] = operator.index(bits)
        if widths[name] < least:
            raise ValueError(f"reduce_precision: {name} must be {least} or more, got {bits}")
    return bind("reduce_precision", (_operand(operand, "reduce_precision"),), widths)


def select(pred: ArrayLike, on_true: ArrayLike, on_false: ArrayLike) -> Array:
    """Elementwise choice: ``on_true`` where ``pred`` holds, else ``on_false``.

    ``pred`` is boolean, a scalar or of the cases' shape; the cases have equal shapes and dtypes.

    >>> lax.select(jnp.array([True, False]), jnp.array([1, 2]), jnp.array([3, 4]))
    Array([1, 4], dtype=int32)
    """
    return select_n(pred, on_false, on_true)


def convert_element_type(operand: ArrayLike, new_dtype: DTypeLike) -> Array:
    """Elementwise cast to ``new_dtype``; the result is never weakly typed.

    Casts of floats to integers saturate, NaN becomes 0. Complex to real, also to bool, warns: imaginary parts
    are dropped, where ``astype(bool)`` is true if one of the parts is not zero.

    Args: operand: array or scalar; new_dtype: a dtype or scalar type.

    >>> lax.convert_element_type(jnp.array([1.7, -2.5]), jnp.int32)
    Array([ 1, -2], dtype=int32)
    """
    return _convert_element_type(operand, new_dtype, False, keeps="c")


_NUMBERS = (bool, int, float, builtins.complex)


def _convert_element_type(operand, new_dtype=None, weak_type: bool = False, keeps: str = "cb") -> Array:
    """Cast that can also set the weak bit. ``new_dtype=None`` keeps the operand's dtype. ``keeps``: the kinds of
    dtypes in which imaginary parts count."""
    if not isinstance(operand, Array):
        if new_dtype is not None and not weak_type and isinstance(operand, _NUMBERS):
            # A number takes the requested dtype at once, as a constant without an equation; a
            # Python integer through the default integer would reject 2**31 asked for as uint32.
            dtype = dtypes.check_and_canonicalize_user_dtype(new_dtype, "convert_element_type")
            if dtypes.issubdtype(dtype, np.complexfloating) or isinstance(operand, int) or (
                isinstance(operand, float) and dtypes.issubdtype(dtype, np.floating)
            ):
                with np.errstate(over="ignore"):
                    return as_array(np.asarray(operand).astype(dtype))
        elif isinstance(operand, (list, tuple)):
            raise TypeError(f"Cannot determine dtype of {operand!r}")
        operand = as_array(operand)
    old_dtype = operand.dtype
    if new_dtype is None or new_dtype is old_dtype:
        new_dtype = old_dtype
    else:
        new_dtype = dtypes.check_and_canonicalize_user_dtype(new_dtype, "convert_element_type")
    if new_dtype == old_dtype and bool(operand.weak_type) == weak_type:
        return operand
    if getattr(old_dtype, "kind", "V") == "c" and getattr(new_dtype, "kind", "V") not in keeps:
        warnings.warn(
            "a conversion of complex numbers to real ones drops their imaginary parts; take .real",
            np.exceptions.ComplexWarning,
            stacklevel=user_stacklevel(),
        )
        if new_dtype.kind == "b":  # of both parts the op itself asks whether they are zero
            operand = real(operand)
    return bind(
        "convert_element_type", (operand,), {"new_dtype": new_dtype, "weak_type": weak_type}
    )


def bitcast_convert_type(operand: ArrayLike, new_dtype: DTypeLike) -> Array:
    """Reinterprets the bits of an array as another dtype.

    To a narrower dtype the result has one more (last) dimension, to a wider one the last dimension
    is consumed. bool and complex only convert to themselves (TypeError).

    Args: operand: array; new_dtype: the dtype.

    >>> lax.bitcast_convert_type(jnp.float32(1), jnp.int32)
    Array(1065353216, dtype=int32)
    """
    new_dtype = dtypes.check_and_canonicalize_user_dtype(new_dtype, "bitcast_convert_type")
    operand = _operand(operand, "bitcast_convert_type")
    return bind("bitcast_convert_type", (operand,), {"new_dtype": new_dtype})


def erfc(x: ArrayLike, *, accuracy: Any = None) -> Array:  # type: ignore[no-redef]  # in the place of the native one
    """The complementary error function, elementwise.

    Args: x: array of floats; accuracy: None or an `AccuracyMode`: there is one way to compute it.

    Errors: NotImplementedError for another `accuracy`; TypeError for other dtypes.

    >>> lax.erfc(0.0)
    Array(1., dtype=float32, weak_type=True)
    """
    if not isinstance(accuracy, AccuracyMode | None):
        raise NotImplementedError(
            f"erfc has one implementation; accuracy must be None or a lax.AccuracyMode, got {accuracy!r}"
        )
    return _native_erfc(x)


def stop_gradient(x: T) -> T:  # type: ignore[no-redef]  # in the place of the native one
    """``x`` (an array or a pytree of arrays) as a constant for differentiation.

    Leaves that are not floating or complex are returned as they are.

    >>> ferrax.grad(lambda x: x * lax.stop_gradient(x))(3.0)
    Array(3., dtype=float32, weak_type=True)
    """
    if isinstance(x, Array):
        return _stop_gradient_leaf(x)

    return tree_map(_stop_gradient_leaf, x)


def _stop_gradient_leaf(x):
    if not isinstance(x, Array):
        if type(x) in _NUMBER_TYPES:
            return x
        if isinstance(x, np.ndarray) and x.dtype == dtypes.float0:
            return x
        x = _operand(x, "stop_gradient")
    if dtypes.issubdtype(x.dtype, np.inexact):
        return _stop_gradient(x)
    return x


def dtype(x: ArrayLike) -> np.dtype:
    """The dtype that ``x`` (an array, scalar, or scalar type) has as an array.

    Args: x: array, scalar or scalar type.

    >>> lax.dtype(1.0), lax.dtype(jnp.ones(2, jnp.int8))
    (dtype('float32'), dtype('int8'))
    """
    if x is None:
        raise ValueError(f"Invalid argument to dtype: {x} has none; pass an array or a scalar.")
    return x.dtype if isinstance(x, Array) else dtypes.dtype(x)
