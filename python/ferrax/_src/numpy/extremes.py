"""Functions of JAX 0.12 for the extremes of an array: `top_k` and `minmax`.

In: arrays. Out: two arrays. `top_k` costs a `lax.top_k`, and a lookup for the smallest ones; `minmax` two
reductions over the same elements.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ferrax._src.base import dtypes
from ferrax._src.core import Array
from ferrax._src.core.typing import ArrayLike, Axis
from ferrax._src.lax import api as lax
from ferrax._src.lax.arguments import canonical_shape
from ferrax._src.numpy.reductions import max as _max, min as _min
from ferrax._src.numpy.take import take_along_axis
from ferrax._src.numpy.util import ensure_array, normalize_axis, reject_out
from ferrax._src.transforms.jit import jit


@jit(static_argnums=1, static_argnames=("axis", "mode", "sorted"))
def top_k(
    a: ArrayLike, k: int, /, *, axis: int = -1, mode: str = "largest", sorted: bool = True  # noqa: A002
) -> Any:
    """The `k` largest or smallest elements along an axis, in order from the most extreme one, and their places.

    Args: a: array of any dtype but complex ones; k: how many; axis: the axis; mode: "largest" or "smallest";
    sorted: whether they have to be in order, as they always are. Returns: of the largest a list, of the smallest
    a tuple of the elements and int32 indices, of size `k` along the axis. NaN counts as the largest number; of
    equal elements the first goes first. Raises: ValueError for another mode, for complex numbers, an axis out of
    bounds and a `k` that is negative or larger than the axis.

    >>> jnp.top_k(jnp.array([3.0, 1.0, 2.0]), 2, mode="smallest")
    (Array([1., 2.], dtype=float32), Array([1, 2], dtype=int32))
    """
    a = ensure_array(a, "top_k")
    (k,) = canonical_shape(k) if not isinstance(k, int) else (k,)
    if mode not in ("largest", "smallest"):
        raise ValueError(f"top_k: mode must be 'largest' or 'smallest', got {mode!r}")
    axis = normalize_axis(axis, a.ndim)
    if dtypes.issubdtype(a.dtype, np.complexfloating):
        raise ValueError(f"top_k: complex numbers have no order; got {a.dtype}")
    if k < 0 or k > a.shape[axis]:
        raise ValueError(f"top_k: k must be from 0 to the size of the axis; got k={k}, shape {a.shape} and axis {axis}")
    if mode == "largest":
        return lax.top_k(a, k, axis=axis)
    if not dtypes.issubdtype(a.dtype, np.floating):
        values, places = lax.top_k(lax.bitwise_not(a), k, axis=axis)
        return lax.bitwise_not(values), places
    _, places = lax.top_k(lax.bitwise_not(_ordered_bits(a)), k, axis=axis)
    return take_along_axis(a, places, axis, mode="promise_in_bounds"), places


def _ordered_bits(x: Array) -> Array:
    """Integers in the order of floats, with -0.0 before 0.0, and every NaN at the end."""
    x = lax.select(lax.ne(x, x), lax.full_like(x, np.nan), x)
    signed = np.dtype(f"int{8 * x.dtype.itemsize}")
    bits = lax.bitcast_convert_type(lax.stop_gradient(x), signed)
    # Of negative numbers all bits but the sign are turned over.
    return lax.select(lax.lt(bits, lax.full_like(bits, 0)), lax.bitwise_xor(
        bits, lax.full_like(bits, np.iinfo(signed).max)), bits)


def minmax(
    a: ArrayLike, axis: Axis | None = None, out: None = None, keepdims: bool = False,
    initial: ArrayLike | tuple[ArrayLike, ArrayLike] | None = None, where: ArrayLike | None = None,
) -> tuple[Array, Array]:
    """Smallest and largest elements over axes, as a pair; NaN wins in both.

    Args: a, axis, keepdims, where: as for `max`, with its errors; out: None; initial: a bound for both results, or a
    pair of bounds, for the smallest and for the largest one.

    >>> jnp.minmax(jnp.array([[1, 5], [7, 2]]), axis=1)
    (Array([1, 2], dtype=int32), Array([5, 7], dtype=int32))
    """
    reject_out("minmax", out)
    pair = initial if isinstance(initial, tuple) else (initial, initial)
    if len(pair) != 2:
        raise ValueError(f"minmax: initial must be a number or a pair of them, got {len(pair)}")
    low, high = pair
    array = ensure_array(a, "minmax")
    return _min(array, axis, None, keepdims, low, where), _max(array, axis, None, keepdims, high, where)
