"""Random numbers: the same keys, bits and samples as JAX's."""

import contextlib
import math

import jax
import ml_dtypes
import mpmath
import numpy as np
import pytest
import scipy.special
import scipy.stats
from oracle import compare_arrays

import ferrax
from ferrax import numpy as fnp, random
from ferrax._src.base import config
from ferrax._src.base.dtypes import TypePromotionError

BF16 = ml_dtypes.bfloat16
F32 = np.float32


@contextlib.contextmanager
def flag(name, value):
    """Sets a flag in ferrax and in JAX."""
    with getattr(config, name)(value), getattr(jax, name)(value):
        yield


def host(x):
    return np.asarray(x)


def words(keys):
    return host(random.key_data(keys))


def assert_same(ours, theirs, ulps=0, **bounds):
    """Equal shape, dtype and weak type; values within ulps, None for those of the dtype."""
    compare_arrays(ours, theirs, ulps=ulps, **bounds)


# ---------------------------------------------------------------------------------------------
# Keys.


@pytest.mark.parametrize("x64", [False, True])
@pytest.mark.parametrize(
    "seed", [0, 1, -1, 2**31 - 1, 2**31, 2**40, 2**63 - 1, np.uint32(7), np.int64(-3), True],
    ids=repr,
)  # fmt: skip
def test_seeds(seed, x64):
    with flag("enable_x64", x64):
        np.testing.assert_array_equal(words(random.key(seed)), jax.random.PRNGKey(seed))
        legacy = random.PRNGKey(seed)
        assert legacy.dtype == np.uint32 and legacy.shape == (2,)
        np.testing.assert_array_equal(host(legacy), jax.random.PRNGKey(seed))


def test_known_values():
    key = random.key(0)
    assert host(random.bits(key, (4,))).tolist() == [
        4070199207, 4202968722, 1427181096, 2012915765]  # fmt: skip
    assert words(random.split(key)).tolist() == [
        [1797259609, 2579123966], [928981903, 3453687069]]  # fmt: skip
    assert host(random.bits(key, (4,), np.uint8)).tolist() == [167, 146, 40, 53]


def test_key_arrays():
    key = random.key(0)
    assert str(key.dtype) == "key<fry>" and key.shape == () and key.ndim == 0
    keys = random.split(key, (2, 3))
    assert keys.shape == (2, 3) and keys[1].shape == (3,)
    one, two, three = keys[0]
    np.testing.assert_array_equal(words(two), words(keys)[0, 1])
    assert random.key_impl(key) == "threefry2x32"
    assert random.key_dtype() == key.dtype
    wrapped = random.wrap_key_data(fnp.asarray(words(keys)))
    assert wrapped.dtype == keys.dtype
    np.testing.assert_array_equal(words(wrapped), words(keys))
    np.testing.assert_array_equal(words(random.clone(keys)), words(keys))
    np.testing.assert_array_equal(words(random.key(3, dtype=key.dtype)), [0, 3])
    with pytest.raises(TypeError):
        np.asarray(key)


def test_split_is_prefix_stable_and_fold_in_of_the_index():
    key = random.key(5)
    many = words(random.split(key, 7))
    np.testing.assert_array_equal(many[:3], words(random.split(key, 3)))
    for i in range(3):
        np.testing.assert_array_equal(many[i], words(random.fold_in(key, i)))
    np.testing.assert_array_equal(words(random.split(key, (7, 1)))[:, 0], many)


@pytest.mark.parametrize("data", [0, 1, 2**32 - 1, np.uint32(9), 1.5], ids=repr)
def test_fold_in(data):
    np.testing.assert_array_equal(
        words(random.fold_in(random.key(1), data)),
        jax.random.key_data(jax.random.fold_in(jax.random.key(1), data)),
    )


def test_legacy_keys_give_the_same_numbers_and_legacy_keys():
    key, legacy = random.key(3), random.PRNGKey(3)
    assert_same(random.uniform(legacy, (3,)), random.uniform(key, (3,)))
    assert_same(random.normal(host(legacy), (3,)), random.normal(key, (3,)))
    pair = random.split(legacy)
    assert pair.dtype == np.uint32 and pair.shape == (2, 2)
    np.testing.assert_array_equal(host(pair), words(random.split(key)))
    assert random.fold_in(legacy, 1).dtype == np.uint32


