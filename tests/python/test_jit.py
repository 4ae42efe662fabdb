"""`jit`: the cache's key, static and donated arguments, stages, threads, errors.

Each `same` case runs on ferrax and on JAX and must give the same result or error class.
"""

import functools
import gc
import inspect
import weakref

import numpy as np
import pytest
from oracle import same

import ferrax
import ferrax.numpy as jnp


class Counter:
    """A function that counts how often it is traced."""

    def __init__(self, fun=lambda *args, **kwargs: args[0] if args else 0.0):
        self.fun = fun
        self.traces = 0
        self.__name__ = "counted"

    def __call__(self, *args, **kwargs):
        self.traces += 1
        return self.fun(*args, **kwargs)


def traces_of(S, calls, **options):
    """The number of traces after each call."""

    def fun(*args, **kwargs):
        counter.traces += 1
        return S.jnp.sin(1.0)

    counter = Counter()
    jitted = S.jax.jit(fun, **options)
    seen = []
    for args, kwargs in calls:
        jitted(*args, **kwargs)
        seen.append(counter.traces)
    return seen


# The key of the cache


@same
def test_weak_types_retrace_and_numpy_shares(S):
    f32 = np.float32(2)
    calls = [1.0, S.jnp.float32(1), f32, 2.0, S.jnp.ones(()), np.ones((), "float32"), 1, True]
    return traces_of(S, [((x,), {}) for x in calls])


@same
def test_float64_numpy_shares_with_float32(S):
    calls = [np.float64(1), np.float32(1), np.ones(3), S.jnp.ones(3), np.arange(3), S.jnp.arange(3)]
    return traces_of(S, [((x,), {}) for x in calls])


@same
def test_python_scalar_kinds_differ(S):
    return traces_of(S, [((x,), {}) for x in (1, True, 1.0, 1j, 2, False, 2.0, 2j)])


@same
def test_trees_are_part_of_the_key(S):
    one = S.jnp.ones(2)
    calls = [(one, one), [one, one], (one, (one,)), {"a": one, "b": one}, {"b": one, "a": one}, None, ()]
    return traces_of(S, [((x,), {}) for x in calls])


@same
def test_keywords_and_positions_differ(S):
    jitted_counts = []

    def fun(x, y=2.0):
        jitted_counts.append(1)
        return x + y

    f = S.jax.jit(fun)
    seen = []
    for call in (lambda: f(1.0, 2.0), lambda: f(1.0, y=2.0), lambda: f(x=1.0, y=2.0), lambda: f(y=3.0, x=1.0),
                 lambda: f(1.0), lambda: f(1.0, 5.0)):
        call()
        seen.append(len(jitted_counts))
    return seen


@same
def test_shapes_and_dtypes_are_part_of_the_key(S):
    calls = [S.jnp.ones(2), S.jnp.ones(3), S.jnp.ones((2, 1)), S.jnp.ones(2, "int32"), S.jnp.zeros(2)]
    return traces_of(S, [((x,), {}) for x in calls])


@same
@pytest.mark.parametrize("static", [{"static_argnums": 0}, {"static_argnums": (0,)}, {"static_argnums": -1}])
def test_static_values_count_by_type(S, static):
    values = [1, 1.0, True, np.int64(1), 1, np.float32(1), "a", None, (1, 2), (1, 2), (1.0, 2)]
    return traces_of_static(S, values, **static)


def traces_of_static(S, values, **static):
    count = []

    def fun(x):
        count.append(x)
        return S.jnp.zeros(())

    f = S.jax.jit(fun, **static)
    return [(f(v), len(count))[1] for v in values]


class Label:
    """Equal by name alone."""

    def __init__(self, name):
        self.name = name

    def __hash__(self):
        return hash(self.name)

    def __eq__(self, other):
        return isinstance(other, Label) and self.name == other.name


@same
def test_static_values_count_by_equality(S):
    return traces_of_static(S, [Label("a"), Label("a"), Label("b"), Label("a")], static_argnums=0)


