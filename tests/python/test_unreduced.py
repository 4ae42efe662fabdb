"""Values that are sums over the devices of a mesh, or whose cotangents are, within functions that devices run on parts."""

import numpy as np
import pytest
from oracle import same
from test_mesh import outcomes

import ferrax
import ferrax.numpy as jnp
from ferrax import lax
from ferrax.sharding import PartitionSpec

ROWS = (np.arange(64) % 5).reshape(4, 4, 4).astype(np.float32)
X = np.arange(32, dtype=np.float32).reshape(8, 4) / 8
W = np.arange(12, dtype=np.float32).reshape(4, 3) / 4


def explicit(S, shape=(2, 2), names=("x", "y")):
    return S.jax.make_mesh(shape, names, axis_types=(S.jax.sharding.AxisType.Explicit,) * len(names))


def lies(value):
    said = value.aval.mat
    return tuple(sorted(map(str, names)) for names in (said.varying, said.unreduced, said.reduced))


@same
def test_parameters_gathered_and_gradients_scattered(S):
    """Fully sharded: a parameter is gathered as one whose cotangent is a sum, which the way back hands out in parts."""
    P, found, mesh = S.jax.P, [], explicit(S)

    def gathered(w):
        w = S.lax.pcast(w, "x", to="reduced")
        found.append(lies(w))
        w = S.lax.all_gather(w, "y", tiled=True, to="reduced")
        found.append(lies(w))
        return w

    with S.jax.set_mesh(mesh):
        x, w = S.jax.device_put(ROWS, P("x", "y", None)), S.jax.device_put(W, P("y", None))
        gather = S.jax.shard_map(gathered, in_specs=P("y", None), out_specs=P(None, None, reduced={"x", "y"}))

        def loss(x, w):
            return (S.jnp.einsum("abc,cd->abd", x, gather(w)) ** 2).sum()

        value, slopes = S.jax.jit(S.jax.value_and_grad(loss, argnums=(0, 1)))(x, w)
        return found, np.asarray(value), [(str(slope.sharding.spec), np.asarray(slope)) for slope in slopes]


@same
def test_what_varies_beside_what_is_reduced(S):
    P, found, mesh = S.jax.P, [], explicit(S)

    def body(x, w):
        z = S.jnp.dot(x, w)
        found.append((lies(x), lies(w), lies(z)))
        return S.lax.psum(z, "y")

    with S.jax.set_mesh(mesh):
        x = S.jax.device_put(X, P("x", "y"))
        w = S.jax.device_put(W, P("y", None, reduced={"x"}))
        f = S.jax.shard_map(body, in_specs=(P("x", "y"), P("y", None, reduced={"x"})), out_specs=P("x", None))
        found.append(np.asarray(S.jax.jit(f)(x, w)))
        slopes = S.jax.jit(S.jax.grad(lambda x, w: (f(x, w) ** 2).sum(), argnums=(0, 1)))(x, w)
        found += [str(slope.sharding.spec) for slope in slopes]
        found.append(np.asarray(S.jax.reshard(slopes[1], P("y", None))))
    return found


@same
def test_terms_of_sums(S):
    """Sums are made where they are wanted: at once, in parts, or outside; and cotangents come back."""
    P, found, mesh = S.jax.P, [], explicit(S, (2,), ("x",))

    def terms(x):
        terms = S.lax.pcast(x, "x", to="unreduced")
        found.append(lies(terms))
        return terms + terms

    with S.jax.set_mesh(mesh):
        x = S.jax.device_put(X, P("x"))
        for then, spec in (
            (lambda x: S.lax.psum(x, "x"), P()),
            (lambda x: S.lax.psum_scatter(x, "x", tiled=True), P("x")),
        ):
            f = S.jax.jit(S.jax.shard_map(lambda x, then=then: then(terms(x)), in_specs=P("x"), out_specs=spec))
            found.append(np.asarray(f(x)))
            found.append(np.asarray(S.jax.jit(S.jax.grad(lambda x, f=f: (f(x) ** 3).sum()))(x)))
        f = S.jax.jit(S.jax.shard_map(terms, in_specs=P("x"), out_specs=P(unreduced={"x"})))
        y = f(x)
        found += [str(y.sharding.spec), np.asarray(S.jax.reshard(y, P()))]
        found.append(np.asarray(S.jax.jit(S.jax.grad(lambda x: (S.jax.reshard(f(x), P()) ** 3).sum()))(x)))
        g = S.jax.jit(S.jax.shard_map(lambda x: S.lax.psum(x, "x"), in_specs=P(unreduced={"x"}), out_specs=P()))
        found.append(np.asarray(g(y)))
    return found


