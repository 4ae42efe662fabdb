"""Reverse mode through loops whose number of steps is a run-time value: against closed forms,
unrolled loops, and JAX's derivatives of the same steps as a scan."""

import functools

import jax as reference
import jax.numpy as rnp
import numpy as np
import pytest
from oracle import compare

import ferrax
import ferrax.numpy as jnp
from ferrax import lax
from ferrax.test_util import check_grads

F = functools.partial(np.asarray, dtype="float32")

# How a loop is asked to keep what its reverse needs.
KEPT = {
    "again": {},
    "bounded": {"max_steps": 40},
    "levels": {"checkpoints": 3},
    "both": {"checkpoints": 2, "max_steps": 33},
    "wide": {"checkpoints": 64, "max_steps": 64},
}


def squared(x, **kept):
    """x squared until it passes 100."""
    return lax.while_loop(lambda y: y < 100, lambda y: y * y, x, **kept)


def newton(a, **kept):
    """The root of `a`; the number of steps depends on it."""
    return lax.while_loop(
        lambda y: jnp.abs(y * y - a) > 1e-4 * a, lambda y: 0.5 * (y + a / y), a, **kept
    )


def recurrent(n, w, x, **kept):
    """`n` steps of a recurrence over a vector, which counts them."""

    def step(carry):
        i, h, total = carry
        h = jnp.tanh(w @ h + x * jnp.cos(jnp.float32(i)))
        return i + 1, h, total + (h * h).sum()

    return lax.while_loop(lambda carry: carry[0] < n, step, (0, x, jnp.float32(0)), **kept)[1:]


def recurrent_reference(n, w, x):
    def step(carry, i):
        h, total = carry
        h = rnp.tanh(w @ h + x * rnp.cos(rnp.float32(i)))
        return (h, total + (h * h).sum()), None

    return reference.lax.scan(step, (x, rnp.float32(0)), rnp.arange(n))[0]


W, X = F(np.random.default_rng(0).normal(size=(4, 4)) * 0.4), F([0.3, -0.7, 0.2, 1.1])


@pytest.mark.parametrize("kept", KEPT.values(), ids=KEPT)
@pytest.mark.parametrize("wrap", [lambda f: f, ferrax.jit], ids=["eager", "jit"])
def test_orders_against_the_closed_form(wrap, kept):
    f = functools.partial(squared, **kept)
    # Three steps: x ** 8.
    derivatives = [8 * 3.0**7, 56 * 3.0**6, 336 * 3.0**5]
    for expected in derivatives:
        f = ferrax.grad(f)
        np.testing.assert_allclose(wrap(f)(3.0), expected, rtol=1e-5)


@pytest.mark.parametrize("kept", KEPT.values(), ids=KEPT)
def test_the_root_that_a_loop_finds(kept):
    a = jnp.array([2.0, 9.0, 0.5, 3.0, 400.0])
    f = ferrax.vmap(ferrax.grad(functools.partial(newton, **kept)))
    np.testing.assert_allclose(f(a), 0.5 / np.sqrt(a), rtol=2e-2)
    np.testing.assert_allclose(
        ferrax.grad(lambda a: ferrax.vmap(functools.partial(newton, **kept))(a).sum())(a), f(a), rtol=1e-5
    )


@pytest.mark.parametrize("kept", KEPT.values(), ids=KEPT)
@pytest.mark.parametrize("n", [0, 1, 2, 7, 31])
def test_as_a_scan(n, kept):
    def ours(w, x, n):
        h, total = recurrent(n, w, x, **kept)
        return total + h.sum()

    def theirs(w, x):
        h, total = recurrent_reference(n, w, x)
        return total + h.sum()

    gradients = ferrax.jit(ferrax.value_and_grad(ours, argnums=(0, 1)))(W, X, n)
    expected = reference.value_and_grad(theirs, argnums=(0, 1))(W, X)
    compare(gradients, expected, weak=False)