def test_random_seed_offset():
    with config.random_seed_offset(10):
        assert words(random.key(1)).tolist() == [0, 11]


@pytest.mark.parametrize(
    "call,error",
    [
        (lambda: random.key(1.5), TypeError),
        (lambda: random.key(np.arange(2)), TypeError),
        (lambda: random.key(random.key(0)), TypeError),
        (lambda: random.key(2**63), OverflowError),
        (lambda: random.key(0, impl="nonsense"), ValueError),
        (lambda: random.key(0, impl=3), TypeError),
        (lambda: random.fold_in(random.key(0), np.arange(2)), TypeError),
        (lambda: random.fold_in(random.key(0), -1), OverflowError),
        (lambda: random.split(random.split(random.key(0))), ValueError),
        (lambda: random.split(random.key(0), 1.5), TypeError),
        (lambda: random.wrap_key_data(np.zeros(3, np.uint32)), TypeError),
        (lambda: random.wrap_key_data(np.zeros((4, 2))), TypeError),
        (lambda: random.uniform(random.split(random.key(0))), ValueError),
        (lambda: random.uniform(3), TypeError),
        (lambda: random.uniform([0, 1]), TypeError),
        (lambda: random.uniform(np.zeros(2)), TypeError),
        (lambda: random.uniform(random.key(0), (1.5,)), TypeError),
        (lambda: random.uniform(random.key(0), dtype=int), ValueError),
        (lambda: random.normal(random.key(0), dtype=int), ValueError),
        (lambda: random.bits(random.key(0), dtype="int32"), ValueError),
        (lambda: random.randint(random.key(0), (2,), 0, 5, float), TypeError),
        (lambda: random.bernoulli(random.key(0), 1), TypeError),
        (lambda: random.bernoulli(random.key(0), np.ones(3, F32), (2,)), ValueError),
        (lambda: random.gumbel(random.key(0), mode="lower"), ValueError),
        (lambda: random.categorical(random.key(0), [1.0, 2.0]), TypeError),
        (lambda: random.categorical(random.key(0), np.ones((2, 3), F32), shape=(3,)), ValueError),
        (lambda: random.choice(random.key(0), 3, 3), TypeError),
        (lambda: random.choice(random.key(0), 3, (4,), replace=False), ValueError),
        (lambda: random.choice(random.key(0), 3, p=np.ones(2, F32)), ValueError),
        (lambda: random.permutation(random.key(0), 1.5), TypeError),
        (lambda: random.permutation(random.key(0), np.arange(3), axis=1), ValueError),
        (lambda: random.permutation(random.key(0), [1, 2]), TypeError),
        (lambda: random.categorical(random.key(0), np.zeros(5, F32), shape=(6,), replace=False), ValueError),
        (lambda: random.choice(random.key(0), 0, (1,)), ValueError),
        (lambda: random.pareto(random.key(0), np.ones(3, F32), (2,)), ValueError),
        (lambda: random.gamma(random.key(0), np.ones(3, F32), (2,)), ValueError),
        (lambda: random.gamma(random.key(0), 1.0, dtype=int), ValueError),
        (lambda: random.t(random.key(0), F32(1), dtype=np.float16), TypePromotionError),
        (lambda: random.dirichlet(random.key(0), 1.0), ValueError),
        (lambda: random.ball(random.key(0), 2.5), TypeError),
        (lambda: random.orthogonal(random.key(0), 2.5), TypeError),
        (lambda: random.multivariate_normal(random.key(0), F32(1), COVARIANCE), ValueError),
        (lambda: random.multivariate_normal(random.key(0), np.ones(2, F32), COVARIANCE), ValueError),
        (lambda: random.multivariate_normal(random.key(0), np.ones(3, F32), COVARIANCE, method="lu"), ValueError),
        (lambda: random.poisson(random.key(0), 1.0, dtype=float), ValueError),
        (lambda: random.binomial(random.key(0), "5", 0.5), TypeError),
    ],
)
def test_errors(call, error):
    with pytest.raises(error):
        call()


@pytest.mark.parametrize("shape", [iter((2, 3)), np.array([2, 3]), np.array(2), 2, {2: "rows", 3: "columns"}.keys()])
def test_shapes_are_anything_that_gives_extents(shape):
    extents = random.normal(random.key(0), shape).shape
    assert extents == ((2,) if np.ndim(shape) == 0 and isinstance(shape, (int, np.ndarray)) else (2, 3))


