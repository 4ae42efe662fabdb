"""Reductions against the reference: accumulators, axes, masks, empty arrays, derivatives."""

import numpy as np
import pytest
from numpy_oracle import check
from oracle import compare_arrays

import ferrax
import ferrax.numpy as jnp

INTS = np.array([[3, -3, 0], [7, -8, 1]])
FLOATS = np.array([[3.5, np.nan, 0.5], [7.5, -7.5, 1.5]], np.float32)
MASK = INTS > 0
ARRAYS = {
    "f32": FLOATS,
    "i32": INTS,
    "i8": INTS.astype(np.int8),
    "u8": INTS.astype(np.uint8),
    "bool": MASK,
    # Without NaN: whether the reference's complex extrema are NaN depends on the order of elements.
    "c64": (np.nan_to_num(FLOATS, nan=0.25) + 1j).astype(np.complex64),
    "f16": FLOATS.astype(np.float16),
    "scalar": 2.5,
    "list": [1],
    "empty": np.zeros((0, 3), np.float32),
}
NAMES = [
    "sum", "prod", "max", "min", "any", "all", "mean", "var", "std", "nansum", "nanprod",
    "nanmax", "nanmin", "nanmean", "nanvar", "nanstd", "ptp", "average", "count_nonzero",
    "argmax", "argmin", "nanargmax", "nanargmin", "cumsum", "cumprod", "nancumsum",
    "nancumprod", "cumulative_sum", "cumulative_prod",
]


@pytest.mark.parametrize("kind", ARRAYS)
@pytest.mark.parametrize("name", NAMES)
def test_axis(name, kind):
    for axis in (0, -1) if kind == "f32" else (0,):
        check(lambda n, x: getattr(n, name)(x, axis=axis), ARRAYS[kind])  # noqa: B023


@pytest.mark.parametrize("kind", ["f32", "i8", "scalar"])
@pytest.mark.parametrize("name", NAMES)
def test_whole(name, kind):
    check(lambda n, x: getattr(n, name)(x), ARRAYS[kind])


MULTI_AXIS = [n for n in NAMES if not n.startswith(("arg", "nanarg", "cum", "nancum"))]


@pytest.mark.parametrize("axis", [(0, 1), (), (0, 0), 2, 0.5], ids=str)
@pytest.mark.parametrize("name", MULTI_AXIS)
def test_axes(name, axis):
    check(lambda n, x: getattr(n, name)(x, axis=axis, keepdims=True), INTS)


KEYWORDS = [
    ("sum", {"dtype": "int8"}), ("sum", {"dtype": "bool"}), ("sum", {"dtype": "complex64"}),
    ("sum", {"initial": 2}), ("sum", {"initial": 2, "where": MASK}), ("sum", {"where": MASK[0]}),
    ("sum", {"promote_integers": False}), ("sum", {"out": 1}), ("sum", {"dtype": "nothing"}),
    ("prod", {"where": MASK, "dtype": "float16"}), ("max", {"where": MASK}),
    ("max", {"where": MASK, "initial": -5}), ("min", {"initial": -1.5}), ("any", {"where": MASK}),
    ("all", {"where": MASK[:, :1], "keepdims": True}), ("mean", {"dtype": "int8"}),
    ("mean", {"dtype": "float16"}), ("mean", {"where": MASK}), ("mean", {"where": MASK[0]}),
    ("var", {"ddof": 1}), ("var", {"ddof": 7}), ("var", {"correction": 1}),
    ("var", {"correction": 1, "ddof": 1}), ("var", {"where": MASK}), ("std", {"where": MASK}),
    ("var", {"dtype": "float16"}), ("std", {"mean": np.ones((1, 3), np.float32)}),
    ("nansum", {"dtype": "int32"}), ("nanmean", {"where": MASK}), ("nanvar", {"ddof": 1}),
    ("nanmax", {"initial": 100.0}), ("argmax", {"keepdims": True}),
    ("nanargmin", {"keepdims": True}),
    ("cumsum", {"dtype": "float32"}), ("cumsum", {"dtype": "bool"}),
    ("cumulative_sum", {"include_initial": True}), ("cumulative_prod", {"include_initial": True}),
    ("average", {"weights": np.array([1, 2, 3]), "axis": 1, "returned": True}),
    ("average", {"weights": FLOATS}), ("average", {"weights": np.array([1, 2, 3])}),
    ("average", {"returned": True}), ("average", {"weights": INTS, "axis": (0, 1)}),
]


@pytest.mark.parametrize("kind", ["f32", "u8"])
@pytest.mark.parametrize("row", KEYWORDS, ids=lambda row: f"{row[0]} {sorted(row[1])}")
def test_keywords(row, kind):
    name, keywords = row
    axis = {} if "axis" in keywords or name == "average" else {"axis": 0}

    def expression(n, x):
        ready = {k: n.asarray(v) if isinstance(v, np.ndarray) else v for k, v in keywords.items()}
        return getattr(n, name)(x, **axis, **ready)

    check(expression, ARRAYS[kind])


@pytest.mark.parametrize("shape", [(0,), (0, 3), (2, 0)])
@pytest.mark.parametrize("name", ["sum", "prod", "max", "mean", "any", "all", "argmax", "cumsum"])
def test_empty(name, shape):
    check(lambda n, x: getattr(n, name)(x), np.zeros(shape, np.float32))


@pytest.mark.parametrize(
    "name", ["sum", "prod", "max", "mean", "var", "std", "cumsum", "cumprod", "nansum", "nanmax"])
def test_gradient(name):
    import jax
    import jax.numpy as jax_numpy

    import ferrax
    import ferrax.numpy as ferrax_numpy

    x = np.array([[1.0, 2.0, 0.0], [2.0, 2.0, 5.0]], np.float32)
    got = ferrax.grad(lambda v: getattr(ferrax_numpy, name)(v).sum())(ferrax_numpy.asarray(x))
    expected = jax.grad(lambda v: getattr(jax_numpy, name)(v).sum())(x)
    compare_arrays(got, expected)


def test_half_precision_accumulates_wider():
    import ml_dtypes

    import ferrax.numpy as jnp

    ones = jnp.asarray(np.ones(4096, ml_dtypes.bfloat16))
    assert float(jnp.sum(ones)) == 4096.0 and jnp.mean(ones).dtype == ml_dtypes.bfloat16


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_products_of_finite_numbers_with_a_zero_are_zero(dtype):
    """However the terms are grouped: parts of them overflow. True infinities give NaN, as in IEEE 754."""
    with ferrax.enable_x64(True):
        large = jnp.full((3, 900), 1e4, dtype)
        for zero_at in (0, 5, 899):
            x = large.at[:, zero_at].set(0)
            assert jnp.prod(x, axis=1).tolist() == [0, 0, 0]
            assert jnp.prod(x) == ferrax.jit(jnp.prod)(x) == ferrax.vmap(jnp.prod)(x)[1] == 0
            assert jnp.isnan(jnp.prod(x.at[0, 7].set(jnp.inf)))
            assert jnp.isnan(jnp.prod(x.at[0, 7].set(jnp.nan)))
        assert jnp.prod(large, axis=1).tolist() == [jnp.inf] * 3
        assert jnp.prod(large.at[1, 4].mul(-1), axis=0)[4] < 0
        assert jnp.prod(large.at[1, 4].mul(-1)) == -jnp.inf
