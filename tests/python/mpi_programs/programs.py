"""Functions over the devices of all processes: what they give has the bits of one process with as many devices.

Run as `programs.py FILE DEVICES`: one process with eight devices writes what it finds, several compare. So does one
whose devices are GPUs, eight as FERRAX_GPU names them, up to the order of terms, by `programs.py FILE gpu`.
"""

import functools
import sys

import numpy as np

import ferrax as fx
import ferrax.numpy as jnp
from ferrax import P, lax
from ferrax._src.parallel.partition import partition
from ferrax._src.parallel.shard_map_primitive import shard_map_p

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

    def ragged(x):
        """Each device sends one of its two rows to those at another place along y."""
        lane = lax.axis_index(("x", "y"))
        others = jnp.arange(8, dtype=jnp.int32)
        sizes = jnp.where((others + lane) % 2 == 1, 1, 0)
        return lax.ragged_all_to_all(
            x, jnp.full((8, x.shape[1]), -1, x.dtype), others % 2, sizes, jnp.full(8, lane), sizes, axis_name=("x", "y")
        )

    def handed_on(x):
        line = [(0, 1), (1, 3), (3, 2)]
        return lax.precv(lax.optimization_barrier(lax.psend(x, "x", line)), x, "x", line)

    def over_x(x):
        """Over one axis: along the other what is said to be cut there is, and a function within is over that one."""
        turned = lax.with_sharding_constraint(jnp.sin(x), fx.NamedSharding(mesh, P(None, "y")))
        inner = fx.shard_map(
            lambda x: (x * (1 + lax.axis_index("y")), lax.psum(x, "y")), in_specs=P(None, "y"), out_specs=(P(None, "y"), P()),
            axis_names={"y"},
        )  # fmt: skip
        cut, total = inner(turned)
        later = lax.cond(lax.axis_index("x") > 1, lambda: jnp.cos(x), lambda: x + 1)
        return cut + lax.psum(later, "x"), total.sum(1, keepdims=True) * lax.pmax(x, "x"), lax.all_gather(turned, "x")

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
    spread = mapped(ragged, (both,), both)
    yield "slices", spread, (X,)
    yield "gradient of slices", fx.jit(fx.grad(lambda x: (spread(jnp.sin(x)) ** 2).sum())), (X,)
    handed = mapped(handed_on, (both,), both)
    yield "sends", handed, (X,)
    yield "gradient of sends", fx.jit(fx.grad(lambda x: (handed(jnp.sin(x)) * X).sum())), (X,)
    some = mapped(over_x, (P("x"),), (P("x"), P("x"), P(None, "x")), axis_names={"x"})
    yield "one axis", some, (X,)
    yield "one axis, jitted", fx.jit(lambda x: jnp.cos(some(x * 2)[0])), (X,)
    powers = fx.jit(powered, static_argnums=(1,), static_argnames="how")
    yield "static", lambda x: [powers(x, 2, 3.0), powers(x, 3, how="tiled"), powers(x, n=3)], (X,)
    yield "two functions", fx.jit(lambda w, x: steps(w, mapped(chosen, (both,), both)(x))[0] * 2), (W, X)


def powered(x, n, add=0.0, *, how="plain"):
    """`n` and `how` are static, by place and by name."""
    if how == "tiled":
        x = jnp.tile(x, (n, 1))
    return (x**n).T + add


