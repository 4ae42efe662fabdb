"""Mutable arrays: reads and writes in every context do what they do in JAX."""

import functools

import jax
import numpy as np
import oracle
import pytest

import ferrax
import ferrax.numpy as jnp

# A ref keeps its weak type here; JAX's depends on what was written last.
same = functools.partial(oracle.same, weak=False)


def module(s):
    return ferrax.ref if s.name == "ferrax" else jax.ref


def check(case, **options):
    oracle.same(case, **({"weak": False} | options))()


def raises(case, message, kind=ValueError, in_jax=True):
    """ferrax raises `kind` with this text; JAX raises something, unless `in_jax` is False."""
    with pytest.raises(kind, match=message):
        case(oracle.FERRAX)
    if in_jax:
        with pytest.raises(Exception):  # noqa: B017  JAX raises `Exception` itself in places
            case(oracle.JAX)


# Reads and writes.

INDICES = {
    "all": lambda s: ...,
    "empty": lambda s: (),
    "none": lambda s: None,
    "integer": lambda s: 1,
    "negative": lambda s: -1,
    "pair": lambda s: (1, 2),
    "slice": lambda s: slice(1, 3),
    "step": lambda s: (slice(None), slice(0, 4, 2)),
    "column": lambda s: (slice(None), 1),
    "ellipsis": lambda s: (..., 0),
    "array": lambda s: s.jnp.array([2, 0]),
    "pair of arrays": lambda s: (s.jnp.array([0, 2]), s.jnp.array([1, 3])),
    "array and slice": lambda s: (s.jnp.array([0, 2]), slice(1, 3)),
    "slice and array": lambda s: (slice(1, 3), s.jnp.array([0, 2])),
    "matrix": lambda s: s.jnp.array([[2, 0], [1, 1]]),
    "numpy": lambda s: np.array([1, 2]),
    "traced scalar": lambda s: (s.jnp.int32(2), s.jnp.int32(1)),
}


@pytest.mark.parametrize("name", INDICES)
@pytest.mark.parametrize("jitted", [False, True])
@same
def test_index_forms(s, name, jitted):
    jitted = jitted and name != "traced scalar"  # JAX fails on these in jit.
    index = INDICES[name](s)
    ref = s.jax.new_ref(s.jnp.arange(12.0).reshape(3, 4))

    def use(x):
        before = ref[index]
        ref[index] = before * x
        middle = ref[...]
        old = module(s).swap(ref, index, ref[index] + 1.0)
        module(s).addupdate(ref, index, before)
        return before, middle, old, module(s).get(ref, index)

    return (s.jax.jit(use) if jitted else use)(3.0), ref[...]


@same
def test_updates_of_repeated_indices_add_up(s):
    ref = s.jax.new_ref(s.jnp.zeros(3))
    ref.addupdate(s.jnp.ones(4), s.jnp.array([0, 1, 0, 0]))
    return ref[...]


@same
def test_attributes(s):
    ref = s.jax.new_ref(s.jnp.zeros((2, 3), s.jnp.int8))
    return ref.shape, ref.dtype.name, ref.ndim, ref.size, len(ref), repr(ref), str(ref.aval)


@same
def test_the_ref_holds_a_copy(s):
    x = s.jnp.arange(3.0)
    ref = s.jax.new_ref(x)
    before = ref[...]
    ref[0] = 9.0
    return x, before, ref[...], s.jax.freeze(ref), module(s).free_ref(ref)


def test_donating_what_was_read_leaves_the_ref_alone():
    ref = ferrax.new_ref(jnp.arange(3.0))
    value = ref[...]
    ferrax.jit(lambda x: x + 1, donate_argnums=0)(value)
    assert value.is_deleted()
    np.testing.assert_array_equal(ref[...], [0, 1, 2])


@pytest.mark.parametrize("dtype", ["int32", "float32", "bfloat16", "bool", "complex64", "uint8"])
@pytest.mark.parametrize("value", [1, 1.5, True, 2j, np.int8(3), np.float16(2.5)])
def test_values_are_cast_as_in_jax(dtype, value):
    @same(rtol=1e-2)
    def case(s):
        ref = s.jax.new_ref(s.jnp.zeros((), dtype))
        ref[...] = value
        return ref[...]

    case()


@same
def test_weak_types_of_reads(s):
    strong = s.jax.new_ref(s.jnp.zeros(2))
    strong[0] = 1.0
    return [s.jax.new_ref(1.0)[...].weak_type, strong[...].weak_type, strong[0].weak_type]


@same
def test_keys(s):
    ref = s.jax.new_ref(s.random.split(s.random.key(0), 2))
    ref[0] = s.random.key(7)
    return s.random.key_data(ref[...])


@same
def test_random_keys_that_advance(s):
    ref = s.jax.new_ref(s.random.key(0))

    @s.jax.jit
    def draw():
        ref[...], key = s.random.split(ref[...])
        return s.random.uniform(key, (2,))

    return draw(), draw(), draw()


@same
def test_empty_ref_in_jit(s):
    def f(x):
        ref = module(s).empty_ref(s.jax.ShapeDtypeStruct((2,), s.jnp.float32))
        ref[...] = s.jnp.stack([x, 2 * x])
        return ref[...]

    return s.jax.jit(f)(3.0)


def test_the_type_of_a_ref():
    ref = ferrax.new_ref(jnp.zeros(2))
    assert isinstance(ref, ferrax.Ref) and ferrax.typeof(ref) == ref.aval
    assert ferrax.typeof(ref) == ferrax.ref.AbstractRef(ferrax.typeof(jnp.ones(2)))
    assert ferrax.block_until_ready([ref])[0] is ref
    assert ferrax.ref.empty_ref(jnp.ones(3)).shape == (3,)
    assert sorted(ferrax.ref.__all__) == sorted(jax.ref.__all__)


