"""Collectives over a named axis of `vmap`: values, derivatives and errors beside JAX."""

import functools
import operator

import numpy as np
import pytest
from closeness import along
from oracle import FERRAX, JAX, attempt, compare, compiled, module, same

import ferrax
import ferrax.numpy as jnp
from ferrax import lax

RING = [(0, 1), (1, 2), (2, 3), (3, 0)]
MIXED = [(0, 2), (1, 0), (2, 3), (3, 1)]
FLOAT = (4, 4, 3)

# name: (function of a side and one lane's array, which has shape (4, 3))
OPS = {
    "psum": lambda S, x: S.lax.psum(x, "i"),
    "psum of a tuple of one": lambda S, x: S.lax.psum(x, ("i",)),
    "psum with positions": lambda S, x: S.lax.psum(x, (1, "i")),
    "pmean": lambda S, x: S.lax.pmean(x, "i"),
    "ppermute": lambda S, x: S.lax.ppermute(x, "i", RING),
    "ppermute mixed": lambda S, x: S.lax.ppermute(x, "i", MIXED),
    "pshuffle": lambda S, x: S.lax.pshuffle(x, "i", [1, 2, 3, 0]),
    "all_gather": lambda S, x: S.lax.all_gather(x, "i"),
    "all_gather axis": lambda S, x: S.lax.all_gather(x, "i", axis=1),
    "all_gather last": lambda S, x: S.lax.all_gather(x, "i", axis=-1),
    "all_gather tiled": lambda S, x: S.lax.all_gather(x, "i", axis=1, tiled=True),
    "psum_scatter": lambda S, x: S.lax.psum_scatter(x, "i"),
    "psum_scatter tiled": lambda S, x: S.lax.psum_scatter(x, "i", tiled=True),
    "psum_scatter axis": lambda S, x: S.lax.psum_scatter(
        S.jnp.swapaxes(x, 0, 1), "i", scatter_dimension=1
    ),
    "all_to_all": lambda S, x: S.lax.all_to_all(x, "i", 0, 0),
    "all_to_all apart": lambda S, x: S.lax.all_to_all(x, "i", 0, 1),
    "all_to_all back": lambda S, x: S.lax.all_to_all(S.jnp.swapaxes(x, 0, 1), "i", 1, 0),
    "all_to_all tiled": lambda S, x: S.lax.all_to_all(x, "i", 0, 1, tiled=True),
    "pswapaxes": lambda S, x: S.lax.pswapaxes(x, "i", 0),
    "axis_index": lambda S, x: x * S.lax.axis_index("i"),
    "axis_size": lambda S, x: x * S.lax.axis_size("i"),
}
# Without a derivative in JAX.
EXTREMA = {
    "pmax": lambda S, x: S.lax.pmax(x, "i"),
    "pmin": lambda S, x: S.lax.pmin(x, "i"),
}
# JAX has no rule for them over several axes, or none at all under vmap.
OURS = {
    "ppermute": lambda x, names, n: lax.ppermute(x, names, [(k, (k + 3) % n) for k in range(n)]),
    "all_gather": lambda x, names, n: lax.all_gather(x, names, axis=1),
    "all_gather tiled": lambda x, names, n: lax.all_gather(x, names, axis=1, tiled=True),
    "psum_scatter": lambda x, names, n: lax.psum_scatter(x, names),
    "psum_scatter tiled": lambda x, names, n: lax.psum_scatter(
        jnp.tile(x, (2, 1)), names, tiled=True
    ),
    "all_to_all": lambda x, names, n: lax.all_to_all(x, names, 0, 0),
    "all_to_all apart": lambda x, names, n: lax.all_to_all(x, names, 0, 1),
    "all_to_all tiled": lambda x, names, n: lax.all_to_all(x, names, 0, 1, tiled=True),
    "all_to_all tiled in place": lambda x, names, n: lax.all_to_all(
        jnp.concatenate([x, -x]), names, 0, 0, tiled=True
    ),
    "pbroadcast": lambda x, names, n: lax.pbroadcast(x, names, 4),
    "axis_index": lambda x, names, n: x + lax.axis_index(names),
    "psum": lambda x, names, n: lax.psum(x, names),
    "pmax": lambda x, names, n: lax.pmax(x, names),
}
DTYPES = ["float32", "float16", "bfloat16", "int8", "int32", "uint16", "complex64"]


