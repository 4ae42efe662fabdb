"""More programs that fail, for `test_errors_snapshot`: errors that follow a value to its origin.

Chains of traced values, NaNs and infinities, leaked tracers, and traces beyond `max_traces`.
"""

import functools

import numpy as np

import ferrax as jax
import ferrax.numpy as jnp
from ferrax import lax

CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


# The way from a traced value back to its argument


@case
def chain_of_ops():
    @jax.jit
    def normalised(x, scale):
        total = jnp.sum(x * scale)
        mean = total / 3
        centred = x - mean
        if jnp.max(jnp.abs(centred)) > 1:
            return x
        return centred

    normalised(jnp.ones(3), 2.0)


@case
def chain_of_many_lines():
    @jax.jit
    def steps(params):
        x = params["w"][0]
        x = x + 1
        x = x * 2
        x = jnp.sin(x)
        x = jnp.cos(x)
        x = jnp.exp(x)
        x = jnp.log(x)
        x = jnp.tanh(x)
        x = jnp.sqrt(x)
        x = x - 1
        return float(x)

    steps({"w": [jnp.float32(1), 2.0]})


@case
def chain_through_scan():
    @jax.jit
    def total(xs, start):
        first = start * 2

        def body(carry, x):
            carry = carry + x
            if carry > 3:
                return x, carry
            return carry, x

        return lax.scan(body, first, xs)

    total(jnp.ones(3), 0.0)


@case
def chain_through_cond_under_grad():
    def loss(x):
        y = jnp.sin(x)

        def branch(y):
            z = y * x
            return np.asarray(z)

        return lax.cond(True, branch, lambda y: y, y)

    jax.jit(jax.grad(loss))(1.0)


@case
def chain_through_while_under_vmap():
    def collatz(n):
        start = n + 1

        def body(state):
            n, steps = state
            half = n // 2
            return [half, n][int(half)], steps + 1

        return lax.while_loop(lambda state: state[0] > 1, body, (start, 0))

    jax.vmap(collatz)(jnp.arange(3))


@case
def chain_through_inner_jit():
    @jax.jit
    def inner(mask, x):
        return x[mask]

    @jax.jit
    def outer(x):
        y = x * 2
        return inner(y > 1, y)

    outer(jnp.arange(3.0))


@case
def chain_of_captured_value():
    @jax.jit
    def outer(n):
        width = n + 1

        def body(i, x):
            return x + jnp.zeros(range(width)).sum()

        return lax.fori_loop(0, 3, body, 0.0)

    outer(3)


# NaNs and infinities


@case
def nan_of_an_op():
    with jax.debug_nans(True):
        jnp.log(jnp.array([1.0, 2.0, -1.0]))


@case
def nan_of_a_binary_op():
    x = jnp.zeros((2, 2))
    with jax.debug_nans(True):
        return x / x


@case
def nan_under_jit():
    @jax.jit
    def loss(x, y):
        z = x - y
        w = jnp.sqrt(z)
        return jnp.sum(w * 2)

    with jax.debug_nans(True):
        loss(jnp.array([1.0, 2.0, 3.0]), jnp.array([0.0, 3.0, 0.0]))


@case
def nan_in_the_backward_pass():
    @jax.jit
    def norm(x):
        squares = x * x
        return jnp.sqrt(jnp.sum(squares))

    with jax.debug_nans(True):
        jax.grad(norm)(jnp.zeros(3))


@case
def nan_in_the_backward_pass_under_jit():
    def loss(x):
        safe = jnp.where(x > 0, jnp.sqrt(x), 0.0)
        return safe.sum()

    with jax.debug_nans(True):
        jax.jit(jax.grad(loss))(jnp.array([1.0, 0.0, 4.0]))


@case
def nan_in_scan():
    @jax.jit
    def decay(x, steps):
        def body(x, step):
            x = jnp.log(x - step)
            return x, x

        return lax.scan(body, x, steps)[0]

    with jax.debug_nans(True):
        decay(10.0, jnp.array([1.0, 1.0, 1.0, 0.5, 0.5]))


@case
def nan_in_while_in_scan():
    @jax.jit
    def nested(x):
        def inner(state):
            i, x = state
            return i + 1, jnp.sqrt(x) - 1

        def outer(x, _):
            return lax.while_loop(lambda state: state[0] < 2, inner, (0, x))[1], None

        return lax.scan(outer, x, length=3)[0]

    with jax.debug_nans(True):
        nested(jnp.array([16.0, 30.0]))


@case
def nan_in_the_backward_pass_of_scan():
    def loss(x):
        def body(carry, x):
            y = jnp.sqrt(x)
            return carry + y, None

        return lax.scan(body, 0.0, x * x)[0]

    with jax.debug_nans(True):
        jax.grad(loss)(jnp.array([1.0, 2.0, 0.0, 3.0]))


@case
def nan_in_an_argument():
    @functools.partial(jax.jit, static_argnums=0)
    def scaled(factor, params):
        return factor * params["b"]

    with jax.debug_nans(True):
        scaled(2, {"a": 1.0, "b": jnp.array([1.0, np.nan])})


@case
def nan_in_a_captured_array():
    table = jnp.array([0.0, np.nan])

    @jax.jit
    def look_up(x):
        return x + table

    with jax.debug_nans(True):
        look_up(1.0)


@case
def nan_under_vmap():
    def divided(x, y):
        return x / y

    with jax.debug_nans(True):
        jax.vmap(divided, in_axes=(0, None))(jnp.arange(3.0), 0.0)


@case
def infinity_under_jit():
    @jax.jit
    def unbounded(x):
        y = x - 1
        return 1 / y

    with jax.debug_infs(True):
        unbounded(jnp.arange(3.0))


# Tracers that outlive their function


@case
def leak_into_a_list():
    kept = []

    @jax.jit
    def remember(x):
        y = x * 2
        kept.append(y)
        return y + 1

    with jax.checking_leaks():
        remember(1.0)


@case
def leak_into_an_attribute():
    class Model:
        def __call__(self, x):
            self.last = jnp.sin(x)
            return self.last.sum()

    model = Model()
    with jax.check_tracer_leaks(True):
        jax.grad(lambda x: model(x))(jnp.ones(3))


@case
def leak_of_an_argument_under_vmap():
    seen = {}

    def scored(row):
        seen["row"] = row
        return row.sum()

    with jax.check_tracer_leaks(True):
        jax.vmap(scored)(jnp.ones((2, 3)))


@case
def leak_from_scan():
    partial_sums = []

    def body(carry, x):
        partial_sums.append(carry + x)
        return carry + x, x

    with jax.check_tracer_leaks(True):
        lax.scan(body, 0.0, jnp.arange(3.0))


# More traces than allowed


@case
def too_many_shapes():
    @functools.partial(jax.jit, max_traces=2)
    def mean(params):
        return params["w"][0].mean()

    for size in (3, 4, 5):
        mean({"w": [jnp.ones(size), 1.0], "b": 0.0})


@case
def too_many_static_values():
    @functools.partial(jax.jit, static_argnames="steps", max_traces=1)
    def power(x, steps):
        return x**steps

    power(2.0, steps=2)
    power(2.0, steps=3)


@case
def too_many_structures():
    @functools.partial(jax.jit, max_traces=1)
    def total(params):
        return sum(params["layers"])

    total({"layers": [1.0, 2.0]})
    total({"layers": [1.0, 2.0, 3.0]})


@case
def too_many_weak_types():
    @functools.partial(jax.jit, max_traces=1)
    def double(x):
        return x * 2

    double(1.0)
    double(jnp.float32(1.0))
