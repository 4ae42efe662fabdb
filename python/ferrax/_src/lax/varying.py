"""How values lie over axes of a mesh by type, within functions that its devices run (`shard_map`).

A value may differ along an axis, be the sum of what devices have (unreduced), be the same with a sum as its cotangent
(reduced), or be the same. Types have a string for each axis but those of the last kind, with a mark before the names of
the second and the third.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ferrax._core import bind
from ferrax._src.core.named_axes import REDUCED, UNREDUCED


def vary(x: Any, names: tuple[str, ...]) -> Any:
    """The array as one that differs by type along these axes of a mesh, as programs name them.

    Errors: ValueError where it is a sum over them.
    """
    if not names:
        return x
    known = x._varying
    if sums := [name for name in names if UNREDUCED + name in known]:
        raise ValueError(
            f"a value of type {x._type_text()} is the sum of what devices have along {sums}, and none that differs "
            "there: sum it by lax.psum, or lax.psum_scatter, first"
        )
    reduced = tuple(name for name in names if REDUCED + name in known)
    same = tuple(name for name in names if name not in reduced)
    x = bind("pvary", (x,), {"axes": same}) if same else x
    return bind("reduced_vary_cast", (x,), {"axes": reduced}) if reduced else x


def as_terms(x: Any, names: tuple[str, ...]) -> Any:
    """The array, which differs along these axes, as the terms of a sum over them."""
    return bind("vary_unreduced_cast", (x,), {"axes": names}) if names else x


def as_reduced(x: Any, names: tuple[str, ...]) -> Any:
    """The array, which is the same along these axes, as one whose cotangent is a sum over them."""
    return bind("preduced", (x,), {"axes": names}) if names else x


def lying(x: Any, wanted: Iterable[str]) -> Any:
    """The array as one that lies over axes so, as far as casts of what is the same or reduced go."""
    missing = sorted(set(wanted).difference(x._varying))
    reduced = tuple(name[1:] for name in missing if name.startswith(REDUCED))
    plain = tuple(name for name in missing if not name.startswith((REDUCED, UNREDUCED)))
    return as_reduced(vary(x, plain), reduced)


def missing(x: Any, varying: Any) -> tuple[str, ...]:
    """Those of these axes along which an array does not differ."""
    return tuple(sorted(set(varying).difference(x._varying)))


def varying_like(x: Any, other: Any) -> Any:
    """The array as one that differs along the axes along which another value does, or a type."""
    varying = getattr(other, "_varying", ())
    return lying(x, varying) if varying else x
