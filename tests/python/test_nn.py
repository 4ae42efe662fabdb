"""jax.nn: values, dtypes, weak types, derivatives and errors equal to JAX's."""

import inspect

import jax
import ml_dtypes
import numpy as np
import pytest
from oracle import compare_arrays

import ferrax
from ferrax import nn, random

F32 = np.float32
POINTS = np.array([-np.inf, -20, -3, -1, -0.5, -1e-6, 0, 1e-6, 0.5, 1, 3, 6, 20, np.inf], F32)
MATRIX = np.linspace(-3, 3, 12, dtype=F32).reshape(3, 4)
MASK = np.arange(12).reshape(3, 4) % 3 != 0


assert_same = compare_arrays


ACTIVATIONS = [
    "celu", "elu", "gelu", "hard_sigmoid", "hard_silu", "hard_swish", "hard_tanh", "identity",
    "leaky_relu", "log_sigmoid", "mish", "relu", "relu6", "selu", "sigmoid", "silu", "soft_sign",
    "softplus", "sparse_plus", "sparse_sigmoid", "squareplus", "swish", "tanh",
]  # fmt: skip
FLOATS_ONLY = ("sigmoid", "silu", "swish")


def terms_of(name, points):
    """Of `x / 2 + x tanh / 2` in the form of gelu by tanh."""
    return np.abs(np.where(np.isfinite(points), points, 0)) / 2 if name == "gelu" else 0.0


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activation_values(name):
    ours, theirs = getattr(nn, name), getattr(jax.nn, name)
    terms = terms_of(name, POINTS)
    assert_same(ours(POINTS), theirs(POINTS), cancels=terms)
    assert np.isnan(np.asarray(ours(np.array(np.nan, F32))))
    assert_same(ours(0.75), theirs(0.75))
    half = POINTS[1:-1].astype(ml_dtypes.bfloat16)
    assert_same(ours(half), theirs(half))
    assert_same(ferrax.jit(ours)(POINTS), theirs(POINTS), cancels=terms)


@pytest.mark.parametrize("name", [n for n in ACTIVATIONS if n not in FLOATS_ONLY])
def test_activation_of_integers(name):
    x = np.arange(-3, 9)
    assert_same(getattr(nn, name)(x), getattr(jax.nn, name)(x), cancels=terms_of(name, x))


def differentiable(points, name):
    """Those of the points at which the derivatives in float32 have digits: further out 1 - tanh² has none."""
    return points[np.abs(points) < 4] if name == "gelu" else points


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activation_derivatives(name):
    points = differentiable(POINTS[1:-1], name)
    ours = ferrax.vmap(ferrax.grad(getattr(nn, name)))(points)
    # 1 - tanh², s - s², and 1 + expm1.
    ones = name in ("tanh", "sigmoid", "celu", "elu", "selu", "gelu")
    assert_same(ours, jax.vmap(jax.grad(getattr(jax.nn, name)))(points), cancels=1.0 if ones else 0.0)


@pytest.mark.parametrize("name", ["relu", "relu6", "softplus", "silu", "gelu"])
def test_second_derivatives(name):
    points = differentiable(POINTS[2:-2], name)
    ours = ferrax.vmap(ferrax.grad(ferrax.grad(getattr(nn, name))))(points)
    if name == "softplus":  # JAX's is the difference of two slopes, ours the product of both shares
        wide = np.float64(points)
        np.testing.assert_allclose(ours, 1 / (1 + np.exp(-wide)) / (1 + np.exp(wide)), rtol=1e-6)
        return
    # As in the first derivatives.
    ones = name in ("silu", "gelu")
    assert_same(ours, jax.vmap(jax.grad(jax.grad(getattr(jax.nn, name))))(points), cancels=1.0 if ones else 0.0)


def test_kinks():
    assert float(ferrax.grad(nn.relu)(0.0)) == 0.0
    assert float(ferrax.grad(nn.relu6)(6.0)) == 0.0
    assert float(ferrax.grad(nn.relu)(np.float32(np.nan))) == 0.0


