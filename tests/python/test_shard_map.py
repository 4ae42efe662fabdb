"""`shard_map`, `smap` and `pmap` over the devices there are, and what is said of more."""

import functools

import numpy as np
import pytest
from oracle import compiled, same
from test_mesh import outcomes as _outcomes

import ferrax
import ferrax.numpy as jnp
from ferrax import lax


def _mesh(S, *names):
    return S.jax.sharding.Mesh(np.array(S.jax.devices()[:1]).reshape((1,) * len(names)), names)


def _mapped(S, f, in_specs, out_specs, **options):
    return S.jax.shard_map(
        f, mesh=_mesh(S, "x", "y"), in_specs=in_specs, out_specs=out_specs, **options
    )


X = np.arange(6.0, dtype=np.float32).reshape(2, 3)


@same
def test_collectives_of_the_mesh(S):
    P = S.jax.P

    def body(a, b):
        lane = S.lax.axis_index("x") + S.lax.axis_size("y")
        total = S.lax.psum({"a": a, "b": b}, ("x", "y"))
        ring = S.lax.ppermute(a, "x", [(0, 0)])
        return (
            total, S.lax.pmean(b, "y"), S.lax.pmax(a, "x"), ring, S.lax.all_gather(a, "y", tiled=True),
            S.lax.psum_scatter(a, "x", tiled=True), S.lax.all_to_all(b, "x", 0, 0, tiled=True), a * lane,
        )  # fmt: skip

    specs = (
        P(),
        P("x", "y"),
        P("y"),
        P("x", "y"),
        P("x", "y"),
        P("x", "y"),
        P("x", "y"),
        P("x", "y"),
    )
    f = _mapped(S, body, (P("x", "y"), P("x", "y")), specs)
    return f(X, X + 1), S.jax.jit(f)(X, X + 1)


@same
def test_derivatives_and_batches(S):
    P = S.jax.P
    w = S.jnp.arange(3.0)

    def body(a):
        b = S.lax.psum(S.jnp.sin(a) * w, "x")
        return S.lax.scan(lambda c, row: (c + row, c * row), S.lax.psum(S.jnp.zeros(3), "y"), b)

    f = _mapped(S, body, P("x"), (P(), P()))
    loss = lambda x: sum(S.jnp.sum(leaf**2) for leaf in f(x))  # noqa: E731
    batch = np.stack([X, X + 1, X - 2])
    closed = lambda w: _mapped(S, lambda a: a * w, P("x"), P("x"))(X).sum()  # noqa: E731

    def everything(x, batch):
        return (
            S.jax.grad(loss)(x), S.jax.jvp(f, (x,), (x,)), S.jax.hessian(loss)(x), S.jax.vmap(f)(batch),
            S.jax.vmap(S.jax.grad(loss))(batch), S.jax.grad(closed)(2.0), S.jax.checkpoint(loss)(x),
        )  # fmt: skip

    return compiled(S, everything, X, batch), S.jax.jit(S.jax.grad(loss))(X)


@same
def test_places_and_parameters(S):
    P = S.jax.P
    f = _mapped(
        S, lambda x, n, k: x * n + S.jax.random.uniform(k), (P("x"), None, P()), P("x", "y")
    )
    key = S.jax.random.key(3)
    (eqn,) = S.jax.make_jaxpr(f)(X, 2, key).eqns
    params = eqn.params
    names = [n for n in params if n in ("mesh", "in_specs", "out_specs", "check_vma", "jaxpr")]
    inner = S.jax.make_jaxpr(
        _mapped(S, lambda x: (S.jax.sharding.get_abstract_mesh().manual_axes, x)[1], P(), P())
    )
    return (
        f(X, 2, key), repr(f(X, 2, key).sharding), eqn.primitive.name, sorted(names),
        repr((params["mesh"], params["out_specs"], params["check_vma"])),
        [v.aval.shape for v in params["jaxpr"].outvars], inner(X).eqns[0].primitive.name,
    )  # fmt: skip


