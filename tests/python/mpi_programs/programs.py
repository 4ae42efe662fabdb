"""Functions over the devices of all processes: what they give has the bits of one process with as many devices.

Run as `programs.py FILE DEVICES`: one process with eight devices writes what it finds, several compare.
"""

import sys

import numpy as np

import ferrax as fx
import ferrax.numpy as jnp
from ferrax import P, lax

W = np.sin(np.arange(24.0, dtype=np.float32)).reshape(6, 4)
X = np.cos(np.arange(96.0, dtype=np.float32)).reshape(16, 6)


def programs(mesh):
    """Functions and the specs of their arguments and results."""

    def loss(w, x):
        return lax.pmean((jnp.tanh(x @ w) ** 2).sum(), ("x", "y"))

    def step(w, x):
        def body(w, _):
            value, gradient = fx.value_and_grad(loss)(w, x)
            return w - 0.1 * gradient, value

        return lax.scan(body, w, length=4)

    def exchanged(x):
        place = lax.axis_index("x") * 10 + lax.axis_index("y")
        sent = lax.ppermute(x, "y", [(0, 1), (1, 0)])
        some = lax.all_to_all(jnp.tile(x, (2, 1)), "y", 0, 0, tiled=True)
        parts = lax.psum_scatter(jnp.tile(x, (4, 1)), "x", tiled=True)
        return sent + place, some, parts, lax.all_gather(x, "x"), lax.pmax(x, "y"), lax.pbroadcast(x, "x", 2)

    def chosen(x):
        return lax.cond(lax.axis_index("x") > 1, lambda: jnp.sin(x), lambda: x * 2)

    def grouped(x):
        return lax.psum(x, "x", axis_index_groups=[[0, 3], [1, 2]])

    both, whole = P(("x", "y")), P()
    mapped = lambda f, i, o, **k: fx.shard_map(f, mesh=mesh, in_specs=i, out_specs=o, **k)  # noqa: E731
    out = (both, both, both, P("y"), P("x"), P("x", "y"))
    steps = mapped(step, (whole, both), (whole, whole))
    yield "step", steps, (W, X)
    yield "jitted step", fx.jit(steps), (W, X)
    yield "exchanges", fx.jit(mapped(exchanged, (both,), out[:3] + (P(None, ("x", "y")), both, both))), (X,)
    yield "branches", mapped(chosen, (both,), both), (X,)
    yield "groups", mapped(grouped, (both,), both, check_vma=False), (X,)
    lossy = mapped(loss, (whole, both), whole)
    yield "gradient", fx.jit(fx.grad(lambda w, x: lossy(w, x))), (W, X)
    yield "two functions", fx.jit(lambda w, x: steps(w, mapped(chosen, (both,), both)(x))[0] * 2), (W, X)


def main():
    kept, devices = sys.argv[1], int(sys.argv[2])
    fx.config.update("jax_num_cpu_devices", devices)
    alone = devices == 8
    if not alone:
        fx.distributed.initialize()
    mesh = fx.make_mesh((4, 2), ("x", "y"), axis_types=(fx.sharding.AxisType.Auto,) * 2)
    on = fx.NamedSharding(mesh, P(("x", "y")))
    known = {} if alone else np.load(kept)
    for name, function, args in programs(mesh):
        given = [fx.make_array_from_callback(x.shape, on, x.__getitem__) if x is X else x for x in args]
        for number, result in enumerate(fx.tree.leaves(function(*given))):
            key = f"{name} {number}"
            if alone:
                known[key] = np.asarray(result)
                continue
            assert result.shape == known[key].shape and result.dtype == known[key].dtype, key
            for shard in result.addressable_shards:
                np.testing.assert_array_equal(np.asarray(shard.data), known[key][shard.index], err_msg=key)
    if alone:
        np.savez(kept, **known)
    print("done")


main()