@pytest.mark.parametrize("approximate", [True, False])
def test_gelu(approximate):
    assert_same(nn.gelu(MATRIX, approximate), jax.nn.gelu(MATRIX, approximate), cancels=np.abs(MATRIX) / 2)


@pytest.mark.parametrize(
    "name,arguments",
    [("elu", (0.5,)), ("celu", (0.5,)), ("leaky_relu", (0.3,)), ("squareplus", (2.0,))],
)
def test_activation_parameters(name, arguments):
    assert_same(getattr(nn, name)(MATRIX, *arguments), getattr(jax.nn, name)(MATRIX, *arguments))


def test_log1mexp():
    x = np.array([0, 1e-30, 1e-6, 0.1, 0.6931, 0.6932, 1, 50, np.inf, np.nan], F32)
    assert_same(nn.log1mexp(x), jax.nn.log1mexp(x))
    x = x[1:8]
    ours = ferrax.vmap(ferrax.grad(nn.log1mexp))(x)
    assert_same(ours, jax.vmap(jax.grad(jax.nn.log1mexp))(x), 1e-5)


def test_glu():
    assert_same(nn.glu(MATRIX), jax.nn.glu(MATRIX))
    assert_same(nn.glu(MATRIX[:2], axis=0), jax.nn.glu(MATRIX[:2], axis=0))
    with pytest.raises((ValueError, AssertionError)):
        nn.glu(MATRIX[:, :3])


# ---------------------------------------------------------------------------------------------
# Along axes.

LARGE = np.array([[1000.0, 1000.0, -1000.0], [-np.inf, 0.0, 1.0], [-np.inf] * 3], F32)
ALONG = [
    (MATRIX, {}),
    (MATRIX, {"axis": 0}),
    (MATRIX, {"axis": (0, 1)}),
    (MATRIX, {"where": MASK}),
    (MATRIX.astype(ml_dtypes.bfloat16), {}),
    (np.arange(4), {}),
    (np.zeros((2, 0), F32), {}),
    (LARGE[:2], {}),
]


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "logsumexp", "logmeanexp"])
@pytest.mark.parametrize("x,kwargs", ALONG)
def test_along_axes(name, x, kwargs):
    if name in ("logsumexp", "logmeanexp"):
        kwargs = {"axis": -1, **kwargs}
    assert_same(getattr(nn, name)(x, **kwargs), getattr(jax.nn, name)(x, **kwargs))


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "logsumexp", "logmeanexp"])
@pytest.mark.parametrize("where", [None, MASK], ids=["all", "where"])
def test_derivatives_along_axes(name, where):
    weights = np.cos(np.arange(12)).astype(F32).reshape(3, 4)
    if name.startswith("log") and name != "log_softmax":
        weights = weights[:, 0]

    def gradient(package):
        def loss(x):
            y = getattr(package.nn, name)(x, axis=-1, where=where)
            return (y.clip(-100) * weights).sum()  # log_softmax is -inf where masked

        return package.grad(loss)(MATRIX)

    assert_same(gradient(ferrax), gradient(jax), 1e-5)


@pytest.mark.parametrize(
    "kwargs",
    [
        {},
        {"keepdims": True},
        {"axis": 1, "keepdims": True},
        {"axis": (0, 1)},
        {"b": np.array([1.0, -1.0, 0.5, 2.0], F32), "axis": 1},
        {"b": -np.ones((3, 4), F32), "axis": 0, "return_sign": True},
        {"axis": 0, "return_sign": True},
        {"where": MASK, "axis": 1},
        {"b": 2, "where": MASK},
    ],
    ids=str,
)
def test_logsumexp(kwargs):
    ours = nn.logsumexp(MATRIX, **kwargs)
    theirs = jax.nn.logsumexp(MATRIX, **kwargs)
    if kwargs.get("return_sign"):
        assert_same(ours[1], theirs[1])
        ours, theirs = ours[0], theirs[0]
    assert_same(ours, theirs)