@same
def test_what_shard_map_refuses(S):
    P, x = S.jax.P, S.jnp.ones((2, 3))
    mesh = S.jax.sharding.AbstractMesh((2, 4), ("x", "y"))
    over = functools.partial(S.jax.shard_map, lambda x: x, mesh=mesh)
    one = functools.partial(_mapped, S, lambda x: x)
    return _outcomes(
        S,
        lambda: one(P("x"), P())(x),
        lambda: one(P("x"), P(), check_vma=False)(x),
        lambda: one(P("z"), P())(x),
        lambda: one("x", P())(x),
        lambda: one(P("x"), "x")(x),
        lambda: one((P("x"), P()), P("x"))(x),
        lambda: one(P("x"), (P("x"), P("x")))(x),
        lambda: one(P(None, None, "x"), P())(x),
        lambda: one(P(), P(None, None, "x"))(x),
        lambda: one(P("x"), P("x"), axis_names={"y"})(x),
        lambda: one(P("y"), P("y"), axis_names={"y"})(x).shape,
        lambda: one(P("y"), P("y"), axis_names=["y"])(x),
        lambda: one(P("x"), P("x"), axis_names={"z"})(x),
        lambda: S.jax.shard_map(3, mesh=mesh, in_specs=P(), out_specs=P()),
        lambda: S.jax.shard_map(lambda x: x, in_specs=P(), out_specs=P())(x),
        lambda: S.jax.shard_map(lambda x: x, mesh="x", in_specs=P(), out_specs=P())(x),
        lambda: S.jax.shard_map(lambda x: x, mesh=_mesh(S, "x"), out_specs=P())(x),
        lambda: S.jax.eval_shape(over(in_specs=P("x"), out_specs=P("y")), x).shape,
        lambda: S.jax.eval_shape(over(in_specs=P("y"), out_specs=P("y")), x).shape,
        lambda: S.jax.eval_shape(over(in_specs=P(None, "x"), out_specs=P()), x),
        lambda: S.lax.pcast(x, "x", to="varying"),
        lambda: S.jax.smap(lambda x: x, in_axes="0", out_axes=0, axis_name="x"),
        lambda: S.jax.smap(lambda x: x, in_axes=0, out_axes=0, axis_name=("x",)),
    )


@same
def test_meshes_of_more_devices_are_traced(S):
    """Types follow from the mesh, whose devices need not be there."""
    P = S.jax.P
    mesh = S.jax.sharding.AbstractMesh((2, 4), ("x", "y"))

    def body(a, b):
        return S.lax.psum(a @ b, "y"), S.lax.all_gather(b, "y"), S.lax.axis_index("x")[None]

    specs = {"in_specs": (P("x", "y"), P("y")), "out_specs": (P("x"), P(None, "y"), P("x"))}
    f = S.jax.shard_map(body, mesh=mesh, **specs)
    out = S.jax.eval_shape(f, S.jnp.ones((4, 8)), S.jnp.ones((8, 3)))
    return [(leaf.shape, str(leaf.dtype)) for leaf in out]


def test_the_program_over_whole_arrays():
    """What an equation over several devices would compute, which is the meaning it is given."""
    from ferrax._src.parallel.shard_map_programs import whole

    mesh = ferrax.sharding.AbstractMesh((2, 3), ("x", "y"))
    P = ferrax.P
    a, b = np.random.default_rng(0).normal(size=(2, 12, 6)).astype(np.float32)

    def body(a, b):
        total = lax.psum(a, "x") + lax.axis_index("y")
        return lax.psum(a * 2, "y"), lax.ppermute(b, "y", [(0, 1), (1, 2), (2, 0)]), total, b[:1]

    (eqn,) = ferrax.make_jaxpr(
        ferrax.shard_map(
            body, mesh=mesh, in_specs=(P("x", "y"), P(("y", "x"))), check_vma=False,
            out_specs=(P("x"), P(None, ("x", "y")), P(None, "y"), P("y")),
        )
    )(a, b).eqns  # fmt: skip
    found = whole(jnp.array(a), jnp.array(b), **eqn.params)
    blocks = a.reshape(2, 6, 3, 2)
    np.testing.assert_allclose(found[0], 2 * blocks.sum(2).reshape(12, 2), rtol=1e-6)
    parts = b.reshape(3, 2, 2, 6)  # y, x, rows, columns
    moved = np.roll(parts, 1, axis=0)
    expected = moved.transpose(2, 1, 0, 3).reshape(2, 36)
    np.testing.assert_array_equal(found[1], expected)
    totals = blocks.sum(0) + np.arange(3)[:, None]
    np.testing.assert_allclose(found[2], totals.reshape(6, 6), rtol=1e-6)
    np.testing.assert_array_equal(found[3], parts[:, 0, 0])


