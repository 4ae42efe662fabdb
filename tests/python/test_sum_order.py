"""The bits of a sum are those of its operand's elements in row-major order of the reduced axes, whoever else reads them.

Alone, beside other results, of operands that are transposed or computed, with few threads and many.
"""

import functools
import itertools

import numpy as np
import pytest
from oracle import FERRAX

jax, jnp = FERRAX.jax, FERRAX.jnp

SHAPES = [(64, 4, 64), (7, 5, 2), (3, 70, 5), (33, 9, 130), (2, 300, 300)]
LANES, BLOCK = 16, 256


def data(shape):
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    return x * 10.0 ** np.random.default_rng(1).integers(-3, 4, shape).astype(np.float32)


def tree(terms):
    """Of each row of terms: blocks of 256 in 16 lanes, which are added by halves; then blocks as a counter counts.

    Up to seven terms are added in order.
    """
    counter = []
    for start in range(0, terms.shape[1], BLOCK):
        block = terms[:, start : start + BLOCK]
        lanes = [np.zeros_like(block[:, 0]) + block[:, lane] for lane in range(min(LANES, block.shape[1]))]
        for place in range(LANES, block.shape[1]):
            lanes[place % LANES] = lanes[place % LANES] + block[:, place]
        if block.shape[1] < LANES // 2:
            lanes = [functools.reduce(np.add, lanes)]
        half = LANES // 2
        while half:
            for lane in range(half):
                if lane + half < len(lanes):
                    lanes[lane] = lanes[lane] + lanes[lane + half]
            lanes, half = lanes[:half], half // 2
        value, level = lanes[0], 0
        while level < len(counter) and counter[level] is not None:
            value, counter[level], level = counter[level] + value, None, level + 1
        counter[level : level + 1] = [value]
    left = [value for value in counter if value is not None]
    value = left[0]
    for earlier in left[1:]:
        value = earlier + value
    return value


def in_order(x, axes):
    kept = [axis for axis in range(x.ndim) if axis not in axes]
    terms = x.transpose(*kept, *axes).reshape(int(np.prod([x.shape[axis] for axis in kept])), -1)
    return tree(terms).reshape([x.shape[axis] for axis in kept])


CASES = [
    (permutation, axes)
    for permutation in itertools.permutations(range(3))
    for count in (1, 2, 3)
    for axes in itertools.combinations(range(3), count)
]


@pytest.mark.parametrize("permutation, axes", CASES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_order_of_terms(shape, permutation, axes):
    x = data(shape)
    turned = x.transpose(permutation)
    wanted = in_order(turned, axes)
    programs = {
        "eager": lambda x: jnp.transpose(x, permutation).sum(axes),
        "alone": jax.jit(lambda x: jnp.transpose(x, permutation).sum(axes)),
        "beside": jax.jit(lambda x: [jnp.transpose(x, permutation).sum(axes), jnp.transpose(x, permutation) * 2]),
        "beside the operand": jax.jit(lambda x: [jnp.transpose(x, permutation).sum(axes), x * 2, x.max()]),
        "of what is computed": jax.jit(lambda x: jnp.transpose(x * 2, permutation).sum(axes) / 2),
        "beside a product": jax.jit(
            lambda x: [jnp.transpose(x, permutation).sum(axes), jnp.transpose(jnp.exp(-x * x), permutation).sum(axes)]
        ),
    }
    for name, program in programs.items():
        got = program(x)
        got = np.asarray(got[0] if isinstance(got, list) else got)
        assert got.tobytes() == wanted.astype(np.float32).tobytes(), name


def test_order_of_some_hundred_terms_side_by_side():
    """Where threads share the terms, too, each has whole blocks."""
    for shape in [(600, 1000), (300, 1300), (1030, 530), (4000, 40)]:
        x = data(shape)
        wanted = in_order(x, (0,)).tobytes()
        for program in (lambda x: x.sum(0), lambda x: (x * 2).sum(0) / 2, lambda x: x.T.sum(1)):
            assert np.asarray(jax.jit(program)(x)).tobytes() == wanted, shape


def test_few_terms_are_added_as_they_are_written():
    """As NumPy and JAX add them: what cancels first leaves what is small."""
    x = np.array([1.0, -1.0, 1e-20, 3e-21, 1e-20, 2e-21, 1e-20], np.float32)
    for count in range(3, 8):
        wanted = functools.reduce(np.add, x[:count], np.float32(0))
        for sum_ in (jnp.sum, jax.jit(jnp.sum), lambda x: jnp.dot(x, jnp.ones_like(x))):
            assert sum_(x[:count]) == wanted, count
        columns = np.stack([x[:count]] * 5, axis=1)
        for result in (columns.sum(0), jnp.sum(columns, 0), jax.jit(lambda x: jnp.sum(x * 1.0, 0))(columns)):
            np.testing.assert_array_equal(result, np.full(5, wanted))
    assert np.isfinite(jax.scipy.special.logsumexp(jnp.array([0.0, 0.0, -40.0]), b=jnp.array([1.0, -1.0, 1.0])))


@pytest.mark.parametrize("shape", [(70, 100), (100, 70), (129, 67), (64, 200), (3, 300, 70)], ids=str)
def test_each_term_counts_once_where_their_order_is_no_matter(shape):
    """Of two operands one is read along its rows and one across; the last tiles are narrower than others."""
    rng = np.random.default_rng(2)
    x, y = (rng.integers(-1000, 1000, s).astype(np.int32) for s in (shape, (*shape[:-2], *shape[:-3:-1])))
    x[..., -1, -1] = 2001  # the largest is in the last tile
    turned = np.swapaxes(x, -1, -2)
    reductions = {
        "all": lambda n, x, y: [(x + y).sum(), (x - y).max(), (x ^ y).min()],
        "each": lambda n, x, y: [(x + y).sum((-1, -2)), (x - y).max((-1, -2)), (x * y).sum(-1), (x * y).sum(-2)],
    }
    for name, reduce in reductions.items():
        got = jax.jit(lambda x, y: reduce(jnp, jnp.swapaxes(x, -1, -2), y))(x, y)  # noqa: B023
        for a, b in zip(got, reduce(np, turned, y), strict=True):
            np.testing.assert_array_equal(np.asarray(a), b.astype(np.int32), err_msg=name)
