"""What programs of several processes ask of each other, with one process; pictures of shardings."""

import itertools
import sys

import jax
import numpy as np
import pytest
from oracle import module, same
from test_mesh import named, outcomes

import ferrax


@same
def test_utilities_of_several_processes(S):
    utils = module(S, "experimental.multihost_utils")
    _, P, device, auto, _, _ = named(S)
    x, tree = np.arange(3.0, dtype=np.float32), {"a": S.jnp.ones(2), "b": 1}
    gathered = utils.process_allgather(x), utils.process_allgather(x, tiled=True), utils.process_allgather(tree)
    made = utils.host_local_array_to_global_array({"a": x}, auto, P("x"))["a"]
    back = utils.global_array_to_host_local_array(made, auto, P("x"))
    return gathered, utils.broadcast_one_to_all(tree), outcomes(
        S,
        lambda: [type(leaf).__name__ for leaf in S.jax.tree.leaves((gathered, utils.broadcast_one_to_all(x)))],
        lambda: (made.sharding, back.sharding, back),
        lambda: (utils.sync_global_devices("here"), utils.assert_equal(tree, "equal")),
        lambda: utils.host_local_array_to_global_array(x, auto, None),
        lambda: utils.live_devices([device]).__enter__(),
        lambda: utils.reached_preemption_sync_point(0),
    )  # fmt: skip


@same
def test_devices_of_meshes(S):
    utils = module(S, "experimental.mesh_utils")
    devices = S.jax.devices()
    return outcomes(
        S,
        lambda: (utils.create_device_mesh((1,)), utils.create_device_mesh([1, 1], devices)),
        lambda: utils.create_hybrid_device_mesh((1, 1), (1, 1), process_is_granule=True),
        lambda: utils.create_device_mesh((2,)),
        lambda: utils.create_device_mesh(1),
        lambda: utils.create_hybrid_device_mesh((1,), (1,)),
        lambda: utils.create_hybrid_device_mesh((1,), (2,), process_is_granule=True),
    )


def test_meshes_of_groups_of_devices():
    class Device:
        def __init__(self, number, group):
            self.number, self.slice_index = number, group

    from ferrax.experimental.mesh_utils import create_hybrid_device_mesh

    devices = [Device(number, number % 2) for number in range(8)]
    grid = create_hybrid_device_mesh((2, 2), (2, 1), devices)
    numbers = [[device.number for device in row] for row in grid]
    # Rows 0 and 1 are of group 0, rows 2 and 3 of group 1.
    assert numbers == [[0, 2], [4, 6], [1, 3], [5, 7]]


def _printed(capsys, call):
    call()
    return capsys.readouterr().out


@pytest.mark.parametrize("shape", [(9,), (1,), (2, 2), (2, 4), (1, 8), (64, 2)])
def test_pictures_of_one_device(capsys, shape):
    import jax

    ours = _printed(capsys, lambda: ferrax.debug.visualize_sharding(shape, ferrax.numpy.ones(()).sharding))
    theirs = _printed(capsys, lambda: jax.debug.visualize_sharding(shape, jax.numpy.ones(()).sharding))
    assert ours == theirs


def test_pictures_of_several_devices(capsys):
    made = [ferrax.Device(number, ferrax.devices()[0].client) for number in range(4)]
    mesh = ferrax.sharding.Mesh(np.array(made).reshape(2, 2), ("x", "y"))
    sharding = ferrax.NamedSharding(mesh, ferrax.P("x"))
    picture = _printed(capsys, lambda: ferrax.debug.visualize_sharding((4, 4), sharding, scale=0.3))
    assert picture.splitlines()[2] == "│" + "CPU 0,1".center(13) + "│"
    assert picture.count("├") == 1 and picture.splitlines()[5].strip("│ ") == "CPU 2,3"
    with pytest.raises(ValueError, match="one or two axes"):
        ferrax.debug.visualize_sharding((1, 1, 1), sharding)


def test_shardings_are_inspected_once_for_each_placement():
    found = []
    f = ferrax.jit(lambda x: (ferrax.debug.inspect_array_sharding(x + 1, callback=found.append), x)[1])
    f(ferrax.numpy.ones(2))
    f(ferrax.numpy.ones(2))
    ferrax.effects_barrier()
    assert [sharding.is_fully_replicated for sharding in found] == [True]


