"""Reverse mode of loops with ``max_steps`` and ``checkpoints``: as often as binomial checkpointing runs
the steps, and the derivatives of the same steps as a scan beside JAX."""

import functools
import math

import jax as reference
import jax.numpy as rnp
import numpy as np
import pytest
from oracle import compare

import ferrax
import ferrax.numpy as jnp
from ferrax import lax

F = functools.partial(np.asarray, dtype="float32")
W, X = F(np.random.default_rng(1).normal(size=(3, 3)) * 0.5), F([0.3, -0.7, 1.1])

# Steps made, steps at most, values kept.
CASES = [
    (0, 0, 1), (0, 5, 2), (1, 1, 1), (1, 6, 3), (2, 2, 1), (2, 2, 2), (3, 3, 2), (7, 7, 1), (7, 9, 1), (20, 20, 3),
    (20, 21, 3), (21, 21, 3), (20, 90, 4), (12, 12, 11), (12, 12, 12), (12, 12, 64),
]  # fmt: skip


def recurrent(w, x, n, **kept):
    def step(carry):
        i, h, total = carry
        h = jnp.tanh(w @ h + x * jnp.cos(jnp.float32(i)))
        return i + 1, h, total + (h * h).sum()

    return lax.while_loop(lambda carry: carry[0] < n, step, (0, x, jnp.float32(0)), **kept)[2]


def recurrent_reference(w, x, n):
    def step(carry, i):
        h, total = carry
        h = rnp.tanh(w @ h + x * rnp.cos(rnp.float32(i)))
        return (h, total + (h * h).sum()), None

    return reference.lax.scan(step, (x, rnp.float32(0)), rnp.arange(n))[0][1]


@pytest.fixture
def counted():
    """A loop of sines, and a list that gets longer with each call of its body."""
    calls = []

    def one(i):
        calls.append(int(i))
        return np.float32(1)

    def loop(x, n, **kept):
        def body(carry):
            scale = ferrax.pure_callback(one, ferrax.ShapeDtypeStruct((), np.float32), carry[0])
            return carry[0] + 1, jnp.sin(carry[1]) * scale

        return lax.while_loop(lambda carry: carry[0] < n, body, (0, x), **kept)[1]

    return loop, calls


def times(steps, checkpoints):
    """How often each step is run at most, before the run whose records are used."""
    return next(k for k in range(steps + 1) if math.comb(checkpoints + k, k) >= steps)


def fewest(steps, checkpoints):
    """All runs: a pass that keeps nothing, the schedule, and one run of each step with its records."""
    k = times(steps, checkpoints)
    return (k + 2) * steps - math.comb(checkpoints + k, checkpoints + 1)


@pytest.mark.parametrize(
    ("steps", "checkpoints"),
    [(1, 1), (2, 1), (6, 1), (10, 2), (11, 2), (9, 3), (20, 3), (21, 3), (60, 10), (9, 8), (9, 9), (5, 50), (300, 5)],
)
def test_the_fewest_runs(counted, steps, checkpoints):
    loop, calls = counted
    ferrax.grad(functools.partial(loop, n=steps, max_steps=steps, checkpoints=checkpoints))(0.5)
    assert len(calls) == fewest(steps, checkpoints)


@pytest.mark.parametrize(
    ("steps", "most", "checkpoints"),
    [(1, 9, 1), (5, 9, 1), (20, 21, 3), (20, 500, 3), (150, 200, 3), (60, 10**6, 10), (99, 100, 10), (5, 10**9, 20)],
)
def test_fewer_steps_than_there_may_be(counted, steps, most, checkpoints):
    """No step is run more often than for the most steps, and all no more than once more than planned for
    their number."""
    loop, calls = counted
    ferrax.grad(functools.partial(loop, n=steps, max_steps=most, checkpoints=checkpoints))(0.5)
    assert len(calls) <= fewest(steps, checkpoints) + steps
    assert max(map(calls.count, range(steps))) <= times(most, checkpoints) + 2


