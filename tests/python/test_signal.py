"""`scipy.signal` beside the reference: values, dtypes, derivatives, errors."""

import warnings

import numpy as np
import pytest
from conformance_numpy import row, row_tests
from conformance_table import data
from oracle import FERRAX, JAX, attempt, compare, module, same

import ferrax.numpy

F32, F64, C64 = np.float32, np.float64, np.complex64


def signal(S):
    return module(S, "scipy.signal")


def of(name, *shapes, dtypes=(F32, F64, C64), **kw):
    function = name.split()[0].rstrip(",")

    def call(S, *xs):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return getattr(signal(S), function)(*xs, **kw)

    return row(name, call, *shapes, dtypes=dtypes, special=False, batch=False)


ROWS = [
    of("convolve", (8,), (3,), dtypes=(F32, F64, C64, np.int32)),
    of("convolve same, longer second", (3,), (8,), mode="same"),
    of("convolve valid by transforms", (4, 5), (2, 3), mode="valid", method="fft"),
    of("correlate", (4, 5), (2, 3)),
    of("correlate same, even", (7,), (4,), mode="same"),
    of("convolve2d same", (5, 4), (2, 3), mode="same"),
    of("correlate2d same", (5, 4), (2, 3), mode="same"),
    of("correlate2d valid, smaller first", (2, 3), (5, 4), mode="valid"),
    of("correlate2d smaller first", (2, 3), (5, 4)),
    of("fftconvolve", (4, 5), (2, 3)),
    of("fftconvolve along an axis", (3, 5), (3, 2), mode="same", axes=1),
    of("fftconvolve of single elements", (3, 1), (1, 4)),
    of("detrend", (3, 8), dtypes=(F32, F64)),
    of("detrend in parts", (9, 2), axis=0, bp=[4]),
    of("detrend constant", (3, 8), type="constant"),
    of("stft", (2, 20), dtypes=(F32, F64), nperseg=8),
    of("stft of an axis, overlapping", (21, 2), nperseg=7, noverlap=5, axis=0, boundary="odd"),
    of("stft without ends", (20,), nperseg=8, nfft=10, boundary=None, padded=False, detrend="constant"),
    of("csd", (2, 20), (2, 16), nperseg=8),
    of("csd, median", (2, 30), (2, 30), dtypes=(F32, F64), nperseg=6, average="median", scaling="spectrum"),
    of("welch", (2, 20), dtypes=(F32, F64, np.int32), nperseg=8),
    of("welch of one segment", (20,), dtypes=(F32,), fs=10.0),
    of("welch of both sides", (20,), nperseg=5, return_onesided=False, window=np.arange(1.0, 6.0)),
    of("istft", (2, 5, 6)),
    of("istft of other axes", (6, 2, 5), time_axis=0, freq_axis=2, nperseg=6, noverlap=4, nfft=8),
    of("istft without ends", (4, 6), input_onesided=False, boundary=False),
]  # fmt: skip

test_values, _, test_derivatives = row_tests(ROWS)


@same
def test_windows_are_those_of_scipy(S):
    x = data((30,), F32)
    return [signal(S).welch(x, window=w, nperseg=8)[1] for w in ("hamming", ("kaiser", 4.0))]


@same
def test_empty_signals(S):
    empty = S.jnp.zeros((2, 0))
    return signal(S).welch(empty, nperseg=1)


ONES = np.ones(8, F32)
ERRORS = {
    "mode": lambda S: signal(S).convolve(ONES, ONES, mode="some"),
    "fft mode": lambda S: signal(S).fftconvolve(ONES, ONES, mode="some"),
    "method": lambda S: signal(S).convolve(ONES, ONES, method="some"),
    "ranks": lambda S: signal(S).convolve(ONES, np.ones((2, 2), F32)),
    "nothing": lambda S: signal(S).convolve(ONES, ONES[:0]),
    "neither larger": lambda S: signal(S).convolve(np.ones((2, 3), F32), np.ones((3, 2), F32)),
    "boundary": lambda S: signal(S).convolve2d(np.eye(2), np.eye(2), boundary="wrap"),
    "vectors": lambda S: signal(S).correlate2d(ONES, ONES),
    "other axes": lambda S: signal(S).fftconvolve(np.ones((2, 3)), np.ones((3, 3)), axes=1),
    "trend": lambda S: signal(S).detrend(ONES, type="square"),
    "breakpoints": lambda S: signal(S).detrend(ONES, bp=9),
    "overwrite": lambda S: signal(S).detrend(ONES, overwrite_data=True),
    "overlap": lambda S: signal(S).welch(ONES, nperseg=4, noverlap=4),
    "short transform": lambda S: signal(S).welch(ONES, nperseg=4, nfft=3),
    "no segment": lambda S: signal(S).welch(ONES, nperseg=0),
    "long window": lambda S: signal(S).welch(ONES, window=np.ones(9, F32)),
    "scaling": lambda S: signal(S).welch(ONES, nperseg=4, scaling="some"),
    "average": lambda S: signal(S).welch(ONES, nperseg=4, average="some"),
    "ends": lambda S: signal(S).stft(ONES, nperseg=4, boundary="some"),
    "istft of a vector": lambda S: signal(S).istft(ONES),
    "istft of one axis": lambda S: signal(S).istft(np.ones((3, 3)), time_axis=1, freq_axis=1),
}


@pytest.mark.raises("ValueError", "NotImplementedError")
@pytest.mark.parametrize("name", ERRORS)
def test_errors(name):
    compare(attempt(ERRORS[name], FERRAX), attempt(ERRORS[name], JAX))


def test_segments_longer_than_the_signal_and_complex_signals_warn():
    for S in (FERRAX, JAX):
        with pytest.warns(UserWarning, match="nperseg"):
            signal(S).welch(ONES, nperseg=9)
        with pytest.warns(UserWarning, match="complex"):
            signal(S).welch(ONES * 1j, nperseg=4)


def test_ranks_and_dtypes_need_not_be_promoted():
    """Where settings forbid it, functions promote nothing of their own."""
    x = ferrax.numpy.asarray(np.random.default_rng(0).normal(size=(3, 32)).astype(np.float32))
    s = signal(FERRAX)
    with ferrax.numpy_rank_promotion("raise"), ferrax.numpy_dtype_promotion("strict"):
        spectrum = s.stft(x, nperseg=8)[2]
        assert s.istft(spectrum, nperseg=8)[1].shape[0] == s.detrend(x).shape[0] == 3
        for average in ("mean", "median"):
            assert s.csd(x, 2 * x, nperseg=8, average=average)[1].shape == (3, 5)