@pytest.mark.parametrize(
    ("use", "message", "kind"),
    [
        (lambda s, r: r.__setitem__(0, 1), "its dtype is float32, but the value's is int32", ValueError),
        (lambda s, r: r.__setitem__(..., 1.0), "shape \\(3,\\), but the value has shape \\(\\)", ValueError),
        (lambda s, r: r.addupdate(s.jnp.ones(2)), "Invalid shape for `addupdate`", ValueError),
        (lambda s, r: r.__setitem__(0, r), "Did you forget to read it", ValueError),
        (lambda s, r: r[3], "out of bounds for axis 0 of size 3", ValueError),
        (lambda s, r: r[0, 0], "has 2 entries, but its shape \\(3,\\)", ValueError),
        (lambda s, r: r[::-1], "step >= 1", ValueError),
        (lambda s, r: r["x"], "string", TypeError),
        (lambda s, r: r[s.jax.new_ref(0)], "Read it first", TypeError),
        (lambda s, r: r.at[0], "no .at", NotImplementedError),
        (lambda s, r: s.jnp.sin(r), "got Ref", TypeError),
        (lambda s, r: r + 1, "unsupported operand", TypeError),
        (lambda s, r: s.jax.new_ref(r), "cannot hold a Ref", TypeError),
        (lambda s, r: s.jax.new_ref([1, 2]), "list", TypeError),
        (lambda s, r: module(s).swap(s.jnp.ones(3), ..., 1.0), "on a `Ref`", ValueError),
        (lambda s, r: s.jax.new_ref(1.0, memory_space="vmem"), "one memory space", NotImplementedError),
    ],
)
def test_errors(use, message, kind):
    raises(lambda s: use(s, s.jax.new_ref(s.jnp.zeros(3))), message, kind)


def test_errors_name_the_line():
    ref = ferrax.new_ref(jnp.zeros(3))
    with pytest.raises(ValueError, match=r"test_refs\.py:\d+ \(test_errors_name_the_line\)"):
        ref[5]


# jit.


@same
def test_jit_argument(s):
    @s.jax.jit
    def f(ref, x):
        ref[0] += x
        return ref[1] * 2

    first, second = s.jax.new_ref(s.jnp.arange(3.0)), s.jax.new_ref(s.jnp.ones(3))
    outs = [f(first, 1.0), f(second, 2.0), f(first, 3.0)]
    return outs, first[...], second[...]


@same
def test_jit_closed_over(s):
    ref = s.jax.new_ref(s.jnp.arange(3.0))

    @s.jax.jit
    def f(x):
        ref[0] += x
        return ref[1] * 2

    outs = [f(1.0)]
    ref[1] = 100.0
    return outs + [f(2.0)], ref[...]


def test_calls_with_refs_are_traced_once():
    traces = []
    held = ferrax.new_ref(0.0)

    @ferrax.jit
    def f(ref, x):
        traces.append(1)
        ref[...] += x
        held[...] += 1.0

    refs = [ferrax.new_ref(jnp.zeros(2)) for _ in range(3)]
    for ref in refs:
        f(ref, 1.0)
        f(ref, 2.0)
    assert len(traces) == 1 and f._cache_size() == 1
    assert held[...] == 6
    for ref in refs:
        np.testing.assert_array_equal(ref[...], [3, 3])
    f(ferrax.new_ref(jnp.zeros(3)), 1.0)
    assert len(traces) == 2
    # An array is not taken for a ref of its type.
    with pytest.raises(TypeError):
        f(jnp.zeros(2), 1.0)


@same
def test_jit_local_ref(s):
    def f(x):
        ref = s.jax.new_ref(s.jnp.zeros(3))
        for i in range(3):
            ref[i] = x * i
        return ref[...]

    return s.jax.jit(f)(2.0)


@same
def test_jit_in_jit(s):
    outer = s.jax.new_ref(s.jnp.zeros(2))

    @s.jax.jit
    def inner(ref, x):
        ref[0] += x
        outer[1] += x
        return ref[...]

    @s.jax.jit
    def f(ref, x):
        local = s.jax.new_ref(s.jnp.ones(2))
        return inner(ref, x), inner(local, x), inner(ref, 2 * x), local[...]

    ref = s.jax.new_ref(s.jnp.zeros(2))
    return f(ref, 3.0), f(ref, 1.0), ref[...], outer[...]


@same
def test_jit_with_static_donated_and_keyword_arguments(s):
    @functools.partial(s.jax.jit, static_argnums=0, donate_argnums=1)
    def f(n, x, *, ref):
        ref[n] = x.sum()
        return x * 2

    ref = s.jax.new_ref(s.jnp.zeros(3))
    x = s.jnp.ones(2)
    return f(1, x, ref=ref), f(2, s.jnp.arange(2.0), ref=ref), x.is_deleted(), ref[...]


@same
def test_refs_in_trees(s):
    @s.jax.jit
    def f(state):
        state["count"][...] += 1
        state["sum"][0][...] += state["x"]

    state = {"count": s.jax.new_ref(0), "sum": (s.jax.new_ref(s.jnp.zeros(2)),), "x": 2.0}
    f(state)
    f(state)
    return state["count"][...], state["sum"][0][...]


@same
def test_disable_jit(s):
    ref = s.jax.new_ref(1.0)
    with s.jax.disable_jit():
        s.jax.jit(lambda r, x: r.addupdate(x))(ref, 2.0)
        s.lax.cond(True, lambda r: r.addupdate(1.0), lambda r: None, ref)
        s.lax.scan(lambda c, x: (c, ref.addupdate(x)), 0.0, s.jnp.arange(3.0))
    return ref[...]


