"""How the devices of a sharding are numbered by the tiles that they hold: the numbers, as XLA says them."""

from __future__ import annotations

import dataclasses
import math


@dataclasses.dataclass(frozen=True)
class TileAssignment:
    """For each tile, in row-major order, the places of its devices in the sharding's order.

    `parts`: into how many each axis is cut; `copies`: how many devices hold a tile, one after the other in `places`.
    The methods have the names of XLA's `HloSharding`, which programs written for JAX ask.
    """

    parts: tuple[int, ...]
    copies: int
    places: tuple[int, ...]

    def is_replicated(self) -> bool:
        """Whether each device holds the whole array."""
        return math.prod(self.parts) == 1

    def is_tiled(self) -> bool:
        """Whether an axis is cut."""
        return not self.is_replicated()

    def replicate_on_last_tile_dim(self) -> bool:
        """Whether `tile_assignment_dimensions` ends with the number of copies."""
        return self.is_tiled() and self.copies > 1

    def tile_assignment_dimensions(self) -> list[int]:
        """Into how many parts each axis is cut, and then how many copies of each there are, if several."""
        if self.is_replicated():
            return []
        return [*self.parts, *([self.copies] if self.copies > 1 else [])]

    def tile_assignment_devices(self) -> list[int]:
        """The places of all devices, by tile."""
        return list(self.places)

    def num_devices(self) -> int:
        """How many devices there are."""
        return len(self.places)

    def __repr__(self) -> str:
        if self.is_replicated():
            return "{replicated}"
        sizes = ",".join(map(str, self.tile_assignment_dimensions()))
        last = " last_tile_dim_replicate" if self.replicate_on_last_tile_dim() else ""
        return f"{{devices=[{sizes}]{','.join(map(str, self.places))}{last}}}"


def assigned(parts: tuple[int, ...], tiles: list[tuple[int, ...]]) -> TileAssignment:
    """Of devices that hold these tiles, in order."""
    places = sorted(range(len(tiles)), key=lambda place: (tiles[place], place))
    return TileAssignment(parts, len(tiles) // max(math.prod(parts), 1), tuple(places))
