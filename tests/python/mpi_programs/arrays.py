"""Run by several processes with two devices each: arrays over all devices, and what processes ask of each other."""

import copy
import os
import pickle
import signal
import sys

import numpy as np
from expected import raises

import ferrax
import ferrax.numpy as jnp
from ferrax import P
from ferrax.experimental import multihost_utils
from ferrax.experimental.layout import Format, Layout

ferrax.config.update("jax_num_cpu_devices", 2)
ferrax.distributed.initialize()
me, count = ferrax.process_index(), ferrax.process_count()
assert count in (2, 4)
devices = ferrax.devices()
number = len(devices)
mesh = ferrax.sharding.Mesh(np.array(devices), ("x",))
square = ferrax.sharding.Mesh(np.array(devices).reshape(count, 2), ("p", "d"))
turned = ferrax.sharding.Mesh(np.array(devices).reshape(count, 2).T, ("d", "p"))


def over(*spec, mesh=mesh):
    return ferrax.NamedSharding(mesh, P(*spec))


x = np.arange(8 * number, dtype=np.float32)


def holds(array, whole):
    """Each of this process's parts is that of the whole."""
    assert array.shape == whole.shape and array.dtype == whole.dtype
    for shard in array.addressable_shards:
        assert shard.data.devices() == {shard.device}
        np.testing.assert_array_equal(np.asarray(shard.data), whole[shard.index])
    return True


# Arrays of which each process has some parts.
a = ferrax.make_array_from_callback(x.shape, over("x"), lambda index: x[index])
assert holds(a, x) and isinstance(a, ferrax.Array)
assert repr(a) == str(a) == f"{a}" == f"Array(shape=({x.size},), dtype=float32)"
assert (a.is_fully_addressable, a.is_fully_replicated, a.committed) == (False, False, True)
assert (a.nbytes, a.on_device_size_in_bytes(), len(a), a.ndim, a.size) == (x.nbytes, x.nbytes, x.size, 1, x.size)
assert a.sharding == a.device == over("x") and a.devices() == set(devices)
assert [shard.device for shard in a.addressable_shards] == ferrax.local_devices()
assert len(a.global_shards) == number
assert {s.device for s in a.global_shards if s.data is None} == set(devices) - set(ferrax.local_devices())
assert a.addressable_data(1).shape == (8,)
assert ferrax.typeof(a).shape == x.shape and ferrax.block_until_ready({"a": a})["a"] is a
raises(IndexError, lambda: a.addressable_data(2))
for read in (np.asarray, pickle.dumps, ferrax.device_get, lambda a: a.tolist(), lambda a: np.add(a, 1)):
    assert "process_allgather" in raises(RuntimeError, lambda read=read: read(a))
assert "others the rest" in raises(RuntimeError, ferrax.jit(lambda: jnp.sin(a)))
assert "iterate" in raises(AssertionError, lambda: list(a))
raises(TypeError, lambda: hash(a))
raises(BufferError, lambda: np.from_dlpack(a))
assert holds(copy.deepcopy(a), x) and holds(a.copy(), x)

# Layouts are those of arrays that one process has.
rows = np.arange(8 * number, dtype=np.float32).reshape(number, 8)
columns = Format(Layout((1, 0)), over("x"))
b = ferrax.device_put(rows, over("x"))
own = ferrax.device_put(rows, Format(Layout((1, 0)), ferrax.sharding.SingleDeviceSharding(ferrax.local_devices()[0])))
for lay in (
    lambda: ferrax.device_put(rows, columns),
    lambda: ferrax.device_put(b, columns),
    lambda: ferrax.device_put(own, over("x")),
    lambda: ferrax.make_array_from_callback(rows.shape, columns, lambda index: rows[index]),
    lambda: ferrax.jit(lambda a: a + 1, in_shardings=columns)(rows),
    lambda: ferrax.jit(lambda a: a + 1, out_shardings=columns)(b),
):
    assert "row" in raises(NotImplementedError, lay)
assert holds(ferrax.device_put(own, Format(None, over("x"))), rows)