@same
def test_casts_that_are_refused(S):
    P, mesh = S.jax.P, explicit(S, (2,), ("x",))

    def run(f, spec=None):
        with S.jax.set_mesh(mesh):
            x = S.jax.device_put(X, P("x"))
            spec = P("x") if spec is None else spec
            return S.jax.jit(S.jax.shard_map(f, in_specs=P("x"), out_specs=spec)).eval_shape(x).shape

    return outcomes(
        S,
        lambda: run(lambda x: S.lax.pcast(x, "x", to="reduced")),
        lambda: run(lambda x: S.lax.pcast(S.lax.pcast(x, "x", to="unreduced"), "x", to="varying")),
        lambda: run(lambda x: S.lax.pcast(S.lax.psum(x, "x"), "x", to="unreduced")),
        lambda: run(lambda x: S.jnp.sin(S.lax.pcast(x, "x", to="unreduced")), P(unreduced={"x"})),
        lambda: run(lambda x: S.lax.pcast(x, "x", to="unreduced"), P()),
        lambda: run(lambda x: S.lax.pcast(S.lax.psum(x, "x"), "x", to="sums")),
    )


def reduced_and_terms(body, size=2):
    """`body(x, terms)`: of a value that varies, and of it as terms of a sum; the result is summed."""
    mesh = ferrax.make_mesh((size,), ("x",))
    spec = PartitionSpec("x")
    return ferrax.shard_map(
        lambda x: lax.psum(body(x, lax.pcast(x, "x", to="unreduced")), "x"),
        mesh=mesh, in_specs=spec, out_specs=PartitionSpec(),
    )  # fmt: skip


LINEAR = {
    "neg": lambda s: -s,
    "reshape": lambda s: s.reshape(-1),
    "transpose": lambda s: s.T,
    "slice": lambda s: s[1:3],
    "pad": lambda s: lax.pad(s, 0.0, ((1, 2, 0), (0, 1, 1))),
    "index": lambda s: s[jnp.array([0, 1, 1])],
    "dynamic_slice": lambda s: lax.dynamic_slice(s, (1, 0), (2, 2)),
    "flip": lambda s: s[::-1],
    "sum": lambda s: s.sum(0),
    "cumsum": lambda s: jnp.cumsum(s, 1),
    "product": lambda s: jnp.dot(s, jnp.asarray(W)),
    "scaled": lambda s: 2 * s / 3,
    "weighted": lambda s: s * jnp.arange(4.0),
    "concatenate": lambda s: jnp.concatenate([s, s]),
    "where": lambda s: jnp.where(jnp.arange(4) > 1, s, 2 * s),
    "convert": lambda s: s.astype(jnp.float16).astype(jnp.float32),
    "broadcast": lambda s: jnp.broadcast_to(s, (3, *s.shape)),
    "loop": lambda s: lax.fori_loop(0, 3, lambda _, s: s + s, s),
    "branch": lambda s: lax.cond(jnp.array(True), lambda s: 2 * s, lambda s: s, s),
    "called": lambda s: ferrax.jit(lambda s: 3 * s)(s),
    "checkpoint": lambda s: ferrax.checkpoint(lambda s: 3 * s)(s),
}


