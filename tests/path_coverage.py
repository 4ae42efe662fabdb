"""Holds the whole suite to taking each way of computing at least once (`ferrax.lib.stats`).

A way that no test takes has no test. Processes of xdist hand their counts over when they end; what tests start as
processes of their own does not count. Only the whole suite is held to it, with the usual thresholds and on the CPU: any
choice of tests, and an end before the last one, says nothing.
"""

import collections
import os

import pytest

KEY = "paths_taken"


def taken() -> dict[str, int]:
    from ferrax import lib  # not before tests set what is read at import

    return lib.stats()


def is_whole(config) -> bool:
    """Whether all tests run."""
    options = ("few", "keyword", "markexpr", "deselect", "ignore", "ignore_glob", "lf", "last_failed", "stepwise", "collectonly")
    chosen = any(config.getoption(option, None) for option in options)
    elsewhere = any(os.environ.get(name) for name in ("FERRAX_PLATFORMS", "FERRAX_TUNING"))
    return config.args_source == config.ArgsSource.TESTPATHS and not chosen and not elsewhere


class PathCoverage:
    """A plugin for the process that gathers results, and one for each that runs tests."""

    def __init__(self):
        self.counts = collections.Counter()
        self.missing = []
        self.lost = 0

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node, error):
        output = getattr(node, "workeroutput", None)
        if output is None or KEY not in output:
            self.lost += 1  # a worker that died
        else:
            self.counts.update(output[KEY])

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session, exitstatus):
        config = session.config
        if hasattr(config, "workeroutput"):
            config.workeroutput[KEY] = taken()
            return
        complete = exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED) and not self.lost
        if not complete or session.shouldstop or session.shouldfail or not is_whole(config):
            return
        if not config.pluginmanager.has_plugin("dsession"):  # no workers: the tests ran here
            self.counts.update(taken())
        self.missing = [name for name, count in self.counts.items() if count == 0]
        if self.missing:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter):
        for name in self.missing:
            terminalreporter.write_line(f"FAILED no test takes the path '{name}' (ferrax-ir/src/paths.rs)", red=True)
