"""Arrays whose axes lie in memory in another order than row by row: beside JAX's, whose layouts of the CPU are the same."""

import copy
import pickle

import numpy as np
import pytest
from oracle import module, same
from test_mesh import outcomes

import ferrax
import ferrax.numpy as jnp
from ferrax.experimental.layout import Format, Layout

X = np.arange(12, dtype=np.float32).reshape(3, 4)
CUBE = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
ONE = ferrax.sharding.SingleDeviceSharding(ferrax.devices()[0])
COLUMNS = Format(Layout((1, 0)), ONE)


def formats(S):
    """A function that makes formats on the first device, and one for the order of an array in memory."""
    layout, where = module(S, "experimental.layout"), S.jax.sharding.SingleDeviceSharding(S.jax.devices()[0])
    return lambda *order: layout.Format(layout.Layout(order), where), lambda x: x.format.layout.major_to_minor


def auto(S):
    layout = module(S, "experimental.layout")
    return layout.Format(layout.Layout.AUTO)


def put(x, order=(1, 0)):
    return ferrax.device_put(x, Format(Layout(order), ONE))


@same
def test_arrays_lie_as_they_are_put(S):
    of, order = formats(S)
    x, y = S.jax.device_put(X, of(1, 0)), S.jax.device_put(CUBE, of(2, 0, 1))
    found = [
        (order(a), np.asarray(a).strides, np.asarray(a).flags.writeable, a.shape, str(a.dtype), a.committed, a.nbytes)
        for a in (x, y, S.jax.device_put(x, of(0, 1)), S.jax.device_put(y, of(1, 2, 0)))
    ]
    orders = [order(S.jax.device_put(x, where)) for where in (None, S.jax.devices()[0], x.sharding, S.jax.devices()[1])]
    orders += [order(S.jax.device_put(x, may_alias=False)), order(x.addressable_data(0)), order(S.jnp.asarray(x))]
    open_format = type(x.format)
    orders += [order(S.jax.device_put(x, open_format())), order(S.jax.device_put(x, open_format(None, x.sharding)))]
    views = [np.from_dlpack(x).strides, np.from_dlpack(y).strides, np.array(x, "float64").strides]
    return x, y, found, orders, views, str(x.format), repr(x), str(x), f"{x}"


@same
def test_what_computes_reads_rows(S):
    of, order = formats(S)
    jax, jnp = S.jax, S.jnp
    x, w = jax.device_put(X, of(1, 0)), jax.device_put(CUBE, of(2, 0, 1))
    results = [
        x + 1, 1 - x, X + x, x @ x.T, -x, x == x, divmod(x, 2), x[1], x[:, 1:], x[x > 3], x.at[0, 0].set(5.0), x.T,
        x.sum(0), x.reshape(2, 6), x.copy(), jnp.sin(x), jnp.concatenate([x, x]), jnp.array(x), jnp.where(x > 2, x, 0),
        jax.grad(lambda a: (a * x).sum())(x), jax.vmap(lambda a: a * 2, in_axes=1)(x), jax.jit(lambda a: a * x)(x),
        jax.lax.scan(lambda c, a: (c + 1, a * 2), x, w), jax.lax.cond(True, lambda: x, lambda: x * 2),
        jax.lax.while_loop(lambda a: a.sum() < 100, lambda a: a + 1, x), jax.jvp(jnp.sin, (x,), (x,)),
        jax.lax.fori_loop(0, 2, lambda i, a: a + w, w), jax.vjp(lambda a: a * a, x)[1](x), jnp.einsum("abc->cab", w),
        jax.pure_callback(np.negative, jax.ShapeDtypeStruct(x.shape, x.dtype), x), jnp.zeros((3, 4)).at[...].set(x),
        jnp.arange(24)[w.astype(int)], jax.device_get(x), pickle.loads(pickle.dumps(x)), copy.deepcopy(x),
    ]  # fmt: skip
    rows = [order(a) for a in jax.tree.leaves(results[:19])]
    return results, rows, x.tolist(), x[0, 1].item(), list(x), len(x), jax.tree.map(order, [x, {"a": w}])


