"""However a grid is run, its steps do what they do one after another.

The reference is a loop over the grid in NumPy, which shares nothing with what it checks.
"""

import itertools
import random

import numpy as np
import pytest

import ferrax
import ferrax.numpy as jnp
from ferrax.experimental import pallas as pl
from ferrax.experimental.pallas import tpu as pltpu

# A dimension's index map: by which indices of the step it goes, and how far it is moved.
MAPS = ("own", "own", "own", "zero", "sum", "next", "half")


class Dimension:
    def __init__(self, rng, grid, used):
        free = [axis for axis in range(len(grid)) if axis not in used] or list(range(len(grid)))
        self.kind = rng.choice(MAPS) if grid else "zero"
        self.axis = rng.choice(free) if grid else 0
        self.other = rng.randrange(len(grid)) if grid else 0
        used.append(self.axis)
        self.block = rng.choice([None, 1, 2, 3])
        count = {"own": 1, "zero": 0, "sum": 2, "next": 1, "half": 1}[self.kind]
        steps = (grid[self.axis] if grid else 1) * max(count, 1)
        self.size = max(1, steps * (self.block or 1) - rng.choice([0, 0, 0, 1]))

    def index(self, ids):
        if self.kind == "zero":
            return 0
        at = ids[self.axis]
        return {"own": at, "sum": at + ids[self.other], "next": at + 1, "half": at // 2}[self.kind]


class Array:
    def __init__(self, rng, grid, rank):
        used = []
        self.dims = [Dimension(rng, grid, used) for _ in range(rank)]
        self.shape = tuple(dim.size for dim in self.dims)

    def spec(self):
        return pl.BlockSpec(
            tuple(dim.block for dim in self.dims), lambda *ids: tuple(dim.index(ids) for dim in self.dims)
        )

    def padded(self, array):
        widths = [(0, -dim.size % (dim.block or 1)) for dim in self.dims]
        return np.pad(array, widths, constant_values=np.iinfo(np.int32).min)

    def region(self, ids, shape):
        """Where a step's block is, moved into the array."""
        starts = [dim.index(ids) * (dim.block or 1) for dim in self.dims]
        starts = [
            max(0, min(start, size - (dim.block or 1)))
            for start, size, dim in zip(starts, shape, self.dims)
        ]
        return tuple(
            start if dim.block is None else slice(start, start + dim.block)
            for start, dim in zip(starts, self.dims)
        )


def in_numpy(grid, inputs, outputs, arrays, kernel, scratch):
    """The outputs, by a loop over the grid."""
    read = [array.padded(value) for array, value in zip(inputs, arrays)]
    written = [array.padded(np.full(array.shape, np.iinfo(np.int32).min, np.int32)) for array in outputs]
    kept = [np.full(shape, np.iinfo(np.int32).min, np.int32) for shape in scratch]
    for ids in itertools.product(*map(range, grid)):
        places = [array.region(ids, value.shape) for array, value in zip([*inputs, *outputs], [*read, *written])]
        blocks = [np.array(value[place]) for value, place in zip([*read, *written], places)]
        kernel(ids, np, *blocks, *kept)
        for value, place, block in zip([*read, *written], places, blocks):
            value[place] = block
    return [
        value[tuple(slice(size) for size in array.shape)] for array, value in zip(outputs, written)
    ]


def make_kernel(rng, inputs, outputs, scratch):
    """A kernel on refs or on NumPy's arrays: sums of what it sees, with what it has kept."""
    keeps = rng.choice(["reset", "add"])
    into = rng.choice(["write", "add", "write"])
    changes = rng.random() < 0.2
    by_id = rng.random() < 0.5

    def kernel(ids, numpy, *refs):
        read, written, kept = refs[: len(inputs)], refs[len(inputs) : len(inputs) + len(outputs)], refs[
            len(inputs) + len(outputs) :
        ]  # fmt: skip
        total = sum((ref[...].sum() for ref in read), start=numpy.int32(1))
        if by_id:
            for place in ids:
                total = total * numpy.int32(3) + place
        for ref in kept:
            if keeps == "reset":
                ref[...] = numpy.zeros(ref.shape, numpy.int32) + total
            else:
                ref[...] = ref[...] + total
            total = ref[...].sum() + numpy.int32(1)
        for number, ref in enumerate(written):
            values = numpy.zeros(ref.shape, numpy.int32) + total.astype(numpy.int32) + numpy.int32(number)
            ref[...] = values if into == "write" else ref[...] + values
        if changes:
            read[0][...] = read[0][...] + numpy.int32(1)

    return kernel


@pytest.mark.parametrize("seed", range(150))
def test_random_grids(seed):
    rng = random.Random(seed)
    grid = tuple(rng.randint(1, 4) for _ in range(rng.randint(0, 3)))
    inputs = [Array(rng, grid, rng.randint(1, 3)) for _ in range(rng.randint(1, 2))]
    outputs = [Array(rng, grid, rng.randint(1, 3)) for _ in range(rng.randint(1, 2))]
    scratch = [(2,)] * rng.choice([0, 0, 1])
    kernel = make_kernel(rng, inputs, outputs, scratch)
    arrays = [
        np.random.default_rng(seed).integers(-5, 5, array.shape).astype(np.int32) for array in inputs
    ]
    before = [array.copy() for array in arrays]
    with np.errstate(over="ignore"):
        expected = in_numpy(grid, inputs, outputs, arrays, kernel, scratch)

    def on_refs(*refs):
        kernel([pl.program_id(axis) for axis in range(len(grid))], jnp, *refs)

    call = pl.pallas_call(
        on_refs, tuple(ferrax.ShapeDtypeStruct(array.shape, jnp.int32) for array in outputs), grid=grid,
        in_specs=[array.spec() for array in inputs], out_specs=tuple(array.spec() for array in outputs),
        scratch_shapes=[pltpu.VMEM(shape, jnp.int32) for shape in scratch],
    )  # fmt: skip
    for run in (call, ferrax.jit(call)):
        for found, value in zip(run(*arrays), expected):
            np.testing.assert_array_equal(found, value)
    for array, value in zip(arrays, before):
        np.testing.assert_array_equal(array, value)


def batched_axes(call, *arrays):
    """Which axes of the grid of a call are batched."""
    (eqn,) = ferrax.make_jaxpr(call)(*arrays).eqns
    return eqn.params["grid_mapping"].plan.batched


def double(x, o):
    o[...] = x[...] * 2


def plans(kernel, grid, blocks, out, shapes, scratch=()):
    call = pl.pallas_call(
        kernel, ferrax.ShapeDtypeStruct(out[2], jnp.float32), grid=grid,
        in_specs=[pl.BlockSpec(*block) for block in blocks], out_specs=pl.BlockSpec(*out[:2]),
        scratch_shapes=scratch,
    )  # fmt: skip
    return batched_axes(call, *(jnp.zeros(shape) for shape in shapes))


def accumulate(x, o, acc):
    @pl.when(pl.program_id(1) == 0)
    def _():
        acc[...] = jnp.zeros_like(acc)

    acc[...] += x[...]
    o[...] = acc[...]


def hand_on(x, o, acc):
    acc[...] = x[...] + acc[...]
    o[...] = acc[...]


def test_axes_are_batched_where_steps_have_blocks_of_their_own():
    tile = ((2, 2), lambda i, j: (i, j))
    assert plans(double, (3, 2), [tile], (*tile, (6, 4)), [(6, 4)]) == (0, 1)
    row = ((2, 2), lambda i, j: (i, 0))
    assert plans(double, (3, 2), [tile], (*row, (6, 2)), [(6, 4)]) == (0,)
    scratch = [pltpu.VMEM((2, 2), jnp.float32)]
    assert plans(accumulate, (3, 2), [tile], (*row, (6, 2)), [(6, 4)], scratch) == (0,)
    assert plans(hand_on, (3, 2), [tile], (*row, (6, 2)), [(6, 4)], scratch) == ()
    shifted = ((2, 2), lambda i, j: (i + 1, j))
    assert plans(double, (2, 2), [tile], (*shifted, (6, 4)), [(4, 4)]) == (1,)
    beyond = ((2, 2), lambda i, j: (i, j))
    assert plans(double, (4, 2), [tile], (*beyond, (6, 4)), [(8, 4)]) == (1,)


def test_many_steps_in_order():
    steps = 5000

    def kernel(x, o, kept):
        @pl.when(pl.program_id(0) == 0)
        def _():
            kept[0] = 0

        kept[0] = kept[0] * 3 + x[0]
        o[0] = kept[0]

    block = pl.BlockSpec((1,), lambda i: (i,))
    x = np.arange(steps, dtype=np.int32)
    found = pl.pallas_call(
        kernel, ferrax.ShapeDtypeStruct((steps,), jnp.int32), grid=(steps,), in_specs=[block], out_specs=block,
        scratch_shapes=[pltpu.SMEM((1,), jnp.int32)],
    )(x)  # fmt: skip
    expected, now = [], np.int32(0)
    with np.errstate(over="ignore"):
        for value in x:
            now = np.int32(now * np.int32(3) + value)
            expected.append(now)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("size", [64, 1024])
def test_large_blocks(size):
    """As large as code paths for large arrays begin, in parallel and in order."""
    x = np.random.default_rng(0).standard_normal((size, size)).astype(np.float32)
    block = ((size // 4, size // 2), lambda i, j: (i, j))

    def kernel(x, o):
        o[...] = jnp.sin(x[...]) + x[...]

    options = {"in_specs": [pl.BlockSpec(*block)], "out_specs": pl.BlockSpec(*block), "grid": (4, 2)}
    found = pl.pallas_call(kernel, ferrax.ShapeDtypeStruct(x.shape, x.dtype), **options)(x)
    np.testing.assert_array_equal(found, jnp.sin(x) + x)
    total = pl.pallas_call(
        lambda x, o: o.__setitem__(..., jnp.where(pl.program_id(0) == 0, x[...], o[...] + x[...])),
        ferrax.ShapeDtypeStruct((size // 4, size), x.dtype), grid=(4, 2), in_specs=[pl.BlockSpec(*block)],
        out_specs=pl.BlockSpec((size // 4, size // 2), lambda i, j: (0, j)),
    )(x)  # fmt: skip
    parts = x.reshape(4, size // 4, size)
    expected = parts[0]
    for part in parts[1:]:
        expected = expected + part
    np.testing.assert_array_equal(total, expected)
