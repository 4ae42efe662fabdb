"""Convolutions beside JAX: values, dtypes, errors, derivatives, batches, and what is said by them."""

import numpy as np
import pytest
from oracle import FERRAX, JAX, SIDES, attempt, same
from roundings import same_within_roundings, within_roundings

import ferrax
import ferrax.numpy as jnp
from ferrax import lax
from ferrax.test_util import check_grads

RNG = np.random.default_rng(7)
NHWC = ("NHWC", "HWIO", "NHWC")


def normal(*shape, dtype="float32"):
    return (RNG.normal(size=shape) * 4).astype(dtype)


X, W = normal(2, 6, 7, 4), normal(3, 2, 4, 6)
GROUPED = normal(3, 2, 2, 6)
# Keyword arguments of a convolution of X with a window.
CASES = {
    "same": (W, {"window_strides": (1, 1), "padding": "SAME", "dimension_numbers": NHWC}),
    "strided": (W, {"window_strides": (2, 3), "padding": "SAME_LOWER", "dimension_numbers": NHWC}),
    "cropped": (W, {"window_strides": (1, 1), "padding": [(-1, 2), (0, -3)], "dimension_numbers": NHWC}),
    "dilated": (W, {"window_strides": (2, 1), "padding": [(1, 2), (3, 0)], "lhs_dilation": (2, 3),
                        "rhs_dilation": (1, 2), "dimension_numbers": NHWC}),
    "other orders": (W, {"window_strides": (2, 1), "padding": "VALID", "dimension_numbers": ("NWHC", "HWIO", "CHNW")}),
    "feature groups": (GROUPED, {"window_strides": (1, 2), "padding": "SAME", "dimension_numbers": NHWC,
                                     "feature_group_count": 2}),
    "batch groups": (W, {"window_strides": (1, 2), "padding": "SAME", "dimension_numbers": NHWC,
                             "batch_group_count": 2}),
    "depthwise": (normal(3, 2, 1, 4), {"window_strides": (2, 1), "padding": "SAME", "dimension_numbers": NHWC,
                                           "feature_group_count": 4}),
}  # fmt: skip
ALL = pytest.mark.parametrize("name", CASES)


def conv(S, name, x, w):
    return S.lax.conv_general_dilated(x, w, **CASES[name][1])


@ALL
@same_within_roundings
def test_values(S, name):
    return conv(S, name, X, CASES[name][0])


@same_within_roundings
def test_groups_of_one_feature(S):
    """Vectors go along the groups."""
    x = np.arange(2 * 5 * 6 * 20, dtype=np.float32).reshape(2, 5, 6, 20) % 7
    w = np.arange(3 * 2 * 20, dtype=np.float32).reshape(3, 2, 1, 20) % 5
    return S.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=NHWC, feature_group_count=20)


@ALL
@same_within_roundings
def test_derivatives_by_both_operands(S, name):
    f = lambda x, w: S.jnp.sum(S.jnp.sin(conv(S, name, x, w) / 64))  # noqa: E731
    return S.jax.jit(S.jax.grad(f, (0, 1)))(X, CASES[name][0])


@pytest.mark.parametrize("name", ["dilated", "feature groups", "batch groups"])
def test_second_derivatives(name):
    with ferrax.enable_x64():
        x, w = X.astype("float64") / 4, CASES[name][0].astype("float64") / 4
        check_grads(lambda x, w: jnp.tanh(conv(FERRAX, name, x, w) / 8), (x, w), 2)


@ALL
@pytest.mark.parametrize("axes", [(0, 1), (2, None), (None, 4), (4, 0)])
def test_batches(name, axes):
    w = CASES[name][0]
    operands = [x if axis is None else np.stack([x, 2 * x - 1], axis) for x, axis in zip((X, w), axes)]

    def case(S):
        f = lambda *operands: S.jax.vmap(lambda x, w: conv(S, name, x, w), axes)(*operands)  # noqa: E731
        return S.jax.jit(f)(*operands)

    within_roundings(case)


@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "uint8", "int32", "bfloat16", "float16", "float8_e5m2", "complex64"]
)
@same(through="bfloat16")
def test_dtypes(S, dtype):
    x, w = (S.jnp.asarray(np.round(x)).astype(dtype) for x in (X, W))
    return S.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=NHWC)


