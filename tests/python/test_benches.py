"""The benchmarks: a row of each family runs, and gives what NumPy gives."""

import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def test_a_row_of_each_family_runs():
    command = [sys.executable, ROOT / "benches" / "check.py"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.count(": ok\n") >= 20
