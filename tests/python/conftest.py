"""Holds each test to the errors that it states (`errors_expected.py`)."""

import os

import errors_expected
import pytest

UPDATE = os.environ.get("FERRAX_UPDATE_SNAPSHOTS") == "1"


def pytest_configure(config):
    config.addinivalue_line("markers", "raises(*classes): each case raises errors of these classes")


@pytest.hookimpl(tryfirst=True)  # before cases are left out
def pytest_collection_modifyitems(config, items):
    if any("::" in argument for argument in config.invocation_params.args) or UPDATE:
        return
    unknown = errors_expected.without_case(items)
    if unknown:
        raise pytest.UsageError(f"{errors_expected.FILE.name} states errors of unknown cases: {', '.join(unknown)}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    errors_expected.RAISED.clear()
    result = yield
    errors_expected.check(item, UPDATE)
    return result


def pytest_sessionfinish(session):
    if UPDATE and not hasattr(session.config, "workerinput"):
        errors_expected.write()