def test_error_for_key_batches_says_what_to_do():
    with pytest.raises(ValueError, match=r"uniform: expected one key.*\(2,\).*with ferrax.vmap"):
        random.uniform(random.split(random.key(0)))


@pytest.mark.parametrize("policy,error", [("error", ValueError), ("warn", UserWarning)])
def test_legacy_key_policy(policy, error):
    legacy = random.PRNGKey(0)
    with config.legacy_prng_key(policy):
        check = pytest.raises if policy == "error" else pytest.warns
        with check(error, match="ferrax.random.key"):
            random.uniform(legacy)


# ---------------------------------------------------------------------------------------------
# Samples. The entries: function, arguments, relative tolerance (None: bit for bit).

MATRIX = np.array([[2.0, 0.5], [0.5, 1.0]], F32)
TABLE = np.arange(12, dtype=F32).reshape(3, 4)
EXACT = [
    ("bits", {"shape": (3, 2)}),
    ("bits", {"shape": (0, 2)}),
    ("bits", {"shape": (5,), "dtype": np.uint8}),
    ("bits", {"shape": (5,), "dtype": np.uint16}),
    ("uniform", {}),
    ("uniform", {"shape": 3}),
    ("uniform", {"shape": (1000,)}),
    ("uniform", {"shape": (64,), "dtype": np.float16}),
    ("uniform", {"shape": (64,), "dtype": BF16}),
    ("randint", {"shape": (500,), "minval": 0, "maxval": 10}),
    ("randint", {"shape": (50,), "minval": -5, "maxval": np.arange(50)}),
    ("randint", {"shape": (50,), "minval": 0, "maxval": 256, "dtype": np.uint8}),
    ("randint", {"shape": (50,), "minval": -1000, "maxval": 1000, "dtype": np.int8}),
    (
        "randint",
        {"shape": (3, 2), "minval": np.array([[1], [2], [3]]), "maxval": 7, "dtype": np.int16},
    ),
    ("randint", {"shape": (5,), "minval": 3, "maxval": 1}),
    ("randint", {"shape": (5,), "minval": -(2**31), "maxval": 2**31 - 1}),
    ("randint", {"shape": (5,), "minval": 0.5, "maxval": 7.9}),
    ("bernoulli", {}),
    ("bernoulli", {"p": 0.3, "shape": (40,)}),
    ("bernoulli", {"p": np.array([0.1, 0.9], F32)}),
    ("bernoulli", {"p": 0.3, "shape": (40,), "mode": "high"}),
    ("rademacher", {"shape": (20,)}),
    ("rademacher", {"shape": (20,), "dtype": F32}),
]
SORTED = [
    ("permutation", {"x": 10}),
    ("permutation", {"x": 1000}),
    ("permutation", {"x": 0}),
    ("permutation", {"x": TABLE}),
    ("permutation", {"x": TABLE, "axis": -1}),
    ("permutation", {"x": TABLE, "axis": 1, "independent": True}),
    ("permutation", {"x": TABLE, "independent": True}),
    ("permutation", {"x": np.zeros((0, 2), F32)}),
    ("permutation", {"x": np.arange(6, dtype=np.uint8).reshape(3, 2)}),
    ("choice", {"a": TABLE, "shape": (2,), "replace": False}),
    ("choice", {"a": 6, "shape": (2, 3), "replace": False}),
    ("choice", {"a": TABLE, "shape": (2,), "replace": False, "axis": 1}),
    ("choice", {"a": 9, "shape": (3,), "p": np.arange(9, dtype=F32) / 36, "replace": False}),
    ("choice", {"a": 9, "shape": (3,), "p": np.arange(9, dtype=F32) / 36, "replace": False, "mode": "high"}),
    ("categorical", {"logits": TABLE, "axis": 1, "shape": (2, 3), "replace": False}),
    ("choice", {"a": 5, "shape": (4,)}),
    ("choice", {"a": TABLE, "shape": (2, 2), "axis": 1}),
    ("choice", {"a": 5, "shape": (0, 2)}),
    ("choice", {"a": np.arange(4.0, dtype=F32), "shape": (9,), "p": np.arange(4, dtype=F32) / 6}),
    ("categorical", {"logits": TABLE}),
    ("categorical", {"logits": TABLE, "axis": 0, "shape": (5, 4)}),
]
CLOSE = [
    ("uniform", {"shape": (2, 3), "minval": -2.0, "maxval": np.arange(3, dtype=F32)}, None),
    ("normal", {"shape": (1000,)}, None),
    ("normal", {"shape": (64,), "dtype": np.complex64}, None),
    ("normal", {"shape": (64,), "dtype": BF16}, None),
    ("normal", {"shape": (64,), "dtype": np.float16}, None),
    ("truncated_normal", {"lower": -1.0, "upper": np.array([1, 2, 3], F32)}, None),
    ("truncated_normal", {"lower": -2, "upper": 2, "shape": (40,)}, None),
    ("exponential", {"shape": (200,)}, None),
    ("gumbel", {"shape": (200,)}, None),
    ("gumbel", {"shape": (200,), "mode": "high"}, None),
    ("gumbel", {"shape": (200,), "mode": "highest"}, None),
    ("gumbel", {"shape": (20,), "mode": "highest", "dtype": np.float16}, None),
    ("laplace", {"shape": (200,)}, None),
    ("logistic", {"shape": (200,)}, None),
    ("cauchy", {"shape": (100,)}, None),
    ("pareto", {"b": np.array([1, 2], F32)}, None),
    ("rayleigh", {"scale": np.array([1, 2], F32)}, None),
    ("rayleigh", {"scale": np.array([1, 2], F32), "shape": (3, 2)}, None),
    ("lognormal", {"shape": (20,)}, None),
    ("lognormal", {"shape": (4,), "dtype": np.complex64}, None),
    ("weibull_min", {"scale": 2.0, "concentration": 1.5, "shape": (20,)}, None),
    ("triangular", {"left": 0.0, "mode": 0.3, "right": 1.0, "shape": (20,)}, None),
    ("maxwell", {"shape": (20,)}, None),
    ("double_sided_maxwell", {"loc": 1.0, "scale": 2.0, "shape": (20,)}, None),
    ("wald", {"mean": np.array([1, 2], F32)}, None),
]
INTEGER_OF_LOG = [("geometric", {"p": 0.3, "shape": (200,)})]
ALPHA = np.array([0.1, 1, 3], F32)
LOOPING = [
    # The exponential of numbers down to -80.
    ("gamma", {"a": np.array([0.01, 0.5, 1, 7, 1e4], F32), "shape": (40, 5)}, 64),
    ("gamma", {"a": np.array([-1, 0, np.nan, np.inf], F32)}, None),
    ("gamma", {"a": 2.0, "shape": (2, 0)}, None),
    ("gamma", {"a": 0.7, "shape": (20,), "dtype": BF16}, None),
    ("loggamma", {"a": np.array([1e-4, 1, 3], F32), "shape": (20, 3)}, None),
    ("beta", {"a": 0.5, "b": ALPHA, "shape": (10, 3)}, 32),
    ("chisquare", {"df": ALPHA}, None),
    ("dirichlet", {"alpha": ALPHA, "shape": (20,)}, None),
    ("dirichlet", {"alpha": np.ones((2, 3), F32), "dtype": BF16}, None),
    ("f", {"dfnum": 3, "dfden": ALPHA}, None),
    ("t", {"df": ALPHA}, None),
    ("generalized_normal", {"p": 3.0, "shape": (20,)}, None),
    ("ball", {"d": 3, "p": 1, "shape": (10,)}, None),
    ("poisson", {"lam": np.linspace(0, 60, 61, dtype=F32), "shape": (5, 61)}, 0),
    ("poisson", {"lam": np.array([np.nan, -1, 0, 4], F32), "shape": (9, 4)}, 0),
    ("poisson", {"lam": np.array([np.inf, 30], F32), "shape": (9, 2)}, 0),
    ("poisson", {"lam": 7, "shape": (20,), "dtype": np.int8}, 0),
    ("binomial", {"n": np.arange(100), "p": 0.7}, 0),
    ("binomial", {"n": 50, "p": 0.25, "shape": (5000,)}, 0),
    (
        "binomial",
        {
            "n": np.array([np.nan, -1, np.inf, 5, 5, 5, 5, 2.5, 100], F32),
            "p": np.array([0.5, 0.5, 0.5, 0, 1, 1.5, np.nan, 0.5, 0.2], F32),
            "shape": (3, 9),
            "dtype": np.float16,
        },
        0,
    ),
    ("multinomial", {"n": np.array([10, 50], F32), "p": ALPHA / 4.1, "shape": (3, 2, 3)}, 0),
]
# Where functions have zeros away from 0: at the middle of an interval, at log(1).
NEAR_ZERO = {"truncated_normal": 1.0, "gumbel": 1.0}
COVARIANCE = np.array([[2, 0.5, 0.1], [0.5, 1, 0.2], [0.1, 0.2, 0.7]], F32)
FACTORED = [
    ("multivariate_normal", {"mean": np.arange(3, dtype=F32), "cov": COVARIANCE, "shape": (4,)}, 64),
    ("multivariate_normal", {"mean": np.zeros((2, 1, 3), F32), "cov": np.stack([COVARIANCE, 2 * COVARIANCE])}, 64),
    ("orthogonal", {"n": 4, "shape": (2,)}, 128),
    ("orthogonal", {"n": 3, "m": 5}, 64),
    ("orthogonal", {"n": 3, "dtype": np.complex64}, 64),
]
EVERY = (
    [(name, kwargs, 0) for name, kwargs in EXACT + SORTED + INTEGER_OF_LOG]
    + CLOSE
    + LOOPING
    + FACTORED
)


