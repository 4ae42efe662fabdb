"""What interpreters in libraries are written with: partial evaluation, traces, wrapped functions,
call primitives. One source, run on ferrax and on JAX."""

import functools
import importlib

import numpy as np
import pytest
from oracle import FERRAX, JAX, SIDES, module, same

import ferrax

X = np.array([0.5, 1.0, 2.0], np.float32)


def core(S):
    return module(S, "extend.core")


def pe(S):
    return module(S, "interpreters.partial_eval")


def lu(S):
    return module(S, "extend.linear_util")


def wrap(S, fun):
    return lu(S).wrap_init(fun)


def aval(S, shape=(), dtype="float32"):
    return module(S, "core").ShapedArray(shape, np.dtype(dtype))


def run(S, jaxpr, consts, *args):
    return module(S, "core").eval_jaxpr(jaxpr, consts, *args)


# Functions traced to jaxprs


@same(weak=False)
def test_tracing_to_a_jaxpr(S):
    captured = S.jnp.arange(3.0)
    fun = wrap(S, lambda x, y: [x * captured, y + 1])
    jaxpr, out_avals, consts = pe(S).trace_to_jaxpr_dynamic(fun, [aval(S, (3,)), aval(S)])
    x = S.jnp.asarray(X)
    return (
        len(jaxpr.invars),
        len(jaxpr.constvars),
        [str(a) for a in out_avals],
        consts,
        run(S, jaxpr, consts, x, 2.0),
    )


@same(weak=False)
def test_tracing_without_some_arguments(S):
    fun = wrap(S, lambda x: [x + 1])
    keep = [True, False]
    jaxpr, _, consts = pe(S).trace_to_jaxpr_dynamic(fun, [aval(S)] * 2, keep_inputs=keep)
    return len(jaxpr.invars), run(S, jaxpr, consts, 1.0, 5.0)


def partly(S):
    """Functions of a known and an unknown value."""
    jnp, jax = S.jnp, S.jax

    def calls(x, y):
        first, second = jax.jit(lambda x, y: (x + 1, x * y))(x, y)
        return [first, second, jnp.sin(x)]

    return {
        "operations": lambda x, y: [jnp.sin(x), x * y, y + 1, x, y],
        "calls": calls,
        "all known": lambda x, y: [x + 1, jnp.cos(x) * x],
        "none known": lambda x, y: [y * y],
        "control": lambda x, y: [S.lax.cond(x > 0, lambda: x, lambda: -x), S.lax.exp(y) * x],
        "python": lambda x, y: [y * 2 if x > 1 else y],
    }


@pytest.mark.parametrize("instantiate", [False, True, "last"])
@pytest.mark.parametrize("name", partly(FERRAX))
@same(weak=False)
def test_partial_evaluation(S, name, instantiate):
    fun = partly(S)[name]
    x, y = S.jnp.float32(2), S.jnp.float32(3)
    count = len(fun(x, y))
    if instantiate == "last":
        instantiate = [False] * (count - 1) + [True]
    PartialVal = pe(S).PartialVal
    pvals = [PartialVal.known(x), PartialVal.unknown(aval(S))]
    jaxpr, outs, consts = pe(S).trace_to_jaxpr_nounits(wrap(S, fun), pvals, instantiate)
    found = iter(run(S, jaxpr, consts, y))
    values = [pv.get_known() if pv.is_known() else next(found) for pv in outs]
    assert next(found, None) is None
    return [pv.is_known() for pv in outs], values, len(jaxpr.invars)


@same
def test_partial_values(S):
    PartialVal = pe(S).PartialVal
    known, unknown = PartialVal.known(np.float32(1)), PartialVal.unknown(aval(S, (2,)))
    return (
        known.is_known(),
        unknown.is_known(),
        float(known.get_known()),
        unknown.get_known(),
        str(known.get_aval()),
        str(unknown.get_aval()),
        isinstance(known, tuple),
        len(unknown),
    )


