"""Branches over a batch of predicates: lanes that run their own branch alone, and lanes that
select; against JAX where it ends, else against the lanes one by one."""

import functools

import numpy as np
import pytest
from oracle import FERRAX, JAX, attempt, compare, same

import ferrax
import ferrax.numpy as jnp
from ferrax import lax

RNG = np.random.default_rng(1)
P = np.array([True, False, True, True, False])
SMALL = RNG.normal(size=(5, 3)).astype("float32")
LARGE = RNG.normal(size=(5, 4000)).astype("float32")
W = (RNG.normal(size=(60, 60)) * 0.1).astype("float32")


def primitives(f, *args):
    """The names of all primitives, inside of calls too."""

    def names(jaxpr):
        for equation in jaxpr.eqns:
            yield equation.primitive.name
            for value in equation.params.values():
                if hasattr(value, "eqns") or hasattr(value, "jaxpr"):
                    yield from names(getattr(value, "jaxpr", value))

    return set(names(ferrax.make_jaxpr(f)(*args).jaxpr))


def choose(S, p, x):
    return S.lax.cond(p, lambda x: S.jnp.sin(x) * x, lambda x: S.jnp.exp(x) + S.jnp.tanh(x), x)


def pick(S, i, x):
    return S.lax.switch(
        i, [lambda x: S.jnp.sin(S.jnp.cos(x)), lambda x: x, lambda x: S.jnp.exp(S.jnp.tanh(x)), lambda x: 0 * x], x
    )


def test_the_form_is_chosen_by_cost():
    f = ferrax.vmap(functools.partial(choose, FERRAX))
    assert "select_n" in primitives(f, P, SMALL)
    assert "scan" not in primitives(f, P, SMALL)
    assert "scan" in primitives(f, P, LARGE)
    # One predicate for all keeps the branch.
    f = ferrax.vmap(functools.partial(choose, FERRAX), in_axes=(None, 0))
    assert "cond" in primitives(f, True, LARGE)
    assert not {"scan", "select_n"} & primitives(f, True, LARGE)


@pytest.mark.parametrize("x", [SMALL, LARGE], ids=["small", "large"])
@same(weak=False, cancels=4.0)  # exp and tanh in second derivatives of squares
def test_cond(S, x):
    f = functools.partial(choose, S)
    both = S.jax.vmap(f)
    gradient = S.jax.grad(lambda p, x: f(p, x).sum(), argnums=1)
    return (
        both(P, x),
        S.jax.jit(both)(P, x),
        S.jax.vmap(f, in_axes=(0, None), out_axes=1)(P, x[0]),
        S.jax.vmap(gradient)(P, x),
        S.jax.grad(lambda x: (both(P, x) ** 2).sum())(x),
        S.jax.jvp(functools.partial(both, P), (x,), (x,))[1],
        S.jax.vmap(both, in_axes=(None, 0))(P, S.jnp.stack([x, -x])),
        S.jax.vmap(both)(S.jnp.stack([P, ~P]), S.jnp.stack([x, -x])),
        S.jax.jvp(S.jax.grad(lambda x: (both(P, x) ** 2).sum()), (x,), (x,))[1],
    )


@pytest.mark.parametrize("x", [SMALL, LARGE], ids=["small", "large"])
def test_switch(x):
    def case(S):
        i = S.jnp.array([0, 3, 2, -1, 9])
        f = S.jax.vmap(functools.partial(pick, S))
        return f(i, x), S.jax.jit(f)(i, x), S.jax.grad(lambda x: (f(i, x) ** 2).sum())(x)

    # In slopes of squares cosines near 0, and in the third lane 1 - tanh².
    slopes = np.zeros(x.shape)
    slopes[[0, 3]], slopes[2] = 0.5, 2 * np.exp(2 * np.tanh(x[2]))
    for got, wanted, cancels in zip(attempt(case, FERRAX), attempt(case, JAX), (0.0, 0.0, slopes), strict=True):
        compare(got, wanted, weak=False, cancels=cancels)


