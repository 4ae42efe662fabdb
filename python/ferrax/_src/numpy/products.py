"""Products of arrays: dot, matmul and their relatives, all by one `dot_general` each.

Invariant: operands keep their own dtypes and the promoted dtype is the `preferred_element_type`;
accumulation in a wider dtype is the backend's.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
from numpy.exceptions import AxisError

from ferrax._core import ufuncs
from ferrax._src.base import dtypes
from ferrax._src.base.jax_version import follows
from ferrax._src.core import Array
from ferrax._src.core.typing import ArrayLike, DTypeLike
from ferrax._src.lax import api as lax
from ferrax._src.lax.out_sharding import with_out_sharding
from ferrax._src.numpy.util import (
    alike,
    broadcast_to,
    convert,
    ensure_arrays,
    is_subdtype,
    normalize_axis,
    promote_dtypes,
    reject_out,
    user_dtype,
)
from ferrax._src.transforms.jit import jit

_DOT_STATIC = ("precision", "preferred_element_type", "out_sharding")


def _result_type(name, a, b, preferred_element_type):
    """(preferred element type, weak type of the result)."""
    if preferred_element_type is not None:
        return user_dtype(preferred_element_type, name), False
    common = alike((a, b))
    if common is not None:
        return common, False
    return dtypes.result_type(a, b, return_weak_type_flag=True)


def dot_general(name, a, b, numbers, precision, preferred):
    """`lax.dot_general` of promoted operands with the weak type of the promotion."""
    dtype, weak_type = _result_type(name, a, b, preferred)
    out = lax.dot_general(
        a, b, numbers, precision=precision, preferred_element_type=dtype
    )
    return convert(out, dtype, weak_type)


@jit(static_argnames=_DOT_STATIC, inline=True)
def dot(
    a: ArrayLike, b: ArrayLike, *, precision: Any = None,
    preferred_element_type: DTypeLike | None = None, out_sharding: Any = None,
) -> Array:
    """Sum of products along the last axis of `a` and the last but one of `b`.

    Args: a, b: arrays; a scalar multiplies; precision: of lax; preferred_element_type: dtype of
    the result and accumulation. Raises TypeError for sizes that do not match.

    Products of vectors are sums of products of elements, with the accuracy of `sum`. In products with
    matrices, panels of 512 to 4096 terms are added in order, and panels in pairs.

    out_sharding: where to put the result.

    >>> jnp.dot(jnp.array([[1, 2], [3, 4]]), jnp.array([1, 1]))
    Array([3, 7], dtype=int32)
    """
    if out_sharding is not None:
        return with_out_sharding(
            "dot", out_sharding, dot, a, b, precision=precision, preferred_element_type=preferred_element_type,
        )  # fmt: skip
    a, b = ensure_arrays("dot", a, b)
    contract: tuple[tuple[int, ...], tuple[int, ...]]
    if a.ndim == 0 or b.ndim == 0:
        contract = ((), ())
    elif b.ndim == 1:
        contract = ((a.ndim - 1,), (0,))
    else:
        contract = ((a.ndim - 1,), (b.ndim - 2,))
    return dot_general("dot", a, b, (contract, ((), ())), precision, preferred_element_type)


@jit(static_argnames=_DOT_STATIC, inline=True)
def matmul(
    a: ArrayLike, b: ArrayLike, *, precision: Any = None,
    preferred_element_type: DTypeLike | None = None, out_sharding: Any = None,
) -> Array:
    """Matrix product; leading axes broadcast, vectors are promoted and squeezed again.

    Raises: ValueError for scalars and for batch axes that do not broadcast, TypeError for
    contracted sizes that differ.

    Args: a: array of shape (..., m, k) or (k,); b: array of shape (..., k, n) or (k,); precision,
    preferred_element_type: as for `dot`.

    >>> jnp.matmul(jnp.array([[1, 2], [3, 4]]), jnp.eye(2, dtype=int))
    Array([[1, 2],
           [3, 4]], dtype=int32)
    """
    if out_sharding is not None:
        return with_out_sharding(
            "matmul", out_sharding, matmul, a, b, precision=precision,
            preferred_element_type=preferred_element_type,
        )  # fmt: skip
    a, b = ensure_arrays("matmul", a, b)
    ranks = a.ndim, b.ndim
    if 0 in ranks:
        raise ValueError(
            f"matmul input operand {ranks.index(0)} is a scalar; multiply with * instead"
        )
    return _batched_product("matmul", a, b, ranks[0] > 1, ranks[1] > 1, precision,
                            preferred_element_type)


def _batched_product(name, a, b, a_matrix, b_matrix, precision, preferred):
    """Contracts the last axis of `a` with the row axis of `b`; all axes before are batch axes.

    Batch axes of size 1 against a larger size are squeezed and become free axes of the other
    operand, so nothing is materialised.
    """
    a_core, b_core = 1 + a_matrix, 1 + b_matrix
    if a.ndim == a_core and b.ndim == b_core:
        return dot_general(name, a, b, (((a_core - 1,), (0,)), ((), ())), precision, preferred)
    dtype, weak_type = _result_type(name, a, b, preferred)
    a_batch, b_batch = a.shape[:a.ndim - a_core], b.shape[:b.ndim - b_core]
    try:
        batch = lax.broadcast_shapes(a_batch, b_batch)
    except ValueError:
        raise ValueError(
            f"ferrax.numpy.{name}: batch axes of shapes {tuple(a.shape)} and {tuple(b.shape)} do not"
            " broadcast"
        ) from None
    rank = len(batch)
    a_sizes = (1,) * (rank - len(a_batch)) + a_batch
    b_sizes = (1,) * (rank - len(b_batch)) + b_batch
    shared = [i for i in range(rank) if a_sizes[i] == b_sizes[i] and i >= rank - len(a_batch)
              and i >= rank - len(b_batch)]
    both = range(rank - min(len(a_batch), len(b_batch)), rank)
    a, a_axes = _drop_unit_axes(a, a_sizes, len(a_batch), shared, both)
    b, b_axes = _drop_unit_axes(b, b_sizes, len(b_batch), shared, both)
    numbers = (
        ((a.ndim - 1,), (b.ndim - b_core,)),
        (tuple(a_axes[i] for i in shared), tuple(b_axes[i] for i in shared)),
    )
    out = lax.dot_general(a, b, numbers, precision=precision, preferred_element_type=dtype)
    # Result axes: shared batch, free axes of a (batch, row), free axes of b (batch, column).
    order = list(shared)
    order += [i for i in sorted(a_axes) if i not in shared] + ([rank] if a_matrix else [])
    order += [i for i in sorted(b_axes) if i not in shared] + ([rank + 1] if b_matrix else [])
    permutation = sorted(range(len(order)), key=order.__getitem__)
    if permutation != list(range(len(order))):
        out = lax.transpose(out, permutation)
    missing = [i for i in range(rank) if i not in order]
    if missing:
        out = lax.expand_dims(out, missing)
    return convert(out, dtype, weak_type)


def _drop_unit_axes(x, sizes, n_batch, shared, both):
    """Squeezes unshared batch axes of size 1; returns the map from batch axis to axis."""
    lead = len(sizes) - n_batch
    present = list(range(lead, len(sizes)))
    dropped = [i for i in present if i in both and i not in shared and sizes[i] == 1]
    if dropped:
        x = lax.squeeze(x, tuple(i - lead for i in dropped))
    kept = [i for i in present if i not in dropped]
    return x, {i: k for k, i in enumerate(kept)}


@jit
def matvec(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Product of matrices (..., m, n) and vectors (..., n).

    Args: x1: array of shape (..., m, n); x2: array of shape (..., n). Leading axes broadcast.
    Raises: ValueError for lower ranks and for sizes that differ.

    >>> jnp.matvec(jnp.array([[1, 2], [3, 4]]), jnp.array([1, 1]))
    Array([3, 7], dtype=int32)
    """
    x1, x2 = ensure_arrays("matvec", x1, x2)
    _require_rank("matvec", 0, x1, 2)
    _require_rank("matvec", 1, x2, 1)
    _require_equal_sizes("matvec", x1, x2, x1.shape[-1], x2.shape[-1])
    return _batched_product("matvec", x1, x2, True, False, None, None)


