"""Contexts whose axes are others than those of the mesh that arrays are on, beside JAX's: what results are over."""

import contextlib
import functools

import numpy as np
import pytest
from oracle import FERRAX, same

import ferrax


def within(S, mesh, function):
    """The function, called with this mesh in use."""

    def called(*args):
        with S.jax.sharding.use_abstract_mesh(mesh):
            return function(*args)

    return called


def over(x):
    """The mesh that an array is over, and the axes that divide it."""
    mesh, spec = x.sharding.mesh, x.sharding.spec
    return str(dict(mesh.shape)), str(mesh.axis_types), str(spec)


def constrained(S, x, *spec):
    return S.lax.with_sharding_constraint(x, S.jax.P(*spec))


def opened(S, spec):
    """Functions of an array within a context where an axis, or all, is no explicit one any more."""
    P = S.jax.P(*spec)
    return {
        "resharded": lambda x: S.jax.reshard(x, P),
        "and computed with": lambda x: S.jax.reshard(x, P) * 2,
        "in a function": lambda x: S.jax.jit(S.jnp.sin)(S.jax.reshard(x, P)),
        "and constrained": lambda x: constrained(S, S.jax.reshard(x, P), "x"),
        "in a loop": lambda x: S.lax.fori_loop(0, 2, lambda _, c: c * 2, S.jax.reshard(x, P)),
    }


NAMES = list(opened(FERRAX, ()))


@pytest.mark.parametrize("axes", ["x", "xy"])
@pytest.mark.parametrize("name", NAMES)
def test_results_are_over_axes_of_the_types_in_use(name, axes):
    @same
    def case(S):
        kinds = S.jax.sharding.AxisType
        mesh = S.jax.make_mesh((2, 2), ("x", "y"), axis_types=(kinds.Explicit,) * 2)
        with S.jax.set_mesh(mesh):
            x = S.jax.device_put(np.arange(16.0).reshape(8, 2), S.jax.P("x", "y"))
            open_mesh = mesh.abstract_mesh.update_axis_types(dict.fromkeys(axes, kinds.Auto))
            function = opened(S, (None, "y") if axes == "x" else (None, None))[name]
            return over(S.jax.jit(within(S, open_mesh, function))(x))

    case()


@pytest.mark.parametrize("axes", ["x", "xy"])
def test_an_array_is_over_axes_of_the_types_in_use(axes):
    @same
    def case(S):
        kinds = S.jax.sharding.AxisType
        mesh = S.jax.make_mesh((2, 2), ("x", "y"), axis_types=(kinds.Explicit,) * 2)
        with S.jax.set_mesh(mesh):
            x = S.jax.device_put(np.arange(16.0).reshape(8, 2), S.jax.P("x", "y"))
            open_mesh = mesh.abstract_mesh.update_axis_types(dict.fromkeys(axes, kinds.Auto))
            spec = S.jax.P(None, "y") if axes == "x" else S.jax.P(None, None)
            return over(within(S, open_mesh, lambda x: S.jax.reshard(x, spec))(x)), np.asarray(x)

    case()


def other_axes(S):
    """Functions of an array within a context whose mesh has other axes, of as many devices."""
    return {
        "constrained": lambda x: constrained(S, S.jnp.sin(x), ("a", "b"), None),
        "and computed with": lambda x: constrained(S, S.jnp.sin(x), "a") * 2,
        "and moved": lambda x: constrained(S, S.jnp.sin(x), "a").T,
        "in a function": lambda x: S.jax.jit(S.jnp.sin)(constrained(S, x, "a")),
        "beside others": lambda x: constrained(S, S.jnp.sin(x), "a") + x,
        "not constrained": lambda x: S.jnp.sin(x),
    }


def over_other_axes(S, kind, function):
    """What a function gives, jitted, of a divided array within a context whose mesh has other axes."""
    mesh = S.jax.make_mesh((2, 2), ("x", "y"), axis_types=(getattr(S.jax.sharding.AxisType, kind),) * 2)
    with S.jax.set_mesh(mesh):
        x = S.jax.device_put(np.arange(16.0).reshape(8, 2), S.jax.P("x", "y"))
        other = mesh.abstract_mesh.update(axis_sizes=(4, 1), axis_names=("a", "b"))
        out = S.jax.jit(within(S, other, function))(x)
        parts = [(shard.device.id, str(shard.index)) for shard in out.addressable_shards]
        return over(out), parts, np.asarray(out)


