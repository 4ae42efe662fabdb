"""Kernels that write to the memory of other devices, against collectives and known values."""

import numpy as np
import pytest

import ferrax
import ferrax.numpy as jnp
from ferrax import lax
from ferrax.experimental import pallas as pl
from ferrax.experimental.pallas import tpu as pltpu

COUNT = 4
DMA, REGULAR = pltpu.SemaphoreType.DMA, pltpu.SemaphoreType.REGULAR
COLLECTIVE = pltpu.CompilerParams(collective_id=0)
X = np.arange(2 * COUNT, dtype=np.float32) + 1
P = ferrax.P


def mapped(kernel, shape, mesh=((COUNT,), ("x",)), scratch=(DMA, DMA), **kwargs):
    """The kernel on each device of a mesh, of its part of an array along all axes."""
    call = pl.pallas_call(
        kernel, ferrax.ShapeDtypeStruct(shape, np.float32), scratch_shapes=scratch, compiler_params=COLLECTIVE, **kwargs
    )
    spec = P(mesh[1])
    return ferrax.shard_map(call, mesh=ferrax.make_mesh(*mesh), in_specs=spec, out_specs=spec, check_vma=False)


def to_the_right(x_ref, o_ref, send_sem, recv_sem):
    own = lax.axis_index("x")
    right, left = (own + 1) % COUNT, (own - 1) % COUNT
    barrier = pltpu.get_barrier_semaphore()
    pl.semaphore_signal(barrier, device_id=(left,))
    pl.semaphore_signal(barrier, device_id=right, device_id_type=pl.DeviceIdType.LOGICAL)
    pl.semaphore_wait(barrier, 2)
    copy = pltpu.make_async_remote_copy(x_ref, o_ref, send_sem, recv_sem, device_id={"x": right})
    assert copy.is_remote
    copy.start()
    copy.wait()
    left_over = pl.semaphore_read(barrier) + pl.semaphore_read(send_sem) + pl.semaphore_read(recv_sem)
    o_ref[...] = o_ref[...] + 100 * left_over


def test_a_ring_is_a_permutation():
    ring = mapped(to_the_right, (2,))
    want = np.roll(X, 2)
    for run in (ring, ferrax.jit(ring)):
        np.testing.assert_array_equal(run(X), want)
    several = np.stack([X, -X])
    np.testing.assert_array_equal(ferrax.vmap(ring)(several), np.roll(several, 2, axis=1))
    gradient = ferrax.grad(lambda x: (ring(x) * X).sum())(X)
    np.testing.assert_array_equal(gradient, np.roll(X, -2))


def gather(x_ref, o_ref, local_sem, send_sem, recv_sems):
    """Blocks go around the ring, a step of the grid for each; where one lies differs by device."""
    step, own = pl.program_id(0), lax.axis_index("x")

    @pl.when(step == 0)
    def _():
        pltpu.async_copy(x_ref, o_ref.at[own], local_sem).wait()

    slot = (own - step) % COUNT
    pltpu.async_remote_copy(
        o_ref.at[slot], o_ref.at[slot], send_sem, recv_sems.at[step], device_id=((own + 1) % COUNT,)
    ).wait()


def test_all_gather_over_a_grid():
    run = mapped(gather, (COUNT, 2), scratch=[DMA, DMA, DMA(COUNT - 1)], grid=(COUNT - 1,))
    np.testing.assert_array_equal(ferrax.jit(run)(X), np.tile(X.reshape(COUNT, 2), (COUNT, 1)))


def from_the_first(x_ref, o_ref, send_sem, recv_sem):
    """Only one device sends, in a branch that the others do not take, within another one in a loop."""
    o_ref[...] = jnp.zeros(2)

    @pl.when(lax.axis_index("x") == 0)
    def _():
        o_ref[...] = jnp.full(2, 9.0)

        def send(target, carry):
            @pl.when(target != 2)
            def _():
                pltpu.async_remote_copy(x_ref, o_ref.at[:], send_sem, recv_sem, (target,)).wait_send()

            return carry

        lax.fori_loop(1, COUNT, send, None)


def test_a_branch_of_one_device_reaches_all():
    want = np.array([9, 9, 1, 2, 0, 0, 1, 2], np.float32)
    np.testing.assert_array_equal(ferrax.jit(mapped(from_the_first, (2,)))(X), want)


