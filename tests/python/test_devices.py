"""Arrays on a device that is not the CPU, whose memory is not the host's: that of the platform which FERRAX_TEST_DEVICE
names, else `devices("reference")`."""

import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

import ferrax
import ferrax.numpy as jnp

SCRIPT = pathlib.Path(__file__).parent / "two_devices.py"
ferrax.config.update("jax_platforms", None)  # the environment may allow the CPU alone
PLATFORM = os.environ.get("FERRAX_TEST_DEVICE", "reference")
(OTHER,), CPU = ferrax.devices(PLATFORM), ferrax.devices("cpu")[0]


def _answers(library, platform, **settings):
    environment = os.environ | {"JAX_PLATFORMS": "cpu"} | settings
    run = subprocess.run(
        [sys.executable, SCRIPT, library, platform], env=environment, capture_output=True, text=True, timeout=600
    )
    assert run.returncode == 0, run.stderr
    return dict(line.split(": ", 1) for line in run.stdout.splitlines())


@pytest.mark.parametrize("platform", sorted({PLATFORM, "cpu"}))
def test_arrays_are_where_jax_has_them(platform):
    """With JAX on two devices of the host, whose outputs must be told apart by place, dtype and value."""
    wanted = _answers("jax", "cpu", XLA_FLAGS="--xla_force_host_platform_device_count=2")
    got = _answers("ferrax", platform, JAX_PLATFORMS="")
    assert got.keys() == wanted.keys()
    assert {name: (got[name], wanted[name]) for name in got if got[name] != wanted[name]} == {}


def test_results_are_those_of_the_cpu():
    x = np.linspace(-2, 2, 60, dtype=np.float32).reshape(5, 12)

    def step(w, x):
        y = ferrax.nn.softmax(jnp.tanh(x @ w.T) @ w)
        return jnp.sum(y**2), jnp.cumsum(y, 0)

    step = ferrax.jit(ferrax.value_and_grad(step, has_aux=True))
    here, there = (step(*ferrax.device_put((x[:3], x), device)) for device in (CPU, OTHER))
    for a, b in zip(ferrax.tree.leaves(here), ferrax.tree.leaves(there)):
        assert a.devices() == {CPU} and b.devices() == {OTHER}
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=2e-5, atol=1e-6)


def test_a_function_is_traced_once_for_all_devices():
    f = ferrax.jit(lambda x: x + 1)
    for device in (CPU, OTHER, CPU, OTHER):
        assert f(ferrax.device_put(jnp.ones(3), device)).devices() == {device}
    assert f.stats().traces == 1


def test_functions_over_its_mesh_run_there():
    spec = ferrax.sharding.PartitionSpec("i")
    mesh = ferrax.sharding.Mesh(np.array([OTHER]), ("i",))
    sharding = ferrax.sharding.NamedSharding(mesh, spec)
    x = np.arange(4, dtype=np.float32)
    mapped = ferrax.pmap(lambda x: ferrax.lax.psum(x + 1, "i"), "i", devices=[OTHER])
    for given in (x[None], ferrax.device_put(x[None], CPU)):
        assert mapped(given).devices() == {OTHER} and mapped(given)[0].tolist() == [1, 2, 3, 4]
    summed = ferrax.shard_map(
        lambda x: ferrax.lax.psum(x, "i"), mesh=mesh, in_specs=spec, out_specs=ferrax.sharding.PartitionSpec()
    )
    for result in (summed(x), ferrax.jit(lambda x: x + 0, out_shardings=sharding)(x), ferrax.device_put(x, sharding)):
        assert result.devices() == {OTHER} and result.tolist() == [0, 1, 2, 3]
    gradient = ferrax.grad(lambda x: mapped(x).sum())(x[None])
    assert gradient.tolist() == [[1, 1, 1, 1]]


