"""Meshes of several GPUs: arrays with a part in each memory, and programs of which each GPU runs its own.

FERRAX_GPU names one, which is taken as several: each has arrays, memory and programs of its own.
"""

import copy
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
from mpi_launch import PROGRAMS, needs_mpi, run

import ferrax
import ferrax.numpy as jnp
from ferrax import P, lax
from ferrax.experimental import checkpoint, multihost_utils

ferrax.config.update("jax_platforms", None)  # the environment may allow the CPU alone
(GPU,) = ferrax.devices("gpu")
COUNT = 4
AUTO, EXPLICIT = ferrax.sharding.AxisType.Auto, ferrax.sharding.AxisType.Explicit
X = np.sin(np.arange(64.0, dtype=np.float32)).reshape(8, 8)


@pytest.fixture(scope="module")
def gpus():
    before = ferrax.config.jax_gpu
    ferrax.config.update("jax_gpu", ",".join([str(GPU.id)] * COUNT))
    yield np.array(ferrax.devices("gpu"))
    ferrax.config.update("jax_gpu", before)


@pytest.fixture(scope="module")
def mesh(gpus):
    return ferrax.sharding.Mesh(gpus, ("x",))


@pytest.fixture(scope="module")
def square(gpus):
    return ferrax.sharding.Mesh(gpus.reshape(2, 2), ("x", "y"))


def over(mesh, *spec):
    return ferrax.NamedSharding(mesh, P(*spec))