@pytest.mark.parametrize("name", LINEAR)
def test_linear_functions_of_sums(name):
    """Of the sum they are the sum of what each device makes of its term; so are derivatives of first and second order."""
    linear = LINEAR[name]
    f = reduced_and_terms(lambda _, terms: linear(terms))
    plain = lambda x: linear(x[:4] + x[4:])  # noqa: E731
    np.testing.assert_allclose(f(X), plain(jnp.asarray(X)), rtol=1e-6)
    np.testing.assert_allclose(ferrax.jit(f)(X), plain(jnp.asarray(X)), rtol=1e-6)
    score = lambda f: lambda x: (f(x) ** 3).sum()  # noqa: E731
    np.testing.assert_allclose(ferrax.grad(score(f))(X), ferrax.grad(score(plain))(jnp.asarray(X)), rtol=1e-5)
    twice = lambda f: ferrax.grad(lambda x: (ferrax.grad(score(f))(x) ** 2).sum())  # noqa: E731
    np.testing.assert_allclose(twice(f)(X), twice(plain)(jnp.asarray(X)), rtol=1e-5)
    batch = np.stack([X, X + 1, -X])
    np.testing.assert_allclose(ferrax.vmap(f)(batch), ferrax.vmap(plain)(batch), rtol=1e-6)


@pytest.mark.parametrize("function", ["sin", "exp", "abs", "square", "floor"])
def test_others_are_refused(function):
    with pytest.raises(NotImplementedError, match=r"unreduced rule for \w+ is not implemented.*'x'.*psum"):
        reduced_and_terms(lambda _, terms: getattr(jnp, function)(terms))(X)


def test_what_varies_beside_a_sum_is_refused():
    for mixed in (lambda x, terms: x + terms, lambda x, terms: x * terms, lambda x, terms: terms * terms):
        with pytest.raises((ValueError, NotImplementedError), match="unreduced"):
            reduced_and_terms(mixed)(X)


def test_numbers_that_are_the_same_beside_what_is_reduced():
    """They are taken for reduced: their cotangents are the sums that reduced values have yet to make."""
    mesh = ferrax.make_mesh((2,), ("x",))

    def body(x, w, v):
        scaled = lax.pcast(w, "x", to="reduced") * v
        return lax.pcast(scaled, "x", to="varying") * x

    spec = PartitionSpec("x"), PartitionSpec(), PartitionSpec()
    f = ferrax.shard_map(body, mesh=mesh, in_specs=spec, out_specs=PartitionSpec("x"))
    w, v = jnp.arange(4.0) + 1, jnp.float32(-1.5)
    slopes = ferrax.jit(ferrax.grad(lambda *args: (f(*args) ** 2).sum(), argnums=(0, 1, 2)))(X, w, v)
    expected = ferrax.grad(lambda x, w, v: ((x * w * v) ** 2).sum(), argnums=(0, 1, 2))(jnp.asarray(X), w, v)
    for got, wanted in zip(slopes, expected):
        np.testing.assert_allclose(got, wanted, rtol=1e-5)


def test_carries_of_loops():
    """Gradients that a loop adds up as terms are summed once, after it."""
    mesh = ferrax.make_mesh((2,), ("x",))
    w = jnp.arange(4.0) + 1

    def body(x, w):
        w = lax.pcast(w, "x", to="reduced")

        def step(total, row):
            return total + ferrax.grad(lambda w: jnp.sin(row * w).sum())(w), None

        zeros = lax.pcast(lax.pcast(jnp.zeros(4), "x", to="varying"), "x", to="unreduced")
        return lax.psum(lax.scan(step, zeros, x)[0], "x")

    specs = PartitionSpec("x"), PartitionSpec()
    f = ferrax.shard_map(body, mesh=mesh, in_specs=specs, out_specs=PartitionSpec())
    np.testing.assert_allclose(ferrax.jit(f)(X, w), (np.cos(X * w) * X).sum(0), rtol=1e-5)


