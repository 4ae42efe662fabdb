"""Kernels over grids (`experimental.pallas`): beside JAX's interpreter of them, and by how much longer they take than
the same function of `jnp` in the same library."""

from __future__ import annotations

import functools
import importlib
from types import SimpleNamespace

import numpy as np
import timing
from timing import Row, case, compiled

TITLE = "Kernels over grids"
# As many times faster than JAX's interpreter, and as many times longer than without a grid.
GOAL = 20.0
MOST = 1.3
ROUNDS = 5
SIDE, TILE = 1024, 256
HEADS, LENGTH, WIDTH, BLOCK = 8, 1024, 64, 128
POINTS, WINDOW = 1500, 128
GROUPS = 8


def _modules(library):
    name = f"{library.jax.__name__}.experimental.pallas"
    pallas = importlib.import_module(name)
    parts = {part: importlib.import_module(f"{name}.{part}") for part in ("tpu", "triton")}
    return SimpleNamespace(pl=pallas, lax=library.jax.lax, **parts)


def _call(library, kernel, out, **options):
    """`pallas_call` with outputs of these shapes and dtypes: of one pair, or a list of them."""
    shapes = [library.jax.ShapeDtypeStruct(*pair) for pair in (out if isinstance(out, list) else [out])]
    pallas = _modules(library).pl
    return pallas.pallas_call(kernel, shapes if isinstance(out, list) else shapes[0], interpret=True, **options)


def _floats(*shape):
    return np.random.default_rng(0).standard_normal(shape, np.float32)


