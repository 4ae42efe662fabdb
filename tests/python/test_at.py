"""``x.at[index]``: values, dtypes, warnings and modes against JAX; masks under jit beyond it."""

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


def outcome(function, module, jnp):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            return function(module, jnp), {w.category for w in caught}
        except Exception as error:  # compared by class
            return error, set()


def check(function, ulps=0):
    expected, expected_warnings = outcome(function, jax, jjnp)
    got, got_warnings = outcome(function, ferrax, fjnp)
    if isinstance(expected, Exception):
        assert type(expected).__name__ == type(got).__name__, (expected, got)
        errors_expected.record(type(got).__name__)
        return
    if isinstance(got, Exception):
        raise got
    compare_arrays(got, expected, ulps=ulps, cancels=0.0, zeros=True)
    assert expected_warnings == got_warnings


INDICES = {
    "row": lambda jnp: 1,
    "negative": lambda jnp: -1,
    "beyond": lambda jnp: 9,
    "before": lambda jnp: -9,
    "slice": lambda jnp: slice(1, 3),
    "reverse": lambda jnp: (slice(None, None, -1), slice(0, 3, 2)),
    "all": lambda jnp: slice(None),
    "ellipsis": lambda jnp: (..., 0),
    "new axis": lambda jnp: (None, 1, slice(1, 3)),
    "False": lambda jnp: False,
    "True": lambda jnp: True,
    "array": lambda jnp: jnp.array([2, 0]),
    "numpy array": lambda jnp: np.array([-1, 0]),
    "out of bounds": lambda jnp: jnp.array([0, 3, -4]),
    "apart": lambda jnp: (jnp.array([0, 1]), slice(None), jnp.array([2, 3])),
    "with step": lambda jnp: (jnp.array([0, 1]), slice(None, None, -2)),
    "broadcast": lambda jnp: (jnp.array([[0], [1]]), jnp.array([0, 1, 2])),
    "mask": lambda jnp: jnp.array([True, False, True]),
    "full mask": lambda jnp: jnp.arange(60).reshape(3, 4, 5) % 3 == 0,
    "mask inside": lambda jnp: (slice(1, 3), jnp.array([True, False, True, True])),
    "scalar array": lambda jnp: jnp.array(2),
}
METHODS = ["set", "add", "subtract", "multiply", "divide", "power", "min", "max"]


@pytest.mark.parametrize("name", INDICES)
@pytest.mark.parametrize("method", METHODS)
def test_methods(name, method):
    check(
        lambda m, jnp: getattr(jnp.array(X).at[INDICES[name](jnp)], method)(2.0),
        ulps=4 if method == "power" else 0,
    )


@pytest.mark.parametrize("name", INDICES)
def test_values_of_the_index_shape(name):
    def run(m, jnp):
        x, index = jnp.array(X), INDICES[name](jnp)
        shape = x[index].shape
        values = jnp.arange(float(np.prod(shape))).reshape(shape) - 5
        return x.at[index].set(values)

    check(run)


@pytest.mark.parametrize("name", [n for n in INDICES if "mask" not in n])
def test_under_jit(name):
    check(lambda m, jnp: m.jit(lambda x: x.at[INDICES[name](jnp)].add(2.0))(jnp.array(X)))


@pytest.mark.parametrize("mode", [None, "clip", "drop", "fill", "promise_in_bounds", "wrap", "no"])
def test_modes(mode):
    if mode != "promise_in_bounds":
        check(lambda m, jnp: jnp.arange(5).at[jnp.array([1, 9, -9])].add(7, mode=mode))
        check(lambda m, jnp: jnp.arange(5).at[jnp.array([1, 9, -9])].get(mode=mode))
    check(lambda m, jnp: jnp.arange(5.0).at[jnp.array([1, -1])].set(7, mode=mode))


@pytest.mark.parametrize(
    "dtype", ["float32", "float16", "int8", "int32", "uint8", "bool", "complex64"]
)
def test_default_fill(dtype):
    def run(m, jnp):
        return jnp.ones(3, dtype).at[jnp.array([0, 5])].get(mode="fill")

    expected, got = np.asarray(run(jax, jjnp)), np.asarray(run(ferrax, fjnp))
    assert expected.dtype == got.dtype
    np.testing.assert_array_equal(expected, got)


def test_get_options():
    check(lambda m, jnp: jnp.array(X).at[7].get(mode="fill", fill_value=-1.0))
    check(lambda m, jnp: m.jit(lambda x, k: x.at[k].get(mode="fill"))(jnp.array(X), 7))
    check(lambda m, jnp: jnp.array(X).at[jnp.array([-1])].get(wrap_negative_indices=False))
    check(lambda m, jnp: jnp.array(X).at[-1].set(0.0, wrap_negative_indices=False))
    check(
        lambda m, jnp: (
            jnp.array(X)
            .at[jnp.array([0, 2])]
            .set(0.0, indices_are_sorted=True, unique_indices=True)
        )
    )