@pytest.mark.parametrize("kept", KEPT.values(), ids=KEPT)
def test_second_derivatives_as_those_of_a_scan(kept):
    ours = ferrax.jit(ferrax.hessian(lambda x, n: recurrent(n, W, x, **kept)[1]))(X, 5)
    theirs = reference.hessian(lambda x: recurrent_reference(5, W, x)[1])(X)
    compare(ours, theirs, ulps=64, weak=False)
    twice = ferrax.grad(lambda x: (ferrax.grad(lambda x: recurrent(5, W, x, **kept)[1])(x) ** 2).sum())(X)
    expected = reference.grad(
        lambda x: (reference.grad(lambda x: recurrent_reference(5, W, x)[1])(x) ** 2).sum()
    )(X)
    compare(twice, expected, ulps=64, weak=False)


def test_third_derivatives_in_all_modes():
    def f(x):
        return lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, jnp.sin(c[1]) * x), (0, x))[1]

    check_grads(f, (jnp.float32(0.7),), order=3, modes=["fwd", "rev"], rtol=3e-2, atol=3e-2)


def test_bounds_that_are_traced():
    def power(n, x):
        return lax.fori_loop(0, n, lambda i, y: y * x, 1.0)

    for n in (0, 1, 5):
        np.testing.assert_allclose(ferrax.jit(ferrax.grad(power, argnums=1))(n, 1.5), n * 1.5 ** (n - 1), rtol=1e-5)
    found = ferrax.vmap(ferrax.grad(power, argnums=1))(jnp.arange(5), jnp.full(5, 1.5))
    np.testing.assert_allclose(found, [n * 1.5 ** (n - 1) for n in range(5)], rtol=1e-5)


@pytest.mark.parametrize("kept", KEPT.values(), ids=KEPT)
def test_loops_in_loops(kept):
    """A while in a scan in a while, with a branch."""

    def f(x, n):
        def inner(c, a):
            c = lax.while_loop(lambda t: t < 1 + a, lambda t: t * (1.5 + 0.1 * x), c, **kept)
            return lax.cond(c > 2, lambda: 0.5 + 0.3 * jnp.sin(c), lambda: c * x), c

        def outer(carry):
            i, c = carry
            c, ys = lax.scan(inner, c + 0.1, jnp.arange(3.0))
            return i + 1, c + 0.01 * ys.sum()

        return lax.while_loop(lambda carry: carry[0] < n, outer, (0, x))[1]

    def unrolled(x, n):
        c = x
        for _ in range(n):
            c, total = c + 0.1, 0.0
            for a in range(3):
                while c < 1 + a:
                    c = c * (1.5 + 0.1 * x)
                y = c
                c = 0.5 + 0.3 * rnp.sin(c) if c > 2 else c * x
                total = total + y
            c = c + 0.01 * total
        return c

    x = np.float32(0.6)
    np.testing.assert_allclose(f(x, 3), unrolled(x, 3), rtol=1e-5)
    expected = reference.grad(unrolled)(x, 3)
    np.testing.assert_allclose(ferrax.grad(f)(x, 3), expected, rtol=1e-4)
    np.testing.assert_allclose(ferrax.jit(ferrax.grad(f))(x, 3), expected, rtol=1e-4)
    batched = ferrax.vmap(ferrax.grad(f), in_axes=(0, 0))(F([0.6, 0.6, 0.9]), np.array([3, 0, 2]))
    expected = [reference.grad(unrolled)(x, n) for x, n in ((x, 3), (x, 0), (np.float32(0.9), 2))]
    np.testing.assert_allclose(batched, expected, rtol=1e-4)


def test_a_scan_in_a_while_over_a_batch():
    def f(x):
        def body(y):
            return lax.scan(lambda c, a: (c * a + 0.1, c), y, jnp.array([1.2, 1.3]))[0]
        return lax.while_loop(lambda y: y < 5, body, x)

    xs = F([0.5, 2.0, 6.0])
    expected = []
    for x in xs:
        slope = 1.0
        while x < 5:
            x, slope = (x * 1.2 + 0.1) * 1.3 + 0.1, slope * 1.2 * 1.3
        expected.append(slope)
    np.testing.assert_allclose(ferrax.vmap(ferrax.grad(f))(xs), expected, rtol=1e-5)
    np.testing.assert_allclose(ferrax.grad(lambda xs: ferrax.vmap(f)(xs).sum())(xs), expected, rtol=1e-5)


