"""Where arrays were put: shardings of those that are elsewhere, or by request, on their device.

Each array, and each traced value, has a number in the native core, 0 where it was put nowhere: it is then
on the CPU. This table says what the other numbers mean; equal placements have one. It keeps them,
so that it is as long as there were different shardings. Results of operations are where `propagation`
says.

The native core reads the upper bits of a number. TYPED: the sharding is over explicit axes, and so part of
the type by which programs are known. SPREADS: results are there, too, if no operand is elsewhere. COMMITTED: it
was asked for. From DEVICE on, the number of the device. OVER: types have another number: of a sharding over a mesh
without explicit axes one that stands for the mesh, of a sum over devices that is cut into terms the one of other such
sums.
"""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

from ferrax import _core
from ferrax._src.core.devices import _CPU
from ferrax._src.core.mesh import Mesh, get_abstract_mesh
from ferrax._src.core.partition import PartitionSpec
from ferrax._src.core.sharding import NamedSharding, Sharding, SingleDeviceSharding, of_type
from ferrax._src.core.sum_terms import terms_after

TYPED = 1 << 31
SPREADS = 1 << 30
COMMITTED = 1 << 29
DEVICE = 20
OVER = 1 << 19
MOST = OVER
WHOLE = SingleDeviceSharding(_CPU)


class Placement(NamedTuple):
    """A sharding, and whether it was asked for (`committed`)."""

    sharding: Sharding
    committed: bool


UNPLACED = Placement(WHOLE, False)
# By placement, with what a sum over devices is cut into (`sum_terms`) where there is such a thing.
_numbers: dict[tuple[Any, ...], int] = {UNPLACED: 0}
_placements: dict[int, Placement] = {0: UNPLACED}
# The terms of the numbers that have some.
_terms: dict[int, PartitionSpec] = {}
_lock = threading.Lock()


def number_of(sharding: Sharding, committed: bool = True, terms: PartitionSpec | None = None) -> int:
    """The number of a placement; of a sum over devices that is cut into these terms, another one."""
    where = Placement(sharding, committed)
    key: tuple[Any, ...] = where if terms is None else (*where, terms)
    known = _numbers.get(key)
    if known is None:
        over = _over(sharding)
        shown = None
        if terms is not None:
            shown = number_of(sharding, committed)
        elif over is not None and key != Placement(over, False):
            shown = number_of(over, False)
        with _lock:
            known = _numbers.get(key)
            if known is None:
                bits = SPREADS if isinstance(sharding, SingleDeviceSharding) else 0
                if isinstance(sharding, NamedSharding) and sharding.mesh.explicit_axes:
                    bits = TYPED
                if over is not None or terms is not None:
                    bits |= OVER
                if committed:
                    bits |= COMMITTED
                bits |= device_number(sharding) << DEVICE
                if len(_numbers) >= MOST:
                    raise RuntimeError(f"arrays were put to {MOST} different places, which is the most there can be")
                known = len(_numbers) | bits
                if bits & OVER:
                    _core.set_place_in_types(known, known if shown is None else shown)
                if terms is not None:
                    _terms[known] = terms
                _placements[known] = where
                _numbers[key] = known
    return known


def _over(sharding: Sharding) -> NamedSharding | None:
    """The sharding that stands for the mesh in types; None where there is none, or axes are explicit or manual."""
    if not isinstance(sharding, NamedSharding) or sharding.mesh.empty or not sharding.mesh.are_all_axes_auto:
        return None
    return NamedSharding(sharding.mesh.abstract_mesh, PartitionSpec())


def number_of_mesh(mesh: Mesh) -> int:
    """The number of the placement of what nobody put anywhere, while this mesh is in use (`set_mesh`): a copy on each
    device. By explicit axes it counts as not asked for, so that it is divided with what it meets."""
    return number_of(NamedSharding(mesh, PartitionSpec()), committed=not mesh.explicit_axes)


def number_of_missing(why: str) -> int:
    """The number of a placement on a default device that there is not: what is to run there raises
    JaxRuntimeError with this message."""
    return _core.missing_device(why) << DEVICE