@same(weak=False)
def test_partial_evaluation_while_tracing(S):
    """Known values are those of the trace outside."""

    def outer(x):
        PartialVal = pe(S).PartialVal
        pvals = [PartialVal.known(x), PartialVal.unknown(aval(S))]
        fun = wrap(S, lambda x, y: [S.jnp.sin(x), x * y])
        jaxpr, outs, consts = pe(S).trace_to_jaxpr_nounits(fun, pvals)
        return outs[0].get_known(), run(S, jaxpr, consts, 3.0)[0]

    x = S.jnp.float32(2)
    return S.jax.jit(outer)(x), S.jax.grad(lambda x: sum(outer(x)))(x)


def looped(S):
    lax, jax, jnp = S.lax, S.jax, S.jnp

    def fun(x, y):
        c, ys = lax.scan(lambda c, a: ((c[0] + a, c[1] * 2), (a * 2, c[1])), (x, y), jnp.arange(3.0))
        d = lax.cond(x > 0, lambda x, y: (x, y * 2), lambda x, y: (x * 3, y), x, y)
        e = jax.checkpoint(lambda x, y: (jnp.sin(x), jnp.cos(y)))(x, y)
        f = jax.jit(lambda x, y: (x + 1, y - 1))(x, y)
        return (*c, *ys, *d, *e, *f)

    return fun


@pytest.mark.parametrize("output", range(10))
@same(weak=False)
def test_dead_code_within_parameters(S, output):
    closed = S.jax.make_jaxpr(looped(S))(1.0, 2.0)
    used = [number == output for number in range(10)]
    jaxpr, inputs = pe(S).dce_jaxpr(closed.jaxpr, used)
    args = [v for v, flag in zip((3.0, 4.0), inputs) if flag]
    (eqn,) = [e for e in jaxpr.eqns if e.primitive.name in ("scan", "cond", "remat2", "jit")]
    outs = run(S, jaxpr, closed.consts, *args)
    return inputs, eqn.params.get("num_carry"), outs, S.jax.jit(
        core(S).jaxpr_as_fun(core(S).ClosedJaxpr(jaxpr, closed.consts))
    )(*args)


def with_rules(S, kind, symbolic_zeros):
    """Two outputs that are differentiable and one that is not, with derivatives of no function."""
    jax, jnp = S.jax, S.jnp

    def fun(x, y):
        return jnp.sin(x), x.astype(int), x * jnp.cos(y)

    f = getattr(jax, kind)(fun)
    if kind == "custom_jvp":

        def jvp(primals, tangents):
            (x, y), (a, b) = primals, (0.0 if type(t).__name__ == "SymbolicZero" else t for t in tangents)
            return f(x, y), (2 * a * x, np.zeros((), jax.dtypes.float0), 3 * a * x + 5 * b * y)

        f.defjvp(jvp, symbolic_zeros)
        return f

    def forward(x, y):
        x, y = (x.value, y.value) if symbolic_zeros else (x, y)
        return f(x, y), (x, y)

    def backward(residuals, cotangents):
        (x, y), (a, _, b) = residuals, (0.0 if type(c).__name__ == "SymbolicZero" else c for c in cotangents)
        return 2 * a * x + 3 * b * x, 7 * a + 5 * b * y

    f.defvjp(forward, backward, symbolic_zeros)
    return f


@pytest.mark.parametrize("symbolic_zeros", [False, True])
@pytest.mark.parametrize("kind", ["custom_jvp", "custom_vjp"])
@pytest.mark.parametrize("output", [0, 2])
@same(weak=False)
def test_dead_code_of_functions_with_rules(S, output, kind, symbolic_zeros):
    jax, x, y = S.jax, S.jnp.float32(0.3), S.jnp.float32(1.7)
    closed = jax.make_jaxpr(with_rules(S, kind, symbolic_zeros))(x, y)
    jaxpr, inputs = pe(S).dce_jaxpr(closed.jaxpr, [number == output for number in range(3)])
    (eqn,) = jaxpr.eqns
    left = [e.primitive.name for e in eqn.params["call_jaxpr"].eqns]
    call = core(S).jaxpr_as_fun(core(S).ClosedJaxpr(jaxpr, closed.consts))
    fun = lambda x, y: call(x, y)[0]  # noqa: E731
    gradient = jax.grad(fun, (0, 1))
    second = jax.grad(lambda x: gradient(x, y)[0])(x) if kind == "custom_jvp" else ()
    return left, inputs, fun(x, y), gradient(x, y), jax.jit(gradient)(x, y), second


