"""Dtypes with and without 64-bit types: creation, reductions, samplers and arithmetic, as JAX has them."""

import contextlib
import warnings

import numpy as np
import pytest
from oracle import FERRAX, JAX, attempt, compare, is_array

CREATION = [
    "jnp.array(1)", "jnp.array(1.0)", "jnp.array(1j)", "jnp.array(True)", "jnp.array([1, 2])",
    "jnp.array([1.0])", "jnp.array(np.arange(3))", "jnp.array(np.ones(3))", "jnp.array(np.float32(1))",
    "jnp.array(np.ones(2, complex))", "jnp.array(np.uint64(3))", "jnp.asarray(2**31 - 1)",
    "jnp.zeros(3)", "jnp.ones(3)", "jnp.empty(3)", "jnp.full(3, 1)", "jnp.full(3, 1.0)", "jnp.full((), 1j)",
    "jnp.zeros(3, int)", "jnp.zeros(3, float)", "jnp.zeros(3, complex)", "jnp.ones(3, 'int64')",
    "jnp.ones(3, 'float64')", "jnp.ones(3, 'uint64')", "jnp.zeros_like(np.ones(3))",
    "jnp.ones_like(jnp.arange(3))", "jnp.full_like(np.arange(3), 2.5)", "jnp.empty_like(np.ones(3))",
    "jnp.arange(3)", "jnp.arange(3.0)", "jnp.arange(0, 1, 0.5)", "jnp.arange(3, dtype='uint8')",
    "jnp.linspace(0, 1, 3)", "jnp.linspace(0, 1, 3, dtype=int)", "jnp.logspace(0, 1, 3)",
    "jnp.geomspace(1, 8, 4)", "jnp.eye(2)", "jnp.eye(2, dtype=int)", "jnp.identity(2)", "jnp.tri(3)",
    "jnp.diag(jnp.arange(3))", "jnp.indices((2, 2))", "jnp.meshgrid(jnp.arange(2), jnp.ones(2))",
    "jnp.tril_indices(2)", "jnp.diag_indices(2)", "jnp.int_(3)", "jnp.float_(3)", "jnp.complex_(3)",
    "jnp.int64(3)", "jnp.float64(3)", "jnp.float32(3)", "lax.iota(int, 3)", "lax.full((2,), 1)",
    "lax.full((2,), 1.0)", "lax.broadcasted_iota('int32', (2, 2), 0)", "jax.nn.one_hot(jnp.arange(2), 2)",
    "jnp.vander(jnp.arange(3))", "jnp.hanning(4)", "jnp.fromfunction(lambda i: i, (3,))",
]  # fmt: skip

NUMBERS = ["bool", "int8", "int32", "int64", "uint8", "uint32", "bfloat16", "float16", "float32", "float64", "complex64"]
REDUCTIONS = ["sum", "prod", "mean", "var", "std", "max", "min", "argmax", "argmin", "cumsum", "cumprod", "any", "all",
              "ptp", "nansum", "nanmean", "nanmax", "nanargmax", "count_nonzero", "average", "trace2"]  # fmt: skip

SAMPLERS = [
    "key(0)", "PRNGKey(3)", "split(key(0))", "fold_in(key(0), 1)", "key_data(key(0))", "bits(key(0), (3,))",
    "bits(key(0), (3,), 'uint8')", "uniform(key(0), (3,))", "uniform(key(0), (3,), 'float32')",
    "uniform(key(0), (3,), 'bfloat16')", "normal(key(0), (3,))", "normal(key(0), (3,), complex)",
    "randint(key(0), (3,), 0, 10)", "randint(key(0), (3,), 0, 10, 'uint8')", "randint(key(0), (3,), 0, 10, 'int64')",
    "permutation(key(0), 5)", "permutation(key(0), np.arange(5.0))", "choice(key(0), 5, (3,))", "bernoulli(key(0), 0.5, (3,))",
    "truncated_normal(key(0), -1, 1, (3,))", "exponential(key(0), (3,))", "gumbel(key(0), (3,))", "laplace(key(0), (3,))",
    "logistic(key(0), (3,))", "cauchy(key(0), (3,))", "pareto(key(0), 2.0, (3,))", "rademacher(key(0), (3,))",
    "categorical(key(0), np.zeros((3, 4)))", "gamma(key(0), 2.0, (3,))", "beta(key(0), 2.0, 3.0, (3,))",
    "poisson(key(0), 3.0, (3,))", "dirichlet(key(0), np.ones(3), (2,))", "t(key(0), 3.0, (3,))",
    "rayleigh(key(0), 2.0, (3,))", "weibull_min(key(0), 1.0, 2.0, (3,))", "maxwell(key(0), (3,))",
    "double_sided_maxwell(key(0), 0.0, 1.0, (3,))", "multivariate_normal(key(0), np.zeros(2), np.eye(2))",
]  # fmt: skip


