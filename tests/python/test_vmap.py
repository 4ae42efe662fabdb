"""`vmap` against JAX: axes, sizes, errors, and every structural op with each operand batched."""

import functools
import itertools
import warnings

import numpy as np
import pytest
from oracle import same

import ferrax
import ferrax.numpy as jnp


def arrays(S, *shapes, dtype="float32"):
    return [
        S.jnp.asarray(np.cos(np.arange(np.prod(shape, dtype=int)) * (k + 1)).reshape(shape), dtype)
        for k, shape in enumerate(shapes)
    ]


# Axes


AXES = {
    "int": lambda S, x, y: S.jax.vmap(S.jnp.add)(x, y),
    "none": lambda S, x, y: S.jax.vmap(S.jnp.add, in_axes=(0, None))(x, y[0]),
    "list": lambda S, x, y: S.jax.vmap(S.jnp.add, in_axes=[0, 0])(x, y),
    "negative": lambda S, x, y: S.jax.vmap(S.jnp.add, in_axes=-1, out_axes=-1)(x, y),
    "mixed": lambda S, x, y: S.jax.vmap(S.jnp.add, in_axes=(0, 1), out_axes=1)(x[:, :3], y[:3].T[:3].T),
    "dict": lambda S, x, y: S.jax.vmap(lambda d, z: d["a"] + d["b"] * z, in_axes=({"a": 0, "b": None}, 0))(
        {"a": x, "b": 2.0}, y),
    "nested": lambda S, x, y: S.jax.vmap(lambda t: t[0] * t[1][0] + t[1][1], in_axes=((0, (1, None)),))(
        (x, (y.T, 3.0))),
    "prefix": lambda S, x, y: S.jax.vmap(lambda t, z: t[0] + t[1] + z, in_axes=(0, None))((x, y), 1.0),
    "none_leaf": lambda S, x, y: S.jax.vmap(lambda x, n: x * 2)(x, None),
    "none_axes_for_none": lambda S, x, y: S.jax.vmap(lambda x, n: x * 2, in_axes=(0, None))(x, None),
    "kwargs": lambda S, x, y: S.jax.vmap(lambda x, *, y: x + y)(x, y=y),
    "kwargs_none_in_axes": lambda S, x, y: S.jax.vmap(lambda x, *, y: x + y, in_axes=None)(1.0, y=y),
    "kwargs_default": lambda S, x, y: S.jax.vmap(lambda x, s=2.0: x * s)(x),
    "none_is_known": lambda S, x, y: S.jax.vmap(lambda x, s: x * 2 if s > 1 else x, (0, None))(x, S.jnp.float32(2)),
    "none_is_a_shape": lambda S, x, y: S.jax.vmap(lambda x, n: S.jnp.ones(n) * x[0], (0, None))(x, 2),
    "none_is_no_array": lambda S, x, y: S.jax.vmap(
        lambda x, o: x * 2 if o["kind"] == "double" else x, (0, None))(x, {"kind": "double", "f": len}),
    "none_is_numpy": lambda S, x, y: S.jax.vmap(lambda x, n: x * np.sin(n), (0, None))(x, np.float32(2)),
    "none_is_static": lambda S, x, y: S.jax.vmap(
        S.jax.jit(lambda x, n: x * n, static_argnums=1), (0, None))(x, 2),
    "none_is_differentiated": lambda S, x, y: S.jax.grad(
        lambda s: S.jax.vmap(lambda x, s: x * s if s > 1 else x, (0, None))(x, s).sum())(2.0),
    "none_order": lambda S, x, y: S.jax.vmap(
        lambda a, x, b, y, c: (a * x - b, x * y + c), (None, 0, None, 1, None))(3, x, S.jnp.ones(4), y.T, 2.5),
    "none_sizes_differ": lambda S, x, y: S.jax.vmap(lambda a, x, y: y, (None, 0, 0))(1, x, y[:2]),
    "out_tree": lambda S, x, y: S.jax.vmap(lambda x, y: {"a": x, "b": (y, x * y)}, out_axes={"a": 1, "b": 0})(x, y),
    "out_tree_nested": lambda S, x, y: S.jax.vmap(lambda x, y: (x, [y, x * y]), out_axes=(1, [0, -1]))(x, y),
    "out_none": lambda S, x, y: S.jax.vmap(lambda x: (x, S.jnp.float32(3)), out_axes=(0, None))(x),
    "out_none_batched": lambda S, x, y: S.jax.vmap(lambda x: x, out_axes=None)(x),
    "out_prefix_error": lambda S, x, y: S.jax.vmap(lambda x: x, out_axes=(0, 0))(x),
    "out_range": lambda S, x, y: S.jax.vmap(lambda x: x.sum(), out_axes=1)(x),
    "out_range_negative": lambda S, x, y: S.jax.vmap(lambda x: x.sum(), out_axes=-2)(x),
    "out_list": lambda S, x, y: S.jax.vmap(lambda x: [x, x], out_axes=[0, 1])(x),
    "out_tuple_for_list": lambda S, x, y: S.jax.vmap(lambda x: [x, x], out_axes=(0, 1))(x),
    "unbatched_out": lambda S, x, y: S.jax.vmap(lambda x: (S.jnp.ones(2), 1, None))(x),
    "unbatched_out_axis": lambda S, x, y: S.jax.vmap(lambda x: S.jnp.ones(2), out_axes=1)(x),
    "identity": lambda S, x, y: S.jax.vmap(lambda x: x, in_axes=1, out_axes=1)(x),
    "move": lambda S, x, y: S.jax.vmap(lambda x: x, in_axes=1, out_axes=0)(x),
    "axis_size": lambda S, x, y: S.jax.vmap(lambda: S.jnp.ones(2), axis_size=3)(),
    "axis_size_none": lambda S, x, y: S.jax.vmap(lambda x: x, in_axes=None, axis_size=3)(x),
    "axis_size_wrong": lambda S, x, y: S.jax.vmap(lambda x: x, axis_size=5)(x),
    "axis_size_right": lambda S, x, y: S.jax.vmap(lambda x: x, axis_size=4)(x),
    "all_none": lambda S, x, y: S.jax.vmap(lambda x: x, in_axes=None)(x),
    "no_arguments": lambda S, x, y: S.jax.vmap(lambda: 1.0)(),
    "size_mismatch": lambda S, x, y: S.jax.vmap(S.jnp.add)(x, y[:2]),
    "size_mismatch_tree": lambda S, x, y: S.jax.vmap(lambda d, z: z)({"a": x, "b": y[:2]}, x),
    "count": lambda S, x, y: S.jax.vmap(S.jnp.add, in_axes=(0, 0, 0))(x, y),
    "rank_0": lambda S, x, y: S.jax.vmap(lambda x: x)(1.0),
    "rank_low": lambda S, x, y: S.jax.vmap(lambda x: x, in_axes=2)(x),
    "rank_low_negative": lambda S, x, y: S.jax.vmap(lambda x: x, in_axes=-3)(x),
    "tree_error": lambda S, x, y: S.jax.vmap(lambda x: x, in_axes=({"a": 0},))({"b": x}),
    "tree_error_tuple": lambda S, x, y: S.jax.vmap(lambda x: x, in_axes=((0, 0),))((x, y, x)),
    "axes_float": lambda S, x, y: S.jax.vmap(lambda x: x, in_axes=0.5)(x),
    "axes_string": lambda S, x, y: S.jax.vmap(lambda x: x, in_axes="0")(x),
    "axes_array": lambda S, x, y: S.jax.vmap(lambda x: x, in_axes=(1.5,))(x),
    "out_axes_float": lambda S, x, y: S.jax.vmap(lambda x: x, out_axes=0.5)(x),
    "not_callable": lambda S, x, y: S.jax.vmap(1),
    "string_leaf": lambda S, x, y: S.jax.vmap(lambda x: 1.0)("abc"),
    "string_out": lambda S, x, y: S.jax.vmap(lambda x: "abc")(x),
    "numpy_in": lambda S, x, y: S.jax.vmap(lambda x: x + 1)(np.arange(3)),
    "zero": lambda S, x, y: S.jax.vmap(lambda x: (x * 2, x.sum()))(x[:0]),
    "zero_inner": lambda S, x, y: S.jax.vmap(lambda x: (x * 2, x.sum()))(x[:, :0]),
    "one": lambda S, x, y: S.jax.vmap(lambda x: (x * 2, x.sum()))(x[:1]),
    "nested_vmap": lambda S, x, y: S.jax.vmap(S.jax.vmap(S.jnp.multiply, (0, None)), (None, 0))(x[0], y[0]),
    "nested_axes": lambda S, x, y: S.jax.vmap(S.jax.vmap(lambda a, b: a - b), in_axes=1, out_axes=1)(x, y),
    "closure": lambda S, x, y: S.jax.vmap(lambda x: S.jax.vmap(lambda y: x @ y)(y))(x),
    "weak": lambda S, x, y: (S.jax.vmap(lambda x: x * 2)(S.jnp.full((2,), 1)), S.jax.vmap(lambda x: 1.0)(x)),
    "decorator": lambda S, x, y: functools.partial(S.jax.vmap, in_axes=1)(lambda v: v.sum())(x),
    "shape_inside": lambda S, x, y: S.jax.vmap(lambda x: S.jnp.full((2,), x.ndim * 10 + x.shape[0]))(x),
    "if": lambda S, x, y: S.jax.vmap(lambda v: v if v.sum() > 0 else -v)(x),
    "float": lambda S, x, y: S.jax.vmap(lambda v: v * float(v[0]))(x),
    "escaped": lambda S, x, y: escape(S, x),
    "bool_mask": lambda S, x, y: S.jax.vmap(lambda v: v[v > 0])(x),
    "key": lambda S, x, y: S.jax.vmap(lambda k: S.random.uniform(k, (2,)))(S.random.split(S.random.key(0), 3)),
    "metadata": lambda S, x, y: S.jax.vmap(S.jnp.sin).__name__ != "",
}