@same(weak=False)
def test_dead_constants(S):
    a, b = S.jnp.arange(3.0), S.jnp.ones(3)
    closed = S.jax.make_jaxpr(lambda x, y: (x * a, y * b))(X, X)
    used_inputs = [False] * len(closed.consts) + [False, True]
    jaxpr, consts, inputs = pe(S).dce_jaxpr_consts(closed.jaxpr, [True, False], used_inputs)
    return sum(consts), inputs, len(jaxpr.constvars), len(jaxpr.invars)


@SIDES
def test_rules_of_dead_code(S):
    """A library's rule for its own primitive."""
    C = core(S)
    p = C.Primitive("pair")
    p.multiple_results = True
    p.def_abstract_eval(lambda x, y: [x, y])
    asked = []

    def rule(used, eqn):
        asked.append(list(used))
        if not any(used):
            return [False, False], None
        return [True, True], eqn

    pe(S).dce_rules[p] = rule
    closed = S.jax.make_jaxpr(lambda x, y: p.bind(x, y)[0])(1.0, 2.0)
    jaxpr, used = pe(S).dce_jaxpr(closed.jaxpr, [True])
    assert asked == [[True, False]] and used == [True, True] and len(jaxpr.eqns) == 1
    jaxpr, used = pe(S).dce_jaxpr(closed.jaxpr, [False])
    assert used == [False, False] and not jaxpr.eqns


# Traces


@SIDES
def test_tracers_by_kind(S):
    ad = module(S, "interpreters.ad")
    Tracer = module(S, "core").Tracer
    seen = []

    def note(x):
        kinds = (ad.JVPTracer, pe(S).DynamicJaxprTracer, pe(S).JaxprTracer)
        seen.append([isinstance(x, kind) for kind in kinds] + [isinstance(x, Tracer)])
        return x

    note(S.jnp.float32(1))
    S.jax.jvp(note, (1.0,), (1.0,))
    S.jax.jit(note)(1.0)
    S.jax.vmap(note)(S.jnp.ones(2))
    S.jax.jvp(S.jax.jit(lambda x: note(x)), (1.0,), (1.0,))
    S.jax.jit(lambda x: S.jax.jvp(note, (x,), (x,)))(1.0)
    unknown = pe(S).PartialVal.unknown(aval(S))
    pe(S).trace_to_jaxpr_nounits(wrap(S, lambda x: [note(x)]), [unknown])
    no, jvp, jit, partial = (
        [False, False, False, False],
        [True, False, False, True],
        [False, True, False, True],
        [False, False, True, True],
    )
    assert seen == [no, jvp, jit, [False, False, False, True], jit, jvp, partial]


@SIDES
def test_values_know_their_trace(S):
    """As a library finds out which outputs depend on what is differentiated in."""
    C, ad = core(S), module(S, "interpreters.ad")
    found = []

    def fun(x, y):
        main = C.find_top_trace((x,)).main
        outs = [x * 2, y + 1, S.jnp.sin(x) + y, S.jnp.ones(2)]
        found.append([isinstance(o, ad.JVPTracer) and o._trace.main is main for o in outs])
        return outs[0]

    S.jax.jvp(lambda x: fun(x, S.jnp.float32(3)), (1.0,), (1.0,))
    S.jax.jvp(lambda y: S.jax.jvp(lambda x: fun(x, y), (1.0,), (1.0,))[0], (2.0,), (1.0,))
    S.jax.jit(lambda y: S.jax.jvp(lambda x: fun(x, y), (1.0,), (1.0,))[0])(2.0)
    assert found == [[True, False, True, False]] * 3