@pytest.mark.parametrize(
    "name,kwargs,ulps", EVERY, ids=[f"{i}-{name}" for i, (name, *_) in enumerate(EVERY)]
)
def test_samples(name, kwargs, ulps):
    ours = getattr(random, name)(random.key(42), **kwargs)
    theirs = getattr(jax.random, name)(jax.random.key(42), **kwargs)
    assert_same(ours, theirs, ulps, cancels=NEAR_ZERO.get(name, 0.0))


@pytest.mark.parametrize("mean", [1e-3, 0.7, 30.0, 1e10, 1e30])
def test_wald_of_any_mean(mean):
    """JAX's have a difference of large numbers: 0 for means from 1e8 on."""
    x = host(random.wald(random.key(1), F32(mean), (20000,))).astype(np.float64)
    assert (x > 0).all() and np.isfinite(x).all()
    statistic = scipy.stats.kstest(x, scipy.stats.invgauss(mean).cdf).statistic
    assert statistic < 1.95 / math.sqrt(len(x))  # exceeded with a probability of 1e-3
    # The same numbers in twice the precision, from the same bits.
    normal, choice = random.split(random.key(1))
    y = host(random.normal(normal, x.shape)).astype(np.float64) ** 2
    u, m = host(random.uniform(choice, x.shape)).astype(np.float64), float(F32(mean))
    small = m / (1 + m * y / 2 + np.sqrt(m * y + (m * y / 2) ** 2))
    np.testing.assert_allclose(x, np.where(u <= m / (m + small), small, m * m / small), rtol=2e-5)