def test_levels_run_each_step_three_times(counted):
    loop, calls = counted
    ferrax.grad(functools.partial(loop, n=20, checkpoints=4))(0.5)
    assert len(calls) == 60


def test_a_pure_callback_is_asked_again(counted):
    """It is a function; operations with effects happen once."""
    loop, calls = counted
    gradient = ferrax.grad(functools.partial(loop, n=3))(0.5)
    np.testing.assert_allclose(gradient, reference.grad(lambda x: rnp.sin(rnp.sin(rnp.sin(x))))(0.5), rtol=1e-6)
    assert sorted(calls) == [0, 0, 1, 1, 2, 2]


def test_loops_in_loops_run_once_more_for_each_loop_around(counted):
    """Without a bound only a loop's inputs are kept, so an inner loop is run again by the outer one."""
    loop, calls = counted

    def around(f, x):
        return lax.while_loop(lambda c: c[0] < 2, lambda c: (c[0] + 1, f(c[1])), (0, x))[1]

    for depth in (1, 2, 3):
        f = functools.partial(loop, n=2)
        for _ in range(depth - 1):
            f = functools.partial(around, f)
        calls.clear()
        ferrax.grad(f)(0.5)
        assert len(calls) == (depth + 1) * 2**depth


@pytest.mark.parametrize(("steps", "most", "checkpoints"), CASES)
def test_gradients_are_those_of_a_scan(steps, most, checkpoints):
    f = functools.partial(recurrent, max_steps=most, checkpoints=checkpoints)
    found = ferrax.jit(ferrax.value_and_grad(f, argnums=(0, 1)))(W, X, steps)
    expected = reference.value_and_grad(recurrent_reference, argnums=(0, 1))(W, X, steps)
    compare(found, expected, weak=False, cancels=1.0)  # gradients of single steps, added up


@pytest.mark.parametrize(("steps", "most", "checkpoints"), [(0, 3, 2), (1, 1, 1), (5, 5, 1), (9, 9, 3), (6, 9, 2), (4, 4, 8)])
def test_second_derivatives_are_those_of_a_scan(steps, most, checkpoints):
    f = functools.partial(recurrent, W, n=steps, max_steps=most, checkpoints=checkpoints)
    g = functools.partial(recurrent_reference, W, n=steps)
    compare(ferrax.jit(ferrax.hessian(f))(X), reference.hessian(g)(X), ulps=64, weak=False)
    twice = lambda grad, f: grad(lambda x: (grad(f)(x) ** 2).sum())  # noqa: E731
    expected = twice(reference.grad, g)(X)
    # Sums of derivatives of both signs.
    compare(twice(ferrax.grad, f)(X), expected, ulps=64, weak=False, cancels=1.0)
    compare(ferrax.jit(twice(ferrax.grad, f))(X), expected, ulps=64, weak=False, cancels=1.0)


def test_third_derivatives():
    def power(x):
        step = lambda c: (c[0] + 1, c[1] * x)  # noqa: E731
        return lax.while_loop(lambda c: c[0] < 5, step, (0, x), max_steps=5, checkpoints=2)[1]

    third = ferrax.grad(ferrax.grad(ferrax.grad(power)))
    np.testing.assert_allclose(third(1.2), 6 * 5 * 4 * 1.2**3, rtol=1e-5)


KEPT = {"max_steps": 9, "checkpoints": 2}


def test_lanes_of_a_batch():
    xs, ns = F([X, 2 * X, -X, X / 2]), np.array([3, 0, 9, 5])
    f = functools.partial(recurrent, **KEPT)
    expected = [reference.grad(recurrent_reference, argnums=1)(W, x, int(n)) for x, n in zip(xs, ns)]
    found = ferrax.vmap(ferrax.grad(f, argnums=1), in_axes=(None, 0, 0))(W, xs, ns)
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)
    total = lambda xs: ferrax.vmap(f, in_axes=(None, 0, 0))(W, xs, ns).sum()  # noqa: E731
    np.testing.assert_allclose(ferrax.jit(ferrax.grad(total))(xs), expected, rtol=2e-5, atol=2e-5)


