"""Convolutions of ``ferrax.lax``: one op of the compiler, and what is said by it."""

from __future__ import annotations

import operator
from collections.abc import Sequence

from ferrax._core import bind
from ferrax._src.base import config, dtypes
from ferrax._src.core import Array
from ferrax._src.core.op_types import (
    ConvGeneralDilatedDimensionNumbers,
    PrecisionLike,
    precision_name,
)
from ferrax._src.core.typing import ArrayLike, DTypeLike
from ferrax._src.lax.arguments import (
    int_tuple as _int_tuple,
    operand as _operand,
)
from ferrax._src.lax.convolution_shapes import (
    conv_dimension_numbers,
    padtype_to_pads,
    transposed_padding,
)
from ferrax._src.lax.out_sharding import with_out_sharding
from ferrax._src.lax.shape import rev, transpose

__all__ = ["conv", "conv_general_dilated", "conv_transpose", "conv_with_general_padding"]


def conv_general_dilated(
    lhs: ArrayLike, rhs: ArrayLike, window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]], lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: ConvGeneralDilatedDimensionNumbers = None, feature_group_count: int = 1,
    batch_group_count: int = 1, precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None, out_sharding: object = None,
) -> Array:
    """Sums of products of an array with a window that slides over it, over any number of axes.

    The window is not reversed: along an axis, ``out[p]`` is the sum over ``q`` of
    ``padded[p * stride + q * dilation] * rhs[q]``, summed over the input features too.

    Args:
      lhs: the array: a batch axis, a feature axis and n spatial axes.
      rhs: the window, of the same dtype: output features, input features, n spatial axes.
      window_strides: how far the window moves along each spatial axis.
      padding: a pair (low, high) for each spatial axis, where negative widths crop; or "VALID" for
        none, "SAME" for ``ceil(size / stride)`` results, the odd element at the end, or
        "SAME_LOWER", with that at the beginning.
      lhs_dilation: distances between the array's elements, before padding: 1 if None.
      rhs_dilation: distances between the window's elements.
      dimension_numbers: which axis is which, as for `conv_dimension_numbers`.
      feature_group_count: into how many parts features are cut, where input features of a part
        make output features of that part.
      batch_group_count: into how many parts the batch is cut, where output features of a part are
        made of that part of the batch.
      precision: how exactly to multiply; see ``lax.Precision``.
      preferred_element_type: dtype of the result and, if wider, of the accumulation.

    Errors: TypeError for dtypes that differ or do not go with `preferred_element_type`, dilations
    that are not positive and dimension numbers that fit neither array; ValueError for other
    parameters that do not fit the shapes or each other.

    >>> lax.conv_general_dilated(jnp.arange(5.0).reshape(1, 1, 5), jnp.ones((1, 1, 2)), (2,), "VALID")
    Array([[[1., 5.]]], dtype=float32)
    """
    if out_sharding is not None:
        return with_out_sharding(
            "conv_general_dilated", out_sharding, conv_general_dilated, lhs, rhs, window_strides, padding,
            lhs_dilation, rhs_dilation, dimension_numbers, feature_group_count, batch_group_count, precision,
            preferred_element_type,
        )  # fmt: skip
    lhs = _operand(lhs, "conv_general_dilated", 0)
    rhs = _operand(rhs, "conv_general_dilated", 1)
    numbers = conv_dimension_numbers(lhs.shape, rhs.shape, dimension_numbers)
    strides = _int_tuple(window_strides)
    ones = (1,) * (lhs.ndim - 2)
    left = ones if lhs_dilation is None else _dilations(lhs_dilation)
    right = (1,) * (rhs.ndim - 2) if rhs_dilation is None else _dilations(rhs_dilation)
    if isinstance(padding, str):
        if left != ones:
            raise ValueError(
                f"conv_general_dilated: the padding {padding!r} says nothing of an array that is dilated "
                f"(lhs_dilation is {left}): give a pair of widths for each spatial axis, or call conv_transpose"
            )
        sizes = [lhs.shape[axis] for axis in numbers.lhs_spec[2:]]
        window = _dilated([rhs.shape[axis] for axis in numbers.rhs_spec[2:]], right)
        pads = tuple(padtype_to_pads(sizes, window, strides, padding))
    else:
        pads = _pairs(padding)
    for name, count in (
        ("feature_group_count", feature_group_count),
        ("batch_group_count", batch_group_count),
    ):
        if count <= 0:
            raise ValueError(
                f"conv_general_dilated {name} must be a positive integer, got {count}."
            )
    if any(stride <= 0 for stride in strides):
        raise ValueError(f"conv_general_dilated window_strides must be positive, got {strides}.")
    if precision is None:
        precision = config.default_matmul_precision.value
    if preferred_element_type is not None:
        preferred_element_type = dtypes.check_and_canonicalize_user_dtype(
            preferred_element_type, "conv_general_dilated"
        )
    return bind(
        "conv_general_dilated",
        (lhs, rhs),
        {
            "window_strides": strides,
            "padding": pads,
            "lhs_dilation": left,
            "rhs_dilation": right,
            "dimension_numbers": tuple(map(tuple, numbers)),
            "feature_group_count": feature_group_count,
            "batch_group_count": batch_group_count,
            "precision": precision_name(precision),
            "preferred_element_type": preferred_element_type,
        },
    )


def _pairs(padding) -> tuple[tuple[int, int], ...]:
    widths = []
    try:
        for low, high in padding:
            widths.append((operator.index(low), operator.index(high)))
        return tuple(widths)
    except (TypeError, ValueError):
        raise ValueError(
            "conv_general_dilated: expected as padding \"VALID\", \"SAME\", \"SAME_LOWER\" or a pair of widths "
            f"for each spatial axis, got {padding}"
        ) from None