def escape(S, x):
    held = []
    S.jax.vmap(lambda v: held.append(v) or v)(x)
    return held[0] + 1


@same
@pytest.mark.parametrize("name", AXES)
def test_axes(S, name):
    return AXES[name](S, *arrays(S, (4, 4), (4, 4)))


# Every structural op: each choice of batched operands against a loop


def loop(fun, axes, operands, size):
    rows = []
    for index in range(size):
        row = [
            x if axis is None else jnp.take(x, index, axis=axis)
            for x, axis in zip(operands, axes)
        ]
        rows.append(fun(*row))
    return ferrax.tree_util.tree_map(lambda *leaves: jnp.stack(leaves), *rows)


lax = ferrax.lax
ints = lambda *values: jnp.array(values, "int32")  # noqa: E731
f32 = lambda *shape: jnp.asarray(np.sin(np.arange(np.prod(shape, dtype=int)) * 1.7).reshape(shape), "float32")  # noqa: E731

GATHER = lax.GatherDimensionNumbers(offset_dims=(1,), collapsed_slice_dims=(0,), start_index_map=(0,))
SCATTER = lax.ScatterDimensionNumbers(
    update_window_dims=(1,), inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,)
)
GATHER2 = lax.GatherDimensionNumbers(offset_dims=(0,), collapsed_slice_dims=(1,), start_index_map=(0, 1))