@SIDES
def test_states_of_tracing(S):
    state = lambda: core(S).get_opaque_trace_state(convention="test")  # noqa: E731
    outside = state()
    inside = []

    def fun(x):
        inside.append((state() == outside, state() == state()))
        S.jax.eval_shape(lambda x: inside.append((state() == outside, state() == first[0])), x)
        return x

    first = [outside]
    S.jax.jit(fun)(1.0)
    S.jax.vmap(lambda x: fun(x))(S.jnp.ones(2))
    S.jax.grad(lambda x: fun(x))(1.0)
    assert inside == [(False, True), (False, False)] * 3
    assert state() == outside and outside != 3


@SIDES
def test_questions_about_the_trace(S):
    C = core(S)
    found = []

    def note(x):
        found.append(
            (C.unsafe_am_i_under_a_jit_DO_NOT_USE(), C.unsafe_am_i_under_a_vmap_DO_NOT_USE(),
             list(C.unsafe_get_axis_names_DO_NOT_USE()), C.nonempty_axis_env_DO_NOT_USE())
        )  # fmt: skip
        return x

    note(1.0)
    S.jax.jit(note)(1.0)
    S.jax.vmap(note)(S.jnp.ones(2))
    S.jax.vmap(note, axis_name="i")(S.jnp.ones(2))
    S.jax.vmap(S.jax.jit(lambda x: note(x)), axis_name="i")(S.jnp.ones(2))
    S.jax.grad(lambda x: note(x))(1.0)
    assert found == [
        (False, False, [], False),
        (True, False, [], False),
        (False, True, [], False),
        (False, True, ["i"], True),
        (True, True, ["i"], True),
        (False, False, [], False),
    ]


@SIDES
def test_operations_that_run_while_tracing(S):
    found = []

    @S.jax.jit
    def fun(x):
        with module(S, "core").eval_context():
            found.append(float(S.jnp.sin(1.0)))
        return x

    fun(1.0)
    np.testing.assert_allclose(found, [np.sin(1.0)], rtol=1e-6)


@SIDES
def test_taking_the_current_trace_and_setting_it_again(S):
    C = core(S)

    @S.jax.jit
    def fun(x):
        with C.take_current_trace() as trace, C.set_current_trace(trace):
            return x + 1

    assert float(fun(1.0)) == 2.0


def test_traces_of_ones_own_cannot_be_set():
    class Mine(ferrax.core.Trace):
        pass

    with pytest.raises(NotImplementedError, match="walk its jaxpr"):
        ferrax.extend.core.set_current_trace(Mine())
    with pytest.raises(NotImplementedError, match="Mine.process_primitive"):
        Mine().process_primitive(ferrax.lax.sin_p, (1.0,), {})


def test_traces_end():
    kept = []
    ferrax.jit(lambda x: kept.append((x, x._trace)) or x)(1.0)
    tracer, trace = kept[0]
    assert not trace.is_valid()
    with pytest.raises(AttributeError, match="has ended"):
        tracer._trace  # noqa: B018


# Wrapped functions


@same
def test_transformations_of_wrapped_functions(S):
    L = lu(S)

    @L.transformation
    def scaled(factor, *args):
        out = yield args, {}
        yield factor * out

    @L.transformation_with_aux
    def counted(*args):
        out = yield args, {}
        yield out, len(args)

    @L.transformation2
    def shifted(f, by, *args):
        return f(*args) + by

    @L.transformation_with_aux2
    def noted(f, store, *args):
        out = f(*args)
        store.store(out * 10)
        return out

    fun = L.wrap_init(lambda x, y: x + y)
    fun, count = counted(fun)
    fun = shifted(scaled(fun, 3), 100)
    fun, note = noted(fun)
    return fun.call_wrapped(1, 2), count(), note(), fun.__name__, len(fun.transforms)