@jit
def vecmat(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Product of conjugated vectors (..., n) and matrices (..., n, m).

    Args: x1: array of shape (..., n); x2: array of shape (..., n, m). Leading axes broadcast.
    Raises: ValueError for lower ranks and for sizes that differ.

    >>> jnp.vecmat(jnp.array([1, 1]), jnp.array([[1, 2], [3, 4]]))
    Array([4, 6], dtype=int32)
    """
    x1, x2 = ensure_arrays("vecmat", x1, x2)
    _require_rank("vecmat", 0, x1, 1)
    _require_rank("vecmat", 1, x2, 2)
    _require_equal_sizes("vecmat", x1, x2, x1.shape[-1], x2.shape[-2])
    return _batched_product("vecmat", ufuncs.conj(x1), x2, False, True, None, None)


def _require_equal_sizes(name, x1, x2, left, right):
    if left != right:
        raise ValueError(
            f"jnp.{name}: contracted sizes {left} and {right} differ, got shapes"
            f" {tuple(x1.shape)} and {tuple(x2.shape)}"
        )


def _require_rank(name, position, x, rank):
    if x.ndim < rank:
        raise ValueError(
            f"{name} input operand {position} must have ndim at least {rank}, but it has ndim"
            f" {x.ndim}"
        )


@jit(static_argnames=("precision", "preferred_element_type"), inline=True)
def vdot(
    a: ArrayLike, b: ArrayLike, *, precision: Any = None,
    preferred_element_type: DTypeLike | None = None,
) -> Array:
    """Dot product of flattened arrays, the first one conjugated.

    Args: a, b: arrays of equal sizes; precision, preferred_element_type: as for `dot`. Raises:
    TypeError for sizes that differ.

    >>> jnp.vdot(jnp.array([1j, 2]), jnp.array([1j, 3]))
    Array(7.+0.j, dtype=complex64)
    """
    a, b = ensure_arrays("vdot", a, b)
    if is_subdtype(a, np.complexfloating):
        a = lax.conj(a)
    return dot_general("vdot", lax.reshape(a, (a.size,)), lax.reshape(b, (b.size,)),
                       (((0,), (0,)), ((), ())), precision, preferred_element_type)


def vecdot(
    x1: ArrayLike, x2: ArrayLike, /, *, axis: int = -1, precision: Any = None,
    preferred_element_type: DTypeLike | None = None,
) -> Array:
    """Dot products of vectors along an axis, the first conjugated; other axes broadcast.

    Args: x1, x2: arrays of rank 1 or more; axis: the one of the vectors; precision,
    preferred_element_type: as for `dot`. Raises: ValueError for sizes that differ.

    >>> jnp.vecdot(jnp.array([[1, 2], [3, 4]]), jnp.array([1, 1]))
    Array([3, 7], dtype=int32)
    """
    x1, x2 = ensure_arrays("vecdot", x1, x2)
    if x1.ndim == 0 or x2.ndim == 0:
        raise AxisError(
            f"jnp.vecdot: inputs must have ndim > 0, got shapes {x1.shape} and {x2.shape}"
        )
    i, j = normalize_axis(axis, x1.ndim), normalize_axis(axis, x2.ndim)
    if x1.shape[i] != x2.shape[j]:
        raise ValueError(
            f"jnp.vecdot: sizes along axis {axis} differ, got shapes {x1.shape} and {x2.shape}"
        )
    x1, x2 = ufuncs.conj(_axis_last(x1, i)), _axis_last(x2, j)
    return _batched_product("vecdot", x1, x2, False, False, precision, preferred_element_type)


def _axis_last(x, axis) -> Array:
    if axis == x.ndim - 1:
        return x
    return lax.transpose(x, (*range(axis), *range(axis + 1, x.ndim), axis))


@jit(static_argnames=("precision", "preferred_element_type"), inline=True)
def inner(
    a: ArrayLike, b: ArrayLike, *, precision: Any = None,
    preferred_element_type: DTypeLike | None = None,
) -> Array:
    """Sum of products over the last axes; a scalar multiplies.

    Args: a, b: arrays whose last axes have one size; precision, preferred_element_type: as for
    `dot`. Raises: TypeError for sizes that differ.

    >>> jnp.inner(jnp.array([[1, 2], [3, 4]]), jnp.array([1, 1]))
    Array([3, 7], dtype=int32)
    """
    a, b = ensure_arrays("inner", a, b)
    contract: tuple[tuple[int, ...], tuple[int, ...]]
    if a.ndim == 0 or b.ndim == 0:
        a, b = promote_dtypes(a, b)
        contract = ((), ())
    else:
        contract = ((a.ndim - 1,), (b.ndim - 1,))
    return dot_general("inner", a, b, (contract, ((), ())), precision, preferred_element_type)


@jit(static_argnames=("out",), inline=True)
def outer(a: ArrayLike, b: ArrayLike, out: None = None) -> Array:
    """Products of all pairs of elements of two flattened arrays.

    Args: a, b: arrays of any shapes. Raises: NotImplementedError for `out`.

    >>> jnp.outer(jnp.array([1, 2]), jnp.array([3, 4]))
    Array([[3, 4],
           [6, 8]], dtype=int32)
    """
    reject_out("outer", out)
    a, b = promote_dtypes(*ensure_arrays("outer", a, b))
    left = lax.expand_dims(lax.reshape(a, (a.size,)), (1,))
    return ufuncs.multiply(left, lax.expand_dims(lax.reshape(b, (b.size,)), (0,)))


def tensordot(
    a: ArrayLike, b: ArrayLike, axes: Any = 2, *, precision: Any = None,
    preferred_element_type: DTypeLike | None = None, out_sharding: Any = None,
) -> Array:
    """Sum of products over `axes`: a number of last/first axes, or a pair of axis lists.

    Raises: TypeError for a form that is neither, or for contracted sizes that differ.
    Args: a, b: arrays; precision, preferred_element_type, out_sharding: as for `dot`.

    >>> jnp.tensordot(jnp.ones((2, 3)), jnp.ones((3, 2)), axes=[[0, 1], [1, 0]])
    Array(6., dtype=float32)
    """
    if out_sharding is not None:
        return with_out_sharding(
            "tensordot", out_sharding, tensordot, a, b, axes, precision=precision,
            preferred_element_type=preferred_element_type,
        )  # fmt: skip
    a, b = ensure_arrays("tensordot", a, b)
    if isinstance(axes, (list, tuple)) and len(axes) == 2:
        left, right = ((x,) if isinstance(x, (int, np.integer)) else tuple(x) for x in axes)
        if len(left) != len(right):
            raise TypeError(
                "tensordot: each axis of a goes with one of b, got axes"
                f" {list(left)} and {list(right)}"
            )
        left = tuple(normalize_axis(i, a.ndim) for i in left)
        right = tuple(normalize_axis(i, b.ndim) for i in right)
    elif isinstance(axes, (list, tuple)):
        raise TypeError(
            "tensordot: axes is a number of axes, or a pair: an axis or several of a, and of b; got"
            f" {axes}."
        )
    else:
        count = operator.index(axes)
        if count > min(a.ndim, b.ndim):
            raise TypeError(
                "Number of tensordot axes (axes "
                f"{count}) exceeds input ranks, of shapes {tuple(a.shape)} and {tuple(b.shape)}"
            )
        left, right = tuple(range(a.ndim - count, a.ndim)), tuple(range(count))
    return dot_general("tensordot", a, b, ((left, right), ((), ())), precision,
                       preferred_element_type)


@jit
def kron(a: ArrayLike, b: ArrayLike) -> Array:
    """Kronecker product: blocks of `b` scaled by the elements of `a`.

    Args: a, b: arrays of any shapes; the sizes of their axes multiply.

    >>> jnp.kron(jnp.eye(2), jnp.array([1.0, 2.0]))
    Array([[1., 2., 0., 0.],
           [0., 0., 1., 2.]], dtype=float32)
    """
    a, b = promote_dtypes(*ensure_arrays("kron", a, b))
    rank = max(a.ndim, b.ndim)
    a_dims = (1,) * (rank - a.ndim) + tuple(a.shape)
    b_dims = (1,) * (rank - b.ndim) + tuple(b.shape)
    wide_a = lax.broadcast_in_dim(
        a, tuple(n for size in a_dims for n in (size, 1)),
        tuple(2 * d for d in range(rank - a.ndim, rank)))
    wide_b = lax.broadcast_in_dim(
        b, tuple(n for size in b_dims for n in (1, size)),
        tuple(2 * d + 1 for d in range(rank - b.ndim, rank)))
    product = ufuncs.multiply(wide_a, wide_b)
    return lax.reshape(product, tuple(m * n for m, n in zip(a_dims, b_dims)))


@jit(static_argnames=("axisa", "axisb", "axisc", "axis"))
def cross(
    a: ArrayLike, b: ArrayLike, axisa: int = -1, axisb: int = -1, axisc: int = -1,
    axis: int | None = None,
) -> Array:
    """Vector product of 2- or 3-vectors along an axis; two 2-vectors give scalars. Where JAX 0.12 is
    followed, of 3-vectors alone.

    Args: a, b: arrays; axisa, axisb, axisc: the axes of the vectors in `a`, `b` and the result;
    axis: one for all three. Raises: ValueError for vectors of other sizes.

    >>> jnp.cross(jnp.array([1, 0, 0]), jnp.array([0, 1, 0]))
    Array([0, 0, 1], dtype=int32)
    """
    if axis is not None:
        axisa = axisb = axisc = axis
    a, b = promote_dtypes(*ensure_arrays("cross", a, b))
    a = _axis_last(a, normalize_axis(axisa, a.ndim))
    b = _axis_last(b, normalize_axis(axisb, b.ndim))
    sizes, said = ((3,), "3") if follows(0, 12) else ((2, 3), "2 or 3")
    if a.shape[-1] not in sizes or b.shape[-1] not in sizes:
        raise ValueError(f"cross: expected vectors of {said} elements, got {a.shape[-1]} and {b.shape[-1]}")
    x = [lax.index_in_dim(a, i, -1, keepdims=False) for i in range(a.shape[-1])]
    y = [lax.index_in_dim(b, i, -1, keepdims=False) for i in range(b.shape[-1])]
    mul, sub = ufuncs.multiply, ufuncs.subtract
    last = sub(mul(x[0], y[1]), mul(x[1], y[0]))
    if len(x) == 2 and len(y) == 2:
        return last
    if len(x) == 2:
        parts = [mul(x[1], y[2]), ufuncs.negative(mul(x[0], y[2])), last]
    elif len(y) == 2:
        parts = [ufuncs.negative(mul(x[2], y[1])), mul(x[2], y[0]), last]
    else:
        parts = [sub(mul(x[1], y[2]), mul(x[2], y[1])), sub(mul(x[2], y[0]), mul(x[0], y[2])),
                 last]
    axisc = normalize_axis(axisc, last.ndim + 1)
    shape = last.shape
    return lax.concatenate(
        [lax.expand_dims(broadcast_to(p, tuple(shape)), (axisc,)) for p in parts],
        dimension=axisc)

