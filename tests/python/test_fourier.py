"""Fourier and cosine transforms beside the reference: values, dtypes, batches, derivatives, errors."""

import conformance_table as table
import jax
import numpy as np
import pytest
from conformance_numpy import row, row_tests
from oracle import FERRAX, JAX, SIDES, attempt, compare, module, same

import ferrax
import ferrax.numpy as jnp
from ferrax import lax

C64, C128, F32, F64 = np.complex64, np.complex128, np.float32, np.float64
ALL = (F32, F64, C64, C128, np.int32, np.float16, np.bool_)
REALS = (F32, F64, np.int32)


def cosine(S):
    return module(S, "scipy.fft")


def numpy_row(name, *shapes, function=None, dtypes=(F32, F64, C64, C128), **kw):
    function = function or name.split()[0]
    return row(name, lambda S, *xs: getattr(S.jnp.fft, function)(*xs, **kw), *shapes, dtypes=dtypes, special=False)


def cosine_row(name, *shapes, dtypes=(F32, F64, C64), **kw):
    function = name.split()[0]
    return row(name, lambda S, x: getattr(cosine(S), function)(x, **kw), *shapes, dtypes=dtypes, special=False)


ROWS = [
    numpy_row("fft", (3, 8), dtypes=ALL),
    numpy_row("fft odd, first axis, forward", (7, 2), axis=0, norm="forward"),
    numpy_row("fft cut, ortho", (2, 9), n=5, norm="ortho"),
    numpy_row("fft of prime length, padded", (2, 9), n=13),
    numpy_row("ifft", (2, 6), dtypes=ALL),
    numpy_row("ifft ortho", (2, 5), norm="ortho"),
    numpy_row("rfft", (2, 8), dtypes=REALS),
    numpy_row("rfft odd", (2, 9), dtypes=(F32, F64), norm="forward"),
    numpy_row("irfft", (2, 5), norm="forward"),
    numpy_row("irfft odd", (4, 2), n=7, axis=0),
    numpy_row("hfft", (2, 5), norm="ortho"),
    numpy_row("ihfft", (2, 6), dtypes=REALS, n=5),
    numpy_row("fft2", (2, 4, 5), norm="ortho"),
    numpy_row("ifft2", (4, 5), s=(3, 7), axes=(0, 1)),
    numpy_row("rfft2", (2, 4, 5), dtypes=REALS),
    numpy_row("irfft2", (2, 4, 4)),
    numpy_row("fftn over 4 axes", (2, 3, 2, 3)),
    numpy_row("ifftn over 5 axes", (2, 1, 3, 2, 2), axes=(4, 0, 1, 2, 3)),
    numpy_row("rfftn over 4 axes", (2, 3, 2, 4), dtypes=REALS),
    numpy_row("irfftn over 4 axes", (2, 3, 2, 3), s=(2, 3, 2, 5)),
    numpy_row("rfftn of first axes", (3, 4, 2), dtypes=REALS, s=(4, 3), axes=(0, 1)),
    numpy_row("fftshift", (3, 4)),
    numpy_row("ifftshift", (5, 4), axes=0),
    cosine_row("dct", (3, 8), dtypes=(F32, F64, C64, np.int32, np.float16)),
    cosine_row("dct odd, ortho", (7, 3), axis=0, norm="ortho"),
    cosine_row("dct cut", (2, 9), n=4),
    cosine_row("dct of one", (2, 1)),
    cosine_row("idct", (3, 8), dtypes=(F32, F64, C64, np.int32)),
    cosine_row("idct odd, ortho", (2, 5), norm="ortho"),
    cosine_row("idct padded", (2, 5), n=6),
    cosine_row("dctn", (3, 4)),
    cosine_row("dctn of some axes", (3, 4, 5), s=(2, 6), axes=(0, 2), norm="ortho"),
    cosine_row("idctn", (2, 3, 4)),
]  # fmt: skip

test_values, test_batches, test_derivatives = row_tests(ROWS)


@same
def test_frequencies(S):
    fft = S.jnp.fft
    return [fft.fftfreq(8), fft.fftfreq(7, 0.1), fft.fftfreq(5, dtype=np.float16), fft.fftfreq(5, 2.0, dtype=int),
            fft.rfftfreq(8, 3), fft.rfftfreq(7, S.jnp.asarray(0.5)), fft.rfftfreq(1), fft.fftfreq(0)]  # fmt: skip


