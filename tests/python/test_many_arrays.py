"""Calls, derivatives, loops and scopes of many thousands: what they cost is in proportion to their number. The numbers
are so large that anything that compares all with all does not end within the suite."""

import numpy as np
import pytest

import ferrax
import ferrax.numpy as jnp
from ferrax import lax

MANY = 30_000


def arrays(count=MANY):
    return [jnp.full(4, number, jnp.float32) for number in range(count)]


def same(results, expected):
    assert len(results) == len(expected)
    for number in range(0, len(results), 997):
        np.testing.assert_array_equal(np.asarray(results[number]), np.full(4, expected[number], np.float32))


def test_scopes():
    def function(x):
        for number in range(200_000):
            with ferrax.named_scope(f"step {number}"):
                x = lax.add(x, x)
        return x

    equations = ferrax.make_jaxpr(function)(1.0).eqns
    assert len(equations) == 200_000
    for number in (0, 1, 77_777, 199_999):
        assert str(equations[number].source_info.name_stack) == f"step {number}"


def test_donated_arguments():
    step = ferrax.jit(lambda xs: [x + 1 for x in xs], donate_argnums=0)
    xs = arrays()
    for _ in range(20):
        before, xs = xs, step(xs)
        assert all(x.is_deleted() for x in before[::997])
    same(xs, np.arange(MANY) + 20)


def test_donated_positions():
    step = ferrax.jit(lambda *xs: [x + 1 for x in xs], donate_argnums=tuple(range(0, MANY, 2)))
    xs = arrays()
    same(step(*xs), np.arange(MANY) + 1)
    assert [x.is_deleted() for x in xs[:100]] == [number % 2 == 0 for number in range(100)]


def test_an_array_that_is_donated_twice_among_many():
    xs = arrays()
    with pytest.raises(RuntimeError, match="donated and used as another argument"):
        ferrax.jit(lambda xs, y: [x + y for x in xs], donate_argnums=0)(xs, xs[MANY // 2])


def test_donated_shapes():
    # Each has a place in one output only, in the order opposite to that of the arguments.
    xs = [jnp.full(number, number, jnp.float32) for number in range(1, 2000)]
    step = ferrax.jit(lambda xs: [x + 1 for x in reversed(xs)], donate_argnums=0)
    results = step(xs)
    assert all(x.is_deleted() for x in xs)
    assert [float(x[0]) for x in results] == list(range(2000, 1, -1))


def test_results_that_are_there_again():
    results = ferrax.jit(lambda xs: [x * 2 for x in xs] * 2)(arrays())
    same(results, np.tile(np.arange(MANY) * 2, 2))


def test_running_sums():
    count = 4000

    def sums(xs):
        total, results = xs[0], []
        for x in xs[1:]:
            total = total + x
            results.append(total)
        return results

    same(ferrax.jit(sums)(arrays(count)), np.cumsum(np.arange(count))[1:])


@pytest.mark.parametrize("rotate", [False, True])
def test_carries(rotate):
    count, steps = 6000, 30

    def body(carry, _):
        if rotate:
            return [*carry[1:], carry[0] + 1], None
        return [x + 1 for x in carry], None

    results, _ = ferrax.jit(lambda xs: lax.scan(body, xs, length=steps))(arrays(count))
    expected = np.arange(count) + (np.arange(count) < steps if rotate else steps)
    same(results, np.roll(expected, -steps) if rotate else expected)


def test_branches():
    function = ferrax.jit(lambda i, xs: lax.cond(i, lambda xs: [x + 1 for x in xs], lambda xs: xs[::-1], xs))
    count = 6000
    same(function(True, arrays(count)), np.arange(count) + 1)
    same(function(False, arrays(count)), np.arange(count)[::-1])


def test_gradients():
    count = 4000
    gradients = ferrax.jit(ferrax.grad(lambda xs: sum((x * x).sum() for x in xs)))(arrays(count))
    same(gradients, np.arange(count) * 2)


def test_nested_calls_loops_and_branches():
    def nest(depth, x):
        if depth == 0:
            return x + 1
        inner = ferrax.jit(lambda x: nest(depth - 1, x))
        match depth % 3:
            case 0:
                return inner(x) + 1
            case 1:
                return lax.scan(lambda c, _: (inner(c), None), x, length=1)[0]
            case _:
                return lax.cond(x.sum() > -1, inner, lambda x: x, x)

    assert float(ferrax.jit(lambda x: nest(45, x))(jnp.zeros(2))[0]) == 16.0
