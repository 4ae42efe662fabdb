"""Heat in a plate that cold pipes cross, over the devices of several processes, which exchange edges of tiles.

    mpiexec -n 4 python examples/stencil_mpi.py

Each device has a tile of the plate. Before a step it gets the neighbours' rows and columns beside its own by
`ppermute`, and zeros, the temperature of the rim, where there is no neighbour. All steps are one `scan` within one
`shard_map`. Any number of processes computes the same bits; process 0 computes the plate on one device as well, and
compares. `--devices` says how many each process has, a power of two.
"""

import numpy as np
from common import check, options, pyplot, save

import ferrax as jax
import ferrax.numpy as jnp
from ferrax import P, lax
from ferrax.experimental import multihost_utils

RATE = 0.2  # of the explicit Euler method, which is stable up to a quarter


def plate(size):
    """Temperatures f32[size, size], and where they change, 1, or stay zero, 0, as in the pipes."""
    y, x = np.mgrid[:size, :size] / size
    hot = np.exp(-80 * ((x - 0.3) ** 2 + (y - 0.4) ** 2)) + (abs(x - 0.7) + abs(y - 0.6) < 0.1)
    pipes = sum(((x - a) ** 2 + (y - b) ** 2 < 0.005) for a, b in [(0.5, 0.3), (0.5, 0.5), (0.45, 0.75)])
    changes = (pipes == 0).astype(np.float32)
    return changes * hot.astype(np.float32), changes


def step(u, changes, rows, columns):
    """One step of u [n, m], which `rows` [n + 2, m] and `columns` [n, m + 2] have with what is beside it."""
    vertical, horizontal = rows[:-2] + rows[2:], columns[:, :-2] + columns[:, 2:]
    return u + RATE * changes * (vertical + horizontal - 4 * u)


def alone(u, changes, steps):
    """The plate after so many steps, on one device."""

    def turn(_, u):
        return step(u, changes, jnp.pad(u, ((1, 1), (0, 0))), jnp.pad(u, ((0, 0), (1, 1))))

    return lax.fori_loop(0, steps, turn, u)


def beside(tile, axis, name):
    """A tile between the edges of its neighbours along an axis, which is that of the mesh called `name`."""
    count = lax.axis_size(name)
    first, last = (lax.slice_in_dim(tile, at, at + 1, axis=axis) for at in (0, tile.shape[axis] - 1))
    before = lax.ppermute(last, name, [(place, place + 1) for place in range(count - 1)])
    after = lax.ppermute(first, name, [(place + 1, place) for place in range(count - 1)])
    return jnp.concatenate([before, tile, after], axis)


def over(mesh, steps):
    """The function of the plate and where it changes, both over the mesh: the plate then, and its heat at each step."""

    def of_a_device(u, changes):
        def turn(u, _):
            u = step(u, changes, beside(u, 0, "y"), beside(u, 1, "x"))
            return u, lax.psum(jnp.sum(u), ("y", "x"))

        return lax.scan(turn, u, None, length=steps)

    both = P("y", "x")
    return jax.jit(jax.shard_map(of_a_device, mesh=mesh, in_specs=(both, both), out_specs=(both, P())))


def main():
    given = options(__doc__, devices=2)
    jax.config.update("jax_num_cpu_devices", given.devices)
    jax.distributed.initialize(cluster_detection_method="mpi4py")
    size, steps = (128, 200) if given.small else (512, 2000)
    count = jax.device_count()
    rows = 2 ** ((count.bit_length() - 1) // 2)
    mesh = jax.make_mesh((rows, count // rows), ("y", "x"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    tiles = jax.NamedSharding(mesh, P("y", "x"))
    u, changes = plate(size)
    made, heat = over(mesh, steps)(jax.device_put(u, tiles), jax.device_put(changes, tiles))
    where = {str(shard.device): [(cut.start, cut.stop) for cut in shard.index] for shard in made.addressable_shards}
    print(f"process {jax.process_index()} has {where}\n", end="")  # a line in one piece, as others print too
    whole = np.asarray(multihost_utils.process_allgather(made, tiled=True))
    if jax.process_index():
        return
    figure, axes = pyplot.subplots(1, 2, figsize=(10, 4))
    axes[0].imshow(np.where(changes, whole, np.nan), cmap="inferno")
    for device, index in tiles.devices_indices_map(whole.shape).items():
        top, left = (part.start or 0 for part in index)
        bottom, right = (part.stop or size for part in index)
        axes[0].add_patch(pyplot.Rectangle((left, top), right - left, bottom - top, fill=False, ec="white", lw=0.5))
        words = f"process {device.process_index}\ndevice {device.id}"
        axes[0].text((left + right) / 2, top, words, color="white", ha="center", va="top", fontsize=7)
    axes[0].set(title="temperature", xticks=[], yticks=[])
    axes[1].plot(np.asarray(heat))
    axes[1].set(xlabel="step", title="heat in the plate")
    save(figure, "plate.png")
    known = np.asarray(jax.jit(alone, static_argnums=2)(u, changes, steps))
    others = np.sum(whole.view(np.uint32) != known.view(np.uint32))
    check("places whose bits are not those of one device", others, high=0)
    # Sums over devices are made in adjacent pairs, wherever the devices are.
    sums = [float(jnp.sum(known[index])) for index in tiles.devices_indices_map(whole.shape).values()]
    while len(sums) > 1:
        sums = [np.float32(a) + np.float32(b) for a, b in zip(sums[::2], sums[1::2], strict=True)]
    check("heat, less that in pairs of devices", heat[-1] - sums[0], low=0, high=0)
    check("heat that is left", heat[-1] / u.sum(), low=0.2, high=1)


if __name__ == "__main__":
    main()