@same
def test_nothing_is_transformed_to_nothing(S):
    fft, empty = S.jnp.fft, S.jnp.zeros((2, 0))
    return [fft.fft(empty), fft.ifft(empty), fft.irfft(S.jnp.ones((2, 1))), fft.fftn(S.jnp.ones((2, 3)), axes=()),
            fft.fft(S.jnp.zeros((0, 4))), fft.rfft(S.jnp.zeros((0, 4))), S.lax.fft(S.jnp.ones(3), "fft", ())]  # fmt: skip


ERRORS = {
    "complex to rfft": lambda S: S.jnp.fft.rfft(S.jnp.ones(3) * 1j),
    "half to rfft": lambda S: S.jnp.fft.rfft(S.jnp.ones(3, np.float16)),
    "nothing to rfft": lambda S: S.jnp.fft.rfft(S.jnp.ones(0)),
    "no size": lambda S: S.jnp.fft.fft(S.jnp.ones(3), n=0),
    "list": lambda S: S.jnp.fft.fft([1.0, 2.0]),
    "several axes": lambda S: S.jnp.fft.fft(S.jnp.ones((2, 3)), axis=(0, 1)),
    "axis": lambda S: S.jnp.fft.fft(S.jnp.ones(3), axis=1),
    "norm": lambda S: S.jnp.fft.fft(S.jnp.ones(3), norm="unit"),
    "one axis for two": lambda S: S.jnp.fft.fft2(S.jnp.ones((2, 3)), axes=(0,)),
    "repeated axes": lambda S: S.jnp.fft.fftn(S.jnp.ones((2, 3)), axes=(0, 0)),
    "sizes and axes": lambda S: S.jnp.fft.fftn(S.jnp.ones((2, 3)), s=(2,), axes=(0, 1)),
    "list of lengths": lambda S: S.jnp.fft.fftfreq([3]),
    "fft type": lambda S: S.lax.fft(S.jnp.ones(3), "Fft", (3,)),
    "fft number": lambda S: S.lax.fft(S.jnp.ones(3), 0, (3,)),
    "lengths": lambda S: S.lax.fft(S.jnp.ones(3), "fft", (4,)),
    "more lengths than axes": lambda S: S.lax.fft(S.jnp.ones(3), "fft", (1, 3)),
    "dct type": lambda S: cosine(S).dct(S.jnp.ones(3), type=1),
    "dct norm": lambda S: cosine(S).dct(S.jnp.ones(3), norm="forward"),
    "dctn sizes": lambda S: cosine(S).dctn(S.jnp.ones(3), s=(2, 2)),
}


@pytest.mark.raises("TypeError", "ValueError", "NotImplementedError")
@pytest.mark.parametrize("name", ERRORS)
def test_errors(name):
    compare(attempt(ERRORS[name], FERRAX), attempt(ERRORS[name], JAX))


@SIDES
def test_equations_have_the_parameters_of_the_primitive(S):
    jaxpr = S.jax.make_jaxpr(lambda x: S.lax.fft_p.bind(x, fft_type=S.lax.FftType.IFFT, fft_lengths=(2, 3)))
    (equation,) = jaxpr(S.jnp.ones((4, 2, 3), C64)).eqns
    assert (equation.primitive.name, equation.params) == ("fft", {"fft_type": 1, "fft_lengths": (2, 3)})
    assert equation.params["fft_type"] is S.lax.FftType.IFFT


def test_long_transforms_are_accurate():
    for n in (1 << 15, 65521, 3**9):
        x = table.data((n,), F32)
        got = jnp.fft.fft(x)
        want = np.fft.fft(x.astype(F64))
        assert np.abs(np.asarray(got) - want).max() < 1e-6 * np.abs(want).max()
        back = lax.fft(jnp.fft.rfft(x), lax.FftType.IRFFT, (n,))
        assert np.abs(np.asarray(back) - x).max() < 1e-5


def test_high_halves_of_products():
    with ferrax.enable_x64(True), jax.enable_x64(True):
        for dtype in (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64):
            info = np.iinfo(dtype)
            some = [info.min, info.max, 0, 1, 3, info.max // 2, info.max - 1, info.min // 2]
            x, y = (g.ravel() for g in np.meshgrid(*[np.array(some, dtype)] * 2))
            compare(lax.mulhi(x, y), jax.lax.mulhi(x, y), dtype.__name__)
