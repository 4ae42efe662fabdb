"""What types say of meshes without explicit axes, and of values that are reduced beside others that are not."""

import importlib

import numpy as np
import pytest
from oracle import FERRAX, same
from test_mesh import outcomes
from test_unreduced import explicit

import ferrax as jax
import ferrax.numpy as jnp
from ferrax._src.core import placements

X = np.arange(32, dtype=np.float32).reshape(8, 4)


def over(S, shape=(2, 2), names=("x", "y")):
    return S.jax.make_mesh(shape, names, axis_types=(S.jax.sharding.AxisType.Auto,) * len(names))


def divided(S, mesh, *entries):
    return S.jax.device_put(X, S.jax.NamedSharding(mesh, S.jax.P(*entries)))


def jaxpr_as_fun(S):
    return importlib.import_module(f"{S.jax.__name__}.extend.core").jaxpr_as_fun


def said(x):
    """Of which mesh the type of a traced value is, and how it is divided over it."""
    sharding = x.aval.sharding
    return str(sharding.mesh.shape_tuple), str(sharding.mesh.axis_types), str(sharding.spec)


@same
def test_arguments_and_what_is_made_of_them(S):
    mesh, found = over(S), []

    @S.jax.jit
    def f(x, y):
        made = x, x * 2, x.sum(0), S.jnp.dot(x, y), S.jnp.concatenate([x, x]), S.jnp.where(x > 0, x, 0.0)
        found.extend(map(said, made))
        # Of nothing but numbers, and of an argument that is on no mesh.
        found.extend(map(said, (S.jnp.zeros(3), y, y + 1)))
        return made

    out = f(divided(S, mesh, "x"), np.ones(4, np.float32))
    return found, [str(x.sharding.spec) for x in out[:2]]


@same
def test_within_transformations_and_loops(S):
    mesh, found = over(S), []
    x = divided(S, mesh, "x", "y")

    def note(x):
        found.append(said(x))
        return x

    def loss(x):
        return (note(x) ** 2).sum()

    @S.jax.jit
    def f(x):
        slopes = S.jax.grad(loss)(x)
        rows = S.jax.vmap(lambda row: note(row) * 2)(x)
        total, _ = S.lax.scan(lambda carry, row: (carry + note(row), None), S.jnp.zeros_like(x[0]), x)
        chosen = S.lax.cond(total[0] > 0, lambda x: note(x) + 1, lambda x: note(x) - 1, x)
        again = S.jax.jit(lambda x: note(x) * 3)(chosen)
        return S.jax.checkpoint(lambda x: note(x).sum())(again) + slopes.sum() + rows.sum()

    np.asarray(f(x))
    return sorted(set(found)), len(found) > 6


@same
def test_parts_are_over_axes_that_are_manual(S):
    mesh, found = over(S), []

    def body(x):
        found.append(said(x)[:2])
        return x * 2

    f = S.jax.shard_map(body, mesh=mesh, in_specs=S.jax.P("x"), out_specs=S.jax.P("x"))
    S.jax.jit(f)(divided(S, mesh, "x"))
    return found


@same
def test_constraints_and_moves_of_traced_values(S):
    mesh, other, found = over(S), over(S, (4,), ("a",)), []
    device = S.jax.sharding.SingleDeviceSharding(S.jax.devices()[0])

    @S.jax.jit
    def f(x):
        constrained = S.lax.with_sharding_constraint(x, S.jax.NamedSharding(mesh, S.jax.P("y")))
        made = S.jnp.zeros(4)
        moved = S.lax.with_sharding_constraint(made, S.jax.NamedSharding(mesh, S.jax.P("y")))
        found.extend(map(said, (constrained, constrained * 2, made, moved, moved + 1)))
        return constrained

    @S.jax.jit
    def g(x):
        alone = S.lax.with_sharding_constraint(x, device)
        found.extend(map(said, (x, alone, alone + 1)))
        return alone

    f(divided(S, mesh, "x")), g(divided(S, over(S, (1,), ("one",)), "one"))
    with S.jax.set_mesh(other):
        S.jax.jit(lambda x: found.append(said(x)))(divided(S, over(S, (4,), ("b",)), "b"))
    return found