def test_wald_of_an_infinite_mean_is_the_levy_distribution():
    z = host(random.normal(random.split(random.key(1))[0], (100,)))
    np.testing.assert_allclose(random.wald(random.key(1), np.inf, (100,)), 1 / z**2, rtol=1e-6)
    assert np.isnan(host(random.wald(random.key(1), np.nan)))


def test_infinitely_many_trials():
    """JAX's loop does not end where none succeeds."""
    found = random.binomial(random.key(0), np.inf, np.array([0, 1, 0.5], F32))
    assert np.isposinf(np.asarray(found)).all()


X64 = [
    ("bits", {"shape": (4,)}, 0),
    ("bits", {"shape": (4,), "dtype": np.uint64}, 0),
    ("uniform", {"shape": (100,)}, 0),
    ("uniform", {"shape": (100,), "dtype": F32}, 0),
    ("normal", {"shape": (100,)}, None),
    ("normal", {"shape": (10,), "dtype": np.complex128}, None),
    ("randint", {"shape": (100,), "minval": 0, "maxval": 10}, 0),
    ("randint", {"shape": (100,), "minval": -(2**60), "maxval": 2**61}, 0),
    ("randint", {"shape": (9,), "minval": 0, "maxval": 2**32, "dtype": np.uint32}, 0),
    ("bernoulli", {"shape": (40,)}, 0),
    ("exponential", {"shape": (40,)}, None),
    ("permutation", {"x": 9}, 0),
    ("gamma", {"a": 0.3, "shape": (40,)}, None),
    ("poisson", {"lam": 20.0, "shape": (40,)}, 0),
    ("binomial", {"n": 50, "p": 0.3, "shape": (40,), "dtype": F32}, 0),
    ("multinomial", {"n": 9, "p": ALPHA / 4.1}, 0),
]