@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "float16", "bfloat16", "float32", "int64", "complex64", "complex128", "int4"]
)
def test_elements_of_all_sizes(dtype):
    with ferrax.enable_x64(True):
        rows = jnp.arange(24).reshape(2, 3, 4).astype(dtype)
        x = put(rows, (2, 0, 1))
        assert x.dtype == rows.dtype and x.format.layout.major_to_minor == (2, 0, 1)
        np.testing.assert_array_equal(np.asarray(x), np.asarray(rows))
        np.testing.assert_array_equal(np.asarray(x._data), np.asarray(rows).transpose(2, 0, 1))
        assert bool((x == rows).all()) and bool((put(x, (0, 1, 2)) == rows).all())


@same
def test_small_and_empty_arrays(S):
    of, order = formats(S)
    arrays = [np.float32(2), np.arange(3.0, dtype=np.float32), np.zeros((0, 4), np.float32), np.ones((1, 1), np.float32)]
    put = [S.jax.device_put(a, of(*reversed(range(np.ndim(a))))) for a in arrays]
    return put, [order(a) for a in put], [a + 1 for a in put]


def test_keys():
    keys = ferrax.random.split(ferrax.random.key(0), (2, 3))
    x = put(keys)
    assert x.format.layout.major_to_minor == (1, 0) and x.shape == (2, 3) and x.dtype == keys.dtype
    expected = ferrax.random.key_data(keys)
    assert bool((ferrax.random.key_data(x) == expected).all())
    assert bool((ferrax.random.key_data(pickle.loads(pickle.dumps(x))) == expected).all()) and repr(x) == repr(keys)


@same
def test_jit_with_formats(S):
    of, order = formats(S)
    jax, jnp = S.jax, S.jnp
    x = jax.device_put(X, of(1, 0))
    rows = jax.device_put(X, S.jax.devices()[0])
    step = jax.jit(lambda a: a * 2, in_shardings=of(1, 0), out_shardings=of(1, 0))
    tree = jax.jit(lambda a: {"u": a, "v": [a.T, a.sum()]}, out_shardings={"u": of(1, 0), "v": None})(X)
    static = jax.jit(lambda k, a: a * k, static_argnums=0, in_shardings=(of(1, 0),), out_shardings=of(1, 0))
    named = jax.jit(lambda a, b, *, k: a * b * k, static_argnames="k", out_shardings=of(1, 0))
    results = [
        step(x), step(step(x)), step(X), step(jnp.asarray(X)), tree, static(2, x), static(3, x), named(X, b=x, k=3),
        jax.jit(lambda a: a + 1, in_shardings=of(1, 0))(x), jax.jit(lambda a: a + x, out_shardings=of(1, 0))(X),
        jax.jit(lambda a, b: (b, a), in_shardings=(None, of(2, 0, 1)))(x, CUBE),
        jax.jit(lambda a: step(a))(X), jax.grad(lambda a: step(a).sum())(X),
    ]  # fmt: skip
    return results, [order(a) for a in jax.tree.leaves(results[:-2])], outcomes(
        S,
        lambda: step(rows),
        lambda: jax.jit(lambda a: a, in_shardings=of(0, 1))(x),
        lambda: jax.jit(lambda a: a, in_shardings=auto(S))(x),
        lambda: jax.jit(lambda a: a, in_shardings=auto(S))(rows),
        lambda: jax.jit(lambda a: a, in_shardings=auto(S)).lower(rows),
        lambda: jax.jit(lambda a: a, in_shardings=of(0, 1, 2))(X),
        lambda: jax.jit(lambda a: a, in_shardings=of(1, 0).layout),
        lambda: static([2], X),
    )