@same
def test_static_by_keyword(S):
    count = []

    def fun(x, n, m=3):
        count.append(n)
        return x * n + m

    f = S.jax.jit(fun, static_argnums=(1,), static_argnames=("m",))
    return f(1.0, 2), f(1.0, n=2), f(1.0, n=3, m=4), f(x=1.0, n=3, m=4), f(1.0, 3, 4), len(count)


@same
def test_static_names_cover_positions(S):
    def fun(x, n):
        return x * range(5)[n]

    f = S.jax.jit(fun, static_argnames="n")
    return f(1.0, 2), f(1.0, n=4)


@same
def test_static_default_need_not_be_given(S):
    f = S.jax.jit(lambda x, n=2: x * range(5)[n], static_argnums=1)
    return f(1.0), f(1.0, 3)


@pytest.mark.raises("ValueError")
@same
def test_static_unhashable(S):
    return S.jax.jit(lambda x, n: x, static_argnums=1)(1.0, [1, 2])


@pytest.mark.raises("ValueError")
@same
def test_static_unhashable_by_name(S):
    return S.jax.jit(lambda x, n: x, static_argnames="n")(1.0, n={})


@pytest.mark.raises("ValueError")
@same
def test_static_array_is_unhashable(S):
    return S.jax.jit(lambda n: 1.0, static_argnums=0)(S.jnp.ones(2))


@pytest.mark.raises("ValueError")
@same
def test_static_argnums_out_of_range(S):
    return S.jax.jit(lambda x: x, static_argnums=2)


@pytest.mark.raises("ValueError")
@same
def test_static_argnames_unknown(S):
    return S.jax.jit(lambda x: x, static_argnames="y")


@same
def test_static_names_into_kwargs(S):
    f = S.jax.jit(lambda x, **kw: x * range(9)[kw["n"]], static_argnames="n")
    return f(2.0, n=3)


@pytest.mark.raises("ValueError")
@same
def test_static_and_donated(S):
    return S.jax.jit(lambda x: x, static_argnums=0, donate_argnums=0)


CONTEXTS = {
    "x64": lambda S: S.jax.enable_x64(True),
    "matmul": lambda S: S.jax.default_matmul_precision("float32"),
    "strict": lambda S: S.jax.numpy_dtype_promotion("strict"),
    "rank": lambda S: S.jax.numpy_rank_promotion("warn"),
    "threefry": lambda S: S.jax.threefry_partitionable(False),
    "nans": lambda S: S.jax.debug_nans(True),
    "infs": lambda S: S.jax.debug_infs(True),
    "log": lambda S: S.jax.log_compiles(False),
}


@same
@pytest.mark.parametrize("flag", sorted(CONTEXTS))
def test_trace_context_is_part_of_the_key(S, flag):
    count = []

    def fun(x):
        count.append(1)
        return x + 1

    f, x, seen = S.jax.jit(fun), np.float32(1), []
    f(x)
    for _ in range(2):
        with CONTEXTS[flag](S):
            f(x)
        seen.append(len(count))
        f(x)
        seen.append(len(count))
    return seen


@same
def test_jits_of_one_function_share(S):
    count = []

    def fun(x):
        count.append(1)
        return x

    S.jax.jit(fun)(1.0)
    S.jax.jit(fun)(2.0)
    first = len(count)
    S.jax.jit(functools.partial(fun))(1.0)
    S.jax.jit(functools.partial(fun))(1.0)
    return first, len(count)


@same
def test_inner_jit_is_not_traced_again(S):
    count = []

    def inner(x):
        count.append(1)
        return S.jnp.sin(x)

    f, seen = S.jax.jit(inner), []
    x = S.jnp.float32(1)
    for call in (
        lambda: f(x),
        lambda: S.jax.grad(f)(x),
        lambda: S.jax.jit(lambda x: f(x) + f(x * 2))(x),
        lambda: S.jax.grad(S.jax.grad(f))(x),
        lambda: S.jax.jvp(f, (x,), (x,)),
        lambda: S.jax.vmap(f)(S.jnp.ones(3)),
        lambda: S.jax.vmap(f)(S.jnp.ones((3, 2))),
        lambda: S.jax.make_jaxpr(f)(x),
    ):
        call()
        seen.append(len(count))
    return seen


