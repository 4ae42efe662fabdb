"""``ferrax.lax``'s structural functions against ``jax.lax``: values, dtypes, weak types, errors."""

import warnings

import errors_expected
import jax
import jax.lax as jlax
import jax.numpy as jjnp
import numpy as np
import pytest
from oracle import compare_arrays

import ferrax
import ferrax.lax as flax
import ferrax.numpy as fjnp

X = np.arange(60, dtype=np.float32).reshape(3, 4, 5)

# Each is evaluated with x (3,4,5), v (3,), i (2,) int32 and b (3,) bool.
EXPRESSIONS = """
lax.broadcast(x, (2,))
lax.broadcast(x, (-1,))
lax.broadcast(1, (2,))
lax.broadcast_in_dim(v, (2, 3, 4), (1,))
lax.broadcast_in_dim(x, (3, 4), (0, 1))
lax.broadcast_in_dim(x, (2, 4, 5), (0, 1, 2))
lax.broadcast_in_dim(v, (3, 4), (2,))
lax.broadcast_in_dim(v, (3, 4), (-1,))
lax.broadcast_to_rank(v, 3)
lax.broadcast_like(1.0, v)
lax.broadcast_like(v, x)
lax.reshape(x, (5, 12))
lax.reshape(x, 60)
lax.reshape(x, (60,), (2, 1, 0))
lax.reshape(x, (-1,))
lax.reshape(x, (60.0,))
lax.reshape([1, 2], (2,))
lax.reshape(x, (60,), dimensions=(0, 0, 1))
lax.transpose(x, (2, 0, 1))
lax.transpose(x, (0, 1))
lax.transpose(x, (0, 1, -1))
lax.squeeze(x[:1], (0,))
lax.squeeze(x[:1], (-3,))
lax.squeeze(x, (0,))
lax.squeeze(x[:1], (0, 0))
lax.squeeze(x[:1], (3,))
lax.expand_dims(x, (0, -1))
lax.expand_dims(x, (0, 0))
lax.expand_dims(x, (5,))
lax.collapse(x, 0, 2)
lax.collapse(x, -2)
lax.collapse(x, 2, 1)
lax.slice(x, (0, 1, 2), (3, 4, 5))
lax.slice(x, (0, 1, 0), (3, 4, 5), (2, 1, 3))
lax.slice(x, (0, 0), (1, 1))
lax.slice(x, (0, 0, 0), (1, 1, 9))
lax.slice(x, (2, 0, 0), (1, 1, 1))
lax.slice_in_dim(x, -2, -1, axis=1)
lax.slice_in_dim(x, None, None, 2, axis=2)
lax.slice_in_dim(x, 5, 9, axis=0)
lax.index_in_dim(x, -1, 1)
lax.index_in_dim(x, -1, 1, keepdims=False)
lax.index_in_dim(x, 7, 1)
lax.dynamic_slice(x, (1, -1, 9), (1, 2, 2))
lax.dynamic_slice(x, (-9, 0, 0), (2, 2, 2))
lax.dynamic_slice(x, jnp.array([1, 2, 3]), (1, 2, 2))
lax.dynamic_slice(x, (1,), (1, 1, 1))
lax.dynamic_slice(x, (1, 1, 1), (1, 1, 9))
lax.dynamic_slice(x, i[:, None], (1, 1, 1))
lax.dynamic_slice_in_dim(x, -2, 2, axis=1)
lax.dynamic_index_in_dim(x, 7, 1, keepdims=False)
lax.dynamic_update_slice(x, -x[:2, :2, :2], (2, -1, 1))
lax.dynamic_update_slice(x, x[:, :, :1].astype(int), (0, 0, 0))
lax.dynamic_update_slice(v, jnp.ones(9), (0,))
lax.dynamic_update_slice_in_dim(x, -x[:, :2], 3, 1)
lax.dynamic_update_index_in_dim(x, -x[:, 0], 1, 1)
lax.concatenate([v, v, 2 * v], 0)
lax.concatenate([], 0)
lax.concatenate([x, x], 3)
lax.concatenate([x, v], 0)
lax.concatenate([x, x[:, :1]], 0)
lax.concatenate([v, v.astype(int)], 0)
lax.stack([v, v], 1)
lax.stack([v, v], 2)
lax.stack([v, x])
lax.split(x, (1, 2))
lax.split(x, (1, 3), 1)
lax.split(x, (1, 1))
lax.split(x, (-1, 4), 0)
lax.unstack(x, 1)
lax.tile(x, (2, 1, 3))
lax.tile(x, (2,))
lax.pad(v, 0.0, [(1, 2, 1)])
lax.pad(v, 0.0, [(-1, 2, 0)])
lax.pad(v, 0.0, [(-4, 0, 0)])
lax.pad(x, 0.0, [(0, 0, 0)])
lax.pad(x, 0, [(0, 0, 0)] * 3)
lax.pad(v, v, [(1, 0, 0)])
lax.pad(v, 0.0, [(0, 0, -1)])
lax.rev(x, (0, 2))
lax.rev(x, (0, 0))
lax.rev(x, (3,))
lax.rev(x, (-1,))
lax.iota(int, 3)
lax.iota('complex64', 3)
lax.iota(bool, 3)
lax.iota('float32', -3)
lax.iota('float32', 3.0)
lax.broadcasted_iota('float16', (2, 3), 1)
lax.broadcasted_iota(int, (2, 3), 2)
lax.full((2,), 1)
lax.full((2,), 1, float)
lax.full((2,), v)
lax.full((-2,), 1)
lax.full_like(x, 1)
lax.full_like(x, 1, int, (2,))
lax.full_like(jnp.array(1.0), 1, shape=(2,))
lax.full_like(1.0, 2)
lax.empty((2, 1), 'float32').shape
lax.broadcast_shapes((2, 1), (3,), ())
lax.broadcast_shapes((2, 1), (3, 3))
lax.broadcast_shapes((2, 1), (-1,))
lax.broadcast_shapes((1.0, 2))
lax.reduce_sum(x, (0, 2))
lax.reduce_sum(x, (0, 0))
lax.reduce_sum(x, (3,))
lax.reduce_sum(x, (-1,))
lax.reduce_sum(b, (0,))
lax.reduce_prod(x + 1, (2,))
lax.reduce_max(x, (0,))
lax.reduce_max(x[:0], (0,))
lax.reduce_min(x[:0].astype(int), (0,))
lax.reduce_and(b, (0,))
lax.reduce_or(i, (0,))
lax.reduce_xor(i, (0,))
lax.reduce_and(x, (0,))
lax.argmax(x % 7, 1, 'int32')
lax.argmin(x % 7, 2, 'uint8')
lax.argmax(x, -1, int)
lax.argmax(x, 0, float)
lax.argmax(x[:0], 0, int)
lax.cumsum(x, 1)
lax.cumsum(x, 2, reverse=True)
lax.cumsum(x, 3)
lax.cumsum(x, -1)
lax.cumprod(v + 1)
lax.cummax(x % 7, 2)
lax.cummin(x % 7, 2, reverse=True)
lax.cumlogsumexp(v)
lax.dot_general(x, x, (((2,), (2,)), ((0,), (0,))))
lax.dot_general(x, x, (((2,), (1,)), ((0,), (0,))))
lax.dot_general(x, x, (((2,), (2,)), ((0,), (0, 1))))
lax.dot_general(x, x, (((2, 2), (2, 2)), ((0,), (0,))))
lax.dot_general(x, x, (((3,), (2,)), ((0,), (0,))))
lax.dot_general(v, v, (((0,), (0,)), ((), ())), precision='highest')
lax.dot_general(v, v, (((0,), (0,)), ((), ())), precision='foo')
lax.dot_general(v, v, (((0,), (0,)), ((), ())), precision=('high', 'highest'))
lax.dot_general(v, v, (((0,), (0,)), ((), ())), preferred_element_type='float16')
lax.dot(x[0], x[0].T)
lax.dot(v, v)
lax.dot(x, x)
lax.batch_matmul(x, x.transpose(0, 2, 1))
lax.batch_matmul(v, v)
lax.convert_element_type(x, int)
lax.convert_element_type(1, float)
lax.convert_element_type(x * 1j, float)
lax.convert_element_type(x, 'foo')
lax.convert_element_type([1], int)
lax.convert_element_type(2**31, 'uint32')
lax.bitcast_convert_type(x, 'int32')
lax.bitcast_convert_type(x, 'int8')
lax.bitcast_convert_type(x, bool)
lax.integer_pow(x, 3)
lax.integer_pow(x + 1, -2)
lax.integer_pow(i, -1)
lax.round(v / 2)
lax.round(v / 2, lax.RoundingMethod.TO_NEAREST_EVEN)
lax.round(v, 5)
lax.round(i)
lax.reduce_precision(v / 3, 5, 3)
lax.reduce_precision(v, 0, 3)
lax.reduce_precision(v, 5, -1)
lax.select(b, v, 2 * v)
lax.select(True, v, 2 * v)
lax.select(b, v, 1.0)
lax.select(v, v, v)
lax.reciprocal(v + 1)
lax.reciprocal(i)
lax.clamp(1.0, v, 2.0)
lax.clamp(0, v, 1.0)
lax.reduce(x, 0.0, lax.add, (0,))
lax.reduce(x, 1.0, lax.mul, (2,))
lax.reduce(x, 0.0, lambda a, b: lax.max(b, a), (1, 2))
lax.reduce(x, 0.0, lambda a, b: lax.sqrt(a * a + b * b), (0,))
lax.reduce(x[:0], 2.0, lambda a, b: lax.sqrt(a * a + b * b), (0,))
lax.reduce(x, 1, lax.add, (0,))
lax.reduce(x, v, lax.add, (0,))
lax.reduce(x, 0.0, lax.add, (4,))
lax.gather(x, i[:, None], lax.GatherDimensionNumbers((1, 2), (0,), (0,)), (1, 4, 5))
lax.gather(x, i[:, None] + 2, lax.GatherDimensionNumbers((1,), (0, 1), (0,)), (1, 1, 5))
lax.gather(x, i[:, None] + 2, lax.GatherDimensionNumbers((1,), (0, 1), (0,)), (1, 1, 5), mode='clip')
lax.gather(x, v[:2, None], lax.GatherDimensionNumbers((1, 2), (0,), (0,)), (1, 4, 5))
lax.gather(x, i[:, None], lax.GatherDimensionNumbers((1, 2), (0,), (0,)), (1, 4, 6))
lax.gather(x, i[:, None], lax.GatherDimensionNumbers((1, 2), (0,), (0,)), (1, 4, 5), mode='foo')
lax.scatter(v, i[:, None], -v[:2], lax.ScatterDimensionNumbers((), (0,), (0,)))
lax.scatter_add(v, i[:, None] * 9, -v[:2], lax.ScatterDimensionNumbers((), (0,), (0,)))
lax.scatter_mul(v, i[:, None] * 0, v[1:], lax.ScatterDimensionNumbers((), (0,), (0,)))
lax.scatter_min(v, i[:, None], -v[:2], lax.ScatterDimensionNumbers((), (0,), (0,)))
lax.scatter_max(v, i[:, None], 9 * v[:2], lax.ScatterDimensionNumbers((), (0,), (0,)))
lax.scatter_sub(v, i[:, None], v[:2], lax.ScatterDimensionNumbers((), (0,), (0,)), mode='clip')
lax.scatter(v, i[:, None], i, lax.ScatterDimensionNumbers((), (0,), (0,)))
lax.scatter_apply(v, i[:, None] * 0 + 2, jnp.square, lax.ScatterDimensionNumbers((), (0,), (0,)), update_shape=(2,))
lax.scatter_apply(v, i[:, None], jnp.square, lax.ScatterDimensionNumbers((), (0,), (0,)), update_shape=(2,), unique_indices=True)
lax.index_take(x, (i, i), (0, 1))
lax.shape_as_value((2, 3))
lax.Precision('bfloat16_3x').name
lax.GatherScatterMode.from_any(None).name
lax.GatherScatterMode.from_any('drop').value
str(lax.Precision.HIGHEST)
int(lax.RoundingMethod.TO_NEAREST_EVEN)
""".strip().splitlines()  # noqa: E501