def holds(array, whole, sharding=None):
    """Each part is on its device alone, and is that of the whole."""
    assert array.shape == whole.shape and isinstance(array, ferrax.Array)
    assert sharding is None or array.sharding.is_equivalent_to(sharding, array.ndim), array.sharding
    shards = array.addressable_shards
    assert [shard.device for shard in shards] == list(array.sharding._device_assignment)
    for shard in shards:
        assert shard.data.devices() == {shard.device}
        np.testing.assert_allclose(np.asarray(shard.data), np.asarray(whole)[shard.index], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(np.asarray(array), whole, rtol=1e-5, atol=1e-5)
    return True


def test_an_array_has_its_parts_in_the_memories_of_its_devices(mesh, gpus):
    before = [device.memory_stats()["bytes_in_use"] for device in gpus]
    a = ferrax.device_put(X, over(mesh, "x"))
    after = [device.memory_stats()["bytes_in_use"] for device in gpus]
    assert [later - earlier for earlier, later in zip(before, after)] == [X.nbytes // COUNT] * COUNT
    assert holds(a, X, over(mesh, "x"))
    assert (a.is_fully_addressable, a.is_fully_replicated, a.committed, a.is_ready()) == (True, False, True, True)
    assert a.devices() == set(gpus) and a.platform == "gpu" and a.block_until_ready() is a
    assert repr(a) == repr(jnp.asarray(X)) and str(a) == str(jnp.asarray(X)) and f"{a[0, 0]:.3f}" == f"{X[0, 0]:.3f}"
    assert a.tolist() == X.tolist() and a.sum().item() == pytest.approx(X.sum(), abs=1e-5)
    for same in (copy.copy(a), copy.deepcopy(a), a.copy(), ferrax.device_put(a)):
        assert holds(same, X, over(mesh, "x"))
    loaded = pickle.loads(pickle.dumps(a))
    assert loaded.tolist() == X.tolist()
    assert np.asarray(a, "float64").dtype == np.float64 and np.add(a, 1).shape == X.shape
    assert [row.tolist() for row in a] == X.tolist() and len(a) == 8
    assert float(a[0, 1]) == X[0, 1] and int(a[0, 0]) == 0 and bool(a[0, 1]) and [7, 8][a.astype(int)[0, 0]] == 7
    with pytest.raises(ValueError, match="ambiguous"):
        bool(a)
    with pytest.raises(BufferError, match="several memories. device_put"):
        np.from_dlpack(a)
    everywhere = ferrax.device_put(X, over(mesh))
    assert holds(everywhere, X) and everywhere.is_fully_replicated
    a.delete()
    assert a.is_deleted() and [device.memory_stats()["bytes_in_use"] for device in gpus] != after
    with pytest.raises(RuntimeError, match="deleted"):
        a + 1


def test_arrays_are_put_from_one_layout_into_another(mesh, square, gpus):
    turned = ferrax.sharding.Mesh(gpus[::-1], ("x",))
    a = ferrax.device_put(X, over(mesh, "x"))
    for where in (over(mesh, None, "x"), over(mesh), over(square, "y", "x"), over(turned, "x"), over(square, ("x", "y"))):
        assert holds(ferrax.device_put(a, where), X, where)
    for device in (gpus[2], ferrax.devices("cpu")[0]):
        alone = ferrax.device_put(a, device)
        assert alone.devices() == {device} and alone.tolist() == X.tolist()
        assert holds(ferrax.device_put(alone, over(square, "x")), X, over(square, "x"))
    parts = [shard.data for shard in a.addressable_shards]
    assert holds(ferrax.make_array_from_single_device_arrays(X.shape, over(mesh, "x"), parts), X, over(mesh, "x"))
    assert holds(ferrax.make_array_from_callback(X.shape, over(square, "y"), lambda index: X[index]), X, over(square, "y"))
    assert holds(ferrax.make_array_from_process_local_data(over(mesh, "x"), X), X, over(mesh, "x"))
    assert multihost_utils.process_allgather(a, tiled=True).tolist() == X.tolist()
    keys = ferrax.random.split(ferrax.random.key(3), 8)
    put = ferrax.device_put(keys, over(mesh, "x"))
    assert ferrax.random.key_data(put).tolist() == ferrax.random.key_data(keys).tolist()
    drawn = ferrax.jit(ferrax.vmap(lambda key: ferrax.random.normal(key, (2,))))(put)
    np.testing.assert_allclose(drawn, ferrax.vmap(lambda key: ferrax.random.normal(key, (2,)))(keys), rtol=1e-6)


def test_functions_are_programs_of_all_devices(mesh, square):
    a = ferrax.device_put(X, over(square, "x", "y"))
    w = ferrax.device_put(X[:, :4], over(square, "y"))
    local = jnp.asarray(X)
    functions = [
        lambda a: a + 1, jnp.sin, lambda a: (a @ a.T).sum(0), lambda a: a.at[0].set(7.0), lambda a: a[1:3],
        lambda a: jnp.sort(a, 0), lambda a: jnp.cumsum(a, 1), ferrax.nn.softmax, lambda a: a.reshape(4, 16).max(1),
        lambda a: lax.scan(lambda c, row: (c + row.sum(), row * c), 0.0, a)[1], ferrax.grad(lambda a: (a**3).sum()),
        lambda a: lax.while_loop(lambda c: c.sum() < 100, lambda c: c * c + 1, a), lambda a: lax.cond(a.sum() > 0, jnp.cos, jnp.sin, a),
        lambda a: jnp.linalg.inv(a @ a.T + jnp.eye(8)), lambda a: jnp.fft.fft(a).real, ferrax.vmap(lambda row: row / row.sum()),
    ]  # fmt: skip
    for function in functions:
        wanted = np.asarray(function(local))
        assert holds(function(a), wanted) and holds(ferrax.jit(function)(a), wanted)
    assert (a @ w).tolist() == ferrax.jit(jnp.matmul)(a, w).tolist()
    np.testing.assert_allclose(ferrax.jit(lambda x: x @ w)(a), X @ X[:, :4], rtol=1e-5, atol=1e-5)
    closed = ferrax.jit(lambda x: x + a * 2)
    for given in (w[:, :1], X, w[:, :1]):
        found = closed(given)
        np.testing.assert_allclose(found, np.asarray(given) + 2 * X, rtol=1e-6)
        assert found.devices() == (a.devices() if given is not X else {ferrax.devices()[0]})
    assert jnp.unique(ferrax.device_put(np.arange(8) % 3, over(mesh, "x"))).tolist() == [0, 1, 2]
    assert a[a > 0.9].tolist() == X[X > 0.9].tolist()
    value, gradient = ferrax.value_and_grad(lambda v: (v * a).sum())(local)
    np.testing.assert_allclose(gradient, X, rtol=1e-6)
    compiled = ferrax.jit(lambda a: a * 2, out_shardings=over(square, "y")).lower(a).compile()
    assert holds(compiled(a), 2 * X, over(square, "y"))
    placed = ferrax.jit(lambda x: x * 2, in_shardings=over(mesh, "x"), out_shardings=over(mesh, None, "x"))
    assert holds(placed(X), 2 * X, over(mesh, None, "x"))
    given = ferrax.device_put(X, over(mesh, "x"))
    ferrax.jit(lambda x: x + 1, donate_argnums=0)(given)
    assert given.is_deleted()
    with pytest.raises(ValueError, match="incompatible devices"):
        a + ferrax.device_put(X, over(ferrax.sharding.Mesh(mesh.devices[:2], ("x",)), "x"))


def test_meshes_in_use_and_explicit_types(gpus):
    explicit = ferrax.make_mesh((COUNT,), ("x",), axis_types=(EXPLICIT,), devices=gpus)
    with ferrax.set_mesh(explicit):
        a = ferrax.device_put(X, P("x"))
        assert str(ferrax.typeof(jnp.sin(a) * 2)) == "float32[8@x,8]" and holds(jnp.sin(a) * 2, np.sin(X) * 2)
        assert str(ferrax.typeof(ferrax.reshard(a, P(None, "x")))) == "float32[8,8@x]"
        assert holds(jnp.ones((8, 1)) + a, X + 1) and holds(jnp.arange(8, out_sharding=P("x")), np.arange(8))
        drawn = ferrax.random.normal(ferrax.random.key(0), (8, 2), out_sharding=P("x"))
    np.testing.assert_allclose(drawn, ferrax.random.normal(ferrax.random.key(0), (8, 2)), rtol=1e-6)
    with ferrax.set_mesh(ferrax.make_mesh((COUNT,), ("x",), axis_types=(AUTO,), devices=gpus)):
        made = jnp.ones(8) * 2
        assert made.devices() == set(gpus) and holds(made, np.full(8, 2.0))
        assert holds(ferrax.jit(lambda: lax.with_sharding_constraint(jnp.arange(8.0), P("x")))(), np.arange(8.0))


def test_functions_of_parts_exchange_what_they_say(mesh, square):
    def everything(x):
        place = lax.axis_index("x").astype(x.dtype)
        return (
            lax.psum(x, "x"), lax.pmax(x * place, "x"), lax.all_gather(x, "x"), lax.ppermute(x, "x", [(0, 1), (1, 2), (3, 0)]),
            lax.psum_scatter(jnp.tile(x, (4, 1)), "x", tiled=True), lax.all_to_all(jnp.tile(x, (2, 1)), "x", 0, 0, tiled=True),
            lax.cond(place > 1, lambda: jnp.sin(x), lambda: x), lax.psum(x, "x", axis_index_groups=[[0, 2], [1, 3]]),
        )  # fmt: skip

    def on(mesh):
        out = (P(), P(), P(None, "x"), P("x"), P("x"), P("x"), P("x"), P("x"))
        return ferrax.shard_map(everything, mesh=mesh, in_specs=P("x"), out_specs=out, check_vma=False)

    processors = ferrax.sharding.Mesh(np.array(ferrax.devices("cpu")[:COUNT]), ("x",))
    for ours, wanted in zip(ferrax.jit(on(mesh))(X), on(processors)(X)):
        assert holds(ours, np.asarray(wanted))

    def loss(w, x):
        mapped = ferrax.shard_map(
            lambda w, x: lax.pmean((jnp.tanh(x @ w) ** 2).sum(), ("x", "y")), mesh=square, in_specs=(P(), P(("x", "y"))),
            out_specs=P(),
        )  # fmt: skip
        return mapped(w, x)

    wanted = ferrax.grad(lambda w: (jnp.tanh(X @ w) ** 2).sum() / COUNT)(jnp.asarray(X[:, :3]))
    assert holds(ferrax.grad(loss)(jnp.asarray(X[:, :3]), ferrax.device_put(X, over(square, ("x", "y")))), np.asarray(wanted))
    summed = ferrax.pmap(lambda x: lax.psum(x, "i"), axis_name="i", devices=list(mesh.devices))(X[:COUNT])
    assert holds(summed, np.tile(X[:COUNT].sum(0), (COUNT, 1)))


def test_training(square):
    """Parameters lie in parts, batches along the other axis; what is learned is what one processor learns."""
    where = {"w": over(square, None, "y"), "v": over(square, "y")}
    start = {"w": X[:, :4], "v": X[:4, :2]}
    targets = np.cos(X[:, :2])

    def step(parameters, x, y):
        def loss(parameters):
            return ((jnp.tanh(x @ parameters["w"]) @ parameters["v"] - y) ** 2).mean()

        value, slopes = ferrax.value_and_grad(loss)(parameters)
        return ferrax.tree.map(lambda p, g: p - 0.5 * g, parameters, slopes), value

    ours = ferrax.tree.map(ferrax.device_put, start, where)
    alone = ferrax.tree.map(jnp.asarray, start)
    x, y = (ferrax.device_put(array, over(square, "x")) for array in (X, targets))
    train, losses = ferrax.jit(step, donate_argnums=0), []
    for _ in range(5):
        ours, value = train(ours, x, y)
        alone, wanted = ferrax.jit(step)(alone, X, targets)
        losses.append(float(value))
        assert losses[-1] == pytest.approx(float(wanted), rel=1e-5)
    assert losses == sorted(losses, reverse=True)
    for name in start:
        assert holds(ours[name], np.asarray(alone[name]), where[name])


def test_what_devices_have_is_saved_and_loaded(mesh, square, tmp_path):
    a = ferrax.device_put(X, over(mesh, "x"))
    checkpoint.save(tmp_path / "saved", {"a": a})
    for where in (over(mesh, "x"), over(square, "y", "x")):
        loaded = checkpoint.load(tmp_path / "saved", {"a": a}, {"a": where})["a"]
        assert holds(loaded, X, where)


def test_one_device_that_fails_ends_all(mesh):
    """Others wait for it in a sum, which never comes."""

    def fails(place):
        if place == 2:
            raise ValueError("this device has enough")
        return place

    def part(x):
        place = ferrax.pure_callback(fails, ferrax.ShapeDtypeStruct((), np.int32), lax.axis_index("x"))
        return lax.psum(x + place.astype(x.dtype), "x")

    function = ferrax.shard_map(part, mesh=mesh, in_specs=P("x"), out_specs=P(), check_vma=False)
    for _ in range(2):
        with pytest.raises(Exception, match="this device has enough"):
            function(X)
    assert holds(ferrax.device_put(X, over(mesh, "x")) + 1, X + 1)


def test_devices_that_choose_otherwise_are_told_apart(mesh):
    def part(x):
        return lax.cond(lax.axis_index("x") > 1, lambda: lax.psum(x, "x"), lambda: lax.pmax(x, "x"))

    function = ferrax.shard_map(part, mesh=mesh, in_specs=P("x"), out_specs=P("x"), check_vma=False)
    with pytest.raises(ferrax.errors.JaxRuntimeError, match="do not do the same.*test_meshes.py"):
        function(X)


def with_several(program, *arguments, count):
    environment = os.environ | {"JAX_PLATFORMS": "", "FERRAX_GPU": ",".join([str(GPU.id)] * count)}
    return subprocess.run([sys.executable, str(PROGRAMS / program), *arguments], env=environment, capture_output=True, text=True)


def test_programs_of_processes_on_eight(tmp_path):
    """Those that are run over processes, with what the processor finds."""
    kept = str(tmp_path / "found.npz")
    for devices in ("8", "gpu"):
        ran = with_several("programs.py", kept, devices, count=8)
        assert ran.returncode == 0 and ran.stdout.strip() == "done", ran.stderr


@needs_mpi
def test_each_process_has_one(monkeypatch):
    """Of as many as the machine has; they exchange through MPI."""
    monkeypatch.setenv("JAX_PLATFORMS", "")
    monkeypatch.setenv("FERRAX_GPU", f"{GPU.id},{GPU.id}")
    status, out, err = run("gpus.py", 2)
    assert status == 0 and out.count("done") == 2, err