def test_repeated_indices_accumulate():
    for method in METHODS[1:]:
        check(
            lambda m, jnp, method=method: getattr(
                jnp.arange(1.0, 6.0).at[jnp.array([1, 1, 3])], method
            )(jnp.array([2.0, 3.0, 2.0])),
            ulps=4,
        )


@pytest.mark.parametrize(
    "update",
    [
        lambda jnp: jnp.arange(3).at[0].set(1.7),
        lambda jnp: jnp.arange(3).at[2].multiply(1.7),
        lambda jnp: jnp.arange(3).at[0].set(jnp.float32(1.7)),
        lambda jnp: jnp.arange(3, dtype="int8").at[0].add(jnp.int32(1)),
        lambda jnp: jnp.arange(3, dtype="int8").at[0].set(300),
        lambda jnp: jnp.arange(3, dtype="uint8").at[0].set(-1),
        lambda jnp: jnp.arange(3).at[0].set(jnp.uint8(4)),
        lambda jnp: jnp.arange(3.0).astype("float16").at[0].set(jnp.int32(4)),
        lambda jnp: jnp.arange(3.0).at[0].set(np.float64(1.5)),
        lambda jnp: jnp.array([True, False]).at[0].set(1),
        lambda jnp: jnp.array([True, False]).at[0].add(True),
        lambda jnp: jnp.arange(5).at[1].divide(2),
        lambda jnp: jnp.array(1.0)[None].at[0].set(1),
        lambda jnp: jnp.array(1.0)[None].at[0].set(jnp.float32(1)),
        lambda jnp: jnp.array(1)[None].at[0].set(jnp.uint8(1)),
        lambda jnp: jnp.array(1)[None].at[0].set(1.0),
        lambda jnp: jnp.zeros((0, 3)).at[0].set(1),
        lambda jnp: jnp.array(X).at[0].set(jnp.ones(3)),
        lambda jnp: jnp.array(X).at[0].set(jnp.ones((1, 4, 5))),
        lambda jnp: jnp.array(X).at[[0, 1]].set(1),
        lambda jnp: jnp.array(X).at[0].set([1, 2, 3, 4, 5]),
    ],
)
def test_dtypes_and_shapes(update):
    check(lambda m, jnp: update(jnp))


def test_apply():
    check(lambda m, jnp: jnp.array(X).at[1, ::2].apply(jnp.negative))
    check(lambda m, jnp: jnp.array(X).at[jnp.array([0, 2])].apply(jnp.square))
    check(lambda m, jnp: jnp.arange(4.0).at[jnp.array([1, 1, 2])].apply(lambda v: v * 3 + 1))


def test_representation():
    x = fjnp.arange(2)
    assert repr(x.at) == f"_IndexUpdateHelper({x!r})"
    assert repr(x.at[0]) == f"_IndexUpdateRef({x!r}, 0)"
    with pytest.raises(AttributeError):
        x.at[0].put(1)


def test_gradients():
    for index in (1, slice(None, None, -2), np.array([0, 2]), (slice(None), np.array([1, 3]))):
        for method in ("set", "add", "subtract", "max"):

            def run(m, jnp, index=index, method=method):
                f = lambda x, v: (getattr(x.at[index], method)(v) ** 2).sum()  # noqa: E731
                return m.grad(f, 1)(jnp.array(X), 30.5)

            check(run, ulps=4)
    check(
        lambda m, jnp: m.grad(
            lambda x: (x.at[jnp.array([0, 2])].multiply(3.0, unique_indices=True) ** 2).sum()
        )(jnp.array(X)),
        ulps=4,
    )


def test_batching():
    check(
        lambda m, jnp: m.vmap(lambda x, i, v: x.at[i].add(v))(
            jnp.array(X), jnp.array([1, -1, 9]), jnp.array([1.0, 2.0, 3.0])
        )
    )


MASKED = {
    "scalar": lambda x, m, jnp: x.at[m].set(-1.0),
    "add": lambda x, m, jnp: x.at[m].add(2.0),
    "divide": lambda x, m, jnp: x.at[m].divide(2.0),
    "row": lambda x, m, jnp: x.at[m].set(jnp.arange(5.0)),
    "one row": lambda x, m, jnp: x.at[m].set(jnp.arange(20.0).reshape(1, 4, 5)),
    "apply": lambda x, m, jnp: x.at[m].apply(jnp.negative),
    "integer after": lambda x, m, jnp: x.at[m, 0].set(-1.0),
    "slice after": lambda x, m, jnp: x.at[m, 1:3].set(jnp.arange(5.0)),
    "new axis": lambda x, m, jnp: x.at[None, m].add(1.0),
}


@pytest.mark.parametrize("name", MASKED)
def test_traced_masks(name):
    """A traced mask gives what the concrete one does, though JAX rejects it."""
    mask = np.array([True, False, True])
    update = MASKED[name]
    expected = update(jjnp.array(X), jjnp.array(mask), jjnp)
    for run in (update, lambda x, m, jnp: ferrax.jit(lambda x, m: update(x, m, jnp))(x, m)):
        got = run(fjnp.array(X), fjnp.array(mask), fjnp)
        np.testing.assert_array_equal(np.asarray(expected), np.asarray(got))
        assert np.dtype(expected.dtype) == np.dtype(got.dtype)