@same(ulps=64, weak=False, cancels=0.5)  # sums of 60 products with numbers of 0.1
def test_captured_and_shared_operands(S):
    """What all lanes share is not copied for each, and its gradient is that of all lanes."""
    x = S.jnp.asarray(LARGE[:, :60])

    def f(w, x):
        def lane(p, x):
            def deep(x):
                return S.jnp.tanh(w @ S.jnp.tanh(w @ S.jnp.tanh(w @ x)))
            return S.lax.cond(p, deep, lambda x: x * w[0], x)

        return S.jax.vmap(lane)(P, x).sum()

    return f(S.jnp.asarray(W), x), S.jax.grad(f, argnums=(0, 1))(S.jnp.asarray(W), x)


def test_a_branch_that_ends_for_its_own_lanes_alone():
    """JAX's form does not end here: half of a negative number is not above 1 less often."""

    def lane(x):
        return lax.cond(
            x > 0,
            lambda x: lax.while_loop(lambda y: y < 100, lambda y: y * 3, x),
            lambda x: -x,
            x,
        )

    x = jnp.array([2.0, -1.0, 50.0, 0.0, 200.0])
    expected = [162.0, 1.0, 150.0, 0.0, 200.0]
    slopes = [81.0, -1.0, 3.0, -1.0, 1.0]
    np.testing.assert_allclose(ferrax.vmap(lane)(x), expected)
    np.testing.assert_allclose(ferrax.jit(ferrax.vmap(lane))(x), expected)
    np.testing.assert_allclose(ferrax.vmap(ferrax.grad(lane))(x), slopes)
    np.testing.assert_allclose(ferrax.grad(lambda x: ferrax.vmap(lane)(x).sum())(x), slopes)
    np.testing.assert_allclose(ferrax.vmap(ferrax.vmap(lane))(jnp.stack([x, x])), [expected, expected])


def test_a_bound_is_for_the_lanes_that_take_the_branch():
    def lane(p, n):
        def count(n):
            return lax.while_loop(lambda i: i < n, lambda i: i + 1, 0, max_steps=4)
        return lax.cond(p, count, lambda n: n, n)

    np.testing.assert_array_equal(ferrax.vmap(lane)(jnp.array([True, False]), jnp.array([3, 9])), [3, 9])
    with pytest.raises(ValueError, match="max_steps=4"):
        ferrax.vmap(lane)(jnp.array([True, False]), jnp.array([5, 9]))


@pytest.mark.parametrize("size", [2, 5000])
def test_lanes_that_do_not_take_a_branch_get_no_nan(size):
    def lane(x):
        def root(x):
            return jnp.sqrt(jnp.sin(jnp.cos(x * 0) * x / x[0]) * 0 + x)
        return lax.cond(x[0] > 0, root, lambda x: 0.5 * x, x).sum()

    x = np.repeat(np.array([[-1.0], [4.0], [0.0]], "float32"), size, axis=1)
    expected = np.repeat([[0.5], [0.25], [0.5]], size, axis=1)
    np.testing.assert_allclose(ferrax.vmap(ferrax.grad(lane))(x)[:, 1:], expected[:, 1:], rtol=1e-6)
    found = ferrax.grad(lambda x: ferrax.vmap(lane)(x).sum())(x)
    np.testing.assert_allclose(found[:, 1:], expected[:, 1:], rtol=1e-6)


@same
def test_weak_types_are_those_of_the_first_branch(S):
    strong, p = S.jnp.float32(2), S.jnp.array(True)
    return (
        S.lax.cond(p, lambda: 1.0, lambda: strong),
        S.lax.cond(p, lambda: strong, lambda: 1.0),
        S.lax.cond(p, lambda: 1.0, lambda: 3.0),
        S.lax.cond(p, lambda x: x, lambda x: 2.0, strong),
        S.lax.switch(1, [lambda: 1.0, lambda: 2.0, lambda: strong]),
        S.lax.switch(1, [lambda: strong, lambda: 2.0, lambda: 1.0]),
        S.jax.jit(lambda p: S.lax.cond(p, lambda: strong, lambda: 1.0))(p),
    )