def device_number(sharding: Sharding | None) -> int:
    """The native core's number of the device; 0 for the CPU and what it plays, and for none.

    Of several that have memories of their own it is the first: an array that all have, and that nobody has put on each,
    lies there.
    """
    if sharding is None:
        return 0
    if isinstance(sharding, NamedSharding) and not isinstance(sharding.mesh, Mesh):
        return 0
    return sharding._addressable_device_assignment[0]._number if sharding.has_addressable_devices else 0


def numbered(number: int) -> Placement:
    """The placement of a number."""
    return _placements[number]


def terms_of(number: int) -> PartitionSpec | None:
    """What a sum over devices of this number is cut into; None: the first device holds all."""
    return _terms.get(number)


def placement(array: Any) -> Placement:
    """Where an array was put. Values of other kinds were put nowhere."""
    # In most programs nothing ever is put anywhere.
    if len(_placements) == 1 or not isinstance(array, _core.Array):
        return UNPLACED
    try:
        return _placements[_core.place_of(array)]
    except TypeError:
        # One that other processes have parts of (`global_array`), of which the native core does not know.
        return array._placement  # type: ignore[attr-defined]


def place(array: Any, sharding: Sharding, committed: bool = True) -> Any:
    """The array where this sharding says: itself, if it is on that device.

    Nobody else may have the array: its place does not change once it was seen.
    """
    return _core.place_at(array, _number_there(array, sharding, committed), True)


def placed(array: Any, sharding: Sharding, committed: bool = True) -> Any:
    """The array, or another, where this sharding says: on the same device with the same memory."""
    number = _number_there(array, sharding, committed)
    if _core.place_of(array) == number:
        return array
    return _core.place_at(alias(array), number, True)


def _number_there(array: Any, sharding: Sharding, committed: bool) -> int:
    """The number of an array that goes where this sharding says, as a sum over devices with the terms of these."""
    if not isinstance(sharding, NamedSharding) or not sharding.spec.unreduced:
        return number_of(sharding, committed)
    number = _core.place_of(array)
    known = _placements[number].sharding
    if not isinstance(known, NamedSharding) or known.mesh.shape_tuple != sharding.mesh.shape_tuple:
        return number_of(sharding, committed)
    return number_of(sharding, committed, terms_after(known.spec, _terms.get(number), sharding.spec))


def alias(array: Any) -> Any:
    """Another array object with the same memory."""
    if isinstance(array, _core.Array) and not isinstance(array, _core.Tracer):
        return _core.place_at(array, _core.place_of(array), False)
    return _core.bind("reshape", (array,), {"new_sizes": tuple(array.shape), "dimensions": None})


def placed_like(array: Any, other: Any) -> Any:
    """The array where another is that was put somewhere by request, whole or with this one's shape."""
    sharding, committed = placement(other)
    traced = isinstance(array, _core.Tracer) == isinstance(other, _core.Tracer)
    if not committed or not traced:
        return array
    if tuple(array.shape) != tuple(other.shape) and not sharding.is_fully_replicated:
        return array
    return placed(array, sharding)


def explicit_spec(array: Any) -> NamedSharding | None:
    """The sharding over a mesh without devices that the array's type has, or None."""
    sharding = placement(array).sharding
    traced, mesh = isinstance(array, _core.Tracer), get_abstract_mesh()
    if isinstance(sharding, NamedSharding) and not sharding.mesh.empty:
        # In functions that devices run the mesh in use is that of a traced value, with the axes that are manual there.
        inside = traced and mesh.shape_tuple == sharding.mesh.shape_tuple and not sharding.mesh.explicit_axes
        if not inside:
            return of_type(sharding, array.ndim)
    if not mesh.empty and (traced or not mesh._any_axis_manual):
        return NamedSharding(mesh, PartitionSpec(*[None] * array.ndim))
    return None


def type_number(sharding: Any) -> int:
    """The number by which programs are known of arrays with a sharding.

    Its own, if it is part of their type, that of its mesh, if that is, else 0.
    """
    number = number_of(sharding) if isinstance(sharding, NamedSharding) else 0
    if number & OVER and (over := _over(sharding)) is not None:
        return number_of(over, False)
    return number if number & TYPED else 0
