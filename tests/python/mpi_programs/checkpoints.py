"""Run by several processes: what one number of them saved on a mesh is loaded by another on another one."""

import pathlib
import sys

import ml_dtypes
import numpy as np
from expected import raises

import ferrax
import ferrax.numpy as jnp
from ferrax import P
from ferrax.experimental import checkpoint

what, folder = sys.argv[1], sys.argv[2]
ferrax.config.update("jax_num_cpu_devices", 2)
ferrax.distributed.initialize()
me, count = ferrax.process_index(), ferrax.process_count()
devices = np.array(ferrax.devices())
mesh = ferrax.sharding.Mesh(devices.reshape(count, 2), ("x", "y"))
if what == "load":
    mesh = ferrax.sharding.Mesh(devices[::-1].reshape(2, count), ("x", "y"))

values = {
    "w": np.arange(16 * 24, dtype=np.float32).reshape(16, 24),
    "half": np.arange(16).astype(ml_dtypes.bfloat16),
    "small": (np.arange(16) % 8).astype(ml_dtypes.int4),
    "flags": np.arange(8) % 3 == 0,
    "complex": np.arange(8) * 1j,
    "eighths": (np.arange(16) / 8).astype(ml_dtypes.float8_e4m3fn),
    "empty": np.zeros((0, 8), np.float32),
    "nothing of each": np.zeros((16, 0), ml_dtypes.bfloat16),
    "all": np.arange(5),
    "one": np.asarray(2.5, ml_dtypes.bfloat16),
    "six": np.arange(6 * 4).reshape(6, 4),
}
specs = {"w": P("x", "y"), "half": P(("y", "x")), "small": P("y"), "flags": P("x"), "complex": P("x"), "all": P()}
specs |= {"eighths": P("x"), "empty": P("y", "x"), "nothing of each": P("x"), "six": P("y", "x")}
if what == "load":
    specs |= {"w": P("y"), "small": P(), "complex": P(("x", "y")), "all": P(), "empty": P("x"), "six": P("x")}
shardings = {name: ferrax.NamedSharding(mesh, specs.get(name, P())) for name in values}
keys = ferrax.random.split(ferrax.random.key(3), 8)
over_x = ferrax.NamedSharding(mesh, P("x"))
if what == "save":
    tree = {name: ferrax.device_put(value, shardings[name]) for name, value in values.items()}
    state = {"arrays": tree, "keys": ferrax.device_put(keys, over_x), "own": jnp.ones(3), "step": 7}
    state["key"] = ferrax.device_put(keys[1], ferrax.NamedSharding(mesh, P()))
    state["weak"] = ferrax.jit(lambda v: jnp.full(v.shape, 2.0), out_shardings=over_x)(tree["flags"])
    checkpoint.save(folder, state)
    written = (pathlib.Path(folder) / f"part-{me:05d}.safetensors").stat().st_size
    whole = sum(value.nbytes for value in values.values()) + 8 * 8
    assert written < 4000 + whole / count
    try:
        checkpoint.save(folder, state)
    except FileExistsError:
        checkpoint.save(folder, state, overwrite=True)
else:
    whole = ferrax.NamedSharding(mesh, P())
    tree = {"arrays": shardings, "keys": over_x, "own": 0, "step": 0, "key": whole, "weak": over_x}
    places = tree | {"own": None, "step": None}
    loaded = checkpoint.load(folder, tree, places)
    for name, value in values.items():
        array = loaded["arrays"][name]
        assert array.sharding == shardings[name] and array.shape == value.shape
        for shard in array.addressable_shards:
            expected = jnp.asarray(value)[shard.index]
            assert shard.data.dtype == expected.dtype and np.array_equal(shard.data, expected), name
    for shard in loaded["keys"].addressable_shards:
        assert np.array_equal(ferrax.random.key_data(shard.data), ferrax.random.key_data(keys)[shard.index[0]])
    assert np.array_equal(loaded["own"], np.ones(3)) and loaded["step"] == 7 and loaded["step"].weak_type
    assert loaded["key"].sharding == whole and loaded["key"] == keys[1]
    assert loaded["weak"].weak_type and all(np.array_equal(s.data, [2.0] * 4) for s in loaded["weak"].addressable_shards)
    # Types say where arrays are to be; parts that are not equal are an error in each process, which go on together.
    types = {name: ferrax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding) for name, x in loaded["arrays"].items()}
    again = checkpoint.load(folder, {"arrays": types})["arrays"]
    assert all(again[name].sharding == types[name].sharding for name in types)
    for spec in (P(("x", "y")), P(None, ("y", "x"))):
        uneven = ferrax.NamedSharding(ferrax.sharding.Mesh(devices.reshape(1, -1), ("x", "y")), spec)
        fits = all(size % len(devices) == 0 for size, names in zip((6, 4), spec) if names)
        if not fits:
            said = raises(ValueError, lambda s=uneven: checkpoint.load(folder, {"arrays": {"six": 0}}, {"arrays": {"six": s}}))
            assert "not divisible" in said and str(len(devices)) in said, said
    other = ferrax.ShapeDtypeStruct((16,), np.float32, sharding=over_x)
    assert "bfloat16[16]" in raises(ValueError, lambda: checkpoint.load(folder, {"arrays": {"half": other}}))
    raises(ValueError, lambda: ferrax.device_put(np.arange(5), over_x))
sys.stdout.write(f"process {me} of {count} is done\n")