@same
def test_stores_are_filled_once(S):
    L = lu(S)

    @L.transformation_with_aux2
    def noted(f, store, x):
        store.store(x)
        return f(x)

    fun, note = noted(L.wrap_init(lambda x: x))
    other, other_note = noted(L.wrap_init(lambda x: x))
    fun.call_wrapped(1)
    which = L.merge_linear_aux(note, other_note)
    other.call_wrapped(2)
    before = L.merge_linear_aux(other_note, noted(L.wrap_init(lambda x: x))[1])
    try:
        noted(L.wrap_init(lambda x: x))[1]()
    except L.StoreException as error:
        return which, before, type(error).__name__


@same
def test_wrapped_functions_are_equal_by_what_they_do(S):
    L = lu(S)

    @L.transformation2
    def shifted(f, by, *args):
        return f(*args) + by

    f = lambda x: x  # noqa: E731
    wrapped = lambda by: shifted(L.wrap_init(f), by)  # noqa: E731
    calls = []

    @L.cache
    def remembered(fun, x):
        calls.append(x)
        return fun.call_wrapped(x)

    results = [remembered(wrapped(1), 5), remembered(wrapped(1), 5), remembered(wrapped(2), 5)]
    return wrapped(1) == wrapped(1), wrapped(1) == wrapped(2), results, len(calls)


@same
def test_flat_functions(S):
    api_util, tree_util = module(S, "api_util"), S.jax.tree_util

    def fun(x, scale=1):
        return {"out": x["a"] * scale}

    leaves, tree = tree_util.tree_flatten((({"a": 2},), {"scale": 3}))
    flat, out_tree = api_util.flatten_fun(wrap(S, fun), tree)
    positional, positional_tree = api_util.flatten_fun_nokwargs(
        wrap(S, fun), tree_util.tree_structure(({"a": 2},))
    )
    fixed, dynamic = api_util.argnums_partial(wrap(S, lambda a, b, c: (a, b, c)), (1,), (1, 2, 3))
    return (
        flat.call_wrapped(*leaves),
        str(out_tree()),
        positional.call_wrapped(7),
        str(positional_tree()),
        fixed.call_wrapped(20),
        dynamic,
        api_util.rebase_donate_argnums((3, 4), (0, 1)),
        api_util.donation_vector(
            (1,), ("k",), tree_util.tree_structure(((1, (2, 3)), {"j": 1, "k": (2, 3)}))
        ),
        api_util.flatten_axes("in_axes", tree_util.tree_structure((1, (2, 3))), (0, None)),
    )


FLAT_ERRORS = {
    "rebase": lambda S: module(S, "api_util").rebase_donate_argnums((0, 1), (1,)),
    "axes": lambda S: module(S, "api_util").flatten_axes(
        "in_axes", S.jax.tree_util.tree_structure((1, 2)), (0, 1, 2)
    ),
    "static": lambda S: module(S, "api_util").argnums_partial(wrap(S, print), (0,), (1, [2])),
}


@pytest.mark.raises("ValueError")
@pytest.mark.parametrize("name", FLAT_ERRORS)
@same
def test_errors_of_flat_functions(S, name):
    FLAT_ERRORS[name](S)


# Call primitives


def marked(S, closed):
    C = core(S)
    kind = type(C.primitives.closed_call_p) if closed else C.CallPrimitive
    p = kind("marked")
    p.def_impl(C.call_impl)
    if S is JAX:
        mlir = module(S, "interpreters.mlir")

        def lowered(*args, call_jaxpr, **params):
            jaxpr, consts = (call_jaxpr.jaxpr, call_jaxpr.consts) if closed else (call_jaxpr, ())
            return run(S, jaxpr, consts, *args)

        mlir.register_lowering(p, mlir.lower_fun(lowered, multiple_results=True))
    return p