def to_another(S, dtype, preferred):
    x, w = (S.jnp.asarray(np.round(x)).astype(dtype) for x in (X, W))
    return S.lax.conv_general_dilated(
        x, w, (1, 1), "SAME", dimension_numbers=NHWC, preferred_element_type=preferred
    )


@pytest.mark.parametrize(
    ("dtype", "preferred"), [("bfloat16", "float32"), ("int8", "int32"), ("int8", "float32")]
)
@same
def test_results_of_another_dtype(S, dtype, preferred):
    return to_another(S, dtype, preferred)


@pytest.mark.raises("TypeError")
@pytest.mark.parametrize(
    ("dtype", "preferred"),
    [("float32", "bfloat16"), ("float32", "int32"), ("int8", "uint16"), ("float16", "complex64")],
)
@same
def test_dtypes_that_do_not_go_together(S, dtype, preferred):
    return to_another(S, dtype, preferred)


def refused(S):
    x, w = S.jnp.ones((2, 4, 9)), S.jnp.ones((6, 4, 3))
    g = S.lax.conv_general_dilated
    return [
        lambda: g(x, w[0], (1,), "VALID"),
        lambda: g(x, w, (1,), "EXACT"),
        lambda: g(x, w, (1,), [(1, 2, 3)]),
        lambda: g(x, w, (1,), [(-6, -6)]),
        lambda: g(x, w, (1,), [(1, 1), (1, 1)]),
        lambda: g(x, w, (1, 1), [(1, 1)]),
        lambda: g(x, w, (0,), [(1, 1)]),
        lambda: g(x, w, (1,), [(1, 1)], rhs_dilation=(0,)),
        lambda: g(x, w, (1,), [(1, 1)], lhs_dilation=(-1,)),
        lambda: g(x, w, (1,), "SAME", lhs_dilation=(2,)),
        lambda: g(x, w, (1,), "SAME", feature_group_count=0),
        lambda: g(x, w, (1,), "SAME", feature_group_count=3),
        lambda: g(x, w, (1,), "SAME", feature_group_count=2),
        lambda: g(x, w, (1,), "SAME", batch_group_count=4),
        lambda: g(x, w, (1,), "SAME", feature_group_count=2, batch_group_count=2),
        lambda: g(x, w.astype("int32"), (1,), "SAME"),
        lambda: g(x, w, (1,), "SAME", dimension_numbers=("NCW", "OIW")),
        lambda: g(x, w, (1,), "SAME", dimension_numbers=("NCW", "OIW", "NCH")),
        lambda: g(x, w, (1,), "SAME", dimension_numbers=("NCN", "OIW", "NCW")),
        lambda: g(x, w, (1,), "SAME", dimension_numbers=("NCHW", "OIW", "NCW")),
        lambda: g(x, w, (1,), "SAME", dimension_numbers="NCW"),
        lambda: g(x, w, (1,), "SAME", precision="exact"),
    ]


@pytest.mark.parametrize("number", range(len(refused(FERRAX))))
def test_errors(number):
    results = [attempt(lambda S: refused(S)[number](), S) for S in (FERRAX, JAX)]
    assert [type(result).__name__ for result in results] == ["Raised"] * 2
    assert results[0].name == results[1].name, results


@pytest.mark.parametrize("padding", ["SAME", "VALID", ((1, 2), (0, 1))])
@pytest.mark.parametrize("consistent", [False, True])
@pytest.mark.parametrize("transposed", [False, True])
@same_within_roundings
def test_conv_transpose(S, padding, consistent, transposed):
    w = normal_like_w(transposed)
    f = lambda x, w: S.lax.conv_transpose(  # noqa: E731
        x, w, (2, 3), padding, rhs_dilation=(2, 1), transpose_kernel=transposed,
        use_consistent_padding=consistent,
    )  # fmt: skip
    return S.jax.jit(f)(X, w)


def normal_like_w(transposed):
    return np.swapaxes(W, 2, 3) if transposed else W


@same_within_roundings
def test_conv_and_general_padding(S):
    x, w = np.moveaxis(X, 3, 1), np.moveaxis(W, (3, 2), (0, 1))
    return (
        S.lax.conv(x, w, (1, 2), "SAME"),
        S.lax.conv_with_general_padding(x, w, (1, 2), [(0, 1), (2, 2)], (1, 2), (2, 1)),
    )