def gather(mode):
    return lambda x, i: lax.gather(x, i, GATHER, (1, 3), mode=mode)


def scatter(fun, mode):
    return lambda x, i, u: fun(x, i, u, SCATTER, mode=mode)


STRUCTURAL = {
    "broadcast_in_dim": (lambda x: lax.broadcast_in_dim(x, (2, 3, 4), (1,)), [f32(3)]),
    "reshape": (lambda x: x.reshape(3, 2, 1), [f32(2, 3)]),
    "transpose": (lambda x: lax.transpose(x, (2, 0, 1)), [f32(2, 3, 4)]),
    "squeeze": (lambda x: lax.squeeze(x, (0, 2)), [f32(1, 3, 1)]),
    "expand_dims": (lambda x: lax.expand_dims(x, (0, 2)), [f32(3)]),
    "slice": (lambda x: lax.slice(x, (1, 0), (4, 3), (2, 1)), [f32(5, 3)]),
    "dynamic_slice": (lambda x, i, j: lax.dynamic_slice(x, (i, j), (2, 2)), [f32(5, 3), 2, 1]),
    "dynamic_slice_clamped": (lambda x, i: lax.dynamic_slice(x, (i, 0), (3, 2)), [f32(5, 3), 4]),
    "dynamic_update_slice": (
        lambda x, u, i, j: lax.dynamic_update_slice(x, u, (i, j)), [f32(5, 3), f32(2, 2), 4, 0]),
    "dynamic_index": (lambda x, i: lax.dynamic_index_in_dim(x, i, 1, keepdims=False), [f32(3, 4), 2]),
    "concatenate": (lambda x, y: lax.concatenate([x, y, x], 1), [f32(2, 3), f32(2, 1)]),
    "pad": (lambda x, v: lax.pad(x, v, [(1, 2, 1), (-1, 0, 0)]), [f32(3, 4), jnp.float32(7)]),
    "rev": (lambda x: lax.rev(x, (0,)), [f32(3, 2)]),
    "gather_clip": (gather("clip"), [f32(5, 3), ints(4, 0, 7, -2)[:, None]]),
    "gather_fill": (gather("fill"), [f32(5, 3), ints(4, 0, 7, -2)[:, None]]),
    "gather_promise": (gather("promise_in_bounds"), [f32(5, 3), ints(4, 0, 1, 2)[:, None]]),
    "gather_window": (
        lambda x, i: lax.gather(x, i, GATHER2, (2, 1), mode="clip"), [f32(5, 3), ints(1, 2)]),
    "scatter": (scatter(lax.scatter, "drop"), [f32(5, 3), ints(4, 0, 9)[:, None], f32(3, 3)]),
    "scatter_clip": (scatter(lax.scatter, "clip"), [f32(5, 3), ints(2, 0, 9)[:, None], f32(3, 3)]),
    "scatter_add": (scatter(lax.scatter_add, "drop"), [f32(5, 3), ints(4, 4, 9)[:, None], f32(3, 3)]),
    "scatter_sub": (scatter(lax.scatter_sub, "drop"), [f32(5, 3), ints(4, 4, -1)[:, None], f32(3, 3)]),
    "scatter_mul": (scatter(lax.scatter_mul, "clip"), [f32(5, 3), ints(4, 4, 9)[:, None], f32(3, 3)]),
    "scatter_min": (scatter(lax.scatter_min, "drop"), [f32(5, 3), ints(4, 4, 9)[:, None], f32(3, 3)]),
    "scatter_max": (scatter(lax.scatter_max, "drop"), [f32(5, 3), ints(4, 4, 9)[:, None], f32(3, 3)]),
    "index": (lambda x, i: x[i], [f32(5, 3), ints(1, -1, 3)]),
    "index_pair": (lambda x, i, j: x[i, :, j], [f32(4, 2, 3), ints(1, -1), ints(0, 2)]),
    "index_slice": (lambda x, i: x[1:, i], [f32(4, 3), 1]),
    "at_set": (lambda x, i, v: x.at[i].set(v), [f32(5, 3), ints(1, 4), f32(2, 3)]),
    "at_add": (lambda x, i, v: x.at[:, i].add(v), [f32(3, 5), ints(1, 1), 2.0]),
    "at_mul": (lambda x, i: x.at[i].multiply(3.0), [f32(5), ints(1, 4, 1)]),
    "at_get": (lambda x, i: x.at[i].get(mode="fill", fill_value=-1), [f32(5), ints(1, 9)]),
    "take": (lambda x, i: jnp.take(x, i, axis=1), [f32(2, 5), ints(0, 9, 2)]),
    "take_along_axis": (lambda x, i: jnp.take_along_axis(x, i, 1), [f32(2, 5), ints(0, 2, 1, 4).reshape(2, 2)]),
    "select_n": (lambda c, x, y: lax.select_n(c, x, y), [jnp.array([True, False]), f32(2), f32(2)]),
    "select_n_scalar": (lambda c, x, y: lax.select_n(c, x, y), [jnp.bool_(True), f32(2), f32(2)]),
    "select_n_many": (lambda c, x, y, z: lax.select_n(c, x, y, z), [ints(0, 2), f32(2), f32(2) + 1, f32(2) + 2]),
    "clamp": (lambda lo, x, hi: lax.clamp(lo, x, hi), [f32(3) - 1, f32(3), f32(3) + 0.2]),
    "clamp_scalar": (lambda lo, x, hi: lax.clamp(lo, x, hi), [jnp.float32(-0.1), f32(3), jnp.float32(0.5)]),
    "where": (lambda c, x, y: jnp.where(c, x, y), [jnp.array([True, False]), 1.0, f32(3, 2)]),
    "dot": (lambda x, y: x @ y, [f32(2, 3), f32(3, 4)]),
    "matvec": (lambda x, y: x @ y, [f32(2, 3), f32(3)]),
    "vecvec": (lambda x, y: x @ y, [f32(3), f32(3)]),
    "dot_general": (
        lambda x, y: lax.dot_general(x, y, (((1,), (2,)), ((0,), (1,)))), [f32(2, 3, 4), f32(5, 2, 3)]),
    "outer": (lambda x, y: lax.dot_general(x, y, (((), ()), ((), ()))), [f32(2), f32(3)]),
    "sum": (lambda x: (x.sum(0), x.sum((0, 1)), x.sum()), [f32(2, 3)]),
    "prod_max_min": (lambda x: (x.prod(1), x.max(0), x.min()), [f32(2, 3)]),
    "argmax": (lambda x: (x.argmax(1), x.argmin(0), x.argmax()), [f32(2, 3)]),
    "argmax_one": (lambda x: (x.argmax(), x.argmin(0), x[:1].argmax(0)), [f32(1)]),
    "any_all": (lambda x: ((x > 0).any(0), (x > 0).all()), [f32(2, 3)]),
    "xor": (lambda x: lax.reduce_xor(x, (0,)), [ints(3, 5, 6)]),
    "cumsum": (lambda x: (lax.cumsum(x, 1), lax.cumsum(x, 0, reverse=True)), [f32(2, 3)]),
    "cumulative": (
        lambda x: (lax.cumprod(x, 1), lax.cummax(x, 0), lax.cummin(x, 1), lax.cumlogsumexp(x, 0)), [f32(2, 3)]),
    "iota": (lambda x: lax.iota("int32", 3) + x.astype("int32"), [f32(3)]),
    "broadcasted_iota": (lambda x: lax.broadcasted_iota("int32", (2, 3), 1) * 1.0 + x, [f32(2, 3)]),
    "convert": (lambda x: (x.astype("int32"), x.astype("bfloat16"), x.astype(bool)), [f32(3) * 9]),
    "bitcast": (lambda x: lax.bitcast_convert_type(x, "int32"), [f32(3)]),
    "bitcast_narrow": (lambda x: lax.bitcast_convert_type(x, "uint16"), [f32(3)]),
    "integer_pow": (lambda x: (x**3, x**-1, x**0), [f32(3) + 2]),
    "stack": (lambda x, y: jnp.stack([x, y], 1), [f32(3), f32(3)]),
    "split": (lambda x: jnp.split(x, [1, 3], axis=1), [f32(2, 5)]),
    "tile": (lambda x: jnp.tile(x, (2, 2)), [f32(2, 3)]),
    "repeat": (lambda x: jnp.repeat(x, 2, axis=0), [f32(2, 3)]),
    "roll": (lambda x, k: jnp.roll(x, k), [f32(5), 2]),
    "einsum": (lambda x, y: jnp.einsum("ij,kj->ik", x, y), [f32(2, 3), f32(4, 3)]),
    "trace_diag": (lambda x: (jnp.trace(x), jnp.diag(x)), [f32(3, 3)]),
    "triu": (lambda x: jnp.triu(x), [f32(3, 3)]),
    "mean_var": (lambda x: (x.mean(0), x.var()), [f32(2, 3)]),
    "jit": (lambda x, y: ferrax.jit(lambda a, b: a * b + 1)(x, y), [f32(2), f32(2)]),
    "grad": (lambda x, y: ferrax.grad(lambda a: (jnp.sin(a) * y).sum())(x), [f32(2), f32(2)]),
    "mixed_rank": (lambda x, y: x + y, [f32(2, 3), f32(3)]),
    "scalar_rank": (lambda x, y: x * y, [f32(2, 3), jnp.float32(2)]),
    "one_hot": (lambda i: ferrax.nn.one_hot(i, 3), [ints(0, 2, 7)]),
    "softmax": (lambda x: ferrax.nn.softmax(x, axis=0), [f32(2, 3)]),
    "split_key": (lambda s: ferrax.random.key_data(ferrax.random.split(ferrax.random.key(s), 2)), [3]),
    "fold_in": (lambda s, d: ferrax.random.key_data(ferrax.random.fold_in(ferrax.random.key(s), d)), [3, 5]),
    "uniform": (lambda s: ferrax.random.uniform(ferrax.random.key(s), (3,)), [3]),
    "normal_bits": (
        lambda s: (ferrax.random.normal(ferrax.random.key(s), (2,)), ferrax.random.bits(ferrax.random.key(s))), [3]),
}


