"""Run by several processes with one device each: programs as users write them, of all devices.

Each gives what it gives of whole arrays, which this process has, too, but for roundings of sums over devices. A path
is given, where a checkpoint goes.
"""

import collections
import functools
import sys

import numpy as np

import ferrax as fx
import ferrax.numpy as jnp
from ferrax import P, lax
from ferrax.experimental import checkpoint, multihost_utils

fx.config.update("jax_num_cpu_devices", 1)
fx.distributed.initialize()
me, count = fx.process_index(), fx.process_count()
mesh = fx.make_mesh((count,), ("data",), axis_types=(fx.sharding.AxisType.Auto,))
rows, whole = fx.NamedSharding(mesh, P("data")), fx.NamedSharding(mesh, P())
random = np.random.default_rng(0)
X, Y = (random.normal(size=(64, width)).astype(np.float32) for width in (16, 4))


def over_all(table):
    """The table over all processes, of which each loads its own rows."""
    each = len(table) // count
    return fx.make_array_from_process_local_data(rows, table[me * each : (me + 1) * each], table.shape)


def everything(x):
    spans = isinstance(x, fx.Array) and not x.is_fully_addressable and not x.is_fully_replicated
    return multihost_utils.process_allgather(x, tiled=True) if spans else np.asarray(x)


def same(found, wanted):
    assert fx.tree.structure(found) == fx.tree.structure(wanted)
    for ours, theirs in zip(fx.tree.leaves(found), fx.tree.leaves(wanted)):
        np.testing.assert_allclose(everything(ours), np.asarray(theirs), rtol=2e-5, atol=1e-5)


def weights(key):
    first, second = fx.random.split(key)
    return {
        "w": fx.random.normal(first, (16, 32)) / 8, "b": jnp.zeros(32), "v": fx.random.normal(second, (32, 4)) / 8,
    }  # fmt: skip


def model(p, x):
    return jnp.tanh(x @ p["w"] + p["b"]) @ p["v"]


def loss(p, x, y):
    return jnp.mean((model(p, x) - y) ** 2)


def fresh(p):
    return {"m": fx.tree.map(jnp.zeros_like, p), "v": fx.tree.map(jnp.zeros_like, p), "step": jnp.zeros((), int)}


def step(p, s, x, y):
    """Adam's, as libraries of optimisers write it."""
    value, g = fx.value_and_grad(loss)(p, x, y)
    n = s["step"] + 1
    m = fx.tree.map(lambda m, g: 0.9 * m + 0.1 * g, s["m"], g)
    v = fx.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, s["v"], g)
    p = fx.tree.map(lambda p, m, v: p - 0.01 * m / (1 - 0.9**n) / (jnp.sqrt(v / (1 - 0.99**n)) + 1e-3), p, m, v)
    return p, {"m": m, "v": v, "step": n}, value


def trained(advance, p, s, load):
    values = []
    for _ in range(3):
        p, s, value = advance(p, s, load(X), load(Y))
        values.append(float(value))
    return p, s, values


key = fx.random.key(0)
alone = trained(step, weights(key), fresh(weights(key)), jnp.asarray)
# Weights on all devices; weights that each process has; weights and state divided, where they can be.
divided = fx.tree.map(lambda x: rows if x.ndim and x.shape[0] % count == 0 else whole, fx.eval_shape(weights, key))
for places in (whole, None, divided):
    of_state = {"m": divided, "v": divided, "step": whole} if places is divided else places
    p = fx.jit(weights, out_shardings=places)(key)
    s = fx.jit(fresh, out_shardings=of_state)(p)
    said = None if places is None else (places, of_state, whole)
    p, s, values = trained(fx.jit(step, donate_argnums=(0, 1), out_shardings=said), p, s, over_all)
    same((p, s, values), alone)
    if places is divided:
        assert p["w"].sharding == s["m"]["w"].sharding == rows and s["step"].sharding == whole
p = alone[0]

# Evaluation: errors of batches gathered, metrics of arrays over all devices, and a last batch that is padded.
errors = fx.jit(lambda p, x, y: ((model(p, x) - y) ** 2).sum(1))
wanted = errors(p, jnp.asarray(X), jnp.asarray(Y))
batches = [slice(0, 32), slice(32, 64)]
gathered = [multihost_utils.process_allgather(errors(p, over_all(X[s]), over_all(Y[s])), tiled=True) for s in batches]
same(np.concatenate(gathered), wanted)
e = errors(p, over_all(X), over_all(Y))
same({"mean": jnp.mean(e), "max": e.max(), "above": jnp.mean(e > 1)}, {"mean": wanted.mean(), "max": wanted.max(), "above": (wanted > 1).mean()})
assert f"{jnp.mean(e):.3f}" == f"{wanted.mean():.3f}" and bool(jnp.all(jnp.isfinite(e)))
padded = np.pad(X[:41], ((0, -41 % count), (0, 0)))
masked = fx.jit(lambda x, ok: jnp.where(ok[:, None], x, 0).sum() / ok.sum())(over_all(padded), over_all(np.arange(len(padded)) < 41))
same(masked, X[:41].sum() / np.float32(41))

