"""Gradients of loops that read a part of an array in each step: JAX's numbers, and steps that do not touch the rest."""

import jax
import numpy as np
import pytest
from closeness import norm
from oracle import compare

import ferrax as fx

ROWS, WIDTH = 8, 3


def lookups(m, xs, ids):
    def step(c, i):
        return m.numpy.tanh(c + xs[i]), None

    return m.lax.scan(step, m.numpy.zeros(WIDTH), ids)[0].sum()


def rows_of_many(m, xs, ids):
    """Several rows a step, some of them the same."""
    def step(c, i):
        return m.numpy.sin(c) + xs[m.numpy.stack([i, (i + 1) % ROWS, i])].sum(0), None

    return m.lax.scan(step, m.numpy.zeros(WIDTH), ids)[0].sum()


def both_ways(m, xs, ids):
    """As a whole, too."""
    def step(c, i):
        return m.numpy.tanh(c * xs[i] + xs.mean(0) + xs[0]), xs[2, :2]

    c, ys = m.lax.scan(step, m.numpy.ones(WIDTH), ids)
    return c.sum() + (ys**2).sum()


def in_branches(m, xs, ids):
    def step(c, i):
        branches = [lambda c: c * xs[i], lambda c: c + m.numpy.sin(xs[i]), lambda c: c]
        return m.lax.switch(i % 3, branches, c), None

    return m.lax.scan(step, m.numpy.ones(WIDTH), ids)[0].sum()


def in_an_inner_loop(m, xs, ids):
    def step(c, i):
        inner = lambda j, c: c * 0.9 + m.numpy.cos(xs[(i + j) % ROWS])  # noqa: E731
        return m.lax.fori_loop(0, 3, inner, c), None

    return m.lax.scan(step, m.numpy.ones(WIDTH), ids)[0].sum()


def in_a_branch_of_an_inner_loop(m, xs, ids):
    def step(c, i):
        read = lambda c, j: c * xs[(i + j) % ROWS]  # noqa: E731
        inner = lambda j, c: m.lax.cond(j % 2 == 0, read, lambda c, j: c, c, j)  # noqa: E731
        return m.lax.fori_loop(0, 4, inner, c), None

    return m.lax.scan(step, m.numpy.ones(WIDTH), ids)[0].sum()


def in_functions(m, xs, ids):
    read = m.jit(lambda xs, i: m.numpy.take(xs, i, axis=0))

    def step(c, i):
        return m.checkpoint(lambda c, xs: m.numpy.tanh(c + read(xs, i)))(c, xs), None

    return m.lax.scan(step, m.numpy.zeros(WIDTH), ids)[0].sum()


def carried(m, xs, ids):
    """A carry that is read and changed."""
    def step(c, i):
        return c.at[(i + 1) % ROWS].set(m.numpy.sin(c[i]) + c[0]), c[i, 0]

    c, ys = m.lax.scan(step, xs, ids)
    return (c**2).sum() + ys.sum()


def fixed_places(m, xs, ids):
    flat = xs.reshape(-1)

    def step(c, i):
        return m.numpy.tanh(c + flat[1:3].sum() * flat[5] + xs[i]), None

    return m.lax.scan(step, m.numpy.zeros(WIDTH), ids)[0].sum()


def backwards(m, xs, ids):
    def step(c, i):
        return c * xs[i], xs[-1]

    c, ys = m.lax.scan(step, m.numpy.ones(WIDTH), ids, reverse=True)
    return c.sum() + ys.sum()


PROGRAMS = [
    lookups, rows_of_many, both_ways, in_branches, in_an_inner_loop, in_a_branch_of_an_inner_loop, in_functions, carried,
    fixed_places, backwards,
]  # fmt: skip


def start(rows=ROWS):
    random = np.random.default_rng(0)
    return random.normal(size=(rows, WIDTH), scale=0.5).astype(np.float32), np.array([1, 3, 3, 0, 7, 5], np.int32)


def first(m, of, xs):
    return m.grad(of)(xs)


