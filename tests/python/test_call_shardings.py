"""Jitted functions with shardings that are called within traced functions: what walkers see of the call, what passes and
interpreters make of it, and where results are."""

import numpy as np
import pytest
from oracle import same
from test_mesh import outcomes
from test_placement_of_results import where

import ferrax
import ferrax.numpy as jnp
from ferrax.experimental import checkify, jet
from ferrax.interpreters import partial_eval
from ferrax.sharding import AxisType, NamedSharding, PartitionSpec as P

X = np.arange(32.0, dtype=np.float32).reshape(4, 8)


def mesh_of(S, sizes=(2, 2), kind="Auto"):
    types = (getattr(S.jax.sharding.AxisType, kind),) * 2
    mesh = S.jax.make_mesh(sizes, ("x", "y"), axis_types=types)
    return mesh, lambda *spec: S.jax.sharding.NamedSharding(mesh, S.jax.sharding.PartitionSpec(*spec))


def text(value):
    """A parameter, by what both sides print alike."""
    return value.spec if hasattr(value, "spec") else type(value).__name__


def calls(S, closed):
    """Of each call in a jaxpr: the primitives within, the shardings of arguments and results."""
    found = []
    for eqn in closed.jaxpr.eqns:
        if eqn.primitive.name == "jit":
            p = eqn.params
            inner = [inside.primitive.name for inside in p["jaxpr"].jaxpr.eqns]
            constraints = [name for name in inner if name == "sharding_constraint"]
            found.append((constraints, [str(text(s)) for s in p["in_shardings"]], [str(text(s)) for s in p["out_shardings"]]))
    return found


@same
def test_calls_show_where_arguments_and_results_are(S):
    jax, wsc = S.jax, S.lax.with_sharding_constraint
    _, on = mesh_of(S)
    both = jax.jit(lambda a: S.jnp.sin(a), in_shardings=on("x"), out_shardings=on(None, "y"))
    one = jax.jit(lambda a, b: {"p": a * 2, "q": b}, in_shardings=(on("x"), None), out_shardings={"p": None, "q": on("y")})
    own = jax.jit(lambda a: wsc(a, on("x")), out_shardings=on())
    plain = jax.jit(lambda a: wsc(a, on("x")))
    same_twice = jax.jit(lambda a: (a, a), in_shardings=on("x"), out_shardings=(on("x"), on("y")))
    shown = lambda f, *args: calls(S, jax.make_jaxpr(f)(*args))  # noqa: E731
    return outcomes(
        S,
        lambda: [shown(both, X), shown(lambda a: both(both(a)), X), shown(one, X, X), shown(own, X), shown(plain, X)],
        lambda: shown(lambda a: same_twice(a)[1], X),
        lambda: [shown(jax.vmap(f), X[None]) for f in (both, own, plain)],
        lambda: [shown(jax.vmap(f, spmd_axis_name="y"), X[None]) for f in (plain,)],
        lambda: shown(jax.grad(lambda a: (both(a) ** 2).sum()), X)[::2],
        lambda: [len(jax.make_jaxpr(f)(X).eqns) for f in (both, own, jax.vmap(own))],
    )


@same
def test_results_of_calls_are_where_the_function_puts_them(S):
    jax = S.jax
    _, on = mesh_of(S)
    x = jax.device_put(X, on("x"))
    into = jax.jit(lambda a: a * 2, in_shardings=on("x"))
    out = jax.jit(lambda a: a * 2, out_shardings=on("x", "y"))
    return where(S, [
        jax.jit(lambda a: into(a) + 1)(x), jax.jit(into)(x), jax.jit(lambda a: out(a))(x), jax.jit(out)(X),
        jax.jit(lambda a: S.jnp.sin(out(a)))(X), jax.grad(lambda a: into(a).sum())(x),
        jax.jit(jax.grad(lambda a: (into(a) ** 2).sum()))(x),
    ])  # fmt: skip