@same
def test_eval_shape(s):
    ref = s.jax.new_ref(0.0)

    def f(r, x):
        r[...] += x
        return x + 1

    return ref[...], s.jax.eval_shape(f, ref, 1.0).shape


def test_ahead_of_time():
    # JAX's compiled functions with refs fail where they return anything.
    held, ref = ferrax.new_ref(1.0), ferrax.new_ref(2.0)

    @ferrax.jit
    def f(r, x):
        r[...] += x
        held[...] *= r[...]
        return x + 1

    lowered = f.lower(ref, 1.0)
    assert lowered.out_info.shape == ()
    compiled = lowered.compile()
    assert compiled(ref, 1.0) == 2
    assert compiled(ferrax.new_ref(0.0), 2.0) == 3
    assert ref[...] == 3 and held[...] == 6
    with pytest.raises(ValueError, match="closed over and passed as the argument r"):
        compiled(held, 1.0)
    assert len(f.trace(ref, 1.0).jaxpr.consts) == 1


def test_programs_show_values_of_refs():
    ref = ferrax.new_ref(1.0)
    closed, shape = ferrax.make_jaxpr(
        lambda r, x: (r.addupdate(x), r[...] * 2)[1], return_shape=True
    )(ref, 2.0)
    assert shape.shape == () and len(closed.out_avals) == 2
    np.testing.assert_allclose(closed._run([1.0, 2.0]), [6.0, 3.0])
    assert ref[...] == 1
    with pytest.raises(ValueError, match="a file cannot hold"):
        ferrax.export.export(ferrax.jit(lambda: ref[...]))()
    with pytest.raises(ValueError, match=r"Pass its value, ref\[\.\.\.\]"):
        ferrax.closure_convert(lambda x: x * ref[...], 1.0)


def _twice(s, use):
    ref = s.jax.new_ref(s.jnp.arange(3.0))
    return use(ref, ref)


@pytest.mark.parametrize(
    ("use", "kind"),
    [
        (lambda s, r: s.jax.jit(lambda a, b: b[0])(r, r), "jit"),
        (lambda s, r: s.jax.vmap(lambda a, b: b[...])(r, r), "vmap"),
        (lambda s, r: s.lax.cond(True, lambda a, b: b[0], lambda a, b: a[0], r, r), "cond"),
        (lambda s, r: s.lax.switch(0, [lambda a, b: b[0]] * 2, r, r), "switch"),
        (lambda s, r: s.lax.scan(lambda c, ab: (c, ab[0][...]), 0.0, (r, r)), "scan"),
        (lambda s, r: s.jax.eval_shape(lambda a, b: b[0], r, r), "stage"),
    ],
)
def test_a_ref_is_passed_once(use, kind):
    def case(s):
        return use(s, s.jax.new_ref(s.jnp.arange(3.0)))

    raises(case, f"for {kind} the mutable array reference of type .* appeared at both")


@pytest.mark.parametrize(
    ("use", "kind"),
    [
        (lambda s, r: s.jax.jit(lambda a: r[0])(r), "jit"),
        (lambda s, r: s.lax.cond(True, lambda a: r[0], lambda a: a[0], r), "cond"),
        (lambda s, r: s.jax.jit(lambda a: s.jax.jit(lambda b: a[0] + b[0])(a))(r), "jit"),
    ],
)
def test_a_ref_is_not_passed_and_closed_over(use, kind):
    def case(s):
        return use(s, s.jax.new_ref(s.jnp.arange(3.0)))

    raises(case, f"for {kind}, a mutable array reference .* was both closed over and passed as .*a")


def test_a_known_call_is_checked_too():
    held = ferrax.new_ref(jnp.zeros(2))
    f = ferrax.jit(lambda a, b: a[0] + b[0] + held[0])
    f(ferrax.new_ref(jnp.ones(2)), ferrax.new_ref(jnp.ones(2)))
    ref = ferrax.new_ref(jnp.ones(2))
    with pytest.raises(ValueError, match="appeared at both a and b"):
        f(ref, ref)
    with pytest.raises(ValueError, match="closed over and passed as the argument b"):
        f(ref, held)


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda s, r: s.jax.jit(lambda x: s.jax.new_ref(x))(1.0), "created at .*test_refs.py"),
        (lambda s, r: s.jax.jit(lambda x: x)(r), "passed in as the argument x"),
        (lambda s, r: s.jax.jit(lambda x: r)(1.0), "traced for jit returned"),
        (lambda s, r: s.jax.jit(lambda x: {"a": [s.jax.new_ref(x)]})(1.0), r"result\['a'\]\[0\]"),
        (lambda s, r: s.lax.cond(True, lambda: r, lambda: r), "traced for cond returned"),
        (lambda s, r: s.lax.cond(True, lambda r: r, lambda r: r, r), "as the argument r"),
        (lambda s, r: s.lax.scan(lambda c, x: (c, r), 0.0, s.jnp.arange(2)), "for scan returned"),
        (lambda s, r: s.lax.scan(lambda c, x: (c, x), r, s.jnp.arange(2)), "in the carry"),
        (lambda s, r: s.lax.while_loop(lambda c: False, lambda c: c, r), "in the value"),
        (lambda s, r: s.lax.fori_loop(0, 2, lambda i, c: c, r), "in the carry"),
    ],
)
def test_refs_are_not_returned(use, message):
    raises(lambda s: use(s, s.jax.new_ref(1.0)), message)


