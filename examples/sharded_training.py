"""The transformer of language_model.py, trained over eight devices in three ways.

`--mode dp`: each device has its rows of the batch, and all parameters. `--mode tp`: layers are cut as well, the first
of two by columns and the second by rows (Shoeybi et al., Megatron-LM, 2019), over a mesh of two by four. In both the
function is that of one device: `jit` finds from where its arguments are how all else is cut, and results have the
bits of one device. `--mode fsdp`: each device has an eighth of each parameter and of Adam's moments (Rajbhandari et
al., ZeRO, 2020); `shard_map` says what a device does, and gathers parameters before they are used. The transpose of
that gather leaves each device its part of the summed gradients. Sums over the batch are then made of eight parts, in
another order, so the first losses agree up to rounding; training amplifies it.
"""

import numpy as np
from common import adam, check, options, pyplot, save
from language_model import BATCH, LENGTH, initial_parameters, load_text, loss
from tqdm import tqdm

import ferrax as jax
from ferrax import P, lax

DEVICES = 8


def make_mesh(mode):
    shape, names = ((2, 4), ("data", "model")) if mode == "tp" else ((DEVICES,), ("data",))
    return jax.make_mesh(shape, names, axis_types=(jax.sharding.AxisType.Auto,) * len(names))


def spec_of(mode, path, leaf):
    """How a parameter is cut, which lies at `path` of the tree."""
    names = [getattr(key, "key", None) for key in path]
    if mode == "tp" and {"attention", "up"} & set(names):  # columns: each device has some features
        return P(None, "model") if names[-1] == "w" else P("model")
    if mode == "tp" and {"mix", "down"} & set(names):  # rows: what devices make of theirs is added up
        return P("model", None) if names[-1] == "w" else P()
    if mode == "fsdp":  # along the first axis that can be cut evenly
        axis = next((axis for axis, size in enumerate(leaf.shape) if size % DEVICES == 0), None)
        return P() if axis is None else P(*[None] * axis, "data")
    return P()


def gathered(parameters, specs):
    """All of each parameter, of the part that this device has."""

    def whole(part, spec):
        return lax.all_gather(part, "data", axis=len(spec) - 1, tiled=True) if spec else part

    return jax.tree.map(whole, parameters, specs)


def sharded_loss(mesh, specs):
    """The loss where each device has a part of each parameter, and its rows of the batch."""

    def of_a_device(parameters, tokens):
        return lax.pmean(loss(gathered(parameters, specs), tokens), "data")

    return jax.shard_map(of_a_device, mesh=mesh, in_specs=(specs, P("data")), out_specs=P())


def train(loss, parameters, batches, put):
    """The last state of Adam, and the losses."""
    start, step = adam(loss, rate=3e-3)
    state, losses = start(parameters), []
    for tokens in tqdm(batches, desc="training", unit="step"):
        state, value = step(state, put(tokens))
        losses.append(float(value))
    return state, np.array(losses)


def bytes_of(tree, device):
    """The bytes of what a device holds of the arrays of a tree."""
    shards = [shard for array in jax.tree.leaves(tree) for shard in array.addressable_shards]
    return sum(shard.data.nbytes for shard in shards if shard.device == device)


def draw(axes, title, array):
    """The parts of an array of one or two axes, each in the colour of the first device that has it."""
    rows, columns = array.shape if array.ndim == 2 else (1, *array.shape)
    holders = {}
    for device, index in array.sharding.devices_indices_map(array.shape).items():
        ends = [(cut.start or 0, size if cut.stop is None else cut.stop) for cut, size in zip(index, array.shape)]
        holders.setdefault(tuple(ends), []).append(device.id)
    for ends, devices in holders.items():
        (top, bottom), (left, right) = ends if array.ndim == 2 else ((0, 1), *ends)
        colour = pyplot.cm.tab10(devices[0])
        axes.add_patch(pyplot.Rectangle((left, top), right - left, bottom - top, color=colour, ec="white"))
        axes.text((left + right) / 2, (top + bottom) / 2, ",".join(map(str, devices)), ha="center", va="center")
    axes.set(xlim=(0, columns), ylim=(rows, 0), xticks=[], yticks=[])
    axes.set_title(f"{title} {list(array.shape)}\n{array.sharding.spec}", fontsize=9)


def main():
    given = options(__doc__, mode=("dp", "tp", "fsdp"))
    jax.config.update("jax_num_cpu_devices", DEVICES)
    text, characters = load_text()
    steps, width, layers = (20, 64, 2) if given.small else (300, 128, 4)
    parameters = initial_parameters(jax.random.key(0), len(characters), width, layers)
    starts = np.random.default_rng(0).integers(0, len(text) - LENGTH - 1, (steps, BATCH))
    batches = text[starts[:, :, None] + np.arange(LENGTH + 1)]

    mesh = make_mesh(given.mode)
    specs = jax.tree.map_with_path(lambda path, leaf: spec_of(given.mode, path, leaf), parameters)
    shardings = jax.tree.map(lambda spec: jax.NamedSharding(mesh, spec), specs)
    rows = jax.NamedSharding(mesh, P("data"))
    cut = jax.device_put(parameters, shardings)
    what = sharded_loss(mesh, specs) if given.mode == "fsdp" else loss
    state, losses = train(what, cut, batches, lambda tokens: jax.device_put(tokens, rows))
    _, alone = train(loss, parameters, batches, lambda tokens: tokens)

    trained, moments = state[0], state[1]
    print(mesh)
    for path, array in jax.tree.leaves_with_path(trained):
        print(f"{jax.tree_util.keystr(path):32} {array.shape!s:12} {array.sharding.spec}")
    first = jax.devices()[0]
    share = bytes_of(state, first) / sum(array.nbytes for array in jax.tree.leaves(state))
    block = trained["blocks"][0]
    shown = {
        "tokens": jax.device_put(batches[0], rows), "characters": trained["characters"], "up": block["up"]["w"],
        "down": block["down"]["w"], "moments of up": moments["blocks"][0]["up"]["w"], "bias of up": block["up"]["b"],
    }  # fmt: skip
    figure, axes = pyplot.subplots(2, 4, figsize=(13, 6))
    for place, (title, array) in zip(axes[:, :3].flat, shown.items()):
        draw(place, title, array)
    axes[0, 3].plot(alone, lw=4, alpha=0.4, label="one device")
    axes[0, 3].plot(losses, label=given.mode)
    axes[0, 3].set(xlabel="step", title="loss")
    axes[0, 3].legend()
    axes[1, 3].semilogy(np.abs(losses - alone) + 1e-9)
    axes[1, 3].set(xlabel="step", title="difference of losses + 1e-9")
    save(figure, f"{given.mode}.png")

    kept = all(a.sharding.is_equivalent_to(s, a.ndim) for tree in state[:3] for a, s in
               zip(jax.tree.leaves(tree), jax.tree.leaves(shardings)))  # fmt: skip
    check("parameters and moments are where they were put", kept, low=1)
    check("share of the state that a device has", share, high={"dp": 1, "tp": 0.5, "fsdp": 0.13}[given.mode])
    # Programs of `jit` over a mesh have the bits of one device; sums of eight parts are rounded otherwise.
    differences = np.abs(losses - alone)
    if given.mode == "fsdp":
        check("greatest difference of the first 20 losses", differences[:20].max(), high=1e-5)
    else:
        check("greatest difference of a loss", differences.max(), high=0)
    check("loss at the end", losses[-5:].mean(), high=3.6 if given.small else 2.6)


if __name__ == "__main__":
    main()
