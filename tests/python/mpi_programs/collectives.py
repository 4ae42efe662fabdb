"""Run by several processes: collectives over frames, beside one process that has all devices; errors of starting."""

import itertools
import sys

import numpy as np
from exchange_cases import DTYPES, by_hand, cases, groupings, same_bits, values
from expected import raises

import ferrax
from ferrax._src.parallel import exchange

each = 3
ferrax.config.update("jax_num_cpu_devices", each)
assert "num_processes=99" in raises(ValueError, lambda: ferrax.distributed.initialize(num_processes=99))
assert "process_id=-1" in raises(ValueError, lambda: ferrax.distributed.initialize(process_id=-1))
ferrax.distributed.initialize(local_device_ids=[0, 1, 2])
assert ferrax.distributed.is_initialized()
assert "already" in raises(RuntimeError, ferrax.distributed.initialize)

me, count = ferrax.process_index(), ferrax.process_count()
if count > 1:
    assert "jax_num_cpu_devices" in raises(RuntimeError, lambda: ferrax.config.update("jax_num_cpu_devices", 5))
assert count == int(sys.argv[1]) and ferrax.process_indices() == list(range(count))
ids = [2048 * process + number for process in range(count) for number in range(each)]
assert [device.id for device in ferrax.devices()] == ids
assert [device.process_index for device in ferrax.devices()] == [id // 2048 for id in ids]
assert ferrax.local_devices() == ferrax.devices()[me * each : (me + 1) * each]
assert ferrax.local_devices(process_index=count - 1) == ferrax.devices()[-each:]
assert (ferrax.device_count(), ferrax.local_device_count()) == (count * each, each)
assert [device.local_hardware_id for device in ferrax.local_devices()] == list(range(each))
assert ferrax.jit(lambda x: x + 1)(ferrax.numpy.ones(2)).devices() == {ferrax.local_devices()[0]}
raises(ValueError, lambda: ferrax.local_devices(process_index=count))

devices = count * each


def check(kind, frames, groups, params):
    mine = exchange.run(kind, frames[me * each : (me + 1) * each], groups, line="collectives.py", **params)
    same_bits(mine, by_hand(kind, frames, groups, **params)[me * each : (me + 1) * each])


dtypes = itertools.cycle(DTYPES)
for name, groups in groupings(devices):
    for kind, shape, params in cases(None if name == "uneven" else len(groups[0])):
        check(kind, values((devices, *shape), next(dtypes)), groups, params)
# Memory that follows its header.
everybody = [list(range(devices))]
for kind, params in [
    ("psum", {}),
    ("psum_scatter", {"tiled": True}),
    ("all_gather", {"tiled": True}),
    ("all_to_all", {"tiled": True}),
    ("ppermute", {"perm": [(place, (place + 4) % devices) for place in range(devices)]}),
    ("pbroadcast", {"source": devices - 2}),
]:
    for length in (devices * 1000, devices * 50_000):
        check(kind, values((devices, length), "float32"), everybody, params)
check("psum", np.ones((devices, 0)), everybody, {})
sys.stdout.write(f"process {me} of {count} is done\n")
ferrax.distributed.shutdown()
assert not ferrax.distributed.is_initialized()
if count > 1:
    assert "shutdown() was called" in raises(RuntimeError, lambda: check("psum", np.ones((devices, 1)), everybody, {}))
    assert "start anew" in raises(RuntimeError, ferrax.distributed.initialize)
