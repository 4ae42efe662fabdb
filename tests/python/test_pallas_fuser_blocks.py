"""Functions as functions of blocks: each block is that of the whole result."""

import numpy as np
import pytest

import ferrax
import ferrax.numpy as jnp
from ferrax import lax
from ferrax.experimental import pallas as pl
from ferrax.experimental.pallas import fuser

X = np.arange(48, dtype=np.float32).reshape(6, 8)
BIG = np.arange(192, dtype=np.float32).reshape(4, 6, 8)
ROW = np.arange(8, dtype=np.float32)


def cut(x, index, block):
    """A block of an array."""
    return jnp.asarray(x)[
        tuple(int(i) if size is None else slice(int(i) * size, (int(i) + 1) * size) for i, size in zip(index, block))
    ]


def check(function, args, block, grid, strict_mode=True):
    of_values, values, scalars = fuser.get_fusion_values(function, *args)
    spec = pl.BlockSpec(block, lambda *ids: ids[: len(block)])
    kernel, (of_constants, *of_args), _ = fuser.pull_block_spec(
        of_values, spec, grid_len=len(grid), strict_mode=strict_mode,
        scalar_prefetch_handler=fuser.make_scalar_prefetch_handler(),
    )(values, *args)  # fmt: skip
    prefetched = [x[None] for x in scalars]
    whole = function(*args)
    np.testing.assert_array_equal(of_values(values, *args), whole)
    for ids in np.ndindex(*grid):
        ids = tuple(int(i) for i in ids)

        def part(x, own, ids=ids):
            return cut(x, own.index_map(*ids, *prefetched), own.block_shape)

        constants = tuple(part(x, own) for x, own in zip(values, of_constants))
        found = kernel(ids, prefetched, constants, *(part(x, own) for x, own in zip(args, of_args)))
        np.testing.assert_allclose(found, cut(whole, ids, block), rtol=1e-6)
    return of_constants, of_args, len(scalars)


@pytest.mark.parametrize(
    ("function", "args", "block", "grid"),
    [
        (lambda x: x, (X,), (2, 4), (3, 2)),
        (lambda x: ferrax.nn.silu(x) * ferrax.nn.relu(x) + ROW, (X,), (2, 4), (3, 2)),
        (lambda x: ferrax.jit(jnp.sin)(x).T, (X,), (4, 2), (2, 3)),
        (lambda: jnp.asarray(BIG)[1], (), (2, 4), (3, 2)),
        (lambda: lax.slice(X, (2, 4), (6, 8)), (), (2, 4), (2, 1)),
        (lambda x, y: jnp.concatenate([x, y, -ROW[None]]), (X[:2], X), (1, 4), (9, 2)),
        (lambda x, y: jnp.concatenate([x, y]), (X[:2], X), (8, 4), (1, 2)),
        (lambda x: lax.broadcasted_iota(np.int32, (6, 8), 0) + x, (X,), (2, 4), (3, 2)),
        (lambda x: lax.broadcasted_iota(np.int32, (6, 8), 0) * x, (X,), (None, 4), (6, 2)),
        (lambda x: x.sum(1), (X,), (2,), (3,)),
        (lambda x: x.max((0, 2)), (BIG,), (3,), (2,)),
        (lambda x: jnp.broadcast_to(x[:, None], (6, 3, 8)), (X,), (2, None, 4), (3, 3, 2)),
        (lambda x: x.reshape(8, 3, 8), (BIG,), (1, 3, 4), (8, 1, 2)),
        (lambda x: x.reshape(4, 48), (BIG,), (2, 16), (2, 3)),
        (lambda x: x.reshape(4, 3, 2, 2, 4, 1), (BIG,), (1, 1, 2, None, 2, 1), (4, 3, 1, 2, 2, 1)),
        (lambda x: lax.squeeze(x[:, :1], (1,)), (BIG,), (2, 4), (2, 2)),
        (lambda x, y: x[None] + y, (X, BIG), (None, 2, 4), (4, 3, 2)),
    ],
)
def test_blocks_are_those_of_the_whole(function, args, block, grid):
    check(function, args, block, grid)


def test_scalars_are_prefetched():
    @ferrax.jit
    def run(start, factor):
        def function(x):
            return lax.dynamic_index_in_dim(BIG, start + 1, keepdims=False) * factor + x

        of_values, values, scalars = fuser.get_fusion_values(function, X)
        assert (len(values), len(scalars)) == (1, 2)
        spec = pl.BlockSpec((2, 4), lambda i, j, *_: (i, j))
        kernel, ((own,), of_x), _ = fuser.pull_block_spec(
            of_values, spec, grid_len=2, scalar_prefetch_handler=fuser.make_scalar_prefetch_handler(0)
        )(values, X)
        assert own.block_shape == (None, 2, 4)
        assert of_x.index_map(2, 1, None) == (2, 1)
        prefetched = (tuple(x[None] for x in scalars),)
        place, *rest = own.index_map(2, 1, *prefetched)
        block = lax.dynamic_index_in_dim(BIG, place, keepdims=False)[4:, 4:]
        return place, rest, kernel((2, 1), prefetched, (block,), X[4:, 4:]), function(X)[4:, 4:]

    place, rest, found, want = run(1, 0.5)
    assert (int(place), [int(i) for i in rest]) == (2, [2, 1])
    np.testing.assert_array_equal(found, want)


