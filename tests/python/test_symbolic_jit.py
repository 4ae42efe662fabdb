"""`jit(..., symbolic=...)`: one trace for all sizes of arguments, beside `jit` that traces for each."""

import copy
import functools
import threading

import numpy as np
import pytest
from test_symbolic_export import FUNCTIONS, SIZES, arrays

import ferrax
import ferrax.numpy as jnp
from ferrax import lax
from ferrax.extend.core import InconclusiveDimensionOperation


def counted(fun):
    """The function, and the list of the shapes that it was traced for."""
    traced = []

    @functools.wraps(fun)
    def counting(*args, **kwargs):
        traced.append([str(getattr(x, "shape", x)) for x in ferrax.tree.leaves((args, kwargs))])
        return fun(*args, **kwargs)

    return counting, traced


def text(shape):
    return ",".join(map(str, shape)) + ","


def same(ours, theirs):
    """Equal but for weak types."""
    assert ferrax.tree.structure(ours) == ferrax.tree.structure(theirs)
    for got, wanted in zip(ferrax.tree.leaves(ours), ferrax.tree.leaves(theirs), strict=True):
        assert (got.shape, got.dtype) == (wanted.shape, wanted.dtype)
        np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_one_trace_is_as_one_for_each_size(name):
    fun, shapes = FUNCTIONS[name]
    counting, traced = counted(fun)
    sized = ferrax.jit(counting, symbolic={place: text(shape) for place, shape in enumerate(shapes)})
    for a in SIZES:
        values = arrays(shapes, {"a": a, "b": a + 2, "c": 3})
        got, wanted = sized(*values), ferrax.jit(fun)(*values)
        same(got, wanted)
        assert types(got) == types(wanted)
    assert len(traced) == 1 and "a" in traced[0][0]
    assert sized.stats().traces == 1 and sized.stats().cache_entries == len(SIZES)


def types(tree):
    return [(x.shape, x.dtype, x.weak_type) for x in ferrax.tree.leaves(tree)]


def loss(params, x):
    for w, b in params:
        x = jnp.tanh(x @ w + b)
    return (x**2).mean()


def network(width=3):
    rng = np.random.default_rng(0)
    return [(rng.normal(size=(width, width)).astype(np.float32), np.zeros(width, np.float32)) for _ in range(2)]


@pytest.mark.parametrize(
    "transform",
    [
        lambda f: ferrax.value_and_grad(f),
        lambda f: ferrax.jit(ferrax.grad(f)),
        lambda f: lambda p, x: ferrax.jvp(lambda x: f(p, x), (x,), (x,)),
        lambda f: lambda p, x: ferrax.grad(lambda x: ferrax.grad(f, 1)(p, x).sum())(x),
        lambda f: lambda p, x: ferrax.vmap(f, (None, 0))(p, jnp.stack([x, 2 * x])),
        lambda f: lambda p, x: ferrax.vmap(ferrax.grad(f), (None, 0))(p, jnp.stack([x, 2 * x])),
        lambda f: lambda p, x: lax.scan(lambda c, x: (c + f(p, x), None), 0.0, jnp.stack([x, 2 * x]))[0],
        lambda f: lambda p, x: lax.cond(x[0, 0] > 0, f, lambda p, x: 2 * f(p, x), p, x),
        lambda f: lambda p, x: ferrax.jit(lambda p, x: f(p, x) + f(p, x[1:]))(p, x),
    ],
)
def test_transformations(transform):
    counting, traced = counted(loss)
    sized = ferrax.jit(counting, symbolic={"x": "batch, _"})
    for size in (2, 3, 5):
        x = np.random.default_rng(size).normal(size=(size, 3)).astype(np.float32)
        same(transform(sized)(network(), jnp.asarray(x)), transform(loss)(network(), jnp.asarray(x)))
    assert len(traced) == 1


def test_arguments_by_name_position_and_default():
    def f(x, scale=2.0, *rest, key=None):
        return x * scale + (0 if key is None else key.sum()) + sum(r.sum() for r in rest)

    counting, traced = counted(f)
    sized = ferrax.jit(counting, symbolic={"x": "n", 2: "m", "key": "k, ..."})
    for n in (2, 4):
        x, r, k = np.ones(n, np.float32), np.ones(n + 1, np.float32), np.ones((n, 3), np.float32)
        same(sized(x), ferrax.jit(f)(x))
        same(sized(x=x), ferrax.jit(f)(x=x))
        same(sized(x, 3.0, r, key=k), ferrax.jit(f)(x, 3.0, r, key=k))
    assert len(traced) == 3