@pytest.mark.parametrize(
    "name,kwargs,ulps", X64, ids=[f"{i}-{name}" for i, (name, *_) in enumerate(X64)]
)
def test_samples_in_x64(name, kwargs, ulps):
    with flag("enable_x64", True):
        ours = getattr(random, name)(random.key(42), **kwargs)
        theirs = getattr(jax.random, name)(jax.random.key(42), **kwargs)
        terms = 0.0
        # Of these JAX's have 117 and 17 ulps.
        if name == "exponential":
            theirs = -np.log1p(-host(random.uniform(random.key(42), **kwargs)))
        elif name == "normal" and "dtype" not in kwargs:
            uniform = random.uniform(random.key(42), **kwargs, minval=np.nextafter(-1.0, 0.0), maxval=1.0)
            theirs = math.sqrt(2) * scipy.special.erfinv(host(uniform))
        elif name == "gamma":
            terms = lambda size: -np.log(size) * size  # noqa: E731  an exponential
        assert_same(ours, theirs, ulps, cancels=terms)


@pytest.mark.parametrize("shape", [(), (1,), (4,), (5, 3)], ids=str)
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32])
def test_older_stream(shape, dtype):
    with flag("threefry_partitionable", False):
        ours = random.bits(random.key(0), shape, dtype)
        assert_same(ours, jax.random.bits(jax.random.key(0), shape, dtype))
        np.testing.assert_array_equal(
            words(random.split(random.key(0), 3)),
            jax.random.key_data(jax.random.split(jax.random.key(0), 3)),
        )


# ---------------------------------------------------------------------------------------------
# Properties.


def test_shape_only_reshapes_the_stream():
    key = random.key(1)
    flat = host(random.uniform(key, (12,)))
    np.testing.assert_array_equal(host(random.uniform(key, (3, 4))).ravel(), flat)
    np.testing.assert_array_equal(host(random.uniform(key, (5,))), flat[:5])


@pytest.mark.parametrize("dtype", [F32, np.float16, BF16], ids=str)
def test_uniform_stays_in_its_interval(dtype):
    for low, high in [(0.0, 1.0), (-1.0, 1.0), (3.0, 3.0)]:
        x = host(random.uniform(random.key(2), (4096,), dtype, low, high)).astype(float)
        assert x.min() >= low and (x.max() < high or low == high == x.max())


def test_truncated_normal_stays_inside():
    x = host(random.truncated_normal(random.key(2), -0.1, 0.1, (4096,)))
    assert x.min() > -0.1 and x.max() < 0.1 and abs(x.mean()) < 0.01


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("low, high", [(6, 7), (-7, -6), (8, np.inf), (-np.inf, -30), (30, 30.01), (100, 101)])
def test_truncated_normal_in_tails(low, high, dtype):
    """JAX's inverse of the distribution function gives but a bound here."""
    with flag("enable_x64", True):
        low, high = dtype(low), dtype(high)
        u = host(random.uniform(random.key(2), (2000,), dtype)).astype(np.float64)
        x = host(random.truncated_normal(random.key(2), low, high, (2000,), dtype))
        traced = ferrax.jit(lambda a, b: random.truncated_normal(random.key(2), a, b, (2000,), dtype))(low, high)
        np.testing.assert_array_equal(traced, x)
    assert x.dtype == dtype
    inside = (u > 0.01) & (u < 0.99)
    expected = scipy.stats.truncnorm.ppf(u[inside], float(low), float(high))
    np.testing.assert_allclose(x[inside], expected, rtol=2e-6 if dtype == np.float32 else 1e-9)
    assert ((low < x) & (x < high)).all()


def test_permutation_is_one_and_choice_without_replacement_has_no_repeats():
    assert sorted(host(random.permutation(random.key(3), 100))) == list(range(100))
    drawn = host(random.choice(random.key(4), 50, (40,), replace=False))
    assert len(set(drawn.tolist())) == 40
    kinds = host(random.categorical(random.key(4), np.zeros(5, F32), shape=(5,), replace=False))
    assert sorted(kinds) == list(range(5))