@same
def test_compiled_functions_tell_and_check_formats(S):
    of, order = formats(S)
    jax = S.jax
    x = jax.device_put(X, of(1, 0))
    rows = jax.device_put(X, S.jax.devices()[0])
    struct = jax.ShapeDtypeStruct(X.shape, X.dtype, sharding=of(1, 0))

    def told(lowered):
        compiled = lowered.compile()
        leaves = jax.tree.leaves((compiled.input_formats, compiled.output_formats))
        return [where.layout.major_to_minor for where in leaves]

    columns = jax.jit(lambda a: (a * 2, a.T), in_shardings=of(1, 0), out_shardings=(of(1, 0), None)).lower(X).compile()
    by_rows = jax.jit(lambda a: a * 2).lower(X).compile()
    results = [columns(x), columns(X), columns(S.jnp.asarray(X)), by_rows(X)]
    return results, [order(a) for a in jax.tree.leaves(results)], [
        told(jax.jit(lambda a: a.T).lower(x)),
        told(jax.jit(lambda a: a.T).lower(struct)),
        told(jax.jit(lambda a: a.T, in_shardings=of(1, 0)).lower(X)),
        (struct.shape, struct.sharding == x.sharding, struct.format.layout.major_to_minor),
        struct == jax.ShapeDtypeStruct(X.shape, X.dtype, sharding=x.sharding),
        jax.jit(lambda a: a, out_shardings=of(1, 0)).eval_shape(x).format == of(1, 0),
    ], outcomes(
        S,
        lambda: columns(rows),
        lambda: by_rows(x),
        lambda: columns(X.T),
        lambda: jax.jit(lambda a: a, in_shardings=of(0, 1)).lower(x),
        lambda: jax.ShapeDtypeStruct(X.shape, X.dtype, sharding=auto(S)),
    )  # fmt: skip


AUTO = {
    "transpose": lambda S, a: a.T,
    "elements": lambda S, a: S.jnp.sin(a.T) + 1,
    "elements before": lambda S, a: S.jnp.where(a > 3, a, 0).T,
    "back": lambda S, a: a.T.T,
    "pair": lambda S, a: a.T + a.T * 2,
    "disagreeing": lambda S, a: a[:3, :3] + a[:3, :3].T,
    "product": lambda S, a: a.T @ a,
    "sum": lambda S, a: a.sum(0),
    "constant": lambda S, a: S.jnp.ones((2, 3)) * a[0, 0],
    "several": lambda S, a: (a.T, a, a.T.astype(int)),
}


@pytest.mark.parametrize("name", AUTO)
@same
def test_open_layouts(S, name):
    def told(**options):
        compiled = S.jax.jit(lambda a: AUTO[name](S, a), **options).lower(X).compile()
        formats = S.jax.tree.leaves((compiled.input_formats, compiled.output_formats))
        return [where.layout.major_to_minor for where in formats], compiled(X)

    return told(in_shardings=auto(S), out_shardings=auto(S)), told(in_shardings=auto(S)), told(out_shardings=auto(S))


@same
def test_open_layouts_of_three_axes(S):
    compiled = S.jax.jit(lambda a: (a.transpose(1, 2, 0), a.transpose(2, 0, 1) * 2), out_shardings=auto(S)).lower(CUBE).compile()
    results = compiled(CUBE)
    return results, [(where.layout.major_to_minor, x.format == where) for where, x in zip(compiled.output_formats, results)]


def test_transposes_of_layouts_cost_no_copy():
    doubled = ferrax.jit(lambda a: a * 2, in_shardings=COLUMNS, out_shardings=COLUMNS).lower(X).compile()
    assert doubled.as_text().count("run on") == 1 and doubled.memory_analysis().temp_size_in_bytes == 0
    turned = ferrax.jit(lambda a: a.T, out_shardings=Format(Layout.AUTO)).lower(X).compile()
    assert "run on" not in turned.as_text()  # the result is the argument's memory


def test_a_function_with_formats_is_traced_once():
    traces = []

    def f(a):
        traces.append(a)
        return a.T

    jitted = ferrax.jit(f, in_shardings=COLUMNS, out_shardings=Format(Layout.AUTO))
    for _ in range(2):
        result = jitted(X)
        np.testing.assert_array_equal(result, X.T)
    assert len(traces) == 1 and result.format.layout.major_to_minor == (0, 1)


@same
def test_donation_and_deletion(S):
    of, order = formats(S)
    jax = S.jax
    x, y, z = (jax.device_put(X, of(1, 0)) for _ in range(3))
    result = jax.jit(lambda a: a + 1, donate_argnums=0, in_shardings=of(1, 0), out_shardings=of(1, 0))(x)
    moved = jax.device_put(y, of(0, 1), donate=True)
    z.delete()
    return result, moved, order(result), order(moved), [a.is_deleted() for a in (x, y, z, result)], outcomes(
        S, lambda: np.asarray(y), lambda: z.sum(), lambda: jax.device_put(z)
    )