def test_in_a_scan_a_branch_and_a_checkpoint():
    def ours(x):
        loop = ferrax.checkpoint(functools.partial(recurrent, W, **KEPT))

        def body(c, n):
            return lax.cond(n > 1, lambda: c + 0.1 * loop(c, n), lambda: c * 2), c.sum()

        c, sums = lax.scan(body, x, jnp.array([2, 1, 9, 0, 4]))
        return (c * c).sum() + sums.sum()

    def theirs(x):
        total = 0.0
        for n in (2, 1, 9, 0, 4):
            total += x.sum()
            x = x + 0.1 * recurrent_reference(W, x, n) if n > 1 else x * 2
        return (x * x).sum() + total

    expected = reference.grad(theirs)(X)
    np.testing.assert_allclose(ferrax.grad(ours)(X), expected, rtol=5e-5)
    np.testing.assert_allclose(ferrax.jit(ferrax.grad(ours))(X), expected, rtol=5e-5)


@pytest.mark.parametrize("checkpoints", [1, 4, 30])
def test_bounds_that_are_known_while_tracing(checkpoints):
    """The number of steps is the bound."""
    f = lambda x: lax.fori_loop(0, 30, lambda i, h: jnp.sin(h) * 1.01, x, checkpoints=checkpoints).sum()  # noqa: E731
    text = str(ferrax.make_jaxpr(ferrax.grad(f))(jnp.ones(5)))
    assert f"checkpoints={checkpoints}" in text and "max_steps=30" in text and "30,5" not in text
    expected = reference.grad(lambda x: reference.lax.fori_loop(0, 30, lambda i, h: rnp.sin(h) * 1.01, x).sum())
    np.testing.assert_allclose(ferrax.grad(f)(jnp.ones(5)), expected(rnp.ones(5)), rtol=1e-5)


def test_one_value_is_enough_with_a_bound_only():
    loop = functools.partial(lax.while_loop, lambda i: i < 3, lambda i: i + 1, 0)
    assert loop(max_steps=3, checkpoints=1) == 3
    for kept in ({"checkpoints": 1}, {"checkpoints": 0, "max_steps": 3}):
        with pytest.raises(ValueError, match=f"checkpoints must be at least {2 - len(kept) // 2}, got"):
            loop(**kept)


def test_effects_happen_once_and_results_of_them_are_not_asked_for_again():
    seen = []

    def body(c):
        ferrax.debug.callback(lambda i: seen.append(int(i)), c[0])
        return c[0] + 1, jnp.sin(c[1])

    f = lambda x: lax.while_loop(lambda c: c[0] < 6, body, (0, x), max_steps=6, checkpoints=2)[1]  # noqa: E731
    ferrax.grad(f)(0.5)
    ferrax.effects_barrier()
    assert sorted(seen) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("kept", [{}, {"checkpoints": 2}, KEPT], ids=["again", "levels", "binomial"])
@pytest.mark.parametrize("wrap", [lambda f: f, ferrax.jit], ids=["eager", "jit"])
def test_the_error_for_results_of_effects_names_their_line(wrap, kept):
    def f(x):
        def body(c):
            noise = ferrax.experimental.io_callback(lambda: F(2), ferrax.ShapeDtypeStruct((), "float32"))
            return c[0] + 1, c[1] * noise

        return lax.while_loop(lambda c: c[0] < 3, body, (0, x), **kept)[1]

    line = f.__code__.co_firstlineno + 2
    with pytest.raises(
        NotImplementedError,
        match=rf"(?s)without max_steps, or with checkpoints, .*result of io_callback, .*give the loop max_steps and no "
        rf"checkpoints.*test_binomial_checkpoints.py:{line} \(body\)",
    ):
        wrap(ferrax.grad(f))(1.5)