# Operators and methods are programs of their own.
for result, wanted in ((a + 1, x + 1), (1 - a, 1 - x), (x * a, x * x), (a**2, x**2), (-a, -x), (abs(a - 20), abs(x - 20)),
                       (a.reshape(2, -1).T, x.reshape(2, -1).T), (a.astype("int32"), x.astype("int32")), (a[::2], x[::2])):  # fmt: skip
    assert result.dtype == jnp.asarray(wanted).dtype and holds(result, np.asarray(wanted))
assert holds(a + a == 2 * a, np.ones(x.size, bool)) and holds(a < x[3], x < x[3])
assert float(a.sum()) == x.sum() and float(a[3]) == x[3] and float(a @ a) == x @ x and int(a.argmax()) == x.argmax()
assert a.cumsum(axis=0).shape == x.shape and holds(a.clip(2, 5), x.clip(2, 5))
raises(AttributeError, lambda: a.nothing)
raises(TypeError, lambda: a + "text")
gone = a.copy()
gone.delete()
assert gone.is_deleted() and not a.is_deleted()
raises(RuntimeError, lambda: gone.addressable_shards)

# Arrays that each process has all of.
for sharding in (over(), over("d", mesh=square), over("d", mesh=turned)):
    r = ferrax.make_array_from_callback(x.shape, sharding, lambda index: x[index])
    assert holds(r, x) and np.array_equal(np.asarray(r), x)
    assert not r.is_fully_addressable and r.is_fully_replicated == (sharding.spec == P())
    assert len(r.global_shards) == number and len(r.addressable_shards) == 2
replicated = ferrax.device_put(x, over())
assert (replicated + 1).sharding.is_equivalent_to(over(), 1) and np.array_equal(replicated + 1, x + 1)

# Made of parts, of what processes have, and of values that all have.
parts = [shard.data for shard in a.addressable_shards]
assert holds(ferrax.make_array_from_single_device_arrays(x.shape, over("x"), parts[::-1]), x)
raises(ValueError, lambda: ferrax.make_array_from_single_device_arrays(x.shape, over("x"), parts[:1]))
mine = x[16 * me : 16 * (me + 1)]
local = ferrax.make_array_from_process_local_data
for given in (local(over("x"), mine), local(over("x"), mine, x.shape), local(over("x"), x, x.shape)):
    assert holds(given, x)
assert np.array_equal(np.asarray(local(over(), x)), x)
raises(ValueError, lambda: local(over("x"), mine[:3], x.shape))
raises(ValueError, lambda: local(over("x"), mine, (2 * x.size,)))
table = x.reshape(-1, 4)
assert holds(local(over("p", "d", mesh=square), table[4 * me : 4 * me + 4]), table)
assert holds(ferrax.device_put(x, over("x")), x) and holds(ferrax.device_put(jnp.asarray(x), over("x")), x)
assert "not the same" in raises(AssertionError, lambda: ferrax.device_put(x + me, over("x")))
scalar = ferrax.device_put(3.0, over())
assert scalar.weak_type and float(scalar) == 3.0

# Laid out anew, also over other devices.
one = ferrax.sharding.Mesh(np.array(devices[::-1]).reshape(2, count), ("x", "y"))
half = ferrax.sharding.Mesh(np.array(devices[:2] + devices[-2:]).reshape(2, 2), ("x", "y"))
wide = x.reshape(number, 8).astype("complex64")
b = ferrax.device_put(wide, over("x"))
for sharding in (
    over(None, "d", mesh=square), over("d", "p", mesh=square), over(), over(("y", "x"), mesh=one),
    over("y", "x", mesh=one), over("y", mesh=half), over(None, ("y", "x"), mesh=half), over("x"),
):  # fmt: skip
    b = ferrax.device_put(b, sharding)
    assert b.sharding == sharding
    if b.addressable_shards:
        holds(b, wide)
keys = ferrax.random.split(ferrax.random.key(0), number)
spread = ferrax.device_put(keys, over("x"))
back = ferrax.device_put(spread, over())
assert np.array_equal(ferrax.random.key_data(back), ferrax.random.key_data(keys))
assert raises(ValueError, lambda: ferrax.device_put(np.ones(number + 1), over("x")))
for whole in (b, back, a):
    assert "several processes" in raises(ValueError, lambda w=whole: ferrax.device_put(w, ferrax.local_devices()[0]))
