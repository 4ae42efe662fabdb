"""How far a call makes the resident memory rise, measured in a process of its own."""

from __future__ import annotations

import functools
import importlib
import resource
import subprocess
import sys

from timing import Library


def _status(field) -> int:
    """A figure of the process in bytes, from Linux."""
    with open("/proc/self/status", encoding="ascii") as file:
        line = next(line for line in file if line.startswith(field + ":"))
    return int(line.split()[1]) * 1024


def peak(compiled, library, arguments) -> int:
    """How far the resident memory rises above what it was before the compiled function ran."""
    try:
        with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
            file.write("5")  # the peak is what is resident now
        before, highest = _status("VmRSS"), functools.partial(_status, "VmHWM")
    except OSError:
        highest = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # noqa: E731
        before = highest()
    library.jax.block_until_ready(compiled(*arguments))
    return highest() - before


def peak_in_a_process(file, name, *arguments) -> int:
    """What the script `file` prints for a library and further arguments."""
    command = [sys.executable, file, name, *map(str, arguments)]
    return int(subprocess.run(command, capture_output=True, check=True, text=True).stdout)


def print_peak(peak_of):
    """What such a script does: prints `peak_of(library, number, …)` for its arguments."""
    _, name, number, *more = sys.argv
    package = importlib.import_module(name)
    library = Library(name, package, importlib.import_module(f"{name}.numpy"))
    print(peak_of(library, int(number), *more))