def test_positions_from_the_end():
    counting, traced = counted(lambda scale, x: x * scale)
    sized = ferrax.jit(counting, symbolic={-1: "n"})
    for n in (2, 3):
        same(sized(2.0, jnp.ones(n)), jnp.full(n, 2.0))
    assert len(traced) == 1


def test_trees_of_shapes():
    def f(batch):
        return batch["x"] @ batch["w"] + batch["more"][0]

    counting, traced = counted(f)
    sized = ferrax.jit(counting, symbolic={"batch": {"x": "n, m", "w": "m, 2", "more": None}})
    for n, m in ((1, 2), (3, 1), (4, 4)):
        batch = {"x": jnp.ones((n, m)), "w": jnp.ones((m, 2)), "more": [jnp.ones(2)]}
        same(sized(batch), f(batch))
    assert len(traced) == 1
    with pytest.raises(ValueError, match="m"):
        sized({"x": jnp.ones((2, 3)), "w": jnp.ones((4, 2)), "more": [jnp.ones(2)]})


def test_other_dtypes_ranks_and_static_values_are_traced_anew():
    counting, traced = counted(lambda x, power: x**power)
    sized = ferrax.jit(counting, static_argnames="power", symbolic={"x": "n, ..."})
    for n in (2, 3):
        for x in (jnp.ones(n), jnp.ones((n, 2)), jnp.ones((n, 3)), jnp.arange(n)):
            for power in (2, 3):
                same(sized(x, power), x**power)
                same(sized(x, power=power), x**power)
    assert len(traced) == 16
    with ferrax.default_matmul_precision("highest"):
        sized(jnp.ones(2), 2)
    assert len(traced) == 17


def test_weak_types_and_keys():
    sized = ferrax.jit(lambda x, y, key: x * y + ferrax.random.normal(key, x.shape), symbolic={"x": "n"})
    plain = ferrax.jit(lambda x, y, key: x * y + ferrax.random.normal(key, x.shape))
    for n in (2, 3):
        for x in (jnp.ones(n, jnp.bfloat16), jnp.full(n, 1.0), jnp.arange(n)):
            got, wanted = (f(x, 2.0, ferrax.random.key(1)) for f in (sized, plain))
            same(got, wanted)
            assert types(got) == types(wanted)


def test_closures_over_arrays_and_over_traced_values():
    w = jnp.arange(3.0)
    counting, traced = counted(lambda x: x * w)
    sized = ferrax.jit(counting, symbolic={0: "n, 3"})
    for n in (1, 4):
        same(sized(jnp.ones((n, 3))), jnp.ones((n, 3)) * w)
    assert len(traced) == 1

    def outer(w, x):
        return ferrax.jit(lambda x: (x * w).sum(), symbolic={0: "n"})(x)

    for n in (2, 5):
        x = jnp.arange(float(n))
        same(ferrax.grad(outer)(2.0, x), x.sum())
        same(ferrax.jit(ferrax.grad(outer))(2.0, x), x.sum())


def test_custom_rules():
    @ferrax.custom_vjp
    def f(x):
        return jnp.sin(x)

    f.defvjp(lambda x: (f(x), x), lambda x, ct: (ct * x.shape[0],))
    counting, traced = counted(lambda x: f(x).sum())
    sized = ferrax.jit(counting, symbolic={0: "n"})
    for n in (2, 5):
        same(ferrax.grad(sized)(jnp.ones(n)), jnp.full(n, float(n)))
    assert len(traced) == 1


def test_constraints():
    sized = ferrax.jit(lambda x: x[:4] if x.shape[0] >= 4 else x, symbolic={"x": "n"}, symbolic_constraints=["n >= 4"])
    assert sized(jnp.arange(6)).shape == (4,)
    with pytest.raises(ValueError, match="n"):
        sized(jnp.arange(3))
    undecided = ferrax.jit(lambda x: x[:4] if x.shape[0] >= 4 else x, symbolic={"x": "n"})
    with pytest.raises(InconclusiveDimensionOperation, match="n"):
        undecided(jnp.arange(6))
    with pytest.raises(ValueError, match="n"):
        ferrax.jit(jnp.sin, symbolic={0: "n"})(jnp.zeros(0))


