"""``lax.scaled_dot``: products of arrays with a scale for each block of elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ferrax._src.base import dtypes
from ferrax._src.core import Array, as_array
from ferrax._src.core.typing import DTypeLike
from ferrax._src.lax import api as lax
from ferrax._src.lax.arguments import operand as _operand
from ferrax._src.transforms.composites import composite


def scaled_dot(
    lhs: Array, rhs: Array, *, lhs_scale: Array | None = None, rhs_scale: Array | None = None,
    dimension_numbers: Any = None, preferred_element_type: DTypeLike | None = None,
) -> Array:
    """``dot_general(lhs * lhs_scale, rhs * rhs_scale)``, where scales are of blocks.

    Args:
      lhs, rhs: arrays of one rank, 2 or more; usually of float8 or float4.
      lhs_scale, rhs_scale: arrays of that rank, or None for 1. Along contracted axes their sizes
        divide the operand's, and each element scales a block; along others the sizes are equal.
      dimension_numbers: those of `dot_general`; by default of a product of the last two axes, with
        all others as batches.
      preferred_element_type: the dtype of the result, bfloat16 by default. Operands are scaled in
        bfloat16.

    Errors: TypeError for ranks and sizes that do not fit.

    Source: Open Compute Project, "OCP Microscaling Formats (MX) Specification", version 1.0, 2023.

    >>> x = jnp.ones((2, 32), jnp.float8_e4m3fn)
    >>> scale = jnp.full((2, 1), 2.0, jnp.float8_e8m0fnu)
    >>> lax.scaled_dot(x, x.T, lhs_scale=scale, preferred_element_type=jnp.float32)
    Array([[64., 64.],
           [64., 64.]], dtype=float32)
    """
    lhs, rhs = _operand(lhs, "scaled_dot"), _operand(rhs, "scaled_dot", 1)
    if dimension_numbers is None:
        if lhs.ndim < 2:
            raise TypeError(f"scaled_dot: expected at least two axes, got lhs of shape {tuple(lhs.shape)}")
        batch = tuple(range(lhs.ndim - 2))
        dimension_numbers = (((lhs.ndim - 1,), (lhs.ndim - 2,)), (batch, batch))
    (l_contract, r_contract), _ = dimension_numbers
    dtype = dtypes.bfloat16 if preferred_element_type is None else preferred_element_type
    scales = [
        _ones(x, axes) if scale is None else _operand(scale, "scaled_dot", position)
        for position, (x, scale, axes) in enumerate(
            ((lhs, lhs_scale, l_contract), (rhs, rhs_scale, r_contract)), 2
        )
    ]
    return scaled_dot_p.bind(
        lhs, rhs, *scales, dimension_numbers=dimension_numbers,
        preferred_element_type=dtypes.check_and_canonicalize_user_dtype(dtype, "scaled_dot"),
    )


def _ones(x: Array, contracted: Sequence[int]) -> Array:
    shape = tuple(1 if axis in contracted else size for axis, size in enumerate(x.shape))
    return as_array(np.ones(shape, dtypes.float8_e8m0fnu))


def _scaled(side: str, x: Array, scale: Array, contracted: Sequence[int]) -> Array:
    """`x * scale` in bfloat16, with scales repeated along contracted axes."""
    blocks: list[int] = []
    for axis, (size, count) in enumerate(zip(x.shape, scale.shape)):
        fits = count > 0 and size % count == 0 if axis in contracted else size == count
        if not fits:
            expected = f"a divisor of {size}" if axis in contracted else f"{size}"
            raise TypeError(
                f"scaled_dot: the scale of the {side} has size {count} along axis {axis}, expected"
                f" {expected}"
            )
        blocks += [count, size // count if count else 1]
    scale = lax.convert_element_type(scale, dtypes.bfloat16)
    scale = lax.broadcast_in_dim(scale, blocks, range(0, len(blocks), 2))
    scale = lax.reshape(scale, tuple(x.shape))
    return lax.mul(lax.convert_element_type(x, dtypes.bfloat16), scale)


def _run(
    lhs: Array, rhs: Array, lhs_scale: Array, rhs_scale: Array, *, dimension_numbers: Any,
    preferred_element_type: Any,
) -> Array:
    ranks = [x.ndim for x in (lhs, rhs, lhs_scale, rhs_scale)]
    if len(set(ranks)) != 1:
        raise TypeError(f"scaled_dot: all operands must have the same rank, got {ranks}")
    (l_contract, r_contract), _ = dimension_numbers
    return lax.dot_general(
        _scaled("lhs", lhs, lhs_scale, l_contract),
        _scaled("rhs", rhs, rhs_scale, r_contract),
        dimension_numbers,
        preferred_element_type=preferred_element_type,
    )


scaled_dot_p = composite("scaled_dot", _run)