def test_in_a_loop_that_is_differentiated():
    """The gradient itself is taken in a loop, which is differentiated in turn."""

    def descend(x):
        return lax.fori_loop(0, 3, lambda i, y: y - 0.01 * ferrax.grad(lambda y: squared(y) * 1e-3)(y), x)

    def unrolled(x):
        for _ in range(3):
            x = x - 0.01 * 1e-3 * 8 * x**7
        return x

    np.testing.assert_allclose(ferrax.grad(descend)(2.0), reference.grad(unrolled)(2.0), rtol=1e-5)


def test_carries_of_all_kinds():
    """Integers, booleans, keys and what does not change ride along."""

    def f(x, key):
        def body(c):
            i, key, flag, fixed, y = c
            key = ferrax.random.fold_in(key, i)
            return i + 1, key, ~flag, fixed, y * (fixed["w"] + ferrax.random.uniform(key)) + flag

        c = (0, key, False, {"w": x}, x)
        return lax.while_loop(lambda c: (c[0] < 4) & (c[3]["w"] > 0), body, c)[-1]

    key = ferrax.random.key(3)
    gradient = ferrax.grad(f)(jnp.float32(0.8), key)
    step = 1e-2
    difference = (f(jnp.float32(0.8 + step), key) - f(jnp.float32(0.8 - step), key)) / (2 * step)
    np.testing.assert_allclose(gradient, difference, rtol=1e-3)


def test_many_steps():
    n = 100_000

    def f(x, **kept):
        return lax.while_loop(
            lambda c: c[0] < n, lambda c: (c[0] + 1, c[1] + jnp.sin(c[1]) * 1e-5), (0, x), **kept
        )[1]

    # dx/dt = sin x over one unit of time: tan(x/2) grows e-fold.
    x = 0.5
    after = 2 * np.arctan(np.e * np.tan(x / 2))
    expected = np.sin(after) / np.sin(x)
    for kept in ({}, {"checkpoints": 50, "max_steps": n}, {"checkpoints": 320}, {"max_steps": n}):
        np.testing.assert_allclose(ferrax.jit(ferrax.grad(functools.partial(f, **kept)))(x), expected, rtol=2e-3)


def test_checkpoints_keep_little():
    """The program says what is kept: no array of the jaxpr has room for all steps."""

    def f(x):
        return lax.fori_loop(0, 1000, lambda i, h: jnp.sin(h) * 1.01, x, checkpoints=10).sum()

    text = str(ferrax.make_jaxpr(ferrax.grad(f))(jnp.ones(5)))
    assert "1000,5" not in text
    assert "sweeps" in text
    plain = ferrax.grad(lambda x: lax.fori_loop(0, 1000, lambda i, h: jnp.sin(h) * 1.01, x).sum())
    np.testing.assert_allclose(ferrax.grad(f)(jnp.ones(5)), plain(jnp.ones(5)), rtol=1e-5)


@pytest.mark.parametrize("wrap", [lambda f: f, ferrax.jit], ids=["eager", "jit"])
@pytest.mark.parametrize("kept", [{}, {"checkpoints": 2}], ids=["plain", "levels"])
def test_too_many_steps(wrap, kept):
    def f(n, **kept):
        return lax.while_loop(lambda i: i < n, lambda i: i + 1.0, 0.0, **kept)

    def counted(n, **kept):
        """The bound is on what the result does not depend on."""
        return lax.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, c[1] * 2.0), (0.0, n), **kept)[1]

    for g in (f, counted, ferrax.grad(counted), lambda n, **kept: ferrax.vmap(functools.partial(f, **kept))(jnp.stack([n, n]))):
        loop = wrap(functools.partial(g, max_steps=5, **kept))
        loop(jnp.float32(5.0))
        with pytest.raises(ValueError, match="still goes on after max_steps=5 steps; give a larger max_steps"):
            loop(jnp.float32(5.5))


