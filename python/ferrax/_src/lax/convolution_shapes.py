"""Axes, padding and shapes of convolutions and windows: arithmetic of integers alone."""

from __future__ import annotations

from collections.abc import Sequence

from ferrax._src.core.op_types import ConvDimensionNumbers, ConvGeneralDilatedDimensionNumbers
from ferrax._src.lax.arguments import int_tuple

__all__ = [
    "conv_dimension_numbers",
    "conv_general_permutations",
    "conv_general_shape_tuple",
    "conv_shape_tuple",
    "conv_transpose_shape_tuple",
    "padtype_to_pads",
]


def padtype_to_pads(
    in_shape: Sequence[int],
    window_shape: Sequence[int],
    window_strides: Sequence[int],
    padding: str,
) -> list[tuple[int, int]]:
    """The padding ``(low, high)`` of each axis that a name stands for.

    ``"VALID"`` pads nothing. ``"SAME"`` makes ``ceil(size / stride)`` windows, and puts the odd
    element of padding at the end; ``"SAME_LOWER"`` puts it at the beginning.

    Errors: TypeError for a padding that is no string, RuntimeError for another name.
    Args: in_shape: the array's shape; window_shape, window_strides: the windows' sizes and steps;
    padding: the name.

    >>> lax.padtype_to_pads((6,), (2,), (1,), "SAME")
    [(0, 1)]
    """
    if not isinstance(padding, str):
        raise TypeError(
            f"Unknown padding type: {padding}; expected 'VALID', 'SAME' or 'SAME_LOWER'."
        )
    name = padding.upper()
    if name == "VALID":
        return [(0, 0)] * len(in_shape)
    if name not in ("SAME", "SAME_LOWER"):
        raise RuntimeError(
            f"Unrecognized padding {padding!r}: expected 'VALID', 'SAME' or 'SAME_LOWER'"
        )
    pads = []
    for size, window, stride in zip(in_shape, window_shape, window_strides):
        total = max((-(-size // stride) - 1) * stride + window - size, 0)
        less = int(total) // 2
        more = int(total) - less
        pads.append((less, more) if name == "SAME" else (more, less))
    return pads


def conv_dimension_numbers(
    lhs_shape: Sequence[int], rhs_shape: Sequence[int],
    dimension_numbers: ConvGeneralDilatedDimensionNumbers,
) -> ConvDimensionNumbers:
    """The roles of a convolution's axes as numbers.

    Args:
      lhs_shape, rhs_shape: shapes of the array and of the window.
      dimension_numbers: None, for batch, feature, spatial axes of the array and the result and
        output feature, input feature, spatial axes of the window; three strings such as
        ``("NHWC", "HWIO", "NHWC")``; or numbers already.

    Spatial axes are in the order in which the window's string has them.

    Errors: TypeError for shapes of unequal ranks and for what are no such strings.

    >>> lax.conv_dimension_numbers((1, 3, 8), (2, 3, 4), None).rhs_spec
    (0, 1, 2)
    """
    if isinstance(dimension_numbers, ConvDimensionNumbers):
        return dimension_numbers
    rank = len(lhs_shape)
    if rank != len(rhs_shape):
        raise TypeError(
            f"convolution: lhs and rhs need as many axes as each other, got shapes {tuple(lhs_shape)} "
            f"and {tuple(rhs_shape)}."
        )
    if dimension_numbers is None:
        axes = tuple(range(rank))
        return ConvDimensionNumbers(axes, axes, axes)
    if not isinstance(dimension_numbers, (list, tuple)):
        raise TypeError(
            "convolution: dimension_numbers is None, a ConvDimensionNumbers or three strings such as "
            f"('NCHW', 'OIHW', 'NCHW'); got {dimension_numbers!r}."
        )
    if len(dimension_numbers) != 3:
        raise TypeError(
            "convolution: dimension_numbers is a string each for lhs, rhs and the result, got "
            f"{len(dimension_numbers)} of them."
        )
    if not all(isinstance(spec, str) for spec in dimension_numbers):
        raise TypeError(
            "convolution: dimension_numbers is made of strings such as 'NCHW', got "
            f"{dimension_numbers!r}."
        )
    for number, spec in enumerate(dimension_numbers):
        if len(spec) != rank:
            raise TypeError(
                f"convolution: dimension_numbers[{number}] has a letter for each axis, got {spec!r} "
                f"for shapes {lhs_shape} of lhs and {rhs_shape} of rhs."
            )
    return ConvDimensionNumbers(*conv_general_permutations(dimension_numbers))


def conv_general_permutations(
    dimension_numbers: Sequence[str],
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """For each of three strings the places of its axes in canonical order: batch and feature, or
    output and input feature, then the spatial axes in the order of the window's string.

    Errors: TypeError for strings without these letters, with repeated ones, or with other spatial
    letters than each other.

    >>> lax.conv_general_permutations(("NHWC", "HWIO", "NCHW"))
    ((0, 3, 1, 2), (3, 2, 0, 1), (0, 1, 2, 3))
    """
    letters = ("NC", "OI", "NC")
    for number, (spec, pair) in enumerate(zip(dimension_numbers, letters)):
        if any(spec.count(letter) != 1 for letter in pair):
            raise TypeError(
                f"convolution dimension_numbers[{number}] must contain the characters "
                f"{pair[0]!r} and {pair[1]!r} exactly once, got {spec}."
            )
        if len(set(spec)) != len(spec):
            raise TypeError(
                f"convolution dimension_numbers[{number}] cannot have duplicate characters, got "
                f"{spec}."
            )
    spatial = [c for c in dimension_numbers[1] if c not in "OI"]
    if any(set(spec) - set(p) != set(spatial) for spec, p in zip(dimension_numbers, letters)):
        raise TypeError(
            "convolution: the spatial letters of dimension_numbers (those beside N, C, O, I) differ "
            f"in lhs, rhs and the result: {dimension_numbers}."
        )
    lhs, rhs, out = (
        tuple(map(spec.index, (*pair, *spatial))) for spec, pair in zip(dimension_numbers, letters)
    )
    return lhs, rhs, out


def _in_order(shape: Sequence[int], spec: Sequence[int]) -> list[int]:
    return [shape[axis] for axis in spec]


def _put_back(shape: Sequence[int], spec: Sequence[int]) -> tuple[int, ...]:
    result = [0] * len(spec)
    for size, axis in zip(shape, spec):
        result[axis] = size
    return tuple(result)


def conv_shape_tuple(
    lhs_shape: Sequence[int], rhs_shape: Sequence[int], strides: Sequence[int],
    pads: str | Sequence[tuple[int, int]], batch_group_count: int = 1,
) -> tuple[int, ...]:
    """The shape of a convolution's result, all axes in canonical order.

    Args: lhs_shape, rhs_shape: shapes, already dilated; strides: of the window; pads: a name or a
    pair (low, high) for each spatial axis; batch_group_count: as for `conv_general_dilated`.

    Errors: TypeError for another number of pairs; ValueError where padding crops more than there
    is, or the groups do not divide the batch.

    >>> lax.conv_shape_tuple((1, 3, 8), (2, 3, 4), (2,), "VALID")
    (1, 2, 3)
    """
    sizes, window = lhs_shape[2:], rhs_shape[2:]
    pads = padtype_to_pads(sizes, window, strides, pads) if isinstance(pads, str) else pads
    if len(pads) != len(sizes):
        raise TypeError(
            f"convolution: padding is a pair for each of {len(sizes)} spatial axes, got {len(pads)}."
        )
    padded = [size + low + high for size, (low, high) in zip(sizes, pads)]
    if any(size < 0 for size in padded):
        raise ValueError(
            f"convolution: negative padding={pads} takes away more than the spatial sizes "
            f"{tuple(sizes)} of lhs"
        )
    if lhs_shape[0] % batch_group_count:
        raise ValueError(
            f"batch_group_count must divide the batch, but {batch_group_count} does not divide "
            f"{lhs_shape[0]}"
        )
    out = [max((n - k) // stride + 1, 0) for n, k, stride in zip(padded, window, strides)]
    return (lhs_shape[0] // batch_group_count, rhs_shape[0], *out)


def conv_general_shape_tuple(
    lhs_shape: Sequence[int], rhs_shape: Sequence[int], window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]], dimension_numbers: Sequence[str],
) -> tuple[int, ...]:
    """The shape of the result of a convolution without dilation or groups.

    Args: lhs_shape, rhs_shape: shapes; window_strides: of the window; padding: a name or a pair
    (low, high) for each spatial axis; dimension_numbers: three strings.

    Errors: those of `conv_shape_tuple` and `conv_general_permutations`.

    >>> lax.conv_general_shape_tuple((1, 8, 3), (4, 3, 2), (2,), "SAME", ("NWC", "WIO", "NWC"))
    (1, 4, 2)
    """
    lhs, rhs, out = conv_general_permutations(dimension_numbers)
    window = _in_order(rhs_shape, rhs)
    return _put_back(conv_shape_tuple(_in_order(lhs_shape, lhs), window, window_strides, padding), out)


def conv_transpose_shape_tuple(
    lhs_shape: Sequence[int], rhs_shape: Sequence[int], window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]], dimension_numbers: Sequence[str],
) -> tuple[int, ...]:
    """The shape of the result of `conv_transpose`.

    Args: lhs_shape, rhs_shape: shapes; window_strides: those of the convolution that is
    transposed; padding: its name, or pairs for the transposed one; dimension_numbers: three
    strings.

    Errors: ValueError for another name; those of `conv_general_permutations`.

    >>> numbers = ("NWC", "WIO", "NWC")
    >>> lax.conv_transpose_shape_tuple((1, 8, 3), (4, 3, 2), (2,), "SAME", numbers)
    (1, 16, 2)
    """
    lhs, rhs, out = conv_general_permutations(dimension_numbers)
    sizes, window = _in_order(lhs_shape, lhs), _in_order(rhs_shape, rhs)
    pads = (
        [transposed_padding(k, s, padding) for k, s in zip(window[2:], window_strides)]
        if isinstance(padding, str)
        else padding
    )
    spatial = [
        (n - 1) * s - k + 2 + sum(pair)
        for n, k, s, pair in zip(sizes[2:], window[2:], window_strides, pads)
    ]
    return _put_back((sizes[0], window[0], *spatial), out)


def transposed_padding(window: int, stride: int, padding: str | Sequence[int]) -> tuple[int, int]:
    """The padding of a transposed convolution along an axis, from that of the convolution with a
    (dilated) window of this size.

    """
    if padding == "SAME":
        # As many results as elements times strides: n s = (n - 1) s + 1 + total - (window - 1).
        total = window + stride - 2
        low = window - 1 if stride > window - 1 else -(-total // 2)
    elif padding == "VALID":
        # What the stride leaves at the end, or the whole overlap.
        total, low = window + stride - 2 + max(window - stride, 0), window - 1
    elif isinstance(padding, tuple):
        low, high = (window - 1 - width for width in int_tuple(padding))
        total = low + high
    else:
        raise ValueError(
            f"Invalid padding mode: {padding!r}; expected 'SAME', 'VALID' or a pair (low, high)"
        )
    return low, total - low
