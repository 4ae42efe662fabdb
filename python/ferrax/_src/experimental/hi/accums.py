"""Where reverse rules put cotangents: objects with a method `accum`, one for each input.

Cost: an addition for each cotangent but the first.
"""

from __future__ import annotations

from typing import Any

from ferrax._src import core
from ferrax._src.core.avals import AbstractValue
from ferrax._src.state import Ref, freeze, new_ref
from ferrax._src.transforms.ad import Zero, instantiate_zeros, zeros_like_aval


def is_zero(x: Any) -> bool:
    return x is None or x is Zero or type(x) is Zero


class GradAccum:
    """Base of what a reverse rule is given for each input, to put its cotangent into.

    >>> isinstance(hijax.NullAccum(ferrax.typeof(1.0)), hijax.GradAccum)
    True
    """

    aval: Any

    def accum(self, x: Any) -> None:
        """Adds a cotangent; None and a `Zero` add nothing."""
        raise NotImplementedError(f"{type(self).__name__} must define accum")

    def freeze(self) -> Any:
        """The sum: a value, or a `Zero`."""
        raise NotImplementedError(f"{type(self).__name__} must define freeze")


class ValAccum(GradAccum):
    """The sum of cotangents of a type, as a value.

    Args:
        aval: the type of cotangents.
        val: the first one; nothing unless given.
    Errors: ValueError, by `accum`, for a cotangent of another type.

    >>> total = hijax.ValAccum(ferrax.typeof(jnp.ones(2)))
    >>> total.accum(jnp.ones(2)), total.accum(None), total.accum(jnp.ones(2))
    (None, None, None)
    >>> total.freeze()
    Array([2., 2.], dtype=float32)
    """

    def __init__(self, aval: AbstractValue, val: Any = None) -> None:
        self.aval = aval
        self.val = Zero(aval) if val is None else val
        check_cotangent(aval, self.val)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.aval})"

    def accum(self, x: Any) -> None:
        """Adds a cotangent; None and a `Zero` add nothing."""
        check_cotangent(self.aval, x)
        if not is_zero(x):
            self.val = x if is_zero(self.val) else add(self.aval, self.val, x)

    def freeze(self) -> Any:
        """The sum: a value, or a `Zero`."""
        return self.val


class RefAccum(GradAccum):
    """The sum of cotangents of a type, in a mutable array.

    Args:
        aval: the type of cotangents.
        ref: a `Ref` of it; made by the first cotangent unless given.

    >>> total = hijax.RefAccum(ferrax.typeof(jnp.ones(2)), ferrax.new_ref(jnp.zeros(2)))
    >>> total.accum(jnp.ones(2))
    >>> total.freeze()
    Array([1., 1.], dtype=float32)
    """

    def __init__(self, aval: AbstractValue, ref: Ref | None = None) -> None:
        self.aval = aval
        self.ref = ref

    def accum(self, x: Any) -> None:
        """Adds a cotangent; None and a `Zero` add nothing."""
        check_cotangent(self.aval, x)
        if is_zero(x):
            return
        if self.ref is None:
            self.ref = new_ref(x)
        else:
            self.ref.addupdate(x)

    def freeze(self) -> Any:
        """The sum: an array, or a `Zero`."""
        return Zero(self.aval) if self.ref is None else freeze(self.ref)

    def inst(self) -> RefAccum:
        """The same, with a mutable array of zeros where there was no cotangent yet."""
        if self.ref is None:
            self.ref = new_ref(zeros_like_aval(self.aval))
        return self


class NullAccum(GradAccum):
    """Takes cotangents that nobody asks for.

    Args: aval: the type of cotangents.

    >>> hijax.NullAccum(ferrax.typeof(1.0)).accum(2.0)
    """

    def __init__(self, aval: AbstractValue) -> None:
        self.aval = aval

    def __repr__(self) -> str:
        return f"NullAccum({self.aval})"

    def accum(self, x: Any) -> None:
        """Forgets the cotangent."""

    def freeze(self) -> Any:
        """A `Zero`."""
        return Zero(self.aval)


def check_cotangent(aval: Any, ct: Any) -> None:
    """Errors: ValueError for a cotangent that is not of this type; its dtype may be another."""
    if ct is None or ct is Zero:
        return
    found = ct.aval if type(ct) is Zero else core.typeof(ct)
    if isinstance(aval, core.ShapedArray) and hasattr(found, "shape"):
        fits = found.shape == aval.shape
    else:
        fits = found == aval or any(getattr(x, "_varying", ()) for x in found.lo_ty())
    if not fits:
        raise ValueError(f"a cotangent of type {found.str_short()} was given, where {aval.str_short()} is expected")


def add(aval: Any, x: Any, y: Any) -> Any:
    """The sum of two values of a type."""
    return x + y if isinstance(aval, core.ShapedArray) else aval.vspace_add(x, y)


def instantiate(x: Any) -> Any:
    """A tangent, with zeros for a `Zero`."""
    return instantiate_zeros(x)
