"""The transformer of language_model.py as a pipeline: four devices, each with a quarter of the blocks.

The batch goes through in parts. At each tick a device applies its blocks to one part and sends the result to the next
device, by `ppermute` within `shard_map`; the ticks are a `scan`, in which all devices are at different parts. `grad`
makes of it the pipeline backwards: the transpose of a permutation sends cotangents the other way (Huang et al.,
GPipe, 2019). Each part carries its number, so that the picture shows what went where.
"""

import functools

import numpy as np
from common import adam, check, options, pyplot, save
from language_model import BATCH, LENGTH, apply_block, initial_parameters, load_text, loss
from tqdm import tqdm

import ferrax as jax
import ferrax.numpy as jnp
from ferrax import P, lax

STAGES, PARTS = 4, 8


def through(blocks, x):
    """x [B, T, D] after blocks that are stacked along the first axis of each parameter."""
    return lax.scan(lambda x, block: (apply_block(block, x), None), x, blocks)[0]


def pipelined(mesh):
    """As `through`, and what each device did: the part [stage, tick] that it worked on, -1 for none."""

    def of_a_stage(blocks, parts):
        stage, count = lax.axis_index("stage"), len(parts)
        onwards = [(place, place + 1) for place in range(STAGES - 1)]

        def tick(received, time):
            fresh = parts[jnp.minimum(time, count - 1)], jnp.where(time < count, time, -1)
            x, number = jax.tree.map(lambda a, b: jnp.where(stage == 0, a, b), fresh, received)
            x = through(blocks, x)
            return lax.ppermute((x, number), "stage", onwards), (x, number)

        nothing = lax.pcast((jnp.zeros_like(parts[0]), jnp.int32(-1)), "stage", to="varying")
        _, (made, numbers) = lax.scan(tick, nothing, jnp.arange(count + STAGES - 1))
        return made[None, STAGES - 1 :], numbers[None]  # of the last stage: all parts, in order

    mapped = jax.shard_map(of_a_stage, mesh=mesh, in_specs=(P("stage"), P()), out_specs=P("stage"))

    def run(blocks, x):
        made, numbers = mapped(blocks, x.reshape(PARTS, -1, *x.shape[1:]))
        return made[-1].reshape(x.shape), numbers

    return run


def draw(axes, numbers):
    """The part that each stage worked on at each tick."""
    axes.imshow(np.where(numbers < 0, np.nan, numbers), cmap="viridis", vmin=0, vmax=PARTS - 1)
    for (stage, time), number in np.ndenumerate(numbers):
        axes.text(time, stage, "" if number < 0 else number, ha="center", va="center", color="white")
    axes.set(xlabel="tick", ylabel="device", yticks=range(STAGES), title="parts of the batch")


def main():
    small = options(__doc__).small
    jax.config.update("jax_num_cpu_devices", STAGES)
    text, characters = load_text()
    steps, width, layers = (20, 64, 4) if small else (300, 128, 8)
    mesh = jax.make_mesh((STAGES,), ("stage",), axis_types=(jax.sharding.AxisType.Auto,))
    parameters = initial_parameters(jax.random.key(0), len(characters), width, layers)
    parameters["blocks"] = jax.tree.map(lambda *each: jnp.stack(each), *parameters["blocks"])
    whole, by_stage = (jax.NamedSharding(mesh, spec) for spec in (P(), P("stage")))
    places = {name: by_stage if name == "blocks" else whole for name in parameters}
    run = pipelined(mesh)
    piped_loss = functools.partial(loss, blocks=lambda blocks, x: run(blocks, x)[0])
    plain_loss = functools.partial(loss, blocks=through)
    starts = np.random.default_rng(0).integers(0, len(text) - LENGTH - 1, (steps, BATCH))
    batches = text[starts[:, :, None] + np.arange(LENGTH + 1)]

    cut = jax.device_put(parameters, places)
    shards = cut["blocks"]["up"]["w"].addressable_shards
    for shard in shards:
        print(f"{shard.device}: blocks {shard.index[0].start} to {shard.index[0].stop - 1}")
    value, gradient = jax.jit(jax.value_and_grad(piped_loss))(cut, batches[0])
    expected, slope = jax.jit(jax.value_and_grad(plain_loss))(parameters, batches[0])
    errors = jax.tree.map(lambda a, b: jnp.linalg.norm(a - b) / jnp.linalg.norm(b), gradient, slope)
    _, numbers = jax.jit(run)(cut["blocks"], jnp.zeros((BATCH, LENGTH, width)))

    start, step = adam(piped_loss, rate=3e-3)
    state, losses = start(cut), []
    for tokens in tqdm(batches, desc="training", unit="step"):
        state, cost = step(state, tokens)
        losses.append(float(cost))
    figure, axes = pyplot.subplots(1, 2, figsize=(11, 3.5))
    draw(axes[0], np.asarray(numbers))
    axes[1].plot(losses)
    axes[1].set(xlabel="step", title="loss")
    save(figure, "pipeline.png")

    in_turn = np.add.outer(-np.arange(STAGES), np.arange(PARTS + STAGES - 1)).clip(-1)
    in_turn[in_turn >= PARTS] = -1
    check("parts are where the schedule has them", (in_turn == numbers).all(), low=1)
    check("share of ticks at which a device waits", (np.asarray(numbers) < 0).mean(), high=(STAGES - 1) / PARTS)
    # Products of fewer rows may add their terms in another order; gradients are sums of the parts'.
    check("difference of the loss from that of one device", abs(value - expected), high=1e-5)
    check("relative error of the gradient", max(jax.tree.leaves(errors)), high=1e-5)
    check("loss at the end", np.mean(losses[-5:]), high=3.6 if small else 2.8)


if __name__ == "__main__":
    main()