@pytest.mark.parametrize("how", ["eager", "make_jaxpr", "jit", "grad", "vmap", "jit_grad"])
@same(weak=False)
def test_call_primitives(S, how):
    p = core(S).primitives.call_p if "grad" in how else marked(S, False)
    captured = S.jnp.arange(3.0)

    def fun(x):
        params = {} if "grad" in how else {"tag": "t"}
        (out,) = p.bind(x, subfuns=(wrap(S, lambda x: [S.jnp.sin(x) * captured]),), **params)
        return out

    x = S.jnp.asarray(X)
    total = lambda x: fun(x).sum()  # noqa: E731
    if how == "eager":
        return fun(x)
    if how == "make_jaxpr":
        eqns = S.jax.make_jaxpr(fun)(x).eqns
        (eqn,) = [e for e in eqns if e.primitive is p]
        inner = [e.primitive.name for e in eqn.params["call_jaxpr"].eqns]
        return eqn.params["tag"], inner, p.call_primitive, p.multiple_results
    if how == "vmap":
        return S.jax.vmap(fun)(S.jnp.stack([x, x + 1]))
    if how == "jit":
        return S.jax.jit(fun)(x)
    return (S.jax.jit(S.jax.grad(total)) if how == "jit_grad" else S.jax.grad(total))(x)


@same(weak=False)
def test_calls_are_evaluated_from_jaxprs(S):
    p = core(S).primitives.call_p
    fun = wrap(S, lambda x: [x * 2, x + 1])
    closed = S.jax.make_jaxpr(lambda x: p.bind(x, subfuns=(fun,)))(1.0)
    (eqn,) = closed.eqns
    used, reduced = pe(S).dce_jaxpr_call_rule([True, False], eqn)
    return (
        run(S, closed.jaxpr, closed.consts, 3.0),
        used,
        len(reduced.outvars),
        [e.primitive.name for e in reduced.params["call_jaxpr"].eqns],
    )


def test_derivatives_of_calls_are_calls():
    p = ferrax.extend.core.CallPrimitive("marked")
    p.def_impl(ferrax.extend.core.call_impl)
    fun = ferrax.extend.linear_util.wrap_init(lambda x: [2.0 * x])
    call = lambda x: p.bind(x, subfuns=(fun,))[0]  # noqa: E731
    back = ferrax.make_jaxpr(ferrax.linear_transpose(call, 1.0))(1.0)
    assert [eqn.primitive for eqn in back.eqns].count(p) == 1
    assert float(ferrax.linear_transpose(call, 1.0)(3.0)[0]) == 6.0
    pushed = ferrax.make_jaxpr(lambda x: ferrax.jvp(call, (x,), (x,)))(1.0)
    assert [eqn.primitive for eqn in pushed.eqns].count(p) == 2


# Sums of tangents


@same(weak=False)
def test_sums_of_tangents(S):
    p = module(S, "interpreters.ad").add_jaxvals_p
    x = S.jnp.asarray(X)
    fun = lambda x: p.bind(x, S.jnp.sin(x)).sum()  # noqa: E731
    return (
        p.name,
        p.bind(x, x),
        S.jax.jit(p.bind)(x, x),
        S.jax.grad(fun)(x),
        S.jax.vmap(p.bind)(S.jnp.stack([x, x]), S.jnp.stack([x, 2 * x])),
    )


def test_flat_derivatives():
    ad = module(FERRAX, "interpreters.ad")
    jnp = ferrax.numpy
    fun = lambda x, y: [x * y, y + 1, jnp.float32(3)]  # noqa: E731
    zero = ad.Zero.from_primal_value(jnp.float32(1))
    outs, tangents = ad.jvp(fun, [2.0, 3.0], [1.0, zero], instantiate=False)
    assert [float(x) for x in outs] == [6.0, 4.0, 3.0]
    assert float(tangents[0]) == 3.0 and [type(t) is ad.Zero for t in tangents] == [
        False, True, True,
    ]  # fmt: skip
    _, tangents = ad.jvp(fun, [2.0, 3.0], [1.0, zero], instantiate=[False, True, False])
    assert float(tangents[1]) == 0.0 and type(tangents[2]) is ad.Zero
    outs, _, aux = ad.jvp(lambda x: ([x], {"a": x * 2}), [2.0], [1.0], has_aux=True)
    assert float(aux["a"]) == 4.0
    outs, zeros, jaxpr, consts = ad.linearize(fun, [2.0, 3.0])
    assert [float(x) for x in outs] == [6.0, 4.0, 3.0] and zeros == [False, False, True]
    moved = ferrax.core.eval_jaxpr(jaxpr, consts, 1.0, 10.0)
    assert [float(x) for x in moved] == [23.0, 10.0]
    with pytest.raises(TypeError, match="expected 2 tangents, got 1"):
        ad.jvp(fun, [2.0, 3.0], [1.0])


