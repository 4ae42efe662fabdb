"""Programs of several processes, started by `mpiexec`, for tests."""

import functools
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).parent
PROGRAMS = HERE / "mpi_programs"
TWO_HOSTS = HERE / "two_hosts.sh"


@functools.cache
def mpiexec() -> str | None:
    """The program that starts processes: the one beside this Python, or of the path."""
    return shutil.which("mpiexec", path=str(pathlib.Path(sys.executable).parent)) or shutil.which("mpiexec")


# The extra `test` has both on Linux: there these tests run, or fail by saying what is missing (`start`).
needs_mpi = pytest.mark.skipif(sys.platform != "linux", reason="wheels of MPI are tested on Linux")


@functools.cache
def _options() -> list[str]:
    version = subprocess.run([mpiexec(), "--version"], capture_output=True, text=True).stdout
    return ["--oversubscribe"] if "Open MPI" in version or "PRRTE" in version else []


def _why_no_two_hosts() -> str:
    """Why no program runs on two hosts here; empty if one does."""
    if sys.platform != "linux":
        return "hosts are namespaces of Linux"
    missing = [name for name in ("ip", "unshare", "mount") if shutil.which(name) is None]
    if missing:
        return f"two hosts are made by iproute2 and util-linux, and {' and '.join(missing)} is not here"
    probe = subprocess.run([str(TWO_HOSTS)], capture_output=True, text=True)
    if probe.returncode:
        return f"namespaces of the network cannot be made here: {probe.stderr.strip()}"
    if mpiexec() is None:
        return "there is no mpiexec"
    version = subprocess.run([mpiexec(), "--version"], capture_output=True, text=True).stdout
    return "" if "HYDRA" in version else "processes are started on the hosts by hydra, MPICH's mpiexec"


# Namespaces are the kernel's to allow.
_reason = _why_no_two_hosts()
needs_two_hosts = pytest.mark.skipif(bool(_reason), reason=_reason)


def start(program: str, count: int, *arguments: str, **options) -> subprocess.Popen:
    """A program of `mpi_programs`, by so many processes."""
    return _start([str(PROGRAMS / program), *arguments], [*_options(), "-n", str(count)], **options)


def _start(arguments: list[str], how: list[str], before: tuple[str, ...] = (), **options) -> subprocess.Popen:
    if mpiexec() is None or importlib.util.find_spec("mpi4py") is None:
        raise RuntimeError("programs of several processes need mpi4py and mpiexec: pip install mpi4py mpich")
    paths = [str(HERE), str(HERE.parents[1] / "python"), os.environ.get("PYTHONPATH", "")]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        # Those of the tests, which have eight devices.
        "XLA_FLAGS": "", "FERRAX_NUM_CPU_DEVICES": "-1",
        # What `print` writes is one piece with its end of line: lines of several processes do not mix.
        "PYTHONUNBUFFERED": "",
        "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }  # fmt: skip
    command = [*before, mpiexec(), *how, sys.executable, *arguments]
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )


def run(program: str, count: int, *arguments: str, timeout: float = 120) -> tuple[int, str, str]:
    """How it ended, and what it printed."""
    return _ended(start(program, count, *arguments), timeout)


def run_text(text: str, count: int, timeout: float = 120) -> tuple[int, str, str]:
    """The same of a program's text."""
    return _ended(_start(["-c", text], [*_options(), "-n", str(count)]), timeout)


def run_on_two_hosts(program: str, *arguments: str, timeout: float = 120) -> tuple[int, str, str]:
    """As `run`, by two processes, each on a host of its own. The last line says how many bytes the first one sent."""
    return _ended(_start([str(PROGRAMS / program), *arguments], [], (str(TWO_HOSTS),)), timeout)


def _ended(started: subprocess.Popen, timeout: float) -> tuple[int, str, str]:
    try:
        out, err = started.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        started.kill()
        raise
    return started.returncode, out, err
