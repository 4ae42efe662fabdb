"""A grid that is run as one program over whole arrays does what its steps do one after another.

Each kernel is run in both ways by ferrax, with derivatives and batches, and by JAX's interpreter.
"""

import jax
import numpy as np
import pytest
from jax import lax as jax_lax
from jax.experimental import pallas as jax_pl

import ferrax
import ferrax.numpy as jnp
from ferrax import lax
from ferrax._src.pallas import flat
from ferrax.experimental import pallas as pl

SIDES = {
    "ferrax": (ferrax, jnp, lax, pl),
    "jax": (jax, jax.numpy, jax_lax, jax_pl),
}


def rows(p, count, width):
    return p.BlockSpec((count, width), lambda i: (i, 0))


def tiles(p, *block):
    return p.BlockSpec(block, lambda i, j: (i, j))


def windows(p, size, stride, *padding):
    return p.BlockSpec((p.Element(size, *padding),), lambda i: (i * stride,))


def elementwise(xp, lx, p):
    def kernel(x, y, o):
        o[...] = xp.where(x[...] > 0, xp.sin(x[...]), xp.clip(x[...], -1, 1)) * y[...] + 1

    return kernel, [(9, 7), (9, 7)], (9, 7), (3, 2), [tiles(p, 4, 4)] * 2, tiles(p, 4, 4)


def places(xp, lx, p):
    def kernel(x, o):
        row = p.program_id(0) * 4 + lx.broadcasted_iota(xp.int32, (4, 3), 0)
        column = p.program_id(1) * 3 + xp.arange(3)
        o[...] = xp.where((row < 5) & (column > 1), x[...], row.astype(xp.float32) + p.program_id(1))

    return kernel, [(6, 8)], (6, 8), (2, 3), [tiles(p, 4, 3)], tiles(p, 4, 3)


def masked_columns(xp, lx, p):
    """What is beyond the array is left out of sums."""

    def kernel(x, o):
        inside = lx.broadcasted_iota(xp.int32, (2, 8), 1) < 6
        o[...] = xp.where(inside, x[...], 0).sum(1, keepdims=True) + xp.zeros((1, 8))

    return kernel, [(4, 6)], (4, 8), (2,), [rows(p, 2, 8)], rows(p, 2, 8)


def softmax(xp, lx, p):
    def kernel(x, o):
        e = xp.exp(x[...] - x[...].max(-1, keepdims=True))
        o[...] = e / e.sum(-1, keepdims=True)

    return kernel, [(10, 6)], (10, 6), (3,), [rows(p, 4, 6)], rows(p, 4, 6)


def layer_norm(xp, lx, p):
    def kernel(x, scale, shift, o):
        v = x[...]
        mean = v.mean(-1, keepdims=True)
        variance = ((v - mean) ** 2).mean(-1, keepdims=True)
        o[...] = (v - mean) * lx.rsqrt(variance + 1e-5) * scale[...] + shift[...]

    whole = p.BlockSpec((6,), lambda i: (0,))
    return kernel, [(8, 6), (6,), (6,)], (8, 6), (4,), [rows(p, 2, 6), whole, whole], rows(p, 2, 6)


def block_sums(xp, lx, p):
    """A reduction along what the grid divides, and a cumulative sum within blocks."""

    def kernel(x, o):
        o[...] = xp.cumsum(x[...], 0) - x[...].max()

    return kernel, [(6, 4)], (6, 4), (3, 2), [tiles(p, 2, 2)], tiles(p, 2, 2)


def sorted_blocks(xp, lx, p):
    def kernel(x, o):
        o[...] = xp.concatenate([lx.rev(xp.sort(x[...], 1), (1,)), x[:, :1]], 1)

    return kernel, [(6, 4)], (6, 5), (3,), [rows(p, 2, 4)], rows(p, 2, 5)


def transposed(xp, lx, p):
    def kernel(x, o):
        o[...] = x[...].T * 2

    return kernel, [(6, 4)], (4, 6), (3, 2), [tiles(p, 2, 2)], p.BlockSpec((2, 2), lambda i, j: (j, i))


def product(xp, lx, p):
    def kernel(x, y, o):
        o[...] = xp.dot(x[...], y[...], preferred_element_type=xp.float32)

    specs = [p.BlockSpec((4, 5), lambda i, j: (i, 0)), p.BlockSpec((5, 2), lambda i, j: (0, j))]
    return kernel, [(7, 5), (5, 6)], (7, 6), (2, 3), specs, tiles(p, 4, 2)