# Rules as jaxprs


def test_rules_in_parameters_are_functions():
    jnp = ferrax.numpy

    @ferrax.custom_jvp
    def sine(x):
        return jnp.sin(x)

    sine.defjvp(lambda primals, tangents: (jnp.sin(*primals), 2 * tangents[0]))
    (eqn,) = ferrax.make_jaxpr(sine)(1.0).eqns
    jaxpr, consts, zeros = eqn.params["jvp_jaxpr_fun"].call_wrapped(False)
    outs = ferrax.core.eval_jaxpr(jaxpr, consts, 1.0, 3.0)
    assert zeros == [False] and float(outs[1]) == 6.0
    jaxpr, consts, zeros = eqn.params["jvp_jaxpr_fun"].call_wrapped(True)
    assert [float(x) for x in ferrax.core.eval_jaxpr(jaxpr, consts, 0.0)] == [0.0, 0.0]
    with pytest.raises(TypeError, match="each of 1 arguments, got 2"):
        eqn.params["jvp_jaxpr_fun"].call_wrapped(True, True)

    @ferrax.custom_vjp
    def scaled(x, n):
        return x * n

    scaled.defvjp(lambda x, n: (x * n, (x, n)), lambda res, g: (5 * g * res[1], None))
    (eqn,) = ferrax.make_jaxpr(scaled)(2.0, 3).eqns
    jaxpr, consts = eqn.params["fwd_jaxpr_thunk"].call_wrapped(True, False)
    outs = ferrax.core.eval_jaxpr(jaxpr, consts, 2.0, 3)
    out_tree, res_tree, forwarded = eqn.params["out_trees"]()
    residuals, outs = outs[: res_tree.num_leaves], outs[res_tree.num_leaves :]
    assert out_tree.num_leaves == 1 and float(outs[0]) == 6.0 and len(forwarded) == 2
    cotangents = eqn.params["bwd"].call_wrapped(*residuals, ferrax.numpy.float32(1))
    assert float(cotangents[0]) == 15.0
    assert type(cotangents[1]) is module(FERRAX, "interpreters.ad").Zero


@pytest.mark.parametrize("how", ["jit", "grad", "jvp"])
@same(weak=False)
def test_an_interpreter_may_replace_the_function_of_a_call(S, how):
    """The function, wrapped, with the rule that it had."""

    @S.jax.custom_jvp
    def sine(x):
        return S.jnp.sin(x)

    sine.defjvp(lambda primals, tangents: (S.jnp.sin(*primals), 2 * tangents[0]))
    (eqn,) = S.jax.make_jaxpr(sine)(1.0).eqns

    def interpreted(x):
        params = dict(eqn.primitive.get_bind_params(eqn.params))
        fun, *rules = params.pop("subfuns")
        doubled = wrap(S, lambda *args: [2 * out for out in fun.call_wrapped(*args)])
        return eqn.primitive.bind(x, subfuns=(doubled, *rules), **params)[0]

    x = S.jnp.float32(0.5)
    if how == "jit":
        return S.jax.jit(interpreted)(x)
    if how == "jvp":
        return S.jax.jvp(interpreted, (x,), (S.jnp.float32(1),))[1]
    return S.jax.grad(interpreted)(x)