@pytest.mark.parametrize("numbers", [NHWC, ("NWHC", "WOIH", "CNHW")])
@same_within_roundings
def test_patches_and_local_windows(S, numbers):
    patches = S.lax.conv_general_dilated_patches(
        X, (3, 2), (2, 1), [(1, 0), (0, 2)], rhs_dilation=(1, 2), dimension_numbers=numbers
    )
    _, right, out = S.lax.conv_dimension_numbers(X.shape, (1, 1, 3, 2), numbers)
    shape = [0] * 4
    sizes = (5, 24, patches.shape[out[2]], patches.shape[out[3]])
    for axis, size in zip(right, sizes):
        shape[axis] = size
    w = np.arange(np.prod(shape), dtype="float32").reshape(shape) % 7 - 3
    local = S.lax.conv_general_dilated_local(
        X, w, (2, 1), [(1, 0), (0, 2)], (3, 2), rhs_dilation=(1, 2), dimension_numbers=numbers
    )
    return patches, local


@same
def test_shapes(S):
    numbers = ("NWHC", "WOIH", "CNHW")
    shape, window = (2, 9, 8, 4), (3, 6, 4, 2)
    return [
        tuple(S.lax.conv_dimension_numbers(shape, window, numbers)),
        S.lax.conv_general_permutations(numbers),
        # JAX has NumPy's integers.
        tuple(map(int, S.lax.conv_shape_tuple((4, 3, 9), (6, 3, 2), (2,), [(1, -1)], 2))),
        tuple(map(int, S.lax.conv_general_shape_tuple(shape, window, (2, 1), "SAME", numbers))),
        tuple(map(int, S.lax.conv_transpose_shape_tuple(shape, window, (2, 1), "SAME", numbers))),
        tuple(map(int, S.lax.conv_transpose_shape_tuple(shape, window, (2, 3), "VALID", numbers))),
        tuple(map(int, S.lax.conv_transpose_shape_tuple(shape, window, (2, 3), [(1, 1), (0, 2)], numbers))),
    ]


@SIDES
def test_an_equation_has_the_parameters_of_jax_and_is_bound_again(S):
    f = lambda x, w: S.lax.conv_general_dilated(  # noqa: E731
        x, w, (1, 1), "SAME", dimension_numbers=NHWC, precision="highest"
    )
    eqn = S.jax.make_jaxpr(f)(X, W).eqns[0]
    assert eqn.primitive is S.lax.conv_general_dilated_p
    params = dict(eqn.params)
    numbers = params.pop("dimension_numbers")
    assert type(numbers) is S.lax.ConvDimensionNumbers
    assert tuple(numbers) == ((0, 3, 1, 2), (3, 2, 0, 1), (0, 3, 1, 2))
    assert params == {
        "window_strides": (1, 1), "padding": ((1, 1), (0, 1)), "lhs_dilation": (1, 1),
        "rhs_dilation": (1, 1), "feature_group_count": 1, "batch_group_count": 1,
        "precision": (S.lax.Precision.HIGHEST,) * 2, "preferred_element_type": None,
        "out_sharding": None,
    }  # fmt: skip
    again = eqn.primitive.bind(S.jnp.asarray(X), S.jnp.asarray(W), **eqn.params)
    np.testing.assert_array_equal(again, f(S.jnp.asarray(X), S.jnp.asarray(W)))


@same_within_roundings
def test_within_a_loop(S):
    def f(x):
        w = S.jnp.asarray(normal_window())
        step = lambda i, x: S.jnp.tanh(S.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=NHWC))  # noqa: E731
        return S.lax.fori_loop(0, 3, step, x)

    return S.jax.jit(f)(X / 4)


def normal_window():
    return np.sin(np.arange(3 * 3 * 4 * 4, dtype="float32")).reshape(3, 3, 4, 4) / 8


def test_long_sums_are_close_to_the_exact_ones():
    """The derivative for a window sums over all places: as a tree, not one term after the other."""
    x = RNG.uniform(size=(4, 200, 200, 1)).astype("float32")
    f = lambda w: lax.conv_general_dilated(x, w, (1, 1), "VALID", dimension_numbers=NHWC).sum()  # noqa: E731
    got = ferrax.jit(ferrax.grad(f))(np.ones((1, 1, 1, 2), "float32"))
    exact = x.astype("float64").sum()
    assert abs(np.asarray(got).astype("float64") - exact).max() < 3 * np.spacing(np.float32(exact))
