"""Terms of arrays that are sums over devices (`unreduced`): which elements of the total each device holds.

Such an array lies in memory as the total. Where it was made of one that was divided over the axes of the sum, each
device keeps its own tile, and the tiles are the terms. They are said by a spec beside that of the array: a device
holds an element if, by this spec, the element's tile is the device's along the axes of the sum; along axes of the sum
that the spec does not name the first device holds all. None is a spec that names no axis. The rules are those of JAX,
as the shards of its arrays show.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from ferrax._src.core.devices import Device
from ferrax._src.core.partition import PartitionSpec, entry_names, filled
from ferrax._src.core.sharding import Index, NamedSharding


def terms_after(known: PartitionSpec, terms: PartitionSpec | None, target: PartitionSpec) -> PartitionSpec | None:
    """The terms of an array with the spec `target`, made of one with the spec `known` and these terms.

    An axis of the array that was divided over axes of the new sum stays cut, if it is divided as it was but for these.
    """
    if not target.unreduced:
        return None
    rank = max(len(known), len(target), 0 if terms is None else len(terms))
    before, after = filled(known, rank).partitions, filled(target, rank).partitions
    cut = (None,) * rank if terms is None else filled(terms, rank).partitions
    entries = [_cut(*given, target.unreduced) for given in zip(before, cut, after)]
    return PartitionSpec(*entries) if any(entries) else None


def _cut(before: Any, cut: Any, after: Any, summed: frozenset[Hashable]) -> tuple[Hashable, ...]:
    """How an axis of the array is cut into terms: as it was, or by the axes that divide it no longer."""
    if summed.intersection(entry_names(cut)):
        return entry_names(cut)
    own, kept = entry_names(before), entry_names(after)
    left = own[len(kept) :]
    return own if left and own[: len(kept)] == kept and summed.issuperset(left) else ()


def term(
    tile: np.ndarray,
    sharding: NamedSharding,
    terms: PartitionSpec | None,
    device: Device,
    index: Index,
    shape: Sequence[int],
) -> np.ndarray:
    """What the device holds of its tile, which is at `index` of a total of this shape: zeros for the rest."""
    at = sharding._place_along_sum(device)
    entries = () if terms is None else tuple(map(entry_names, terms.partitions))
    named = {name for names in entries for name in names}
    held = np.zeros(tile.shape, tile.dtype)
    if any(number for name, number in at.items() if name not in named):
        return held
    entries += ((),) * (len(shape) - len(entries))
    sizes = sharding.mesh.shape
    where = np.ix_(*(_held(size, names, at, sizes)[cut] for size, names, cut in zip(shape, entries, index)))
    held[where] = tile[where]
    return held


def _held(
    size: int, names: tuple[Hashable, ...], at: Mapping[Hashable, int], sizes: Mapping[Hashable, int]
) -> np.ndarray:
    """For each position along an axis of the array, which these axes of the mesh cut, whether the device at this place
    holds it."""
    held = np.ones(size, bool)
    tiles = np.arange(size) * math.prod(sizes[name] for name in names) // max(size, 1)
    for name in reversed(names):
        if name in at:
            held &= tiles % sizes[name] == at[name]
        tiles = tiles // sizes[name]
    return held
