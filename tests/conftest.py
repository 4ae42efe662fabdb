"""Which cases run, and with what random examples.

By default a quarter of the cases run: a hash of its name puts a case into one, and the number of commits
up to this one says which runs, so that four runs in succession see all.
Of a test function without a case in it one runs all the same. Texts of errors, behaviour in
documents, programs of libraries and what has one case for each way of computing run as a whole.
FERRAX_TEST_QUARTER, from 0 to 3, names the quarter; `--exhaustive` runs all (`make test-all`), `--few` about one in twenty.

Random tests take the same examples each time. The exhaustive run draws a seed for them and prints it at
its beginning and its end; `--hypothesis-seed` takes the examples of a seed again.
The oracle does without XLA's optimisations, which cost more than they save here, unless XLA_FLAGS is set.
"""

import functools
import gc
import importlib.util
import os
import pathlib
import platform
import random
import re
import subprocess
import sys
import tempfile
import zlib

import path_coverage
import psutil
import pytest
from hypothesis import settings

# On some processors XLA computes with halves as they are, on others in 32 bits: here as on all that have AVX2.
_ISA = " --xla_cpu_max_isa=AVX2" if platform.machine().lower() in ("x86_64", "amd64") else ""
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
    " --xla_cpu_prefer_vector_width=128 --xla_backend_optimization_level=0"
    " --xla_llvm_disable_expensive_passes=true --xla_force_host_platform_device_count=8" + _ISA,
)
# Meshes are of as many devices as those of the oracle.
os.environ.setdefault("FERRAX_NUM_CPU_DEVICES", "8")

# Compiled programs are kept for the tests of one run: workers and the processes that tests start share them.
if "FERRAX_COMPILATION_CACHE_DIR" not in os.environ:
    _FOLDER = tempfile.TemporaryDirectory(prefix="ferrax-cache-")
    os.environ["FERRAX_COMPILATION_CACHE_DIR"] = _FOLDER.name

QUARTER = "FERRAX_TEST_QUARTER"
QUARTERS = 4
WHOLE_FOLDERS = ("semantics", "ecosystem")
WHOLE_FILES = ("test_errors_snapshot.py", "test_moves.py", "test_paths.py")

HERE = pathlib.Path(__file__).parent
# JAX, which is the oracle of most tests, needs Python 3.11.
ALONE = sys.version_info < (3, 11) and importlib.util.find_spec("jax") is None

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("fresh", deadline=None, database=None, print_blob=True)


def pytest_addoption(parser):
    parser.addoption(
        "--exhaustive", action="store_true", help="run all cases of all tables, random ones from a new seed"
    )
    parser.addoption("--few", action="store_true", help="run one case in twenty, of each test function one at least")


def is_random(config) -> bool:
    """Whether random tests take the examples of a seed. A profile that is named has its own."""
    given = config.getoption("exhaustive") or config.getoption("hypothesis_seed") is not None
    return given and config.getoption("hypothesis_profile") is None


@pytest.hookimpl(tryfirst=True)  # before hypothesis reads its seed
def pytest_configure(config):
    config.pluginmanager.register(path_coverage.PathCoverage(), "path_coverage")
    fresh = is_random(config)
    settings.load_profile("fresh" if fresh else "repeatable")
    if fresh and config.getoption("hypothesis_seed") is None:  # processes of xdist are given the same
        config.option.hypothesis_seed = str(random.SystemRandom().randrange(2**32))


def seed_line(config) -> str:
    seed = config.getoption("hypothesis_seed")
    return f"random programs: pytest --exhaustive --hypothesis-seed={seed} runs these again"


def pytest_report_header(config):
    return seed_line(config) if is_random(config) else None


def pytest_terminal_summary(terminalreporter, config):
    """A quiet run has no header."""
    if is_random(config):
        terminalreporter.write_line(seed_line(config))
    if is_part(config):
        number, reason = quarter()
        if ALONE:
            terminalreporter.write_line("without JAX: tests that need it were left out")
        if config.getoption("few"):
            terminalreporter.write_line("one case in twenty of large tables, without --few a quarter of them")
            return
        terminalreporter.write_line(f"quarter {number} of the cases, {reason}; {QUARTER} names another")


