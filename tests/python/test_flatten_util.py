"""`ravel_pytree` against JAX's: values, dtypes, weak types, errors, gradients."""

import numpy as np
import pytest

jax = pytest.importorskip("jax")
jax_numpy = pytest.importorskip("jax.numpy")
jax_flatten_util = pytest.importorskip("jax.flatten_util")

import ferrax  # noqa: E402
import ferrax.numpy as ferrax_numpy  # noqa: E402
from ferrax.flatten_util import ravel_pytree  # noqa: E402

TREES = {
    "empty": lambda np_: (),
    "none": lambda np_: {"a": None},
    "scalar": lambda np_: 2.0,
    "scalars": lambda np_: (2.0, 3.0),
    "matrices": lambda np_: {"b": np_.ones((2, 3)), "a": [np_.arange(4.0), np_.float32(7)]},
    "integers": lambda np_: (np_.arange(3), np_.ones((2, 2), "int32")),
    "mixed floats": lambda np_: (np_.ones((), "float16"), np_.ones(2, "float32")),
    "mixed kinds": lambda np_: {"a": np_.ones(2, "bool"), "b": np_.arange(3, dtype="int8"), "c": 1},
    "complex": lambda np_: [np_.ones(2, "complex64"), np_.ones((1, 2), "float32")],
    "zero size": lambda np_: (np_.ones((0, 3)), np_.ones(2)),
    "numpy": lambda np_: [np.ones((2, 2), np.float32), np.float32(3)],
}


def same(ours, theirs):
    assert ours.dtype == theirs.dtype
    assert ours.shape == theirs.shape
    assert ours.weak_type == theirs.weak_type
    np.testing.assert_array_equal(np.asarray(ours), np.asarray(theirs))


@pytest.mark.parametrize("name", TREES)
def test_round_trip(name):
    vector, unravel = ravel_pytree(TREES[name](ferrax_numpy))
    expected, expected_unravel = jax_flatten_util.ravel_pytree(TREES[name](jax_numpy))
    same(vector, expected)
    ours = ferrax.tree_util.tree_leaves_with_path(unravel(vector))
    theirs = jax.tree_util.tree_leaves_with_path(expected_unravel(expected))
    for (path, leaf), (expected_path, expected_leaf) in zip(ours, theirs, strict=True):
        assert list(map(str, path)) == list(map(str, expected_path))
        same(leaf, expected_leaf)


def test_unravel_keeps_the_dtype_of_uniform_trees():
    _, unravel = ravel_pytree((1.0, 2.0))
    assert unravel(ferrax_numpy.arange(2))[1].dtype == np.int32
    assert unravel(np.ones(2, np.float32))[1].dtype == np.float32


def test_errors():
    _, unravel = ravel_pytree({"a": ferrax_numpy.ones(3), "b": ferrax_numpy.ones(2, "int32")})
    with pytest.raises(ValueError, match="shape"):
        unravel(ferrax_numpy.ones(4))
    with pytest.raises(TypeError, match="given array of dtype int32, but expected dtype float32"):
        unravel(ferrax_numpy.ones(5, "int32"))
    with pytest.raises(TypeError):
        ravel_pytree(("a",))


def test_unravel_functions_compare():
    one, two, other = (ravel_pytree({"a": ferrax_numpy.ones(n)})[1] for n in (3, 3, 4))
    assert one == two
    assert hash(one) == hash(two)
    assert one != other


def test_under_transformations():
    tree = {"a": ferrax_numpy.arange(3.0), "b": 2.0}

    def energy(t):
        vector, unravel = ravel_pytree(t)
        return (vector**2).sum() + unravel(vector)["b"]

    gradient = ferrax.jit(ferrax.grad(energy))(tree)
    np.testing.assert_allclose(np.asarray(gradient["a"]), [0.0, 2.0, 4.0])
    np.testing.assert_allclose(np.asarray(gradient["b"]), 5.0)
