"""``optimization_barrier``."""

from __future__ import annotations

from typing import Any

from ferrax import _core
from ferrax._src.core import float0
from ferrax._src.lax.control_flow.common import type_of

__all__ = ["optimization_barrier"]


def optimization_barrier(operand: Any, /) -> Any:
    """Its operand, which the compiler neither moves across this point nor computes together.

    Args:
      operand: a pytree of arrays.

    Errors: TypeError for leaves that are no arrays.

    >>> lax.optimization_barrier((1.0, jnp.arange(2)))
    (Array(1., dtype=float32, weak_type=True), Array([0, 1], dtype=int32))
    """
    leaves, tree = float0.flatten(operand)
    for leaf in leaves:
        type_of(leaf, "lax.optimization_barrier")
    return tree.unflatten(
        [_core.bind("optimization_barrier", (leaf,), {}) for leaf in leaves]
    )
