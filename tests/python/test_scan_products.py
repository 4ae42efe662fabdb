"""Loops whose products the compiler takes out of them, against JAX: recurrent networks with layers
in front and behind, in all dtypes that have products, with all derivatives."""

import numpy as np
import pytest
from oracle import same
from roundings import same_within_roundings

DTYPES = ["float32", "bfloat16", "float16", "complex64", "int32", "uint8", "int4", "bool"]
LENGTH, IN, HIDDEN, OUT = 7, 3, 5, 2


def arrays(S, dtype, *shapes):
    random = np.random.default_rng(0)
    values = [random.integers(-2, 3, shape) for shape in shapes]
    if dtype == "bool":
        values = [value > 0 for value in values]
    elif dtype in ("uint8",):
        values = [abs(value) for value in values]
    elif dtype not in ("int32", "int4"):
        values = [random.normal(size=shape) * 0.4 for shape in shapes]
    if dtype == "complex64":
        values = [value + 0.3j * value[::-1] for value in values]
    return [S.jnp.asarray(value).astype(dtype) for value in values]


def network(S, dtype="float32", reverse=False, rows=()):
    """The function and its arguments: weights, inputs."""
    jnp = S.jnp
    weights = arrays(S, dtype, (IN, HIDDEN), (HIDDEN, HIDDEN), (HIDDEN,), (HIDDEN, OUT), (OUT,))
    (xs,) = arrays(S, dtype, (LENGTH, *rows, IN))
    exact = dtype in ("int32", "uint8", "int4", "bool")

    def run(weights, xs):
        first, between, bias, last, shift = weights

        def step(h, x):
            a = (x @ first) + (h @ between) + bias
            h = a if exact else jnp.tanh(a)
            return h, ((h @ last) + shift, h)

        h = jnp.zeros((*rows, HIDDEN), dtype)
        return S.lax.scan(step, h, xs, reverse=reverse)

    return run, (weights, xs)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("rows", [(), (4,), (2, 3)])
@pytest.mark.parametrize("dtype", DTYPES)
@same(cancels=0.5)  # sums of a few products of numbers of about 0.4
def test_values(S, dtype, rows, reverse):
    run, args = network(S, dtype, reverse, rows)
    return S.jax.jit(run)(*args)


def loss(S, run):
    return lambda *args: sum((y * y.conj()).real.sum() for y in S.jax.tree.leaves(run(*args)))


@pytest.mark.parametrize("rows", [(), (4,)])
@pytest.mark.parametrize("dtype", ["float32", "complex64"])
@same_within_roundings
def test_gradient(S, dtype, rows):
    run, args = network(S, dtype, rows=rows)
    return S.jax.jit(S.jax.grad(loss(S, run), argnums=(0, 1)))(*args)


@same
def test_gradient_of_few_digits(S):
    # Sums of all steps at once differ from those step by step, by as much as the dtype rounds.
    run, args = network(S, "bfloat16")
    found = S.jax.jit(S.jax.grad(loss(S, run)))(*args)
    whole, args = network(S, "float32")
    near = S.jax.grad(loss(S, whole))(*args)
    close = [
        bool(abs(a.astype("float32") - b).max() <= 0.05 * abs(b).max()) for a, b in zip(found, near)
    ]
    return close, [(a.shape, str(a.dtype)) for a in found]


@pytest.mark.parametrize("order", ["forward over reverse", "reverse over reverse"])
@same_within_roundings
def test_second_order(S, order):
    run, args = network(S)
    gradient = S.jax.grad(loss(S, run))
    if order == "forward over reverse":
        return S.jax.jit(lambda *args: S.jax.jvp(gradient, args, args)[1])(*args)
    dot = lambda *args: sum((g * w).sum() for g, w in zip(gradient(*args), args[0]))  # noqa: E731
    return S.jax.jit(S.jax.grad(dot))(*args)


@pytest.mark.parametrize("axes", [(None, 0), (0, None), (0, 1)])
@same_within_roundings
def test_batches(S, axes):
    run, (weights, xs) = network(S)
    weights = [w if axes[0] is None else S.jnp.stack([w, w * 0.5, -w]) for w in weights]
    if axes[1] is not None:
        xs = S.jnp.stack([xs, xs + 1, xs * 2], axis=axes[1])
    mapped = S.jax.vmap(S.jax.grad(loss(S, run), argnums=(0, 1)), in_axes=axes)
    return S.jax.jit(mapped)(weights, xs)


@pytest.mark.parametrize("wrap", ["checkpoint", "cond", "scan"])
@same_within_roundings
def test_within(S, wrap):
    jax = S.jax
    run, args = network(S)
    inner = loss(S, run)
    if wrap == "checkpoint":
        f = jax.checkpoint(inner)
    elif wrap == "cond":
        f = lambda *args: S.lax.cond(args[1][0, 0] > 9, lambda *a: 0.0, inner, *args)  # noqa: E731
    else:
        f = lambda w, xs: S.lax.scan(lambda c, k: (c + inner(w, xs * k), k), 0.0, S.jnp.arange(3.0))[0]  # noqa: E731
    return jax.jit(jax.value_and_grad(f, argnums=(0, 1)))(*args)


@pytest.mark.parametrize("length", [0, 1, 2])
@same_within_roundings
def test_short(S, length):
    run, (weights, xs) = network(S)
    return S.jax.jit(S.jax.value_and_grad(loss(S, run)))(weights, xs[:length])


@same
def test_sums_that_start_somewhere(S):
    # Weak types, a sum that is asked for at each step, one that is scaled.
    (xs, ys) = arrays(S, "float32", (LENGTH, 3), (LENGTH, 3))

    def step(carry, pair):
        x, y = pair
        a, b, c, n = carry
        outer = S.jnp.outer(x, y)
        return (a + outer, b + outer, c * 0.5 + outer, n + x.sum()), b

    start = S.jnp.ones((3, 3))
    return S.jax.jit(lambda: S.lax.scan(step, (start, start, start, 2.0), (xs, ys)))()


def floats(*shape):
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


def test_sums_that_begin_elsewhere_than_at_zero():
    import ferrax

    def run(start, xs):
        return ferrax.lax.scan(lambda total, x: (total + x.T @ x, None), start, xs)[0]

    before = ferrax.lib.stats()["fission: sums"]
    start, xs = floats(8, 8), floats(40, 6, 8)
    np.testing.assert_allclose(ferrax.jit(run)(start, xs), start + np.einsum("tij,tik->jk", xs, xs), rtol=1e-5, atol=1e-4)
    assert ferrax.lib.stats()["fission: sums"] > before


def test_products_of_each_of_several_arrays():
    import ferrax
    import ferrax.numpy as jnp

    w, v, u = floats(8, 5), floats(8, 5)[::-1], floats(8, 8)

    def step(h, at):
        x, y = at
        h = jnp.tanh(h + x)
        return h, (y @ w, h @ v, (h @ u) * y)

    before = ferrax.lib.stats()["fission: after the loop"]
    xs, ys = floats(30, 1, 8), floats(30, 1, 8)[::-1]
    _, (of_y, of_h, of_both) = ferrax.jit(lambda xs, ys: ferrax.lax.scan(step, jnp.zeros((1, 8)), (xs, ys)))(xs, ys)
    h, hs = np.zeros((1, 8)), []
    for x in xs:
        h = np.tanh(h + x)
        hs.append(h)
    np.testing.assert_allclose(of_y, ys @ w, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(of_h, np.stack(hs) @ v, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(of_both, (np.stack(hs) @ u) * ys, rtol=1e-5, atol=1e-5)
    assert ferrax.lib.stats()["fission: after the loop"] > before