def test_rules_from_files_are_bound_again():
    jnp, export = ferrax.numpy, importlib.import_module("ferrax.export")

    @ferrax.custom_jvp
    def sine(x):
        return jnp.sin(x)

    sine.defjvp(lambda primals, tangents: (jnp.sin(*primals), 2 * tangents[0]))

    @ferrax.custom_vjp
    def scaled(x):
        return x * 3

    scaled.defvjp(lambda x: (x * 3, ()), lambda res, g: (5 * g,))
    blob = export.export(ferrax.jit(lambda x: sine(scaled(x))))(1.0).serialize(vjp_order=1)
    closed = ferrax.make_jaxpr(export.deserialize(blob).call)(1.0)

    def walk(jaxpr, x):
        env = dict(zip(jaxpr.invars, [x]))
        for eqn in jaxpr.eqns:
            values = [env[atom] for atom in eqn.invars]
            if eqn.primitive.name == "jit":
                outs = [walk(eqn.params["jaxpr"].jaxpr, *values)]
            else:
                params = eqn.primitive.get_bind_params(eqn.params)
                outs = eqn.primitive.bind(*values, **params)
                outs = outs if eqn.primitive.multiple_results else [outs]
            env.update(zip(eqn.outvars, outs))
        return env[jaxpr.outvars[0]]

    run = lambda x: walk(closed.jaxpr, x)  # noqa: E731
    np.testing.assert_allclose(run(1.0), np.sin(3.0), rtol=1e-6)
    assert float(ferrax.grad(run)(1.0)) == 10.0


@pytest.mark.parametrize("several", [False, True])
@same
def test_primitives_are_applied_by_their_lowering(S, several):
    """As what `def_impl` is given."""
    mlir, xla = module(S, "interpreters.mlir"), module(S, "interpreters.xla")
    p = core(S).Primitive("thrice")
    p.multiple_results = several
    lowered = (lambda x: [3 * x, x + 1]) if several else (lambda x: 3 * x)
    p.def_impl(functools.partial(xla.apply_primitive, p))
    p.def_abstract_eval(lambda x: [x, x] if several else x)
    mlir.register_lowering(p, mlir.lower_fun(lowered, multiple_results=several))
    x = S.jnp.asarray(X)
    return p.bind(x), S.jax.jit(p.bind)(x)


def test_lowerings_that_write_mlir_are_not_applied():
    p = ferrax.core.Primitive("mute")
    p.def_impl(functools.partial(ferrax.interpreters.xla.apply_primitive, p))
    p.def_abstract_eval(lambda x: x)
    ferrax.interpreters.mlir.register_lowering(p, lambda ctx, x: [ctx.module_context])
    with pytest.raises(NotImplementedError, match="writes MLIR"):
        p.bind(1.0)


@same
def test_registered_classes_are_arrays(S):
    """By what makes an array of a value, and what says of which type it is."""
    handlers, rules = module(S, "interpreters.xla").canonicalize_dtype_handlers, _aval_rules(S)

    class Variable:
        def __init__(self, value):
            self.value = value

        def __array__(self, dtype=None, copy=None):
            return np.asarray(self.value, dtype)

    handlers[Variable], rules[Variable] = handlers[np.ndarray], lambda x: rules[np.ndarray](np.asarray(x))
    x = Variable(X)
    slope = S.jax.grad(lambda x: S.jnp.sum(x * x))(x)
    found = [S.jnp.sin(x), S.jax.jit(lambda x: x + 1)(x), slope, S.jax.vmap(S.lax.neg)(x)]
    return found, S.jax.typeof(x).str_short(), Variable in rules, dict in rules, rules[int](3).str_short()


def _aval_rules(S):
    with pytest.warns(DeprecationWarning, match="pytype_aval_mappings is deprecated"):
        return module(S, "core").pytype_aval_mappings


def test_classes_that_cannot_be_registered():
    handlers = ferrax.interpreters.xla.canonicalize_dtype_handlers
    with pytest.raises(TypeError, match="register a subclass"):
        handlers[set] = np.asarray
    with pytest.raises(KeyError):
        handlers[set]