def array(S, shape=FLOAT, dtype="float32"):
    values = np.random.RandomState(0).uniform(-3, 3, shape)
    if dtype == "complex64":
        values = values + 1j * values[::-1]
    if dtype.startswith("u"):
        values = np.abs(values)
    return S.jnp.asarray(values.astype("complex64" if dtype == "complex64" else "float32")).astype(
        dtype
    )


def mapped(S, f, **options):
    return S.jax.vmap(functools.partial(f, S), axis_name="i", **options)


@pytest.mark.parametrize("name", OPS | EXTREMA)
@pytest.mark.parametrize("dtype", DTYPES)
def test_values(name, dtype):
    f = (OPS | EXTREMA)[name]

    def case(S):
        return mapped(S, f)(array(S, dtype=dtype))

    # Sums are of elements up to 3.
    compare(attempt(case, FERRAX), attempt(case, JAX), cancels=3.0 if name.startswith(("psum", "pmean")) else 0.0)


@pytest.mark.parametrize("name", OPS | EXTREMA)
def test_transformed_values(name):
    f = (OPS | EXTREMA)[name]

    def case(S):
        x = array(S)
        lane = functools.partial(f, S)
        outer = S.jax.vmap(lambda x: S.jax.vmap(lane, axis_name="i")(x), in_axes=2, out_axes=1)
        inner = S.jax.vmap(lambda x: S.jax.vmap(lane, in_axes=2, out_axes=-1)(x), axis_name="i")

        def values(x):
            results = [
                S.jax.jit(mapped(S, f))(x),
                S.jax.vmap(S.jax.jit(lane), axis_name="i")(x),
                mapped(S, f, in_axes=1)(S.jnp.moveaxis(x, 0, 1)),
                outer(S.jnp.stack([x, 2 * x], 2)),
                mapped(S, f)(S.jnp.zeros((4, 4, 0))),
            ]
            if name != "psum_scatter":
                # There JAX loses an axis.
                results.append(inner(S.jnp.stack([x, x * x], 3)))
            return results

        return compiled(S, values, x)

    compare(attempt(case, FERRAX), attempt(case, JAX))


@pytest.mark.parametrize("name", OPS)
def test_derivatives(name):
    f = OPS[name]

    def case(S):
        jax, x = S.jax, array(S)

        def lane(x):
            y = f(S, S.jnp.sin(x))
            return S.jnp.sum(y * y * S.jnp.arange(1, 1 + y.size).reshape(y.shape))

        def whole(x):
            return S.jnp.sum(jax.vmap(lane, axis_name="i")(x) ** 2)

        def derivatives(x, tangent):
            results = [
                jax.grad(whole)(x),
                jax.jit(jax.grad(whole))(x),
                jax.jvp(whole, (x,), (tangent,)),
                jax.grad(lambda x: S.jnp.vdot(jax.grad(whole)(x), tangent))(x),
                jax.vmap(lambda x, t: jax.jvp(lane, (x,), (t,)), axis_name="i")(x, tangent),
            ]
            if "apart" not in name and "back" not in name:
                # JAX's transpose of all_to_all in a lane refuses its own types.
                results += [
                    jax.vmap(jax.grad(lane), axis_name="i")(x),
                    jax.vmap(jax.grad(lambda x: jax.grad(lane)(x).sum()), axis_name="i")(x),
                    jax.jit(jax.vmap(jax.grad(jax.checkpoint(lane)), axis_name="i"))(x),
                ]
            return results

        return compiled(S, derivatives, x, x[::-1])

    lanes = lambda size: along(0)(size) if size.ndim else 0.0  # noqa: E731  which add up each other's terms
    compare(attempt(case, FERRAX), attempt(case, JAX), ulps=64, cancels=lanes)


