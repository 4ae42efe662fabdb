"""Where arrays were put: shardings of those that are elsewhere, or by request, on their device.

Most arrays are on the one device without having been put there. Of others this table holds the
sharding, by the array's identity, until the array is gone: arrays carry nothing, and operations do
not look here. The same table has the shardings of traced values that a program stated.
"""

from __future__ import annotations

import weakref
from typing import Any, NamedTuple

from ferrax import _core
from ferrax._src.core.devices import _CPU
from ferrax._src.core.sharding import NamedSharding, Sharding, SingleDeviceSharding, of_type

WHOLE = SingleDeviceSharding(_CPU)


class Placement(NamedTuple):
    """A sharding, and whether it was asked for (`committed`)."""

    sharding: Sharding
    committed: bool


UNPLACED = Placement(WHOLE, False)
_table: dict[int, tuple[weakref.ref, Placement]] = {}


def placement(array: Any) -> Placement:
    """Where an array was put."""
    known = _table.get(id(array))
    return UNPLACED if known is None else known[1]


def place(array: Any, sharding: Sharding, committed: bool = True) -> Any:
    """The array, which is from now on where this sharding says.

    Nobody else may have the array: its place does not change once it was seen.
    """
    key = id(array)
    if not committed and sharding == WHOLE:
        _table.pop(key, None)
    else:
        # The entry is dropped before the address can be another array's.
        reference = weakref.ref(array, lambda _: _table.pop(key, None))
        _table[key] = reference, Placement(sharding, committed)
    return array


def placed(array: Any, sharding: Sharding, committed: bool = True) -> Any:
    """The array, or another with the same memory, where this sharding says."""
    if placement(array) == (sharding, committed):
        return array
    return place(alias(array), sharding, committed)


def alias(array: Any) -> Any:
    """Another array object with the same memory."""
    return _core.bind("reshape", (array,), {"new_sizes": tuple(array.shape), "dimensions": None})


def explicit_spec(array: Any) -> NamedSharding | None:
    """The sharding over a mesh without devices that the array's type has, or None."""
    known = _table.get(id(array))
    if known is None:
        return None
    sharding = known[1].sharding
    if not isinstance(sharding, NamedSharding) or sharding.mesh.empty:
        return None
    return of_type(sharding, array.ndim)