# What may go in and come out


@same
def test_returns_none_and_numbers(S):
    f = S.jax.jit(lambda x: (None, 1, 2.0, True, x, np.float32(3), {"a": None}, np.arange(3)))
    return f(1.0)


@pytest.mark.raises("TypeError")
@same
@pytest.mark.parametrize("value", ["text", object(), [1, "a"], {1, 2}])
def test_leaves_that_are_not_arrays(S, value):
    return S.jax.jit(lambda x: 1.0)(value)


@pytest.mark.raises("TypeError")
@same
@pytest.mark.parametrize("value", ["text", object, {1}])
def test_outputs_that_are_not_arrays(S, value):
    return S.jax.jit(lambda: value)()


@pytest.mark.raises("TypeError")
@same
def test_not_callable(S):
    return S.jax.jit(3)


@pytest.mark.raises("TypeError")
@same
def test_static_over_generator(S):
    def generator(x):
        yield x

    return S.jax.jit(generator)


@pytest.mark.raises("TypeError")
@same
def test_argument_count_errors(S):
    return S.jax.jit(lambda x, y: x)(1.0)


@same
def test_metadata(S):
    def named(x):
        """Says what."""
        return x

    f = S.jax.jit(named)
    signature = str(inspect.signature(f, follow_wrapped=False))
    return f.__name__, f.__doc__, f.__wrapped__ is named, signature


@same
def test_decorator_with_options(S):
    @S.jax.jit(static_argnums=1)
    def f(x, n):
        return x * n

    return f(2.0, 3)


class Affine:
    def __init__(self, S, scale):
        self.S, self.scale = S, scale


@same
def test_methods(S):
    class Model:
        def __init__(self, scale):
            self.scale = scale

        @functools.partial(S.jax.jit, static_argnums=0)
        def static_self(self, x):
            return x * self.scale

        @S.jax.jit
        def plain(self, x):
            return x

        @staticmethod
        @S.jax.jit
        def free(x):
            return x + 1

    model = Model(3.0)
    bound = S.jax.jit(model.free)
    return model.static_self(2.0), Model.free(1.0), bound(2.0), Model.static_self(Model(4.0), 1.0)


@pytest.mark.raises("TypeError")
@same
def test_method_without_static_self(S):
    class Model:
        @S.jax.jit
        def plain(self, x):
            return x

    return Model().plain(1.0)


@same
def test_bound_method_jitted(S):
    class Model:
        scale = 3.0

        def apply(self, x):
            return x * self.scale

    return S.jax.jit(Model().apply)(2.0)


@same
def test_pytree_self(S):
    @S.jax.tree_util.register_pytree_node_class
    class Model:
        def __init__(self, w):
            self.w = w

        def tree_flatten(self):
            return (self.w,), None

        @classmethod
        def tree_unflatten(cls, aux, children):
            return cls(*children)

        @S.jax.jit
        def apply(self, x):
            return x @ self.w

    return Model(S.jnp.ones((2, 3))).apply(S.jnp.ones(2))


@same
def test_partials(S):
    def fun(a, b, c=1.0):
        return a + 2 * b + 3 * c

    return (
        S.jax.jit(functools.partial(fun, 1.0))(2.0),
        S.jax.jit(functools.partial(fun, c=5.0))(1.0, 2.0),
        S.jax.jit(functools.partial(fun, 1.0), static_argnums=0)(2),
        S.jax.tree_util.tree_map(lambda x: x, S.jax.jit(S.jax.tree_util.Partial(fun, 1.0))(2.0)),
    )


@same
def test_partial_as_argument(S):
    apply = S.jax.jit(lambda f, x: f(x))
    partial = S.jax.tree_util.Partial(S.jnp.add, S.jnp.float32(2))
    return apply(partial, 1.0)