def test_logsumexp_of_infinities_and_scalars():
    for x in (LARGE, np.array([np.inf, 1], F32), np.array([np.nan, 1], F32), 1, 1.5, 2j):
        assert_same(nn.logsumexp(x, axis=None), jax.nn.logsumexp(x, axis=None))
    z = MATRIX + 1j * MATRIX.T.reshape(3, 4)
    assert_same(nn.logsumexp(z), jax.nn.logsumexp(z), 1e-5)
    # The derivative where everything is -inf is NaN, as in JAX.
    x = np.full(2, -np.inf, F32)
    assert_same(ferrax.grad(nn.logsumexp)(x), jax.grad(jax.nn.logsumexp)(x))


@pytest.mark.parametrize(
    "kwargs",
    [
        {},
        {"axis": 0},
        {"algorithm": "stable"},
        {"where": MASK},
        {"mean": 0.5, "variance": 2.0},
        {"epsilon": 0.1},
    ],
    ids=str,
)
def test_standardize(kwargs):
    for x in (MATRIX, np.arange(12).reshape(3, 4)):
        # The mean, beside the deviation.
        given = {"axis": kwargs.get("axis", -1), "where": kwargs.get("where", True), "keepdims": True}
        deviation = np.sqrt(kwargs.get("variance", x.var(**given)))
        terms = np.abs(kwargs.get("mean", x.mean(**given))) / deviation
        assert_same(nn.standardize(x, **kwargs), jax.nn.standardize(x, **kwargs), cancels=terms)


@pytest.mark.parametrize(
    "x,n,kwargs",
    [
        (np.array([0, 2, -1, 5]), 3, {}),
        (np.array([[0, 2], [1, 1]], np.uint8), 3, {"axis": 0}),
        (np.array([[0, 2], [1, 1]]), 3, {"axis": 1, "dtype": bool}),
        (np.array([[0, 2], [1, 1]]), 3, {"axis": -3, "dtype": np.float16}),
        (1, 3, {"dtype": int}),
        ([0, 1], 2, {}),
        (np.array([], np.int32), 2, {}),
        (np.array([1]), 0, {}),
    ],
)
def test_one_hot(x, n, kwargs):
    assert_same(nn.one_hot(x, n, **kwargs), jax.nn.one_hot(x, n, **kwargs))


def test_one_hot_of_floats_warns():
    with pytest.warns(DeprecationWarning, match="integer"):
        nn.one_hot(np.ones(2, F32), 3)


@pytest.mark.parametrize(
    "call,error",
    [
        (lambda: nn.relu([1.0]), TypeError),
        (lambda: nn.softmax([1.0]), TypeError),
        (lambda: nn.logsumexp([1.0]), TypeError),
        (lambda: nn.logsumexp(MATRIX, b=[1.0]), TypeError),
        (lambda: nn.sigmoid(1), TypeError),
        (lambda: nn.silu(np.arange(3)), TypeError),
        (lambda: nn.softmax(1.0), ValueError),
        (lambda: nn.softmax(MATRIX, axis=2), ValueError),
        (lambda: nn.standardize(MATRIX, algorithm="none"), ValueError),
        (lambda: nn.one_hot(np.arange(2), 3, axis=5), ValueError),
        (lambda: nn.get_scaled_dot_general_config("fp3"), ValueError),
        (lambda: nn.scaled_matmul(MATRIX, MATRIX, MATRIX, MATRIX), ValueError),
    ],
)
def test_errors(call, error):
    with pytest.raises(error):
        call()


# ---------------------------------------------------------------------------------------------
# Attention and scaled products.

RANDOM = np.random.default_rng(0)
Q = RANDOM.normal(size=(2, 5, 4, 8)).astype(F32)
K = RANDOM.normal(size=(2, 6, 2, 8)).astype(F32)
V = RANDOM.normal(size=(2, 6, 2, 8)).astype(F32)


