"""`shard_map` over some axes of a mesh, whose other axes are explicit; what is refused within."""

import numpy as np
from oracle import same
from test_mesh import outcomes

X = np.arange(32, dtype=np.float32).reshape(8, 4)


def explicit(S):
    return S.jax.make_mesh((2, 2), ("x", "y"), axis_types=(S.jax.sharding.AxisType.Explicit,) * 2)


def said(x):
    return str(x.aval.sharding.spec), [str(kind) for kind in x.aval.sharding.mesh.axis_types]


@same
def test_types_within(S):
    """By axes that are explicit within, parts are divided as arguments are, and so are results."""
    P, found, mesh = S.jax.P, [], explicit(S)

    def g(x):
        found.append(said(x))
        turned = (x * 2).T
        found.append(said(turned))
        return turned.T + S.lax.axis_index("x")

    with S.jax.set_mesh(mesh):
        for spec in (("x", "y"), (("x", "y"), None), ("y", "x"), (None, "y")):
            x = S.jax.device_put(X, S.jax.NamedSharding(mesh, P(*spec)))
            inside = P("x") if "x" in str(spec[0]) else P(None, "x") if spec[1] == "x" else P("x")
            if spec[0] is None:
                x = S.jax.reshard(x, P("x", "y"))
            f = S.jax.shard_map(g, in_specs=inside, out_specs=inside, axis_names={"x"})
            for function in (f, S.jax.jit(f)):
                y = function(x)
                found.append((str(y.sharding.spec), np.asarray(y)))
            traced = S.jax.jit(lambda x, f=f: (found.append(said(f(x))), f(x) + 1)[1])
            found.append(str(traced(x).sharding.spec))
    return found


@same
def test_gradients_through(S):
    P, mesh = S.jax.P, explicit(S)
    with S.jax.set_mesh(mesh):
        x = S.jax.device_put(X, P("x", "y"))
        f = S.jax.shard_map(lambda x: S.jnp.sin(x) * x, in_specs=P("x"), out_specs=P("x"), axis_names={"x"})
        slope = S.jax.jit(S.jax.grad(lambda x: f(x).sum()))(x)
        return str(slope.sharding.spec), np.asarray(slope)


@same
def test_constraints_over_axes_of_the_function(S):
    mesh = S.jax.make_mesh((2, 2), ("x", "y"), axis_types=(S.jax.sharding.AxisType.Auto,) * 2)
    P = S.jax.P

    def mapped(spec, names):
        def g(x):
            return S.lax.with_sharding_constraint(x, S.jax.NamedSharding(mesh, spec)) * 2

        return S.jax.jit(S.jax.shard_map(g, mesh=mesh, in_specs=P("x"), out_specs=P("x"), axis_names=names, check_vma=False))

    return outcomes(
        S,
        lambda: type(mapped(P("x"), {"x", "y"})(X)).__name__,
        lambda: type(mapped(P(None, "y"), {"x", "y"})(X)).__name__,
    )


@same
def test_gradients_of_integers_with_shardings(S):
    mesh = S.jax.make_mesh((2,), ("x",), axis_types=(S.jax.sharding.AxisType.Auto,))
    cut, whole = S.jax.NamedSharding(mesh, S.jax.P(None, "x")), S.jax.NamedSharding(mesh, S.jax.P())
    f = S.jax.jit(
        S.jax.grad(lambda x, n: (x * n).sum(), argnums=(0, 1), allow_int=True), in_shardings=cut, out_shardings=whole
    )
    slopes = f(X, X.astype(np.int32))
    return [(x.dtype == S.jax.dtypes.float0, x.shape) for x in slopes]


@same
def test_arrays_laid_out_anew_by_their_devices(S):
    """No transfer: the same devices have the array afterwards, in another order."""
    devices = S.jax.devices()
    first = S.jax.sharding.Mesh(np.array(devices[:4]).reshape(2, 2), ("x", "y"))
    other = S.jax.sharding.Mesh(np.array(devices[3::-1]).reshape(2, 2), ("x", "y"))
    x = S.jax.device_put(X, S.jax.NamedSharding(first, S.jax.P("x", "y")))
    with S.jax.transfer_guard("disallow_explicit"):
        y = S.jax.device_put(x, S.jax.NamedSharding(other, S.jax.P("x")))
        return np.asarray(y), outcomes(S, lambda: S.jax.device_put(x, devices[5]))


@same
def test_specs_are_those_that_were_written(S):
    """A result that is divided as an argument is has its spec, with the entries of None that it was written with."""
    mesh = S.jax.make_mesh((4, 2), ("x", "y"), axis_types=(S.jax.sharding.AxisType.Auto,) * 2)
    x, z = (S.jax.device_put(X, S.jax.NamedSharding(mesh, S.jax.P(*spec))) for spec in (("x", None), ("x",)))
    functions = (lambda a, b: a * 2, lambda a, b: a * b, lambda a, b: a @ b.T, lambda a, b: b.T, lambda a, b: a.sum(1))
    made = [f(a, b) for a, b in ((x, z), (z, x), (x, x), (z, z)) for g in functions for f in (g, S.jax.jit(g))]
    return [str(y.sharding.spec) for y in made]


@same
def test_shardings_over_manual_axes_change_nothing(S):
    """The sharding that a device's part has may be asked for of others: `reshard`, and samplers with `out_sharding`."""
    P = S.jax.P
    mesh = S.jax.make_mesh((4,), ("x",), axis_types=(S.jax.sharding.AxisType.Auto,))
    keys = S.jax.random.split(S.jax.random.key(0), 4)

    def kept(x, key):
        own = S.jax.typeof(x).sharding
        mask = S.jax.random.bernoulli(key.reshape(()), shape=x.shape, out_sharding=own)
        return S.jnp.where(mask, S.jax.reshard(x, own), S.jax.reshard(2 * x, P(None, None)))

    cut = {"mesh": mesh, "in_specs": P("x"), "out_specs": P("x")}
    functions = [S.jax.shard_map(kept, **cut), S.jax.shard_map(kept, check_vma=False, **cut)]
    made = [np.asarray(f(X, keys)) for g in functions for f in (g, S.jax.jit(g))]
    return made, np.asarray(S.jax.pmap(kept)(X.reshape(4, 2, 4), keys))