def _elementwise(library, x, y):
    def kernel(x, y, o):
        o[...] = library.jnp.sin(x[...]) * y[...] + 1

    block = _modules(library).pl.BlockSpec((TILE, TILE), lambda i, j: (i, j))
    grid = tuple(size // TILE for size in x.shape)
    return _call(library, kernel, (x.shape, x.dtype), grid=grid, in_specs=[block, block], out_specs=block)(x, y)


def _product(library, x, y):
    m, jnp = _modules(library), library.jnp

    def kernel(x, y, o, total):
        @m.pl.when(m.pl.program_id(2) == 0)
        def _():
            total[...] = jnp.zeros_like(total)

        total[...] += x[...] @ y[...]

        @m.pl.when(m.pl.program_id(2) == m.pl.num_programs(2) - 1)
        def _():
            o[...] = total[...]

    def block(index):
        return m.pl.BlockSpec((TILE, TILE), index)

    return _call(
        library, kernel, (x.shape, x.dtype), grid=(SIDE // TILE,) * 3,
        in_specs=[block(lambda i, j, k: (i, k)), block(lambda i, j, k: (k, j))],
        out_specs=block(lambda i, j, k: (i, j)), scratch_shapes=[m.tpu.VMEM((TILE, TILE), np.float32)],
    )(x, y)  # fmt: skip


def _by_rows(function):
    """A kernel for blocks of 64 rows; further arrays are whole at each step."""

    def run(library, x, *whole):
        m = _modules(library)
        rows = m.pl.BlockSpec((64, x.shape[1]), lambda i: (i, 0))

        def kernel(*refs):
            *given, o = refs
            o[...] = function(library, *(ref[...] for ref in given))

        rest = [m.pl.BlockSpec(y.shape, lambda i: (0,)) for y in whole]
        return _call(
            library, kernel, (x.shape, x.dtype), grid=(x.shape[0] // 64,), in_specs=[rows, *rest], out_specs=rows
        )(x, *whole)

    return run


def _softmax(library, x):
    e = library.jnp.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _layer_norm(library, x, scale, shift):
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) * library.jax.lax.rsqrt(variance + 1e-5) * scale + shift


def _flash(library, q, k, v):
    m, jnp = _modules(library), library.jnp

    def kernel(q, k, v, o):
        scaled = q[...] * WIDTH**-0.5

        def step(i, carry):
            out, most, total = carry
            part = m.pl.ds(i * BLOCK, BLOCK)
            scores = scaled @ k[part, :].T
            now = jnp.maximum(most, scores.max(-1))
            weights, kept = jnp.exp(scores - now[:, None]), jnp.exp(most - now)
            return out * kept[:, None] + weights @ v[part, :], now, total * kept + weights.sum(-1)

        start = jnp.zeros((BLOCK, WIDTH)), jnp.full((BLOCK,), -jnp.inf), jnp.zeros((BLOCK,))
        out, _, total = m.lax.fori_loop(0, LENGTH // BLOCK, step, start)
        o[...] = out / total[:, None]

    rows = m.pl.BlockSpec((None, BLOCK, WIDTH), lambda h, i: (h, i, 0))
    whole = m.pl.BlockSpec((None, LENGTH, WIDTH), lambda h, i: (h, 0, 0))
    return _call(
        library, kernel, (q.shape, q.dtype), grid=(HEADS, LENGTH // BLOCK), in_specs=[rows, whole, whole],
        out_specs=rows,
    )(q, k, v)  # fmt: skip


def _attention(library, q, k, v):
    scores = library.jnp.einsum("hqd,hkd->hqk", q, k) * WIDTH**-0.5
    return library.jnp.einsum("hqk,hkd->hqd", library.jax.nn.softmax(scores, -1), v)


def _gradient(function):
    def run(library, *arrays):
        return library.jax.grad(lambda *arrays: (function(library, *arrays) ** 2).sum(), (0, 1, 2))(*arrays)

    return run


def _scan(library, x):
    m, jnp = _modules(library), library.jnp

    def kernel(x, o, last):
        @m.pl.when(m.pl.program_id(1) == 0)
        def _():
            last[...] = jnp.zeros_like(last)

        sums = jnp.cumsum(x[...], 0) + last[...]
        o[...] = sums
        last[...] = sums[-1:]

    block = m.pl.BlockSpec((128, 256), lambda j, i: (i, j))
    grid = x.shape[1] // 256, x.shape[0] // 128
    scratch = [m.tpu.VMEM((1, 256), np.float32)]
    return _call(
        library, kernel, (x.shape, x.dtype), grid=grid, in_specs=[block], out_specs=block, scratch_shapes=scratch
    )(x)


def _histogram(library, x):
    m, jnp = _modules(library), library.jnp

    def kernel(x, o):
        @m.pl.when(m.pl.program_id(0) == 0)
        def _():
            o[...] = jnp.zeros_like(o)

        m.triton.atomic_add(o, (x[...],), jnp.ones(x.shape, jnp.int32))

    return _call(
        library, kernel, ((256,), np.int32), grid=(50,), in_specs=[m.pl.BlockSpec((x.size // 50,), lambda i: (i,))],
        out_specs=m.pl.BlockSpec((256,), lambda i: (0,)),
    )(x)  # fmt: skip


def _neighbours(library, v):
    return 0.25 * (v[:-2, 1:-1] + v[2:, 1:-1] + v[1:-1, :-2] + v[1:-1, 2:])


def _stencil(library, x):
    """Windows with a margin, of which the last overhang."""
    pl = _modules(library).pl

    def kernel(x, o):
        o[...] = _neighbours(library, x[...])

    count = pl.cdiv(POINTS, WINDOW)
    size = pl.Element(WINDOW + 2, (0, count * WINDOW - POINTS))
    return _call(
        library, kernel, (x.shape, x.dtype), grid=(count, count),
        in_specs=[pl.BlockSpec((size, size), lambda i, j: (i * WINDOW, j * WINDOW))],
        out_specs=pl.BlockSpec((WINDOW, WINDOW), lambda i, j: (i, j)),
    )(library.jnp.pad(x, 1))  # fmt: skip


def _ragged(library, groups, x, matrices):
    m = _modules(library)

    def kernel(groups, x, matrix, o):
        o[...] = x[...] @ matrix[...]

    rows = m.pl.BlockSpec((128, 512), lambda i, groups: (i, 0))
    matrix = m.pl.BlockSpec((None, 512, 512), lambda i, groups: (groups[i], 0, 0))
    spec = m.tpu.PrefetchScalarGridSpec(1, (16,), in_specs=[rows, matrix], out_specs=rows)
    return _call(library, kernel, (x.shape, x.dtype), grid_spec=spec)(groups, x, matrices)


def _ragged_dot(library, groups, x, matrices):
    sizes = 128 * library.jnp.bincount(groups, length=GROUPS)
    return library.jax.lax.ragged_dot(x, matrices, sizes)


def _top(library, x):
    m = _modules(library)

    def kernel(x, values, places):
        values[...], places[...] = m.lax.top_k(x[...], 8)

    def rows(width):
        return m.pl.BlockSpec((64, width), lambda i: (i, 0))

    return _call(
        library, kernel, [((x.shape[0], 8), x.dtype), ((x.shape[0], 8), np.int32)], grid=(x.shape[0] // 64,),
        in_specs=[rows(x.shape[1])], out_specs=[rows(8), rows(8)],
    )(x)  # fmt: skip


_ATTENDED = [_floats(HEADS, LENGTH, WIDTH) + i for i in range(3)]
_CHOSEN = np.sort(np.random.default_rng(0).integers(0, GROUPS, 16)).astype(np.int32)
# By name: the arrays, the kernel, and the same function of `jnp`.
KERNELS = {
    "elementwise, 2048×2048": (
        [_floats(2048, 2048)] * 2, _elementwise, lambda lib, x, y: lib.jnp.sin(x) * y + 1
    ),
    "product with an accumulator, 1024×1024": (
        [_floats(SIDE, SIDE)] * 2, _product, lambda lib, x, y: x @ y
    ),
    "softmax, 2048×1024": ([_floats(2048, 1024)], _by_rows(_softmax), _softmax),
    "layer norm, 2048×1024": (
        [_floats(2048, 1024), _floats(1024), _floats(1024)], _by_rows(_layer_norm), _layer_norm
    ),
    "flash attention, 8×1024×64": (_ATTENDED, _flash, _attention),
    "running sum in order, 4096×512": (
        [_floats(4096, 512)], _scan, lambda lib, x: lib.jnp.cumsum(x, 0)
    ),
    "histogram by atomic additions, 200k": (
        [np.random.default_rng(0).integers(0, 256, 200_000).astype(np.int32)], _histogram,
        lambda lib, x: lib.jnp.zeros(256, lib.jnp.int32).at[x].add(1),
    ),
    "5 points of 1500×1500, overlapping windows": (
        [_floats(POINTS, POINTS)], _stencil, lambda lib, x: _neighbours(lib, lib.jnp.pad(x, 1))
    ),
    "products of groups of rows, 2048×512": (
        [_CHOSEN, _floats(2048, 512), _floats(GROUPS, 512, 512)], _ragged, _ragged_dot
    ),
    "8 largest of 512, 1024 rows": ([_floats(1024, 512)], _top, lambda lib, x: lib.jax.lax.top_k(x, 8)),
}  # fmt: skip
# JAX's interpreter has no derivative in reverse mode.
GRADIENT = "gradient of the flash attention", (_ATTENDED, _gradient(_flash), _gradient(_attention))


def _ratio(arrays, kernel, plain, found):
    """Of ferrax alone: how many times longer than without a grid."""
    library = found["ferrax"]
    calls = [compiled(arrays, function)(library) for function in (kernel, plain)]
    inner = [timing._calibrate(call, 0.02) for call in calls]
    best = [float("inf")] * 2
    for _ in range(min(ROUNDS, timing.most_rounds)):
        for number, call in enumerate(calls):
            best[number] = min(best[number], timing._median_of(call, inner[number], 3))
    return {"ferrax": best[0] / best[1]}


ROWS = [
    *(case(name, arrays, kernel, unit="ms", goal=GOAL) for name, (arrays, kernel, _) in KERNELS.items()),
    *(
        Row(f"{name}: beside jnp", "×", MOST, functools.partial(_ratio, *case))
        for name, case in (*KERNELS.items(), GRADIENT)
    ),
]