def count_signals(x_ref, o_ref, sems):
    """All add their number to one semaphore of the last device, each to its own of the first."""
    own = lax.axis_index("x") * 2 + lax.axis_index("y")
    pl.semaphore_signal(sems.at[0], own, device_id=(1, 1))
    pl.semaphore_signal(sems.at[own], 10, device_id={"x": 0, "y": 0})
    o_ref[...] = pl.semaphore_read(sems.at[0]) + 1.0 * pl.semaphore_read(sems.at[3]) * jnp.arange(2)


def test_several_devices_signal_one_on_a_mesh_of_two_axes():
    run = mapped(count_signals, (2,), mesh=((2, 2), ("x", "y")), scratch=[REGULAR((COUNT,))])
    np.testing.assert_array_equal(run(X), [10, 20, 0, 0, 0, 0, 6, 6])


def add_to_neighbour(x_ref, o_ref, send_sem, recv_sem):
    o_ref[...] = x_ref[...]
    copy = pltpu.make_async_remote_copy(x_ref, o_ref, send_sem, recv_sem, ((lax.axis_index("x") + 1) % COUNT,))
    copy.start(add=True)
    copy.wait()


def test_a_copy_can_add():
    np.testing.assert_array_equal(mapped(add_to_neighbour, (2,))(X), X + np.roll(X, 2))


def test_bytes_are_counted_whoever_waits():
    def kernel(x_ref, o_ref, sem):
        for half in (0, 1):
            pltpu.make_async_copy(x_ref.at[pl.ds(4 * half, 4)], o_ref.at[pl.ds(4 * half, 4)], sem).start()
        pltpu.make_async_copy(x_ref, o_ref, sem).wait()
        o_ref[...] = o_ref[...] + pl.semaphore_read(sem)

    call = pl.pallas_call(kernel, ferrax.ShapeDtypeStruct((8,), np.float32), scratch_shapes=[DMA])
    np.testing.assert_array_equal(call(X), X)


def branching(x_ref, o_ref, send_sem, recv_sem):
    def send():
        pltpu.async_remote_copy(x_ref, o_ref, send_sem, recv_sem, (1,)).wait()

    lax.cond(lax.axis_index("x") == 0, send, lambda: None)


def looping(x_ref, o_ref, send_sem, recv_sem):
    def send(step, carry):
        pltpu.async_remote_copy(x_ref, o_ref, send_sem, recv_sem, (1,)).wait()
        return carry

    lax.fori_loop(0, lax.axis_index("x"), send, None)


def sending(**kwargs):
    def kernel(x_ref, o_ref, send_sem, recv_sem):
        pltpu.async_remote_copy(x_ref, o_ref, send_sem, recv_sem, **kwargs)

    return kernel


@pytest.mark.parametrize(
    ("kernel", "kind", "message"),
    [
        (branching, NotImplementedError, "in a branch"),
        (looping, NotImplementedError, "in a loop"),
        (sending(device_id=(0, 0)), ValueError, "2 places"),
        (sending(device_id=(COUNT,)), ValueError, "names place"),
        (sending(device_id=-1, device_id_type=pl.DeviceIdType.LOGICAL), ValueError, "names place"),
        (sending(device_id={"z": 0}), NotImplementedError, "got \\['z'\\]"),
        (sending(device_id=(0,), device_id_type=pl.DeviceIdType.LOGICAL), ValueError, "one number"),
        (sending(device_id=None), ValueError, "has a semaphore"),
    ],
)
def test_bad_input(kernel, kind, message):
    with pytest.raises(kind, match=message):
        mapped(kernel, (2,))(X)


def test_elsewhere():
    with pytest.raises(ValueError, match="shard_map"):
        pl.pallas_call(sending(device_id=0), jnp.zeros(2), scratch_shapes=[DMA, DMA])(jnp.zeros(2))
    with pytest.raises(ValueError, match="collective_id"):
        pl.pallas_call(lambda o_ref: pltpu.get_barrier_semaphore() and None, jnp.zeros(2))()
    for option in ({"detect_races": True}, {"num_cores_or_threads": 2}):
        with pytest.raises(ValueError, match="one order"):
            pltpu.InterpretParams(**option)