@pytest.fixture
def placed():
    mesh = ferrax.make_mesh((2, 2), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
    on = lambda *spec: NamedSharding(mesh, P(*spec))  # noqa: E731
    return ferrax.jit(lambda a: jnp.sin(a) * 2, in_shardings=on("x"), out_shardings=on(None, "y")), on


def rebound(closed):
    """The function of a jaxpr whose equations are bound one after another."""

    def run(*args):
        from ferrax._src.core.jaxpr import bind_equation, interpret

        return interpret(closed.jaxpr, closed.consts, args, bind_equation)

    return run


def test_views_of_calls_are_bound_as_the_calls(placed):
    f, _ = placed
    for function, x in ((f, X), (ferrax.vmap(f), X[None]), (ferrax.grad(lambda a: f(a).sum()), X)):
        closed = ferrax.make_jaxpr(function)(x)
        again = ferrax.make_jaxpr(rebound(closed))(x)
        assert str(again) == str(closed)
        np.testing.assert_array_equal(rebound(closed)(x)[0], function(x))


def test_calls_are_bound_with_other_jaxprs_and_shardings(placed):
    f, on = placed
    closed = ferrax.make_jaxpr(f)(X)
    (eqn,) = closed.jaxpr.eqns
    twice = ferrax.make_jaxpr(lambda a: a * 2)(X)

    def seen(**params):
        changed = closed.jaxpr.replace(eqns=[eqn.replace(params=eqn.params | params)])
        call = ferrax.make_jaxpr(rebound(ferrax.core.ClosedJaxpr(changed)))(X).jaxpr.eqns[0]
        return [inner.primitive.name for inner in call.params["jaxpr"].jaxpr.eqns], [
            getattr(place, "spec", None) for place in (*call.params["in_shardings"], *call.params["out_shardings"])
        ]

    assert seen() == (["sin", "mul"], [P("x"), P(None, "y")])
    assert seen(jaxpr=twice) == (["mul"], [P("x"), P(None, "y")])
    assert seen(out_shardings=(on("y"),)) == (["sin", "mul"], [P("x"), P("y")])
    unsaid = ferrax.make_jaxpr(ferrax.jit(jnp.cos))(X).jaxpr.eqns[0].params["in_shardings"]
    assert seen(in_shardings=unsaid, out_shardings=unsaid) == (["sin", "mul"], [None, None])


def test_interpreters_that_go_into_calls_keep_where_values_are(placed):
    f, on = placed
    checked = checkify.checkify(lambda a: f(a), errors=checkify.float_checks)
    jets = lambda a: jet.jet(f, (a,), ((a, a),))[0]  # noqa: E731
    saved = ferrax.checkpoint(lambda a: f(a), policy=ferrax.checkpoint_policies.dots_saveable)
    functions = {"checkify": lambda a: checked(a)[1], "jet": jets, "checkpoint": saved}
    for name, function in functions.items():
        if name != "checkpoint":
            assert "sharding_constraint" in str(ferrax.make_jaxpr(function)(X)), name
        result = ferrax.jit(function)(X)
        assert result.sharding.is_equivalent_to(on(None, "y"), 2), (name, result.sharding)
        np.testing.assert_allclose(result, np.sin(X) * 2, rtol=1e-5)


def test_dead_code_of_calls_with_shardings(placed):
    _, on = placed
    pair = ferrax.jit(lambda a, b: (a * 2, b + 1), in_shardings=(on("x"), on("y")), out_shardings=(None, on("x", "y")))
    jaxpr = ferrax.make_jaxpr(pair)(X, X).jaxpr
    left, used = partial_eval.dce_jaxpr(jaxpr, [False, True])
    (eqn,) = left.eqns
    assert used == [False, True]
    assert [place.spec for place in (*eqn.params["in_shardings"], *eqn.params["out_shardings"])] == [P("y"), P("x", "y")]
    np.testing.assert_array_equal(rebound(ferrax.core.ClosedJaxpr(left))(X)[0], X + 1)


def test_calls_that_are_no_equations_with_shardings(placed):
    """Types say it over explicit axes; a function that is written inline has no call; mutable arrays are more than results."""
    f, on = placed
    with ferrax.disable_jit():
        assert [e.primitive.name for e in ferrax.make_jaxpr(f)(X).eqns].count("jit") == 0
    inline = ferrax.jit(lambda a: a + 1, inline=True, out_shardings=on("x"))
    assert [e.primitive.name for e in ferrax.make_jaxpr(inline)(X).eqns] == ["add", "sharding_constraint"]
    ref = ferrax.new_ref(jnp.zeros(4))

    def ref_set(a):
        ref[...] = a[:, 0]

    @ferrax.jit
    def writes(a):
        return ferrax.jit(lambda a: (ref_set(a), a)[1], out_shardings=on("x"))(a)

    assert writes(X).sharding.is_equivalent_to(on("x"), 2)
    np.testing.assert_array_equal(ref[...], X[:, 0])
    explicit = NamedSharding(ferrax.make_mesh((2,), ("x",)), P("x"))
    typed = ferrax.jit(lambda a: ferrax.jit(lambda b: b * 2, out_shardings=explicit)(a))
    assert typed(X).sharding.is_equivalent_to(explicit, 2)


def test_a_placed_function_is_traced_once_for_calls_of_both_kinds(placed):
    _, on = placed
    traces = []
    f = ferrax.jit(lambda a: (traces.append(1), a * 2)[1], in_shardings=on("x"))
    outer = ferrax.jit(lambda a: f(f(a)))
    f(X), outer(X), ferrax.vmap(f)(X[None]), ferrax.grad(lambda a: f(a).sum())(X)
    assert len(traces) == 1 == f.stats().traces
    shift = ferrax.jit(lambda a: ferrax.jit(lambda b: a + b, in_shardings=on("x"))(a * 2))
    np.testing.assert_array_equal(shift(X), X * 3)


def test_results_of_calls_are_not_gathered(placed):
    """Of a function with shardings of its arguments alone nothing is exchanged; what `shard_map` runs over some axes keeps
    what calls around it say of the others."""
    _, on = placed
    x = ferrax.device_put(X, on("x"))
    into = ferrax.jit(lambda a: a * 2, in_shardings=on("x"))
    assert ferrax.jit(lambda a: into(a) + 1).lower(x).compile().communication() == []
    mapped = ferrax.shard_map(
        lambda a: a * 2, mesh=on().mesh, in_specs=P("x"), out_specs=P("x"), axis_names={"x"}
    )
    around = ferrax.jit(lambda a: mapped(a) + 1, in_shardings=on("x", "y"), out_shardings=on("x"))
    gathered = ferrax.jit(lambda a: around(a) * 3).lower(ferrax.device_put(X, on("x", "y"))).compile().communication()
    assert [(exchange.collective, exchange.axes) for exchange in gathered] == [("all_gather", ("y",))]