def test_one_process():
    distributed = ferrax.distributed
    address = {"coordinator_address": "localhost:1234"}
    one = {**address, "num_processes": 1, "process_id": 0}
    for arguments, error in (
        ({}, ValueError),
        (address, ValueError),
        ({**address, "num_processes": 1}, ValueError),
        ({**address, "num_processes": 1, "process_id": 1}, ValueError),
        ({**address, "num_processes": "1", "process_id": 0}, TypeError),
        ({**address, "num_processes": 2, "process_id": 0}, NotImplementedError),
        ({**one, "cluster_detection_method": "slurm"}, NotImplementedError),
        ({**one, "local_device_ids": [0, 99]}, ValueError),
        ({**one, "local_device_ids": "0"}, TypeError),
        ({**one, "slice_index": 1, "partition_index": 2}, ValueError),
    ):
        with pytest.raises(error):
            distributed.initialize(**arguments)
        assert not distributed.is_initialized()
    distributed.initialize(
        **one, local_device_ids=range(ferrax.device_count()), partition_index=3, cluster_detection_method="deactivate"
    )
    assert ferrax._src.parallel.distributed.global_state.partition_index == 3
    with pytest.raises(RuntimeError, match="initialized already"):
        distributed.initialize("localhost:1234", 1, 0)
    assert distributed.is_initialized()
    distributed.shutdown()
    assert not distributed.is_initialized()


def test_several_processes_that_nothing_joins(monkeypatch):
    distributed = ferrax.distributed
    for size, rank in (("PMI_SIZE", "PMI_RANK"), ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK")):
        monkeypatch.setenv(size, "2")
        monkeypatch.setenv(rank, "0")
        # Devices were asked for before; where they were not, MPI is.
        with pytest.raises(RuntimeError, match="before devices"):
            ferrax.devices()
            distributed.initialize()
        with monkeypatch.context() as inner:
            inner.setattr(ferrax._src.core.devices, "devices_were_used", lambda: False)
            inner.setitem(sys.modules, "mpi4py.MPI", None)
            with pytest.raises(ImportError, match=r"ferrax\[mpi\]"):
                distributed.initialize()
        monkeypatch.setenv(size, "1")
        distributed.initialize()
        assert distributed.is_initialized() and ferrax.process_count() == 1
        distributed.shutdown()
        monkeypatch.delenv(size)


@same
def test_where_parts_of_programs_run(S):
    on = module(S, "experimental.compute_on")
    space = S.jax.memory.Space

    def run(kind, **options):
        f = on.compute_on2(S.jnp.sin, compute_type=kind, out_memory_spaces=space.Device, **options)
        with on.compute_on(kind):
            return S.jnp.cos(S.jnp.ones(2)), f(S.jnp.ones(2))

    def only(kind):
        with on.compute_on(kind):
            return 1

    return run("device_host"), outcomes(S, lambda: only("device"), lambda: only("moon"), lambda: only(1))


def test_older_names():
    mesh = ferrax.make_mesh((1,), ("x",))
    with pytest.warns(DeprecationWarning):
        from ferrax.experimental.shard_map import shard_map
    f = shard_map(lambda x: x + 1, mesh, ferrax.P("x"), ferrax.P(), check_rep=False)
    assert f(ferrax.numpy.ones(2)).tolist() == [2, 2]
    with pytest.warns(DeprecationWarning):
        from ferrax.experimental.pjit import pjit
    assert pjit(ferrax.numpy.sin)(0.0) == 0.0


def test_processes_and_backends():
    for library, call in itertools.product(
        (jax, ferrax),
        (
            lambda S: S.local_devices(process_index=3),
            lambda S: S.process_index("gpu"),
            lambda S: S.process_count("gpu"),
            lambda S: S.process_indices("gpu"),
        ),
    ):
        with pytest.raises((ValueError, RuntimeError)):
            call(library)
    assert ferrax.local_devices(0, "cpu")[0] is ferrax.devices()[0]
    assert list(ferrax.process_indices("cpu")) == list(jax.process_indices("cpu"))
