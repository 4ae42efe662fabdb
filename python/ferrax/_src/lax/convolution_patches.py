"""The patches that a convolution's window meets, and a window of its own for each of them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ferrax._src.core import Array
from ferrax._src.core.op_types import (
    ConvGeneralDilatedDimensionNumbers,
    PrecisionLike,
)
from ferrax._src.core.typing import ArrayLike, DTypeLike
from ferrax._src.lax.arguments import int_tuple as _int_tuple, operand as _operand
from ferrax._src.lax.convolution import conv_general_dilated
from ferrax._src.lax.convolution_shapes import conv_dimension_numbers
from ferrax._src.lax.creation import broadcasted_iota
from ferrax._src.lax.dot import dot_general
from ferrax._src.lax.elementwise import _convert_element_type, eq
from ferrax._src.lax.shape import broadcast_in_dim, reshape, transpose

__all__ = ["conv_general_dilated_local", "conv_general_dilated_patches"]


def _moved(x, source, destination):
    """`x` with these axes at other places, the rest in order."""
    moved = dict(zip(destination, source))
    rest = iter(sorted(set(range(x.ndim)) - set(source)))
    return transpose(x, [moved[to] if to in moved else next(rest) for to in range(x.ndim)])


def conv_general_dilated_patches(
    lhs: ArrayLike, filter_shape: Sequence[int], window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]], lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: ConvGeneralDilatedDimensionNumbers = None, precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
) -> Array:
    """What a window meets at each of its places, as features of the result.

    It is a convolution with a window for each place in the window, which is one there and zero
    elsewhere. Features of the result are pairs of an input feature and a place, in row-major order.

    Args:
      lhs: the array: a batch axis, a feature axis and n spatial axes.
      filter_shape: the window's sizes.
      window_strides, padding, lhs_dilation, rhs_dilation, dimension_numbers, precision,
      preferred_element_type: as for `conv_general_dilated`, with its errors.

    >>> lax.conv_general_dilated_patches(jnp.arange(4.0).reshape(1, 1, 4), (2,), (1,), "VALID")
    Array([[[0., 1., 2.],
            [1., 2., 3.]]], dtype=float32)
    """
    lhs = _operand(lhs, "conv_general_dilated_patches", 0)
    sizes = _int_tuple(filter_shape)
    numbers = conv_dimension_numbers(lhs.shape, (1, 1, *sizes), dimension_numbers)
    features, places = lhs.shape[numbers.lhs_spec[1]], math.prod(sizes)
    square = (places, places)
    ones = eq(broadcasted_iota("int32", square, 0), broadcasted_iota("int32", square, 1))
    window = _convert_element_type(ones, lhs.dtype)
    window = broadcast_in_dim(window, (features, *square), (1, 2))
    window = reshape(window, (features * places, 1, *sizes))
    window = _moved(window, (0, 1), numbers.rhs_spec[:2])
    return conv_general_dilated(
        lhs,
        window,
        window_strides,
        padding,
        lhs_dilation,
        rhs_dilation,
        numbers,
        feature_group_count=features,
        precision=precision,
        preferred_element_type=preferred_element_type,
    )


def conv_general_dilated_local(
    lhs: ArrayLike, rhs: ArrayLike, window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]], filter_shape: Sequence[int],
    lhs_dilation: Sequence[int] | None = None, rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: ConvGeneralDilatedDimensionNumbers = None, precision: PrecisionLike = None,
) -> Array:
    """A convolution with another window at each place: a locally connected layer.

    Args:
      lhs: the array: a batch axis, a feature axis and n spatial axes.
      rhs: the windows: output features, the pairs of input feature and place in the window that
        `conv_general_dilated_patches` gives, and for spatial axes the result's.
      filter_shape: the windows' sizes.
      window_strides, padding, lhs_dilation, rhs_dilation, dimension_numbers, precision: as for
      `conv_general_dilated`, with its errors.

    >>> x, w = jnp.arange(4.0).reshape(1, 1, 4), jnp.ones((1, 2, 3))
    >>> lax.conv_general_dilated_local(x, w, (1,), "VALID", (2,))
    Array([[[1., 3., 5.]]], dtype=float32)
    """
    lhs = _operand(lhs, "conv_general_dilated_local", 0)
    rhs = _operand(rhs, "conv_general_dilated_local", 1)
    patches = conv_general_dilated_patches(
        lhs,
        filter_shape,
        window_strides,
        padding,
        lhs_dilation,
        rhs_dilation,
        dimension_numbers,
        precision=precision,
    )
    shape = (1, 1, *_int_tuple(filter_shape))
    _, right, out = conv_dimension_numbers(lhs.shape, shape, dimension_numbers)
    # Pairs of spatial axes, in the order in which the result has them.
    pairs = sorted(zip(out[2:], right[2:]))
    batch = tuple(axis for axis, _ in pairs), tuple(axis for _, axis in pairs)
    result = dot_general(patches, rhs, (((out[1],), (right[1],)), batch), precision=precision)
    last = result.ndim - 2, result.ndim - 1
    return _moved(result, last, out[:2])