def heads(xp, lx, p):
    """Attention of heads, whose dimension the kernel does not see."""

    def kernel(q, k, v, o):
        scores = xp.exp(q[...] @ k[...].T)
        o[...] = (scores / scores.sum(-1, keepdims=True)) @ v[...]

    queries = p.BlockSpec((None, 2, 4), lambda h, i: (h, i, 0))
    others = p.BlockSpec((None, 6, 4), lambda h, i: (h, 0, 0))
    return kernel, [(3, 6, 4)] * 3, (3, 6, 4), (3, 3), [queries, others, others], queries


def part(xp, lx, p):
    """Only a part of the output is written."""

    def kernel(x, o):
        o[...] = x[...] + p.program_id(0)

    return kernel, [(6, 4)], (9, 4), (3,), [rows(p, 2, 4)], rows(p, 2, 4)


def stencil(xp, lx, p):
    def kernel(x, o):
        o[...] = x[:-2] + 2 * x[1:-1] - x[p.ds(2, 4)]

    return kernel, [(12,)], (10,), (3,), [windows(p, 6, 4, (0, 2))], p.BlockSpec((4,), lambda i: (i,))


def padded_stencil(xp, lx, p):
    def kernel(x, w, o):
        v = xp.where(xp.isnan(x[...]), 0, x[...])
        o[...] = v[:-2] * w[0] + v[1:-1] * w[1] + v[2:] * w[2]

    whole = p.BlockSpec((3,), lambda i: (0,))
    return kernel, [(8,), (3,)], (8,), (2,), [windows(p, 6, 4, (1, 1)), whole], p.BlockSpec((4,), lambda i: (i,))


def five_points(xp, lx, p):
    def kernel(x, o):
        v = x[...]
        o[...] = v[:-2, 1:-1] + v[2:, 1:-1] + v[1:-1, :-2] + v[1:-1, 2:]

    window = p.BlockSpec((p.Element(6, (0, 1)), p.Element(5, (0, 2))), lambda i, j: (i * 4, j * 3))
    return kernel, [(13, 9)], (11, 7), (3, 3), [window], tiles(p, 4, 3)


def separable(xp, lx, p):
    """Along the second dimension windows are added whole, before any is a block."""

    def kernel(x, o):
        t = x[:-2] + xp.sin(x[1:-1]) + x[2:]
        o[...] = t[:, :-2] * t[:, 2:] + t[:, 1:-1]

    window = p.BlockSpec((p.Element(6), p.Element(5)), lambda i, j: (i * 4, j * 3))
    return kernel, [(10, 8)], (8, 6), (2, 2), [window], tiles(p, 4, 3)


def every_other(xp, lx, p):
    def kernel(x, o):
        o[...] = lx.slice(x[...], (0,), (8,), (2,)) + lx.slice(x[...], (1,), (9,), (2,))

    return kernel, [(17,)], (8,), (2,), [windows(p, 9, 8)], p.BlockSpec((4,), lambda i: (i,))


FLAT = [
    elementwise, places, masked_columns, softmax, layer_norm, block_sums, sorted_blocks, transposed, product, heads,
    part, stencil, padded_stencil, five_points, separable, every_other,
]  # fmt: skip


def window_sums(xp, lx, p):
    """Windows are reduced: no part of one array is."""

    def kernel(x, o):
        o[...] = xp.zeros(4) + x[...].sum()

    return kernel, [(12,)], (8,), (2,), [windows(p, 6, 4)], p.BlockSpec((4,), lambda i: (i,))


def backwards(xp, lx, p):
    def kernel(x, o):
        o[...] = x[...]

    block = p.BlockSpec((2,), lambda i: (2 - i,))
    return kernel, [(6,)], (6,), (3,), [block], p.BlockSpec((2,), lambda i: (i,))


def branches(xp, lx, p):
    def kernel(x, o):
        o[...] = x[...]

        @p.when(p.program_id(0) == 1)
        def _():
            o[...] = -x[...]

    return kernel, [(6,)], (6,), (3,), [p.BlockSpec((2,), lambda i: (i,))], p.BlockSpec((2,), lambda i: (i,))


def beside(xp, lx, p):
    """The same axis divides both sides of a sum along other dimensions."""

    def kernel(x, y, o):
        o[...] = x[...] + y[...]

    blocks = [p.BlockSpec((2, 2), lambda i: (i, 0)), p.BlockSpec((2, 2), lambda i: (0, i))]
    return kernel, [(6, 2), (2, 6)], (6, 2), (3,), blocks, p.BlockSpec((2, 2), lambda i: (i, 0))