def offered(side, expression):
    """Whether ferrax has the sampler."""
    return hasattr(FERRAX.random, expression.split("(")[0])


@contextlib.contextmanager
def x64(side, how, value):
    if how == "context":
        with side.jax.enable_x64(value):
            yield
        return
    before = side.jax.config.jax_enable_x64
    side.jax.config.update("jax_enable_x64", value)
    try:
        yield
    finally:
        side.jax.config.update("jax_enable_x64", before)


def types(result):
    """Dtypes, shapes and weakness in place of arrays."""
    if is_array(result):
        return (result.dtype.name, tuple(result.shape), bool(getattr(result, "weak_type", False)))
    if isinstance(result, (list, tuple)):
        return [types(item) for item in result]
    return type(result).__name__


def check(case, how, value):
    def run(side):
        with x64(side, how, value), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return types(case(side))

    compare(attempt(run, FERRAX), attempt(run, JAX))


def evaluated(expression):
    return lambda side: eval(expression, {"jax": side.jax, "jnp": side.jnp, "lax": side.lax, "np": np})


@pytest.mark.parametrize("value", [True, False])
@pytest.mark.parametrize("expression", CREATION)
def test_creation(expression, value):
    check(evaluated(expression), "context", value)


@pytest.mark.parametrize("value", [True, False])
@pytest.mark.parametrize("expression", [CREATION[0], "jnp.zeros(3)", "jnp.arange(3)", "jax.random.normal(jax.random.key(0))"])
def test_the_setting_is_the_context_manager_s(expression, value):
    check(evaluated(expression), "config", value)


@pytest.mark.parametrize("value", [True, False])
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint32", "int64", "bfloat16", "float64"])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name, dtype, value):
    def case(side):
        x = side.jnp.ones((2, 3), dtype)
        return side.jnp.trace(x) if name == "trace2" else getattr(side.jnp, name)(x)

    check(case, "context", value)


@pytest.mark.parametrize("value", [True, False])
@pytest.mark.parametrize("expression", [s for s in SAMPLERS if offered(FERRAX, s)])
def test_samplers(expression, value):
    def case(side):
        return eval("random." + expression.replace("key(0)", "random.key(0)").removeprefix("random."),
                    {"random": side.random, "np": np})  # fmt: skip

    check(case, "context", value)


@pytest.mark.parametrize("value", [True, False])
@pytest.mark.parametrize("left", NUMBERS)
@pytest.mark.parametrize("operation", ["+", "*", "/", "//", "**", "<"])
def test_arithmetic_with_python_numbers(left, operation, value):
    def case(side):
        x = side.jnp.ones(2, left)
        return [eval(f"x {operation} y", {"x": x, "y": y}) for y in (True, 2, np.float64(2), np.int64(2))]

    check(case, "context", value)


def test_running_sums_that_become_infinite():
    """What roundings lost is no number then."""
    x = np.ones((3, 50))
    x[0, 3:5], x[1, 20], x[2, 7] = 1e308, np.inf, -np.inf
    with FERRAX.jax.enable_x64(True):
        for axis in (0, 1):
            with np.errstate(over="ignore", invalid="ignore"):
                expected = np.cumsum(x, axis)
            np.testing.assert_array_equal(FERRAX.jnp.cumsum(x, axis), expected)
