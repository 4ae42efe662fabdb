"""What programs say of where arguments, values and results are: `jit(in_shardings=…)`, constraints,
layouts, explicit axes."""

import pickle

import numpy as np
from oracle import compiled, module, same
from test_mesh import named, outcomes

import ferrax
import ferrax.numpy as jnp


def _places(S, tree):
    return [(repr(leaf.sharding), leaf.committed) for leaf in S.jax.tree.leaves(tree)]


@same
def test_compiled_functions_know_where_results_follow_to(S):
    """From the shardings of the arguments, also if these were said."""
    sharding, P, _, auto, explicit, _ = named(S)
    x = S.jnp.arange(12.0).reshape(2, 6)
    found = []
    for mesh in (auto, explicit):
        on = sharding.NamedSharding(mesh, P("x"))
        f = S.jax.jit(lambda a: (a * 2, a.sum()), in_shardings=on)
        given = S.jax.device_put(x, on)
        compiled = f.lower(given).compile()
        pairs = zip(compiled.output_shardings, compiled(given))
        found.append([(repr(there.spec), repr(known.sharding.spec)) for there, known in pairs])
    return found


@same
def test_shardings_of_jitted_functions(S):
    sharding, P, device, auto, explicit, _ = named(S)
    Named = sharding.NamedSharding
    x = S.jnp.arange(6.0).reshape(2, 3)
    jit = S.jax.jit
    on = Named(auto, P("x"))
    f = jit(
        lambda a, b: {"a": a + b["b"], "c": b["b"]},
        in_shardings=(on, None),
        out_shardings={"a": on, "c": Named(auto, P())},
    )
    static = jit(lambda n, a: n * a, static_argnums=0, in_shardings=(on,), out_shardings=on)
    single = jit(lambda a: a, in_shardings=sharding.SingleDeviceSharding(device))
    compiled = f.lower(x, {"b": x}).compile()
    with S.jax.set_mesh(auto):
        of_specs = jit(lambda a: a * 2, in_shardings=P("x"), out_shardings=P(None, "y"))(x)
    shape = S.jax.eval_shape(jit(lambda a: a, out_shardings=on), x)
    return f(x, {"b": x}), _places(S, [f(x, {"b": x}), static(2, x), single(x), of_specs, compiled(x, {"b": x})]), outcomes(
        S,
        lambda: (type(f).__name__, f.__name__, compiled.output_shardings, shape.sharding),
        lambda: compiled.input_shardings[0][0],
        lambda: compiled.output_formats["a"],
        lambda: _places(S, jit(lambda a: f(a, {"b": a}), out_shardings=on)(x)),
        lambda: float(S.jax.grad(lambda a: f(a, {"b": a})["a"].sum())(x).sum()),
        lambda: S.jax.vmap(f)(x[None], {"b": x[None]})["a"].shape,
        lambda: jit(lambda a: a, in_shardings=P("x"))(x),
        lambda: jit(lambda a: a, in_shardings=device),
        lambda: jit(lambda a: a, out_shardings="x"),
        lambda: jit(lambda a: a, in_shardings=on, device=device),
        lambda: jit(lambda a: a, in_shardings=Named(auto, P("x", None, None)))(x),
        lambda: jit(lambda a: a, out_shardings=Named(auto, P("x", None, None)))(x),
        lambda: jit(lambda a: a, in_shardings=(on, on))(x),
        lambda: jit(lambda a: a, out_shardings=(on, on))(x),
        lambda: jit(lambda a: a, in_shardings=on)(a=x),
    )  # fmt: skip


@same
def test_constraints(S):
    sharding, P, device, auto, explicit, _ = named(S)
    Named, constrain, jit = sharding.NamedSharding, S.lax.with_sharding_constraint, S.jax.jit
    x = S.jnp.arange(6.0).reshape(2, 3)
    on = Named(auto, P("x"))

    def loss(a):
        return (
            constrain({"a": a**2, "b": a}, {"a": on, "b": Named(auto, P(None, "y"))})["a"] ** 2
        ).sum()

    (eqn,) = S.jax.make_jaxpr(lambda a: constrain(a, Named(auto, P(P.UNCONSTRAINED))))(x).eqns
    with S.jax.set_mesh(auto):
        of_specs = constrain(S.jax.device_put(x, on), P("y"))
        traced = jit(lambda a: constrain(a, P("y")))(x)
    values = S.jax.grad(loss)(x), jit(S.jax.hessian(loss))(x), S.jax.vmap(loss)(x[None]), traced
    return values, _places(S, [constrain(x, on), of_specs]), outcomes(
        S,
        lambda: (eqn.primitive.name, eqn.primitive is S.lax.sharding_constraint_p, sorted(eqn.params)),
        lambda: (eqn.params["sharding"], eqn.params["layout"], eqn.params["unconstrained_dims"]),
        lambda: constrain(x, P("x")),
        lambda: constrain(x, None),
        lambda: constrain(x, device),
        lambda: constrain(x, Named(auto, P("x", None, None))),
        lambda: constrain([x, x], [on]),
    )  # fmt: skip


