"""`scipy.special` beside SciPy in both widths, its ends, derivatives beside differences, dtypes as JAX's."""

import warnings

import jax
import numpy as np
import pytest
import scipy.special
from oracle import module, same

import ferrax
import ferrax.numpy as jnp
from ferrax.scipy import special

nan, inf = np.nan, np.inf


def spread(low, high, seed=0):
    return np.random.default_rng(seed).uniform(low, high, 60)


def powers(low, high, seed=0):
    return 10 ** spread(low, high, seed)


# Name, arguments, relative errors in float64 and float32: beside SciPy, which itself has 1e-12 at some places.
CASES = [
    ("gamma", (spread(-20, 30),), 1e-14, 1e-5),
    ("gammaln", (powers(-3, 5),), 1e-14, 1e-6),
    ("loggamma", (powers(-3, 5),), 1e-13, 1e-6),
    ("gamma", (spread(-9, 9) + 1j * spread(-9, 9, 1),), 1e-12, 2e-5),
    ("loggamma", (spread(-9, 9) + 1j * spread(-9, 9, 1),), 1e-12, 2e-5),
    ("gammasgn", (spread(-9, 9),), 0, 0),
    ("factorial", (np.arange(0.0, 30),), 1e-14, 1e-6),
    ("beta", (spread(-4, 4), spread(-4, 4, 1)), 1e-12, 1e-4),
    ("betaln", (powers(-2, 2), powers(-2, 2, 1)), 1e-11, 1e-4),
    ("betainc", (powers(-1, 2), powers(-1, 2, 1), spread(0, 1, 2)), 1e-11, 1e-4),
    ("gammainc", (powers(-1, 2), powers(-1, 2, 1)), 1e-11, 1e-4),
    ("gammaincc", (powers(-1, 2), powers(-1, 2, 1)), 1e-11, 1e-4),
    ("poch", (spread(0, 30), spread(0, 5, 1)), 1e-12, 1e-4),
    ("comb", (np.floor(spread(0, 40)), np.floor(spread(0, 40, 1))), 1e-12, 1e-5),
    ("zeta", (spread(1, 20), spread(0.1, 20, 1)), 1e-14, 1e-6),
    ("erfcx", (spread(-9, 30),), 1e-14, 1e-6),
    ("erfcx", (spread(-2, 5) + 1j * spread(-3, 3, 1),), 1e-12, 1e-5),
    ("wofz", (spread(-9, 9) + 1j * spread(-2, 9, 1),), 1e-12, 1e-5),
    ("dawsn", (spread(-20, 20),), 1e-14, 1e-6),
    ("fresnel", (spread(-8, 8),), 1e-13, 2e-6),
    ("ndtr", (spread(-9, 9),), 1e-13, 1e-6),
    ("ndtri", (powers(-30, -0.01),), 1e-14, 1e-6),
    ("log_ndtr", (spread(-50, 9),), 1e-13, 1e-5),
    ("owens_t", (spread(-3, 3), spread(-3, 3, 1)), 1e-12, 1e-5),
    ("expi", (spread(-20, 60),), 1e-13, 1e-6),
    ("exp1", (powers(-5, 1.5),), 1e-14, 1e-6),
    ("expn", (np.arange(60) % 20, powers(-3, 1.5)), 1e-13, 2e-6),
    ("sici", (spread(-40, 40),), 1e-13, 1e-5),
    ("spence", (powers(-5, 5),), 1e-14, 1e-6),
    ("hyp1f1", (spread(0.5, 20), spread(0.5, 20, 1), spread(0, 40, 2)), 1e-12, 2e-5),
    ("hyp1f1", (spread(0.1, 2), spread(2, 4, 1), spread(-600, 600, 2)), 1e-11, 1e-3),
    ("hyp2f1", (spread(0.1, 2), spread(0.1, 2, 1), spread(0.1, 5, 2), spread(-5, 0.9, 3)), 1e-11, 1e-4),
    ("hyp2f1", (np.full(60, 1.0), np.arange(60) % 3 + 1.0, np.arange(60) % 4 + 1.0, spread(0.9, 0.999)), 1e-12, 1e-4),
    ("hyp2f1", (spread(0.1, 1), spread(0.1, 1, 1), np.full(60, 2.43), spread(0.9, 1, 2)), 1e-9, 1e-2),
    ("i0", (spread(-20, 20),), 1e-14, 1e-6),
    ("i1", (spread(-20, 20),), 1e-14, 2e-6),
    ("xlogy", (spread(0, 3), spread(0, 3, 1)), 1e-14, 1e-6),
    ("xlog1py", (spread(0, 3), spread(-0.9, 3, 1)), 1e-14, 1e-6),
    ("entr", (spread(-1, 3),), 1e-14, 1e-6),
    ("rel_entr", (spread(0, 3), spread(0, 3, 1)), 1e-13, 1e-5),
    ("logit", (spread(0, 1),), 1e-13, 1e-5),
    ("boxcox", (spread(0, 3), spread(-2, 2, 1)), 1e-13, 1e-5),
    ("boxcox1p", (spread(-0.9, 3), spread(-2, 2, 1)), 1e-13, 1e-5),
]  # fmt: skip
NARROW = {"f": "float32", "c": "complex64", "i": "int32"}