def test_memory_is_counted_and_freed():
    before = OTHER.memory_stats()
    x = ferrax.device_put(np.ones(1000, np.float32), OTHER)
    y = x * 2
    during = OTHER.memory_stats()
    assert during["bytes_in_use"] - before["bytes_in_use"] == 8000
    assert during["num_allocs"] - before["num_allocs"] >= 2
    assert during["peak_bytes_in_use"] >= during["bytes_in_use"]
    assert during["largest_alloc_size"] >= 4000
    del x
    y.delete()
    assert OTHER.memory_stats()["bytes_in_use"] == before["bytes_in_use"]


def test_memory_is_not_the_hosts():
    x = ferrax.device_put(jnp.ones(3), OTHER)
    with pytest.raises(RuntimeError, match="not in memory of the host"):
        x.unsafe_buffer_pointer()
    with pytest.raises(BufferError, match="not in memory of the host"):
        np.from_dlpack(x)
    assert np.asarray(ferrax.device_put(x, CPU)).tolist() == [1, 1, 1]


def test_errors_name_operands_and_devices():
    x, y = (ferrax.device_put(jnp.ones((2, 3)), device) for device in (CPU, OTHER))
    with pytest.raises(ValueError, match=r"operand 0, f32\[2,3\], is on cpu:0.*operand 1.* on " + PLATFORM + ":0"):
        x + y
    there = ferrax.NamedSharding(ferrax.sharding.Mesh([OTHER], ("x",)), ferrax.P())
    with pytest.raises(ValueError, match="incompatible devices: an operand is on cpu:0, and a sharding within the program"):
        ferrax.jit(lambda x: ferrax.lax.with_sharding_constraint(x + 1, there))(x)


def test_reading_is_guarded():
    x = ferrax.device_put(jnp.ones(3), OTHER)
    with ferrax.transfer_guard_device_to_host("disallow"):
        with pytest.raises(RuntimeError, match=r"device to host: the array f32\[3\].*device_get"):
            np.asarray(x)
        assert ferrax.device_get(x).tolist() == [1, 1, 1]
    with ferrax.transfer_guard_device_to_host("disallow_explicit"):
        with pytest.raises(RuntimeError, match="Disallowed transfer"):
            ferrax.device_get(x)
        np.asarray(ferrax.device_put(x, CPU))


def test_nans_are_found():
    x = ferrax.device_put(np.zeros(3, np.float32), OTHER)
    with ferrax.debug_nans(True):
        with pytest.raises(FloatingPointError, match="div"):
            ferrax.jit(lambda x: x / x)(x)
        with pytest.raises(FloatingPointError):
            x / x


def test_mutable_arrays_move_with_arguments():
    ref = ferrax.new_ref(jnp.zeros(3))

    @ferrax.jit
    def add(x):
        ref[...] += x
        return ref[...] * 2

    out = add(ferrax.device_put(jnp.ones(3), OTHER))
    assert out.devices() == {OTHER}
    assert np.asarray(ref[...]).tolist() == [1, 1, 1]


def test_platforms():
    assert ferrax.default_backend() == "cpu" and ferrax.devices()[0] is CPU
    assert (OTHER.platform, OTHER.id, str(OTHER)) == (PLATFORM, 0, f"{PLATFORM}:0")
    assert OTHER.client is not CPU.client and OTHER.client.devices() == [OTHER]
    with pytest.raises(RuntimeError, match="Unknown backend: 'gpu9'.*'reference'"):
        ferrax.devices("gpu9")
    with pytest.raises(ValueError, match="jax_default_device"):
        ferrax.default_device("tpu")
    with ferrax.default_device(PLATFORM):
        assert jnp.ones(2).devices() == {OTHER}
    code = (
        "import ferrax, ferrax.numpy as jnp\n"
        "print(ferrax.default_backend(), jnp.ones(2).devices(), ferrax.devices())\n"
        "try: ferrax.devices('cpu')\n"
        "except RuntimeError as error: print(error)"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"FERRAX_PLATFORMS": PLATFORM}, text=True,
        capture_output=True, check=True,
    )  # fmt: skip
    assert run.stdout.splitlines() == [
        f"{PLATFORM} {{{OTHER!r}}} [{OTHER!r}]",
        f"Unknown backend: 'cpu'; jax_platforms allows {PLATFORM}",
    ]
