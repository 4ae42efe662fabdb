"""Functions are traced no more often than in JAX: bodies of loops and branches, checkpointed calls,
functions that are only looked at. And as often as they must be."""

import functools
import gc
import weakref

import jax
import numpy as np
import pytest

import ferrax
import ferrax.numpy as jnp


class Counted:
    """What a case traces, and how often."""

    def __init__(self):
        self.times = 0

    def function(self, fun):
        @functools.wraps(fun)
        def counted(*args, **kwargs):
            self.times += 1
            return fun(*args, **kwargs)

        return counted


def scan(S, n, counted):
    body = counted(lambda x, y: (x + y, y))
    for _ in range(2):
        S.lax.scan(body, 0.0, n.arange(3.0))
    S.jit(lambda x: S.lax.scan(body, x, n.arange(3.0)))(0.0)
    S.grad(lambda x: S.lax.scan(body, x, n.arange(3.0))[0])(1.0)
    S.lax.scan(body, 0.0, n.arange(4.0))
    S.lax.scan(body, n.float32(0.0), n.arange(3.0))


def while_loop(S, n, counted):
    go_on, step = counted(lambda x: x < 3), counted(lambda x: x + 1)
    for init in (0.0, 0.0, 1.0, n.zeros(()), 0):
        S.lax.while_loop(go_on, step, init)
    S.vmap(lambda x: S.lax.while_loop(go_on, step, x))(n.ones(2))
    S.jvp(lambda x: S.lax.while_loop(go_on, step, x), (0.0,), (1.0,))


def fori_loop(S, n, counted):
    body = counted(lambda i, x: x + i)
    for stop in (3, 3, 5):
        S.lax.fori_loop(0, stop, body, 0.0)
    for stop in (n.array(3), n.array(4)):
        S.lax.fori_loop(0, stop, body, 0.0)


def cond(S, n, counted):
    branch = counted(lambda x: x * 2)
    for pred in (True, False, n.array(True)):
        S.lax.cond(pred, branch, branch, 1.0)
    S.grad(lambda x: S.lax.cond(x > 0, branch, branch, x))(1.0)
    S.jit(lambda p, x: S.lax.cond(p, branch, branch, x))(True, 1.0)


def switch(S, n, counted):
    branch, other = counted(lambda x: x * 2), counted(lambda x: x * 3)
    for index in range(3):
        S.lax.switch(index, [branch, branch, other], 1.0)
    S.lax.switch(n.array(1), [other, branch], 1.0)


def checkpoint(S, n, counted):
    function = counted(lambda x: n.sin(x))
    for _ in range(3):
        S.checkpoint(function)(1.0), S.remat(function)(1.0), S.grad(S.checkpoint(function))(1.0)
    S.vmap(S.checkpoint(function))(n.ones(2))
    S.jit(S.grad(lambda x: S.checkpoint(function)(S.checkpoint(function)(x))))(1.0)


def looked_at(S, n, counted):
    function = counted(lambda x: {"sum": n.sum(x)})
    for _ in range(2):
        S.make_jaxpr(function)(n.ones(2)), S.eval_shape(function, n.ones(3))


def reductions(S, n, counted):
    add = counted(lambda x, y: x + y * 1)
    for _ in range(2):
        S.lax.reduce(n.arange(8.0), 0.0, add, (0,))
        S.lax.reduce_window(n.arange(8.0), 0.0, add, (2,), (1,), "VALID")


def settings(S, n, counted):
    body = counted(lambda x, y: (x + y, y))
    for value in (False, True, False):
        with S.numpy_rank_promotion("raise" if value else "allow"):
            S.lax.scan(body, 0.0, n.arange(3.0))
    S.clear_caches()
    S.lax.scan(body, 0.0, n.arange(3.0))


def closures(S, n, counted):
    for scale in (1.0, 2.0):
        body = counted(lambda x, y: (x + scale * y, y))  # noqa: B023
        for x in (scale, scale):
            S.lax.scan(body, x, n.arange(3.0))