def test_without_checks_a_sum_is_whole_on_the_first_device():
    mesh = ferrax.make_mesh((2,), ("x",), axis_types=(ferrax.sharding.AxisType.Explicit,))
    spec = PartitionSpec(unreduced={"x"})
    with ferrax.set_mesh(mesh):
        f = ferrax.shard_map(lambda x: x, in_specs=PartitionSpec("x"), out_specs=spec, check_vma=False)
        y = ferrax.jit(f)(ferrax.device_put(X, PartitionSpec("x")))
        assert y.shape == (4, 4) and y.sharding.spec.unreduced == {"x"}
        np.testing.assert_array_equal(ferrax.reshard(y, PartitionSpec()), X[:4] + X[4:])
        parts = [shard.data for shard in y.addressable_shards]
        np.testing.assert_array_equal(sum(map(np.asarray, parts)), X[:4] + X[4:])
        g = ferrax.shard_map(
            lambda x: lax.psum_scatter(x, "x", tiled=True), in_specs=spec, out_specs=PartitionSpec("x"), check_vma=False
        )
        np.testing.assert_array_equal(ferrax.jit(g)(y), X[:4] + X[4:])
        slope = ferrax.jit(ferrax.grad(lambda y: g(y).sum()))(y)
        assert slope.sharding.spec.reduced == {"x"}
        np.testing.assert_array_equal(slope, np.ones((4, 4)))


def held(x):
    spec = x.sharding.spec
    return repr((tuple(spec.partitions), sorted(spec.unreduced))), [np.asarray(shard.data) for shard in x.addressable_shards]


# How an array is divided over a mesh of 2 × 2 × 2 devices, and a sum over devices that is made of it.
SUMS = (
    (("x",), (None,), {"x"}),
    (("x",), ("y",), {"x"}),
    (("y",), (), {"x"}),
    (("y",), ("y",), {"x"}),
    ((), ("y",), {"x"}),
    (("x",), (), {"x", "y"}),
    ((("x", "y"),), ("y",), {"x"}),
    ((("x", "y"),), ("x",), {"y"}),
    ((("y", "x"),), ("y",), {"x"}),
    ((("x", "y"),), (), {"x", "y"}),
    ((("x", "y"),), (), {"x"}),
    ((("x", "y"),), ("z",), {"x", "y"}),
    ((("x", "y", "z"),), ("x",), {"z"}),
    ((("x", "y", "z"),), ("x",), {"y", "z"}),
    ((("y", "x", "z"),), (), {"x", "y", "z"}),
    (("x", "y"), (None, "y"), {"x"}),
    (("x", "y"), ("y", None), {"x"}),
    (("x", "y"), ("z", None), {"x", "y"}),
    (("x", "y"), (None, "z"), {"x", "y"}),
    (("y", ("x", "z")), (None, "x"), {"z"}),
)


@same
def test_terms_of_divided_arrays(S):
    """Each device keeps its tile where an array is divided as before but for the axes of the sum; else the first has all."""
    P, found = S.jax.P, []
    with S.jax.set_mesh(explicit(S, (2, 2, 2), ("x", "y", "z"))):
        for before, after, summed in SUMS:
            x, where = S.jax.device_put(X + 1, P(*before)), P(*after, unreduced=summed)
            out = S.jax.device_put(x, where)
            assert out.sharding.spec == where
            found.append(held(out)[1])
            for made in (
                S.jax.reshard(x, where),
                S.jax.jit(lambda x: x, out_shardings=where)(x),
                S.jax.jit(lambda x, where=where: S.jax.reshard(2 * x, where))(x),
            ):
                found.append(held(made)[1])
    return found


@same
def test_terms_of_sums_that_go_elsewhere(S):
    P, found = S.jax.P, []
    with S.jax.set_mesh(explicit(S, (2, 2, 2), ("x", "y", "z"))):
        x = S.jax.device_put(X[:, 0] + 1, P(("y", "x")))
        terms = S.jax.device_put(x, P("y", unreduced={"x"}))
        for spec in (
            P("y", unreduced={"x"}),
            P("z", unreduced={"x"}),
            P(None, unreduced={"x"}),
            P(None, unreduced={"x", "y"}),
        ):
            found.append(held(S.jax.device_put(terms, spec)))
            found.append(held(S.jax.reshard(terms, spec)))
            found.append(held(S.jax.jit(lambda x, spec=spec: S.jax.reshard(x, spec))(terms)))
        for f in lambda x: x, lambda x: x.reshape(x.shape), lambda x: S.jax.jit(lambda x: x)(x):
            found.append(held(S.jax.jit(f)(terms)))
        found += [held(terms.copy()), np.asarray(S.jax.reshard(terms + terms, P()))]
        # Infinite and other elements are not those of the devices that hold no part of them.
        x = S.jax.device_put(np.array([1, np.nan, np.inf, -np.inf], np.float32), P("x"))
        found += [held(S.jax.reshard(x, P(None, unreduced=names))) for names in ({"x"}, {"y"})]
        found.append(held(S.jax.device_put(S.jax.device_put(np.float32(3), P()), P(unreduced={"z"}))))
    return found