def batch_operand(x, axis, size, index):
    """A batch of variations of an operand, stacked along `axis`."""
    x = jnp.asarray(x)
    if x.dtype == jnp.bool_:
        rows = [x if k % 2 == 0 else ~x for k in range(size)]
    elif jnp.issubdtype(x.dtype, jnp.integer):
        rows = [x if k == 0 else jnp.maximum(x - k, 0) for k in range(size)]
    else:
        rows = [x * (1 - 0.25 * k) + 0.01 * index for k in range(size)]
    return jnp.stack(rows, axis)


def choices(operands):
    """Which operands are batched and where: each alone and all, at the first and the last axis."""
    count = len(operands)
    picks = {tuple(k == i for k in range(count)) for i in range(count)} | {(True,) * count}
    if count > 2:
        picks |= {tuple(k != i for k in range(count)) for i in range(count)}
    for pick in sorted(picks):
        for last in (False, True):
            yield [
                None if not use else (jnp.ndim(x) if last else 0) for use, x in zip(pick, operands)
            ]


@pytest.mark.parametrize("name", STRUCTURAL)
def test_structural_ops_against_a_loop(name):
    fun, operands = STRUCTURAL[name]
    size = 3
    for axes in choices(operands):
        batched = [
            x if axis is None else batch_operand(x, axis, size, index)
            for index, (x, axis) in enumerate(zip(operands, axes))
        ]
        expected = loop(fun, axes, batched, size)
        got = ferrax.vmap(fun, in_axes=tuple(axes))(*batched)
        staged = ferrax.jit(ferrax.vmap(fun, in_axes=tuple(axes)))(*batched)
        leaves = ferrax.tree_util.tree_leaves
        for a, b, c in zip(leaves(got), leaves(staged), leaves(expected)):
            assert a.shape == c.shape and a.dtype == c.dtype, f"{axes}: {a.aval} for {c.aval}"
            for value in (a, b):
                np.testing.assert_allclose(
                    np.asarray(value, "float64"), np.asarray(c, "float64"), rtol=2e-5, atol=2e-6, err_msg=str(axes)
                )