@pytest.mark.parametrize("method", ["eigh", "svd"])
def test_other_roots_of_a_covariance(method):
    # The signs of eigenvectors are anybody's, so that samples are not those of JAX.
    cov = np.array([[1, 2, 0], [2, 4, 0], [0, 0, 0.5]], F32)
    sample = ferrax.jit(lambda key: random.multivariate_normal(key, fnp.zeros(3), cov, method=method))
    x = host(ferrax.vmap(sample)(random.split(random.key(0), 20000)))
    np.testing.assert_allclose(x.T @ x / 20000, cov, atol=0.12)


def test_rejected_numbers_are_drawn_again_in_turns():
    # Ten thousand elements, of which more are rejected than have room in one turn of those left.
    a = np.where(np.arange(10000) % 3, 1.0, 0.2).astype(F32)
    # They are at most cubes of 1 + cx for a normal x, which cancels where they are small.
    cubes = lambda size: 3 * size ** (2 / 3)  # noqa: E731
    assert_same(random.gamma(random.key(5), a), jax.random.gamma(jax.random.key(5), a), None, cancels=cubes)


@pytest.mark.parametrize("in_axes", [(0, None), (None, 1), (0, 0)], ids=str)
def test_vmap_of_gamma_is_that_of_jax(in_axes):
    a = np.array([[0.5, 2.0], [1.0, 9.0]], F32)

    def case(library):
        keys = library.random.split(library.random.key(7), 2)
        key = keys if in_axes[0] == 0 else keys[0]
        return library.vmap(library.random.loggamma, in_axes)(key, a)

    # The sum of the logarithms of a number about 1 and of a part of it.
    assert_same(case(ferrax), case(jax), None, cancels=1.0)


@pytest.mark.parametrize("name", ["gamma", "loggamma", "beta", "dirichlet", "chisquare"])
def test_derivatives_in_parameters(name):
    a = np.array([0.05, 0.5, 1, 3, 500], F32)
    more = (2.0,) if name == "beta" else ()

    def case(library):
        sampler = getattr(library.random, name)
        return library.grad(lambda a: (sampler(library.random.key(1), a, *more) * a).sum())(a)

    ours, theirs = host(case(ferrax)), host(case(jax)).copy()
    if name == "gamma":  # at 500 JAX's has 5 digits
        sample = float(host(random.gamma(random.key(1), a))[4])
        with mpmath.workdps(40):
            below = lambda a: mpmath.gammainc(a, 0, sample, regularized=True)  # noqa: E731
            density = mpmath.exp(499 * mpmath.log(sample) - sample - mpmath.loggamma(500))
            theirs[4] = sample - 500 * mpmath.diff(below, 500) / density
    assert_same(ours, theirs, 64)


def test_gamma_is_one_equation():
    jaxpr = ferrax.make_jaxpr(lambda key: random.gamma(key, 2.0, (3,)))(random.key(0))
    assert "random_gamma[log_space=False" in str(jaxpr)


@pytest.mark.parametrize("name", ["uniform", "normal", "bits", "bernoulli"])
def test_vmap_equals_the_loop_over_keys(name):
    sampler = getattr(random, name)
    keys = random.split(random.key(7), 3)
    batched = ferrax.vmap(lambda key: sampler(key, shape=(4,)))(keys)
    assert_same(batched, fnp.stack([sampler(key, shape=(4,)) for key in keys]))


def test_inside_jit():
    key = random.key(9)

    def sample(key, low):
        a, b = random.split(key)
        return random.uniform(a, (3,), minval=low), random.randint(b, (3,), 0, 100)

    floats, integers = sample(key, -1.0)
    jitted_floats, jitted_integers = ferrax.jit(sample)(key, -1.0)
    assert_same(jitted_integers, integers)
    assert_same(jitted_floats, floats, 1e-6)
    np.testing.assert_array_equal(
        words(ferrax.jit(lambda k: random.split(k, 4))(key)), words(random.split(key, 4))
    )


def test_gradient_through_location_and_scale():
    def loss(low, high):
        return random.uniform(random.key(0), (5,), minval=low, maxval=high).sum()

    u = host(random.uniform(random.key(0), (5,)))
    by_low, by_high = ferrax.grad(loss, argnums=(0, 1))(0.5, 2.0)
    np.testing.assert_allclose(host(by_low), (1 - u).sum(), rtol=1e-6)
    np.testing.assert_allclose(host(by_high), u.sum(), rtol=1e-6)


def test_public_module_has_every_function_of_jax():
    assert {n for n in dir(jax.random) if n[0] != "_"} <= set(dir(random))
