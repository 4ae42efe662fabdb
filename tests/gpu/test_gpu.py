"""A GPU as a device: which one it is, what is said where there is none, and faults. `make test-gpu` runs this on the GPU
that FERRAX_GPU names."""

import json
import os
import pickle
import subprocess
import sys
import threading

import numpy as np
import pytest

import ferrax
import ferrax.numpy as jnp

ferrax.config.update("jax_platforms", None)  # the environment may allow the CPU alone
(GPU,) = ferrax.devices("gpu")


def run(code, **settings):
    environment = os.environ | {"JAX_PLATFORMS": ""} | settings
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=300
    )


def test_it_is_the_one_that_was_chosen():
    assert os.environ["FERRAX_GPU"].lower() in GPU.device_kind.lower()
    assert (GPU.platform, str(GPU), repr(GPU)) == ("gpu", f"gpu:{GPU.id}", f"GpuDevice(id={GPU.id})")
    assert pickle.loads(pickle.dumps(GPU)) is GPU
    by_number = run("import ferrax; print(ferrax.devices('gpu')[0].device_kind)", FERRAX_GPU=str(GPU.id))
    assert by_number.stdout.strip() == GPU.device_kind


@pytest.mark.parametrize("choice,what", [("none of this name", "has 'none of this name' in"), ("99", "has number 99")])
def test_what_is_said_where_there_is_none(choice, what):
    ran = run("import ferrax; ferrax.devices('gpu')", FERRAX_GPU=choice)
    last = next(line for line in ran.stderr.splitlines() if line.startswith("RuntimeError: "))
    assert last.startswith(f"RuntimeError: no GPU {what}") and GPU.device_kind in last
    assert "driver of Vulkan, Metal or DX12" in last


def test_several_are_devices_of_their_own():
    """Of one that is named twice each has arrays, memory and programs of its own."""
    before = ferrax.config.jax_gpu
    with_two = ",".join([str(GPU.id)] * 2)
    try:
        ferrax.config.update("jax_gpu", with_two)
        first, second = ferrax.devices("gpu")
        assert first is GPU and second.id != GPU.id and second.device_kind == GPU.device_kind
        x = ferrax.device_put(np.arange(8.0, dtype=np.float32), second)
        y = ferrax.jit(lambda x: jnp.sin(x) @ x)(x)
        back = ferrax.device_put(x, first) * 2
        assert (x.devices(), y.devices(), back.devices()) == ({second}, {second}, {first})
        np.testing.assert_allclose(y, np.sin(np.arange(8.0)) @ np.arange(8.0), rtol=1e-5)
        np.testing.assert_array_equal(back, 2 * np.arange(8.0))
        with pytest.raises(ValueError, match=f"is on {first}, and operand 1, .* is on {second}"):
            back + x
        assert pickle.loads(pickle.dumps(second)) is second
    finally:
        ferrax.config.update("jax_gpu", before)
    assert ferrax.devices("gpu") == [GPU]


def test_importing_opens_none():
    """The default device is the CPU, and no driver is loaded for it."""
    ran = run(
        "import ferrax, ferrax.numpy as jnp, os\n"
        "print(jnp.ones(2).devices(), 'vulkan' in open('/proc/self/maps').read())\n"
        "ferrax.devices('gpu')\n"
        "print('vulkan' in open('/proc/self/maps').read())"
    )
    assert ran.stdout.splitlines() == ["{CpuDevice(id=0)} False", "True"], ran.stderr


def test_processes_that_were_forked_cannot_reach_it():
    ran = run(
        "import ferrax, ferrax.numpy as jnp, os\n"
        "x = ferrax.device_put(jnp.ones(3), ferrax.devices('gpu')[0])\n"
        "if os.fork() == 0:\n"
        "    try: print(x + 1, flush=True)\n"
        "    except ferrax.errors.JaxRuntimeError as error: print(error, flush=True)\n"
        "    os._exit(0)\n"
        "os.wait()\n"
        "print((x + 1).tolist())"
    )
    lines = ran.stdout.splitlines()
    forked, largest, own = lines[0], lines[1], lines[-1]
    assert "was opened before this process was forked: start processes by 'spawn'" in forked, ran.stderr
    assert "largest arrays that are alive: float32[3] of 12 bytes on gpu:" in largest
    assert own == "[2.0, 2.0, 2.0]"


def test_threads_at_once():
    step = ferrax.jit(lambda x: ferrax.nn.softmax(jnp.tanh(x) @ x.T))
    given = [np.random.default_rng(k).normal(size=(8 + k, 5)).astype(np.float32) for k in range(8)]
    wanted = [np.asarray(step(x)) for x in given]
    got = [None] * len(given)

    def work(k):
        for _ in range(5):
            got[k] = np.asarray(step(ferrax.device_put(given[k], GPU)))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(len(given))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for a, b in zip(got, wanted):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("shape,what", [((1 << 20, 1 << 20), "more than 2\\^31 elements"), ((1 << 17, 1 << 17), "more than")])
def test_arrays_that_are_too_large_are_errors_and_no_end(shape, what):
    with ferrax.default_device(GPU):
        with pytest.raises(NotImplementedError, match=what):
            jnp.zeros(shape, jnp.uint8)
        assert (jnp.ones(3) + 1).tolist() == [2, 2, 2]


def test_arrays_larger_than_a_binding():
    """Mesa's GPU binds 128 MiB at most; this array is bound in two pieces."""
    with ferrax.default_device(GPU):
        x = jnp.arange(40_000_000)
        assert (x.at[jnp.array([1, 39_999_999])].add(1)[jnp.array([0, 1, 2, 39_999_999])]).tolist() == [0, 2, 2, 40_000_000]
        assert jnp.max(x * 2).item() == 79_999_998
        assert jnp.flip(x)[:3].tolist() == [39_999_999, 39_999_998, 39_999_997]


