"""Programs of several processes, which MPI joins. Each test starts one, and each program checks much."""

import os
import signal
import time

import numpy as np
import pytest
from mpi_launch import needs_mpi, needs_two_hosts, run, run_on_two_hosts, run_text, start

from ferrax.experimental import checkpoint

pytestmark = needs_mpi


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_collectives(count):
    status, out, err = run("collectives.py", count, str(count))
    assert status == 0, err
    assert sorted(out.splitlines()) == [f"process {process} of {count} is done" for process in range(count)]


@pytest.mark.parametrize("count", [2, 4])
def test_arrays(count):
    status, out, err = run("arrays.py", count)
    assert status == 0, err
    assert len(out.splitlines()) == count


@pytest.mark.parametrize("count", [2, 4])
def test_functions_outside_of_jit(count):
    status, out, err = run("eager.py", count)
    assert status == 0, err
    assert len(out.splitlines()) == count


@pytest.mark.parametrize("count", [2, 4])
def test_places_of_arguments_and_results(count):
    status, out, err = run("jitted.py", count)
    assert status == 0, err
    assert len(out.splitlines()) == count


@pytest.mark.parametrize("count", [2, 4])
def test_training_and_evaluation(tmp_path, count):
    status, out, err = run("training.py", count, str(tmp_path / "saved"))
    assert status == 0, err
    assert out.count("is done") == count


def test_programs(tmp_path):
    """Functions over meshes of two and four processes have the bits of one process with as many devices."""
    kept = str(tmp_path / "found.npz")
    for count in (1, 2, 4):
        status, out, err = run("programs.py", count, kept, str(8 // count))
        assert status == 0, err
        assert out.count("done") == count


@pytest.mark.parametrize("saving, loading", [(4, [2, 1]), (1, [4]), (2, [4, 2])])
def test_checkpoints(tmp_path, saving, loading):
    """What some processes save others load, and so does this one."""
    for what, count in (("save", saving), *(("load", count) for count in loading)):
        status, out, err = run("checkpoints.py", count, what, str(tmp_path / "saved"))
        assert status == 0, err
        assert len(out.splitlines()) == count
    loaded = checkpoint.load(tmp_path / "saved")
    assert loaded["['step']"] == 7
    np.testing.assert_array_equal(loaded["['arrays']['w']"], np.arange(16.0 * 24).reshape(16, 24))


@pytest.mark.parametrize("kind", ["small", "large", "mixed", "kinds"])
def test_processes_that_do_not_agree(kind):
    """Each process names its own line and the other's; nobody computes with what was not meant for it."""
    status, out, err = run("failures.py", 2, kind)
    assert status != 0 and "nothing happened" not in out
    errors = [line for line in err.splitlines() if "JaxRuntimeError: " in line]
    assert len(errors) == 2, err
    assert all("odd.py:1" in line and "even.py:2" in line for line in errors), errors


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("kind, line", [("small", 1), ("programs", 2)])
def test_processes_that_do_not_agree_with_many(kind, line, count):
    """Also of functions of arrays over processes, the jitted one and the other are named by the lines of their callers."""
    begin = time.monotonic()
    status, out, err = run("failures.py", count, kind)
    assert status != 0 and "nothing happened" not in out and time.monotonic() - begin < 30
    for process, other in ((count - 1, count - 2), (count - 2, count - 1)):
        assert any(f"process {other} is in" in text and f"this is process {process}," in text for text in err.splitlines()), err
    assert f"odd.py:{line}" in err and "even.py:" in err and err.count("JaxRuntimeError: ") >= count


@pytest.mark.parametrize("kind, expected", [("raise", "this process has enough"), ("kill", "")])
def test_all_end_with_one(kind, expected):
    begin = time.monotonic()
    status, out, err = run("failures.py", 4, kind)
    assert status != 0 and "nothing happened" not in out and expected in err
    assert time.monotonic() - begin < 30


@needs_two_hosts
def test_two_hosts():
    """They share no memory: what one has of the other came over the network between them."""
    status, out, err = run_on_two_hosts("collectives.py", "2")
    assert status == 0, err
    *lines, sent = out.splitlines()
    assert sorted(lines) == ["process 0 of 2 is done", "process 1 of 2 is done"]
    assert int(sent) > 1_000_000


@needs_two_hosts
@pytest.mark.parametrize("kind", ["raise", "kill"])
def test_all_hosts_end_with_one_process(kind):
    begin = time.monotonic()
    status, out, _ = run_on_two_hosts("failures.py", kind)
    assert status != 0 and "nothing happened" not in out
    assert time.monotonic() - begin < 30


@pytest.mark.parametrize("said", ["", "os.environ['FERRAX_NUM_THREADS'] = '3'"])
def test_processes_of_a_machine_share_its_cores(said):
    """Unless the launcher or the user says how many threads each has."""
    text = (
        f"import os; {said}\n"
        "import ferrax\n"
        "before = ferrax.config.jax_num_threads\n"
        "ferrax.distributed.initialize()\n"
        "print(before, ferrax.config.jax_num_threads, len(os.sched_getaffinity(0)) < os.cpu_count())\n"
    )
    status, out, err = run_text(text, 2)
    lines = out.splitlines()
    assert status == 0 and len(lines) == 2, err
    for line in lines:
        before, after, bound = line.split()
        kept = said or bound == "True"
        assert int(after) == (int(before) if kept else max(1, int(before) // 2))


def test_who_is_missing():
    """Four processes, more than some machines have processors: the three that wait name the one that does not come."""
    status, out, err = run("failures.py", 4, "late")
    assert status != 0 and "nothing happened" not in out
    assert "psum of float32[4] at even.py:2" in err
    assert "waited 2 s for process 3, which did not come" in err


def test_a_process_that_ends_early():
    begin = time.monotonic()
    status, out, err = run("failures.py", 2, "leave")
    assert status != 0 and "nothing happened" not in out
    assert "process 1 ended without it" in err and "even.py:2" in err
    assert time.monotonic() - begin < 15


@pytest.mark.parametrize("kind, count", [("interrupt", 2), ("interrupt", 4), ("busy", 4)])
@pytest.mark.parametrize("whom", ["mpiexec", "one"])
def test_interrupts(whom, kind, count):
    """Also where there are more processes than cores, and where all compute and exchange."""
    program = start("failures.py", count, kind)
    pid = int(program.stdout.readline().split()[1])
    time.sleep(0.5)
    begin = time.monotonic()
    os.kill(program.pid if whom == "mpiexec" else pid, signal.SIGINT)
    _, err = program.communicate(timeout=30)
    assert program.returncode != 0 and time.monotonic() - begin < 10
    if whom == "one":
        assert "KeyboardInterrupt" in err