@pytest.mark.parametrize(
    "kwargs",
    [
        {},
        {"is_causal": True},
        {"scale": 0.5},
        {"bias": RANDOM.normal(size=(2, 4, 5, 6)).astype(F32)},
        {"bias": RANDOM.normal(size=(1, 1, 5, 6)).astype(F32)},
        {"mask": RANDOM.random((1, 4, 5, 6)) > 0.3},
        {"mask": RANDOM.random((2, 1, 5, 6)) > 0.3, "is_causal": True},
        {"local_window_size": 1},
        {"local_window_size": (2, 0)},
        {"query_seq_lengths": np.array([3, 5], np.int32)},
        {"key_value_seq_lengths": np.array([2, 6], np.int32), "return_residual": True},
    ],
    ids=lambda kwargs: " ".join(kwargs) or "plain",
)
def test_dot_product_attention(kwargs):
    ours = nn.dot_product_attention(Q, K, V, **kwargs)
    theirs = jax.nn.dot_product_attention(Q, K, V, **kwargs)
    # Averages of `V`.
    terms = jax.nn.dot_product_attention(Q, K, abs(V), **kwargs)
    if kwargs.get("return_residual"):
        assert_same(ours[1], theirs[1])
        ours, theirs, terms = ours[0], theirs[0], terms[0]
    assert_same(ours, theirs, cancels=np.asarray(terms, np.float64))


def test_dot_product_attention_without_batch_and_in_bfloat16():
    halves = [x.astype(ml_dtypes.bfloat16) for x in (Q, K, V)]
    for q, k, v in ((Q[0], K[0], V[0]), halves):
        terms = np.asarray(jax.nn.dot_product_attention(q, k, abs(v)), np.float64)
        assert_same(nn.dot_product_attention(q, k, v), jax.nn.dot_product_attention(q, k, v), cancels=terms)


def test_dot_product_attention_gradient():
    def loss(module):
        return lambda q: (module.dot_product_attention(q, K, V, is_causal=True) ** 2).sum()

    # Sums of products of normal numbers with weights that add up to 1.
    assert_same(ferrax.grad(loss(nn))(Q), jax.grad(loss(jax.nn))(Q), cancels=1.0)


@pytest.mark.parametrize(
    "arguments,kwargs",
    [
        ((Q, K, V[..., :3]), {}),
        ((Q[..., :3], K, V), {}),
        ((Q[:, :, :3], K, V), {}),
        ((Q, K, V.astype(np.float16)), {}),
        ((Q, K, V), {"mask": np.ones((1, 1, 5, 6), F32)}),
        ((Q, K, V), {"query_seq_lengths": np.array([1, 2, 3], np.int32)}),
        ((Q, K, V), {"implementation": "other"}),
    ],
)
def test_dot_product_attention_errors(arguments, kwargs):
    for module in (nn, jax.nn):
        with pytest.raises(ValueError):
            module.dot_product_attention(*arguments, **kwargs)


def test_scaled_matmul():
    lhs = RANDOM.normal(size=(1, 3, 64)).astype(ml_dtypes.float8_e4m3fn)
    rhs = RANDOM.normal(size=(1, 5, 64)).astype(ml_dtypes.float8_e4m3fn)
    lhs_scales = np.array([[[1, 2], [0.5, 1], [4, 1]]]).astype(ml_dtypes.float8_e8m0fnu)
    rhs_scales = np.ones((1, 5, 2)).astype(ml_dtypes.float8_e8m0fnu)
    full = lhs.astype(F32) * np.repeat(lhs_scales.astype(F32), 32, axis=2)
    expected = full[0] @ rhs[0].astype(F32).T
    got = nn.scaled_matmul(lhs, rhs, lhs_scales, rhs_scales)
    np.testing.assert_allclose(np.asarray(got)[0], expected, rtol=1e-5, atol=1e-5)
    dimensions = (((1,), (1,)), ((), ()))
    product = nn.scaled_dot_general(MATRIX, MATRIX, dimensions)
    np.testing.assert_allclose(np.asarray(product), MATRIX @ MATRIX.T, rtol=1e-5)