def test_the_arguments_are_checked():
    loop = functools.partial(lax.while_loop, lambda i: i < 3, lambda i: i + 1, 0)
    for bad, error in ((-1, ValueError), (2.0, TypeError), ("3", TypeError)):
        with pytest.raises(error, match="max_steps must be"):
            loop(max_steps=bad)
    with pytest.raises(ValueError, match="checkpoints must be at least 2, got 1"):
        loop(checkpoints=1)
    with pytest.raises(TypeError, match="checkpoints must be an int"):
        ferrax.jit(lambda n: loop(checkpoints=n))(4)
    with pytest.raises(ValueError, match="makes 7 steps, more than max_steps=6"):
        lax.fori_loop(0, 7, lambda i, x: x, 0, max_steps=6)
    assert lax.fori_loop(0, 7, lambda i, x: x + i, 0, max_steps=7, checkpoints=2) == 21
    with ferrax.disable_jit():
        assert loop(max_steps=3) == 3
        with pytest.raises(ValueError, match="still goes on after max_steps=2 steps"):
            loop(max_steps=2)


def test_callbacks_happen_once():
    seen = []

    def f(x):
        def body(c):
            ferrax.debug.callback(lambda i: seen.append(int(i)), c[0])
            return c[0] + 1, jnp.sin(c[1])

        return lax.while_loop(lambda c: c[0] < 3, body, (0, x))[1]

    gradient = ferrax.jit(ferrax.grad(f))(0.5)
    ferrax.effects_barrier()
    assert sorted(seen) == [0, 1, 2]
    y, expected = 0.5, 1.0
    for _ in range(3):
        y, expected = np.sin(y), expected * np.cos(y)
    np.testing.assert_allclose(gradient, expected, rtol=1e-5)


def test_results_of_callbacks_are_not_asked_for_twice():
    def f(x, **kept):
        def body(c):
            noise = ferrax.experimental.io_callback(lambda: np.float32(2.0), ferrax.ShapeDtypeStruct((), "float32"))
            return c[0] + 1, c[1] * noise

        return lax.while_loop(lambda c: c[0] < 3, body, (0, x), **kept)[1]

    np.testing.assert_allclose(ferrax.grad(functools.partial(f, max_steps=3))(1.5), 8.0)
    with pytest.raises(NotImplementedError, match="effects and must happen once; give the loop max_steps"):
        ferrax.grad(f)(1.5)


def test_rules_of_the_users_in_loops():
    """Rules for the reverse alone, and rules that say something else than the function."""

    @ferrax.custom_vjp
    def twice(x):
        return jnp.sin(x)

    twice.defvjp(lambda x: (jnp.sin(x), x), lambda x, c: (2 * c * jnp.cos(x),))

    @ferrax.custom_jvp
    def thrice(x):
        return jnp.sin(x)

    thrice.defjvp(lambda primals, tangents: (thrice(primals[0]), 3 * tangents[0]))

    def f(rule, x, **kept):
        return lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, rule(c[1])), (0, x), **kept)[1]

    slope = np.cos(0.5) * np.cos(np.sin(0.5)) * np.cos(np.sin(np.sin(0.5)))
    for kept in KEPT.values():
        np.testing.assert_allclose(ferrax.grad(functools.partial(f, twice, **kept))(0.5), 8 * slope, rtol=1e-5)
        np.testing.assert_allclose(ferrax.grad(functools.partial(f, thrice, **kept))(0.5), 27.0, rtol=1e-5)


def rooted(w, a, x, n, **kept):
    """`n` roots; they have no derivative at `x = a`."""
    step = lambda c: (c[0] + 1, jnp.sqrt((c[1] - a) * w) + a)  # noqa: E731
    return lax.while_loop(lambda c: c[0] < n, step, (0, x), **kept)[1]


def rooted_reference(w, a, x, n):
    for _ in range(n):
        x = rnp.sqrt((x - a) * w) + a
    return x


# Lanes that stop early, and lanes without a step where there is no derivative.
LANES = F([1, 2, 3, 0.5]), F([3, 5, 3, 0.5]), np.array([2, 3, 0, 0])


def over_lanes(derivative, w, lanes=LANES):
    return sum(derivative(w, a, x, int(n)) for a, x, n in zip(*lanes))