def second(m, of, xs):
    return m.grad(lambda xs: (m.grad(of)(xs) ** 2).sum())(xs)


def of_a_batch(m, of, xs):
    return m.vmap(m.grad(of))(m.numpy.stack([xs, xs + 1]))


def forward_over_reverse(m, of, xs):
    return m.jvp(m.grad(of), (xs,), (m.numpy.ones_like(xs),))


@pytest.mark.parametrize("derivative", [first, second, of_a_batch, forward_over_reverse], ids=lambda f: f.__name__)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_gradients_are_those_of_jax(program, derivative):
    xs, ids = start()
    call = lambda m: lambda xs: derivative(m, lambda xs: program(m, xs, m.numpy.asarray(ids)), xs)  # noqa: E731
    expected = jax.jit(call(jax))(xs)
    compare(fx.jit(call(fx))(xs), expected, cancels=norm, ulps=64)
    compare(call(fx)(fx.numpy.asarray(xs)), expected, cancels=norm, ulps=64)


def while_loop(m, xs, ids):
    """Of a number of steps that nothing bounds."""
    def body(state):
        i, c = state
        return i + 1, c * m.numpy.cos(xs[ids[i]])

    return m.lax.while_loop(lambda state: state[0] < len(ids), body, (0, m.numpy.ones(WIDTH)))[1].sum()


def test_gradients_of_while_are_those_of_its_steps():
    xs, ids = start()
    m = jax.numpy

    def steps(xs):
        c = m.ones(WIDTH)
        for i in ids:
            c = c * m.cos(xs[i])
        return c.sum()

    loss = lambda xs: while_loop(fx, xs, fx.numpy.asarray(ids))  # noqa: E731
    expected = jax.grad(steps)(xs)
    compare(fx.jit(fx.grad(loss))(xs), expected, cancels=norm)
    compare(fx.grad(loss)(fx.numpy.asarray(xs)), expected, cancels=norm)


def bodies(jaxpr):
    """The bodies of all loops."""
    for equation in jaxpr.eqns:
        for inner in fx.core.jaxprs_in_params(equation.params):
            if equation.primitive.name in ("scan", "while"):
                yield inner
            yield from bodies(inner)


@pytest.mark.parametrize(
    "program", [lookups, in_branches, in_an_inner_loop, in_a_branch_of_an_inner_loop, carried, backwards],
    ids=lambda program: program.__name__,
)
def test_no_step_makes_the_whole_array(program):
    """Nothing of its size but what is updated."""
    xs, ids = start(1000)
    jaxpr = fx.make_jaxpr(fx.grad(lambda xs: program(fx, xs, ids)))(xs)
    loops = list(bodies(jaxpr.jaxpr))
    assert loops
    for body in loops:
        for equation in body.eqns:
            whole = any(getattr(var.aval, "size", 0) >= xs.size for var in equation.outvars)
            updates = "dynamic_update_slice", "scatter", "scatter-add", "cond", "scan", "while", "pjit", "jit"
            assert not whole or equation.primitive.name in updates, equation


def test_repeat_and_insert_make_nothing_larger_than_their_results():
    """Not a table of all rows and places."""
    x, counts = np.ones(300, np.float32), np.full(300, 2)
    places = np.arange(0, 300, 2)
    functions = [
        lambda x: fx.numpy.repeat(x, fx.numpy.asarray(counts), total_repeat_length=700),
        lambda x: fx.numpy.insert(x, fx.numpy.asarray(places), 2.0),
        lambda x: fx.numpy.delete(x, fx.numpy.asarray(places), assume_unique_indices=True),
    ]
    for function in functions:
        jaxpr = fx.make_jaxpr(function)(x)

        def largest(jaxpr):
            sizes = [var.aval.size for equation in jaxpr.eqns for var in equation.outvars]
            inner = [largest(sub) for equation in jaxpr.eqns for sub in fx.core.jaxprs_in_params(equation.params)]
            return max(sizes + inner, default=0)

        assert largest(jaxpr.jaxpr) <= 701