@pytest.mark.parametrize("name", list(other_axes(FERRAX)))
def test_constraints_over_other_axes_divide_arrays(name):
    @same
    def case(S):
        return over_other_axes(S, "Auto", other_axes(S)[name])

    case()


def test_arrays_resharded_over_other_explicit_axes_are_divided_so():
    @same
    def case(S):
        return over_other_axes(S, "Explicit", lambda x: S.jax.reshard(x, S.jax.P(("a", "b"), None)) * 2)

    case()


def test_axes_of_one_device_divide_no_result():
    @same
    def case(S):
        mesh = S.jax.make_mesh((4, 1), ("a", "b"), axis_types=(S.jax.sharding.AxisType.Auto,) * 2)
        found = []
        for spec in (S.jax.P(("a", "b")), S.jax.P("b"), S.jax.P("b", "a")):
            x = S.jax.device_put(np.ones((8, 8)), S.jax.NamedSharding(mesh, spec))
            found.append([over(S.jax.jit(f)(x)) for f in (lambda x: x * 2, lambda x: x.sum(1), lambda x: x[:, :, None])])
        return found

    case()


def asked(S):
    """What is asked about a function, and its argument."""

    def twice(x):
        return x * 2

    return {
        "of an array": lambda x: (twice, x),
        "of a type": lambda x: (twice, S.jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding)),
        "of what is nowhere": lambda x: (twice, np.ones((8, 8), np.float32)),
        "of what is made": lambda x: (lambda x: S.jnp.zeros((8, 4)) + x.sum(), x),
        "of what is said": lambda x: (lambda y: S.jnp.zeros_like(x) + y, x),
        "with shardings": lambda x: (S.jax.jit(twice, out_shardings=S.jax.NamedSharding(x.sharding.mesh, S.jax.P("y"))), x),
    }


@pytest.mark.parametrize("set_mesh", [False, True])
@pytest.mark.parametrize("kind", ["Auto", "Explicit"])
@pytest.mark.parametrize("name", list(asked(FERRAX)))
def test_stages_tell_the_shardings_of_results(name, kind, set_mesh):
    @same
    def case(S):
        mesh = S.jax.make_mesh((4, 2), ("x", "y"), axis_types=(getattr(S.jax.sharding.AxisType, kind),) * 2)
        x = S.jax.device_put(np.ones((8, 8), np.float32), S.jax.NamedSharding(mesh, S.jax.P("x")))
        with S.jax.set_mesh(mesh) if set_mesh else contextlib.nullcontext():
            function, argument = asked(S)[name](x)
            traced = S.jax.jit(function).trace(argument) if not hasattr(function, "trace") else function.trace(argument)
            lowered = traced.lower()
            infos = [stage.out_info for stage in (traced, lowered, lowered.compile())]
            infos.append(S.jax.eval_shape(function, argument))
            return [(str(type(x.sharding).__name__), str(getattr(x.sharding, "spec", None))) for x in infos]

    case()


def made(S):
    """Results that are said to be divided over a mesh, by a key, an array, and a sharding."""
    return {
        "drawn": lambda k, x, s: S.jax.random.normal(k, (8, 4), out_sharding=s),
        "zeros": lambda k, x, s: S.jnp.zeros((8, 4), out_sharding=s),
        "broadcast": lambda k, x, s: S.lax.broadcast_in_dim(x.sum(1), (8, 4), (0,), out_sharding=s),
        "drawn beside an operand": lambda k, x, s: S.jax.random.normal(k, (8, 4), out_sharding=s) + x,
    }


def mesh_and_sharding(S):
    mesh = S.jax.make_mesh((4, 2), ("x", "y"), axis_types=(S.jax.sharding.AxisType.Explicit,) * 2)
    return mesh, S.jax.NamedSharding(mesh, S.jax.P("x"))