def test_traced_mask_gradient_and_batch():
    x = fjnp.array([4.0, -1.0, 9.0])
    gradient = ferrax.grad(lambda x: (x.at[x < 0].set(0.0) ** 2).sum())
    np.testing.assert_array_equal(np.asarray(ferrax.jit(gradient)(x)), [8.0, 0.0, 18.0])
    batched = ferrax.vmap(lambda x, m: x.at[m].set(0.0))(
        fjnp.ones((2, 3)), fjnp.array([[True, False, True], [False, False, True]])
    )
    np.testing.assert_array_equal(np.asarray(batched), [[0, 1, 0], [1, 1, 0]])


def test_traced_masks_that_need_their_count():
    x, mask = fjnp.array(X), fjnp.array([True, False, True])
    error = ferrax.errors.NonConcreteBooleanIndexError
    with pytest.raises(error):
        ferrax.jit(lambda x, m: x.at[m].get())(x, mask)
    with pytest.raises(error):
        ferrax.jit(lambda x, m: x.at[m, fjnp.array([0, 1])].set(1.0))(x, mask)


MASK = np.random.default_rng(0).random((4, 5)) > 0.4
VALUED = [
    (lambda m: (m[:, 0],), (4, 5, 3)), (lambda m: (m,), (20, 3)), (lambda m: (m,), (12, 1)),
    (lambda m: (slice(None), m[0]), (4, 5, 3)), (lambda m: (..., m[0], slice(0, 2)), (5, 1)),
    (lambda m: (m, None), (20, 1, 3)), (lambda m: (m, 1), (20,)), (lambda m: (m,), (7, 3)), (lambda m: (m,), (0, 3)),
]  # fmt: skip


@pytest.mark.parametrize("method", ["set", "add", "multiply", "max"])
@pytest.mark.parametrize("index, shape", VALUED)
def test_values_for_the_elements_of_a_traced_mask(index, shape, method):
    """The k-th True takes the k-th value, as in NumPy; those beyond the last value stay."""
    x = np.arange(60, dtype=np.float32).reshape(4, 5, 3)
    values = np.arange(1, 1 + np.prod(shape), dtype=np.float32).reshape(shape)

    def update(x, mask, values):
        return getattr(x.at[index(mask)], method)(values)

    got = ferrax.jit(update)(x, MASK, values)
    at = index(MASK)
    axis = next(i for i, item in enumerate(at) if isinstance(item, np.ndarray))
    at_values = values.ndim - x[at].ndim + sum(item is not None for item in at[:axis])
    if at[0] is ...:
        at_values = 0
    count = MASK[:, 0].sum() if at[axis].ndim == 1 and axis == 0 else at[axis].sum()
    kept = min(count, values.shape[at_values])
    flat = np.flatnonzero(at[axis])[:kept]
    short = np.zeros(at[axis].size, bool)
    short[flat] = True
    at = (*at[:axis], short.reshape(at[axis].shape), *at[axis + 1 :])
    given = np.take(values, np.arange(kept), axis=at_values)
    expected = x.copy()
    operation = {"add": np.add, "multiply": np.multiply, "max": np.maximum}.get(method)
    expected[at] = given if operation is None else operation(expected[at], given)
    np.testing.assert_array_equal(got, expected)


def test_values_for_a_traced_mask_have_derivatives_and_batches():
    mask = fjnp.array([[1, 0, 1, 1, 0], [0, 0, 0, 1, 1]], bool)

    def total(values, mask):
        return fjnp.sum(fjnp.arange(5.0).at[mask].set(values) ** 2)

    values = fjnp.array([10.0, 20.0, 30.0])
    got = ferrax.vmap(ferrax.jit(ferrax.grad(total)), in_axes=(None, 0))(values, mask)
    np.testing.assert_array_equal(got, [[20, 40, 60], [20, 40, 0]])


@pytest.mark.parametrize("method,ufunc", [("set", None), ("add", np.add), ("max", np.maximum)])
@pytest.mark.parametrize("size", [50, 300_000])
def test_indices_that_are_the_array_itself(size, method, ufunc):
    """Which is not updated in its own memory."""
    numbers = np.random.default_rng(0).integers(0, size, size).astype(np.int32)

    def update(x):
        x = (x * 3 + 1) % size
        at = x.at[x]
        return getattr(at, method)(-1, mode="promise_in_bounds", wrap_negative_indices=False)

    expected = (numbers * np.int32(3) + 1) % size
    indices = expected.copy()
    if ufunc is None:
        expected[indices] = -1
    else:
        ufunc.at(expected, indices, -1)
    np.testing.assert_array_equal(ferrax.jit(update)(numbers), expected)
