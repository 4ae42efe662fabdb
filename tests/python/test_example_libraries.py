"""Optimizers beside the reference: steps, schedules, states as trees."""

import numpy as np
import pytest
from oracle import FERRAX, module, same

import ferrax

OPTIMIZERS = {
    "sgd": (), "momentum": (0.9,), "nesterov": (0.9,), "adagrad": (), "rmsprop": (), "rmsprop_momentum": (),
    "adam": (), "adamax": (), "sm3": (0.7,),
}  # fmt: skip
SCHEDULES = {
    "exponential": lambda o: o.exponential_decay(0.1, 3, 0.5),
    "inverse": lambda o: o.inverse_time_decay(0.1, 3, 0.5),
    "staircase": lambda o: o.inverse_time_decay(0.1, 3, 0.5, staircase=True),
    "polynomial": lambda o: o.polynomial_decay(1.0, 3, 0.1, power=2.0),
    "piecewise": lambda o: o.piecewise_constant([1, 3], [1.0, 0.5, 0.1]),
    "number": lambda o: o.make_schedule(0.1),
}


def libraries(S):
    return module(S, "example_libraries.optimizers")


@pytest.mark.parametrize("jitted", [False, True], ids=["eager", "jit"])
@pytest.mark.parametrize("name", OPTIMIZERS)
@same
def test_steps(S, name, jitted):
    init, update, get_params = getattr(libraries(S), name)(
        lambda i: 0.1 / (i + 1), *OPTIMIZERS[name]
    )
    params = {"w": S.jnp.arange(6.0).reshape(2, 3) - 2, "b": (S.jnp.float32(2.0), S.jnp.ones(3))}
    if name == "sm3" and jitted and S is not FERRAX:
        jitted = (
            False  # JAX's state has the shape of the parameters as leaves, which cannot be traced
        )
    gradient = S.jax.grad(
        lambda p: S.jnp.sum(p["w"] ** 2) + p["b"][0] ** 2 + S.jnp.sum(p["b"][1] ** 3)
    )

    def step(i, state):
        return update(i, gradient(get_params(state)), state)

    step = S.jax.jit(step) if jitted else step
    state = init(params)
    for i in range(4):
        state = step(i, state)
    return get_params(state)


@pytest.mark.parametrize("name", SCHEDULES)
@same
def test_schedules(S, name):
    schedule = SCHEDULES[name](libraries(S))
    return [schedule(i) for i in (0, 1, 2, 4)] + [S.jax.jit(schedule)(2)]


@same
def test_norms_and_clipping(S):
    o, tree = libraries(S), {"a": S.jnp.array([3.0, 4.0]), "b": S.jnp.float32(12.0)}
    return o.l2_norm(tree), o.clip_grads(tree, 1.0), o.clip_grads(tree, 20.0), o.l2_norm([])


def test_states_as_plain_trees():
    o = libraries(FERRAX)
    state = o.momentum(0.1, 0.9).init_fn([{"w": np.ones((2, 3)), "b": np.zeros(2)}])
    marked = o.unpack_optimizer_state(state)
    assert isinstance(marked[0]["w"], o.JoinPoint) and len(list(marked[0]["w"])) == 1
    again = o.pack_optimizer_state(marked)
    assert ferrax.tree.structure(again) == ferrax.tree.structure(state)
    with pytest.raises(TypeError, match="JoinPoint"):
        o.pack_optimizer_state([1.0])


def wrong_tree(o):
    init, update, _ = o.sgd(0.1)
    return update(0, [1.0], init((1.0,)))


def wrong_state(o):
    maker = o.optimizer(lambda: (lambda x: (x,), lambda i, g, s: (s[0], g), lambda s: s[0]))
    init, update, _ = maker()
    return update(0, 1.0, init(1.0))


ERRORS = {
    "tree": wrong_tree,
    "state": wrong_state,
    "schedule": lambda o: o.make_schedule(np.ones(2)),
    "pieces": lambda o: o.piecewise_constant([1, 2], [1.0]),
    "axes": lambda o: o.piecewise_constant([[1, 2]], [1.0]),
}


@pytest.mark.raises("TypeError", "ValueError")
@pytest.mark.parametrize("name", ERRORS)
@same
def test_errors(S, name):
    ERRORS[name](libraries(S))