@pytest.fixture(autouse=True)
def x64():
    with ferrax.enable_x64(True):
        yield


def leaves(result):
    return [np.asarray(x) for x in (result if isinstance(result, tuple) else (result,))]


@pytest.mark.parametrize(("name", "args", "wide", "narrow"), CASES)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_values(name, args, wide, narrow):
    for tolerance, args_of in ((wide, args), (narrow, [x.astype(NARROW[x.dtype.kind]) for x in args])):
        exact = [x.astype({"f": "float64", "c": "complex128", "i": "int64"}[x.dtype.kind]) for x in args_of]
        wanted = leaves(getattr(scipy.special, name)(*exact))
        found = leaves(getattr(special, name)(*args_of))
        info = np.finfo(found[0].dtype)
        for a, b in zip(found, wanted):
            counts = (np.abs(b) < 0.1 * float(info.max)) & (np.abs(b) > 1e4 * float(info.tiny)) | (b == 0)
            np.testing.assert_allclose(a[counts], b[counts], rtol=tolerance)


ENDS = np.array([0.0, -0.0, 1.0, -1.0, inf, -inf, nan])


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("gamma", [inf, -inf, 1, nan, inf, nan, nan]),
        ("gammasgn", [1, -1, 1, nan, 1, nan, nan]),
        ("loggamma", [nan, nan, 0, nan, inf, nan, nan]),
        ("erfcx", [1, 1, 0.427583576155807, 5.0089800807622825, 0, inf, nan]),
        ("dawsn", [0, -0.0, 0.5380795069127684, -0.5380795069127684, 0, -0.0, nan]),
        ("ndtri", [-inf, -inf, inf, nan, nan, nan, nan]),
        ("log_ndtr", [np.log(0.5), np.log(0.5), -0.17275377902344988, -1.8410216450092636, 0, -inf, nan]),
        ("expi", [-inf, -inf, 1.8951178163559366, -0.21938393439552029, inf, 0, nan]),
        ("exp1", [inf, inf, 0.21938393439552029, nan, 0, nan, nan]),
        ("spence", [np.pi**2 / 6, np.pi**2 / 6, 0, nan, -inf, nan, nan]),
        ("entr", [0, 0, 0, -inf, -inf, -inf, nan]),
    ],
)
def test_ends(name, wanted):
    np.testing.assert_allclose(np.asarray(getattr(special, name)(ENDS)), wanted, rtol=1e-14)


def test_ends_of_integrals():
    si, ci = special.sici(ENDS)
    np.testing.assert_allclose(si, [0, 0, 0.9460830703671831, -0.9460830703671831, np.pi / 2, -np.pi / 2, nan])
    np.testing.assert_allclose(ci, [-inf, -inf, 0.33740392290096816, 0.33740392290096816, 0, nan, nan])
    sine, cosine = special.fresnel(ENDS)
    np.testing.assert_allclose(sine[4:], [0.5, -0.5, nan])
    np.testing.assert_allclose(cosine[4:], [0.5, -0.5, nan])