# Closures, nesting


@same
def test_closures_over_arrays_are_constants(S):
    y = S.jnp.arange(3.0)
    n = np.arange(3)
    f = S.jax.jit(lambda x: x * y + n)
    return f(2.0), S.jax.grad(lambda x: f(x).sum())(2.0)


@same
def test_closures_over_tracers(S):
    def outer(x):
        inner = S.jax.jit(lambda y: x * y + S.jnp.sin(x))
        return inner(x) + inner(2.0)

    x = S.jnp.float32(0.5)
    return (
        outer(x),
        S.jax.jit(outer)(x),
        S.jax.grad(outer)(x),
        S.jax.jit(S.jax.grad(outer))(x),
        S.jax.vmap(outer)(S.jnp.arange(3.0)),
        S.jax.jvp(outer, (x,), (x,)),
        S.jax.grad(S.jax.grad(outer))(x),
        S.jax.vmap(S.jax.grad(outer))(S.jnp.arange(3.0)),
    )


@same
def test_inline_equations(S):
    def inner(x):
        return S.jnp.sin(x) + 1

    inlined = S.jax.make_jaxpr(lambda x: S.jax.jit(inner, inline=True)(x))(1.0)
    called = S.jax.make_jaxpr(lambda x: S.jax.jit(inner)(x))(1.0)
    return [e.primitive.name for e in inlined.eqns], [e.primitive.name for e in called.eqns]


@same
def test_nested_statics(S):
    @functools.partial(S.jax.jit, static_argnames="n")
    def inner(x, n):
        return x ** n

    @functools.partial(S.jax.jit, static_argnums=1)
    def outer(x, n):
        return inner(x, n=n) + inner(x, n=n + 1)

    return outer(2.0, 3), S.jax.grad(outer)(2.0, 2)


@same
def test_outputs_that_are_inputs(S):
    x = S.jnp.arange(3.0)
    return S.jax.jit(lambda x, y: (x, y, x, 1.0))(x, 2)


@same
def test_output_trees(S):
    return S.jax.jit(lambda x: {"b": [x, (x + 1,)], "a": None})(S.jnp.ones(2))


@same
def test_no_arguments(S):
    return S.jax.jit(lambda: S.jnp.ones(2))(), S.jax.jit(lambda: ())()


@same
def test_zero_sized(S):
    return S.jax.jit(lambda x: (x + 1, x.sum(), x.reshape(0, 3)))(S.jnp.zeros((3, 0)))


# disable_jit


@same
def test_disable_jit_runs_python(S):
    count = []

    def fun(x):
        count.append(1)
        return x + 1 if x > 0 else x

    f = S.jax.jit(fun)
    with S.jax.disable_jit():
        a, b = f(1.0), f(2.0)
        with S.jax.disable_jit(False):
            staged = isinstance_tracer_error(S, f)
    return a, b, len(count), staged


@same
def test_numbers_are_conditions_without_jit(S):
    x = S.jnp.arange(3.0)
    with S.jax.disable_jit():
        return [
            S.jnp.where(True, 1.0, 2.0),
            S.jnp.where(0.5, x, 1),
            S.jnp.where(np.bool_(False), x, -x),
            S.jnp.select([False, 2], [x, x + 1]),
            S.jax.nn.softmax(x, where=True),
        ]


def isinstance_tracer_error(S, f):
    try:
        f(3.0)
    except S.jax.errors.TracerBoolConversionError as error:
        return type(error).__name__
    return "none"


# Donation


def test_donation_deletes():
    f = ferrax.jit(lambda x: x + 1, donate_argnums=0)
    x = jnp.ones(8)
    assert not x.is_deleted()
    y = f(x)
    assert x.is_deleted()
    with pytest.raises(RuntimeError, match="deleted"):
        _ = x + 1
    with pytest.raises(RuntimeError, match="device_put.*deleted"):
        ferrax.device_put(x)
    with pytest.raises(RuntimeError, match="deleted"):
        np.asarray(x)
    np.testing.assert_array_equal(np.asarray(y), 2 * np.ones(8))
    assert "deleted" in repr(x).lower()


