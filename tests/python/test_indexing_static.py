"""Static indices on concrete arrays, which have a path of their own: against NumPy, against the
same index under jit, and at its edges (aliasing, keys, element types of every size)."""

import random as python_random

import ml_dtypes
import numpy as np
import pytest
from oracle import same

import ferrax
import ferrax.numpy as jnp

DTYPES = [np.bool_, np.int8, np.uint16, ml_dtypes.bfloat16, np.float32, np.complex64]


def random_index(rng, shape):
    """An index of integers in bounds, slices, None and at most one Ellipsis."""
    used = rng.randint(0, len(shape))
    parts = []
    for axis in range(used):
        size = shape[axis]
        bound = lambda size=size: rng.choice([None, rng.randint(-size - 2, size + 2)])  # noqa: E731
        if rng.random() < 0.4:
            parts.append(rng.randint(-size, size - 1))
        else:
            parts.append(slice(bound(), bound(), rng.choice([None, 1, 2, 3, -1, -2, 7])))
    if used == len(shape) or rng.random() < 0.5:
        parts.append(Ellipsis)
    for _ in range(rng.choice([0, 0, 1, 2])):
        parts.insert(rng.randint(0, len(parts)), None)
    return tuple(parts)


def indices(count=60):
    rng = python_random.Random(7)
    shapes = [(5,), (3, 4), (2, 1, 3), (2, 3, 4, 5)]
    return [(shape, random_index(rng, shape)) for shape in shapes for _ in range(count)]


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: np.dtype(d).name)
def test_reads_equal_numpy(dtype):
    for shape, index in indices():
        value = (np.arange(np.prod(shape)) * 3 % 7).reshape(shape).astype(dtype)
        got = jnp.array(value)[index]
        assert got.dtype == value.dtype
        np.testing.assert_array_equal(np.asarray(got), value[index], err_msg=str(index))


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: np.dtype(d).name)
def test_updates_equal_numpy(dtype):
    rng = np.random.default_rng(3)
    for shape, index in indices(30):
        value = rng.integers(0, 9, shape).astype(dtype)
        new = rng.integers(0, 9, value[index].shape).astype(dtype)
        expected = value.copy()
        expected[index] = new
        got = jnp.array(value).at[index].set(jnp.array(new))
        np.testing.assert_array_equal(np.asarray(got), expected, err_msg=str(index))
        if new.ndim and dtype is not np.bool_:
            # One value along the last axis, for all others.
            expected = value.copy()
            expected[index] += new[..., :1]
            got = jnp.array(value).at[index].add(jnp.array(new[..., :1]))
            np.testing.assert_array_equal(np.asarray(got), expected, err_msg=str(index))


def test_results_are_those_of_traced_indices():
    x = jnp.asarray(2.5) * jnp.ones(())  # weak types go along
    assert x[None].weak_type == ferrax.jit(lambda x: x[None])(x).weak_type
    y = jnp.arange(12.0).reshape(3, 4)
    for index in [7, -7, (1, 9), (slice(2, 9), -9), (None, 0)]:
        np.testing.assert_array_equal(y[index], ferrax.jit(lambda y: y[index])(y))  # noqa: B023
        for method in ["set", "add", "multiply", "min", "max"]:
            update = lambda y: getattr(y.at[index], method)(2.0)  # noqa: B023, E731
            np.testing.assert_array_equal(update(y), ferrax.jit(update)(y))


def test_updates_out_of_bounds_are_dropped_but_checked():
    x = jnp.arange(3.0)
    assert x.at[5].set(9.0).tolist() == x.tolist()
    with pytest.raises(ValueError):
        x.at[5].set(jnp.ones(2))
    with pytest.raises(IndexError):
        jnp.zeros((0, 2))[0]
    with pytest.raises(IndexError):
        x[0, 0]


def test_results_outlive_the_array():
    x = jnp.arange(6.0).reshape(1, 6)
    views = [x[0], x[None], x.at[5].set(1.0), x.at[3:3].set(1.0)]
    x.delete()
    for view in views:
        assert np.asarray(view).ravel().tolist() == [0, 1, 2, 3, 4, 5]
    with pytest.raises(RuntimeError):
        x[0]


def test_donating_a_reshaped_read_leaves_the_array():
    x = jnp.arange(64.0)[None]
    row = x[0]
    ferrax.jit(lambda row: row + 1, donate_argnums=0)(row)
    assert float(x.sum()) == 64 * 63 / 2