@pytest.mark.parametrize("name", EXTREMA)
def test_extrema_have_the_derivative_of_those_along_an_axis(name):
    reduce = {"pmax": jnp.max, "pmin": jnp.min}[name]
    x = jnp.array([[1.0, 5.0], [3.0, 5.0], [3.0, 2.0]])
    weights = jnp.arange(1.0, 7.0).reshape(3, 2)
    lane = functools.partial(getattr(lax, name), axis_name="i")

    def by_name(x):
        return jnp.sum(ferrax.vmap(lane, axis_name="i")(x) ** 3 * weights)

    def by_place(x):
        return jnp.sum(jnp.broadcast_to(reduce(x, 0), x.shape) ** 3 * weights)

    for derive in (ferrax.grad, lambda f: lambda x: ferrax.hessian(f)(x)):
        np.testing.assert_allclose(derive(by_name)(x), derive(by_place)(x), rtol=1e-6)


@pytest.mark.parametrize("name", [*OPS, *EXTREMA])
def test_operands_that_are_the_same_in_all_lanes(name):
    f = (OPS | EXTREMA)[name]
    x, w = jnp.arange(4.0), jnp.arange(12.0).reshape(4, 3)
    whole = jnp.broadcast_to(w, (4, 4, 3))
    expected = ferrax.vmap(lambda w: f(FERRAX, w), axis_name="i")(whole)
    shared = ferrax.vmap(lambda x, w: f(FERRAX, w), in_axes=(0, None), axis_name="i")
    compare(shared(x, w), expected)
    compare(ferrax.jit(shared)(x, w), expected)
    compare(ferrax.vmap(lambda x: f(FERRAX, w), axis_name="i")(x), expected)


