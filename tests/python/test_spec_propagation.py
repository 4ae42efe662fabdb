"""How results are cut over Auto axes of a mesh, beside what XLA's partitioner shows of the same programs."""

import functools

import numpy as np
import pytest
from oracle import same


def mesh_of(S):
    return S.jax.sharding.Mesh(np.array(S.jax.devices()).reshape(4, 2), ("x", "y"))


def put(S, shape, *spec, dtype=np.float32):
    x = (np.arange(np.prod(shape)) % 7).reshape(shape).astype(dtype)
    return S.jax.device_put(x, S.jax.NamedSharding(mesh_of(S), S.jax.P(*spec)))


def named(S, *spec):
    return S.jax.NamedSharding(mesh_of(S), S.jax.P(*spec))


# name: (function of a library and its arguments, the arguments as (shape, *spec))
A, X, ROW = ((8, 16), "x", "y"), ((8,), "x"), ((8, 16), None, "y")
CASES = {
    "sin": (lambda S, a: S.jnp.sin(a), [A]),
    "of several": (lambda S, a, b: a * b + 1, [A, ROW]),
    "apart": (lambda S, a, b: a + b, [((8, 16), "x"), ROW]),
    "against each other": (lambda S, a, b: a + b, [A, ((8, 16), "y", "x")]),
    "against in one axis": (lambda S, a, b: a + b, [((8, 16), "x"), ((8, 16), "y")]),
    "by more axes": (lambda S, a, b: a + b, [((8, 16), ("x", "y")), ((8, 16), "x")]),
    "by axes in another order": (lambda S, a, b: a + b, [((8, 16), ("x", "y")), ((8, 16), ("y", "x"))]),
    "where": (lambda S, a: S.jnp.where(a > 0, a, 0.0), [A]),
    "where of a column": (lambda S, a: S.jnp.where(a > 0, S.jnp.ones((8, 16)), 0.0), [((8, 1), "x")]),
    "sum": (lambda S, a: (a.sum(), a.sum(0), a.sum(1), a.mean(0, keepdims=True), a.max(1)), [A]),
    "argmax": (lambda S, a: S.jnp.argmax(a, 1), [A]),
    "softmax": (lambda S, a: S.jax.nn.softmax(a), [A]),
    "logsumexp": (lambda S, a: S.jax.nn.logsumexp(a, 1), [A]),
    "var": (lambda S, a: a.var(0), [A]),
    "cumsum": (lambda S, a: S.jnp.cumsum(a, 0), [A]),
    "sort": (lambda S, a: S.jnp.sort(a, 0), [A]),
    "top_k": (lambda S, a: S.lax.top_k(a, 2), [A]),
    "top_k of what is cut": (lambda S, a: S.lax.top_k(a, 2), [ROW]),
    "transpose": (lambda S, a: (a.T, S.jnp.moveaxis(a[:, None], 0, 2)), [A]),
    "new axes": (lambda S, a: (a[:, None], a[None] * S.jnp.ones((3, 1, 1))), [A]),
    "broadcast": (lambda S, a: S.jnp.broadcast_to(a, (3, 8, 16)), [A]),
    "stack": (lambda S, a: S.jnp.stack([a, a], 1), [A]),
    "concatenate": (lambda S, a, b: (S.jnp.concatenate([a, b], 0), S.jnp.concatenate([a, b], 1)), [A, ((8, 16), "x")]),
    "flip": (lambda S, a: a[::-1], [A]),
    "roll": (lambda S, a: S.jnp.roll(a, 1, 0), [A]),
    "pad": (lambda S, a: (S.jnp.pad(a, 1), S.jnp.pad(a, ((4, 4), (8, 8)))), [A]),
    "slice": (lambda S, a: (S.lax.slice(a, (0, 2), (8, 10)), S.lax.slice(a, (0, 0), (2, 16))), [A]),
    "an element": (lambda S, a: (a[3], a[:, -1], a[0, 0]), [A]),
    "dynamic slice": (
        lambda S, a, i: (S.lax.dynamic_slice(a, (i[0].astype(int), 1), (8, 8)), S.lax.dynamic_slice(a, (i[0].astype(int), 0), (4, 16))),
        [A, ((8,),)],
    ),
    "update": (lambda S, a: S.lax.dynamic_update_slice(S.jnp.zeros((16, 16)), a, (0, 0)), [A]),
    "updated": (lambda S, a: S.lax.dynamic_update_slice(a, S.jnp.ones((2, 16)), (0, 0)), [A]),
    "set": (lambda S, a: a.at[np.array([0, 1])].set(1.0), [A]),
    "take": (lambda S, a: S.jnp.take(a, np.array([0, 1]), 0), [A]),
    "take by what is cut": (lambda S, i: S.jnp.take(S.jnp.ones((4, 3)), i.astype("int32") % 4, 0), [X]),
    "one_hot": (lambda S, i: S.jax.nn.one_hot(i.astype("int32") % 4, 4), [X]),
    "merge": (lambda S, a: a.reshape(128), [A]),
    "merge of the major axis": (lambda S, a: a.reshape(128), [((8, 16), "x")]),
    "merge of the minor axis": (lambda S, a: a.reshape(128), [ROW]),
    "merge of whole axes": (lambda S, a: a.reshape(8), [((4, 2), "x", "y")]),
    "split": (lambda S, a: a.reshape(4, 4, 4), [((16, 4), "x")]),
    "split over two": (lambda S, a: a.reshape(4, 4, 4), [((16, 4), ("x", "y"))]),
    "split of what is cut finer": (lambda S, a: a.reshape(2, 8, 4), [((16, 4), "x")]),
    "split by few": (lambda S, a: a.reshape(2, 8, 4), [((16, 4), "y")]),
    "repeat": (lambda S, a: (S.jnp.repeat(a, 2, 0), S.jnp.tile(a, (2, 1))), [A]),
    "product": (lambda S, a, b: a @ b, [A, ((16, 8), "y", "x")]),
    "product of rows and columns": (lambda S, a, b: a @ b, [((8, 16), "x"), ((16, 8), None, "y")]),
    "product along what is cut": (lambda S, a, b: a @ b, [((8, 16), None, "x"), ((16, 8), "x")]),
    "product with itself": (lambda S, a: a @ a.T, [A]),
    "outer product": (lambda S, a: S.jnp.outer(a, a), [X]),
    "products of a batch": (lambda S, a, b: S.jnp.einsum("bij,bjk->bik", a, b), [((8, 4, 4), "x"), ((8, 4, 4), None, "y")]),
    "singular values of a batch": (lambda S, a: S.jnp.linalg.svd(a, compute_uv=False), [((8, 4, 4), "x")]),
    "convolution": (
        lambda S, a: S.lax.conv_general_dilated(a, S.jnp.ones((3, 3, 4, 8)), (1, 1), "SAME",
                                                dimension_numbers=("NHWC", "HWIO", "NHWC")),
        [((8, 16, 16, 4), "x", "y")],
    ),
    "features of a convolution": (
        lambda S, w: S.lax.conv_general_dilated(S.jnp.ones((8, 6, 6, 4)), w, (1, 1), "SAME",
                                                dimension_numbers=("NHWC", "HWIO", "NHWC")),
        [((3, 3, 4, 8), None, None, None, "x")],
    ),
    "fft": (lambda S, a: S.jnp.fft.fft(a).real, [((8, 16), "x")]),
    "constants": (lambda S, a: (a, S.jnp.arange(16) * a, S.jnp.zeros(3)), [A]),
    "random": (lambda S, a: S.jax.random.normal(S.jax.random.key(0), (8, 16)) + a, [A]),
    "vmap": (lambda S, a, b: S.jax.vmap(lambda u, v: u @ v)(a, b), [((8, 4, 4), "x"), ((8, 4, 4), "x")]),
    "gradient": (
        lambda S, w, x: S.jax.grad(lambda w: S.jnp.tanh(x @ w).sum())(w), [((16, 4), None, "y"), ((8, 16), "x")],
    ),
    "cond": (lambda S, a: S.lax.cond(a[0, 0] > 0, lambda q: q * 2, lambda q: q, a), [A]),
    "while": (lambda S, a: S.lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * 2), (0, a)), [A]),
    "carry": (lambda S, a: S.lax.fori_loop(0, 3, lambda i, c: c + a, S.jnp.zeros((8, 16))), [A]),
    "scan": (lambda S, a: S.lax.scan(lambda c, x: (c + x, c), S.jnp.zeros(16), a), [A]),
    "stacked": (lambda S, a: S.lax.scan(lambda c, _: (c + a, c.sum(1)), S.jnp.zeros((8, 16)), None, length=3), [A]),
    "jit": (lambda S, a: S.jax.jit(lambda q: (q.T, q.sum(0)))(a), [A]),
    "constraint": (lambda S, a: S.lax.with_sharding_constraint(a, named(S, "y", "x")) + 1, [A]),
}  # fmt: skip