# ---------------------------------------------------------------------------------------------
# Initializers.

INITIALIZERS = [
    ("zeros", None, (2, 3)),
    ("ones", None, (2, 3)),
    ("constant", {"value": 3}, (2, 3)),
    ("uniform", {}, (4, 3)),
    ("normal", {"stddev": 2.0}, (4, 3)),
    ("truncated_normal", {"stddev": 0.5, "upper": 1.0}, (4, 3)),
    ("glorot_uniform", {}, (4, 3)),
    ("glorot_normal", {}, (4, 3)),
    ("lecun_uniform", {}, (2, 4, 3)),
    ("lecun_normal", {"in_axis": 0, "out_axis": 2}, (2, 4, 3)),
    ("he_uniform", {"batch_axis": 0}, (2, 4, 3)),
    ("he_normal", {"in_axis": (0, 1)}, (2, 4, 3)),
]
for mode in ("fan_in", "fan_out", "fan_avg", "fan_geo_avg"):
    for distribution in ("normal", "truncated_normal", "uniform"):
        options = {"scale": 1.5, "mode": mode, "distribution": distribution}
        INITIALIZERS.append(("variance_scaling", options, (3, 5)))


def build(module, name, options):
    factory = getattr(module, name)
    return factory if options is None else factory(**options)


@pytest.mark.parametrize("name,options,shape", INITIALIZERS)
def test_initializers(name, options, shape):
    ours = build(nn.initializers, name, options)
    theirs = build(jax.nn.initializers, name, options)
    key, jax_key = random.key(5), jax.random.key(5)
    assert_same(ours(key, shape), theirs(jax_key, shape), 5e-6)
    half = np.float16
    assert_same(ours(key, shape, half), theirs(jax_key, shape, half), 1e-2, 1e-2)
    assert isinstance(ours, nn.initializers.Initializer)


@pytest.mark.parametrize("distribution", ["normal", "truncated_normal", "uniform"])
def test_complex_initializers(distribution):
    arguments = (1.0, "fan_in", distribution)
    ours = nn.initializers.variance_scaling(*arguments)(random.key(5), (3, 5), np.complex64)
    theirs = jax.nn.initializers.variance_scaling(*arguments)
    assert_same(ours, theirs(jax.random.key(5), (3, 5), np.complex64), 1e-5)


@pytest.mark.parametrize(
    "call",
    [
        lambda init: init.glorot_normal()(random.key(0), (3,)),
        lambda init: init.variance_scaling(1.0, "fan", "normal")(random.key(0), (3, 2)),
        lambda init: init.variance_scaling(1.0, "fan_in", "gamma")(random.key(0), (3, 2)),
        lambda init: init.orthogonal()(random.key(0), (3,)),
        lambda init: init.delta_orthogonal()(random.key(0), (3, 2)),
        lambda init: init.delta_orthogonal()(random.key(0), (3, 3, 2)),
    ],
)
def test_initializer_errors(call):
    with pytest.raises(ValueError):
        call(nn.initializers)


# Parameters that later versions of JAX have, too.
NEWER = {"one_hot": ["out_sharding"]}


@pytest.mark.parametrize("name", ["nn", "nn.initializers"])
def test_public_modules_have_every_name_and_signature_of_jax(name):
    ours, theirs = ferrax, jax
    for part in name.split("."):
        ours, theirs = getattr(ours, part), getattr(theirs, part)
    for function_name in (n for n in dir(theirs) if not n.startswith("_")):
        function = getattr(ours, function_name)
        if callable(function) and not inspect.isclass(function):
            expected = list(inspect.signature(getattr(theirs, function_name)).parameters)
            expected += NEWER.get(function_name, [])
            assert list(inspect.signature(function).parameters) == expected, function_name