@pytest.mark.parametrize("kept", KEPT.values(), ids=KEPT)
@pytest.mark.parametrize("wrap", [lambda f: f, ferrax.jit], ids=["eager", "jit"])
def test_idle_lanes_leave_no_nan_in_what_all_share(wrap, kept):
    f = functools.partial(rooted, **kept)
    over = ferrax.vmap(f, in_axes=(None, 0, 0, 0))
    total = lambda w: over(w, *LANES).sum()  # noqa: E731
    w = np.float32(1.3)
    first = functools.partial(over_lanes, reference.grad(rooted_reference))
    second = over_lanes(reference.grad(reference.grad(rooted_reference)), w)
    np.testing.assert_allclose(wrap(ferrax.grad(total))(w), first(w), rtol=1e-5)
    np.testing.assert_allclose(wrap(ferrax.grad(ferrax.grad(total)))(w), second, rtol=1e-4)
    np.testing.assert_allclose(wrap(ferrax.jacfwd(ferrax.grad(total)))(w), second, rtol=1e-4)
    # What belongs to a lane.
    expected = [reference.grad(rooted_reference, argnums=(1, 2))(w, a, x, int(n)) for a, x, n in zip(*LANES)]
    found = wrap(ferrax.grad(lambda a, x: over(w, a, x, LANES[2]).sum(), argnums=(0, 1)))(*LANES[:2])
    np.testing.assert_allclose(np.transpose(found), expected, rtol=1e-5)


@pytest.mark.parametrize("kept", KEPT.values(), ids=KEPT)
def test_idle_lanes_of_batched_gradients_and_batches_of_batches(kept):
    f = functools.partial(rooted, **kept)
    w = np.float32(1.3)
    slopes = ferrax.vmap(ferrax.grad(f, argnums=2), in_axes=(None, 0, 0, 0))
    mixed = reference.grad(reference.grad(rooted_reference, argnums=2))
    found = ferrax.grad(lambda w: slopes(w, *LANES).sum())(w)
    np.testing.assert_allclose(found, over_lanes(mixed, w), rtol=1e-4)
    # A row of which no lane makes a step, for weights that rows share and for their own.
    a, x, n = LANES
    ns = np.stack([n, 0 * n])
    rows = lambda w, n: ferrax.vmap(f, in_axes=(None, 0, 0, 0))(w, a, x, n).sum()  # noqa: E731
    shared = ferrax.grad(lambda w: ferrax.vmap(rows, in_axes=(None, 0))(w, ns).sum())(w)
    expected = over_lanes(reference.grad(rooted_reference), w)
    np.testing.assert_allclose(shared, expected, rtol=1e-5)
    own = ferrax.grad(lambda w: ferrax.vmap(rows)(w, ns).sum())(np.stack([w, w]))
    np.testing.assert_allclose(own, [expected, 0], rtol=1e-5)
    none = ferrax.grad(lambda w: ferrax.vmap(f, in_axes=(None, 0, 0, 0))(w, a[:0], x[:0], n[:0]).sum())(w)
    assert none == 0


def test_idle_lanes_have_the_indices_of_their_last_step():
    """Integers of a lane that is done are where the body has no derivative."""

    def factorial(w, n):
        return lax.while_loop(lambda c: c[0] > 0, lambda c: (c[0] - 1, c[1] * w / c[0]), (n, 1.0))[1]

    found = ferrax.grad(lambda w: ferrax.vmap(factorial, in_axes=(None, 0))(w, jnp.array([2, 3, 0, 1])).sum())(1.3)
    np.testing.assert_allclose(found, 1.3 + 1.3**2 / 2 + 1, rtol=1e-5)


def test_idle_lanes_cost_nothing_without_derivatives():
    """Nothing of what derivatives need is in the compiled loop."""
    loop = ferrax.jit(ferrax.vmap(rooted, in_axes=(None, 0, 0, 0)))
    text = loop.lower(1.3, *LANES).compile().as_text()
    assert "while" in text and "stand_in" not in text and "argmax" not in text and "dynamic_slice" not in text


def test_idle_lanes_leave_no_nan():
    def f(x, n):
        return lax.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, jnp.sqrt(c[1]) - 1), (0, x))[1]

    found = ferrax.grad(lambda x: ferrax.vmap(f)(x, jnp.array([1, 2])).sum())(jnp.array([1.0, 16.0]))
    np.testing.assert_allclose(found, [0.5, 0.125 * 0.5 / np.sqrt(3)], rtol=1e-5)
