"""What differs between the devices of a mesh: types within `shard_map`, and derivatives and batches that they make right."""

import numpy as np
import pytest
from oracle import same
from test_many_devices import mesh_of
from test_mesh import outcomes

W = np.arange(8, dtype=np.float32) / 7
X = np.arange(16, dtype=np.float32) / 5


def mapped(S, f, in_specs, out_specs, **options):
    specs = lambda names: tuple(S.jax.P(*spec) for spec in names)  # noqa: E731
    out = specs(out_specs) if isinstance(out_specs, list) else S.jax.P(*out_specs)
    return S.jax.shard_map(
        f, mesh=mesh_of(S, (2, 4)), in_specs=specs(in_specs), out_specs=out, **options
    )


BOTH = [(), ("x",)]


def total(S, value):
    return S.lax.psum(value, "x")


def loss(S, w, x):
    return total(S, (S.jnp.sin(w) * x).sum())


def scanned(S, w, x):
    start = S.lax.pcast(S.jnp.float32(0.0), ("x",), to="varying")
    carry, rows = S.lax.scan(lambda c, r: (c * S.jnp.sin(w[0]) + r, c), start, x)
    return total(S, carry + (rows * rows).sum())


def looped(S, w, x):
    start = S.lax.pcast(S.jnp.float32(1.0), ("x",), to="varying")
    return total(S, S.lax.fori_loop(0, 3, lambda i, c: c * w[1] + x.sum(), start))


def chosen(S, w, x):
    return total(S, S.lax.cond(x.sum() > 4, lambda: (w * x).sum(), lambda: (w * w * x).sum()))


def called(S, w, x):
    return total(S, S.jax.jit(lambda w: (S.jnp.sin(w) * x).sum())(w))


def kept(S, w, x):
    return total(S, S.jax.checkpoint(lambda w, x: (S.jnp.sin(w) * x).sum())(w, x))


def with_jvp(S, w, x):
    f = S.jax.custom_jvp(S.jnp.sin)
    f.defjvp(lambda p, t: (f(*p), S.jnp.cos(p[0]) * t[0]))
    return total(S, (f(w) * x).sum())


def with_vjp(S, w, x):
    f = S.jax.custom_vjp(lambda w, x: (w * x).sum())
    f.defvjp(lambda w, x: ((w * x).sum(), (w, x)), lambda kept, ct: (S.lax.psum(ct * kept[1], "x"), ct * kept[0]))
    return total(S, f(w, x))


def gathered(S, w, x):
    return (S.lax.all_gather(x, "x", tiled=True, to="invarying") ** 2).sum() * w[1]


def stacked(S, w, x):
    return (S.lax.all_gather(w * x, "x", to="invarying") ** 3).sum()


def solved(S, w, x):
    return total(S, S.jnp.linalg.solve(S.jnp.diag(x + 2.0) + 0.1, w).sum())


LOSSES = [loss, scanned, looped, chosen, called, kept, with_jvp, with_vjp, gathered, stacked, solved]


@pytest.mark.parametrize("body", LOSSES, ids=lambda f: f.__name__)
def test_derivatives_of_the_whole(body):
    """Around `shard_map`: gradients to order 2, jitted, of batches."""

    @same(ulps=64)
    def case(S):
        f = mapped(S, lambda w, x: body(S, w, x), BOTH, ())
        both = S.jax.grad(f, (0, 1))
        results = [f(W, X), both(W, X), S.jax.jit(both)(W, X)]
        if body is not with_vjp and body is not looped:
            results.append(S.jax.jvp(lambda w: both(w, X), (W,), (W * 0.5,)))
        return [*results, S.jax.vmap(both, (0, None))(np.stack([W, W + 1]), X)]

    case()


@pytest.mark.parametrize("body", LOSSES, ids=lambda f: f.__name__)
def test_derivatives_on_devices(body):
    """Within `shard_map`: that of what is the same everywhere is the sum over the devices."""

    @same(ulps=64)
    def case(S):
        inside = lambda w, x: S.jax.grad(lambda w, x: body(S, w, x), (0, 1))(w, x)  # noqa: E731
        return mapped(S, inside, BOTH, BOTH)(W, X)

    case()