@same
def test_donation_by_keyword(S):
    f = S.jax.jit(lambda x, y: x + y, donate_argnames="y")
    x, y = S.jnp.ones(4), S.jnp.ones(4)
    out = f(x, y=y)
    z = S.jnp.ones(4)
    out2 = f(x, z)
    return out, x.is_deleted(), y.is_deleted(), out2, z.is_deleted()


def test_what_is_donated_for_nothing_is_said_of_the_users_line():
    def fails(x):
        return 1 // 0

    whole = ferrax.NamedSharding(ferrax.make_mesh((1,), ("x",)), ferrax.P())
    for options in ({}, {"in_shardings": whole}, {"out_shardings": whole}):
        for use in (lambda f: f(jnp.ones(3)), lambda f: f.lower(jnp.ones(3))):
            with pytest.warns(UserWarning, match="donated buffers") as told:
                use(ferrax.jit(lambda x: x.sum(), donate_argnums=0, **options))
            assert (told[0].filename, told[0].lineno) == (__file__, use.__code__.co_firstlineno)
            with pytest.raises(ZeroDivisionError) as raised:
                use(ferrax.jit(fails, donate_argnums=0, **options))
            lines = [(entry.path.name, entry.lineno) for entry in raised.traceback]
            assert len(lines) == len(set(lines))


@same
@pytest.mark.filterwarnings("ignore:Some donated buffers")
def test_unusable_donation_keeps(S):
    x = S.jnp.ones(4)
    S.jax.jit(lambda x: x.sum(), donate_argnums=0)(x)
    return x.is_deleted()


def test_donated_buffers_go_to_results_of_as_many_bytes():
    """Those of its shape and dtype first."""
    x, y, z = jnp.arange(16), jnp.arange(16.0).reshape(16, 1), jnp.ones((2, 4, 4))

    @ferrax.jit(donate_argnums=(0, 1, 2))
    def f(x, y, z):
        return y.reshape(16) * 2, x.reshape(4, 4) + 1, z.sum(0)

    with pytest.warns(UserWarning, match="not usable: f32\\[2,4,4\\]. Donation pays where an output has as many bytes"):
        found = f(x, y, z)
    assert (x.is_deleted(), y.is_deleted(), z.is_deleted()) == (True, True, False)
    np.testing.assert_array_equal(found[0], np.arange(16.0) * 2)
    np.testing.assert_array_equal(found[1], np.arange(16).reshape(4, 4) + 1)


def test_unusable_donation_warns():
    with pytest.warns(UserWarning, match="donated"):
        ferrax.jit(lambda x: x.sum(), donate_argnums=0)(jnp.ones(4))


@same
def test_donated_twice(S):
    x = S.jnp.ones(4)
    f = S.jax.jit(lambda x, y: x + y, donate_argnums=0)
    try:
        f(x, x)
    except Exception as error:
        return isinstance(error, (ValueError, RuntimeError))
    return "no error"


@same
def test_donation_of_numpy_and_numbers(S):
    n = np.ones(4, "float32")
    f = S.jax.jit(lambda x: x + 1, donate_argnums=0)
    return f(n), n, f(n)


@same
def test_donation_reuse_after(S):
    f = S.jax.jit(lambda x: x * 2, donate_argnums=0)
    x = S.jnp.ones(4)
    for _ in range(5):
        x = f(x)
    return x


@same
def test_donation_of_trees(S):
    f = S.jax.jit(lambda t: {"a": t["a"] + 1, "b": t["b"] * 2}, donate_argnums=(0,))
    t = {"a": S.jnp.ones(3), "b": S.jnp.ones((2, 2))}
    return f(t), t["a"].is_deleted(), t["b"].is_deleted()


@same
def test_donation_under_transformations(S):
    f = S.jax.jit(lambda x: x * 2, donate_argnums=0)
    x = S.jnp.ones(3)
    return S.jax.grad(lambda x: f(x).sum())(x)


