"""Mutable arrays: reads and writes in every context do what they do in JAX."""

import functools

import jax
import numpy as np
import oracle
import pytest
from ref_cases import module, raises, same

import ferrax
import ferrax.numpy as jnp

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
    @same
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
    with pytest.raises(ValueError, match="argument r and closed over"):
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

    raises(case, f"^{kind} of .*: a mutable array reference of type .* appeared at both")


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

    raises(case, f"^{kind} of .*: a mutable array reference .* comes in twice, as .*a.* and closed over")


def test_a_known_call_is_checked_too():
    held = ferrax.new_ref(jnp.zeros(2))
    f = ferrax.jit(lambda a, b: a[0] + b[0] + held[0])
    f(ferrax.new_ref(jnp.ones(2)), ferrax.new_ref(jnp.ones(2)))
    ref = ferrax.new_ref(jnp.ones(2))
    with pytest.raises(ValueError, match="appeared at both a and b"):
        f(ref, ref)
    with pytest.raises(ValueError, match="argument b and closed over"):
        f(ref, held)


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda s, r: s.jax.jit(lambda x: s.jax.new_ref(x))(1.0), "created at .*test_refs.py"),
        (lambda s, r: s.jax.jit(lambda x: x)(r), "passed in as the argument x"),
        (lambda s, r: s.jax.jit(lambda x: r)(1.0), "^jit of .*: the result has a mutable array reference"),
        (lambda s, r: s.jax.jit(lambda x: {"a": [s.jax.new_ref(x)]})(1.0), r"result\['a'\]\[0\]"),
        (lambda s, r: s.lax.cond(True, lambda: r, lambda: r), "^cond of .*: the result has a mutable array reference"),
        (lambda s, r: s.lax.cond(True, lambda r: r, lambda r: r, r), "as the argument r"),
        (lambda s, r: s.lax.scan(lambda c, x: (c, r), 0.0, s.jnp.arange(2)), "^scan of .*: the result has a mutable"),
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
    raises(lambda s: use(s, s.jax.new_ref(0.0)), "every element of the batch writes to an unbatched array reference")