def test_memory_goes_back():
    """What no array has any more is kept for later ones, and goes back when it is asked for."""
    kept = [ferrax.device_put(np.ones(1 << 20, np.float32), GPU) for _ in range(4)]
    stats = GPU.memory_stats()
    assert stats["bytes_in_use"] >= 4 << 22 and stats["pool_bytes"] >= stats["bytes_in_use"]
    assert stats["largest_alloc_size"] >= 1 << 22
    before = stats["bytes_in_use"]
    del kept
    stats = GPU.memory_stats()
    assert stats["bytes_in_use"] <= before - (4 << 22)
    assert stats["pool_bytes"] >= stats["bytes_in_use"] + (4 << 22)
    assert ferrax.memory.trim() >= 4 << 22
    stats = GPU.memory_stats()
    assert stats["pool_bytes"] == stats["bytes_in_use"]


def test_code_is_kept_in_files(tmp_path):
    """Where programs are kept, the driver's code is, too."""
    code = (
        "import ferrax, ferrax.numpy as jnp\n"
        f"ferrax.config.update('jax_compilation_cache_dir', {str(tmp_path)!r})\n"
        "ferrax.config.update('jax_persistent_cache_min_compile_time_secs', 0)\n"
        "x = ferrax.device_put(jnp.arange(3.0), ferrax.devices('gpu')[0])\n"
        "print(ferrax.jit(lambda x: jnp.tanh(x).sum())(x))"
    )
    first = run(code)
    files = sorted(path.name for path in tmp_path.iterdir())
    assert files, first.stderr
    second = run(code)
    assert second.stdout == first.stdout and "Warning" not in second.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == files


def test_profiles(tmp_path):
    """Kernels, and calls that run on the CPU, in rows of a Chrome trace."""
    x = ferrax.device_put(jnp.eye(3) + jnp.ones((3, 3)), GPU)
    with GPU.profile(tmp_path / "trace.json"):
        (jnp.tanh(x) + jnp.linalg.eigh(x)[0]).block_until_ready()
        with pytest.raises(ValueError, match="being taken already"), GPU.profile(tmp_path / "other.json"):
            pass
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    names = {event["name"]: event["tid"] for event in events if event["ph"] == "X"}
    assert names["eigh on the CPU"] == 1 and any("tanh" in name and row == 0 for name, row in names.items())
    assert all(event["dur"] >= 0 and event["ts"] >= 0 for event in events if event["ph"] == "X")
    with pytest.raises(KeyError), GPU.profile(tmp_path / "other.json"):
        raise KeyError
    assert not (tmp_path / "other.json").exists()
    cpu = ferrax.devices("cpu")[0]
    with pytest.raises(NotImplementedError, match="cpu:0 does not tell the times"), cpu.profile(tmp_path / "other.json"):
        pass


def test_callbacks_and_prints_of_what_is_there(capfd):
    """What a callback is given are arrays of the host; what it gives goes there."""
    x = ferrax.device_put(jnp.arange(3.0), GPU)

    def f(x):
        ferrax.debug.print("x is {}", x)
        return ferrax.pure_callback(lambda x: np.asarray(x) * 2, ferrax.ShapeDtypeStruct(x.shape, x.dtype), x) + 1

    y = ferrax.jit(f)(x)
    assert y.devices() == {GPU} and y.tolist() == [1, 3, 5]
    ferrax.effects_barrier()
    assert capfd.readouterr().out == "x is [0. 1. 2.]\n"


@pytest.mark.parametrize("place", ["jit", "scan", "fori_loop", "while_loop", "cond"])
def test_effects_are_in_order(place, capfd):
    """Once each time, in loops and branches too, and not in steps after a loop's end or branches that are not taken."""
    lax = ferrax.lax
    seen = []

    def note(x):
        seen.append(int(x))
        return np.int32(x) * 10

    def step(x):
        ferrax.debug.print("at {}", x, ordered=True)
        y = ferrax.experimental.io_callback(note, ferrax.ShapeDtypeStruct((), jnp.int32), x, ordered=True)
        z = ferrax.pure_callback(lambda y: np.asarray(y) + 1, ferrax.ShapeDtypeStruct((), jnp.int32), y)
        ferrax.debug.print("gives {}", z, ordered=True)
        return z

    def other(x):
        ferrax.debug.print("other {}", x, ordered=True)
        return x

    def program(x, n):
        if place == "jit":
            return step(x), step(x + 1), step(x + 2)
        if place == "scan":
            return lax.scan(lambda x, _: (x + 1, step(x)), x, None, length=3)[1]
        if place == "fori_loop":
            return lax.fori_loop(0, n, lambda k, all: all.at[k].set(step(x + k)), jnp.zeros(3, jnp.int32))
        if place == "while_loop":
            return lax.while_loop(
                lambda c: c[0] * c[0] < 9, lambda c: (c[0] + 1, c[1].at[c[0]].set(step(x + c[0]))),
                (n - n, jnp.zeros(3, jnp.int32)),
            )[1]
        return [lax.cond(x + k < 5, step, other, x + k) for k in range(3)] + [lax.cond(x > 5, step, other, x)]

    got = ferrax.jit(program)(*(ferrax.device_put(jnp.int32(k), GPU) for k in (2, 3)))
    ferrax.effects_barrier()
    assert seen == [2, 3, 4]
    assert np.asarray(got).tolist() == [21, 31, 41] + ([2] if place == "cond" else [])
    lines = [line for k in (2, 3, 4) for line in (f"at {k}", f"gives {10 * k + 1}")]
    assert capfd.readouterr().out.splitlines() == lines + (["other 2"] if place == "cond" else [])