# Stages


@same
def test_lower_and_compile(S):
    f = S.jax.jit(lambda x, y: {"out": x * 2 + y})
    compiled = f.lower(S.jnp.ones(3), 1.0).compile()
    return compiled(S.jnp.arange(3.0), 2.0)


@same
def test_lower_from_shapes(S):
    f = S.jax.jit(lambda x: x.sum())
    lowered = f.lower(S.jax.ShapeDtypeStruct((3,), S.jnp.float32))
    return lowered.compile()(S.jnp.ones(3)), lowered.out_info.shape, lowered.out_info.dtype.name


STAGE_ERRORS = {
    "shape": lambda S, c: c(S.jnp.ones(4)),
    "dtype": lambda S, c: c(S.jnp.ones(3, "int32")),
    "count": lambda S, c: c(S.jnp.ones(3), 1.0),
    "keyword": lambda S, c: c(x=S.jnp.ones(3)),
    "tree": lambda S, c: c((S.jnp.ones(3),)),
    "grad": lambda S, c: S.jax.grad(lambda x: c(x).sum())(S.jnp.ones(3)),
    "vmap": lambda S, c: S.jax.vmap(c)(S.jnp.ones((2, 3))),
    "jit": lambda S, c: S.jax.jit(c)(S.jnp.ones(3)),
}


@pytest.mark.raises("TypeError")
@same
@pytest.mark.parametrize("name", sorted(STAGE_ERRORS))
def test_compiled_rejects(S, name):
    compiled = S.jax.jit(lambda x: x * 2).lower(S.jnp.ones(3)).compile()
    return STAGE_ERRORS[name](S, compiled)


@same
def test_compiled_takes_python_scalars(S):
    compiled = S.jax.jit(lambda x: x * 2).lower(S.jax.ShapeDtypeStruct((), S.jnp.float32)).compile()
    return compiled(3.0), compiled(np.float32(3))


@same
def test_compiled_with_statics(S):
    f = S.jax.jit(lambda x, n: x * n, static_argnums=1)
    return f.lower(S.jnp.ones(2), 3).compile()(S.jnp.ones(2))


@same
def test_trace_stage(S):
    traced = S.jax.jit(lambda x: S.jnp.sin(x) * 2).trace(1.0)
    return [e.primitive.name for e in traced.jaxpr.eqns], traced.lower().compile()(2.0)


@same
def test_eval_shape(S):
    def fun(x, y=None):
        return {"sum": x.sum(0), "twice": [x * 2, 1]}

    x = S.jax.ShapeDtypeStruct((4, 3), S.jnp.bfloat16)
    out = S.jax.eval_shape(fun, x, y=S.jnp.ones(2))
    other = S.jax.jit(fun).eval_shape(x)
    return [
        (leaf.shape, leaf.dtype.name, leaf.weak_type)
        for leaf in S.jax.tree_util.tree_leaves((out, other))
    ]


@same
def test_shape_dtype_struct(S):
    a = S.jax.ShapeDtypeStruct((2, 3), "float32")
    b = S.jax.ShapeDtypeStruct([2, 3], S.jnp.float32)
    return a == b, hash(a) == hash(b), a.ndim, a.size, len(a), repr(a), a.update(shape=(1,)).shape


@same
def test_eval_shape_runs_nothing_large(S):
    out = S.jax.eval_shape(lambda x: x @ x, S.jax.ShapeDtypeStruct((10**6, 10**6), "float32"))
    return out.shape


@pytest.mark.parametrize("called", [False, True])
@same
def test_objects_that_keep_their_own_jitted_methods_go(S, called):
    class Model:
        def __init__(self):
            self.step = S.jax.jit(self._step)

        def _step(self, x):
            return x + 1

    model = Model()
    if called:
        assert float(model.step(1.0)) == 2
    alive = weakref.ref(model)
    del model
    gc.collect()
    return alive() is None