def evaluate(expression, lax, jnp):
    names = {
        "lax": lax,
        "jnp": jnp,
        "x": jnp.array(X),
        "v": jnp.arange(3.0),
        "i": jnp.array([0, 1]),
        "b": jnp.array([True, False, True]),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return eval(expression, names)
        except Exception as error:  # compared by class
            return error


# Where an error of ours is of a better class than JAX's, or where JAX reports it only when it runs.
OTHER_CLASS = {
    "lax.slice(x, (0, 0), (1, 1))",
    "lax.dynamic_slice(x, (1,), (1, 1, 1))",
}


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_expression(expression):
    expected, got = evaluate(expression, jlax, jjnp), evaluate(expression, flax, fjnp)
    if isinstance(expected, Exception):
        assert isinstance(got, Exception), f"no error, but {got!r}"
        if expression not in OTHER_CLASS:
            assert type(got).__name__ == type(expected).__name__, (expected, got)
        errors_expected.record(type(got).__name__)
        return
    if isinstance(got, Exception):
        raise got
    several = isinstance(expected, (list, tuple))
    if not hasattr(expected[0] if several else expected, "dtype"):
        assert expected == got
        return
    expected, got = (expected, got) if several else ([expected], [got])
    assert len(expected) == len(got)
    for e, g in zip(expected, got):
        compare_arrays(g, e, weak="shape_as_value" not in expression)


def test_nothing_to_do_returns_the_operand():
    x = fjnp.array(X)
    assert flax.reshape(x, (3, 4, 5)) is x
    assert flax.transpose(x, (0, 1, 2)) is x
    assert flax.squeeze(x, ()) is x
    assert flax.concatenate([x], 0) is x
    assert flax.convert_element_type(x, x.dtype) is x


def test_dynamic_starts_under_jit():
    for start in (-9, -2, 0, 1, 9):
        expected = jax.jit(lambda x, s: jlax.dynamic_slice(x, (s, 0, s), (2, 2, 2)))(X, start)
        got = ferrax.jit(lambda x, s: flax.dynamic_slice(x, (s, 0, s), (2, 2, 2)))(
            fjnp.array(X), start
        )
        np.testing.assert_array_equal(np.asarray(expected), np.asarray(got))


@pytest.mark.parametrize(
    "f",
    [
        lambda lax, x: lax.pad(x, 0.0, [(1, -1, 1)] * 3),
        lambda lax, x: lax.rev(lax.transpose(x, (1, 0, 2)), (0,)),
        lambda lax, x: lax.dynamic_slice(x, (1, 1, 1), (1, 2, 3)),
        lambda lax, x: lax.dynamic_update_slice(x, x[:1] * 3, (1, 0, 0)),
        lambda lax, x: lax.concatenate([x, x * 2], 1),
        lambda lax, x: lax.cumsum(x, 1),
        lambda lax, x: lax.reduce_max(x, (1,)),
        lambda lax, x: lax.dot_general(x, x, (((2,), (2,)), ((0,), (0,)))),
        lambda lax, x: lax.tile(x, (1, 2, 1)),
        lambda lax, x: lax.stop_gradient(x) * x,
    ],
)
def test_gradients(f):
    def loss(lax):
        return lambda x: (f(lax, x) * f(lax, x)).sum()

    expected = jax.grad(loss(jlax))(jjnp.array(X))
    got = ferrax.grad(loss(flax))(fjnp.array(X))
    compare_arrays(got, expected)


def test_stop_gradient_of_trees():
    v = fjnp.arange(3.0)
    out = flax.stop_gradient({"a": v, "b": 1, "c": None})
    assert out["b"] == 1 and out["c"] is None
    np.testing.assert_array_equal(np.asarray(out["a"]), np.asarray(v))
    with pytest.raises(TypeError):
        flax.stop_gradient("a")