def test_deleted_arrays_print_and_results_are_arrays_of_their_own():
    x = put(X)
    same_elements = ferrax.jit(lambda a: a, in_shardings=COLUMNS, out_shardings=COLUMNS)(x)
    x.delete()
    assert repr(x) == "Array(<deleted>, shape=(3, 4), dtype=float32)"
    np.testing.assert_array_equal(same_elements, X)
    with pytest.raises(RuntimeError, match=r"float32\[3,4\].*deleted"):
        x + 1


@same
def test_layouts_that_do_not_fit(S):
    of, _ = formats(S)
    return outcomes(S, lambda: S.jax.device_put(X, of(0, 1, 2)), lambda: S.jax.jit(lambda a: a, out_shardings=of(0))(X))


@pytest.mark.parametrize("order", [(0, 0), (-1, 0), (1, 2)])
def test_layouts_that_are_no_permutations(order):
    format = Format(Layout(order), ONE)
    for use in (
        lambda: ferrax.device_put(X, format),
        lambda: ferrax.jit(lambda a: a, in_shardings=format)(X),
        lambda: ferrax.jit(lambda a: a, out_shardings=format)(X),
        lambda: ferrax.ShapeDtypeStruct(X.shape, X.dtype, sharding=format),
    ):
        with pytest.raises(ValueError, match=r"rank 2 is a permutation of \(0, 1\), got \("):
            use()


@pytest.mark.parametrize("options", [{"tiling": ((2, 2),)}, {"sub_byte_element_size_in_bits": 4}])
def test_layouts_that_memory_does_not_have(options):
    with pytest.raises(NotImplementedError, match="order of axes"):
        ferrax.device_put(X, Format(Layout((0, 1), **options), ONE))


def test_values_within_traced_functions_have_no_layout():
    from ferrax.experimental.layout import with_layout_constraint

    columns = COLUMNS.layout
    for within in (
        lambda a: ferrax.device_put(a, COLUMNS),
        lambda a: with_layout_constraint(a, columns),
        lambda a: ferrax.lax.with_sharding_constraint(a, COLUMNS),
    ):
        with pytest.raises(NotImplementedError, match="within a traced function"):
            ferrax.jit(within)(X)
        outside = within(jnp.asarray(X))
        assert outside.format.layout.major_to_minor == (1, 0)
        np.testing.assert_array_equal(outside, X)


def test_structs_keep_formats():
    struct = ferrax.ShapeDtypeStruct(X.shape, X.dtype, sharding=COLUMNS)
    for other in (pickle.loads(pickle.dumps(struct)), struct.update(shape=(2, 2))):
        assert other.format == COLUMNS and "format=Layout(major_to_minor=(1, 0)" in repr(other)
    assert struct.update(sharding=ONE).format == Format(None, ONE)


def test_functions_with_formats_pickle():
    f = pickle.loads(pickle.dumps(ferrax.jit(jnp.sin, out_shardings=COLUMNS)))
    assert f(X).format == Format(Layout((1, 0), ()), ONE) and type(f).__name__ == "PjitFunction"


def test_arrays_are_leaves_and_arrays():
    x = put(X)
    assert isinstance(x, ferrax.Array) and ferrax.tree.leaves([x])[0] is x and ferrax.device_put(x, COLUMNS) is x
    assert ferrax.typeof(x) == ferrax.typeof(jnp.asarray(X)) and x.block_until_ready() is x and copy.copy(x) is x
    assert x.unsafe_buffer_pointer() == np.asarray(x).ctypes.data
    with pytest.raises(TypeError, match="unhashable"):
        hash(x)
    with pytest.raises(AttributeError, match="no attribute 'colour'"):
        x.colour  # noqa: B018
    with pytest.raises(ValueError, match="ambiguous"):
        bool(x)


def test_other_devices():
    (other,) = ferrax.devices("reference")
    x = ferrax.device_put(X, Format(Layout((1, 0)), ferrax.sharding.SingleDeviceSharding(other)))
    assert x.devices() == {other} and (x + 1).devices() == {other} and x.format.layout.major_to_minor == (1, 0)
    np.testing.assert_array_equal(x, X)
    np.testing.assert_array_equal(ferrax.device_put(x, ferrax.devices("cpu")[0]), X)