@pytest.mark.parametrize("name", ["gather_clip", "scatter_add", "dynamic_slice", "dot", "concatenate", "where"])
def test_nested_batches_against_loops(name):
    fun, operands = STRUCTURAL[name]
    outer = [batch_operand(batch_operand(x, 0, 2, k), 0, 3, k) for k, x in enumerate(operands)]
    inner = lambda *rows: loop(fun, [0] * len(rows), list(rows), 2)  # noqa: E731
    expected = loop(inner, [0] * len(outer), outer, 3)
    got = ferrax.vmap(ferrax.vmap(fun))(*outer)
    np.testing.assert_allclose(got, expected, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("name", ["gather_clip", "gather_fill", "scatter_add", "scatter_mul", "dynamic_slice",
                                  "dynamic_update_slice", "pad", "index_pair", "take", "clamp", "cumulative"])
def test_gradients_of_batches_against_loops(name):
    fun, operands = STRUCTURAL[name]
    x, rest = operands[0], operands[1:]
    batch = [batch_operand(x, 0, 3, 0)] + [batch_operand(y, 0, 3, 1) for y in rest]

    def total(*args):
        leaves = ferrax.tree_util.tree_leaves(fun(*args))
        return sum((jnp.nan_to_num(leaf) * jnp.cos(jnp.arange(leaf.size * 1.0).reshape(leaf.shape))).sum()
                   for leaf in leaves)

    try:
        expected = loop(ferrax.grad(total), [0] * len(batch), batch, 3)
    except NotImplementedError:
        with pytest.raises(NotImplementedError):
            ferrax.vmap(ferrax.grad(total))(*batch)
        return
    got = ferrax.vmap(ferrax.grad(total))(*batch)
    np.testing.assert_allclose(got, expected, rtol=2e-5, atol=2e-6)
    both = ferrax.grad(lambda *args: ferrax.vmap(total)(*args).sum())(*batch)
    np.testing.assert_allclose(both, expected, rtol=2e-5, atol=2e-6)


RANDOM = {
    "uniform": lambda R, k: R.uniform(k, (3,)),
    "normal": lambda R, k: R.normal(k, (2, 2)),
    "randint": lambda R, k: R.randint(k, (3,), 0, 100),
    "bits8": lambda R, k: R.bits(k, (5,), "uint8"),
    "bits16": lambda R, k: R.bits(k, (5,), "uint16"),
    "split": lambda R, k: R.key_data(R.split(k, 3)),
    "fold_in": lambda R, k: R.key_data(R.fold_in(k, 7)),
    "bernoulli": lambda R, k: R.bernoulli(k, 0.3, (4,)),
    "gumbel": lambda R, k: R.gumbel(k, (3,)),
    "exponential": lambda R, k: R.exponential(k, (3,)),
    "odd": lambda R, k: R.uniform(k, (3, 1, 3)),
}


@pytest.mark.parametrize("name", RANDOM)
def test_random_per_key_equals_the_loop(name):
    keys = ferrax.random.split(ferrax.random.key(5), 4)
    sample = functools.partial(RANDOM[name], ferrax.random)
    expected = np.stack([np.asarray(sample(keys[i])) for i in range(4)])
    got = np.asarray(ferrax.vmap(sample)(keys))
    if got.dtype.kind == "f":
        np.testing.assert_allclose(got, expected, rtol=1e-6)
    else:
        np.testing.assert_array_equal(got, expected)
    raw = ferrax.random.key_data(keys)
    np.testing.assert_allclose(np.asarray(ferrax.vmap(sample)(raw), "float64"), got.astype("float64"), rtol=1e-6)


@same
@pytest.mark.parametrize("name", RANDOM)
def test_random_batches_against_jax(S, name):
    keys = S.random.split(S.random.key(9), 3)
    return S.jax.vmap(functools.partial(RANDOM[name], S.random))(keys)


@same(weak=False)
@pytest.mark.parametrize("order", list(itertools.permutations(["grad", "vmap", "jit"])), ids="-".join)
def test_orders_of_transformations(S, order):
    fun = lambda x: (S.jnp.sin(x) * x[::-1]).sum()  # noqa: E731
    x = S.jnp.arange(6.0).reshape(2, 3)
    if order.index("grad") < order.index("vmap"):
        steps = {"grad": S.jax.grad, "vmap": S.jax.vmap, "jit": S.jax.jit}
    else:
        steps = {
            "vmap": lambda f: lambda x: S.jax.vmap(f)(x).sum(),
            "grad": S.jax.grad,
            "jit": S.jax.jit,
        }
    for step in order:
        fun = steps[step](fun)
    return fun(x)


class Answering:
    """A function that has an answer for each attribute, which is no string."""

    def __call__(self, x):
        return 2 * x.sum()

    def __getattribute__(self, name):
        return self if name in ("__name__", "__annotations__") else object.__getattribute__(self, name)


@pytest.mark.parametrize("name", ["vmap", "grad", "checkpoint", "jacfwd", "linearize"])
@same(weak=False)
def test_functions_whose_name_is_no_string(S, name):
    f = Answering()
    x = S.jnp.ones((2, 3))
    if name == "linearize":
        return S.jax.linearize(f, x)[0]
    return getattr(S.jax, name)(f)(x)


@same
def test_numpy_takes_the_dtype_of_a_traced_value(S):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = []
        S.jax.eval_shape(lambda x: found.append(np.result_type(x)), S.jnp.ones(2, "float16"))
        return found[0].name