@pytest.mark.parametrize("name", OURS)
def test_several_axes_are_one_axis_with_the_last_as_the_fastest(name):
    f = OURS[name]
    x = jnp.asarray(np.random.RandomState(1).normal(size=(6, 6, 2)).astype("float32"))
    expected = ferrax.vmap(lambda x: f(x, "k", 6), axis_name="k")(x)

    def nested(x):
        by_j = ferrax.vmap(lambda x: f(x, ("i", "j"), 6), axis_name="j")
        return ferrax.vmap(by_j, axis_name="i")(x.reshape(2, 3, *x.shape[1:]))

    got = nested(x)
    np.testing.assert_allclose(got.reshape(expected.shape), expected, rtol=1e-6)
    weights = jnp.arange(expected.size).reshape(expected.shape) / expected.size
    gradient = ferrax.grad(
        lambda x: jnp.sum(ferrax.vmap(lambda x: f(x, "k", 6), axis_name="k")(x) ** 2 * weights)
    )
    by_names = ferrax.grad(lambda x: jnp.sum(nested(x).reshape(expected.shape) ** 2 * weights))
    np.testing.assert_allclose(by_names(x), gradient(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["all_to_all apart", "all_to_all back"])
def test_gradient_of_a_lane_through_all_to_all(name):
    f = OPS[name]
    x = array(FERRAX)
    weights = jnp.asarray(np.random.RandomState(2).normal(size=(4, 12)).astype("float32"))

    def lane(x, w):
        return jnp.sum(f(FERRAX, x).ravel() ** 2 * w)

    # Every lane's gradient is that of the sum over lanes.
    got = ferrax.vmap(ferrax.grad(lane), axis_name="i")(x, weights)
    whole = ferrax.grad(lambda x: ferrax.vmap(lane, axis_name="i")(x, weights).sum())(x)
    np.testing.assert_allclose(got, whole, rtol=1e-5)


def test_pbroadcast_and_its_gradient():
    x = jnp.arange(6.0).reshape(3, 2)
    f = ferrax.vmap(lambda x: lax.pbroadcast(x, "i", 1), axis_name="i")
    np.testing.assert_array_equal(f(x), np.broadcast_to(np.asarray(x)[1], (3, 2)))
    weights = jnp.arange(1.0, 7.0).reshape(3, 2)
    expected = np.zeros((3, 2), "float32")
    expected[1] = weights.sum(0)
    np.testing.assert_array_equal(ferrax.grad(lambda x: jnp.sum(f(x) * weights))(x), expected)
    lane = ferrax.grad(lambda x, w: jnp.sum(lax.pbroadcast(x, "i", 1) * w))
    np.testing.assert_array_equal(ferrax.vmap(lane, axis_name="i")(x, weights), expected)


@same
def test_constants(S):
    seen = []

    def lane(x):
        results = [S.lax.psum(value, "i") for value in (1, 2.5, 3j, np.float32(2), np.ones(2))]
        results += [S.lax.pmean(1, "i"), S.lax.psum((1, {"a": 2}), "i"), S.lax.axis_size("i")]
        results += [S.lax.axis_index(())]
        seen.extend(results)
        return S.lax.psum(True, "i") + S.lax.psum(S.jnp.arange(3) > 0, "i"), x

    return mapped(S, lambda S, x: lane(x))(S.jnp.arange(3.0)), seen


@same
def test_trees_and_weak_types(S):
    def lane(x):
        tree = {"a": x, "b": (x + 1, 2), "c": [3.5]}
        return [S.lax.psum(tree, "i"), S.lax.pmean(tree, "i"), S.lax.pmax((x, 1), "i")]

    return S.jax.vmap(lane, axis_name="i")(S.jnp.arange(3))


@same
def test_what_is_the_same_in_all_lanes_needs_no_out_axes(S):
    def lane(x):
        total = S.lax.psum(x, "i")
        looped = S.lax.fori_loop(0, 3, lambda _, c: S.lax.pmean(c + x, "i"), total)
        stepped = S.lax.scan(lambda c, _: (S.lax.psum(c * x, "i"), c), total, None, length=2)
        counted = S.lax.while_loop(
            lambda c: c < 40, lambda c: S.lax.pmax(c * 2 + x, "i"), S.lax.pmax(x, "i")
        )
        return total, looped, stepped, counted, S.lax.all_gather(x, "i"), S.lax.pmin(x, "i")

    return S.jax.vmap(lane, axis_name="i", out_axes=None)(S.jnp.arange(1.0, 4.0))


@same(weak=False)
def test_the_number_of_the_lane_in_loops_and_branches(S):
    def lane(x):
        index = S.lax.axis_index("i")
        looped = S.lax.fori_loop(0, 3, lambda _, c: c + S.lax.axis_index("i"), 0)
        found, steps = S.lax.scan(
            lambda c, t: (c + t * S.lax.axis_index("i"), S.lax.axis_index("i")), 0, S.jnp.arange(3)
        )
        branch = S.lax.cond(x[0] > 0, lambda: S.lax.axis_index("i"), lambda: -1)
        alike = S.lax.cond(True, lambda: S.lax.axis_index("i"), lambda: -1)
        switched = S.lax.switch(
            index, [lambda x: S.lax.psum(x, "i"), lambda x: x, lambda x: S.lax.pmax(x, "i")], x
        )
        until = S.lax.while_loop(lambda c: c < 5, lambda c: c + S.lax.axis_index("i") + 1, 0)
        jitted = S.jax.jit(lambda: S.lax.axis_index("i") * 2)()
        return looped, found, steps, branch, alike, switched, until, jitted

    return S.jax.vmap(lane, axis_name="i")(S.jnp.arange(9.0).reshape(3, 3) - 4)


@same
def test_collectives_in_loops_have_derivatives(S):
    def lane(x):
        def step(c, t):
            c = S.jnp.sin(c) * t + S.lax.pmean(c, "i")
            return c, S.lax.ppermute(c, "i", RING)

        c, ys = S.lax.scan(step, x, S.jnp.arange(1.0, 4.0))
        c = S.lax.cond(c[0] > 0, lambda c: S.lax.psum(c, "i"), lambda c: c * 2, c)
        return S.jnp.sum(ys**2) + S.jnp.sum(c)

    def whole(x):
        return S.jnp.sum(S.jax.vmap(lane, axis_name="i")(x))

    x = array(S, (4, 2))
    return (
        S.jax.grad(whole)(x),
        S.jax.vmap(S.jax.grad(lane), axis_name="i")(x),
        S.jax.jit(S.jax.vmap(S.jax.grad(S.jax.checkpoint(lane)), axis_name="i"))(x),
        S.jax.jvp(lambda x: S.jax.grad(whole)(x), (x,), (x,)),
    )


@same
def test_collectives_in_rules(S):
    @S.jax.custom_vjp
    def f(x):
        return S.jnp.sin(x) * S.lax.psum(x, "i")

    f.defvjp(
        lambda x: (f(x), S.lax.pmean(x, "i")),
        lambda kept, ct: (S.lax.psum(ct, "i") * kept + S.lax.axis_index("i"),),
    )

    @S.jax.custom_jvp
    def g(x):
        return S.jnp.cos(x)

    @g.defjvp
    def _(primals, tangents):
        (x,), (t,) = primals, tangents
        return g(x), S.lax.psum(t, "i") * x + t * S.lax.axis_size("i")

    x = array(S, (4,))
    lane = lambda x: f(x) * 2 + g(x)  # noqa: E731
    whole = lambda x: S.jnp.sum(S.jax.vmap(lane, axis_name="i")(x) ** 2)  # noqa: E731
    return (
        S.jax.vmap(S.jax.grad(lane), axis_name="i")(x),
        S.jax.grad(whole)(x),
        S.jax.jit(S.jax.grad(whole))(x),
        S.jax.vmap(S.jax.jit(S.jax.grad(lane)), axis_name="i")(x),
    )


@same
def test_a_jitted_function_is_traced_for_each_axis(S):
    traces = []

    @S.jax.jit
    def f(x):
        traces.append(1)
        return S.lax.psum(1, "i") * x

    over = S.jax.vmap(f, axis_name="i")
    return over(S.jnp.arange(3.0)), over(S.jnp.arange(2.0)), over(S.jnp.ones(3)), len(traces)


@same
def test_the_inner_axis_of_a_name_hides_the_outer_one(S):
    def inner(x):
        return S.lax.psum(x, "i"), S.lax.axis_index("i"), S.lax.psum(1, "i")

    def outer(x):
        before = S.lax.psum(1, "i")
        return S.jax.vmap(inner, axis_name="i")(x), before, S.lax.psum(x, "i")

    return S.jax.vmap(outer, axis_name="i")(S.jnp.arange(6.0).reshape(2, 3))


@same
def test_names_that_are_no_strings(S):
    names = [object, "a", frozenset({1})]

    def nest(names, x):
        if not names:
            return [S.lax.psum(x, name) for name in (object, frozenset({1}))]
        return S.jax.vmap(functools.partial(nest, names[1:]), axis_name=names[0])(x)

    return nest(names, S.jnp.arange(24.0).reshape(2, 3, 4))


@same
def test_jaxprs(S):
    def f(x):
        gathered = S.lax.all_gather(x, "i", axis=1)
        scattered = S.lax.psum_scatter(x, "i", tiled=True)
        swapped = S.lax.all_to_all(x, "i", 0, 0)
        return (
            S.lax.psum(x, ("i", "j")), S.lax.pmax(x, "i"), S.lax.pmin(x, "j"), gathered,
            scattered, swapped, S.lax.ppermute(x, "i", RING), S.lax.axis_index("j"),
            S.lax.pbroadcast(x, "i", 2),
        )  # fmt: skip

    closed = S.jax.make_jaxpr(f, axis_env=[("i", 4), ("j", 2)])(S.jnp.ones((4, 2)))
    return [
        (
            eqn.primitive.name,
            sorted((name, value) for name, value in eqn.params.items()),
            [str(var.aval) for var in eqn.outvars],
            # JAX forgets the effect of two of them.
            eqn.primitive.name in ("ppermute", "pbroadcast")
            or sorted(str(effect) for effect in eqn.effects),
        )
        for eqn in closed.jaxpr.eqns
    ]


@same
def test_primitives_are_bound(S):
    def lane(x):
        psum = S.lax.psum_p.bind(x, axes=("i",), axis_index_groups=None)
        swapped = S.lax.all_to_all_p.bind(
            x, axis_name="i", split_axis=0, concat_axis=0, axis_index_groups=None, tiled=False
        )
        return psum, swapped, S.lax.axis_index_p.bind(axis_name="i")

    return S.jax.vmap(lane, axis_name="i")(array(S))


@same(weak=False)
def test_jaxprs_run_where_their_axis_is_mapped(S):
    closed = S.jax.make_jaxpr(
        lambda x: S.lax.psum(x, "i") * S.lax.axis_index("i"), axis_env=[("i", 3)]
    )(1.0)
    run = S.jax.core.eval_jaxpr if S.name == "jax" else ferrax.core.eval_jaxpr
    return S.jax.vmap(lambda x: run(closed.jaxpr, closed.consts, x)[0], axis_name="i")(
        S.jnp.arange(3.0)
    )


@same
def test_solvers_over_lanes(S):
    def lane(b):
        scale = S.lax.psum(b, "i").sum()
        return S.lax.custom_linear_solve(
            lambda x: x * scale + S.lax.psum(x, "i"),
            b,
            lambda _, b: (b - S.lax.psum(b, "i") / (scale + 2)) / scale,
            symmetric=True,
        )

    b = S.jnp.array([[1.0, 2.0], [3.0, 4.0]])
    solve = S.jax.vmap(lane, axis_name="i")
    return solve(b), S.jax.jit(solve)(b), S.jax.grad(lambda b: (solve(b) ** 2).sum())(b)


ERRORS = {
    "unbound": lambda S, x: S.lax.psum(x, "k"),
    "unbound constant": lambda S, x: S.lax.psum(1, "k"),
    "unbound index": lambda S, x: S.lax.axis_index("k"),
    "unbound size": lambda S, x: S.lax.axis_size("k"),
    "unbound of several": lambda S, x: S.lax.pmean(x, ("i", "k")),
    "unbound gather": lambda S, x: S.lax.all_gather(x, "k"),
    "unbound in jit": lambda S, x: S.jax.jit(lambda x: S.lax.pmax(x, "k"))(x),
    "groups": lambda S, x: S.lax.psum(x, "i", axis_index_groups=[[0, 1], [2, 3]]),
    "groups of gather": lambda S, x: S.lax.all_gather(x, "i", axis_index_groups=[[0, 1], [2, 3]]),
    "groups of pmax": lambda S, x: S.lax.pmax(x, "i", axis_index_groups=[[0, 1], [2, 3]]),
    "not a full permutation": lambda S, x: S.lax.ppermute(x, "i", [(0, 1)]),
    "lane out of bounds": lambda S, x: S.lax.ppermute(x, "i", [(0, 1), (1, 2), (2, 3), (3, 4)]),
    "no permutation": lambda S, x: S.lax.pshuffle(x, "i", [0, 0, 1, 2]),
    "axis out of bounds": lambda S, x: S.lax.all_gather(x, "i", axis=7),
    "tiled scalar": lambda S, x: S.lax.all_gather(x[0, 0], "i", tiled=True),
    "split does not fit": lambda S, x: S.lax.all_to_all(x, "i", 1, 0),
    "split does not divide": lambda S, x: S.lax.all_to_all(x, "i", 1, 0, tiled=True),
    "concat out of bounds": lambda S, x: S.lax.all_to_all(x, "i", 0, 5),
    "axes twice": lambda S, x: S.lax.psum(x, ("i", "i")),
    "position out of bounds": lambda S, x: S.lax.psum(x, ("i", 7)),
    "no number": lambda S, x: S.lax.psum("a", "i"),
    "mapped output": lambda S, x: S.jax.vmap(lambda x: x, axis_name="j", out_axes=None)(x),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name):
    def case(S):
        return mapped(S, ERRORS[name])(array(S))

    theirs = attempt(case, JAX)
    assert hasattr(theirs, "error"), theirs
    compare(attempt(case, FERRAX), theirs)


# Where JAX answers with an assertion of its own, or a wrong shape.
OUR_ERRORS = {
    "scatter": (lambda x: lax.psum_scatter(x, "i", scatter_dimension=1), "number of lanes, 4"),
    "scatter tiled": (
        lambda x: lax.psum_scatter(x, "i", scatter_dimension=1, tiled=True), "no multiple of",
    ),
    "source": (lambda x: lax.pbroadcast(x, "i", 4), "no lane 4 among 4"),
    "twice": (lambda x: lax.ppermute(x, "i", [(0, 0), (0, 1), (2, 2), (3, 3)]), "sends once and receives once"),
    "lanes in groups": (
        lambda x: lax.psum(x, "i", axis_index_groups=[[0, 1], [2]]), "each of the 4 lanes once",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OUR_ERRORS)
def test_errors_of_our_own(name):
    f, text = OUR_ERRORS[name]
    with pytest.raises(ValueError, match=text):
        ferrax.vmap(f, axis_name="i")(array(FERRAX))


def test_an_unbound_axis_is_named_with_the_line_and_the_fix():
    with pytest.raises(NameError) as error:
        ferrax.vmap(lambda x: lax.psum(x, "batch"), axis_name="i")(jnp.ones(3))
    text = str(error.value)
    assert "unbound axis name: batch" in text
    assert "vmap(f, axis_name='batch')" in text
    assert "Named axes here: 'i'" in text
    assert "test_collectives.py" in text


def test_a_program_over_an_axis_does_not_run_without_it():
    closed = ferrax.make_jaxpr(lambda x: lax.psum(x, "i"), axis_env=[("i", 3)])(1.0)
    for run in (ferrax.core.eval_jaxpr, ferrax.jit(ferrax.core.eval_jaxpr, static_argnums=0)):
        with pytest.raises(NameError, match="unbound axis name: i"):
            run(closed.jaxpr, [], jnp.ones(()))


def test_names_are_forgotten_where_the_function_fails():
    with pytest.raises(ZeroDivisionError):
        ferrax.vmap(lambda x: operator.truediv(1, 0), axis_name="i")(jnp.ones(3))
    with pytest.raises(NameError):
        lax.axis_size("i")


def test_a_retrace_for_another_axis_is_explained():
    f = ferrax.jit(lambda x: x * lax.axis_size("i"))
    for size in (2, 3):
        ferrax.vmap(f, axis_name="i")(jnp.ones(size))
    assert "named axes" in str(f.stats().last_retrace)


@same
def test_extended_primitives_see_the_name(S):
    core = module(S, "extend.core")
    batching = module(S, "interpreters.batching")
    seen = []
    p = core.Primitive("seen")
    p.def_impl(lambda x: x)
    p.def_abstract_eval(lambda x: x)

    def rule(axis_data, args, dims, **params):
        seen.append((axis_data.name, axis_data.size))
        return p.bind(*args), dims[0]

    batching.fancy_primitive_batchers[p] = rule
    mlir = module(S, "interpreters.mlir")
    mlir.register_lowering(p, mlir.lower_fun(lambda x: x + 0, multiple_results=False))
    S.jax.vmap(lambda x: S.jax.vmap(p.bind, axis_name="j")(x), axis_name="i")(S.jnp.ones((2, 3)))
    return seen


def test_taylor_series_go_through_collectives():
    from ferrax.experimental.jet import jet

    def lane(x):
        y = lax.psum(jnp.sin(x), "i") * lax.axis_index("i") + lax.ppermute(x, "i", RING)
        return y * lax.pmean(x, "i")

    x, t = jnp.arange(4.0), jnp.array([1.0, -1.0, 2.0, 0.5])
    value, (first, second) = ferrax.vmap(
        lambda x, t: jet(lane, (x,), ((t, 0 * t),)), axis_name="i"
    )(x, t)
    whole = ferrax.vmap(lane, axis_name="i")
    slope = lambda x: ferrax.jvp(whole, (x,), (t,))[1]  # noqa: E731
    np.testing.assert_allclose(value, whole(x), rtol=1e-6)
    np.testing.assert_allclose(first, slope(x), rtol=1e-5)
    np.testing.assert_allclose(second, ferrax.jvp(slope, (x,), (t,))[1], rtol=1e-4, atol=1e-5)


@same
def test_checks_over_lanes(S):
    checkify = module(S, "experimental.checkify")

    def lane(x):
        checkify.check(S.lax.psum(x, "i") > 3, "sum of {x}", x=x)
        return S.lax.psum(x, "i")

    error, out = checkify.checkify(S.jax.vmap(lane, axis_name="i"))(S.jnp.arange(3.0))
    return out, "sum of" in error.get()


@same
def test_one_hot_over_a_named_axis(S):
    def lane(x, count):
        return S.jax.nn.one_hot(S.jnp.array([0, 2, 7]), count, axis="i") * x

    def over(count):
        return S.jax.vmap(functools.partial(lane, count=count), axis_name="i")(S.jnp.ones(3))

    return over(3), attempt(lambda S: over(4), S).name