def whole_programs(mesh):
    """Functions of whole arrays and how their arguments are cut: what devices exchange is found."""

    def step(w, x):
        def loss(w):
            hidden = jnp.tanh(x @ w)
            return (hidden**2).mean() + (hidden.max(0) - hidden.min(0)).sum() * 0.01

        def body(w, _):
            value, gradient = fx.value_and_grad(loss)(w)
            return w - 0.1 * gradient, value

        return lax.scan(body, w, length=3)

    def moved(x):
        pinned = lax.with_sharding_constraint(jnp.sin(x), fx.NamedSharding(mesh, P(None, "y")))
        return jnp.sort(x, 0), jnp.cumsum(x, 0), x.T @ x, pinned + 1, x.reshape(4, 4, 6).sum(1), x[::-1], jnp.arange(16.0) + x[:, 0]

    def mixed(x):
        mapped = fx.shard_map(lambda a: lax.psum(a, "x"), mesh=mesh, in_specs=P("x"), out_specs=P())
        turned = lax.cond(x.sum() > 0, lambda: x + 1, lambda: x * 2)
        return mapped(jnp.cos(x)) * 2, turned, lax.while_loop(lambda c: c.sum() < 100, lambda c: c * c + 1, x)

    def some(w, x):
        """Over one axis; along the other arrays are cut as those around them, and products of parts are summed there."""
        mapped = fx.shard_map(
            lambda w, x: (lax.psum(jnp.tanh(x @ w), "x"), x.sum(1), jnp.sort(x, 0)), mesh=mesh,
            in_specs=(P(), P("x")), out_specs=(P(), P("x"), P("x")), axis_names={"x"},
        )  # fmt: skip
        total, sums, ranked = mapped(w * 2, jnp.sin(x))
        return total + 1, sums * 2, ranked, fx.grad(lambda w: mapped(w, x)[0].sum())(w)

    def slopes(w, x):
        """The sum along the other axis is that of parts, too."""
        score = fx.shard_map(
            lambda w, x: lax.pmean((jnp.tanh(x[:, :4] * w[0]) ** 2).sum(), "y"), mesh=mesh,
            in_specs=(P(), P("y")), out_specs=P(), axis_names={"y"},
        )  # fmt: skip
        return fx.grad(score, argnums=(0, 1))(w, x)

    yield "slopes over one axis", slopes, (W, X), (P(), P(("x", "y")))
    yield "some axes", some, (W, X), (P("y"), P("x", "y"))
    yield "training", step, (W, X), (P(), P(("x", "y")))
    yield "training in parts", step, (W, X), (P(None, "y"), P("x"))
    yield "moved", moved, (X,), (P(("x", "y")),)
    yield "moved columns", moved, (X,), (P("x", "y"),)
    yield "mixed", mixed, (X,), (P("y"),)


def on_parts(jitted, args, mesh):
    program = jitted.trace(*args).jaxpr._to_program()
    params, consts, _ = partition(program, mesh, [x.sharding for x in args])
    return fx.jit(lambda *args: shard_map_p.bind(*args, *consts, **params))(*args)


def main():
    kept, devices = sys.argv[1:]
    alone, apart = devices == "8", devices == "gpu"
    if not apart:
        fx.config.update("jax_num_cpu_devices", int(devices))
        if not alone:
            fx.distributed.initialize()
    over = fx.devices("gpu") if apart else None
    # Products have other orders of terms there.
    agree = functools.partial(np.testing.assert_allclose, rtol=2e-5, atol=1e-5) if apart else np.testing.assert_array_equal
    mesh = fx.make_mesh((4, 2), ("x", "y"), axis_types=(fx.sharding.AxisType.Auto,) * 2, devices=over)
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
                agree(np.asarray(shard.data), known[key][shard.index], err_msg=key)
    for name, function, args, ins in whole_programs(mesh):
        given = [fx.make_array_from_callback(x.shape, fx.NamedSharding(mesh, spec), x.__getitem__) for x, spec in zip(args, ins)]
        jitted = fx.jit(function)
        # One process computes whole arrays: the parts are asked for.
        results = on_parts(jitted, given, mesh) if alone else fx.tree.leaves(jitted(*given))
        again = results if alone else fx.tree.leaves(jitted(*given))
        for number, (result, other) in enumerate(zip(results, again)):
            key = f"{name} {number}"
            if alone:
                known[key] = np.asarray(result)
                np.testing.assert_allclose(known[key], fx.tree.leaves(function(*args))[number], rtol=2e-5, atol=1e-5)
                continue
            assert result.shape == known[key].shape and result.dtype == known[key].dtype, key
            for shard, same in zip(result.addressable_shards, other.addressable_shards):
                agree(np.asarray(shard.data), known[key][shard.index], err_msg=key)
                np.testing.assert_array_equal(np.asarray(shard.data), np.asarray(same.data), err_msg=key)
    if alone:
        np.savez(kept, **known)
    print("done")


main()