SLOPES = [
    ("gamma", (-1.3,)), ("gamma", (5.5,)), ("beta", (2.0, 3.5)), ("betaln", (0.5, 90.0)), ("betaln", (12.0, 90.0)),
    ("poch", (2.5, 1.5)), ("gammainc", (2.0, 1.5)), ("gammaincc", (20.0, 25.0)), ("zeta", (2.5, 1.5)),
    ("erfcx", (-1.2,)), ("dawsn", (0.7,)), ("ndtr", (-2.0,)), ("ndtri", (0.2,)), ("log_ndtr", (-12.0,)),
    ("log_ndtr", (1.5,)), ("owens_t", (0.7, 1.5)), ("expi", (-0.8,)), ("exp1", (2.5,)), ("spence", (0.3,)),
    ("hyp1f1", (1.3, 2.1, -3.0)), ("hyp1f1", (1.3, 2.1, 3.0)), ("hyp2f1", (1.3, 0.6, 2.1, -0.7)),
    ("hyp2f1", (1.3, 0.6, 2.9, 0.93)), ("i0", (2.5,)), ("i1e", (-2.5,)), ("logit", (0.2,)), ("xlogy", (0.4, 2.0)),
    ("xlog1py", (0.4, 2.0)), ("rel_entr", (0.4, 0.5)), ("kl_div", (0.4, 1.5)), ("boxcox", (2.0, 0.5)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "args"), SLOPES)
def test_derivatives(name, args):
    """First and second ones, forwards and backwards, beside central differences."""
    function = getattr(special, name)
    for place, x in enumerate(args):

        def of_one(value, place=place):
            return function(*args[:place], value, *args[place + 1 :])

        slope = ferrax.jit(ferrax.grad(of_one))
        step = 1e-4 * abs(x)
        difference = (of_one(x + step) - of_one(x - step)) / (2 * step)
        np.testing.assert_allclose(slope(x), difference, rtol=1e-5)
        second = (slope(x + step) - slope(x - step)) / (2 * step)
        np.testing.assert_allclose(ferrax.jvp(slope, (x,), (1.0,))[1], second, rtol=1e-5, atol=1e-9)


def test_derivatives_at_zero():
    assert ferrax.grad(special.entr)(0.0) == inf
    assert ferrax.grad(special.xlogy, 1)(0.0, 2.0) == 0
    assert ferrax.grad(lambda x: special.sici(x)[0])(0.0) == 1
    assert ferrax.grad(special.spence)(1.0) == -1


ONE = "dawsn entr erfcx exp1 expi factorial gamma gammasgn i0e loggamma logit ndtr ndtri spence wofz".split()
TWO = "beta betaln boxcox comb gammainc kl_div poch xlogy zeta polygamma expn".split()


@pytest.mark.parametrize("name", ONE + TWO)
def test_types_are_those_of_jax(name):
    for x in (2, 0.5, 0.5j, np.float16(0.5), np.ones((2, 1), "float32"), np.ones((0, 3)), True):
        found = []
        for library in (ferrax, jax):
            function = getattr(special if library is ferrax else jax.scipy.special, name)
            args = (x,) if name in ONE else (2, x)
            with library.enable_x64(False):
                try:
                    found.append(library.eval_shape(lambda f=function, a=args: f(*a)))
                except Exception as error:
                    found.append(type(error).__name__)
        assert str(found[0]) == str(found[1]), (name, x)


def test_bernoulli_numbers():
    found = special.bernoulli(40)
    np.testing.assert_allclose(found, scipy.special.bernoulli(40), rtol=1e-9)
    exact = {2: 1 / 6, 4: -1 / 30, 30: 8615841276005 / 14322, 40: -261082718496449122051 / 13530}
    np.testing.assert_allclose([found[k] for k in exact], list(exact.values()), rtol=1e-14)
    assert special.bernoulli(0).shape == (1,)
    with pytest.raises(ValueError, match="non-negative"):
        special.bernoulli(-1)