@same
def test_terms_of_cotangents_of_what_is_reduced(S):
    P, found = S.jax.P, []

    def slopes(before, after):
        x = S.jax.device_put(X + 1, before)
        moved = lambda x: S.jax.reshard(x, after)  # noqa: E731
        for f in (
            lambda x: moved(x).sum(),
            lambda x: (moved(x) ** 2).sum(),
            lambda x: S.jax.jit(moved)(x).sum(),
            lambda x: S.jax.jit(lambda x: (3 * moved(x)).sum())(x),
            lambda x: S.jax.checkpoint(lambda x: (moved(x) ** 3).sum())(x),
        ):
            slope = S.jax.jit(S.jax.grad(f))(x)
            found.append((held(slope), np.asarray(S.jax.reshard(slope, P()))))

    with S.jax.set_mesh(explicit(S)):
        slopes(P(None, reduced={"x"}), P("x"))
        slopes(P("x", None, reduced={"y"}), P("x", "y"))
        slopes(P("y", reduced={"x"}), P(("y", "x")))
        slopes(P(None, reduced={"x", "y"}), P("x", "y"))
    return found


@same
def test_arrays_made_of_terms_are_their_sum(S):
    P, found = S.jax.P, []
    with S.jax.set_mesh(explicit(S)):
        for spec, where in (
            (P("x"), P(unreduced={"x"})),
            (P(("y", "x")), P("y", unreduced={"x"})),
            (P("x", "y"), P(unreduced={"x", "y"})),
        ):
            out = S.jax.device_put(S.jax.device_put(X + 1, spec), where)
            for more in 0, 1:
                parts = [S.jax.device_put(np.asarray(x.data) + more, x.device) for x in out.addressable_shards]
                again = S.jax.make_array_from_single_device_arrays(out.shape, out.sharding, parts)
                found.append(np.asarray(S.jax.reshard(again, P())))
    return found


def test_terms_are_no_part_of_types():
    """Arrays that differ by the terms of devices alone are of one sharding and of one type."""
    P = PartitionSpec
    with ferrax.set_mesh(ferrax.make_mesh((2,), ("x",), axis_types=(ferrax.sharding.AxisType.Explicit,))):
        where = P(None, unreduced={"x"})
        cut, whole = (ferrax.device_put(ferrax.device_put(X, spec), where) for spec in (P("x"), P()))
        assert not np.array_equal(cut.addressable_shards[0].data, whole.addressable_shards[0].data)
        assert cut.sharding == whole.sharding and ferrax.typeof(cut) == ferrax.typeof(whole)
        assert ferrax.device_put(cut, where) is cut and ferrax.device_put(cut, cut.sharding) is cut
        f = ferrax.jit(lambda x, y: ferrax.reshard(x + y, P()))
        compiled = f.lower(whole, whole).compile()
        for x in (cut, whole):
            np.testing.assert_array_equal(f(x, whole), X + X)
            np.testing.assert_array_equal(compiled(x, whole), X + X)
            np.testing.assert_array_equal(ferrax.lax.cond(True, lambda x: x, lambda x: x + x, x), X)
            np.testing.assert_array_equal(ferrax.lax.fori_loop(0, 2, lambda _, x: x + whole, x), 3 * X)
            g = ferrax.shard_map(lambda x: lax.psum(x, "x"), in_specs=where, out_specs=P())
            np.testing.assert_array_equal(ferrax.jit(g)(x), X)
            placed = ferrax.jit(lambda x: x, in_shardings=where, out_shardings=where)(x)
            np.testing.assert_array_equal(placed.addressable_shards[1].data, x.addressable_shards[1].data)
