"""Explicit types of values that transformations take apart and make.

Types over explicit axes of a mesh are placements (`core.placements`), which programs do not have: those of a
program's results are guessed from its operands'. A transformation knows better: results of a batch have the types
of a lane and one axis more, cotangents those of what they are cotangents of. What is known is said here, by a
`reshard` where the guess was another. Cost where no value has such a type: a look at each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ferrax import _core
from ferrax._src.core.global_array import GlobalArray
from ferrax._src.core.placements import COMMITTED, TYPED, number_of, numbered
from ferrax._src.core.sharding import NamedSharding, of_type

# What lays arrays out, which a higher layer writes.
_reshard: Callable[[Any, Any], Any] | None = None
_constrain: Callable[[Any, Any], Any] | None = None


def install(reshard: Callable[[Any, Any], Any], constrain: Callable[[Any, Any], Any]) -> None:
    """Takes `ferrax.reshard` and `lax.with_sharding_constraint`."""
    global _reshard, _constrain
    _reshard, _constrain = reshard, constrain


def resharded(x: Any, sharding: Any) -> Any:
    """`ferrax.reshard`, for layers below it."""
    assert _reshard is not None
    return _reshard(x, sharding)


def laid_out(x: Any, sharding: Any) -> Any:
    """A traced value that is divided so: by its type where axes are explicit, else as the program says."""
    if not isinstance(sharding, NamedSharding) or sharding.mesh.empty:
        return x
    if sharding.mesh.explicit_axes:
        return resharded(x, of_type(sharding, x.ndim).update(mesh=sharding.mesh))
    assert _constrain is not None
    return _constrain(x, sharding)


def typed(x: Any) -> NamedSharding | None:
    """The sharding that is part of a value's type, with an entry for each axis; None for others."""
    if type(x) is GlobalArray:
        return _of_struct(x)
    if not isinstance(x, _core.Array):
        return None
    if not issubclass(type(x), _core.Array):
        return _of_struct(x)
    number = _core.place_of(x)
    if not number & TYPED or not number & COMMITTED:
        return None
    sharding = numbered(number).sharding
    assert isinstance(sharding, NamedSharding)
    return NamedSharding(sharding.mesh, of_type(sharding, x.ndim).spec)


def all_typed(values: Sequence[Any]) -> list[NamedSharding | None]:
    """`typed` of each; of what has a type only, that."""
    return [typed(x) if isinstance(x, _core.Array) else _of_struct(x) for x in values]


def _of_struct(x) -> NamedSharding | None:
    sharding = getattr(x, "sharding", None)
    if not isinstance(sharding, NamedSharding) or not sharding.mesh.explicit_axes:
        return None
    return NamedSharding(sharding.mesh, of_type(sharding, len(x.shape)).spec)


def without_axis(sharding: NamedSharding | None, axis: int | None) -> NamedSharding | None:
    """The type of an element along an axis of an array of this type; None: of the array itself."""
    if sharding is None or axis is None:
        return sharding
    entries = list(sharding.spec.partitions)
    del entries[axis]
    return NamedSharding(sharding.mesh, sharding.spec.update(partitions=entries))


def with_axis(sharding: NamedSharding, axis: int | None, entry: Any) -> NamedSharding:
    """The type of an array of values of this type along a new axis, which is divided over `entry`."""
    if axis is None:
        return sharding
    entries = list(sharding.spec.partitions)
    entries.insert(axis, entry)
    return NamedSharding(sharding.mesh, sharding.spec.update(partitions=entries))


def of_cotangent(sharding: NamedSharding | None) -> NamedSharding | None:
    """The type of cotangents of values of this type: where these are the same on all devices (`reduced`), they are sums
    over devices (`unreduced`), and the other way round."""
    if sharding is None:
        return None
    spec = sharding.spec
    return NamedSharding(sharding.mesh, spec.update(unreduced=spec.reduced, reduced=spec.unreduced))


def set_type(tracer: Any, sharding: NamedSharding | None) -> None:
    """Gives a tracer that nobody has seen yet this type."""
    if sharding is not None and isinstance(tracer, _core.Tracer):
        _core.place_at(tracer, number_of(sharding), True)


def meshes_of(values: Sequence[Any]) -> list[int]:
    """What stands for the meshes that types of values name where no axis is explicit, 0 for values without.

    None at all if there is no such value."""
    return _core.places_of_meshes(list(values))


def set_meshes(tracers: Sequence[Any], meshes: Sequence[int]) -> None:
    """Gives tracers that nobody has seen yet types over these meshes (`meshes_of`)."""
    for tracer, mesh in zip(tracers, meshes):
        if mesh and isinstance(tracer, _core.Tracer):
            _core.place_at(tracer, mesh, True)


def retyped(x: Any, sharding: NamedSharding | None) -> Any:
    """The value with this type; itself for None and where it has it."""
    if sharding is None or not isinstance(x, _core.Array):
        return x
    known = typed(x)
    if known is not None and known.spec == sharding.spec and known.mesh.axis_types == sharding.mesh.axis_types:
        return x
    return resharded(x, sharding)
