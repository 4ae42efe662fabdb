"""`pallas.ops.tpu.matmul` and `example_kernel`: kernels that show how kernels are written."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ferrax._src import core
from ferrax._src.base import dtypes
from ferrax._src.core.typing import DTypeLike
from ferrax._src.numpy import api as jnp
from ferrax._src.pallas.call import pallas_call
from ferrax._src.pallas.grid import num_programs, program_id
from ferrax._src.pallas.helpers import when
from ferrax._src.pallas.specs import ANY, BlockSpec, GridSpec
from ferrax._src.transforms.jit import jit


def _product(x, y, out, total):
    """One step: tiles of `x` and `y`, of the result, and of scratch memory that holds the sum of the steps so
    far along the last axis of the grid."""
    part = jnp.dot(x[...], y[...], preferred_element_type=total.dtype)
    step = program_id(2)
    total[...] = jnp.where(step == 0, part, total[...] + part)

    @when(step == num_programs(2) - 1)
    def _():
        out[...] = total[...].astype(out.dtype)


def matmul(
    x: Any, y: Any, *, block_shape: tuple[int, int], block_k: int = 256, out_dtype: DTypeLike | None = None,
    debug: bool = False,
) -> Any:  # fmt: skip
    """`x @ y` tile by tile, as an example of a kernel; `jnp.dot` is faster.

    Args:
      x, y: arrays `(m, k)` and `(k, n)`.
      block_shape: `(l, r)`, the tiles of the result; they divide m and n.
      block_k: how much of k is summed in a step; it divides k.
      out_dtype: of the result; None: that of x and y.
      debug: whether to print the kernel's program.

    Errors: TypeError for two dtypes without an `out_dtype`; ValueError for tiles that do not divide.

    >>> matmul.matmul(jnp.ones((4, 4)), jnp.ones((4, 4)), block_shape=(2, 2), block_k=2)[0]
    Array([4., 4., 4., 4.], dtype=float32)
    """
    x, y = jnp.asarray(x), jnp.asarray(y)
    if out_dtype is None:
        if x.dtype != y.dtype:
            raise TypeError(f"matmul: of {x.dtype} and {y.dtype}, give out_dtype")
        out_dtype = x.dtype
    sizes = (x.shape[0], y.shape[1], x.shape[1])
    tiles = (*block_shape, block_k)
    if x.shape[1] != y.shape[0] or any(size % tile for size, tile in zip(sizes, tiles)):
        raise ValueError(f"matmul: tiles {tiles} of m, n and k do not divide the product of {x.shape} and {y.shape}")
    return _matmul(x, y, tiles, dtypes.canonicalize_dtype(out_dtype), debug)


@functools.partial(jit, static_argnums=(2, 3, 4))
def _matmul(x, y, tiles, out_dtype, debug):
    (m, depth), n = x.shape, y.shape[1]
    high, wide, deep = tiles
    is_integer = dtypes.issubdtype(x.dtype, np.integer)
    total = ANY((high, wide), np.int32 if is_integer else np.float32)
    left = BlockSpec((high, deep), lambda row, column, step: (row, step))
    right = BlockSpec((deep, wide), lambda row, column, step: (step, column))
    result = BlockSpec((high, wide), lambda row, column, step: (row, column))
    spec = GridSpec((m // high, n // wide, depth // deep), [left, right], result, [total])
    call = pallas_call(_product, core.ShapeDtypeStruct((m, n), out_dtype), grid_spec=spec, debug=debug, name="matmul")
    return call(x, y)


def double_kernel(x_ref: Any, y_ref: Any) -> None:
    """Stores twice what a ref holds in another.

    Args: x_ref, y_ref: refs of one shape and dtype, that which is read and that which is written.

    >>> x, y = ferrax.new_ref(jnp.arange(3)), ferrax.new_ref(jnp.zeros(3, int))
    >>> example_kernel.double_kernel(x, y)
    >>> y[...]
    Array([0, 2, 4], dtype=int32)
    """
    y_ref[...] = x_ref[...] * 2


def double(x: Any) -> Any:
    """Twice an array, by the least of kernels. Args: x: an array of any type that has a product with 2.

    >>> example_kernel.double(jnp.arange(3.0))
    Array([0., 2., 4.], dtype=float32)
    """
    x = jnp.asarray(x)
    return pallas_call(double_kernel, core.ShapeDtypeStruct(x.shape, x.dtype))(x)
