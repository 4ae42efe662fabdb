"""Parameters of `scan` equations: by counts, as JAX 0.10 has them, and by structure, as JAX 0.12 has.

In: the one form or the other. Out: `counted` gives counts (`num_consts`, `num_carry`), `followed` the form of the
version that is followed: `ft_in`, of the constants, the carry and the elements, and `ft_out`, of the carry and the
results of steps. Leaves are `None`; how they are nested in pytrees is not known of equations, and each group is flat.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ferrax._src.base.jax_version import follows

__all__ = ["FlatTuple", "counted", "followed"]


class FlatTuple:
    """A tuple of structures: its length is the number of their leaves.

    `elts` are the structures, `unpack()` gives them; `vals` are the leaves. Equal to what has the same structure.
    """

    __slots__ = ("elts",)

    def __init__(self, *elts: Any) -> None:
        self.elts = elts

    @property
    def vals(self) -> tuple[Any, ...]:
        return tuple(leaf for elt in self.elts for leaf in (elt.vals if isinstance(elt, FlatTuple) else (elt,)))

    def unpack(self) -> tuple[Any, ...]:
        return self.elts

    def __len__(self) -> int:
        return len(self.vals)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.vals)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FlatTuple) and self.elts == other.elts

    def __hash__(self) -> int:
        return hash(self.elts)

    def __repr__(self) -> str:
        return repr(self.elts)


def _of_counts(*counts: int) -> FlatTuple:
    return FlatTuple(*(FlatTuple(*[None] * count) for count in counts))


def counted(params: dict[str, Any]) -> dict[str, Any]:
    """The parameters with counts: those that are there hold, others follow from the structure of the inputs."""
    found = dict(params)
    inputs = found.pop("ft_in", None)
    found.pop("ft_out", None)
    if inputs is not None:
        consts, carry, _ = inputs.unpack()
        found = {"num_carry": len(carry), "num_consts": len(consts)} | found
    return found


def followed(params: dict[str, Any], inputs: int, outputs: int) -> dict[str, Any]:
    """The parameters of an equation with so many inputs and outputs as the followed version of JAX has them."""
    if not follows(0, 12):
        return params
    params = counted(params)
    consts, carry = params.pop("num_consts"), params.pop("num_carry")
    structures = {
        "ft_in": _of_counts(consts, carry, inputs - consts - carry),
        "ft_out": _of_counts(carry, outputs - carry),
    }
    return dict(sorted((params | structures).items()))