@pytest.mark.parametrize(
    "case",
    [scan, while_loop, fori_loop, cond, switch, checkpoint, looked_at, reductions, settings, closures],
)
def test_functions_are_traced_as_often_as_in_jax(case):
    times = []
    for S, n in ((jax, jax.numpy), (ferrax, jnp)):
        counter = Counted()
        case(S, n, counter.function)
        times.append(counter.times)
    assert 0 < times[1] <= times[0]


def test_looking_for_leaks_traces_each_time():
    """A trace has to end to be looked at; JAX looks at the first one only."""
    counter = Counted()
    body = counter.function(lambda x, y: (x + y, y))
    with ferrax.check_tracer_leaks(True):
        for _ in range(2):
            ferrax.lax.scan(body, 0.0, jnp.arange(3.0))
    assert counter.times == 2


def test_values_that_are_traced_are_captured_each_time():
    scale = []
    body = lambda x, y: (x * scale[-1], y)  # noqa: E731
    for S, n in ((jax, jax.numpy), (ferrax, jnp)):

        def product(x, known):
            scale.append(known)
            return S.lax.scan(lambda c, y: body(c, y), x, n.arange(2.0))[0]  # noqa: B023

        assert [float(S.jit(product)(2.0, known)) for known in (3.0, 5.0)] == [18, 50]

    def again(x, known):
        scale.append(known)
        return ferrax.lax.scan(body, x, jnp.arange(2.0))[0]

    assert [float(ferrax.jit(again)(2.0, known)) for known in (3.0, 5.0)] == [18, 50]
    assert [float(ferrax.grad(again, 1)(2.0, known)) for known in (3.0, 5.0)] == [12, 20]
    assert [float(ferrax.checkpoint(again)(2.0, known)) for known in (3.0, 5.0)] == [18, 50]


def test_mutable_arrays_are_what_they_are():
    for S, n in ((jax, jax.numpy), (ferrax, jnp)):
        ref = S.new_ref(n.float32(0))

        def add(x, y, S=S, ref=ref):
            ref[...] += y
            return x + ref[...], y

        totals = [float(S.lax.scan(add, 0.0, n.ones(2))[0]) for _ in range(2)]
        assert totals == [3, 7] and float(ref[...]) == 4
        for value in (5.0, 6.0):
            ref[...] = value
            assert S.lax.cond(True, lambda ref=ref: ref[...], lambda: np.float32(0)) == value


def test_axes_and_widths_are_part_of_what_is_known():
    body = lambda x, y: (x + ferrax.lax.psum(1, "i"), y)  # noqa: E731

    def total(x):
        return ferrax.lax.scan(body, x, jnp.arange(2))[0]

    assert [ferrax.vmap(total, axis_name="i")(jnp.zeros(size, int))[0] for size in (3, 4)] == [6, 8]
    step = lambda x, y: (x + jnp.arange(1).sum(), y)  # noqa: E731
    assert ferrax.lax.scan(step, 0, np.arange(2))[0].dtype == np.int32
    with ferrax.enable_x64():
        assert ferrax.lax.scan(step, 0, np.arange(2))[0].dtype == np.int64


def test_results_go_with_their_functions():
    array = jnp.ones(3)
    seen = []
    for _ in range(2):
        body = lambda x, y: (x + array.sum() * y, y)  # noqa: E731
        ferrax.lax.scan(body, 0.0, jnp.ones(2))
        seen.append(weakref.ref(body))
    del body
    gc.collect()
    assert [function() for function in seen] == [None, None]


def test_functions_that_cannot_be_looked_up():
    class Step:
        __slots__ = ("scale",)
        __hash__ = None

        def __init__(self, scale):
            self.scale = scale

        def __eq__(self, other):
            raise AssertionError("compared")

        def __call__(self, x, y):
            return x + self.scale * y, y

    step = Step(1.0)
    for scale in (1.0, 2.0):
        step.scale = scale
        assert ferrax.lax.scan(step, 0.0, jnp.ones(2))[0] == 2 * scale


def test_constants_of_a_jaxpr_are_its_own():
    array = jnp.arange(3.0)
    function = lambda x: x + array  # noqa: E731
    first = ferrax.make_jaxpr(function)(1.0)
    first.consts.clear()
    second = ferrax.make_jaxpr(function)(1.0)
    assert len(second.consts) == 1 and str(first) == str(second)