def _dilations(values) -> tuple[int, ...]:
    values = _int_tuple(values)
    if any(value <= 0 for value in values):
        raise TypeError(f"All dilations must be positive, got {values}.")
    return values


def _dilated(sizes, dilations) -> list[int]:
    return [(size - 1) * d + 1 if size else 0 for size, d in zip(sizes, dilations)]


def conv(
    lhs: ArrayLike, rhs: ArrayLike, window_strides: Sequence[int], padding: str,
    precision: PrecisionLike = None, preferred_element_type: DTypeLike | None = None,
) -> Array:
    """`conv_general_dilated` without dilation or groups, all axes in the order NCHW and OIHW.

    Args: lhs, rhs, window_strides, padding, precision, preferred_element_type: as for
    `conv_general_dilated`, with its errors.

    >>> lax.conv(jnp.ones((1, 2, 4)), jnp.ones((1, 2, 3)), (1,), "VALID")
    Array([[[6., 6.]]], dtype=float32)
    """
    return conv_general_dilated(
        lhs,
        rhs,
        window_strides,
        padding,
        precision=precision,
        preferred_element_type=preferred_element_type,
    )


def conv_with_general_padding(
    lhs: ArrayLike, rhs: ArrayLike, window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]], lhs_dilation: Sequence[int] | None,
    rhs_dilation: Sequence[int] | None, precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
) -> Array:
    """`conv_general_dilated` without groups, all axes in the order NCHW and OIHW.

    Args: lhs, rhs, window_strides, padding, lhs_dilation, rhs_dilation, precision,
    preferred_element_type: as for `conv_general_dilated`, with its errors.

    >>> x, w = jnp.arange(1.0, 4.0).reshape(1, 1, 3), jnp.ones((1, 1, 2))
    >>> lax.conv_with_general_padding(x, w, (1,), [(1, 0)], (2,), (1,))
    Array([[[1., 1., 2., 2., 3.]]], dtype=float32)
    """
    return conv_general_dilated(
        lhs,
        rhs,
        window_strides,
        padding,
        lhs_dilation=lhs_dilation,
        rhs_dilation=rhs_dilation,
        precision=precision,
        preferred_element_type=preferred_element_type,
    )


# Orders of axes that transposed convolutions have by default, by rank.
_CHANNELS_LAST = {
    2: ("NC", "IO", "NC"),
    3: ("NHC", "HIO", "NHC"),
    4: ("NHWC", "HWIO", "NHWC"),
    5: ("NHWDC", "HWDIO", "NHWDC"),
}


def conv_transpose(
    lhs: ArrayLike, rhs: ArrayLike, strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]], rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: ConvGeneralDilatedDimensionNumbers = None, transpose_kernel: bool = False,
    precision: PrecisionLike = None, preferred_element_type: DTypeLike | None = None,
    use_consistent_padding: bool = False,
) -> Array:
    """A convolution whose window moves by a fraction of an element: one over an array with gaps.

    Args:
      lhs, rhs, rhs_dilation, precision, preferred_element_type: as for `conv_general_dilated`.
      strides: those of the convolution that has this one's shapes the other way round.
      padding: that convolution's, by name; or pairs for this one, unless `use_consistent_padding`.
      dimension_numbers: as for `conv_dimension_numbers`; by default features are last.
      transpose_kernel: whether to reverse the window and exchange its features, which makes this
        the derivative of that convolution by its array.
      use_consistent_padding: whether pairs are that convolution's padding, too.

    Errors: ValueError for arrays of unequal or too many axes and for other names; those of
    `conv_general_dilated`.

    >>> lax.conv_transpose(jnp.ones((1, 3, 1)), jnp.ones((2, 1, 1)), (2,), "SAME").shape
    (1, 6, 1)
    """
    lhs, rhs = _operand(lhs, "conv_transpose", 0), _operand(rhs, "conv_transpose", 1)
    if lhs.ndim != rhs.ndim or lhs.ndim < 2:
        raise ValueError(
            "conv_transpose: both arrays need the same number of axes, two or more, got shapes "
            f"{tuple(lhs.shape)} and {tuple(rhs.shape)}"
        )
    if dimension_numbers is None:
        dimension_numbers = _CHANNELS_LAST.get(lhs.ndim)
        if dimension_numbers is None:
            raise ValueError(
                "conv_transpose: more than three spatial axes have no default order; give "
                "dimension_numbers"
            )
    numbers = conv_dimension_numbers(lhs.shape, rhs.shape, dimension_numbers)
    spatial = tuple(numbers.rhs_spec[2:])
    steps = (1,) * len(spatial) if rhs_dilation is None else _dilations(rhs_dilation)
    pads = padding
    if use_consistent_padding or padding in ("SAME", "VALID"):
        each: Sequence[str | Sequence[int]]
        each = [padding] * len(spatial) if isinstance(padding, str) else padding
        window = _dilated([rhs.shape[axis] for axis in spatial], steps)
        pads = [transposed_padding(k, s, p) for k, s, p in zip(window, strides, each)]
    if transpose_kernel:
        order = list(range(rhs.ndim))
        features, inputs = numbers.rhs_spec[:2]
        order[features], order[inputs] = inputs, features
        rhs = transpose(rev(rhs, spatial), order)
    return conv_general_dilated(
        lhs,
        rhs,
        (1,) * len(spatial),
        pads,
        strides,
        steps,
        numbers,
        precision=precision,
        preferred_element_type=preferred_element_type,
    )
