"""Run by several processes of a machine, each of which has one of its GPUs: arrays and functions over all of these."""

import numpy as np

import ferrax
import ferrax.numpy as jnp
from ferrax import P, lax
from ferrax.experimental import multihost_utils

ferrax.distributed.initialize()
me, count = ferrax.process_index(), ferrax.process_count()
gpus = ferrax.devices("gpu")
assert [device.process_index for device in gpus] == list(range(count)) and len({device.id for device in gpus}) == count
assert ferrax.local_devices(backend="gpu") == [gpus[me]] and ferrax.devices("gpu")[me] is gpus[me]
mesh = ferrax.sharding.Mesh(np.array(gpus), ("x",))
X = np.sin(np.arange(16.0 * count, dtype=np.float32)).reshape(4 * count, 4)


def over(*spec):
    return ferrax.NamedSharding(mesh, P(*spec))


def holds(array, whole):
    (shard,) = array.addressable_shards
    assert shard.device is gpus[me] and shard.data.devices() == {gpus[me]} and array.shape == whole.shape
    np.testing.assert_allclose(np.asarray(shard.data), np.asarray(whole)[shard.index], rtol=1e-5, atol=1e-5)
    return True


a = ferrax.device_put(X, over("x"))
assert holds(a, X) and not a.is_fully_addressable
assert holds(ferrax.device_put(a, over(None, "x")), X) and holds(ferrax.device_put(a, over()), X)
assert holds(a + 1, X + 1) and holds(jnp.sin(a), np.sin(X)) and holds(ferrax.jit(lambda a: a @ a.T)(a), X @ X.T)
assert holds(ferrax.jit(lambda a: a.sum())(a), X.sum())
assert holds(ferrax.grad(lambda a: (a**2).sum())(a), 2 * X)
part = ferrax.shard_map(
    lambda x: (lax.psum(x, "x"), lax.all_gather(x, "x", tiled=True) * lax.axis_index("x")), mesh=mesh, in_specs=P("x"),
    out_specs=(P(), P("x")), check_vma=False,
)  # fmt: skip
total, gathered = ferrax.jit(part)(a)
assert holds(total, X.reshape(count, 4, 4).sum(0))
assert holds(gathered, (np.arange(count)[:, None, None] * X).reshape(-1, 4))
np.testing.assert_array_equal(multihost_utils.process_allgather(a, tiled=True), X)
print("done")
