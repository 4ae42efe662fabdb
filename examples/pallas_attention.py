"""Flash attention as a kernel, and its gradient by `grad` (Dao et al., FlashAttention, 2022, algorithm 1).

A step of the grid has a block of queries and a block of keys and values. Scores are made block by block and are never
all in memory: scratch memory keeps, for each query, the largest score so far, the sum of exponentials and the weighted
sum of values, which a larger score scales anew (Milakov & Gimelshein, Online normalizer calculation for softmax, 2018).
Heads are an axis that `vmap` adds. The derivative is that of the steps; `checkpoint` around what a step computes has it
keep these sums and make the scores again. The picture has the memory that both take, beside that of all scores, and the
weights of a head.
"""

import numpy as np
from common import check, options, pyplot, save

import ferrax as jax
import ferrax.numpy as jnp
from ferrax.experimental import pallas as pl
from ferrax.experimental.pallas import tpu as pltpu


@jax.checkpoint
def update(state, q, k, v, mask):
    """The state of queries f32[a, d] after further keys and values f32[b, d], where a query sees a key; it is what the
    derivative keeps of a step."""
    top, total, mixed = state
    scores = jnp.where(mask, q @ k.T * q.shape[1] ** -0.5, -1e30)
    new = jnp.maximum(top, jnp.max(scores, axis=1, keepdims=True))
    weights, old = jnp.exp(scores - new), jnp.exp(top - new)
    return new, total * old + jnp.sum(weights, axis=1, keepdims=True), mixed * old + weights @ v


def step(q_ref, k_ref, v_ref, o_ref, *state_refs):
    """Blocks of queries f32[a, d], keys and values f32[b, d], and the result f32[a, d]; a query sees no later key."""
    i, j = pl.program_id(0), pl.program_id(1)
    top_ref, total_ref, mixed_ref = state_refs

    @pl.when(j == 0)
    def _():
        top_ref[...] = jnp.full_like(top_ref, -1e30)
        total_ref[...] = jnp.zeros_like(total_ref)
        mixed_ref[...] = jnp.zeros_like(mixed_ref)

    queries = i * q_ref.shape[0] + jnp.arange(q_ref.shape[0])
    keys = j * k_ref.shape[0] + jnp.arange(k_ref.shape[0])
    state = update([ref[...] for ref in state_refs], q_ref[...], k_ref[...], v_ref[...], keys <= queries[:, None])
    for ref, value in zip(state_refs, state):
        ref[...] = value

    @pl.when(j == pl.num_programs(1) - 1)
    def _():
        o_ref[...] = mixed_ref[...] / total_ref[...]


def flash(q, k, v, block):
    """Causal attention of one head: f32[n, d] of three of that shape, n a multiple of the block."""
    n, d = q.shape
    of_queries = pl.BlockSpec((block, d), lambda i, j: (i, 0))
    of_keys = pl.BlockSpec((block, d), lambda i, j: (j, 0))
    memory = [pltpu.VMEM((block, size), jnp.float32) for size in (1, 1, d)]
    return pl.pallas_call(
        step, jax.ShapeDtypeStruct((n, d), q.dtype), grid=(n // block, n // block),
        in_specs=[of_queries, of_keys, of_keys], out_specs=of_queries, scratch_shapes=memory, name="flash",
    )(q, k, v)  # fmt: skip


def weights_of(q, k):
    n, d = q.shape
    return jax.nn.softmax(jnp.where(jnp.tri(n, dtype=bool), q @ k.T * d**-0.5, -jnp.inf))


def plain(q, k, v):
    return weights_of(q, k) @ v


def temporary_memory(function, *arguments):
    """Bytes that the compiled program needs beside its arguments and results."""
    return jax.jit(function).lower(*arguments).compile().memory_analysis().temp_size_in_bytes


def main():
    small = options(__doc__).small
    heads, width, block = 2, 32, 128 if small else 256
    lengths = [256, 512, 1024] if small else [512, 1024, 2048, 4096]
    by_blocks = jax.vmap(lambda q, k, v: flash(q, k, v, block))
    at_once = jax.vmap(plain)
    loss = lambda f: lambda *given: jnp.sum(jnp.sin(f(*given)))  # noqa: E731
    memory = {"kernel": [], "its gradient": [], "scores alone": []}
    for n in lengths:
        given = [jax.random.normal(key, (heads, n, width)) for key in jax.random.split(jax.random.key(n), 3)]
        gradient = jax.grad(loss(by_blocks), (0, 1, 2))
        sizes = temporary_memory(by_blocks, *given), temporary_memory(gradient, *given), 4 * heads * n * n
        for values, size in zip(memory.values(), sizes):
            values.append(size / 2**20)
    found, expected = jax.jit(by_blocks)(*given), jax.jit(at_once)(*given)
    slopes, known = (jax.jit(jax.grad(loss(f), (0, 1, 2)))(*given) for f in (by_blocks, at_once))
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 4))
    for name, values in memory.items():
        left.loglog(lengths, values, "o-", label=name)
    left.set(xlabel="length of the sequences", ylabel="MiB", title="temporary memory")
    left.legend()
    # A head that looks back: keys are queries of some places before.
    place = jnp.arange(48)[:, None] / 6 + jnp.arange(width) / width * 2 * np.pi
    weights = weights_of(8 * jnp.sin(place), 8 * jnp.sin(place + 1))
    right.imshow(weights, cmap="viridis")
    right.set(xlabel="key", ylabel="query", title="weights of a head")
    save(figure, "attention.png")
    check("largest difference to plain attention", jnp.max(jnp.abs(found - expected)), high=1e-5)
    apart = max(float(jnp.max(jnp.abs(a - b))) for a, b in zip(slopes, known))
    check("gradients, largest difference", apart, high=1e-4)
    kernel, gradient, scores = (values[-1] for values in memory.values())
    check("memory of the kernel, of what all scores take", kernel / scores, high=0.5)
    check("memory of its gradient", gradient / scores, high=1)


if __name__ == "__main__":
    main()