assert raises(ValueError, lambda: jnp.zeros(number, out_sharding=over("x")))

# What processes ask of each other.
gathered = multihost_utils.process_allgather({"a": x[:2] * me, "b": 3})
np.testing.assert_array_equal(gathered["a"], np.outer(np.arange(count), x[:2]))
assert gathered["b"].tolist() == [3] * count and gathered["b"].dtype == np.int32
tiled = multihost_utils.process_allgather({"a": x[:2] * me, "b": 3, "c": a}, tiled=True)
np.testing.assert_array_equal(tiled["a"], np.outer(np.arange(count), x[:2]).reshape(-1))
assert tiled["b"].tolist() == [3] * count and np.array_equal(tiled["c"], x)
assert "tiled" in raises(ValueError, lambda: multihost_utils.process_allgather(a))
got = multihost_utils.broadcast_one_to_all({"a": x * me + 1, "b": jnp.bfloat16(me)})
assert np.array_equal(got["a"], np.ones_like(x)) and got["b"] == 0
got = multihost_utils.broadcast_one_to_all(x * me, is_source=me == count - 1)
np.testing.assert_array_equal(got, x * (count - 1))
assert "one process" in raises(ValueError, lambda: multihost_utils.broadcast_one_to_all(x, is_source=False))
multihost_utils.assert_equal({"a": x, "b": np.nan})
assert "they differ" in raises(AssertionError, lambda: multihost_utils.assert_equal(x * (me == 0), "they differ"))
multihost_utils.sync_global_devices("here")
raises(AssertionError, lambda: multihost_utils.sync_global_devices(f"here {me == 1}"))
h = multihost_utils.host_local_array_to_global_array({"a": mine, "b": mine}, mesh, {"a": P("x"), "b": P()})
assert holds(h["a"], x) and h["b"].shape == mine.shape
back = multihost_utils.global_array_to_host_local_array(h, mesh, {"a": P("x"), "b": P()})
assert np.array_equal(back["a"], mine) and back["a"].sharding == ferrax.NamedSharding(mesh.local_mesh, P("x"))
assert np.array_equal(multihost_utils.global_array_to_host_local_array(h["a"], mesh, P()), x)
with multihost_utils.live_devices(devices) as live:
    assert live == devices
assert not multihost_utils.reached_preemption_sync_point(1)
if me == 1:
    os.kill(os.getpid(), signal.SIGTERM)
assert multihost_utils.reached_preemption_sync_point(2)

# Keys and values, and barriers by name.
client = ferrax._src.parallel.distributed.global_state.client
deadline = ferrax.errors.JaxRuntimeError
if me == 1:
    client.key_value_set("run/name", "größer")
    client.key_value_set_bytes("run/bytes", b"\0\xff")
assert client.blocking_key_value_get("run/name", 10_000) == "größer"
client.wait_at_barrier("set", 10_000)
assert client.key_value_try_get_bytes("run/bytes") == b"\0\xff"
assert client.key_value_dir_get_bytes("run/") == [("run/bytes", b"\0\xff"), ("run/name", "größer".encode())]
assert "ALREADY_EXISTS" in raises(deadline, lambda: client.key_value_set("run/name", "other"))
assert "NOT_FOUND" in raises(deadline, lambda: client.key_value_try_get("nothing"))
assert "DEADLINE_EXCEEDED" in raises(deadline, lambda: client.blocking_key_value_get("nothing", 50))
client.key_value_increment("count", 2)
client.wait_at_barrier("set", 10_000)
assert client.key_value_increment("count", 0) == 2 * count
if me < 2:
    client.wait_at_barrier("two", 10_000, [0, 1])
    late = raises(
        deadline, lambda: client.wait_at_barrier("missing", 200) if me == 1 else client.wait_at_barrier("x", 100)
    )
    assert "DEADLINE_EXCEEDED" in late and (me or ", ".join(map(str, range(1, count))) in late)
client.wait_at_barrier("end", 10_000)
if me == 1:
    client.key_value_delete("run")
client.wait_at_barrier("end", 10_000)
assert client.key_value_dir_get_bytes("run") == []
sys.stdout.write(f"process {me} of {count} is done\n")
