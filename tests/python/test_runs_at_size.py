"""Runs of rows at the sizes where they begin: beside each operation by itself, and in NumPy's float64.

Products in batches, operands that are transposed, parts of sections, values of several lives in one arena.
"""

import functools

import numpy as np
import pytest
from oracle import FERRAX

jax, jnp, lax = FERRAX.jax, FERRAX.jnp, FERRAX.lax


def data(*shape, dtype="float32", seed=0):
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape), dtype)


def near(got, wanted, tolerance):
    got, wanted = (np.asarray(x).astype(np.float64) for x in (got, wanted))
    assert got.shape == wanted.shape
    np.testing.assert_allclose(got, wanted, rtol=0, atol=tolerance * (1 + np.abs(wanted).max()))


def f64(x):
    return np.asarray(x).astype(np.float64)


def softmax64(x, axis=-1):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


HALF = {"float32": 1e-5, "bfloat16": 3e-2, "float16": 4e-3}

# Left operand, right operand: axes before the last but one are loops of the product of their own.
PRODUCTS = [
    ((4096, 8, 64), (64, 64)),
    ((2044, 6, 1, 100), (100, 4)),
    ((1024, 2, 512), (512, 8)),
    ((129, 31, 265), (265, 31)),
]


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("shapes", PRODUCTS, ids=str)
def test_products_in_batches_beside_kernels(shapes, dtype):
    x, w = (data(*shape, dtype=dtype, seed=seed) for seed, shape in enumerate(shapes))
    x = x * jnp.asarray(shapes[1][0] ** -0.5, dtype)
    product = f64(x) @ f64(w)
    near(jax.jit(lambda x, w: jnp.tanh(x @ w))(x, w), np.tanh(product), HALF[dtype])
    near(jax.jit(lambda x, w: jax.nn.softmax(x @ w))(x, w), softmax64(product), HALF[dtype])
    near(x @ w, product, HALF[dtype])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_derivatives_of_products_in_batches(dtype):
    x, w = data(4096, 8, 64, dtype=dtype) * 0.125, data(64, 64, dtype=dtype, seed=1)
    loss = lambda x, w: (jnp.tanh(x @ w).astype("float32") ** 2).sum()  # noqa: E731
    y = np.tanh(f64(x) @ f64(w))
    slope = 2 * y * (1 - y * y)
    for grad in (jax.grad(loss, (0, 1)), jax.jit(jax.grad(loss, (0, 1)))):
        dx, dw = grad(x, w)
        near(dx, slope @ f64(w).T, 4 * HALF[dtype])
        near(dw, np.einsum("abi,abj->ij", f64(x), slope), 4 * HALF[dtype])
    tangent = jax.jvp(lambda x: x @ w, (x,), (x,))[1]
    near(tangent, f64(x) @ f64(w), HALF[dtype])


@pytest.mark.parametrize("shape", [(4096, 128), (4096, 256), (1958, 191), (64, 64, 64), (508, 193, 5)], ids=str)
@pytest.mark.parametrize("axis", [-1, 1])
def test_transposed_operands(shape, axis):
    x = data(*shape)
    turned = f64(x).T
    functions = {
        "max": (lambda v: v - v.max(axis, keepdims=True), turned - turned.max(axis, keepdims=True)),
        "mean": (lambda v: v - v.mean(axis, keepdims=True), turned - turned.mean(axis, keepdims=True)),
        "softmax": (lambda v: jax.nn.softmax(v, axis), softmax64(turned, axis)),
        "log_softmax": (lambda v: jax.nn.log_softmax(v, axis), np.log(softmax64(turned, axis))),
    }
    for name, (function, wanted) in functions.items():
        near(jax.jit(lambda x, function=function: function(x.T))(x), wanted, 1e-5), name


def test_cross_entropy_of_transposed_logits():
    x = data(1958, 191)
    labels = jnp.arange(191) * 7 % 1958
    got = jax.jit(lambda x, n: -jnp.take_along_axis(jax.nn.log_softmax(x.T), n[:, None], -1)[:, 0])(x, labels)
    near(got, -np.log(softmax64(f64(x).T))[np.arange(191), np.asarray(labels)], 1e-5)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("heads, places, width", [(16, 256, 64), (8, 512, 64)])
