"""Runs the programs beside this file, on ferrax or on JAX.

    python tests/ecosystem/run_programs.py [NAME...]

writes what they print on JAX, the one of this Python, to `reference.json`; without names for all.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
REFERENCE = HERE / "reference.json"
NAMES = sorted(path.stem.removeprefix("with_") for path in HERE.glob("programs/with_*.py"))


def run(name: str, on_ferrax: bool) -> dict:
    """The numbers that a program prints, by name. Errors: AssertionError with its output if it fails."""
    environment = dict(os.environ, JAX_PLATFORMS="cpu", PYTHONWARNINGS="ignore")
    # XLA compiles longer than these programs run.
    environment.setdefault("XLA_FLAGS", "--xla_cpu_parallel_codegen_split_count=1")
    how = ["-m", "ferrax.compat"] if on_ferrax else []
    command = [sys.executable, *how, str(HERE / "programs" / f"with_{name}.py")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=1800)
    assert done.returncode == 0, done.stderr[-3000:]
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    return json.loads(line.removeprefix("RESULT "))


def main(names: list[str]) -> None:
    for name in names or NAMES:
        numbers = run(name, on_ferrax=False)
        found = json.loads(REFERENCE.read_text(encoding="utf-8")) if REFERENCE.exists() else {}
        found[name] = numbers
        lines = [
            f"{json.dumps(program)}: {{\n"
            + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in sorted(numbers.items()))
            + "\n}"
            for program, numbers in sorted(found.items())
        ]
        REFERENCE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
        print(f"{name}: {len(found[name])} results", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