@same(ulps=64)
def test_what_differs_comes_out(S):
    P = S.jax.P
    product = lambda w, x: S.jnp.sin(w) * x * w.sum()  # noqa: E731
    results = []
    for check in (True, False):
        f = mapped(S, product, BOTH, ("x",), check_vma=check)
        results += [f(W, X), S.jax.grad(lambda w, x, f=f: (f(w, x) ** 2).sum(), (0, 1))(W, X)]
    f = mapped(S, lambda w, x: total(S, (w * x).sum()), BOTH, (), check_vma=False)
    spread = S.jax.shard_map(lambda x: x, mesh=mesh_of(S, (2, 4)), in_specs=P(), out_specs=P("x"))
    return results, S.jax.grad(f, (0, 1))(W, X), S.jax.vjp(spread, W)[1](X)


@same
def test_types(S):
    seen = []

    def see(*values):
        for value in values:
            ty = S.jax.typeof(value)
            seen.append((ty.str_short(), sorted(ty.manual_axis_type.varying), sorted(ty.mat.varying)))
        return values[0]

    def body(w, x):
        see(w, x, w * x + 1.0, S.lax.psum(x, "x"), S.lax.psum(w, "x"), S.lax.pmax(w, "x"), S.lax.axis_index("y"))
        see(S.lax.all_gather(x, "x"), S.lax.all_gather(w, "x"), S.lax.ppermute(w, "x", [(0, 1)]))
        see(S.lax.all_gather(x, "x", to="invarying"), S.lax.pcast(w, ("x", "y"), to="varying"))
        see(S.jax.grad(lambda w: (w * x).sum())(w), S.jax.jit(lambda w, x: w + x)(w, x), S.jnp.zeros_like(x))
        see(S.lax.scan(lambda c, r: (see(c) + see(r).sum(), r), x.sum(), x)[0])
        see(S.lax.while_loop(lambda c: c.sum() < 3, lambda c: see(c) + 1, x))
        see(S.jax.vmap(lambda row: see(row) * w[0])(x.reshape(2, 4)), S.jax.checkpoint(lambda x: see(x) * w)(x))
        struct = S.jax.eval_shape(lambda w, x: w + x, w, x)
        see(struct, S.lax.full_like(struct, 1))
        return S.lax.psum(x, "x")

    mapped(S, body, BOTH, ())(W, X)
    return seen


def _groups(S, f, **options):
    return mapped(S, f, [("y",)], ("y",), check_vma=False, **options)(X)


GROUPS = {"even": [[0, 2], [1, 3]], "uneven": [[0, 2, 3], [1]]}


@same
def test_groups(S):
    lax, even = S.lax, GROUPS["even"]
    both = {"axis_index_groups": even, "tiled": True}
    return [
        _groups(S, lambda x: lax.psum(x, "y", axis_index_groups=GROUPS["uneven"])),
        _groups(S, lambda x: lax.pmax(x, "y", axis_index_groups=even)),
        _groups(S, lambda x: lax.all_gather(x, "y", axis_index_groups=even)),
        _groups(S, lambda x: lax.all_gather(x, "y", **both)),
        _groups(S, lambda x: lax.psum_scatter(x, "y", **both)),
        _groups(S, lambda x: lax.all_to_all(x, "y", 0, 0, **both)),
        mapped(S, lambda x: lax.all_to_all(x, "y", 0, 0, **both), [("y",)], ("y",))(X),
    ]