BLOCKS = [window_sums, backwards, branches, beside]


def made(case, side):
    module, xp, lx, p = SIDES[side]
    kernel, shapes, out, grid, in_specs, out_specs = case(xp, lx, p)
    function = p.pallas_call(
        kernel, module.ShapeDtypeStruct(out, np.float32), grid=grid, in_specs=in_specs, out_specs=out_specs,
        interpret=True,
    )  # fmt: skip
    rng = np.random.default_rng(1)
    return function, [rng.uniform(-1, 1, shape).astype(np.float32) for shape in shapes]


def is_flat(function, arrays):
    closed = ferrax.make_jaxpr(function)(*arrays)
    return closed.eqns[-1].params["grid_mapping"].flat is not None


def block_by_block(case, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(flat, "program", lambda call, plan: None)
        function, arrays = made(case, "ferrax")
        ferrax.make_jaxpr(function)(*arrays)
        assert not is_flat(function, arrays)
    return function


@pytest.mark.parametrize("case", FLAT + BLOCKS, ids=lambda case: case.__name__)
def test_all_steps_at_once(case, monkeypatch):
    function, arrays = made(case, "ferrax")
    assert is_flat(function, arrays) == (case in FLAT)
    blocks = block_by_block(case, monkeypatch)
    expected, _ = made(case, "jax")
    found = ferrax.jit(function)(*arrays)
    np.testing.assert_allclose(found, blocks(*arrays), 2e-6, 2e-6)
    np.testing.assert_allclose(found, expected(*arrays), 2e-6, 2e-6)
    stacked = [np.stack([x, x[::-1]]) for x in arrays]
    mapped = ferrax.vmap(function)(*stacked)
    for number in range(2):
        np.testing.assert_allclose(mapped[number], blocks(*(x[number] for x in stacked)), 2e-6, 2e-6)


@pytest.mark.parametrize("case", FLAT, ids=lambda case: case.__name__)
def test_derivatives(case, monkeypatch):
    function, arrays = made(case, "ferrax")
    blocks = block_by_block(case, monkeypatch)
    weights = np.random.default_rng(2).uniform(0.5, 1, blocks(*arrays).shape).astype(np.float32)

    def loss(function):
        return lambda *arrays: (jnp.nan_to_num(function(*arrays)) * weights).sum()

    numbers = tuple(range(len(arrays)))
    found = ferrax.grad(loss(function), numbers)(*arrays)
    expected = ferrax.grad(loss(blocks), numbers)(*arrays)
    for ours, theirs in zip(found, expected):
        # Blocks that overhang have NaN in what they drop, and times zero it is NaN.
        kept = ~np.isnan(np.asarray(theirs))
        np.testing.assert_allclose(np.asarray(ours)[kept], np.asarray(theirs)[kept], 1e-5, 1e-5)
    assert all(np.isfinite(x).all() for x in found) or case in (masked_columns, part)
    tangents = [np.cos(x) for x in arrays]
    ours = ferrax.jvp(function, tuple(arrays), tuple(tangents))
    theirs = ferrax.jvp(blocks, tuple(arrays), tuple(tangents))
    for one, other in zip(ours, theirs):
        np.testing.assert_allclose(one, other, 1e-5, 1e-5)


def test_what_overhangs_is_not_computed():
    """An array of just the size of the output comes from arrays of their own size."""
    function, arrays = made(five_points, "ferrax")
    program = ferrax.make_jaxpr(ferrax.make_jaxpr(function)(*arrays).eqns[-1].params["grid_mapping"])(*arrays)
    shapes = {var.aval.shape for eqn in program.eqns for var in eqn.outvars}
    assert (11, 7) in shapes and all(shape[0] <= 13 and shape[1] <= 9 for shape in shapes if len(shape) == 2)
    assert not {"pad", "gather", "concatenate", "select_n"} & {eqn.primitive.name for eqn in program.eqns}


def test_debug_says_how_it_runs(capsys):
    for case, words in ((five_points, "all steps at once"), (branches, "block by block")):
        module, xp, lx, p = SIDES["ferrax"]
        kernel, shapes, out, grid, in_specs, out_specs = case(xp, lx, p)
        call = p.pallas_call(
            kernel, module.ShapeDtypeStruct(out, np.float32), grid=grid, in_specs=in_specs, out_specs=out_specs,
            debug=True,
        )  # fmt: skip
        call(*(np.ones(shape, np.float32) for shape in shapes))
        assert words in capsys.readouterr().out
