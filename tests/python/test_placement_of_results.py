"""Where results are, by where operands are: shardings are carried on by operations and jitted functions."""

import numpy as np
from oracle import same
from test_mesh import outcomes

import ferrax
import ferrax.numpy as jnp


def where(S, tree):
    """What JAX and ferrax have to agree on: kind of sharding, mesh, spec, whether it was asked for."""
    found = []
    for x in S.jax.tree.leaves(tree):
        spec = getattr(x.sharding, "spec", None)
        entries = None if spec is None else str(tuple(spec) + (None,) * (x.ndim - len(spec)))
        found.append((type(x.sharding).__name__, entries, x.committed))
    return found


def operands(S, kind, sizes=(1, 1)):
    sharding, P = S.jax.sharding, S.jax.sharding.PartitionSpec
    mesh = S.jax.make_mesh(sizes, ("x", "y"), axis_types=(getattr(sharding.AxisType, kind),) * 2)
    put = S.jax.device_put

    def on(*spec):
        return sharding.NamedSharding(mesh, P(*spec))

    return {
        "x": put(np.arange(8.0, dtype=np.float32).reshape(2, 4), on("x", "y")),
        "r": put(np.ones((2, 4), np.float32), on()),
        "v": put(np.arange(4.0, dtype=np.float32), on("y")),
        "c": put(np.ones((2, 4), np.float32), S.jax.devices()[0]),
        "u": S.jnp.ones((2, 4)),
    }, mesh, on


# Each of x, over both axes of a mesh, v, over the second, r, whole there, c, on a device, u, nowhere.
BOTH = {
    "scalar": lambda S, x, v, r, c, u: x * 2,
    "pairs": lambda S, x, v, r, c, u: (x + u, x + c, x + v, x + r, x > r),
    "unary": lambda S, x, v, r, c, u: (S.jnp.sin(x), -x, x.astype(int)),
    "sums": lambda S, x, v, r, c, u: (x.sum(), c.sum(), v.max()),
    "joined": lambda S, x, v, r, c, u: (S.jnp.concatenate([x, x]), S.jnp.where(x > 2, x, 0)),
    "nowhere": lambda S, x, v, r, c, u: (u + 1, S.jnp.ones(2)),
    "jitted": lambda S, x, v, r, c, u: S.jax.jit(lambda x, c, u: (x * 2, u + 1, x + u))(x, c, u),
    "committed": lambda S, x, v, r, c, u: (c + 1, c[0], c.at[0].set(1.0), S.jax.jit(S.jnp.sin)(c)),
    "mapped": lambda S, x, v, r, c, u: S.jax.vmap(lambda x: x * 2)(x),
    "like": lambda S, x, v, r, c, u: (S.jnp.zeros_like(x), S.jnp.ones_like(c)),
    "identity": lambda S, x, v, r, c, u: (S.jax.jit(lambda x: x)(x), x.copy(), S.jnp.copy(x)),
    "put": lambda S, x, v, r, c, u: (S.jax.device_put(x), S.jax.device_put(x, S.jax.devices()[0])),
}
AUTO = {
    "first": lambda S, x, v, r, c, u: (r + x, c + x),
    "ranks": lambda S, x, v, r, c, u: (x.sum(0), x[0], x[:, 1], x.reshape(8), x @ v, S.jnp.stack([x, x])),
    "products": lambda S, x, v, r, c, u: (x @ x.T, S.jnp.cumsum(x, 0), S.jnp.sort(x)),
    "updated": lambda S, x, v, r, c, u: (x.at[0].set(1.0), x[:1], x[S.jnp.array([0, 1])]),
}
EXPLICIT = {
    "axes": lambda S, x, v, r, c, u: (x.sum(0), x.sum(1), x[0], x[:, 1], x[:1], x.T),
    "shapes": lambda S, x, v, r, c, u: (x.reshape(8), x[None], x[:, None, :], S.jnp.stack([x, x])),
    "products": lambda S, x, v, r, c, u: (x @ u.T, x[0] * x, c + x, r + x, u + x),
    "grad": lambda S, x, v, r, c, u: S.jax.grad(lambda x: (x**2).sum())(x),
    "lanes": lambda S, x, v, r, c, u: S.jax.vmap(lambda x: x.sum())(x),
    "ambiguous": lambda S, x, v, r, c, u: x @ x.T,
    "ambiguous sum": lambda S, x, v, r, c, u: S.jax.jit(lambda x, v: x @ v)(x, v),
    "unlike": lambda S, x, v, r, c, u: x + x.T.reshape(2, 4),
}


def _all(S, kind, sizes, *tables):
    arrays, _, _ = operands(S, kind, sizes)
    return outcomes(
        S,
        *[
            lambda f=f: where(S, f(S, **arrays))
            for table in tables
            for f in table.values()
        ],
    )