def test_one_argument_at_two_places():
    for function in (lambda x: jnp.concatenate([x, x + 1]), lambda x: x + x.T):
        with pytest.raises(ValueError, match="different blocks"):
            check(function, (X[:, :6],), (3, 3), (2, 2))
    check(lambda x: x - x.max(1, keepdims=True), (X,), (2, 8), (3, 1), strict_mode=False)


@fuser.custom_fusion
def flipped(x, y=1.0):
    return x[::-1] + y


flipped.def_pull_block_spec(
    lambda blocks: (
        fuser.BlockIndexTransform(blocks[0].block_shape, lambda index: (2 - index[0], index[1])),
        fuser.BlockIndexTransform((), lambda index: ()),
    )
)
flipped.def_push_block_spec(lambda specs: (specs[0],))
flipped.def_eval_rule(lambda context, x, y: (x[::-1] + y + 0 * context.out_block_indices[0][0],))


def test_custom_fusion():
    check(lambda x: flipped(2 * x) * 3, (X,), (2, 4), (3, 2))
    np.testing.assert_array_equal(ferrax.jit(flipped)(X, y=2.0), X[::-1] + 2)
    np.testing.assert_array_equal(ferrax.grad(lambda x: (flipped(x) * X).sum())(X), X[::-1])
    np.testing.assert_array_equal(ferrax.vmap(flipped)(BIG), BIG[:, ::-1] + 1)
    spec = pl.BlockSpec((2, 4), lambda i, j: (i, j))
    assert fuser.push_block_spec(flipped, spec, pl.no_block_spec)(X, 1.0) is spec
    with pytest.raises(ValueError, match="def_eval_rule"):
        fuser.custom_fusion(jnp.sin)(X)


@pytest.mark.parametrize(
    ("function", "block", "want", "index"),
    [
        (lambda x: x + jnp.ones_like(x), (2, 4), (2, 4), (1, 2)),
        (lambda x: ferrax.nn.relu(ferrax.jit(jnp.sin)(x)).T, (2, 4), (4, 2), (2, 1)),
        (lambda x: x[None], (2, 4), (1, 2, 4), (0, 1, 2)),
        (lambda x: lax.reshape(x, (6, 1, 8)), (2, 4), (2, 1, 4), (1, 0, 2)),
        (lambda x: x.reshape(3, 2, 4, 2), (1, 2), (1, 1, 1, 2), (0, 1, 2, 0)),
        (lambda x: x.sum(1), (2, 8), (2,), (1,)),
        (lambda x: lax.broadcast_in_dim(x, (3, 6, 8), (1, 2)), (2, 4), (3, 2, 4), (0, 1, 2)),
    ],
)
def test_push(function, block, want, index):
    spec = fuser.push_block_spec(function, pl.BlockSpec(block, lambda i, j: (i, j)))(X)
    assert (spec.block_shape, spec.index_map(1, 2)) == (want, index)


SPEC = pl.BlockSpec((2, 4), lambda i, j: (i, j))
OTHER = pl.BlockSpec((2, 4), lambda i, j: (j, i))


@pytest.mark.parametrize(
    ("run", "kind", "message"),
    [
        (lambda: fuser.push_block_spec(lambda x, y: x + y, SPEC, OTHER)(X, X), ValueError, "different blocks"),
        (lambda: fuser.push_block_spec(lambda x: x.sum(1), SPEC)(X), ValueError, "divide"),
        (lambda: fuser.push_block_spec(lambda x: lax.broadcast_in_dim(x, (6, 8), (0, 1)), SPEC)(X[:1]), ValueError, "repeated"),
        (lambda: fuser.push_block_spec(lambda x: x, SPEC, SPEC)(X), ValueError, "tree"),
        (lambda: fuser.push_block_spec(jnp.sort, SPEC)(X), NotImplementedError, "sort"),
        (lambda: fuser.pull_block_spec(jnp.sort, SPEC, grid_len=2)(X), NotImplementedError, "sort"),
        (lambda: fuser.pull_block_spec(lambda x: x + X, SPEC, grid_len=2)(X), ValueError, "get_fusion_values"),
        (lambda: check(lambda x: x.reshape(8, 6), (X,), (2, 3), (4, 2)), NotImplementedError, "has no blocks"),
        (lambda: check(lambda x: x[1:], (X,), (2, 4), (2, 2)), NotImplementedError, "within a block"),
        (lambda: fuser.evaluate(lambda x: x.T, allow_transpose=False)(X), ValueError, "transpose"),
        (lambda: fuser.evaluate(lambda x: lax.map(jnp.sin, x))(X), NotImplementedError, "scan"),
    ],
)
def test_bad_input(run, kind, message):
    with pytest.raises(kind, match=message):
        run()


def test_evaluate():
    found = fuser.evaluate(lambda x, y: {"a": ferrax.jit(jnp.sin)(x).T, "b": y})(X, y=2)
    np.testing.assert_array_equal(found["a"], jnp.sin(X).T)
    assert found["b"] == 2
