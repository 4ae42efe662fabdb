"""A choice between an array and an update of it, also in loops that are mapped over their conditions."""

import numpy as np
import pytest
from oracle import same

OPERATIONS = ["set", "add", "multiply", "min", "max"]
INDICES = [0, 3, 6, 7, 100, -1, -7, -8, -100]


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("updated", [True, False])
@same
def test_one_choice(s, operation, updated):
    def choose(p, i, x):
        y = getattr(x.at[i], operation)(2.5)
        return s.jnp.where(p, y, x) if updated else s.jnp.where(p, x, y)

    x = s.jnp.arange(7.0)
    return [s.jax.jit(choose)(p, i, x) for p in (True, False) for i in INDICES]


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32])
@pytest.mark.parametrize("mode", [None, "drop", "clip", "promise_in_bounds"])
@same
def test_modes_and_indices(s, dtype, mode):
    def choose(p, i, x):
        return s.jnp.where(p, x.at[i].set(-1.0, mode=mode), x)

    indices = np.array([[0, 2], [1, 1], [2, 0]], dtype)
    x, p = s.jnp.ones((3, 3)), np.array([True, False, True])
    return s.jax.jit(s.jax.vmap(choose))(p, indices, x), s.jax.jit(choose)(False, indices, x)


@same
def test_lanes_windows_and_other_uses(s):
    x = s.jnp.arange(24.0).reshape(4, 6)
    i, p = np.array([1, 5, 9, -2]), np.array([True, False, True, True])

    def lane(p, i, x):
        y = x.at[i].add(10.0)
        return s.jnp.where(p, x, y)

    def windows(p, x):
        return s.jnp.where(p, x.at[1:3, ::2].set(0.0), x)

    def both(p, i, x):
        y = x.at[i].set(0.0)
        return s.jnp.where(p, y, x), y.sum()

    def elementwise(x):
        return s.jnp.where(x > 3, x.at[1].set(-1.0), x)

    def other_array(p, i, x):
        return s.jnp.where(p, x.at[i].set(0.0), x + 0.5)

    jit, vmap = s.jax.jit, s.jax.vmap
    return [
        jit(vmap(lane))(p, i, x), jit(vmap(vmap(lane)))(p[None], i[None], x[None]), jit(windows)(True, x),
        jit(windows)(False, x), jit(vmap(both))(p, i, x), jit(elementwise)(x), jit(vmap(other_array))(p, i, x),
        jit(vmap(lane, in_axes=(None, 0, 0)))(True, i, x), jit(vmap(lane, in_axes=(0, None, 0)))(p, 2, x),
        jit(vmap(lane, in_axes=(0, 0, None)))(p, i, x[0]),
    ]  # fmt: skip


@same
def test_loops_of_different_lengths(s):
    def count(length, i, x):
        def body(carry):
            i, x = carry
            return i + 1, x.at[i].set(i * 1.0).at[i // 2].add(0.25)

        return s.lax.while_loop(lambda carry: carry[0] < length, body, (i, x))

    lengths, starts = np.array([3, 0, 9, 5]), np.array([0, 1, 2, 5])
    run = s.jax.vmap(count)
    return s.jax.jit(run)(lengths, starts, s.jnp.zeros((4, 8)))


@same
def test_derivatives(s):
    def loss(x, p):
        y = s.jnp.where(p, x.at[2].multiply(3.0), x)
        return (s.jnp.where(p, y, y.at[1].set(y[0] * y[2])) ** 2).sum()

    x = s.jnp.arange(1.0, 5.0)
    grad = s.jax.grad(loss)
    return [s.jax.jit(f)(x, p) for f in (loss, grad, s.jax.hessian(loss)) for p in (True, False)]