@same
def test_groups_over_several_axes(S):
    groups = [[0, 2, 4, 6], [1, 3, 5, 7]]
    x = np.arange(256, dtype=np.float32).reshape(8, 32)
    run = lambda f: mapped(S, f, [(None, ("x", "y"))], (None, ("x", "y")))(x)  # noqa: E731
    options = {"axis_index_groups": groups, "tiled": True}
    return (
        run(lambda a: S.lax.all_gather(a, ("x", "y"), axis=-1, **options)),
        run(lambda a: S.lax.psum_scatter(a, ("x", "y"), scatter_dimension=0, **options)),
        run(lambda a: S.lax.all_to_all(a, ("x", "y"), 1, 0, **options)),
    )


@same
def test_devices_to_which_none_sends(S):
    one = mapped(S, lambda x: S.lax.ppermute(x, "y", [(0, 1), (2, 0)]), [("y",)], ("y",))
    several = mapped(S, lambda x: S.lax.ppermute(x, ("x", "y"), [(0, 3), (2, 5), (7, 1)]), [(("x", "y"),)], (("x", "y"),))
    return one(X), S.jax.grad(lambda x: (one(x) ** 2 * X).sum())(X), several(X)


@same
def test_what_is_refused(S):
    lax, jnp = S.lax, S.jnp
    f = S.jax.custom_vjp(lambda w: w * 1.0)
    f.defvjp(lambda w: (w, None), lambda kept, ct: (ct,))
    g = S.jax.custom_vjp(lambda x: S.lax.psum(x, "x"))
    g.defvjp(lambda x: (g(x), None), lambda kept, ct: (ct,))
    one = lambda body: lambda: mapped(S, body, [("y",)], ("y",))(X)  # noqa: E731
    return outcomes(
        S,
        one(lambda x: lax.scan(lambda c, r: (c + r, None), jnp.float32(0.0), x)[0][None]),
        one(lambda x: lax.while_loop(lambda c: c.sum() < 9, lambda c: c + x, jnp.zeros(4))),
        one(lambda x: lax.cond(True, lambda: x, lambda: jnp.zeros(4))),
        one(lambda x: lax.psum(x, ("x", "y"))),
        one(lambda x: lax.psum(x, "y", axis_index_groups=GROUPS["even"])),
        one(lambda x: lax.pcast(x, "y", to="varying")),
        lambda: mapped(S, lambda: lax.axis_index("x")[None], (), ())(),
        lambda: mapped(S, lambda w, x: S.jax.grad(lambda w: (f(w) * x).sum())(w), BOTH, ())(W, X),
        lambda: S.jax.grad(lambda x: mapped(S, lambda x: g(x).sum(), [("x",)], ())(x))(X),
    )


@same(ulps=64)
def test_batches_over_axes(S):
    P, x = S.jax.P, np.arange(64, dtype=np.float32).reshape(8, 8)
    f = mapped(S, lambda x: S.lax.psum(S.jnp.sin(x), "y"), [("y",)], ())
    g = S.jax.vmap(f, spmd_axis_name="x")
    specs = S.jax.make_jaxpr(g)(x).jaxpr.eqns[0].params
    loss = mapped(S, lambda x: S.jnp.sin(S.jnp.sum(x)), [("y",)], (), check_vma=False)
    refused = outcomes(S, lambda: S.jax.vmap(f, spmd_axis_name="y")(x))
    return (
        g(x), S.jax.jit(g)(x), str(specs["in_specs"][0]), str(specs["out_specs"][0]), refused,
        S.jax.vmap(S.jax.grad(loss), spmd_axis_name="x")(x), S.jax.vmap(S.jax.grad(loss))(x), str(P("x")),
    )  # fmt: skip


def test_branches_that_devices_choose():
    """What a branch gives differs where devices choose it differently, which the reference does not say."""
    import ferrax
    from ferrax import lax

    mesh = ferrax.make_mesh((2, 4), ("x", "y"))
    f = ferrax.shard_map(
        lambda x, y: lax.cond(y.sum() > 3, lambda: x, lambda: x + 1), mesh=mesh,
        in_specs=(ferrax.P("x"), ferrax.P("y")), out_specs=ferrax.P("x"),
    )  # fmt: skip
    with pytest.raises(ValueError, match="may differ"):
        f(X, X)

