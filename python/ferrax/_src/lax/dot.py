"""Dot products of ``ferrax.lax``."""

from __future__ import annotations

from typing import Any

from ferrax._core import bind
from ferrax._src.base import config, dtypes
from ferrax._src.core import Array
from ferrax._src.core.op_types import precision_name
from ferrax._src.core.typing import ArrayLike, DTypeLike
from ferrax._src.lax.arguments import (
    int_tuple as _int_tuple,
    operand as _operand,
)
from ferrax._src.lax.out_sharding import with_out_sharding

__all__ = ["batch_matmul", "dot", "dot_general"]


def dot_general(
    lhs: ArrayLike, rhs: ArrayLike, dimension_numbers: Any, precision: Any = None,
    preferred_element_type: DTypeLike | None = None, *, out_sharding: Any = None,
) -> Array:
    """Contracts and batches arbitrary axes of two arrays.

    Args:
      lhs, rhs: arrays of numeric dtypes.
      dimension_numbers: ``((lhs_contracting, rhs_contracting), (lhs_batch, rhs_batch))``.
      precision: how exactly to multiply; see ``lax.Precision``.
      preferred_element_type: dtype of the result and, if wider, of the accumulation.

    Returns the batch axes, then lhs's and rhs's remaining ones. Raises TypeError where the axes are
    out of range, repeated, or of different sizes.

    >>> x = jnp.ones((2, 3, 4))
    >>> lax.dot_general(x, x, (((2,), (2,)), ((0,), (0,)))).shape
    (2, 3, 3)
    """
    if out_sharding is not None:
        return with_out_sharding(
            "dot_general", out_sharding, dot_general, lhs, rhs, dimension_numbers, precision,
            preferred_element_type,
        )  # fmt: skip
    lhs, rhs = _operand(lhs, "dot_general", 0), _operand(rhs, "dot_general", 1)
    (lhs_contract, rhs_contract), (lhs_batch, rhs_batch) = dimension_numbers
    lhs_contract, rhs_contract = _int_tuple(lhs_contract), _int_tuple(rhs_contract)
    lhs_batch, rhs_batch = _int_tuple(lhs_batch), _int_tuple(rhs_batch)
    for side, x, batch, contract in (
        ("lhs", lhs, lhs_batch, lhs_contract),
        ("rhs", rhs, rhs_batch, rhs_contract),
    ):
        ndim = x.ndim
        for d in batch + contract:
            if not 0 <= d < ndim:
                raise TypeError(
                    f"dot_general: dimension_numbers name axes that {side} of rank {ndim} does not "
                    f"have: got {side}_batch={batch} and {side}_contracting={contract}, expected axes "
                    f"of 0 to {ndim - 1}"
                )
    for kind, left, right in (
        ("batch", lhs_batch, rhs_batch),
        ("contracting", lhs_contract, rhs_contract),
    ):
        if len(left) != len(right):
            raise TypeError(
                f"dot_general: each {kind} axis of lhs goes with one of rhs, got lhs_{kind}={left} "
                f"and rhs_{kind}={right}."
            )
        if len(left) > 1:
            for side, dims in (("lhs", left), ("rhs", right)):
                if len(set(dims)) != len(dims):
                    raise TypeError(
                        f"dot_general: {side}_{kind}={dims} names an axis twice."
                    )
    if precision is None:
        precision = config.default_matmul_precision.value
    if preferred_element_type is not None:
        preferred_element_type = dtypes.check_and_canonicalize_user_dtype(
            preferred_element_type, "dot_general"
        )
    return bind(
        "dot_general",
        (lhs, rhs),
        {
            "dimension_numbers": ((lhs_contract, rhs_contract), (lhs_batch, rhs_batch)),
            "precision": precision_name(precision),
            "preferred_element_type": preferred_element_type,
        },
    )


def dot(
    lhs: ArrayLike, rhs: ArrayLike, *args: Any, dimension_numbers: Any = None,
    precision: Any = None, preferred_element_type: DTypeLike | None = None,
    out_sharding: Any = None,
) -> Array:
    """Matrix or vector product without batches, or ``dot_general`` if dimension numbers are given.

    Operands have one or two axes; the last axis of ``lhs`` meets the first of ``rhs``.
    ``precision`` and ``preferred_element_type`` may also be passed by position.

    Args: args, precision, preferred_element_type, dimension_numbers, out_sharding: as for
    `dot_general`, with its errors.

    >>> lax.dot(jnp.ones((2, 3)), jnp.ones(3))
    Array([3., 3.], dtype=float32)
    """
    if args:
        if len(args) > 2:
            raise TypeError(f"dot takes at most 4 positional arguments, got {2 + len(args)}")
        precision = args[0] if precision is None else precision
        if len(args) == 2 and preferred_element_type is None:
            preferred_element_type = args[1]
    lhs, rhs = _operand(lhs, "dot", 0), _operand(rhs, "dot", 1)
    if dimension_numbers is None:
        if not (
            1 <= lhs.ndim <= 2
            and 1 <= rhs.ndim <= 2
            and lhs.shape[-1] == rhs.shape[0]
        ):
            raise ValueError(
                f"lax.dot: shapes {tuple(lhs.shape)} and {tuple(rhs.shape)} are no product of vectors "
                "and matrices, where the last axis of lhs meets the first of rhs; pass "
                "dimension_numbers, or use jnp.matmul for batches"
            )
        dimension_numbers = (((lhs.ndim - 1,), (0,)), ((), ()))
    return dot_general(
        lhs,
        rhs,
        dimension_numbers,
        precision=precision,
        preferred_element_type=preferred_element_type,
        out_sharding=out_sharding,
    )


def batch_matmul(lhs: ArrayLike, rhs: ArrayLike, precision: Any = None) -> Array:
    """Matrix products of the last two axes, all leading axes being batches.

    Args: lhs: array of shape (..., m, k); rhs: array of shape (..., k, n), with the same leading
    axes; precision: as for `dot_general`.

    >>> lax.batch_matmul(jnp.ones((5, 2, 3)), jnp.ones((5, 3, 4))).shape
    (5, 2, 4)
    """
    lhs, rhs = _operand(lhs, "batch_matmul", 0), _operand(rhs, "batch_matmul", 1)
    if lhs.ndim < 2 or rhs.ndim < 2:
        raise ValueError(
            f"batch_matmul: both operands need two axes or more, got {lhs.ndim} and {rhs.ndim}"
        )
    if lhs.ndim != rhs.ndim:
        raise ValueError(
            f"batch_matmul: the operands need as many axes as each other, got {lhs.ndim} and "
            f"{rhs.ndim}"
        )
    batch = tuple(range(lhs.ndim - 2))
    return dot_general(
        lhs,
        rhs,
        (((lhs.ndim - 1,), (rhs.ndim - 2,)), (batch, batch)),
        precision=precision,
    )