@pytest.mark.parametrize("jitted", [False, True])
@pytest.mark.parametrize("name", list(made(FERRAX)))
def test_what_is_made_is_over_devices_that_somebody_said(name, jitted):
    @same
    def case(S):
        mesh, where = mesh_and_sharding(S)
        function = made(S)[name]
        run = S.jax.jit(function, static_argnums=2) if jitted else function
        key, x = S.jax.random.key(0), np.ones((8, 4), np.float32)
        placed = (x, S.jax.device_put(x, where))[jitted]
        outcomes = []
        nowhere = contextlib.nullcontext()
        for operand, within in ((x, nowhere), (x, S.jax.set_mesh(mesh)), (placed, nowhere)):
            with within:
                try:
                    outcomes.append(over(run(key, operand, where)))
                except ValueError as error:
                    outcomes.append(type(error).__name__)
        # An operand that is not used says nothing on JAX.
        return outcomes if name.endswith("operand") or not jitted else outcomes[:2]

    case()


def test_devices_are_those_that_a_jitted_function_says():
    @same
    def case(S):
        _, where = mesh_and_sharding(S)
        draw = functools.partial(made(S)["drawn"], x=None, s=where)
        whole = S.jax.NamedSharding(where.mesh, S.jax.P())
        kept = S.jax.jit(draw, out_shardings=where)(S.jax.random.key(0))
        given = S.jax.jit(draw, in_shardings=whole)(S.jax.random.key(0))
        return over(kept), over(given), np.asarray(kept)

    case()


def test_a_constraint_over_unknown_devices_is_refused():
    mesh, where = mesh_and_sharding(FERRAX)
    unknown = where.update(mesh=mesh.abstract_mesh.update(axis_types=(ferrax.sharding.AxisType.Auto,) * 2))
    divided = ferrax.jit(lambda x: ferrax.lax.with_sharding_constraint(x, unknown) * 2)
    with pytest.raises(ValueError, match=r"of no mesh of 8 devices is known .* ferrax.set_mesh"):
        divided(np.ones(8))
    with ferrax.set_mesh(mesh):
        assert over(divided(np.ones(8)))[2] == "P('x',)"


@pytest.mark.parametrize("kind", ["Auto", "Explicit"])
@pytest.mark.parametrize("divided", [False, True])
def test_compiled_functions_take_arrays_of_the_mesh_in_use(divided, kind):
    @same
    def case(S):
        mesh = S.jax.make_mesh((4, 2), ("x", "y"), axis_types=(getattr(S.jax.sharding.AxisType, kind),) * 2)
        x = np.ones((8, 8), np.float32)
        rows = S.jax.device_put(x, S.jax.NamedSharding(mesh, S.jax.P("x")))
        outcomes = []
        with S.jax.set_mesh(mesh):
            compiled = S.jax.jit(lambda x: x * 2).lower(rows if divided else x).compile()
            for argument in (x, rows):
                try:
                    outcomes.append(over(compiled(argument)))
                except ValueError as error:
                    outcomes.append(type(error).__name__)
        return outcomes, over(compiled(x))

    case()


COMPUTED = {
    "by a number": lambda S, x, z: x * 2,
    "of two": lambda S, x, z: x + z,
    "element by element": lambda S, x, z: S.jnp.sin(x),
    "moved": lambda S, x, z: x.T,
    "summed": lambda S, x, z: x.sum(1),
    "compared": lambda S, x, z: x > 0,
    "broadcast": lambda S, x, z: x[:, None] * np.ones((3, 1), np.float32),
    "reshaped": lambda S, x, z: x.reshape(2, 4, 8),
}


@pytest.mark.parametrize("name", list(COMPUTED))
def test_results_are_divided_over_axes_of_either_type(name):
    @same
    def case(S):
        kinds = S.jax.sharding.AxisType
        mesh = S.jax.make_mesh((2, 2), ("x", "y"), axis_types=(kinds.Auto, kinds.Explicit))
        x, z = (
            S.jax.device_put(np.ones((8, 8), np.float32), S.jax.NamedSharding(mesh, spec))
            for spec in (S.jax.P("x", "y"), S.jax.P(None, "y"))
        )
        function = functools.partial(COMPUTED[name], S)
        with S.jax.set_mesh(mesh):
            return over(function(x, z)), over(S.jax.jit(function)(x, z))

    case()