def test_refs_end_with_their_function():
    def case(s):
        kept = []
        s.jax.jit(lambda x: kept.append(s.jax.new_ref(x)))(1.0)
        kept[0][...]

    with pytest.raises(ferrax.errors.UnexpectedTracerError, match="created at .*test_refs.py"):
        case(oracle.FERRAX)
    with pytest.raises(jax.errors.UnexpectedTracerError):
        case(oracle.JAX)


def test_a_failed_trace_writes_nothing():
    ref = ferrax.new_ref(1.0)

    @ferrax.jit
    def f(x):
        ref[...] = x
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        f(2.0)
    assert ref[...] == 1
    ref[...] = 3.0
    assert ferrax.jit(lambda: ref[...])() == 3


# Loops and branches.


@pytest.mark.parametrize("jitted", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
@same
def test_scan(s, jitted, reverse):
    ref, read_only = s.jax.new_ref(s.jnp.zeros(3)), s.jax.new_ref(2.0)

    def f(c):
        def body(c, i):
            ref[i] = c * read_only[...]
            return c + 1.0, ref[0]

        return s.lax.scan(body, c, s.jnp.arange(3), reverse=reverse, unroll=2)

    return (s.jax.jit(f) if jitted else f)(1.0), ref[...]


@same
def test_scan_over_a_ref(s):
    ref, held = s.jax.new_ref(s.jnp.arange(6.0).reshape(3, 2)), s.jax.new_ref(0.0)

    def body(c, element):
        (row, x) = element
        row[0] *= x
        held[...] += row[1]
        return c + row[...], row[...]

    out = s.lax.scan(body, s.jnp.zeros(2), (ref, s.jnp.arange(3.0)))
    return out, ref[...], held[...]


@same
def test_scan_with_a_carry_that_is_promoted(s):
    ref = s.jax.new_ref(0)

    def body(c, x):
        ref[...] += 1
        return c + x, None

    return s.lax.scan(body, 0, s.jnp.arange(3.0)), ref[...]


@pytest.mark.parametrize("bounds", ["known", "traced"])
@same
def test_fori_loop(s, bounds):
    ref = s.jax.new_ref(s.jnp.zeros(4))

    def f(n):
        def body(i, c):
            ref[i] = i * c
            return c + 1.0

        return s.lax.fori_loop(0, n, body, 1.0)

    return (f(3) if bounds == "known" else s.jax.jit(f)(3)), ref[...]


@same
def test_while_loop(s):
    ref, limit = s.jax.new_ref(s.jnp.float32(1.0)), s.jax.new_ref(s.jnp.float32(50.0))

    def body(c):
        ref[...] *= 2.0
        return c + ref[...]

    return s.lax.while_loop(lambda c: c < limit[...], body, s.jnp.float32(0.0)), ref[...]


def test_while_loop_whose_condition_reads_what_the_body_writes():
    # JAX raises here, unless the loop is in a jitted function.
    def f(s, ref):
        def body(c):
            ref[...] += 1.0
            return c + 1

        return s.lax.while_loop(lambda c: ref[...] < 5, body, 0)

    @same
    def jitted(s):
        ref = s.jax.new_ref(0.0)
        return s.jax.jit(lambda ref: f(s, ref))(ref), ref[...]

    ref = ferrax.new_ref(0.0)
    assert f(oracle.FERRAX, ref) == 5 and ref[...] == 5


def test_while_loop_whose_condition_writes():
    # Asked six times; JAX forgets the last.
    asked, ref = ferrax.new_ref(0), ferrax.new_ref(0.0)

    def condition(c):
        asked[...] += 1
        return c < 5

    def body(c):
        ref[...] += 1.0
        return c + 1

    @ferrax.jit
    def f(c):
        return ferrax.lax.while_loop(condition, body, c)

    assert f(0) == 5 and asked[...] == 6 and ref[...] == 5


@pytest.mark.parametrize("passed", [False, True])
@pytest.mark.parametrize("pred", [False, True])
@pytest.mark.parametrize("jitted", [False, True])
@same
def test_cond(s, passed, pred, jitted):
    ref, other = s.jax.new_ref(s.jnp.zeros(2)), s.jax.new_ref(1.0)

    def on_true(r, x):
        r[0] += x
        return other[...]

    def on_false(r, x):
        other[...] = x
        return r[1]

    def f(pred, x):
        if passed:
            return s.lax.cond(pred, on_true, on_false, ref, x)
        return s.lax.cond(pred, lambda x: on_true(ref, x), lambda x: on_false(ref, x), x)

    return (s.jax.jit(f) if jitted else f)(pred, 3.0), ref[...], other[...]


@pytest.mark.parametrize("index", [0, 1, 2])
@same
def test_switch(s, index):
    ref, other = s.jax.new_ref(1.0), s.jax.new_ref(5.0)

    def swap():
        ref[...], other[...] = other[...], ref[...]
        return 0.0

    branches = [lambda: ref[...], lambda: (ref.addupdate(2.0), 7.0)[1], swap]
    return s.lax.switch(index, branches), ref[...], other[...]


@same
def test_map_and_associative_scan(s):
    ref = s.jax.new_ref(s.jnp.zeros(3))

    def f(i):
        ref[i] += 1.0
        return ref[...].sum()

    return s.lax.map(f, s.jnp.arange(3)), ref[...]


@same
def test_nested_control_flow(s):
    def f(x):
        log, count = s.jax.new_ref(s.jnp.zeros(4)), s.jax.new_ref(0)

        def step(c, i):
            def big(c):
                log[i] = c
                return c * 0.5

            def small(c):
                def inner(j, c):
                    count[...] += 1
                    return c * x

                return s.lax.fori_loop(0, 2, inner, c)

            return s.lax.cond(c > 4.0, big, small, c), count[...]

        out = s.lax.scan(step, x, s.jnp.arange(4))
        return out, log[...], count[...]

    return s.jax.jit(f)(1.5), f(1.5)


# vmap.


@same
def test_vmap_over_refs(s):
    def f(ref, x):
        ref[1] += x
        return ref[...] * 2

    ref = s.jax.new_ref(s.jnp.zeros((2, 3)))
    out = s.jax.vmap(f, in_axes=(1, 0))(ref, s.jnp.arange(3.0))
    jitted = s.jax.jit(s.jax.vmap(f, in_axes=(1, 0)))(ref, s.jnp.arange(3.0))
    return out, jitted, ref[...]


@same
def test_vmap_reads_outer_refs(s):
    table = s.jax.new_ref(s.jnp.arange(3.0))
    return s.jax.vmap(lambda i, t: table[i] + t[0], in_axes=(0, None))(s.jnp.array([2, 0]), table)


@pytest.mark.parametrize("start", ["constant", "mapped"])
@same
def test_vmap_with_refs_inside(s, start):
    def f(x):
        ref = s.jax.new_ref(s.jnp.zeros(()) if start == "constant" else x * 0)
        s.lax.fori_loop(0, 3, lambda i, c: ref.addupdate(x * i), None)
        return ref[...]

    x = s.jnp.arange(3.0)
    return s.jax.vmap(f)(x), s.jax.vmap(s.jax.jit(f))(x), s.jax.jit(s.jax.vmap(f))(x)


@same
def test_vmap_in_loops_and_branches(s):
    def f(ref, x):
        s.lax.scan(lambda c, i: (c, ref.addupdate(x, i)), 0, s.jnp.array([0, 1, 1]))
        s.lax.while_loop(lambda c: c < x, lambda c: (ref.addupdate(1.0, 1), c + 1)[1], 0.0)
        return ref[0]

    ref = s.jax.new_ref(s.jnp.zeros((3, 2)))
    return s.jax.vmap(f)(ref, s.jnp.arange(3.0)), ref[...]


def test_vmap_of_cond():
    # JAX has no refs in a cond over a batch of predicates.
    ref = ferrax.new_ref(jnp.arange(3.0))

    def f(r, x):
        ferrax.lax.cond(x > 1, lambda: r.addupdate(10.0), lambda: r.__setitem__(..., -x))

    ferrax.vmap(f)(ref, jnp.arange(3.0))
    np.testing.assert_array_equal(ref[...], [0, -1, 12])


@same
def test_vmap_of_vmap(s):
    ref = s.jax.new_ref(s.jnp.zeros((2, 3)))

    def f(r, x):
        r[...] = x * x
        return r[...]

    return s.jax.vmap(s.jax.vmap(f))(ref, s.jnp.arange(6.0).reshape(2, 3)), ref[...]


@same
def test_vmap_returns_refs(s):
    ref = s.jax.new_ref(s.jnp.arange(3.0))
    made = s.jax.vmap(lambda x: s.jax.new_ref(x * 2))(s.jnp.arange(3.0))
    made[0] = 9.0
    return made[...], s.jax.vmap(lambda r: r)(ref)[...]


@pytest.mark.parametrize(
    "use",
    [
        lambda s, r: s.jax.vmap(lambda x: r.__setitem__(..., x))(s.jnp.arange(3.0)),
        lambda s, r: s.jax.vmap(lambda x: r.addupdate(x))(s.jnp.arange(3.0)),
        lambda s, r: s.jax.vmap(lambda x: r.__setitem__(..., 1.0))(s.jnp.arange(3.0)),
        lambda s, r: s.jax.vmap(lambda r, x: r.addupdate(x), (None, 0))(r, s.jnp.arange(3.0)),
        lambda s, r: s.jax.vmap(
            lambda x: s.lax.fori_loop(0, 2, lambda i, c: r.addupdate(x), None)
        )(s.jnp.arange(3.0)),
    ],
)
def test_vmap_does_not_write_to_unmapped_refs(use):
    raises(lambda s: use(s, s.jax.new_ref(0.0)), "inside vmap on an unbatched array reference")


# Derivatives.


def _powers(s, x):
    ref = s.jax.new_ref(s.jnp.zeros(3))
    ref[0] = x
    ref[1:] += x * x
    return ref[...].sum()


def _scanned(s, x):
    ref = s.jax.new_ref(s.jnp.zeros(()))

    def body(c, i):
        ref[...] += c * x
        return c * x, None

    c, _ = s.lax.scan(body, 1.0, s.jnp.arange(3))
    return ref[...] + c


def _loop(s, x):
    ref = s.jax.new_ref(x)

    def body(i, c):
        ref[...] = ref[...] * x
        return c

    s.lax.fori_loop(0, 3, body, 0)
    return ref[...]


def _branch(s, x):
    ref = s.jax.new_ref(x)

    def scale():
        ref[...] = ref[...] * s.jnp.sin(x)

    s.lax.cond(x > 0, scale, lambda: None)
    return ref[...]


def _inner_jit(s, x):
    ref = s.jax.new_ref(0.0)
    s.jax.jit(lambda r, x: r.addupdate(s.jnp.sin(x)))(ref, x)
    return ref[...] * x


def _indexed(s, x):
    ref = s.jax.new_ref(s.jnp.arange(4.0))
    old = module(s).swap(ref, 2, x)
    module(s).addupdate(ref, s.jnp.array([0, 1]), s.jnp.stack([x * x, old]))
    return (ref[...] * s.jnp.arange(1.0, 5.0)).sum() + s.jax.freeze(ref)[0]


def _over_a_ref(s, x):
    ref = s.jax.new_ref(s.jnp.arange(3.0) * x)

    def body(c, row):
        row[...] *= x
        return c + row[...], None

    c, _ = s.lax.scan(body, 0.0, ref)
    return c + ref[1]


DIFFERENTIATED = [_powers, _scanned, _loop, _branch, _inner_jit, _indexed, _over_a_ref]


@pytest.mark.parametrize("f", DIFFERENTIATED)
@pytest.mark.parametrize("how", ["grad", "jit of grad", "grad of jit", "jvp", "linearize"])
@same
def test_derivatives(s, f, how):
    f = functools.partial(f, s)
    grad, jit = s.jax.grad, s.jax.jit
    for x in (1.5, -0.5):
        if how == "jvp":
            result = s.jax.jvp(f, (x,), (2.0,))
        elif how == "linearize":
            out, push = s.jax.linearize(f, x)
            result = out, push(2.0)
        else:
            result = {"grad": grad(f), "jit of grad": jit(grad(f)), "grad of jit": grad(jit(f))}[how](x)
    return result


@pytest.mark.parametrize("f", DIFFERENTIATED)
def test_second_derivatives_are_those_of_the_differences(f):
    # JAX fails on some of these.
    f = functools.partial(f, oracle.FERRAX)
    grad = ferrax.grad(f)
    with ferrax.enable_x64(True):
        x = jnp.float64(1.25)
        expected = (grad(x + 1e-5) - grad(x - 1e-5)) / 2e-5
        np.testing.assert_allclose(ferrax.grad(grad)(x), expected, rtol=1e-6)
        np.testing.assert_allclose(ferrax.hessian(ferrax.jit(f))(x), expected, rtol=1e-6)


# JAX fails on batches of the others.
BATCHED = [f for f in DIFFERENTIATED if f not in (_branch, _over_a_ref)]


@pytest.mark.parametrize("f", BATCHED)
@same
def test_derivatives_of_batches(s, f):
    f = functools.partial(f, s)
    x = s.jnp.array([1.5, -0.5, 0.25])
    return s.jax.vmap(s.jax.grad(f))(x), s.jax.grad(lambda x: s.jax.vmap(f)(x).sum())(x)


@pytest.mark.parametrize("f", [_branch, _over_a_ref])
def test_derivatives_of_batches_are_those_of_the_lanes(f):
    grad = ferrax.grad(functools.partial(f, oracle.FERRAX))
    x = jnp.array([1.5, -0.5, 0.25])
    np.testing.assert_allclose(ferrax.vmap(grad)(x), [grad(lane) for lane in x], rtol=1e-6)


@same
def test_outer_refs_in_differentiated_functions(s):
    ref, log = s.jax.new_ref(2.0), s.jax.new_ref(s.jnp.zeros(2))

    def f(x, passed):
        passed[...] *= 3.0
        log[0] = s.lax.stop_gradient(x)
        log[1] += 1.0
        return x * x * ref[...] * passed[...]

    passed = s.jax.new_ref(1.0)
    value, gradient = s.jax.value_and_grad(f)(3.0, passed)
    jitted = s.jax.jit(s.jax.grad(f))(2.0, passed)
    inner = s.jax.grad(s.jax.jit(f))(2.0, passed)
    _, pull = s.jax.vjp(lambda x: f(x, passed), 1.0)
    return value, gradient, jitted, inner, pull(1.0), passed[...], log[...]


@pytest.mark.parametrize(
    "use",
    [
        lambda s, f: s.jax.grad(f)(3.0),
        lambda s, f: s.jax.jvp(f, (3.0,), (1.0,)),
        lambda s, f: s.jax.vjp(f, 3.0),
        lambda s, f: s.jax.linearize(f, 3.0),
        lambda s, f: s.jax.grad(s.jax.jit(f))(3.0),
        lambda s, f: s.jax.jit(s.jax.grad(f))(3.0),
    ],
)
def test_differentiated_values_stay_inside(use):
    def case(s):
        ref = s.jax.new_ref(0.0)
        return use(s, lambda x: (ref.__setitem__(..., x), x * x)[1])

    raises(case, "differentiated value on a non-differentiated array reference")


@pytest.mark.parametrize("use", ["grad", "vjp", "jvp", "linearize"])
def test_refs_are_not_differentiated_by(use):
    ref = ferrax.new_ref(2.0)
    f = lambda r: r[...] ** 2  # noqa: E731
    with pytest.raises(ValueError, match=r"Differentiate by its value, ref\[\.\.\.\]"):
        if use == "jvp":
            ferrax.jvp(f, (ref,), (1.0,))
        elif use == "grad":
            ferrax.grad(f)(ref)
        else:
            getattr(ferrax, use)(f, ref)


@pytest.mark.parametrize("passed", [False, True])
def test_checkpoint(passed):
    # JAX's gradients are zero here, or it fails.
    def f(x):
        ref = ferrax.new_ref(1.0)
        if passed:
            ferrax.checkpoint(lambda r, x: r.addupdate(jnp.sin(x)))(ref, x)
        else:
            ferrax.checkpoint(lambda x: ref.addupdate(jnp.sin(x)))(x)
        return ref[...] * x

    @same
    def values(s):
        ref = s.jax.new_ref(1.0)
        s.jax.checkpoint(lambda r, x: r.addupdate(s.jnp.sin(x)))(ref, 2.0)
        return ref[...]

    values()
    np.testing.assert_allclose(f(2.0), (1 + np.sin(2.0)) * 2, rtol=1e-6)
    for g in (ferrax.grad(f), ferrax.jit(ferrax.grad(f)), ferrax.grad(ferrax.jit(f))):
        np.testing.assert_allclose(g(2.0), 1 + np.sin(2.0) + 2 * np.cos(2.0), rtol=1e-6)


def test_checkpoint_writes_once_to_outer_refs():
    ref = ferrax.new_ref(0.0)

    @ferrax.checkpoint
    def f(x):
        ref[...] += 1.0
        return jnp.sin(x) * ref[...]

    np.testing.assert_allclose(ferrax.grad(f)(3.0), np.cos(3.0), rtol=1e-6)
    assert ref[...] == 1


# Functions with rules of their own.


def _stash(s, add):
    """The identity, whose reverse rule writes or adds the cotangent to a ref."""

    @s.jax.custom_vjp
    def stash(ref, x):
        return x

    def bwd(ref, g):
        if add:
            ref.addupdate(g)
        else:
            ref[...] = g
        return None, g

    stash.defvjp(lambda ref, x: (x, ref), bwd)
    return stash


@pytest.mark.parametrize("how", ["grad", "jit of grad", "grad of jit", "passed to jit", "vjp"])
@pytest.mark.parametrize("add", [False, True])
@same
def test_reverse_rules_write_to_refs(s, how, add):
    stash = _stash(s, add)
    ref = s.jax.new_ref(s.jnp.ones(3))

    def f(x, ref=ref):
        return (stash(ref, x) * stash(ref, s.jnp.sin(x))).sum()

    x = s.jnp.arange(3.0)
    if how == "grad":
        out = s.jax.grad(f)(x)
    elif how == "jit of grad":
        jitted = s.jax.jit(s.jax.grad(f))
        out = jitted(x), jitted(2 * x)
    elif how == "grad of jit":
        out = s.jax.grad(s.jax.jit(f))(x)
    elif how == "passed to jit":
        jitted = s.jax.jit(lambda x, r: s.jax.grad(f)(x, r))
        out = jitted(x, ref), jitted(2 * x, ref)
    else:
        value, pull = s.jax.vjp(f, x)
        out = value, ref[...], pull(2.0)
    return out, ref[...]


@pytest.mark.parametrize("jitted", [False, True])
@same
def test_reverse_rules_write_in_loops(s, jitted):
    stash = _stash(s, True)
    ref, last = s.jax.new_ref(s.jnp.zeros(3)), s.jax.new_ref(s.jnp.zeros(3))
    keep = _stash(s, False)

    def f(x):
        def body(c, i):
            return keep(last, stash(ref, c)) * (1.5 + i), None

        x, _ = s.lax.scan(body, x, s.jnp.arange(3.0))
        return (stash(ref, x) * 2).sum()

    f = s.jax.jit(f) if jitted else f
    return s.jax.grad(f)(s.jnp.ones(3)), ref[...], last[...]


@pytest.mark.parametrize("jitted", [False, True])
def test_reverse_rules_write_in_branches(jitted):
    # JAX has no such rules in branches.
    ref, stash = ferrax.new_ref(jnp.zeros(())), _stash(oracle.FERRAX, True)

    def f(x):
        return ferrax.lax.cond(x > 0, lambda x: stash(ref, x) * 2, lambda x: x, x)

    f = ferrax.jit(f) if jitted else f
    assert (ferrax.grad(f)(1.0), ferrax.grad(f)(-1.0), ref[...]) == (2, 1, 2)


def test_reverse_rules_write_to_an_argument_of_a_jitted_function_inside():
    ref, stash = ferrax.new_ref(0.0), _stash(oracle.FERRAX, True)
    f = ferrax.jit(lambda r, x: jnp.sin(stash(r, x)))
    for count in (1, 2):
        ferrax.grad(lambda x: f(ref, x) * 2)(1.0)
        np.testing.assert_allclose(ref[...], count * 2 * np.cos(1.0), rtol=1e-6)
    other = ferrax.new_ref(0.0)
    ferrax.grad(lambda x: f(other, x))(0.0)
    assert other[...] == 1


def test_without_a_derivative_reverse_rules_do_nothing():
    ref, stash = ferrax.new_ref(0.0), _stash(oracle.FERRAX, False)
    f = lambda x: stash(ref, x) * 2  # noqa: E731
    assert ferrax.jit(f)(1.0) == 2
    np.testing.assert_array_equal(ferrax.vmap(f)(jnp.arange(2.0)), [0, 2])
    assert ref[...] == 0


@same
def test_reverse_rules_in_lanes(s):
    stash = _stash(s, False)
    ref = s.jax.new_ref(s.jnp.zeros(3))
    grad = s.jax.grad(lambda x, r: s.jnp.sin(stash(r, x)))
    return s.jax.vmap(grad)(s.jnp.arange(3.0), ref), ref[...]


def test_reverse_rules_of_elements_are_differentiated_by_lane():
    stash = _stash(oracle.FERRAX, False)

    def f(ref, x):
        return ferrax.vmap(lambda r, x: stash(r, x))(ref, x).sum()

    with pytest.raises(ValueError, match="Differentiate inside of the mapped function"):
        ferrax.grad(f, argnums=1)(ferrax.new_ref(jnp.zeros(3)), jnp.arange(3.0))


@pytest.mark.parametrize("how", ["call", "jit", "grad", "jit of grad", "grad of jit"])
@pytest.mark.parametrize("kind", ["custom_vjp", "custom_jvp"])
@pytest.mark.parametrize("passed", [False, True])
@same
def test_functions_with_rules_use_refs(s, how, kind, passed):
    held = s.jax.new_ref(2.0)

    if kind == "custom_vjp":

        @s.jax.custom_vjp
        def f(ref, x):
            ref[...] += 1.0
            return x * ref[...]

        f.defvjp(lambda ref, x: (f(ref, x), ref[...]), lambda scale, g: (None, g * scale * 10))
    else:

        @s.jax.custom_jvp
        def f(ref, x):
            ref[...] += 1.0
            return x * ref[...]

        @f.defjvp
        def _(primals, tangents):
            return f(*primals), tangents[1] * 7.0

    if not passed and kind == "custom_vjp":
        inner = s.jax.custom_vjp(lambda x: f.fun(held, x))
        inner.defvjp(lambda x: (f.fun(held, x), None), lambda _, g: (g * 10,))
    elif not passed:
        inner = s.jax.custom_jvp(lambda x: f.fun(held, x))
        inner.defjvp(lambda p, t: (inner(*p), t[0] * 7.0))
    else:
        inner = functools.partial(f, held)
    if how == "grad of jit" and not passed:
        return None  # JAX alone traces rules that close over refs there.
    if kind == "custom_jvp" and ("jit" in how or (passed and how == "grad")):
        return None  # JAX lacks rules for these.
    grad, jit = s.jax.grad, s.jax.jit
    function = {
        "call": inner,
        "jit": jit(inner),
        "grad": grad(inner),
        "jit of grad": jit(grad(inner)),
        "grad of jit": grad(jit(inner)),
    }[how]
    return function(3.0), function(1.0), held[...]


def test_forward_derivatives_of_rules_with_refs():
    held = ferrax.new_ref(2.0)

    @ferrax.custom_jvp
    def f(ref, x):
        ref[...] += 1.0
        return x * ref[...]

    @f.defjvp
    def _(primals, tangents):
        return f(*primals), tangents[1] * 7.0

    assert ferrax.grad(f, argnums=1)(held, 3.0) == 7
    assert ferrax.jit(ferrax.grad(f, argnums=1))(held, 3.0) == 7
    assert ferrax.jvp(lambda x: f(held, x), (3.0,), (2.0,)) == (15, 14)
    assert held[...] == 5


def test_rules_that_cannot_write():
    held = ferrax.new_ref(0.0)

    @ferrax.custom_vjp
    def f(x):
        return x

    f.defvjp(lambda x: (x, None), lambda _, g: (held.addupdate(g), (g,))[1])
    ferrax.grad(f)(1.0)
    assert held[...] == 1
    with pytest.raises(ValueError, match="closes over a mutable array .* pass the array as an arg"):
        ferrax.grad(ferrax.jit(f))(1.0)

    count, stash = ferrax.new_ref(0), ferrax.custom_vjp(lambda ref, x: x)
    stash.defvjp(lambda ref, x: (x, ref), lambda ref, g: (ref.addupdate(1), (None, g))[1])
    with pytest.raises(ValueError, match="Reverse rules write to floating ones alone"):
        ferrax.grad(stash, argnums=1)(count, 1.0)

    late = ferrax.custom_vjp(lambda ref, x: x)
    late.defvjp(lambda ref, x: (ref.addupdate(1.0), (x, None))[1], lambda _, g: (None, g))
    with pytest.raises(ValueError, match="Write to it in both"):
        ferrax.grad(ferrax.jit(late), argnums=1)(held, 1.0)


# Other users of programs.


def test_checked_functions_write_to_refs():
    from ferrax.experimental import checkify

    ref = ferrax.new_ref(0.0)

    def f(x):
        checkify.check(x > 0, "x is {x}", x=x)
        ref[...] += x
        return x * 2

    error, out = checkify.checkify(f)(jnp.float32(3.0))
    assert error.get() is None and out == 6 and ref[...] == 3
    error, _ = ferrax.jit(checkify.checkify(f))(jnp.float32(-1.0))
    assert "x is -1" in error.get() and ref[...] == 2


def test_what_cannot_write_says_so():
    ref = ferrax.new_ref(1.0)

    def f(x):
        ref[...] += 1.0
        return x * ref[...]

    with pytest.raises(ValueError, match="writes to a mutable array from outside"):
        ferrax.linear_transpose(f, 1.0)
    assert ferrax.linear_transpose(lambda x: x * ref[...], 1.0)(2.0) == (2,)
    from ferrax.experimental import jet

    with pytest.raises(ValueError, match="writes to a mutable array from outside"):
        jet.jet(f, (1.0,), ((1.0,),))



@pytest.mark.parametrize("jitted", [False, True])
@same
def test_gradients_are_added_to_refs(s, jitted):
    total = s.jax.new_ref(s.jnp.ones(3))

    def step(x, total):
        _, pull = s.jax.vjp(lambda x, y, z: (x["a"] * y * z).sum(), {"a": x}, x * 2, 3.0)
        out = pull.with_refs({"a": total}, s.jax.ad.GradValue(), s.jax.ad.DontWant())(2.0)
        return type(out[0]["a"]).__name__, out[1], type(out[2]).__name__

    if jitted:
        return s.jax.jit(lambda x, total: step(x, total)[1])(s.jnp.arange(3.0), total), total[...]
    return step(s.jnp.arange(3.0), total), step(s.jnp.ones(3), total), total[...]


def test_with_refs_takes_the_arguments_structure():
    _, pull = ferrax.vjp(jnp.multiply, 2.0, 3.0)
    with pytest.raises(ValueError, match="for each leaf of the arguments"):
        pull.with_refs(ferrax.new_ref(0.0))
    assert ferrax.jit(lambda pull, ct: pull(ct))(pull, 1.0) == (3, 2)