def test_masked_attention(dtype, heads, places, width):
    q, k, v = (data(heads, places, width, dtype=dtype, seed=seed) for seed in range(3))
    scores = np.tril(f64(q) @ f64(k).swapaxes(1, 2) * 0.125)
    got = jax.jit(lambda q, k, v: jax.nn.softmax(jnp.tril(q @ k.mT * 0.125), -1) @ v)(q, k, v)
    near(got, softmax64(scores) @ f64(v), HALF[dtype])


@pytest.mark.parametrize("dtype", HALF)
def test_products_after_calls(dtype):
    """Kernels that bring operands into another dtype are moved before the run; what they read is alive there."""
    x, w = data(3068, 682, dtype=dtype) * 0.05, data(682, 8, dtype=dtype, seed=1)
    got = jax.jit(lambda x, w: jnp.cumsum(x, axis=1) @ w)(x, w)
    sums = f64(jnp.cumsum(x, axis=1))
    near(got, sums @ f64(w), HALF[dtype])
    looped = jax.jit(lambda x, w: jax.nn.softmax(lax.fori_loop(0, 3, lambda i, c: c + x, x) @ w))(x, w)
    near(looped, softmax64(f64(4 * x) @ f64(w)), 2 * HALF[dtype])


def test_derivatives_of_losses_over_pairs():
    x = data(1025, 364) * 0.1
    labels = jnp.arange(1025) % 364

    def loss(x):
        v = jnp.cumsum(x, 1) / 364
        rows = -jnp.take_along_axis(jax.nn.log_softmax(v), labels[:, None], -1)
        return (lax.erf(jax.nn.relu(rows @ rows.T) * 0.5)[:, ::3] ** 2).mean()

    near(jax.jit(jax.grad(loss))(x), jax.grad(loss)(x), 1e-5)


def test_rows_that_blocks_do_not_divide():
    """Values of a block, as long as its rows and needed at once, lie apart in its memory."""
    x = data(701, 512)

    def function(n, x):
        a = n.exp(x - x.max(1, keepdims=True))
        b = n.exp(a / a.sum(1, keepdims=True))
        return (a * b / b.sum(1, keepdims=True)).sum(1)

    near(jax.jit(lambda x: function(jnp, x))(x), function(np, f64(x)), 1e-6)


NEIGHBOURS = {
    "first of the next row": lambda n, y: n.pad(y[1:, :1], ((0, 1), (0, 0))),
    "last of the row before": lambda n, y: n.pad(y[:-1, -1:], ((1, 0), (0, 0))),
    "next row": lambda n, y: n.pad(y[1:], ((0, 1), (0, 0))),
}


def test_rows_beside_elements_of_others():
    """Those are another block's: the kernel that reads them goes through all rows when all of them are there."""
    x = data(601, 512)

    def function(n, name, x):
        y = n.exp(x)
        return y - NEIGHBOURS[name](n, y)

    for name in NEIGHBOURS:
        run = functools.partial(function, jnp, name)
        near(jax.jit(run)(x), function(np, name, f64(x)), 1e-6)


def test_columns_of_a_product_beside_its_rows():
    """Means over all rows of a product come after it, and before what is computed of it row by row."""
    x, w = data(2100, 64) * 0.125, data(64, 520, seed=1)
    product = f64(x) @ f64(w)

    def function(n, y):
        return n.tanh((y - y.mean(0)) / n.sqrt(y.var(0) + 1e-5))

    near(jax.jit(lambda x, w: function(jnp, x @ w))(x, w), function(np, product), 1e-5)
    near(jax.jit(lambda x, w: jnp.tanh((y := x @ w) + y[0] * 0.5))(x, w), np.tanh(product + product[0] * 0.5), 1e-5)


def reversed_softmax(n, x):
    e = n.exp(x)
    return e[:, ::-1] / e.sum(1, keepdims=True)


@pytest.mark.filterwarnings("ignore:Some donated buffers")
@pytest.mark.parametrize("shape", [(520, 700), (700, 400)], ids=str)
def test_memory_that_all_blocks_read(shape):
    """Of a run: what its first step reads of all rows is not written over by a later one, donated or not."""
    x = data(*shape) * 0.03
    turned = f64(x).T
    got = jax.jit(lambda x: jnp.cumsum(reversed_softmax(jnp, jnp.cumsum(x, 0).T), 1))(x)
    near(got, np.cumsum(reversed_softmax(np, np.cumsum(turned, 1)), 1), 1e-5)
    near(jax.jit(lambda x: reversed_softmax(jnp, x.T), donate_argnums=0)(x), reversed_softmax(np, turned), 1e-6)