def test_keys():
    keys = ferrax.random.split(ferrax.random.key(1), 5)
    data = np.asarray(ferrax.random.key_data(keys))
    key_data = lambda key: np.asarray(ferrax.random.key_data(key))  # noqa: E731
    np.testing.assert_array_equal(key_data(keys[2]), data[2])
    np.testing.assert_array_equal(key_data(keys[::-2]), data[::-2])
    for key, expected in zip(keys, data):
        np.testing.assert_array_equal(key_data(key), expected)
    np.testing.assert_array_equal(key_data(jnp.stack([keys[1], keys[0]])), data[[1, 0]])
    updated = keys.at[1].set(keys[4])
    np.testing.assert_array_equal(key_data(updated), data[[0, 4, 2, 3, 4]])
    with pytest.raises(TypeError):
        keys.at[0].add(keys[1])


def test_inside_grad_and_vmap():
    x = jnp.arange(4.0)
    assert ferrax.grad(lambda y: y * x[2])(3.0) == 2.0
    assert ferrax.grad(lambda y: x.at[1].set(y)[1])(3.0) == 1.0
    np.testing.assert_array_equal(
        ferrax.vmap(lambda y: x.at[0].set(y))(x)[:, 0], np.asarray(x)
    )


def test_accuracy_of_lax_functions():
    for name in ["exp", "log", "sin", "cos", "tan", "tanh", "logistic", "sqrt", "rsqrt", "cbrt"]:
        function = getattr(ferrax.lax, name)
        assert function(x=0.5, accuracy=None) == function(0.5)
        with pytest.raises(NotImplementedError, match="accuracy"):
            function(0.5, accuracy="high")


WIDE = {
    "index": lambda S, x: x[2**40],
    "negative": lambda S, x: x[-(2**40)],
    "first too large": lambda S, x: x[2**31],
    "last that fits": lambda S, x: x[2**31 - 1],
    "in a tuple": lambda S, x: S.jnp.ones((3, 4))[0, 2**40],
    "before a slice": lambda S, x: S.jnp.ones((3, 4))[2**40, :],
    "beside an array": lambda S, x: S.jnp.ones((3, 4))[S.jnp.array([0]), 2**40],
    "get": lambda S, x: x.at[2**40].get(),
    "jit": lambda S, x: S.jax.jit(lambda x: x[2**40])(x),
    "slice": lambda S, x: x[1 : 2**40],
    "of 64 bits": lambda S, x: x[2**63],
}


@pytest.mark.parametrize("shape, mask", [((3,), (0,)), ((3, 2), (3, 0)), ((3, 2), (0,))], ids=str)
def test_masks_without_elements_pick_nothing(shape, mask):
    import jax

    got, expected = (
        np_.ones(shape)[np_.zeros(mask, bool)] for np_ in (jnp, jax.numpy)
    )
    assert got.shape == expected.shape and got.dtype == expected.dtype


BESIDE_BOOLEANS = [
    np.s_[0, :2, True], np.s_[:2, True], np.s_[True, :2, True], np.s_[:2, 0, True], np.s_[0, True, :2],
    np.s_[0, :, None, False], np.s_[0, ..., True], np.s_[:, True, None, 0], np.s_[0, None, True],
    np.s_[:, True, :, 0], np.s_[0, 1, 2, 3, ..., True],
]  # fmt: skip


@pytest.mark.parametrize("index", BESIDE_BOOLEANS, ids=str)
def test_axes_of_boolean_scalars_stand_where_numpy_has_them(index):
    value = np.arange(120).reshape(2, 3, 4, 5)
    expected = value[index]
    np.testing.assert_array_equal(jnp.array(value)[index], expected)
    traced = ferrax.jit(lambda x, i: x[tuple(i if type(k) is int and k == 0 else k for k in index)])
    np.testing.assert_array_equal(traced(value, 0), expected)
    new = np.arange(expected.size).reshape(expected.shape)
    written = value.copy()
    written[index] = new
    np.testing.assert_array_equal(jnp.array(value).at[index].set(new), written)


@pytest.mark.parametrize("x64", [False, True])
@pytest.mark.parametrize("name", WIDE)
@same
def test_integers_that_no_index_holds(S, name, x64):
    with S.jax.enable_x64(x64):
        return WIDE[name](S, S.jnp.arange(5.0))


@pytest.mark.parametrize("dtype", ["int2", "int4", "int8", "int16"])
def test_narrow_indices_count_from_the_end(dtype):
    x, low = jnp.arange(300), int(jnp.iinfo(dtype).min)
    index = jnp.array([-1, low], dtype)
    assert x[index].tolist() == [299, max(300 + low, 0)]
    assert jnp.take(x, index, mode="clip")[0] == 0
    assert jnp.take(x, index)[0] == 299
    assert jnp.take_along_axis(x, index, 0)[0] == 299
    assert ferrax.lax.dynamic_slice(x, (index[0],), (1,)).tolist() == [299]
    assert ferrax.lax.dynamic_index_in_dim(x, index[0]).tolist() == [299]
    assert x.at[index[0]].set(0)[299] == 0
