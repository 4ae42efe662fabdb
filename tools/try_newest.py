"""Runs programs with the newest libraries for JAX, which need Python 3.12, on ferrax following JAX 0.12.

The environment is `.venv-newest`: the requirements are those of the extra `newest` of `pyproject.toml`, the
extension module is the one that `make build` made, which is for all versions of Python. Without a Python 3.12 on
this machine nothing is run, and a line says so.
"""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import requirements
import try_versions

ROOT = pathlib.Path(__file__).resolve().parent.parent
VERSION = "3.12"
EXTRA = "newest"


def environment(path: str) -> pathlib.Path:
    """The Python of the environment, with what the extra says now."""
    folder = ROOT / f".venv-{EXTRA}"
    python, stamp = folder / "bin" / "python", folder / "installed.txt"
    wanted = "\n".join(requirements.of([EXTRA])) + "\n"
    if not python.exists():
        subprocess.run([path, "-m", "venv", folder], check=True)
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != wanted:
        subprocess.run([python, "-m", "pip", "install", "-q", *wanted.split("\n")[:-1]], check=True)
        stamp.write_text(wanted, encoding="utf-8")
    return python


def main(arguments: list[str]) -> int:
    path = try_versions.interpreter(VERSION)
    if path is None:
        print(f"Python {VERSION} is not on this machine: newest Flax, Orbax and Diffrax were NOT tested", flush=True)
        return 0
    settings = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
    settings |= {"PYTHONPATH": str(ROOT / "python"), "FERRAX_JAX_VERSION": "0.12"}
    command = [environment(path), ROOT / "tests" / "ecosystem" / "run_programs.py", "--newest", "--check", *arguments]
    print(f"Python {VERSION} ({path}), the newest libraries", flush=True)
    return subprocess.run(command, env=settings).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
