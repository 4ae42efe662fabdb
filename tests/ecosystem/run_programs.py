"""Runs the programs beside this file, and those examples that import jax, on ferrax or on JAX.

    python tests/ecosystem/run_programs.py [NAME...]
    python tests/ecosystem/run_programs.py --newest [--check] [NAME...]

writes what they print on JAX, the one of this Python, to `reference.json`; without names for all. With `--newest`
these are the programs for the newest libraries, which need Python 3.12 and JAX 0.12: those of `newest` and some of
`programs`, with `newest.json`. `--check` runs them on ferrax and compares (`tools/try_newest.py`).
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
REFERENCE = HERE / "reference.json"
LIBRARIES = sorted(path.stem.removeprefix("with_") for path in HERE.glob("programs/with_*.py"))
FOLDER = HERE.parents[1] / "examples"
# Examples, and how close the figures that they print have to be: within this share and this much. Those of
# training are printed with four digits. Trajectories of a sampler are chaotic: of these only what the
# draws have in common can be compared, within about three standard errors.
EXAMPLES: dict[str, dict[str, tuple[float, float]]] = {
    "optax_digits": {"accuracy": (0, 0.004)},
    "haiku_rows": {"accuracy": (0, 0.004), "accuracy after four rows": (0, 0.007)},
    "blackjax_schools": {
        "acceptance": (0, 0.05),
        "steps of a trajectory": (0.4, 0),
        "largest Gelman-Rubin statistic": (0, 0.05),
        "mean of all schools": (0, 0.7),
        "scale of their differences": (0, 1.0),
        "median of school A": (0, 1.0),
    },
}
NAMES = [*LIBRARIES, *EXAMPLES]

NEWEST_REFERENCE = HERE / "newest.json"
OWN = {path.stem.removeprefix("with_") for path in HERE.glob("newest/with_*.py")}
# Programs that are for the libraries' older versions, too.
NEWEST = [*sorted(OWN), "flax", "haiku"]


def run(name: str, on_ferrax: bool) -> dict:
    """The numbers that a program prints, by name. Errors: AssertionError with its output if it fails."""
    if name in EXAMPLES:
        return _figures(_output([str(FOLDER / f"{name}.py"), "--small"], on_ferrax), EXAMPLES[name])
    printed = _output([str(HERE / ("newest" if name in OWN else "programs") / f"with_{name}.py")], on_ferrax)
    (line,) = [line for line in printed.splitlines() if line.startswith("RESULT ")]
    return json.loads(line.removeprefix("RESULT "))


def _output(arguments: list[str], on_ferrax: bool) -> str:
    environment = dict(os.environ, JAX_PLATFORMS="cpu", PYTHONWARNINGS="ignore")
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # one compilation of ferrax serves all programs
    paths = [str(HERE / "programs"), environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    # XLA compiles longer than these programs run.
    environment.setdefault("XLA_FLAGS", "--xla_cpu_parallel_codegen_split_count=1")
    command = [sys.executable, *(["-m", "ferrax.compat"] if on_ferrax else []), *arguments]
    with tempfile.TemporaryDirectory() as folder:  # pictures are written where the program runs
        done = subprocess.run(
            command, capture_output=True, text=True, env=environment, cwd=folder, timeout=1800
        )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def _figures(printed: str, bounds: dict[str, tuple[float, float]]) -> dict:
    found = re.findall(r"^(\w[^:]*): ([-+.\de]+)$", printed, re.MULTILINE)
    kind = {"dtype": "printed", "shape": []}
    return {
        what: kind | dict(zip(("rtol", "atol"), bounds.get(what, (1e-3, 0)))) | {"value": float(value)}
        for what, value in found
    }


def compare(found: dict, expected: dict) -> None:
    """Errors: AssertionError where the results of a program are not those on JAX."""
    assert sorted(found) == sorted(expected)
    for key, wanted in expected.items():
        got = found[key]
        if "text" in wanted:
            assert got == wanted, key
            continue
        assert (got["dtype"], got["shape"]) == (wanted["dtype"], wanted["shape"]), key
        np.testing.assert_allclose(
            got["value"], wanted["value"], rtol=wanted["rtol"], atol=wanted["atol"], err_msg=key
        )


def write(path: pathlib.Path, names: list[str]) -> None:
    """Writes what programs print on JAX, those of others being kept."""
    for name in names:
        numbers = run(name, on_ferrax=False)
        found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        found[name] = numbers
        lines = [
            f"{json.dumps(program)}: {{\n"
            + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in sorted(numbers.items()))
            + "\n}"
            for program, numbers in sorted(found.items())
        ]
        path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
        print(f"{name}: {len(found[name])} results", flush=True)


def check(path: pathlib.Path, names: list[str]) -> bool:
    """Whether programs give on ferrax what is written of them; says of each."""
    expected = json.loads(path.read_text(encoding="utf-8"))

    def one(name):
        start = time.perf_counter()
        try:
            compare(run(name, on_ferrax=True), expected[name])
        except AssertionError as error:
            print(f"{name}: FAILED\n{error}", flush=True)
            return False
        took = time.perf_counter() - start
        print(f"{name}: {len(expected[name])} results are those on JAX, {took:.0f} s", flush=True)
        return True

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        return all(list(pool.map(one, names)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--newest", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    path, names = (NEWEST_REFERENCE, NEWEST) if options.newest else (REFERENCE, NAMES)
    if options.check:
        sys.exit(not check(path, options.names or names))
    write(path, options.names or names)


if __name__ == "__main__":
    main()
