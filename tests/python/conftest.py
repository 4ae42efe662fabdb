"""Holds each test to the errors that it states (`errors_expected.py`), and gives it the results of the
reference that are kept (`kept_values.py`).

Each test draws from the generators of its module as if it were the first: what it computes does not depend on which
tests ran before, and a result that is kept is of the same operands.
"""

import functools
import importlib.util
import os

import errors_expected
import kept_values
import numpy as np
import pytest

import ferrax

UPDATE = os.environ.get("FERRAX_UPDATE_SNAPSHOTS") == "1"

# Needs an extra of its own, which `make test-torch` installs.
collect_ignore = ["test_torch_bridge.py"] if importlib.util.find_spec("torch") is None else []

# By module: its generators of random numbers, with the states that they had before its first test.
GENERATORS = {}


def pytest_configure(config):
    config.addinivalue_line("markers", "raises(*classes): each case raises errors of these classes")


@pytest.hookimpl(tryfirst=True)  # before cases are left out
def pytest_collection_modifyitems(config, items):
    if any("::" in argument for argument in config.invocation_params.args) or UPDATE:
        return
    unknown = errors_expected.without_case(items)
    if unknown:
        raise pytest.UsageError(f"{errors_expected.FILE.name} states errors of unknown cases: {', '.join(unknown)}")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    module = getattr(item, "module", None)
    if module is None:
        return
    if module not in GENERATORS:
        values = vars(module).values()
        legacy = [(value.set_state, value.get_state()) for value in values if isinstance(value, np.random.RandomState)]
        bits = [value.bit_generator for value in values if isinstance(value, np.random.Generator)]
        GENERATORS[module] = legacy + [(functools.partial(setattr, each, "state"), each.state) for each in bits]
    for restore, state in GENERATORS[module]:
        restore(state)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    errors_expected.RAISED.clear()
    kept_values.begin(item)
    try:
        result = yield
    finally:
        kept_values.end()
    errors_expected.check(item, UPDATE)
    return result


def pytest_sessionfinish(session):
    """A process of xdist hands over what it computed."""
    if (output := getattr(session.config, "workeroutput", None)) is not None:
        output["kept_values"] = (kept_values.COUNTS, kept_values.NEW)
        return
    if UPDATE:
        errors_expected.write()
    kept_values.write()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    if handed := getattr(node, "workeroutput", {}).get("kept_values"):
        kept_values.merge(*handed)


def pytest_terminal_summary(terminalreporter):
    if any(kept_values.COUNTS.values()):
        kept, computed = kept_values.COUNTS.values()
        terminalreporter.write_line(f"the reference's results: {kept} kept, {computed} computed")


@pytest.fixture
def no_disk_cache():
    """The cache on disk, which says what it does not have, is off."""
    ferrax.config.update("jax_enable_compilation_cache", False)
    yield
    ferrax.config.update("jax_enable_compilation_cache", True)