# Batches ahead of those that are computed with.
ahead, results = collections.deque(), []
total = fx.jit(lambda batch: batch["x"].sum(1))
for number in range(4):
    ahead.append({"x": over_all(X[16 * number : 16 * number + 16])})
    if len(ahead) > 2:
        results.append(total(ahead.popleft()))
results += map(total, ahead)
same(jnp.concatenate(results), X.sum(1))

# Keys for each process, for each device, and for each row.
keys = fx.random.split(key, count)
normal = fx.vmap(lambda key: fx.random.normal(key, (3,)))
same(fx.jit(normal)(fx.device_put(keys, rows)), normal(keys))
same(fx.random.key_data(fx.vmap(fx.random.split)(fx.device_put(keys, rows))), fx.random.key_data(fx.vmap(fx.random.split)(keys)))
of_device = fx.shard_map(
    lambda key: fx.random.normal(fx.random.fold_in(key, lax.axis_index("data")), (1,)), mesh=mesh, in_specs=P(), out_specs=P("data")
)  # fmt: skip
same(of_device(key), np.concatenate([fx.random.normal(fx.random.fold_in(key, number), (1,)) for number in range(count)]))
same(fx.jit(lambda key, x: jnp.where(fx.random.bernoulli(key, 0.5, x.shape), x, 0))(key, over_all(X)), np.where(fx.random.bernoulli(key, 0.5, X.shape), X, 0))

# Functions of devices within loops, and their gradients.
mean = fx.shard_map(lambda w, x: lax.pmean(jnp.mean(jnp.sin(x @ w)), "data"), mesh=mesh, in_specs=(P(), P("data")), out_specs=P())
sines = lambda w, x: jnp.mean(jnp.sin(x @ w))  # noqa: E731
w = jnp.asarray(X[:16, :8])
same(fx.grad(mean, argnums=(0, 1))(w, over_all(X)), fx.grad(sines, argnums=(0, 1))(w, jnp.asarray(X)))


def descended(f, w, x):
    return lax.scan(lambda w, _: (w - fx.grad(f)(w, x), f(w, x)), w, None, length=3)


same(fx.jit(functools.partial(descended, mean))(w, over_all(X)), descended(sines, w, jnp.asarray(X)))
with fx.set_mesh(mesh):
    x = fx.device_put(X, P("data"))
    same((jnp.mean(x, axis=0), jnp.zeros((count, 3)) + 1, jnp.arange(4) * 2), (X.mean(0), np.ones((count, 3)), np.arange(4) * 2))
    same(fx.jit(lambda x: x.T @ x, out_shardings=P("data"))(x), X.T @ X)
    same(fx.shard_map(lambda x: lax.psum(x, "data"), in_specs=P("data"), out_specs=P())(x), X.reshape(count, -1, 16).sum(0))

# Each part is saved by one owner, and what was saved is loaded over another mesh.
owned = [part for x in (over_all(X), fx.device_put(Y, whole)) for part in x.addressable_shards if part.replica_id == 0]
sizes = multihost_utils.process_allgather(np.array(sum(part.data.size for part in owned)))
assert sizes.sum() == X.size + Y.size
square = fx.make_mesh((count // 2, 2), ("a", "b"), axis_types=(fx.sharding.AxisType.Auto,) * 2)
checkpoint.save(sys.argv[1], {"x": over_all(X), "state": s, "key": key, "step": 3})
multihost_utils.sync_global_devices("saved")
like = {"x": fx.ShapeDtypeStruct(X.shape, X.dtype, sharding=fx.NamedSharding(square, P("b", "a"))), "state": s, "key": key, "step": 0}
loaded = checkpoint.load(sys.argv[1], like)
assert loaded["x"].sharding == like["x"].sharding and loaded["step"] == 3
same((loaded["x"], loaded["state"]), (X, alone[1]))
assert fx.random.key_data(loaded["key"]).tolist() == fx.random.key_data(key).tolist()

# How an array lies is seen by one process alone, which computes nothing for that.
if me == count - 1:
    seen = []
    fx.debug.inspect_array_sharding({"x": x}, callback=seen.append)
    assert seen == [rows]
    fx.debug.visualize_array_sharding(x)
multihost_utils.sync_global_devices("seen")
print(f"process {me} of {count} is done")
