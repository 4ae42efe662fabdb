"""Types of values that are no arrays, and primitives over them, applied to values.

A class derives its types from `HiType` or `MutableHiType` and says by `register_hitype` which type a
value has; a `HiPrimitive` says by `to_lojax` what it computes. Programs hold arrays alone: a primitive
applied to values of a function that is being traced is refused, and so is a value of such a type as an
argument of `jit`. A class whose values are to pass through transformations is registered as a tree of
arrays instead (`ferrax.tree_util`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

from ferrax._src.base.effects import Effect
from ferrax._src.core.avals import AbstractValue
from ferrax._src.core.primitives import Primitive, primitive_jvps, primitive_transposes
from ferrax._src.core.values import Tracer, register_type


def _missing(owner: object, method: str) -> NotImplementedError:
    return NotImplementedError(f"{type(owner).__name__} must define {method}")


class HiPrimitive(Primitive):
    """A primitive over values of any type, which a class derives from it defines by `to_lojax`.

    Args:
        name: what messages call it.
    Raises:
        NotImplementedError: by `bind` for a value of a function that is being traced, or where
            `to_lojax` is not defined.

    Example:
        >>> class First(hijax.HiPrimitive):
        ...     def to_lojax(self, pair):
        ...         return pair[0]
        >>> First("first").bind((jnp.ones(2), 3.0))
        Array([1., 1.], dtype=float32)
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        primitive_jvps[self] = self.jvp
        primitive_transposes[self] = self.transpose

    def is_high(self, *avals: Any, **params: Any) -> bool:
        """Whether the primitive is defined by `to_lojax` for values of these types."""
        return True

    def is_effectful(self, params: dict[str, Any]) -> bool:
        """Whether applying it with these parameters does more than computing."""
        return False

    def abstract_eval(self, *avals: Any, **params: Any) -> tuple[Any, set[Effect]]:
        """The types of the outputs, from those of the inputs, and the effects."""
        raise _missing(self, "abstract_eval")

    def to_lojax(self, *args: Any, **params: Any) -> Any:
        """The outputs, computed by functions of arrays."""
        raise _missing(self, "to_lojax")

    def jvp(self, primals: Any, tangents: Any, **params: Any) -> tuple[Any, Any]:
        """The outputs, and their tangents."""
        raise _missing(self, "jvp")

    def transpose(self, *args: Any, **params: Any) -> Any:
        """The cotangents of the inputs in which it is linear."""
        raise _missing(self, "transpose")

    def impl(self, *args: Any, **params: Any) -> Any:
        """What `bind` calls."""
        return self.to_lojax(*args, **params)

    def bind(self, *args: Any, **params: Any) -> Any:
        """Applies it to values."""
        if any(isinstance(arg, Tracer) for arg in args):
            raise NotImplementedError(
                f"'{self.name}' is a primitive over values that are no arrays, and programs hold arrays "
                "alone: it cannot be applied to traced values. Register the class of such values as a "
                "tree of arrays with ferrax.tree_util, and write a function in the place of the primitive"
            )
        return self.impl(*args, **params)


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


class HiType(_Type):
    """Base of the types of values that are no arrays and do not change.

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


def register_hitype(val_cls: type, typeof_fn: Callable[[Any], AbstractValue]) -> None:
    """Says which type the values of a class have: what `ferrax.typeof` gives.

    Args:
        val_cls: the class, its derived classes not included.
        typeof_fn: from a value to its type.

    Example:
        >>> class Text(str):
        ...     pass
        >>> hijax.register_hitype(Text, lambda text: ferrax.core.ShapedArray((len(text),), jnp.uint8))
        >>> ferrax.typeof(Text("four"))
        ShapedArray(uint8[4])
    """
    register_type(val_cls, typeof_fn)


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