@same
def test_traces_for_meshes(S):
    """A function is traced for each mesh of its arguments, and not for each way to divide them over one."""
    traces = []

    @S.jax.jit
    def f(x):
        traces.append(said(x))
        return x + 1

    two, four = over(S), over(S, (4,), ("a",))
    for x in (
        X,
        divided(S, two, "x"),
        divided(S, two, None, "y"),
        divided(S, two),
        divided(S, four, "a"),
        divided(S, two, "x"),
        f(divided(S, four, "a")),
    ):
        f(x)
    shape = S.jax.ShapeDtypeStruct(X.shape, X.dtype, sharding=S.jax.NamedSharding(two, S.jax.P("y")))
    f.eval_shape(shape)
    return traces


def test_a_retrace_for_another_mesh_names_both():
    mesh = jax.make_mesh((2,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
    f = jax.jit(lambda x: x * 2)
    f(X)
    f(jax.device_put(X, jax.NamedSharding(mesh, jax.P("x"))))
    why = f.stats().last_retrace
    assert (why.argument, why.what, why.before) == ("x", "sharding", "no mesh")
    assert "'x': 2" in why.after


@same
def test_an_array_that_is_reduced_beside_one_that_is_not(S):
    P, mesh = S.jax.P, explicit(S)

    def run(f, spec=None):
        with S.jax.set_mesh(mesh):
            reduced = S.jax.device_put(X, P("x", None, reduced={"y"}))
            whole = S.jax.device_put(X + 1, P("x", None))
            spec = P("x", None, reduced={"y"}) if spec is None else spec
            return np.asarray(S.jax.reshard(S.jax.jit(S.jax.shard_map(f, out_specs=spec))(reduced, whole), P()))

    def cast(y):
        return S.lax.pcast(y, "y", to="reduced")

    return outcomes(
        S,
        lambda: run(lambda x, y: x * y),
        lambda: run(lambda x, y: x + y),
        lambda: run(lambda x, y: S.lax.max(x, y)),
        lambda: run(lambda x, y: x * cast(y)),
        lambda: run(lambda x, y: S.lax.select(x > cast(y), x, cast(y))),
        lambda: run(lambda x, y: (x * x).sum(1), P("x", reduced={"y"})),
    )


def test_the_error_for_half_reduced_operands_says_what_to_write():
    mesh = jax.make_mesh((2,), ("x",), axis_types=(jax.sharding.AxisType.Explicit,))
    with jax.set_mesh(mesh):
        x = jax.device_put(X, jax.P(reduced={"x"}))
        with pytest.raises(jax.errors.ShardingTypeError, match=r"(?s)mul: .*R:x.*pcast\(..., 'x', to='reduced'\).*py:"):
            jax.shard_map(lambda x: x * jnp.ones((8, 4)), out_specs=jax.P(None, None, reduced={"x"}))(x)


@same
def test_donation_by_the_equation_of_a_call(S):
    """What evaluates an equation of a donating call gives the operand up."""
    f = S.jax.jit(lambda x, y: (x, x * y), donate_argnums=(0,))
    x, y = S.jnp.arange(4.0), S.jnp.ones(4)
    closed = S.jax.make_jaxpr(lambda y, x: f(x, y))(y, x)
    found = [closed.eqns[0].params["donated_invars"]]
    results = jaxpr_as_fun(S)(closed)(y, x)
    found += [x.is_deleted(), y.is_deleted(), *map(np.asarray, results)]
    x = S.jnp.arange(4.0)
    results = S.jax.core.eval_jaxpr(closed.jaxpr, closed.consts, y, x)
    return [*found, x.is_deleted(), *map(np.asarray, results)]


@same
def test_what_is_not_donated_stays(S):
    f = S.jax.jit(lambda x: x * 2, donate_argnums=(0,))
    x = S.jnp.arange(4.0)
    closed = S.jax.make_jaxpr(lambda x: f(x + 1))(x)
    found = [np.asarray(result) for result in jaxpr_as_fun(S)(closed)(x)] + [x.is_deleted()]
    closed = S.jax.make_jaxpr(f)(x)
    found += [np.asarray(S.jax.jit(jaxpr_as_fun(S)(closed))(x)[0]), x.is_deleted()]
    return found


@same
def test_an_array_over_several_devices_that_nobody_put_there(S):
    """It can be read, and is no argument of functions."""
    mesh = over(S)
    where = S.jax.NamedSharding(mesh, S.jax.P(None))
    parts = [S.jax.device_put(X, device) for device in mesh.devices.flat]
    x = type(parts[0])(S.jax.core.ShapedArray(X.shape, X.dtype), where, parts, committed=False)
    return [
        np.asarray(x),
        str(x.sharding.spec),
        len(x.addressable_shards),
        *outcomes(S, lambda: S.jax.jit(lambda x: x + 1)(x), lambda: x + 1, lambda: S.jax.device_put(x, where).shape),
    ]


@same
def test_text_with_the_axes_of_meshes(S):
    kinds, found = S.jax.sharding.AxisType, []
    mixed = S.jax.make_mesh((2, 2, 1), ("x", "y", "z"), axis_types=(kinds.Auto, kinds.Explicit, kinds.Auto))

    def note(x):
        found.extend(x.aval.str_short(short, True) for short in (False, True))

    S.jax.jit(note)(X)
    for mesh, spec in ((over(S), S.jax.P("x")), (explicit(S), S.jax.P("x")), (mixed, S.jax.P("y"))):
        S.jax.jit(note)(S.jax.device_put(X, S.jax.NamedSharding(mesh, spec)))
    x = S.jax.device_put(X, S.jax.NamedSharding(explicit(S), S.jax.P("x")))
    S.jax.jit(S.jax.shard_map(note, mesh=explicit(S), in_specs=S.jax.P("x"), out_specs=S.jax.P()))(x)
    return found


@same
def test_donation_by_the_equation_of_a_call_with_shardings(S):
    where = S.jax.NamedSharding(over(S), S.jax.P("x"))
    f = S.jax.jit(lambda x, y: (x * y, y), in_shardings=(where, where), donate_argnums=(0,))
    x, y = S.jax.device_put(X, where), S.jax.device_put(X + 1, where)
    closed = S.jax.make_jaxpr(f)(x, y)
    results = jaxpr_as_fun(S)(closed)(x, y)
    return [closed.eqns[0].params["donated_invars"], x.is_deleted(), y.is_deleted(), *map(np.asarray, results)]


def test_places_do_not_run_over(monkeypatch):
    """Numbers of placements are below the bits that say what they are."""
    monkeypatch.setattr(placements, "MOST", len(placements._numbers))
    mesh = jax.make_mesh((2,), ("never put anywhere",), axis_types=(jax.sharding.AxisType.Auto,))
    with pytest.raises(RuntimeError, match="different places"):
        jax.device_put(X, jax.NamedSharding(mesh, jax.P()))


def test_a_retrace_for_values_that_vary_is_no_setting():
    mesh = over(FERRAX)
    f = jax.jit(lambda x: x * 2)
    for cast in (lambda x: x, lambda x: jax.lax.pcast(x, "x", to="varying")):
        body = lambda x, cast=cast: f(cast(x)) + jax.lax.axis_index("x")  # noqa: E731
        jax.jit(jax.shard_map(body, mesh=mesh, in_specs=jax.P(), out_specs=jax.P("x")))(X)
    assert f.stats().last_retrace.what == "sharding"