@functools.cache
def needing_jax() -> set[str]:
    """The modules of tests that import JAX, or what imports it."""
    texts = {path.stem: path.read_text(encoding="utf-8") for path in HERE.glob("*/*.py")}
    imports = {name: set(re.findall(r"^\s*(?:import|from) (\w+)", text, re.M)) for name, text in texts.items()}
    found = {"jax"}
    while more := {name for name, used in imports.items() if used & found} - found - {"kept_values", "conftest"}:
        found |= more
    return found


def pytest_ignore_collect(collection_path):
    """Without JAX the tests that need it are left out."""
    return True if ALONE and collection_path.stem in needing_jax() else None


def git(*arguments: str) -> str | None:
    """What git says of the checkout; None if it is none, or without its history."""
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=HERE, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


@functools.cache
def quarter() -> tuple[int, str]:
    """Which quarter runs, and why. Commits of a checkout without history are not counted: its name decides."""
    if given := os.environ.get(QUARTER):
        if given not in map(str, range(QUARTERS)):
            raise pytest.UsageError(f"{QUARTER} is {given!r}, it should be a number from 0 to {QUARTERS - 1}")
        return int(given), f"as {QUARTER} says"
    if git("rev-parse", "--is-shallow-repository") == "false" and (count := git("rev-list", "--first-parent", "--count", "HEAD")):
        return int(count) % QUARTERS, f"as there are {count} commits"
    if commit := git("rev-parse", "HEAD"):
        return int(commit, 16) % QUARTERS, f"as the commit is {commit[:12]}"
    return 0, "as there is no commit"


def pytest_collection_finish():
    """What is there before the first test stays: collections of garbage, which many tests ask for, pass it over."""
    gc.collect()
    gc.freeze()


GROWTH = 768 << 20  # bytes


THIS_PROCESS = psutil.Process()
grown_from = THIS_PROCESS.memory_info().rss


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item, nextitem):
    """Programs that the cases of a file had compiled, here and by the oracle, serve no other: where a process grew by
    much they are let go of at its end, so that collections of garbage need not look through them."""
    global grown_from
    if nextitem is not None and nextitem.path == item.path:
        return
    if THIS_PROCESS.memory_info().rss - grown_from < GROWTH:
        return
    for name in ("jax", "ferrax"):
        if name in sys.modules:
            sys.modules[name].clear_caches()
    gc.collect()
    grown_from = THIS_PROCESS.memory_info().rss


def is_part(config) -> bool:
    """Whether cases are left out: not where tests are named one by one."""
    named = any("::" in argument for argument in config.invocation_params.args)
    return not (named or config.getoption("exhaustive") or config.getoption("keyword"))


def sample(names: list[str], number: int) -> list[bool]:
    """Which of the cases of one test function run in a quarter: at least one."""
    hashes = [zlib.crc32(name.encode()) for name in names]
    chosen = [value % QUARTERS == number for value in hashes]
    if not any(chosen):
        chosen[hashes.index(min(hashes))] = True
    return chosen


def few(names: list[str]) -> list[bool]:
    """Which run under `--few`: all of a few, else about one in twenty, and where names begin with what is tested
    (`sin-float32-…`) one of each such."""
    if len(names) <= 4:
        return [True] * len(names)
    hashes = [zlib.crc32(name.encode()) for name in names]
    least = {}
    for name, value in zip(names, hashes):
        tested = name.partition("-")[0]
        least[tested] = min(least.get(tested, value), value)
    chosen = set(least.values()) if 2 * len(least) <= len(names) else {min(hashes)}
    return [value % 20 == 0 or value in chosen for value in hashes]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    if not is_part(config):
        return
    number, _ = quarter()
    functions = {}
    for item in items:
        functions.setdefault((item.path, item.parent.nodeid, item.originalname), []).append(item)
    left_out = set()
    for cases in functions.values():
        path = cases[0].path
        if path.parent.name in WHOLE_FOLDERS or path.name in WHOLE_FILES:
            continue
        names = [case.name for case in cases]
        chosen = few(names) if config.getoption("few") else sample(names, number)
        left_out.update(case for case, runs in zip(cases, chosen) if not runs)
    config.hook.pytest_deselected(items=[item for item in items if item in left_out])
    items[:] = [item for item in items if item not in left_out]