@same
def test_explicit_axes(S):
    sharding, P, device, auto, explicit, _ = named(S)
    Named, reshard = sharding.NamedSharding, S.jax.reshard
    x = S.jnp.arange(6.0).reshape(2, 3)
    seen = []

    def note(a):
        a = reshard(a, P("x"))
        seen.append(S.jax.typeof(a))
        return S.jnp.sin(a).sum()

    with S.jax.set_mesh(explicit):
        put = reshard([x, x], [P("x"), P()])
        values = S.jax.grad(note)(x), S.jax.jit(note)(x)
        within = sharding.auto_axes(lambda a: a * 2, out_sharding=P("x"))(x)
        at_call = sharding.auto_axes(lambda a: a * 2)(x, out_sharding=P(None))
        no_sharding = outcomes(S, lambda: sharding.auto_axes(lambda a: a)(x))
    with S.jax.set_mesh(auto):
        sharding.explicit_axes(lambda a: seen.append(S.jax.typeof(a)), in_sharding=P("x"))(x)
    return values, within, _places(S, [put, within, at_call]), repr(seen), no_sharding + outcomes(
        S,
        lambda: reshard(x, Named(explicit, P("x"))).sharding,
        lambda: reshard(x, P("x")),
        lambda: reshard(x, Named(auto, P("x"))),
        lambda: reshard(x, device),
        lambda: reshard(x, None).sharding,
    )  # fmt: skip


@same
def test_layouts(S):
    layout = module(S, "experimental.layout")
    Layout, Format = layout.Layout, layout.Format
    x = S.jnp.arange(6.0).reshape(2, 3)
    rows = Layout((0, 1))
    return outcomes(
        S,
        lambda: (
            rows,
            Layout((1, 0), ((2,),)),
            Layout.AUTO,
            rows == Layout((0, 1)),
            rows == x.format.layout,
        ),
        lambda: hash(rows) == hash(Layout([0, 1])),
        lambda: (Format(), Format(Layout.AUTO), Format(rows, x.sharding)),
        lambda: Format(rows, x.sharding) == Format(rows, x.sharding),
        lambda: S.jax.device_put(x, Format(rows, x.sharding)).format,
        lambda: layout.with_layout_constraint(x, rows).shape,
        lambda: S.jax.jit(lambda a: layout.with_layout_constraint(a * 2, rows))(x),
        lambda: S.jax.jit(lambda a: a, out_shardings=Format(Layout.AUTO))(x).format.layout,
        lambda: Format(rows),
        lambda: Format("rows"),
        lambda: Format(None, "here"),
        lambda: layout.with_layout_constraint(x, Layout((0,))),
        lambda: layout.with_layout_constraint(x, "rows"),
    )


@same
def test_where_results_are_asked_to_be(S):
    sharding, P, device, auto, explicit, _ = named(S)
    Named, jnp, x = sharding.NamedSharding, S.jnp, S.jnp.arange(6.0).reshape(2, 3)
    key = S.jax.random.key(0)
    put = Named(explicit, P("x"))

    def everything(where):
        return (
            jnp.zeros((2, 3), out_sharding=where), jnp.full((2,), 3, out_sharding=where),
            S.jax.random.normal(key, (2, 3), out_sharding=where), jnp.dot(x, x.T, out_sharding=where),
            jnp.einsum("ij,kj->ik", x, x, out_sharding=where), x.at[0].get(out_sharding=P(None)),
            jnp.reshape(x, (3, 2), out_sharding=where), jnp.repeat(x, 2, 0, out_sharding=where, total_repeat_length=4),
            S.jax.nn.initializers.zeros(key, (2, 2), out_sharding=where),
        )  # fmt: skip

    with S.jax.set_mesh(explicit):
        values = compiled(S, lambda: everything(P("x")))
        made = _places(
            S, [jnp.ones((2, 3), out_sharding=P("x")), jnp.arange(4, out_sharding=P("x"))]
        )
    wrong = [P("x"), Named(auto, P("x")), "x", device]
    return values, made, S.jax.vmap(S.jnp.sin, spmd_axis_name="x")(x), outcomes(
        S,
        lambda: jnp.zeros((2, 3), out_sharding=put).sharding,
        *(lambda where=where: jnp.zeros((2, 3), out_sharding=where) for where in wrong),
        *(lambda where=where: jnp.dot(x, x.T, out_sharding=where) for where in wrong),
        *(lambda where=where: S.jax.random.normal(key, (2,), out_sharding=where) for where in wrong),
    )  # fmt: skip