def shown(S, results):
    leaves = S.jax.tree.leaves(results)
    return [(str(x.sharding.spec), x.committed, x.shape) for x in leaves]


@pytest.mark.parametrize("name", CASES)
def test_results_of_jitted_functions(name):
    function, arguments = CASES[name]

    @same
    def case(S):
        return shown(S, S.jax.jit(functools.partial(function, S))(*[put(S, *one) for one in arguments]))

    case()


@same
def test_what_programs_say(S):
    """Without arguments that were put anywhere."""
    jit, constraint = S.jax.jit, S.lax.with_sharding_constraint
    on_x, on_y, ones = named(S, "x"), named(S, "y"), S.jnp.ones((8, 16))
    loss = lambda q: S.jnp.sin(constraint(q, on_x)).sum()  # noqa: E731
    return shown(
        S,
        [
            jit(lambda q: S.jnp.sin(constraint(q, on_x)))(ones),
            jit(lambda q: (q * 2, constraint(S.jnp.sin(q * 2), on_x)))(ones),
            jit(S.jax.grad(loss))(ones),
            jit(lambda q: (q * 2, q.sum(0)), out_shardings=(on_y, None))(ones),
            jit(lambda p, q: (p @ q, p.sum(0)), in_shardings=(named(S, "x", "y"), None))(ones, S.jnp.ones((16, 4))),
            jit(lambda q: (q.T, q.sum(1)), in_shardings=on_x)(ones),
            jit(lambda: S.jnp.arange(8), out_shardings=on_x)(),
        ],
    )


@same
def test_operations_one_by_one(S):
    a, row = put(S, (8, 16), "x", "y"), put(S, (16,), "y")
    column = put(S, (8, 1), "x")
    return shown(
        S,
        [a + row, a * column, column + row, a + 1, 1 - a, S.jnp.sin(a), a.sum(0), a.T, a @ a.T, a.reshape(128), a > 0,
         S.jnp.where(a > 0, a, row), a.astype("int32"), S.jnp.maximum(row, a), a[:, None], S.jnp.expand_dims(a, 0)],
    )  # fmt: skip