@same
def test_pmap(S):
    def f(x, y, scale=2.0):
        total = S.lax.psum(x * y, "i")
        return {"z": x * total, "lane": S.lax.axis_index("i"), "s": y}, scale + S.lax.pmean(
            y, "i"
        ).sum()

    x, y = X[None], np.arange(3.0, dtype=np.float32)
    mapped = S.jax.pmap(
        f, axis_name="i", in_axes=(0, None), out_axes=({"z": 1, "lane": 0, "s": None}, 0)
    )
    out = mapped(x, y, scale=np.ones(1, np.float32))
    loss = S.jax.pmap(lambda x: S.lax.psum((S.jnp.sin(x) ** 2).sum(), "i"), axis_name="i")
    static = S.jax.pmap(lambda n, x: x**n, static_broadcasted_argnums=0)
    return (
        out, [repr(leaf.sharding.spec) for leaf in S.jax.tree.leaves(out)],
        S.jax.grad(lambda x: loss(x).sum())(x), S.jax.jit(loss)(x),
        static(2, x), static(3, x), S.jax.vmap(loss)(x[None]),
        S.jax.pmap(lambda k: S.jax.random.normal(k, (2,)))(S.jax.random.split(S.jax.random.key(0), 1)),
        loss.lower(x).compile()(x),
    )  # fmt: skip


@same
def test_what_pmap_refuses(S):
    x = np.ones((1, 2), np.float32)
    pmap = S.jax.pmap
    identity = lambda *x: x  # noqa: E731
    return _outcomes(
        S,
        lambda: pmap(identity)(np.ones((2, 2))),
        lambda: pmap(identity)(x, np.ones((2, 2))),
        lambda: pmap(identity)(1.0),
        lambda: pmap(identity, in_axes=None)(x),
        lambda: pmap(identity, in_axes=(0, 0, 0))(x),
        lambda: pmap(identity, in_axes="0"),
        lambda: pmap(identity, out_axes="0"),
        lambda: pmap(identity, out_axes=(0, 0))(x),
        lambda: pmap(identity, axis_size=2)(x),
        lambda: pmap(identity, devices=[]),
        lambda: pmap(identity, static_broadcasted_argnums=3)(x),
        lambda: pmap(identity, static_broadcasted_argnums=1)(x, [1]),
        lambda: pmap(3),
    )


def test_more_devices_than_there_are():
    with pytest.raises(ValueError, match="requires 16 logical devices, but only 8"):
        ferrax.pmap(jnp.sin)(jnp.ones(16))
    mesh = ferrax.sharding.AbstractMesh((16,), ("x",))
    f = ferrax.shard_map(jnp.sin, mesh=mesh, in_specs=ferrax.P("x"), out_specs=ferrax.P("x"))
    with pytest.raises(ValueError, match="requires 16 devices"):
        f(jnp.ones(16))
    with pytest.raises(ValueError, match="requires 16 devices"):
        ferrax.jit(f)(jnp.ones(16))


def test_pmap_has_a_mesh_of_its_own():
    nested = ferrax.pmap(ferrax.pmap(lambda x: lax.psum(x, "i"), axis_name="i"), axis_name="j")
    with pytest.raises(ValueError, match="a mesh of its own"):
        nested(X[None, None])
    with ferrax.set_mesh(ferrax.make_mesh((2,), ("x",))), pytest.raises(ValueError, match="a mesh of its own"):
        ferrax.pmap(jnp.sin)(jnp.ones(2))


def test_pmap_donates_and_knows_its_kind():
    f = ferrax.pmap(lambda x: x + 1, donate_argnums=0)
    x = jnp.ones((1, 4))
    assert f(x).shape == (1, 4) and x.is_deleted()
    assert type(f).__name__ == "PmapFunction"

    class Model:
        @ferrax.pmap
        def apply(x):
            return x

        scale = ferrax.pmap(lambda self, x: x * self.factor, static_broadcasted_argnums=0)
        factor = 3

    assert float(Model().scale(jnp.ones((1,)))[0]) == 3


def test_without_jit_pmap_calls_its_function_each_time():
    seen = []

    def f(x):
        seen.append(x.shape)
        return x + 1

    mapped, x = ferrax.pmap(f), jnp.ones((1, 3))
    mapped(x), mapped(x)
    assert seen == [(3,)]
    with ferrax.disable_jit():
        mapped(x), mapped(x), ferrax.eval_shape(mapped, x)
    assert seen == [(3,)] * 4