def test_options_beside_it():
    counting, traced = counted(lambda x: x + 1)
    sized = ferrax.jit(counting, symbolic={0: "n"}, donate_argnums=0, max_traces=1)
    given = jnp.ones(3)
    same(sized(given), jnp.full(3, 2.0))
    assert given.is_deleted()
    for n in (4, 5):
        sized(jnp.ones(n))
    with pytest.raises(ferrax.errors.TooManyTracesError, match="dtype"):
        sized(jnp.arange(3))
    assert sized.stats().traces == len(traced) == 1
    assert sized.lower(jnp.ones(9)).compile()(jnp.ones(9)).shape == (9,)
    assert sized.eval_shape(jnp.ones(8)).shape == (8,)
    assert len(traced) == 1
    sized.clear_cache()
    sized(jnp.ones(3))
    assert len(traced) == 2
    ferrax.clear_caches()
    sized(jnp.ones(3))
    assert len(traced) == 3


def test_without_jit_it_is_the_function():
    counting, traced = counted(lambda x: x + x.shape[0])
    with ferrax.disable_jit():
        same(ferrax.jit(counting, symbolic={0: "n"})(jnp.ones(3)), jnp.ones(3) + 3)
    assert traced == [["(3,)"]]


def test_within_an_export_sizes_are_those_of_the_export():
    n, m = ferrax.export.symbolic_shape("n, m")
    sized = ferrax.jit(lambda x: x.reshape(-1) * x.shape[0], symbolic={0: "a, b"})
    exported = ferrax.export.export(ferrax.jit(lambda x: sized(x) + 1))(ferrax.ShapeDtypeStruct((n, m), jnp.float32))
    assert str(exported.out_avals[0].shape) == "(m*n,)"
    same(exported.call(jnp.ones((2, 3))), jnp.full(6, 3.0))


def test_mapped_axes_and_methods():
    sized = ferrax.jit(lambda x: x - lax.pmean(x, "i"), symbolic={0: "n"})
    for n in (2, 3):
        x = jnp.arange(4.0 * n).reshape(4, n)
        same(ferrax.vmap(sized, axis_name="i")(x), x - x.mean(0))

    class Layer:
        @functools.partial(ferrax.jit, static_argnums=0, symbolic={"x": "n"})
        def apply(self, x):
            return x * 2

    layer = Layer()
    same(layer.apply(jnp.ones(3)), jnp.full(3, 2.0))
    same(layer.apply(jnp.ones(4)), jnp.full(4, 2.0))


def test_threads_and_copies():
    counting, traced = counted(lambda x: jnp.sin(x).sum())
    sized = ferrax.jit(counting, symbolic={0: "n"})
    results = {}
    threads = [threading.Thread(target=lambda n=n: results.update({n: sized(jnp.ones(n))})) for n in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for n, result in results.items():
        np.testing.assert_allclose(result, n * np.sin(1.0), rtol=1e-5)
    assert len(results) == 8
    again = copy.deepcopy(sized)
    same(again(jnp.ones(3)), sized(jnp.ones(3)))


def test_refused():
    def refused(error, words, *args, **kwargs):
        with pytest.raises(error, match=words):
            ferrax.jit(lambda x, k=1: x, **kwargs)(*args)

    refused(TypeError, "symbolic must be a dict", symbolic="n")
    refused(TypeError, "symbolic must be a dict", symbolic={1.5: "n"})
    refused(TypeError, "symbolic must be a dict", symbolic={True: "n"})
    refused(ValueError, "symbolic", symbolic={"y": "n"})
    refused(ValueError, "symbolic", symbolic={7: "n"})
    refused(ValueError, "is static", symbolic={"k": "n"}, static_argnames="k")
    refused(ValueError, "symbolic_constraints", symbolic_constraints=["n >= 2"])
    refused(ValueError, "number of dimensions", jnp.ones((2, 3)), symbolic={"x": "n"})
    refused(ValueError, "size 4", jnp.ones((2, 3)), symbolic={"x": "n, 4"})
    refused(ValueError, "syntax", jnp.ones(2), symbolic={"x": "n +"})
    ref = ferrax.new_ref(1.0)
    with pytest.raises(NotImplementedError, match="mutable"):
        ferrax.jit(lambda x: ref[...] + x, symbolic={0: "n"})(jnp.ones(3))
    with pytest.raises(ZeroDivisionError):
        ferrax.jit(lambda x: 1 // 0, symbolic={0: "n"})(jnp.ones(3))


def test_divided_over_explicit_axes():
    mesh = ferrax.make_mesh((1,), ("i",), axis_types=(ferrax.sharding.AxisType.Explicit,))
    with ferrax.set_mesh(mesh):
        x = ferrax.device_put(jnp.ones(4), ferrax.sharding.NamedSharding(mesh, ferrax.P("i")))
        with pytest.raises(NotImplementedError, match="explicit axes"):
            ferrax.jit(jnp.sin, symbolic={0: "n"})(x)
