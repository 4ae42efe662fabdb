"""``x[index]`` and the functions that take elements, against JAX."""

import warnings

import errors_expected
import jax
import jax.numpy as jjnp
import numpy as np
import pytest
from oracle import compare_arrays

import ferrax
import ferrax.numpy as fjnp

X = np.arange(60, dtype=np.float32).reshape(3, 4, 5)
V = np.arange(6, dtype=np.float32)


def both(function):
    """``function(module, jnp)`` run with JAX and with ferrax: results, or exceptions."""
    results = []
    for module, jnp in ((jax, jjnp), (ferrax, fjnp)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                results.append(function(module, jnp))
            except Exception as error:  # compared by class
                results.append(error)
    return results


def leaves(value):
    return list(value) if isinstance(value, (tuple, list)) else [value]


def check(function):
    expected, got = both(function)
    if isinstance(expected, Exception):
        assert type(expected).__name__ == type(got).__name__, (expected, got)
        errors_expected.record(type(got).__name__)
        return
    if isinstance(got, Exception):
        raise got
    expected, got = leaves(expected), leaves(got)
    assert len(expected) == len(got)
    for e, g in zip(expected, got):
        compare_arrays(g, e, ulps=0, zeros=True, nan_signs=True)


STATIC = {
    "row": 1,
    "negative": -1,
    "beyond": 9,
    "before": -9,
    "numpy integer": np.int32(2),
    "slice": slice(1, 3),
    "slice truncates": slice(2, 100),
    "empty slice": slice(3, 1),
    "step": slice(None, None, 2),
    "reverse": slice(None, None, -1),
    "reverse step": (slice(None), slice(3, 0, -2)),
    "mixed": (slice(1, 3), None, slice(None, None, -1), 2),
    "ellipsis": (..., 0),
    "middle ellipsis": (0, ..., slice(1, 4)),
    "new axes": (None, ..., None),
    "all": (slice(None),),
    "nothing": (),
    "three integers": (0, 1, 2),
    "True": True,
    "False": False,
    "True after": (slice(None), True),
}

ARRAYS = {
    "array": lambda jnp: jnp.array([2, 0, 2]),
    "numpy array": lambda jnp: np.array([2, -1]),
    "out of bounds": lambda jnp: jnp.array([5, -7, -1]),
    "int8": lambda jnp: jnp.array([-1, 2], dtype="int8"),
    "uint8": lambda jnp: jnp.array([1, 2], dtype="uint8"),
    "2-d": lambda jnp: jnp.array([[0, 1], [2, 0]]),
    "apart": lambda jnp: (jnp.array([0, 1]), slice(None), jnp.array([2, 3])),
    "together": lambda jnp: (slice(None), jnp.array([0, 1]), jnp.array([2, 3])),
    "with integer": lambda jnp: (0, slice(None), jnp.array([1, 2])),
    "broadcast": lambda jnp: (jnp.array([[0], [1]]), jnp.array([0, 1, 2])),
    "with slice": lambda jnp: (jnp.array([0, 1]), slice(1, 3)),
    "with reverse": lambda jnp: (jnp.array([0, 1]), slice(None, None, -2)),
    "with new axis": lambda jnp: (jnp.array([0, 1]), None, jnp.array([2, 3])),
    "ellipsis apart": lambda jnp: (jnp.array([0]), slice(None), ..., jnp.array([0])),
    "scalar array": lambda jnp: jnp.array(1),
    "scalar and array": lambda jnp: (jnp.array(1), jnp.array([0, 2])),
    "list in tuple": lambda jnp: (0, [0, 1]),
    "empty": lambda jnp: jnp.zeros((0,), "int32"),
    "mask": lambda jnp: jnp.array([True, False, True]),
    "mask of two axes": lambda jnp: jnp.arange(12).reshape(3, 4) % 5 == 0,
    "mask inside": lambda jnp: (0, jnp.array([True, False, True, True])),
    "mask and array": lambda jnp: (jnp.array([True, False, True]), jnp.array([0, 3])),
    "mask of nothing": lambda jnp: jnp.zeros(3, bool),
}


@pytest.mark.parametrize("name", STATIC)
@pytest.mark.parametrize("jitted", [False, True])
def test_static(name, jitted):
    index = STATIC[name]

    def run(m, jnp):
        f = lambda x: x[index]  # noqa: E731
        return (m.jit(f) if jitted else f)(jnp.array(X))

    check(run)


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize("jitted", [False, True])
def test_arrays(name, jitted):
    def run(m, jnp):
        index = ARRAYS[name](jnp)
        f = lambda x: x[index]  # noqa: E731
        return (m.jit(f) if jitted else f)(jnp.array(X))

    check(run)


@pytest.mark.parametrize("k", [0, 2, -1, -3, 7, -9])
@pytest.mark.parametrize(
    "read",
    [
        lambda x, k: x[k],
        lambda x, k: x[k, 1:3],
        lambda x, k: x[::2, k, None],
        lambda x, k: x[k, :, k],
        lambda x, k: x[k, None, ..., 3],
    ],
)
def test_traced_scalar(k, read):
    check(lambda m, jnp: m.jit(read)(jnp.array(X), k))


@pytest.mark.parametrize("name", [n for n in ARRAYS if "mask" not in n and "numpy" not in n])
def test_traced_arrays(name):
    def run(m, jnp):
        index = ARRAYS[name](jnp)
        if isinstance(index, tuple):
            where = [i for i, entry in enumerate(index) if hasattr(entry, "dtype")]
            arrays = [index[i] for i in where]

            def read(x, arrays):
                full = list(index)
                for i, array in zip(where, arrays):
                    full[i] = array
                return x[tuple(full)]

            return m.jit(read)(jnp.array(X), arrays)
        return m.jit(lambda x, i: x[i])(jnp.array(X), index)

    check(run)


@pytest.mark.parametrize(
    "index",
    [
        [0, 1],
        [],
        "a",
        1.0,
        np.array([1.0]),
        1j,
        (0, 0, 0, 0),
        (..., ...),
        slice(None, 2.0),
        slice(None, None, 0),
        np.array([True, False]),
        np.ones((3, 4, 5, 1), bool),
        (np.array([0, 1]), np.array([0, 1, 2])),
        object(),
        {},
        range(2),
        (0, "a"),
    ],
    ids=lambda index: "object" if type(index) is object else repr(index),
)
def test_errors(index):
    expected, got = both(lambda m, jnp: jnp.array(X)[index])
    assert isinstance(expected, Exception)
    assert type(expected) is type(got), (expected, got)


def test_traced_errors():
    x = fjnp.array(X)
    with pytest.raises(IndexError, match="static integers.*dynamic_slice"):
        ferrax.jit(lambda x, n: x[:n])(x, 2)
    with pytest.raises(ferrax.errors.NonConcreteBooleanIndexError):
        ferrax.jit(lambda x, mask: x[mask])(x, fjnp.array([True, False, True]))
    with pytest.raises(TypeError, match=r"\.at\[idx\]\.set"):
        x[0] = 1.0
    with pytest.raises(TypeError, match="0-d"):
        iter(fjnp.array(1.0))
    with pytest.raises(IndexError, match="size 0"):
        fjnp.zeros((0, 3))[0]


def test_identity_indices_return_the_array():
    x = fjnp.array(X)
    assert x[:] is x
    assert x[...] is x


def test_iteration():
    check(lambda m, jnp: list(jnp.array(X)))
    check(lambda m, jnp: m.jit(lambda x: [row * 2 for row in x])(jnp.array(X)))


def test_gradients():
    for index in (1, (slice(None, None, -2), 0), np.array([0, 0, 2]), (np.array([1]), 3)):
        check(lambda m, jnp, index=index: m.grad(lambda x: (x[index] ** 2).sum())(jnp.array(X)))


def test_batching():
    check(lambda m, jnp: m.vmap(lambda x, i: x[i])(jnp.array(X), jnp.array([3, -1, 9])))
    check(lambda m, jnp: m.vmap(lambda i: jnp.array(X)[i, 1:3])(jnp.array([0, -1])))


@pytest.mark.parametrize("inner", ["jacfwd", "jacrev"])
@pytest.mark.parametrize("outer", ["jacfwd", "jacrev"])
def test_second_derivatives_of_what_is_read_out_of_bounds(outer, inner):
    def hessian(m, jnp):
        product = lambda v: jnp.prod(v[jnp.array([0, 1, 7])])  # noqa: E731
        return getattr(m, outer)(getattr(m, inner)(product))(jnp.array([2.0, 3.0, 5.0]))

    check(hessian)


TAKING = {
    "take flat": lambda m, jnp: jnp.take(jnp.array(X), jnp.array([70, -1, -61])),
    "take axis": lambda m, jnp: jnp.take(jnp.array(X), jnp.array([[0, 9], [1, 2]]), axis=2),
    "take wrap": lambda m, jnp: jnp.take(jnp.array(V), jnp.array([7, -7]), mode="wrap"),
    "take clip": lambda m, jnp: jnp.take(jnp.array(V), jnp.array([7, -7]), mode="clip"),
    "take fill": lambda m, jnp: jnp.take(jnp.array(V), jnp.array([7, 0]), fill_value=4.0),
    "take integers": lambda m, jnp: jnp.take(jnp.arange(3), jnp.array([7, 0])),
    "take unsigned": lambda m, jnp: jnp.take(jnp.arange(3, dtype="uint8"), 7),
    "take scalar": lambda m, jnp: jnp.take(3.0, 0),
    "take raise": lambda m, jnp: jnp.take(jnp.array(V), 0, mode="raise"),
    "take list": lambda m, jnp: jnp.take(jnp.array(V), [0, 1]),
    "take floats": lambda m, jnp: jnp.take(jnp.array(V), jnp.ones(2)),
    "take empty": lambda m, jnp: jnp.take(jnp.zeros((0, 2)), jnp.array([0]), axis=0),
    "take bad axis": lambda m, jnp: jnp.take(jnp.array(V), 0, axis=1),
    "along axis": lambda m, jnp: jnp.take_along_axis(
        jnp.array(X), jnp.array([[[3, -1]], [[0, 9]], [[1, -9]]]), 2
    ),
    "along broadcast": lambda m, jnp: jnp.take_along_axis(
        jnp.array(X), jnp.array([2, 0]).reshape(1, 2, 1), 1
    ),
    "along flat": lambda m, jnp: jnp.take_along_axis(jnp.array(X), jnp.array([3, 99]), None),
    "along clip": lambda m, jnp: jnp.take_along_axis(
        jnp.array(V), jnp.array([9, -9]), 0, mode="clip"
    ),
    "along rank": lambda m, jnp: jnp.take_along_axis(jnp.array(X), jnp.array([0]), 0),
    "along floats": lambda m, jnp: jnp.take_along_axis(jnp.array(V), jnp.ones(2), 0),
    "put along axis": lambda m, jnp: jnp.put_along_axis(
        jnp.array(X), jnp.array([2, 0]).reshape(1, 2, 1), 9.0, 1, inplace=False
    ),
    "put": lambda m, jnp: jnp.put(jnp.array(X), jnp.array([0, -1, 99]), 7.0, inplace=False),
    "put outside": lambda m, jnp: [
        jnp.put(jnp.array(V), np.array(at, np.int8), 7.0, mode=mode, inplace=False)
        for mode in (None, "clip", "wrap")
        for at in (99, -99, -1)
    ],
    "put wrap": lambda m, jnp: jnp.put(
        jnp.array(V), jnp.array([7, -1]), jnp.array([8.0, 9.0]), mode="wrap", inplace=False
    ),
    "put inplace": lambda m, jnp: jnp.put(jnp.array(V), 0, 1.0),
    "nonzero": lambda m, jnp: jnp.nonzero(jnp.array(X) % 7 == 0),
    "nonzero size": lambda m, jnp: m.jit(
        lambda x: jnp.nonzero(x % 7 == 0, size=12, fill_value=-1)
    )(jnp.array(X)),
    "nonzero cut": lambda m, jnp: jnp.nonzero(jnp.array(V), size=2),
    "nonzero fills": lambda m, jnp: jnp.nonzero(jnp.eye(2), size=3, fill_value=(7, 8)),
    "nonzero 0-d": lambda m, jnp: jnp.nonzero(1.0),
    "nonzero traced": lambda m, jnp: m.jit(jnp.nonzero)(jnp.array(V)),
    "flatnonzero": lambda m, jnp: jnp.flatnonzero(jnp.eye(3), size=5, fill_value=9),
    "argwhere": lambda m, jnp: jnp.argwhere(jnp.array(X) > 55),
    "argwhere 0-d": lambda m, jnp: jnp.argwhere(1.0),
    "compress": lambda m, jnp: jnp.compress(jnp.array([True, False]), jnp.array(X), axis=1),
    "compress size": lambda m, jnp: m.jit(lambda v: jnp.compress(v > 2, v, size=5, fill_value=9))(
        jnp.array(V)
    ),
    "extract": lambda m, jnp: jnp.extract(jnp.array(X) > 50, jnp.array(X)),
    "place": lambda m, jnp: m.jit(
        lambda x: jnp.place(x, x % 3 == 0, jnp.array([7.0, 8.0]), inplace=False)
    )(jnp.array(X)),
    "fill diagonal": lambda m, jnp: jnp.fill_diagonal(
        jnp.ones((5, 3)), jnp.array([7.0, 8.0]), inplace=False
    ),
    "delete": lambda m, jnp: jnp.delete(jnp.array(X), 1, axis=1),
    "delete array": lambda m, jnp: jnp.delete(jnp.array(X), jnp.array([0, -1, 0]), axis=2),
    "delete slice": lambda m, jnp: jnp.delete(jnp.array(V), slice(None, None, 2)),
    "delete mask": lambda m, jnp: jnp.delete(jnp.array(V), jnp.array(V) > 2),
    "delete beyond": lambda m, jnp: jnp.delete(jnp.array(V), jnp.array([0, 7])),
    "delete unique": lambda m, jnp: m.jit(
        lambda v, i: jnp.delete(v, i, assume_unique_indices=True)
    )(jnp.array(V), jnp.array([4, 1])),
    "insert": lambda m, jnp: jnp.insert(jnp.array(V), 1, jnp.array([8.0, 9.0])),
    "insert several": lambda m, jnp: m.jit(lambda v, i: jnp.insert(v, i, jnp.array([8.0, 9.0])))(
        jnp.array(V), jnp.array([4, 1])
    ),
    "insert axis": lambda m, jnp: jnp.insert(jnp.array(X), 2, jnp.ones((3, 5)), axis=1),
    "insert slice": lambda m, jnp: jnp.insert(jnp.array(V), slice(0, 2), 7),
    "choose": lambda m, jnp: jnp.choose(jnp.array([1, 0]), [jnp.array([1, 2]), 3.0]),
    "choose wrap": lambda m, jnp: jnp.choose(jnp.array([-1, 5]), jnp.eye(2), mode="wrap"),
    "choose invalid": lambda m, jnp: jnp.choose(jnp.array([0, 3]), jnp.eye(2)),
    "select": lambda m, jnp: jnp.select(
        [jnp.array(V) > 4, jnp.array(V) > 2], [jnp.arange(6), 2.5], -1
    ),
    "select none": lambda m, jnp: jnp.select([], []),
    "piecewise": lambda m, jnp: jnp.piecewise(
        jnp.array(V), [jnp.array(V) > 1, jnp.array(V) > 3], [lambda x: x * 2, 5, lambda x: -x]
    ),
    "piecewise count": lambda m, jnp: jnp.piecewise(jnp.array(V), [jnp.array(V) > 1], []),
    "ix_": lambda m, jnp: jnp.array(X)[jnp.ix_(jnp.array([0, 2]), jnp.array([1]))],
    "diag_indices": lambda m, jnp: jnp.diag_indices(3, 3),
    "diag_indices_from": lambda m, jnp: jnp.diag_indices_from(jnp.ones((2, 3))),
    "mask_indices": lambda m, jnp: jnp.mask_indices(3, jnp.triu),
    "r_": lambda m, jnp: jnp.r_[0:3, 5, jnp.array(V)],
    "r_ spacing": lambda m, jnp: jnp.r_[0:1:5j],
    "r_ directive": lambda m, jnp: jnp.r_["0,3,1", jnp.array(V), jnp.array(V)],
    "r_ row": lambda m, jnp: jnp.r_["r", jnp.array(V)],
    "r_ bad": lambda m, jnp: jnp.r_["q", jnp.array(V)],
    "c_": lambda m, jnp: jnp.c_[jnp.array(V), jnp.array(V)],
    "s_": lambda m, jnp: jnp.array(X)[jnp.s_[1:2, ..., 0]],
    "index_exp": lambda m, jnp: jnp.array(X)[jnp.index_exp[1:2]],
}


@pytest.mark.parametrize("name", TAKING)
def test_taking(name):
    check(TAKING[name])


@pytest.mark.parametrize("mode, at, place", [("clip", -1, 0), ("wrap", -1, 299), (None, 99, 99)])
def test_put_with_indices_narrower_than_the_size(mode, at, place):
    # JAX cannot write the size in the type of these indices.
    out = fjnp.put(fjnp.zeros(300), np.array(at, np.int8), 7.0, mode=mode, inplace=False)
    assert np.flatnonzero(out).tolist() == [place]


def test_taking_gradients():
    check(
        lambda m, jnp: m.grad(
            lambda x: (jnp.take(x, jnp.array([0, 0, 9]), axis=0, mode="clip") ** 2).sum()
        )(jnp.array(X))
    )
    check(
        lambda m, jnp: m.grad(
            lambda x: (jnp.take_along_axis(x, jnp.zeros((1, 2, 5), int), 1) ** 2).sum()
        )(jnp.array(X))
    )


STATIC_CHECKS = {
    "behind": lambda m, jnp, x: x[3],
    "before": lambda m, jnp, x: x[-4],
    "second axis": lambda m, jnp, x: x[0, 5],
    "numpy scalar": lambda m, jnp, x: x[np.int32(5)],
    "beside a slice": lambda m, jnp, x: x[5, ::2],
    "get": lambda m, jnp, x: x.at[5].get(),
    "not wrapped": lambda m, jnp, x: x.at[-1].get(wrap_negative_indices=False),
    "in jit": lambda m, jnp, x: m.jit(lambda x: x[5])(x),
    "in bounds": lambda m, jnp, x: x[-3, 3],
    "slice": lambda m, jnp, x: x[1:9],
    "array": lambda m, jnp, x: x[np.array([0, 5])],
    "set": lambda m, jnp, x: x.at[5].set(1.0),
    "clip": lambda m, jnp, x: x.at[5].get(mode="clip"),
    "fill": lambda m, jnp, x: x.at[5].get(mode="fill"),
    "take": lambda m, jnp, x: jnp.take(x, 5, axis=0),
    "beside an array": lambda m, jnp, x: x[np.arange(3), 6, None],
    "clip beside an array": lambda m, jnp, x: x.at[np.arange(3), 6].get(mode="clip"),
}


@pytest.mark.parametrize("name", STATIC_CHECKS)
def test_check_static_indices(name):
    def case(module, jnp):
        x = jnp.arange(12.0).reshape(3, 4)
        module.config.update("jax_check_static_indices", True)
        try:
            return STATIC_CHECKS[name](module, jnp, x)
        finally:
            module.config.update("jax_check_static_indices", False)

    check(case)
    expected, got = both(case)
    assert str(expected) == str(got)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.uint16, np.uint32, np.uint64])
def test_numpy_indices_of_all_integer_types(dtype):
    index = np.array([0, 100], dtype)
    for x in (jax.numpy.arange(5.0), ferrax.numpy.arange(5.0)):
        np.testing.assert_array_equal(x[index], [0, 4])