@same
def test_axes_of_size_one_may_be_left_out_of_types(S):
    sharding, P, device, auto, explicit, _ = named(S)
    mesh = sharding.AbstractMesh((1, 2), ("x", "y"), (sharding.AxisType.Explicit,) * 2)
    with S.jax.remove_size_one_mesh_axis_from_type(True):
        aval = S.jax.core.ShapedArray(
            (4, 2), np.float32, sharding=sharding.NamedSharding(mesh, P("x", "y"))
        )
        put = S.jax.device_put(S.jnp.ones(4), sharding.NamedSharding(explicit, P("x")))
        return str(aval), repr(aval.sharding.spec), str(S.jax.typeof(put))


@same
def test_rules_of_partitions_are_not_asked_on_one_device(S):
    partitioning = module(S, "experimental.custom_partitioning").custom_partitioning

    @partitioning
    def f(x):
        return 2 * x

    no_rules = outcomes(S, lambda: f(S.jnp.ones(2)))
    f.def_partition(
        infer_sharding_from_operands=lambda mesh, args, result: args[0].sharding,
        partition=lambda mesh, args, result: (
            mesh,
            lambda x: 2 * x,
            result.sharding,
            (args[0].sharding,),
        ),
        sharding_rule="i -> i",
    )
    return f(S.jnp.ones(2)), S.jax.jit(f)(S.jnp.ones(2)), no_rules


@same
def test_rules_written_as_text(S):
    partitioning = module(S, "experimental.custom_partitioning")

    def rule(text, **said):
        f = partitioning.custom_partitioning(lambda x: x)
        f.def_partition(partition=lambda *args: None, sharding_rule=text, **said)
        rule = f.sharding_rule
        return rule.operand_mappings, rule.result_mappings, rule.reduction_factors, rule.factor_sizes

    Rule, Mapping = partitioning.SdyShardingRule, partitioning.ArrayMapping
    return outcomes(
        S,
        lambda: rule("i j, j k -> i k", reduction_factors=("j",)),
        lambda: rule("... (a b), ...1 c -> ... a b", c=2) is None,
        lambda: rule("... (a b)->a_1 (b d)", a=2, b=3, d=5),
        lambda: rule("i -> , i", permutation_factors=("i",)),
        lambda: rule("i, j"),
        lambda: rule("i -> (j)"),
        lambda: rule("(i j -> i"),
        lambda: rule("i ... -> i"),
        lambda: rule("i -> i", need_replication_factors=("k",)),
        lambda: rule("i -> i", reduction_factors=("i",), need_replication_factors=("i",)),
        lambda: rule("(i j) -> i", i=2),
        lambda: rule("1i -> i"),
        lambda: rule(None, i=2),
        lambda: rule(Rule((Mapping("i"),), (Mapping("i"),)), reduction_factors=("i",)),
    )


def test_placed_functions_are_methods_and_pickles():
    mesh = ferrax.make_mesh((1,), ("x",))
    on = ferrax.NamedSharding(mesh, ferrax.P("x"))

    class Model:
        @ferrax.jit(out_shardings=on, static_argnums=0)
        def apply(self, x):
            return x + 1

    assert Model().apply(jnp.ones(2)).sharding == on
    again = pickle.loads(pickle.dumps(ferrax.jit(jnp.sin, out_shardings=on)))
    assert again(jnp.ones(2)).sharding == on
    assert type(ferrax.jit(jnp.sin, in_shardings=(None,))) is type(ferrax.jit(jnp.sin))


def test_one_function_is_traced_for_each_mesh():
    """The mesh in use is part of what a program is known by."""
    traces = []

    @ferrax.jit
    def f(x):
        traces.append(ferrax.sharding.get_abstract_mesh().axis_names)
        return x + 1

    for name in ("x", "y", "x"):
        with ferrax.set_mesh(ferrax.make_mesh((1,), (name,))):
            f(jnp.ones(2))
    f(jnp.ones(2))
    assert traces == [("x",), ("y",), ()]
