"""Which cases run, and with what random examples.

By default each test function runs with some of its cases: all of a table of at most `WHOLE` cases,
else those that a hash of their names picks, about one in `ONE_IN`, and where the names begin with
what is tested (`sin-float32-…`), one of each such. The choice is the same in each run; behaviour in
documents and programs of libraries run as a whole. `--exhaustive` runs all (`make test-all`).

Random tests take the same examples each time. The exhaustive run draws a seed for them and prints it at
its beginning and its end; `--hypothesis-seed` takes the examples of a seed again.
The oracle does without XLA's optimisations, which cost more than they save here, unless XLA_FLAGS is set.
"""

import os
import random
import tempfile
import zlib
from itertools import groupby

import pytest
from hypothesis import settings

os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
    " --xla_cpu_prefer_vector_width=128 --xla_backend_optimization_level=0"
    " --xla_llvm_disable_expensive_passes=true",
)

# Compiled programs are kept for the tests of one run: workers and the processes that tests start share them.
if "FERRAX_COMPILATION_CACHE_DIR" not in os.environ:
    _FOLDER = tempfile.TemporaryDirectory(prefix="ferrax-cache-")
    os.environ["FERRAX_COMPILATION_CACHE_DIR"] = _FOLDER.name

WHOLE = 4
ONE_IN = 20

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("fresh", deadline=None, database=None, print_blob=True)


def pytest_addoption(parser):
    parser.addoption(
        "--exhaustive", action="store_true", help="run all cases of all tables, random ones from a new seed"
    )


def is_random(config) -> bool:
    """Whether random tests take the examples of a seed. A profile that is named has its own."""
    given = config.getoption("exhaustive") or config.getoption("hypothesis_seed") is not None
    return given and config.getoption("hypothesis_profile") is None


@pytest.hookimpl(tryfirst=True)  # before hypothesis reads its seed
def pytest_configure(config):
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


def sample(names: list[str]) -> list[bool]:
    """Which of the cases of one test function run by default."""
    if len(names) <= WHOLE:
        return [True] * len(names)
    hashes = [zlib.crc32(name.encode()) for name in names]
    chosen = {}  # of those with the same beginning, the one of the least hash
    for name, value in zip(names, hashes):
        tested = name.partition("-")[0]
        chosen[tested] = min(chosen.get(tested, value), value)
    if 2 * len(chosen) > len(names):  # names of one part
        chosen = {}
    least = set(chosen.values())
    return [value % ONE_IN == 0 or value in least for value in hashes]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    named = any("::" in argument for argument in config.invocation_params.args)
    if named or config.getoption("exhaustive") or config.getoption("keyword"):
        return
    kept, left_out = [], []
    for _, cases in groupby(items, key=lambda item: (item.path, item.originalname)):
        cases = list(cases)
        if cases[0].path.parent.name in ("semantics", "ecosystem"):
            kept += cases
            continue
        for case, runs in zip(cases, sample([case.name for case in cases])):
            (kept if runs else left_out).append(case)
    items[:] = kept
    config.hook.pytest_deselected(items=left_out)
