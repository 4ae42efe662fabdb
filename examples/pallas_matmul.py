"""A layer, `gelu(x @ y + bias)`, as one kernel over tiles with an accumulator.

Each step of the grid multiplies two tiles and adds to scratch memory; the last step along the sum adds the bias and
writes the tile of the result. The first two axes of the grid run in parallel, the third in order. Sizes need not be
multiples of tiles. The picture has the time by size of tiles, beside that of `jnp`.
"""

import functools
import time

import numpy as np
from common import check, options, pyplot, save

import ferrax as jax
import ferrax.numpy as jnp
from ferrax.experimental import pallas as pl
from ferrax.experimental.pallas import tpu as pltpu


def tile_of(ref, *places):
    """What a ref holds, with zeros outside of the array: for each axis, the index of the tile and the array's size.

    There is NaN there, of which a derivative makes NaN everywhere, for zero times NaN is NaN.
    """
    value = ref[...]
    for axis, (index, size) in enumerate(places):
        if size % value.shape[axis]:
            inside = index * value.shape[axis] + jnp.arange(value.shape[axis]) < size
            value = jnp.where(jnp.expand_dims(inside, 1 - axis), value, 0)
    return value


def step(x_ref, y_ref, bias_ref, o_ref, acc_ref, *, sizes):
    """Tiles f32[m, k] and f32[k, n], the bias f32[1, n] and the result f32[m, n] of matrices of these sizes."""
    i, j, k = (pl.program_id(axis) for axis in range(3))
    m, n, length = sizes

    @pl.when(k == 0)
    def _():
        acc_ref[...] = jnp.zeros_like(acc_ref)

    acc_ref[...] += tile_of(x_ref, (i, m), (k, length)) @ tile_of(y_ref, (k, length), (j, n))

    @pl.when(k == pl.num_programs(2) - 1)
    def _():
        o_ref[...] = jax.nn.gelu(acc_ref[...] + tile_of(bias_ref, (0, 1), (j, n)))


def layer(x, y, bias, tile):
    """x f32[m, k], y f32[k, n] and bias f32[1, n] by square tiles: f32[m, n]."""
    (m, length), n = x.shape, y.shape[1]
    return pl.pallas_call(
        functools.partial(step, sizes=(m, n, length)),
        jax.ShapeDtypeStruct((m, n), x.dtype),
        grid=(pl.cdiv(m, tile), pl.cdiv(n, tile), pl.cdiv(length, tile)),
        in_specs=[
            pl.BlockSpec((tile, tile), lambda i, j, k: (i, k)),
            pl.BlockSpec((tile, tile), lambda i, j, k: (k, j)),
            pl.BlockSpec((1, tile), lambda i, j, k: (0, j)),
        ],
        out_specs=pl.BlockSpec((tile, tile), lambda i, j, k: (i, j)),
        scratch_shapes=[pltpu.VMEM((tile, tile), jnp.float32)],
        name="layer",
    )(x, y, bias)


def plain(x, y, bias):
    return jax.nn.gelu(x @ y + bias)


def milliseconds(function, *arguments):
    """The least of some runs, after one that compiles."""
    jax.block_until_ready(function(*arguments))
    times = []
    for _ in range(5):
        start = time.perf_counter()
        jax.block_until_ready(function(*arguments))
        times.append(time.perf_counter() - start)
    return 1e3 * min(times)


def main():
    small = options(__doc__).small
    m, length, n = (250, 300, 200) if small else (1000, 1200, 800)
    tiles = [32, 64, 100, 128] if small else [64, 128, 200, 256, 512]
    rng = np.random.default_rng(0)
    x, y, bias = (jnp.asarray(rng.standard_normal(s), jnp.float32) for s in ((m, length), (length, n), (1, n)))
    expected = plain(x, y, bias)
    by_tiles = jax.jit(layer, static_argnums=3)
    worst = max(float(jnp.max(jnp.abs(by_tiles(x, y, bias, tile) - expected))) for tile in tiles)
    loss = lambda f: lambda *given: jnp.sum(jnp.sin(f(*given)))  # noqa: E731
    slopes = jax.jit(jax.grad(loss(lambda *given: layer(*given, tiles[0])), (0, 1, 2)))(x, y, bias)
    known = jax.grad(loss(plain), (0, 1, 2))(x, y, bias)
    apart = max(float(jnp.max(jnp.abs(a - b)) / jnp.max(jnp.abs(b))) for a, b in zip(slopes, known))
    figure, axes = pyplot.subplots(figsize=(6, 4))
    axes.plot(tiles, [milliseconds(by_tiles, x, y, bias, tile) for tile in tiles], "o-", label="kernel")
    axes.axhline(milliseconds(jax.jit(plain), x, y, bias), color="C1", label="jnp")
    axes.set(xlabel="size of tiles", ylabel="ms", ylim=(0, None), title=f"gelu(x @ y + bias), {m} x {length} x {n}")
    axes.legend()
    save(figure, "times.png")
    check("largest difference to jnp", worst, high=1e-5 * length)
    check("gradients, largest difference to those of jnp, relative", apart, high=1e-4)


if __name__ == "__main__":
    main()