@same
def test_results_over_meshes_that_the_compiler_divides(S):
    return _all(S, "Auto", (2, 2), BOTH, AUTO)


@same
def test_results_over_explicit_axes(S):
    return _all(S, "Explicit", (1, 1), BOTH, EXPLICIT)


@same
def test_types_within_traced_functions(S):
    arrays, mesh, on = operands(S, "Explicit")
    seen, traces = [], []

    def spec(x):
        seen.append((str(S.jax.typeof(x).sharding.spec), str(S.jax.typeof(x))))

    @S.jax.jit
    def f(x):
        traces.append(1)
        for value in (x, x * 2, x.sum(0), x.T, x.reshape(8), S.jnp.sin(x)[None], x > 1):
            spec(value)
        spec(S.jax.jit(lambda x: x.sum(1))(x))
        spec(S.jax.lax.scan(lambda c, _: (c * 2, c.sum(0)), x, None, length=3)[1])
        return x

    for name in ("x", "u", "r", "x", "u"):
        f(arrays[name])
    struct = S.jax.ShapeDtypeStruct((2, 4), np.float32, sharding=on("x"))
    f.lower(struct)
    return seen, len(traces)


@same
def test_types_that_programs_state(S):
    arrays, mesh, on = operands(S, "Explicit")
    P, x, u = S.jax.sharding.PartitionSpec, arrays["x"], arrays["u"]

    @S.jax.sharding.auto_axes(out_sharding=P("x"))
    def product(x):
        return x @ x.T

    with S.jax.set_mesh(mesh):
        moved = S.jax.jit(lambda x: S.jax.reshard(x, P("y")) * 2)
        return outcomes(
            S,
            lambda: where(S, [moved(x), S.jax.jit(lambda x: S.jax.reshard(x, P("x", "y")) + x)(x)]),
            lambda: where(S, [product(x), S.jax.jit(product)(x), S.jax.jit(lambda x: product(x) * 2)(x)]),
            lambda: where(S, S.jax.jit(lambda u: S.jax.reshard(u, P(None, "x")))(u)),
            lambda: str(S.jax.eval_shape(lambda x: S.jax.reshard(x, P("y")).sum(1), x).shape),
        )


def test_what_programs_say_of_their_results():
    """On one device JAX forgets the spec; here it is the one that is said."""
    arrays, mesh, on = operands(type("S", (), {"jax": ferrax, "jnp": jnp}), "Auto")
    u = arrays["u"]
    constrained = ferrax.jit(lambda x: ferrax.lax.with_sharding_constraint(x * 2, on("x")) + 1)
    assert constrained(u).sharding == on("x")
    assert ferrax.jit(lambda x: constrained(x).sum())(u).sharding == on()
    spec = ferrax.P("x")
    mapped = ferrax.shard_map(lambda x: x * 2, mesh=mesh, in_specs=spec, out_specs=spec)
    assert ferrax.jit(mapped)(u).sharding == mapped(u).sharding == on("x")
    assert mapped(u).committed


def test_places_of_operations_are_remembered_by_all_they_follow_from():
    """The same operation on an array elsewhere, of another type, or while another mesh is in use, has a place of its own."""
    meshes = [
        ferrax.make_mesh(sizes, ("x", "y"), axis_types=(getattr(ferrax.sharding.AxisType, kind),) * 2)
        for sizes in ((2, 4), (4, 2))
        for kind in ("Auto", "Explicit")
    ]
    value = np.arange(64.0, dtype=np.float32).reshape(8, 8)
    operations = [jnp.sin, jnp.transpose, lambda x: x.sum(0), lambda x: x[2:4], lambda x: x.astype(jnp.int32), jnp.cumsum]
    for _ in range(2):
        for mesh in meshes:
            for spec in (("x", "y"), ("y", None), (None, "x"), ()):
                there = ferrax.NamedSharding(mesh, ferrax.P(*spec))
                x = ferrax.device_put(value, there)
                for operation in operations:
                    try:
                        found = operation(x)
                    except ferrax.errors.ShardingTypeError:
                        continue  # of a divided axis
                    traced = ferrax.jit(operation)(x)
                    assert found.sharding == traced.sharding and found.committed, (operation, there)
                    np.testing.assert_array_equal(found, operation(value))
        for device in ferrax.devices()[:3]:
            assert jnp.transpose(ferrax.device_put(value, device)).devices() == {device}
            with ferrax.default_device(device):
                assert jnp.sin(jnp.ones((8, 8))).devices() == {device}
        with ferrax.set_mesh(meshes[1]):
            assert jnp.sin(jnp.ones((8, 8))).sharding.mesh == meshes[1]
        assert jnp.sin(jnp.ones((8, 8))).sharding.num_devices == 1