def test_bessel_jn():
    z = np.array([[0.0, 1e-3, 0.5], [7.0, 20.0, 31.0]])
    wanted = [scipy.special.jv(v, z) for v in range(4)]
    np.testing.assert_allclose(special.bessel_jn(z, v=3, n_iter=60), wanted, rtol=1e-9, atol=1e-14)
    narrow = special.bessel_jn(z.astype("float32"), v=3, n_iter=60)
    np.testing.assert_allclose(narrow, wanted, rtol=1e-4, atol=1e-6)
    with pytest.raises(ValueError, match="from 0 to n_iter"):
        special.bessel_jn(1.0, v=3, n_iter=2)


def test_spherical_harmonics():
    n, m = (x.ravel() for x in np.meshgrid(np.arange(6), np.arange(-5, 6)))
    n, m = n[np.abs(m) <= n], m[np.abs(m) <= n]
    theta, phi = spread(0, 3)[: len(n)], spread(-3, 3, 1)[: len(n)]
    wanted = scipy.special.sph_harm_y(n, m, theta, phi)
    np.testing.assert_allclose(special.sph_harm_y(n, m, theta, phi), wanted, rtol=1e-12, atol=1e-15)
    jitted = ferrax.jit(lambda *args: special.sph_harm_y(*args, n_max=7))
    np.testing.assert_allclose(jitted(n, m, theta, phi), wanted, rtol=1e-12, atol=1e-15)
    with pytest.raises(ferrax.errors.ConcretizationTypeError, match="n_max"):
        ferrax.jit(special.sph_harm_y)(n, m, theta, phi)
    with pytest.raises(NotImplementedError, match="diff_n"):
        special.sph_harm_y(n, m, theta, phi, diff_n=1)


def test_deprecated_names():
    with pytest.warns(DeprecationWarning, match="sph_harm_y"):
        lpmn = special.lpmn
    z = np.array([0.3, -0.6])
    values, slopes = lpmn(3, 3, z)
    step = 1e-6
    # P_3^2 = 15 z (1 - z^2)
    np.testing.assert_allclose(values[2, 3], 15 * z * (1 - z * z), rtol=1e-13)
    np.testing.assert_allclose(slopes, (lpmn(3, 3, z + step)[0] - lpmn(3, 3, z - step)[0]) / (2 * step), atol=1e-6)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        normalized = special.lpmn_values(3, 3, z, True)
    harmonic = scipy.special.sph_harm_y(3, 2, np.arccos(z), 0.0)
    np.testing.assert_allclose(normalized[2, 3], harmonic.real, rtol=1e-12)
    with pytest.raises(NotImplementedError, match="must be equal"):
        lpmn(1, 2, z)


def test_one_object_with_those_of_nn():
    assert special.logsumexp is ferrax.nn.logsumexp
    x = jnp.arange(6.0).reshape(2, 3)
    np.testing.assert_array_equal(special.softmax(x, axis=0), ferrax.nn.softmax(x, axis=0))
    np.testing.assert_allclose(special.softmax(x).sum(), 1, rtol=1e-14)
    np.testing.assert_allclose(special.log_softmax(x), np.log(special.softmax(x)), rtol=1e-14)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: special.entr(1j), ValueError, "complex-valued"),
        (lambda: special.ndtr(jnp.float16(1)), TypeError, "float32 or float64"),
        (lambda: special.polygamma(1.5, 2.0), ValueError, "integer type"),
        (lambda: special.zeta(2.0), NotImplementedError, "give q"),
        (lambda: special.factorial(3, exact=True), NotImplementedError, "exact=False"),
        (lambda: special.log_ndtr(1.0, series_order=31), ValueError, "from 0 to 30"),
        (lambda: special.log_ndtr(1.0, series_order=1.5), TypeError, "Python integer"),
        (lambda: special.no_such_name, AttributeError, "no_such_name"),
    ],
)
def test_errors(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("name", ["gammainc", "gammaincc", "zeta", "betainc"])
@same
def test_parameters_broadcast(S, name):
    a, x = np.array([[1.0], [2.0], [3.0]], np.float32), np.array([1.5, 2.5], np.float32)
    arguments = (a, np.float32(2), x / 4) if name == "betainc" else (x, a) if name == "zeta" else (a, x)
    return getattr(module(S, "scipy.special"), name)(*map(S.jnp.asarray, arguments))
