"""Convolutions, Fourier transforms and high halves of products in the table of `test_conformance`."""

import numpy as np
from conformance_table import BF16, COMPLEX, FLOATS, INTS, SHAPES, add, data

add("mulhi", lambda S, x, y: S.lax.mulhi(x, y),
    [(data(shape, dtype), data(shape, dtype, 2)) for dtype in (*INTS, np.int16, np.uint64) for shape in SHAPES])


def transform(kind, *lengths):
    return lambda S, x: S.lax.fft(x, kind, lengths)


FORWARD, INVERSE, REAL, TO_REAL = (
    {lengths: transform(kind, *lengths) for lengths in ((6,), (7,), (3, 4), (2, 3, 4))}
    for kind in ("FFT", "IFFT", "RFFT", "IRFFT")
)


def transforms():
    """Every kind over one, two and three axes, of batches that may be empty."""
    for lengths in FORWARD:
        for batch in ((), (2,), (0,)):
            shape = batch + lengths
            half = (*shape[:-1], shape[-1] // 2 + 1)
            for dtype, kinds, of in (
                (np.complex64, (FORWARD, INVERSE), shape), (np.complex128, (FORWARD, INVERSE), shape),
                (np.float32, (REAL,), shape), (np.float64, (REAL,), shape),
                (np.complex64, (TO_REAL,), half), (np.complex128, (TO_REAL,), half),
            ):  # fmt: skip
                for kind in kinds:
                    yield kind[lengths], data(of, dtype, special=False)


def call(S, function, *arrays):
    return function(S, *arrays)


add("fft", call, transforms(), (REAL[7,], data((7,), np.float64, 5, special=False)), sums=True)


def convolution(strides, padding, **options):
    return lambda S, x, w: S.lax.conv_general_dilated(x, w, strides, padding, precision="highest", **options)


def convolutions():
    """Window, strides, dilations, paddings, groups and layouts over nought to three axes."""
    line, plane = convolution((1,), "SAME"), convolution((2, 1), [(1, 0), (-1, 2)])
    for dtype in (*FLOATS, *COMPLEX, np.int32, np.int8):
        yield line, data((2, 3, 6), dtype), data((4, 3, 3), dtype, 1)
        yield plane, data((1, 2, 5, 4), dtype), data((3, 2, 2, 3), dtype, 1)
    for dtype in (np.float32, np.float64, BF16):
        for function, x, w in (
            (convolution((), []), (3, 2), (4, 2)),
            (convolution((1,), [(2, -1)], lhs_dilation=(2,), rhs_dilation=(3,)), (2, 2, 5), (3, 2, 3)),
            (convolution((2,), "SAME_LOWER", feature_group_count=2), (2, 4, 7), (6, 2, 3)),
            (convolution((1,), "SAME", feature_group_count=3), (2, 3, 6), (6, 1, 3)),
            (convolution((1,), "VALID", batch_group_count=2), (4, 3, 5), (4, 3, 2)),
            (convolution((1, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")), (2, 5, 6, 3), (3, 2, 3, 4)),
            (convolution((1, 1, 2), "VALID", dimension_numbers=("NCDHW", "DHWIO", "NDHWC")),
             (1, 2, 3, 4, 5), (2, 2, 3, 2, 3)),
            (line, (0, 3, 6), (4, 3, 3)),
            (line, (2, 0, 6), (4, 0, 3)),
            (convolution((1,), "VALID"), (2, 3, 2), (4, 3, 3)),
        ):  # fmt: skip
            yield function, data(x, dtype), data(w, dtype, 1)


add("conv_general_dilated", call, convolutions(),
    (convolution((2,), [(1, 2)], rhs_dilation=(2,), feature_group_count=2),
     data((2, 4, 6), np.float64, 5, special=False), data((4, 2, 2), np.float64, 6, special=False)), sums=True)
