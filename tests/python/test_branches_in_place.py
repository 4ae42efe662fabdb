"""Branches and loops in loops whose results take the memory of their operands: random ones have the bits of NumPy.

A state of several arrays goes through steps, each of which hands arrays on, exchanges them, changes an element, makes them
anew or reads one while it changes another, as a branch says that the number of the step chooses. What may be made in place,
what has to be beside, and what others still read is different in each.
"""

import random

import numpy as np
import pytest

import ferrax as fx
import ferrax.numpy as jnp
from ferrax import lax

# Of an array of the state and another one, at a step: in NumPy, whose arrays are copied, and in ferrax.
MAKERS = {
    "same": (lambda own, other, i: own, lambda own, other, i: own),
    "other": (lambda own, other, i: other, lambda own, other, i: other),
    "set": (lambda own, other, i: put(own, i, 3.0), lambda own, other, i: own.at[i].set(3.0)),
    "two": (lambda own, other, i: put(put(own, i, 1.0), 0, own[-1]), lambda own, other, i: own.at[i].set(1.0).at[0].set(own[-1])),
    "read": (lambda own, other, i: put(own, i, other[0]), lambda own, other, i: own.at[i].set(other[0])),
    "of other": (lambda own, other, i: put(other, i, own[0]), lambda own, other, i: other.at[i].set(own[0])),
    "sum": (lambda own, other, i: own + other, lambda own, other, i: own + other),
    "twice": (lambda own, other, i: own * np.float32(0.5), lambda own, other, i: own * 0.5),
    "window": (lambda own, other, i: window(own, other, i), lambda own, other, i: lax.dynamic_update_slice(own, other[:1] + own[-1:], (i,))),
    "anew": (lambda own, other, i: np.full_like(own, 2), lambda own, other, i: jnp.full_like(own, 2)),
    "turned": (lambda own, other, i: own[::-1], lambda own, other, i: own[::-1]),
}  # fmt: skip


def put(array, i, value):
    array = array.copy()
    array[i] = value
    return array


def window(own, other, i):
    return put(own, i, other[0] + own[-1])


def of_seed(seed):
    """How many arrays there are, and of each branch how it makes them: the maker, and which array is the other."""
    draw = random.Random(seed)
    arrays = draw.randint(1, 3)
    branches = []
    for _ in range(draw.randint(2, 3)):
        made = [(draw.choice(list(MAKERS)), draw.randrange(arrays)) for _ in range(arrays)]
        branches.append([("same", 0)] * arrays if draw.random() < 0.3 else made)
    return arrays, branches


def step_of(branches, side):
    def branch(made):
        return lambda i, state: tuple(
            MAKERS[name][side](own, state[other], i) for own, (name, other) in zip(state, made)
        )

    return [branch(made) for made in branches]


def start(arrays, size, seed):
    return tuple(np.random.default_rng([seed, n]).normal(size=size).astype(np.float32) for n in range(arrays))


STEPS = 5


def by_numpy(branches, state, inner):
    makers = step_of(branches, 0)
    for i in range(STEPS):
        for j in range(inner):
            at = (i + j) % len(state[0])
            state = makers[(i * inner + j) % len(makers)](at, state)
    return state


def step(branches, inner, size):
    """What a step of the outer loop does: a branch, or a loop of branches."""
    makers = step_of(branches, 1)

    def one(i, j, state):
        at = (i + j) % size
        return lax.switch((i * inner + j) % len(makers), [lambda s, m=m: m(at, s) for m in makers], state)

    if inner == 1:
        return lambda i, state: one(i, 0, state)
    return lambda i, state: lax.fori_loop(0, inner, lambda j, s: one(i, j, s), state)


def scanned(run):
    return lambda state: lax.scan(lambda s, i: (run(i, s), None), state, jnp.arange(STEPS))[0]


def recorded(run):
    """With a slice of what there is before and after each step."""
    def body(state, i):
        after = run(i, state)
        return after, (state[0][:1], after[-1][-1:])

    return lambda state: lax.scan(body, state, jnp.arange(STEPS))[0]


def until(run):
    body = lambda c: (c[0] + 1, run(c[0], c[1]))  # noqa: E731
    return lambda state: lax.while_loop(lambda c: c[0] < STEPS, body, (jnp.int32(0), state))[1]


def written_out(run):
    def whole(state):
        for i in range(STEPS):
            state = run(jnp.int32(i), state)
        return state

    return whole


LOOPS = {"scan": scanned, "recorded": recorded, "while": until, "written out": written_out}


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("loop", LOOPS)
def test_states_have_the_bits_of_numpy(loop, seed):
    arrays, branches = of_seed(seed)
    for size, inner in [(3, 1), (3, 2), (1500, 1), (1500, 3)]:
        state = start(arrays, size, seed)
        expected = by_numpy(branches, state, inner)
        run = LOOPS[loop](step(branches, inner, size))
        given = tuple(map(jnp.asarray, state))
        for found in (fx.jit(run)(given), fx.jit(run, donate_argnums=0)(tuple(map(jnp.array, state)))):
            for got, want in zip(found, expected):
                np.testing.assert_array_equal(got, want, f"{branches} of {size}, {inner}")
        for got, want in zip(given, state):
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("seed", range(0, 60, 4))
def test_states_of_a_batch_have_them_too(seed):
    arrays, branches = of_seed(seed)
    size, lanes = 40, 3
    states = [start(arrays, size, 100 * seed + lane) for lane in range(lanes)]
    run = scanned(step(branches, 2, size))
    found = fx.jit(fx.vmap(run))(tuple(jnp.stack(each) for each in zip(*states)))
    for lane, state in enumerate(states):
        for got, want in zip(found, by_numpy(branches, state, 2)):
            np.testing.assert_array_equal(got[lane], want)


def test_a_branch_of_a_loop_copies_nothing():
    """The body has the branch in the memory of the carry, and so has each branch its result."""

    def body(c, i):
        return lax.cond(i % 2 == 0, lambda c: c.at[i].set(1.0), lambda c: c, c), None

    run = fx.jit(lambda x: lax.scan(body, x, jnp.arange(10))[0])
    plan = run.lower(jnp.zeros(5000)).compile().memory_plan()
    (loop,) = [step for step in plan.steps if step.inner]
    (inner,) = loop.inner
    assert [pair for pair in inner.buffers if pair.bytes == 20000 and pair.donation is not None], inner
