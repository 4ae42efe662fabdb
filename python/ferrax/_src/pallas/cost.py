"""`estimate_cost`: what a function costs, counted in its program."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ferrax._src.base import dtypes
from ferrax._src.pallas.specs import CostEstimate
from ferrax._src.tracing import staging


def estimate_cost(fun: Callable[..., Any], *args: Any, **kwargs: Any) -> CostEstimate:
    """The operations of a function for arguments of these types, without running it.

    Args: fun: the function; args, kwargs: arrays, or what has a shape and a dtype.

    Returns: a `CostEstimate`: arithmetic operations, transcendental functions, and the bytes of inputs
    and outputs.

    >>> pl.estimate_cost(lambda a, b: jnp.sin(a @ b), jnp.ones((4, 8)), jnp.ones((8, 2)))
    CostEstimate(flops=128, transcendentals=8, bytes_accessed=224, remote_bytes_transferred=0)
    """
    program, _, _ = staging.stage(fun, args, kwargs, writes=True)
    flops, transcendentals, _ = program.costs()
    moved = sum(_bytes(*ty[:2]) for ty in (*program.in_types, *program.out_types))
    return CostEstimate(flops, transcendentals, moved)


def _bytes(shape, dtype):
    if dtypes.issubdtype(dtype, dtypes.extended):
        return math.prod(shape) * 4
    return math.prod(shape) * dtypes.itemsize_bits(dtype) // 8
